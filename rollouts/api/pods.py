"""Pods deleted by HTTP: by name or by where they are, or let go of; each with what became of it.

`surge` deletes whole units, and answers in the same way.
"""

from collections.abc import Callable
from typing import Any

from django.http import HttpResponse
from django.urls import path
from rest_framework import serializers
from rest_framework.exceptions import ErrorDetail, ValidationError
from rest_framework.request import Request

from rollouts.accounts.commands import Command, WorkloadRef
from rollouts.api.commands import CommandView, describe_command, render_place
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
        help_text="So that no other pod of that name is deleted in its place.",
    )


class SelectionBody(StrictSerializer):
    """Pods by where they are; of several conditions all must hold."""

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
        required=False, default=False, help_text="All of them; must be said where nothing else is."
    )

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        """Refuse an empty selection: whoever means all says so."""
        if attrs["replica"] is None and not attrs["clique"] and not attrs["node"] and not attrs["all"]:
            raise ValidationError(ErrorDetail("say which: replica, clique, node, or all", code="required"))
        return attrs


class DeletePodsBody(StrictSerializer):
    """Which pods: by name, or by a selection."""

    pods = serializers.ListField(child=PodBody(), required=False, allow_empty=False, max_length=MAX_PODS)
    selection = SelectionBody(required=False)
    force = StrictBooleanField(
        required=False,
        default=False,
        help_text="Delete also pods of the current template, under any strategy, past disruption budgets.",
    )

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        """Refuse both ways at once, and neither."""
        if ("pods" in attrs) == ("selection" in attrs):
            raise ValidationError({"pods": [ErrorDetail("send either pods or a selection", code="required")]})
        return attrs


class LetGoBody(StrictSerializer):
    """Pods that were deleted and do not go."""

    pods = serializers.ListField(child=PodBody(), allow_empty=False, max_length=MAX_PODS)


class PodOutcomeAnswer(serializers.Serializer[Any]):
    """What became of a pod."""

    name = serializers.CharField(help_text="Of a pod; of surge that is gone or had no pods, its own.")
    uid = serializers.CharField(allow_blank=True, help_text="Empty for what has none, or is not there to have one.")
    outcome = serializers.ChoiceField(
        choices=[str(fate) for fate in DeletionResult],
        help_text="Refused: by a disruption budget or by the cluster. Leaving: somebody has deleted it already."
        " Gone: it is not there any more. NotThere: the workload has no such pod. Unknown: no answer came."
        " NotSent: it was not tried.",
    )
    message = serializers.CharField(allow_blank=True, help_text="Why, as a sentence.")


class DeletedPodsAnswer(serializers.Serializer[Any]):
    """What became of the pods."""

    workload = PlaceAnswer()
    version = serializers.CharField(help_text="Of the workload. Send it in quotes as If-Match with the next command.")
    pods = PodOutcomeAnswer(many=True)
    left = serializers.IntegerField(help_text="So many were meant as well: give the command again.")
    dry_run = serializers.BooleanField(help_text="Nothing was deleted: this is what would be.")
    request_id = serializers.CharField(help_text="By which logs and audit know it.")


class PodDeletionView(CommandView):
    """A command that deletes pods."""

    def run_deletion(self, carry_out: Callable[[Caller, dict[str, Any]], PodsDeleted]) -> HttpResponse:
        """Carry a deletion out once, and answer with what became of each pod."""
        request, (caller, terms) = self.request, self.read_preconditions()
        return answer_once(request, lambda _: _deleted_response(request, carry_out(caller, terms)))


class DeletePodsView(PodDeletionView):
    """Deletion of pods."""

    commands = (Command.DELETE_OUTDATED_PODS, Command.DELETE_ANY_PODS)

    @describe_command(DeletePodsBody, DeletedPodsAnswer, operation_id="pods_delete", summary="Delete pods")
    def post(self, request: Request, cluster: str, namespace: str, name: str) -> HttpResponse:
        """Evict outdated pods under OnDelete, so that they come back with the current template.

        Disruption budgets are honoured, and what became of each pod is told. Everything else is deleted only by force.
        """
        place, body = WorkloadRef(cluster, namespace, name), self.read_body(DeletePodsBody)
        chosen, force = _read_targets(body), body["force"]
        return self.run_deletion(lambda caller, terms: pods_delete(caller, place, chosen, force=force, **terms))


class DeleteStuckPodsView(PodDeletionView):
    """Pods that do not go."""

    commands = (Command.DELETE_ANY_PODS,)

    @describe_command(LetGoBody, DeletedPodsAnswer, operation_id="pods_let_go", summary="Let go of pods that do not go")
    def post(self, request: Request, cluster: str, namespace: str, name: str) -> HttpResponse:
        """Have the cluster forget pods that were deleted and do not go, mostly since their node is gone.

        Their places are taken anew at once. If the node is still there, their containers go on, unseen. A pod that
        nobody has deleted is refused.
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
            "workload": render_place(deleted.place),
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
