"""What people command to a workload by HTTP: apply, images, scale, restart, roll back, take over.

A view reads the body (`serializers`), says who asks and what they saw, calls the service, and renders what came of it.
Everything that is refused is raised there and becomes problem+json. All commands take `If-Match`, `Idempotency-Key` and
`?dry_run=true`; a parameter that nobody knows is refused, because whoever misspells dry_run means it.
"""

from collections.abc import Callable, Sequence
from datetime import datetime
from http import HTTPStatus
from typing import Any, Final

from django.http import HttpResponse
from django.urls import path
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework.parsers import BaseParser
from rest_framework.permissions import SAFE_METHODS
from rest_framework.request import Request
from rest_framework.views import APIView

from rollouts.accounts.commands import Command, WorkloadRef
from rollouts.api.changes import make_change
from rollouts.api.etags import read_expected, read_must_be_new, render_etag
from rollouts.api.idempotency import answer_once
from rollouts.api.parsers import (
    ApplyYAMLParser,
    FormerYAMLParser,
    StrictJSONParser,
    TextYAMLParser,
    YAMLParser,
)
from rollouts.api.paths import CLUSTER, WORKLOAD
from rollouts.api.problems import BadParameter, RequestFinding
from rollouts.api.rendering import json_response
from rollouts.api.serializers import (
    ChangedAnswer,
    ClusterTakenOverAnswer,
    ImagesBody,
    RestartBody,
    RollBackBody,
    ScaleBody,
    StrictSerializer,
    TakeOverBody,
)
from rollouts.engine.manifest.findings import Finding
from rollouts.services.audit import Caller, Source, caller_of, require_one_of
from rollouts.services.changes import Apply, execute
from rollouts.services.edit import EditResult
from rollouts.services.takeover import cluster_take_over, workload_take_over


def flag_parameter(name: str, words: str) -> OpenApiParameter:
    """Describe a flag in the address."""
    return OpenApiParameter(name, {"type": "boolean", "default": False}, OpenApiParameter.QUERY, description=words)


_FLAGS: Final = {"": True, "true": True, "1": True, "false": False, "0": False}

IF_MATCH: Final = OpenApiParameter(
    "If-Match",
    str,
    OpenApiParameter.HEADER,
    description="ETag of the state that you saw. If the workload has been changed since: 412, with what changed.",
)
COMMAND_HEADERS: Final = [
    IF_MATCH,
    OpenApiParameter(
        "Idempotency-Key",
        {"type": "string", "pattern": "^[!-~]{1,255}$"},
        OpenApiParameter.HEADER,
        description="Any text of your own. The same command with the same key is carried out once, and answered alike.",
    ),
]
_DRY_RUN: Final = flag_parameter("dry_run", "Ask the cluster what would be changed, and change nothing.")


def describe_command(
    body: Any, answer: Any, *, extra: Sequence[OpenApiParameter] = (_DRY_RUN,), **more: Any
) -> Callable[[Any], Any]:
    """Describe a command for the schema."""
    return extend_schema(
        request=body, responses={200: answer}, parameters=[*COMMAND_HEADERS, *extra], tags=["commands"], **more
    )


class CommandView(APIView):
    """A command to a workload."""

    parser_classes: tuple[type[BaseParser], ...] = (StrictJSONParser,)
    flags: tuple[str, ...] = ("dry_run",)
    # What a body may turn out to ask for.
    commands: tuple[Command, ...]
    # It changes nothing, so that not even a refusal is on record.
    is_read_only = False

    def initial(self, request: Request, *args: Any, **kwargs: Any) -> None:
        """Refuse who may not, and what nobody knows, before the body is parsed."""
        # Kept from here on, unparsed: to look for a CSRF token, whoever authenticates a session may read it too.
        _ = request._request.body  # noqa: SLF001 (public in all but name)
        super().initial(request, *args, **kwargs)
        if request.method not in SAFE_METHODS:
            self._require_known_parameters(request)
            place = WorkloadRef(**kwargs) if "cluster" in kwargs else None
            require_one_of(
                caller_of(request, Source.API),
                self.commands_of(request),
                place,
                dry_run=self.is_read_only or ("dry_run" in self.flags and self.flag("dry_run")),
            )

    def commands_of(self, request: Request) -> tuple[Command, ...]:
        """Return what a request may turn out to ask for."""
        return self.commands

    def _require_known_parameters(self, request: Request) -> None:
        unknown = [name for name in request.query_params if name not in self.flags]
        if unknown:
            raise BadParameter(
                *(RequestFinding(name[:100], "UnknownValue", "There is no such parameter here.") for name in unknown)
            )

    def read_body(self, shape: type[StrictSerializer]) -> dict[str, Any]:
        """Return the body as its shape has it."""
        body = shape(data=self.request.data)
        body.is_valid(raise_exception=True)
        values: dict[str, Any] = body.validated_data
        return values

    def flag(self, name: str) -> bool:
        """Return whether a flag is set in the address."""
        text = self.request.query_params.get(name, "false").lower()
        if text not in _FLAGS:
            raise BadParameter(RequestFinding(name, "WrongType", f"{name} must be true or false."))
        return _FLAGS[text]

    def run_change(self, kind: str, place: WorkloadRef, body: dict[str, Any]) -> HttpResponse:
        """Make the change that a body asks for, once, and answer."""
        return self.run_command(
            lambda at, caller, terms: execute(caller, place, make_change(kind, place, body, at), **terms)
        )

    def run_command(self, carry_out: Callable[[datetime, Caller, dict[str, Any]], EditResult]) -> HttpResponse:
        """Execute a command once, given when it was first sent, and answer."""
        request, (caller, terms) = self.request, self.read_preconditions()
        return answer_once(request, lambda since: edit_response(request, carry_out(since, caller, terms)))

    def read_preconditions(self) -> tuple[Caller, dict[str, Any]]:
        """Return who asks, and what holds for every command: the state that they saw, and whether it is a dry run."""
        terms = {"expected": read_expected(self.request), "dry_run": self.flag("dry_run")}
        return caller_of(self.request, Source.API), terms


class ImagesView(CommandView):
    """Images."""

    commands = (Command.SET_IMAGES,)

    @describe_command(ImagesBody, ChangedAnswer, operation_id="workload_set_images", summary="Change images")
    def post(self, request: Request, cluster: str, namespace: str, name: str) -> HttpResponse:
        """Give containers other images; that is a new template, which the strategy brings to the pods."""
        return self.run_change("images", WorkloadRef(cluster, namespace, name), self.read_body(ImagesBody))


class ApplyView(CommandView):
    """Manifests."""

    commands = (Command.APPLY_WORKLOAD,)
    parser_classes = (StrictJSONParser, YAMLParser, ApplyYAMLParser, FormerYAMLParser, TextYAMLParser)
    flags = ("dry_run", "force")

    @extend_schema(
        operation_id="workload_apply",
        summary="Apply a manifest",
        tags=["commands"],
        request={"application/json": OpenApiTypes.OBJECT, "application/yaml": OpenApiTypes.OBJECT},
        responses={200: ChangedAnswer, 201: ChangedAnswer},
        parameters=[
            *COMMAND_HEADERS,
            OpenApiParameter(
                "If-None-Match",
                {"type": "string", "enum": ["*"]},
                OpenApiParameter.HEADER,
                description="The workload must be new.",
            ),
            _DRY_RUN,
            flag_parameter("force", "Take over fields that others hold with another value."),
        ],
    )
    def post(self, request: Request, cluster: str, namespace: str, name: str) -> HttpResponse:
        """Apply a manifest, as YAML or JSON: the workload is created, or carries these fields from now on.

        What was applied here before and is left out now is removed; what others wrote stays (server-side apply). A
        manifest as it was shown here can be sent back: what is hidden in it is put back.
        """
        place, manifest = WorkloadRef(cluster, namespace, name), request.data
        change = Apply(manifest, force=self.flag("force"), must_be_new=read_must_be_new(request))
        return self.run_command(lambda _, caller, terms: execute(caller, place, change, **terms))


class ScaleView(CommandView):
    """Replicas."""

    commands = (Command.SCALE_WORKLOAD,)

    @describe_command(ScaleBody, ChangedAnswer, operation_id="workload_scale", summary="Scale")
    def post(self, request: Request, cluster: str, namespace: str, name: str) -> HttpResponse:
        """Set replicas: of the set; with `component` in the template; with `replica` too, of the live component."""
        return self.run_change("scale", WorkloadRef(cluster, namespace, name), self.read_body(ScaleBody))


class RestartView(CommandView):
    """Restarts."""

    commands = (Command.RESTART_WORKLOAD,)

    @describe_command(RestartBody, ChangedAnswer, operation_id="workload_restart", summary="Restart")
    def post(self, request: Request, cluster: str, namespace: str, name: str) -> HttpResponse:
        """Have pods replaced by new ones of the same kind, as the strategy says."""
        return self.run_change("restart", WorkloadRef(cluster, namespace, name), self.read_body(RestartBody))


class RollBackView(CommandView):
    """The way back."""

    commands = (Command.ROLL_BACK_WORKLOAD,)

    @describe_command(RollBackBody, ChangedAnswer, operation_id="workload_roll_back", summary="Roll back")
    def post(self, request: Request, cluster: str, namespace: str, name: str) -> HttpResponse:
        """Make the pods again what they were under a revision; replicas and strategies stay as they are."""
        return self.run_change("rollback", WorkloadRef(cluster, namespace, name), self.read_body(RollBackBody))


class TakeOverView(CommandView):
    """Workloads of Grove's own operator."""

    commands = (Command.TAKE_OVER_WORKLOAD,)

    @describe_command(TakeOverBody, ChangedAnswer, operation_id="workload_take_over", summary="Take over from Grove")
    def post(self, request: Request, cluster: str, namespace: str, name: str) -> HttpResponse:
        """Make a workload of Grove's own operator Grove UI's, after that operator is gone. No pod is replaced.

        `changed` has the fields of all objects, each with the kind and name of its object. Refused while Grove's
        operator runs. A takeover that was cut off is finished by another one.
        """
        place = WorkloadRef(cluster, namespace, name)
        self.read_body(TakeOverBody)
        return self.run_command(lambda _, caller, terms: workload_take_over(caller, place, **terms).changed)


class TakeOverClusterView(CommandView):
    """All workloads of Grove's own operator."""

    commands = (Command.TAKE_OVER_WORKLOAD,)

    @extend_schema(
        operation_id="cluster_take_over",
        summary="Take a cluster over from Grove",
        tags=["commands"],
        request=TakeOverBody,
        responses={200: ClusterTakenOverAnswer},
        parameters=[*COMMAND_HEADERS[1:], _DRY_RUN],
    )
    def post(self, request: Request, cluster: str) -> HttpResponse:
        """Take over every workload of a cluster that Grove's own operator keeps, one after the other.

        What is in the way of one workload does not keep the others. Needs a grant for all namespaces of the cluster.
        """
        self.read_body(TakeOverBody)
        caller, terms = self.read_preconditions()

        def carry_out(_: datetime) -> HttpResponse:
            taken = cluster_take_over(caller, cluster, dry_run=terms["dry_run"])
            return json_response(
                {
                    "cluster": taken.cluster,
                    "workloads": [
                        {
                            "workload": render_place(one.place),
                            "objects": one.objects,
                            "pods": one.pods,
                            "outdated": one.outdated,
                            "problem": one.problem,
                        }
                        for one in taken.outcomes
                    ],
                    "left": taken.left,
                    "dry_run": taken.is_dry_run,
                    "request_id": getattr(request, "request_id", ""),
                }
            )

        return answer_once(request, carry_out)


def edit_response(request: Request, changed: EditResult) -> HttpResponse:
    """Render what a command changed."""
    body = {
        "workload": render_place(changed.place),
        "version": changed.version,
        "changed": [{"field": one.field, "before": one.before, "after": one.after} for one in changed.changes],
        "warnings": render_findings(changed.warnings),
        "created": changed.is_new,
        "dry_run": changed.is_dry_run,
        "request_id": getattr(request, "request_id", ""),
    }
    response = json_response(body)
    if changed.is_new and not changed.is_dry_run:
        response.status_code = HTTPStatus.CREATED
    response["ETag"] = render_etag(changed.version)
    return response


def render_place(place: WorkloadRef) -> dict[str, str]:
    """Render the name of a workload."""
    return {"cluster": place.cluster, "namespace": place.namespace, "name": place.name}


def render_findings(findings: Sequence[Finding]) -> list[dict[str, str]]:
    """Render what there is to know about fields."""
    return [{"field": one.field, "code": str(one.code), "message": one.message} for one in findings]


urlpatterns = [
    path(f"{WORKLOAD}apply/", ApplyView.as_view(), name="workload-apply"),
    path(f"{WORKLOAD}images/", ImagesView.as_view(), name="workload-images"),
    path(f"{WORKLOAD}scale/", ScaleView.as_view(), name="workload-scale"),
    path(f"{WORKLOAD}restart/", RestartView.as_view(), name="workload-restart"),
    path(f"{WORKLOAD}take-over/", TakeOverView.as_view(), name="workload-take-over"),
    path(f"{CLUSTER}take-over/", TakeOverClusterView.as_view(), name="cluster-take-over"),
    path(f"{WORKLOAD}rollback/", RollBackView.as_view(), name="workload-rollback"),
]
