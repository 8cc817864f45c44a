"""Deletion of pods by HTTP: by name, by a selection, or by force for stuck terminating pods.

The answer has an outcome for each pod. `surge` deletes whole units and answers in the same way.
"""

from collections.abc import Callable
from typing import Any

from django.http import HttpResponse
from django.urls import path
from rest_framework import serializers
from rest_framework.exceptions import ErrorDetail, ValidationError
from rest_framework.request import Request

from rollouts.accounts.commands import Command, WorkloadRef
from rollouts.api.commands import CommandView, describe_command, render_ref
from rollouts.api.etags import render_etag
from rollouts.api.idempotency import answer_once
from rollouts.api.paths import WORKLOAD
from rollouts.api.rendering import json_response
from rollouts.api.serializers import (
    PlaceAnswer,
    StrictBooleanField,
    StrictCharField,
    StrictSerializer,
    replica_index_field,
)
from rollouts.services.audit import Caller
from rollouts.services.deletion import DeletionResult, PodRef, PodsDeleted
from rollouts.services.pods import MAX_PODS, Selection, pods_delete, pods_delete_stuck


class PodBody(StrictSerializer):
    """A pod."""

    name = StrictCharField(max_length=253)
    uid = StrictCharField(
        required=False,
        default="",
        max_length=64,
        help_text="Deletes only the pod with this uid, never a successor of the same name.",
    )


class SelectionBody(StrictSerializer):
    """Selects pods; all given conditions must hold."""

    replica = replica_index_field("The index of a replica of the set.")
    clique = StrictCharField(
        required=False,
        default="",
        allow_blank=True,
        max_length=253,
        help_text="A clique or scaling group, or the name of a PodClique.",
    )
    node = StrictCharField(
        required=False, default="", allow_blank=True, max_length=253, help_text="The name of a node."
    )
    all = StrictBooleanField(
        required=False, default=False, help_text="All pods of the workload; required without another condition."
    )

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        """Refuse an empty selection: selecting all pods must be explicit."""
        if attrs["replica"] is None and not attrs["clique"] and not attrs["node"] and not attrs["all"]:
            raise ValidationError(ErrorDetail("select pods by replica, clique, node or all", code="required"))
        return attrs


class DeletePodsBody(StrictSerializer):
    """The pods to delete: a list, or a selection."""

    pods = serializers.ListField(child=PodBody(), required=False, allow_empty=False, max_length=MAX_PODS)
    selection = SelectionBody(required=False)
    force = StrictBooleanField(
        required=False,
        default=False,
        help_text="Also delete pods of the current template, under any strategy, ignoring disruption budgets.",
    )

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        """Require exactly one of list and selection."""
        if ("pods" in attrs) == ("selection" in attrs):
            raise ValidationError({"pods": [ErrorDetail("send either pods or selection", code="required")]})
        return attrs


class LetGoBody(StrictSerializer):
    """Pods that are stuck terminating."""

    pods = serializers.ListField(child=PodBody(), allow_empty=False, max_length=MAX_PODS)


class PodOutcomeAnswer(serializers.Serializer[Any]):
    """The outcome for one pod."""

    name = serializers.CharField(help_text="Name of the pod, or of a surge unit without pods.")
    uid = serializers.CharField(allow_blank=True, help_text="Empty for a surge unit and for a pod that does not exist.")
    outcome = serializers.ChoiceField(
        choices=[str(fate) for fate in DeletionResult],
        help_text="Refused: by a disruption budget or by the cluster. Leaving: it was already terminating."
        " Gone: it no longer exists. NotThere: the workload has no such pod. Unknown: the cluster did not answer."
        " NotSent: the request was not sent.",
    )
    message = serializers.CharField(allow_blank=True, help_text="The reason, as a sentence.")


class DeletedPodsAnswer(serializers.Serializer[Any]):
    """The outcomes for the pods."""

    workload = PlaceAnswer()
    version = serializers.CharField(
        help_text="Version of the workload. Send it in quotes as If-Match with the next command."
    )
    pods = PodOutcomeAnswer(many=True)
    left = serializers.IntegerField(help_text="How many selected pods remain: repeat the command for them.")
    dry_run = serializers.BooleanField(help_text="True: nothing was deleted; the answer shows what would be.")
    request_id = serializers.CharField(help_text="Identifies the request in the log and the audit.")


class PodDeletionView(CommandView):
    """A command that deletes pods."""

    def run_deletion(self, carry_out: Callable[[Caller, dict[str, Any]], PodsDeleted]) -> HttpResponse:
        """Run a deletion once, and answer with the outcome for each pod."""
        request, (caller, terms) = self.request, self.read_preconditions()
        return answer_once(request, lambda _: _deleted_response(request, carry_out(caller, terms)))


class DeletePodsView(PodDeletionView):
    """Deletion of pods."""

    commands = (Command.DELETE_OUTDATED_PODS, Command.DELETE_ANY_PODS)

    @describe_command(DeletePodsBody, DeletedPodsAnswer, operation_id="pods_delete", summary="Delete pods")
    def post(self, request: Request, cluster: str, namespace: str, name: str) -> HttpResponse:
        """Evict outdated pods under OnDelete; their replacements have the current template.

        The cluster checks disruption budgets, and the answer has an outcome for each pod. Other pods are deleted only
        with `force`.
        """
        place, body = WorkloadRef(cluster, namespace, name), self.read_body(DeletePodsBody)
        chosen, force = _read_targets(body), body["force"]
        return self.run_deletion(lambda caller, terms: pods_delete(caller, place, chosen, force=force, **terms))


class DeleteStuckPodsView(PodDeletionView):
    """Deletion of stuck terminating pods."""

    commands = (Command.DELETE_ANY_PODS,)

    @describe_command(
        LetGoBody, DeletedPodsAnswer, operation_id="pods_let_go", summary="Force the deletion of stuck terminating pods"
    )
    def post(self, request: Request, cluster: str, namespace: str, name: str) -> HttpResponse:
        """Remove pods from the API server that stay terminating, usually because their node is gone.

        The controller replaces them at once. If the node still runs, their containers may continue unnoticed. A pod
        that is not terminating is refused.
        """
        place, body = WorkloadRef(cluster, namespace, name), self.read_body(LetGoBody)
        chosen = _read_pods(body["pods"])
        return self.run_deletion(lambda caller, terms: pods_delete_stuck(caller, place, chosen, **terms))


def _read_targets(body: dict[str, Any]) -> list[PodRef] | Selection:
    if "pods" in body:
        return _read_pods(body["pods"])
    selection = body["selection"]
    return Selection(selection["replica"], selection["clique"], selection["node"])


def _read_pods(pods: list[dict[str, str]]) -> list[PodRef]:
    return [PodRef(pod["name"], pod["uid"]) for pod in pods]


def _deleted_response(request: Request, deleted: PodsDeleted) -> HttpResponse:
    pods = [
        {"name": one.name, "uid": one.uid, "outcome": str(one.outcome), "message": one.message}
        for one in deleted.outcomes
    ]
    response = json_response(
        {
            "workload": render_ref(deleted.place),
            "version": deleted.version,
            "pods": pods,
            "left": deleted.left,
            "dry_run": deleted.is_dry_run,
            "request_id": getattr(request, "request_id", ""),
        }
    )
    response["ETag"] = render_etag(deleted.version)
    return response


urlpatterns = [
    path(f"{WORKLOAD}pods/delete/", DeletePodsView.as_view(), name="workload-pods-delete"),
    path(f"{WORKLOAD}pods/let-go/", DeleteStuckPodsView.as_view(), name="workload-pods-let-go"),
]
