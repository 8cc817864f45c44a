"""Commands to a workload by HTTP: apply, images, scale, restart, roll back, take over.

A view reads the body (`serializers`) and the headers, calls the service, and renders the result. The service raises
refusals, which become problem+json. All commands take `If-Match`, `Idempotency-Key` and `?dry_run=true`; an unknown
parameter is rejected, because a misspelt dry_run must not change anything.
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
    TakeOverClusterBody,
)
from rollouts.engine.manifest.findings import Finding
from rollouts.services.audit import Caller, Source, caller_of, require_one_of
from rollouts.services.changes import Apply, execute
from rollouts.services.edit import EditResult
from rollouts.services.takeover import ClusterTakeoverResult, cluster_take_over, workload_take_over


def flag_parameter(name: str, words: str) -> OpenApiParameter:
    """Describe a boolean query parameter."""
    return OpenApiParameter(name, {"type": "boolean", "default": False}, OpenApiParameter.QUERY, description=words)


_FLAGS: Final = {"": True, "true": True, "1": True, "false": False, "0": False}

IF_MATCH: Final = OpenApiParameter(
    "If-Match",
    str,
    OpenApiParameter.HEADER,
    description="The ETag that you read. If the workload has been changed since: 412, with the changed fields.",
)
COMMAND_HEADERS: Final = [
    IF_MATCH,
    OpenApiParameter(
        "Idempotency-Key",
        {"type": "string", "pattern": "^[!-~]{1,255}$"},
        OpenApiParameter.HEADER,
        description="A text of your choice. A command that is repeated with its key runs once; the answer is the same.",
    ),
]
_DRY_RUN: Final = flag_parameter("dry_run", "Return what would change, and change nothing.")


def describe_command(
    body: Any, answer: Any, *, extra: Sequence[OpenApiParameter] = (_DRY_RUN,), **more: Any
) -> Callable[[Any], Any]:
    """Describe a command for the OpenAPI schema."""
    return extend_schema(
        request=body, responses={200: answer}, parameters=[*COMMAND_HEADERS, *extra], tags=["commands"], **more
    )


class CommandView(APIView):
    """A command to a workload."""

    parser_classes: tuple[type[BaseParser], ...] = (StrictJSONParser,)
    flags: tuple[str, ...] = ("dry_run",)
    # The commands that a body may contain.
    commands: tuple[Command, ...]
    # A view that changes nothing; its refusals are not recorded.
    is_read_only = False

    def initial(self, request: Request, *args: Any, **kwargs: Any) -> None:
        """Check the permission and the parameters before the body is parsed."""
        # Django keeps the raw body from here on: the CSRF check of a session may read the stream.
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
        """Return the commands that a request may contain."""
        return self.commands

    def _require_known_parameters(self, request: Request) -> None:
        unknown = [name for name in request.query_params if name not in self.flags]
        if unknown:
            raise BadParameter(
                *(RequestFinding(name[:100], "UnknownValue", "This parameter is unknown.") for name in unknown)
            )

    def read_body(self, shape: type[StrictSerializer]) -> dict[str, Any]:
        """Return the validated body."""
        body = shape(data=self.request.data)
        body.is_valid(raise_exception=True)
        values: dict[str, Any] = body.validated_data
        return values

    def flag(self, name: str) -> bool:
        """Return the value of a boolean query parameter."""
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
        """Return the caller and the options of every command: the expected version, and whether it is a dry run."""
        terms = {"expected": read_expected(self.request), "dry_run": self.flag("dry_run")}
        return caller_of(self.request, Source.API), terms


class ImagesView(CommandView):
    """Images."""

    commands = (Command.SET_IMAGES,)

    @describe_command(ImagesBody, ChangedAnswer, operation_id="workload_set_images", summary="Change images")
    def post(self, request: Request, cluster: str, namespace: str, name: str) -> HttpResponse:
        """Change the images of containers. This changes the template and starts an update."""
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
                description="Create only: the workload must not exist yet.",
            ),
            _DRY_RUN,
            flag_parameter("force", "Take over fields that other field managers own."),
        ],
    )
    def post(self, request: Request, cluster: str, namespace: str, name: str) -> HttpResponse:
        """Create or change a workload from a manifest in YAML or JSON, by server-side apply.

        Fields that Grove UI applied before and that are missing now are removed; fields of other managers stay. You can
        send back a manifest that you read here: Grove UI restores its hidden values.
        """
        place, manifest = WorkloadRef(cluster, namespace, name), request.data
        change = Apply(manifest, force=self.flag("force"), must_be_new=read_must_be_new(request))
        return self.run_command(lambda _, caller, terms: execute(caller, place, change, **terms))


class ScaleView(CommandView):
    """Replicas."""

    commands = (Command.SCALE_WORKLOAD,)

    @describe_command(ScaleBody, ChangedAnswer, operation_id="workload_scale", summary="Scale")
    def post(self, request: Request, cluster: str, namespace: str, name: str) -> HttpResponse:
        """Set the replicas of the set; with `component`, in the template; with `replica` too, of a live component."""
        return self.run_change("scale", WorkloadRef(cluster, namespace, name), self.read_body(ScaleBody))


class RestartView(CommandView):
    """Restarts."""

    commands = (Command.RESTART_WORKLOAD,)

    @describe_command(RestartBody, ChangedAnswer, operation_id="workload_restart", summary="Restart")
    def post(self, request: Request, cluster: str, namespace: str, name: str) -> HttpResponse:
        """Replace all pods, or the pods of some components, by the update strategy."""
        return self.run_change("restart", WorkloadRef(cluster, namespace, name), self.read_body(RestartBody))


class RollBackView(CommandView):
    """Rollbacks."""

    commands = (Command.ROLL_BACK_WORKLOAD,)

    @describe_command(RollBackBody, ChangedAnswer, operation_id="workload_roll_back", summary="Roll back")
    def post(self, request: Request, cluster: str, namespace: str, name: str) -> HttpResponse:
        """Restore the pod templates of a revision. Replicas and strategies stay unchanged."""
        return self.run_change("rollback", WorkloadRef(cluster, namespace, name), self.read_body(RollBackBody))


class TakeOverView(CommandView):
    """Workloads of Grove's own operator."""

    commands = (Command.TAKE_OVER_WORKLOAD,)

    @describe_command(TakeOverBody, ChangedAnswer, operation_id="workload_take_over", summary="Take over from Grove")
    def post(self, request: Request, cluster: str, namespace: str, name: str) -> HttpResponse:
        """Take over a workload that Grove's own operator managed. No pod is replaced.

        Uninstall that operator first: the command is refused while it runs. `changed` has the fields of all objects,
        each with kind and name. If a takeover is interrupted, repeat it.
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
        request=TakeOverClusterBody,
        responses={200: ClusterTakenOverAnswer},
        parameters=[*COMMAND_HEADERS[1:], _DRY_RUN],
    )
    def post(self, request: Request, cluster: str) -> HttpResponse:
        """Take over all workloads of a cluster that Grove's own operator managed, one after the other.

        Send a dry run first, and its workloads with their versions as the body of the command: then a workload that has
        changed since is refused, and one that is new is left. If one fails, the others continue. Needs a grant for all
        namespaces of the cluster.
        """
        workloads = self.read_body(TakeOverClusterBody).get("workloads")
        caller, terms = self.read_preconditions()
        expected = None
        if workloads is not None:
            expected = {WorkloadRef(cluster, one["namespace"], one["name"]): one["version"] for one in workloads}

        def carry_out(_: datetime) -> HttpResponse:
            taken = cluster_take_over(caller, cluster, expected=expected, dry_run=terms["dry_run"])
            return json_response({**_render_takeover(taken), "request_id": getattr(request, "request_id", "")})

        return answer_once(request, carry_out)


def _render_takeover(taken: ClusterTakeoverResult) -> dict[str, Any]:
    return {
        "cluster": taken.cluster,
        "workloads": [
            {
                "workload": render_ref(one.place),
                "version": one.version,
                "objects": one.objects,
                "pods": one.pods,
                "outdated": one.outdated,
                "left_alone": one.left_alone,
                "problem": one.problem,
            }
            for one in taken.outcomes
        ],
        "left": taken.left,
        "dry_run": taken.is_dry_run,
    }


def edit_response(request: Request, changed: EditResult) -> HttpResponse:
    """Render the result of an edit."""
    body = {
        "workload": render_ref(changed.place),
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


def render_ref(ref: WorkloadRef) -> dict[str, str]:
    """Render the reference to a workload."""
    return {"cluster": ref.cluster, "namespace": ref.namespace, "name": ref.name}


def render_findings(findings: Sequence[Finding]) -> list[dict[str, str]]:
    """Render findings about fields."""
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
