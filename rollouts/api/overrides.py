"""Strategy overrides by HTTP: list, check, create, change and end them."""

from dataclasses import asdict, dataclass
from datetime import datetime
from http import HTTPStatus
from typing import Any, Final

from django.http import HttpResponse
from django.urls import path, reverse
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.views import APIView

from rollouts.accounts.commands import Command, WorkloadRef
from rollouts.api.commands import COMMAND_HEADERS, CommandView
from rollouts.api.etags import read_expected, render_etag
from rollouts.api.idempotency import answer_once
from rollouts.api.paths import WORKLOAD
from rollouts.api.query_params import QueryParams, reject_parameters, render_page
from rollouts.api.rendering import CACHE_HEADERS, cacheable_response, json_response, versioned_response
from rollouts.api.response_serializers import page_serializer, response_serializer
from rollouts.api.schema import CONDITIONAL, NOT_MODIFIED, PAGING, query_parameter
from rollouts.api.serializers import (
    BudgetBody,
    BudgetField,
    FindingAnswer,
    StrategyBody,
    StrictCharField,
    StrictSerializer,
)
from rollouts.engine.manifest.findings import Finding
from rollouts.engine.model.workload import Strategy
from rollouts.engine.rollout.levels import LevelKind
from rollouts.selectors.overrides import (
    OverrideFilters,
    make_item,
    override_detail,
    override_list,
    workload_overrides,
)
from rollouts.services import overrides
from rollouts.services.audit import Source, caller_of
from rollouts.services.override_preview import (
    MAX_DAYS,
    MAX_REASON_CHARACTERS,
    AffectedWorkload,
    OverrideCheck,
    OverrideDraft,
    ResolvedStrategy,
)

_OVERRIDE_PATH: Final = "overrides/<number:id>/"


# ---- request bodies


class OverrideBody(StrictSerializer):
    """An override: the workloads that it matches, the strategy parts that it sets, a reason and an end."""

    cluster = StrictCharField(required=False, default="", allow_blank=True, max_length=253, help_text="Empty: any.")
    namespace = StrictCharField(required=False, default="", allow_blank=True, max_length=63, help_text="Empty: any.")
    name = StrictCharField(
        required=False, default="", allow_blank=True, max_length=253, help_text="Name of a workload. Empty: any."
    )
    labels = serializers.DictField(
        child=StrictCharField(allow_blank=True, max_length=63),
        required=False,
        default=dict,
        help_text="Labels that a workload must have, all of them.",
    )
    strategy = StrategyBody(help_text="Replaces these parts of the workload's strategy; other parts stay.")
    reason = StrictCharField(max_length=MAX_REASON_CHARACTERS, help_text="Why the override is needed.")
    expires_at = serializers.DateTimeField(help_text=f"When the override ends; at most {MAX_DAYS} days from now.")


# ---- answers


class OverrideStrategyAnswer(serializers.Serializer[Any]):
    """The strategy parts that an override sets; other parts are missing."""

    type = serializers.ChoiceField(choices=[str(one) for one in Strategy], required=False)
    maxUnavailable = BudgetField(required=False)  # noqa: N815 (as manifests have it)
    maxSurge = BudgetField(required=False)  # noqa: N815
    components = serializers.DictField(child=BudgetBody(allow_null=True), required=False)


class OverrideAnswer(serializers.Serializer[Any]):
    """A recorded override."""

    id = serializers.IntegerField()
    cluster = serializers.CharField(allow_blank=True)
    namespace = serializers.CharField(allow_blank=True)
    name = serializers.CharField(allow_blank=True)
    labels = serializers.DictField(child=serializers.CharField(allow_blank=True))
    strategy = OverrideStrategyAnswer()
    reason = serializers.CharField()
    author = serializers.CharField(allow_blank=True, help_text="Empty: the account was deleted.")
    created = serializers.DateTimeField()
    expires_at = serializers.DateTimeField(allow_null=True)
    active = serializers.BooleanField(help_text="Whether it is in force. Ended overrides stay as history.")
    version = serializers.CharField(help_text="Send it in quotes as If-Match to change or end exactly this version.")


class OverrideChangedAnswer(serializers.Serializer[Any]):
    """An override after a command. Its ETag is the version."""

    override = OverrideAnswer()
    hits = serializers.IntegerField(help_text="Number of workloads that it matches now.")
    warnings = FindingAnswer(many=True)
    request_id = serializers.CharField()


class WorkloadOverrideAnswer(serializers.Serializer[Any]):
    """An override that matches a workload."""

    override = OverrideAnswer()
    parts = serializers.ListField(
        child=serializers.CharField(), help_text="The strategy parts that it sets for this workload."
    )
    findings = FindingAnswer(many=True, help_text="Why it cannot be applied to this workload.")


class WorkloadOverridesAnswer(serializers.Serializer[Any]):
    """The overrides that match a workload, in order of precedence."""

    results = WorkloadOverrideAnswer(many=True)


@dataclass(frozen=True, slots=True)
class CheckedLevel:
    """A level of a workload, with its budget as numbers."""

    component: str  # empty: the set
    kind: LevelKind
    replicas: int
    max_unavailable: int | None  # None: updates replace nothing at this level by themselves
    max_surge: int | None


@dataclass(frozen=True, slots=True)
class CheckedStrategy:
    """An effective strategy."""

    type: Strategy
    levels: tuple[CheckedLevel, ...]


@dataclass(frozen=True, slots=True)
class CheckedWorkload:
    """The effect of an override on one workload."""

    cluster: str
    namespace: str
    name: str
    changes: bool
    before: CheckedStrategy | None  # None: the workload cannot be read
    after: CheckedStrategy | None
    findings: tuple[Finding, ...]  # why the override would not apply to it
    warnings: tuple[Finding, ...]


@dataclass(frozen=True, slots=True)
class CheckedOverride:
    """The result of checking an override before it is created."""

    acceptable: bool
    total: int  # number of matching workloads
    hits: tuple[CheckedWorkload, ...]  # the first of them, by name
    findings: tuple[Finding, ...]  # why it would be refused
    warnings: tuple[Finding, ...]


# ---- views


class OverridesView(CommandView):
    """All overrides."""

    commands = (Command.CREATE_OVERRIDE,)
    flags = ()

    @extend_schema(
        operation_id="overrides_list",
        summary="List overrides",
        tags=["overrides"],
        parameters=[
            query_parameter("cluster", "Only overrides that name this cluster."),
            query_parameter("namespace", "Only overrides that name this namespace."),
            query_parameter("name", "Only overrides that name this workload."),
            query_parameter(
                "active", "true: only overrides in force; false: only ended ones.", among=("true", "false")
            ),
            *PAGING,
        ],
        responses=page_serializer(OverrideAnswer, "OverridePage"),
    )
    def get(self, request: Request) -> HttpResponse:
        """List overrides, the newest first, including ended ones."""
        query = QueryParams(request)
        places = {name: query.text(name) for name in ("cluster", "namespace", "name")}
        active = query.text_choices("active", ("true", "false"))[:1]
        filters = OverrideFilters(**places, active=active[0] == "true" if active else None)
        window = query.window()
        query.raise_if_invalid()
        return cacheable_response(render_page(request, override_list(filters, window)))

    @extend_schema(
        operation_id="override_create",
        summary="Create an override",
        tags=["overrides"],
        request=OverrideBody,
        parameters=COMMAND_HEADERS[1:],
        responses={201: OverrideChangedAnswer},
    )
    def post(self, request: Request) -> HttpResponse:
        """Create an override. It replaces parts of the strategy of the matching workloads until it ends."""
        draft = _read_draft(self.read_body(OverrideBody))

        def carry_out(_: datetime) -> HttpResponse:
            made = overrides.override_create(caller_of(request, Source.API), draft)
            return _override_response(request, made, HTTPStatus.CREATED)

        return answer_once(request, carry_out)


class OverrideView(CommandView):
    """One override."""

    flags = ()

    def commands_of(self, request: Request) -> tuple[Command, ...]:
        """Return the command of the request's method."""
        return (Command.END_OVERRIDE if request.method == "DELETE" else Command.CHANGE_OVERRIDE,)

    @extend_schema(
        operation_id="overrides_detail",
        summary="Get an override",
        tags=["overrides"],
        parameters=CONDITIONAL,
        responses={200: OverrideAnswer, **NOT_MODIFIED},
    )
    def get(self, request: Request, id: int) -> HttpResponse:  # noqa: A002 (as the path calls it)
        """Return an override. It may have ended."""
        reject_parameters(request)
        item = override_detail(id)
        return versioned_response(request, item, item.version)

    @extend_schema(
        operation_id="override_change",
        summary="Change an override",
        tags=["overrides"],
        request=OverrideBody,
        parameters=COMMAND_HEADERS,
        responses={200: OverrideChangedAnswer},
    )
    def put(self, request: Request, id: int) -> HttpResponse:  # noqa: A002
        """Replace the whole content of an override that is in force; a part that is missing here is removed."""
        draft, expected = _read_draft(self.read_body(OverrideBody)), read_expected(request)

        def carry_out(_: datetime) -> HttpResponse:
            return _override_response(
                request, overrides.override_change(caller_of(request, Source.API), id, draft, expected)
            )

        return answer_once(request, carry_out)

    @extend_schema(
        operation_id="override_end",
        summary="End an override",
        tags=["overrides"],
        request=None,
        parameters=COMMAND_HEADERS,
        responses={200: OverrideAnswer},
    )
    def delete(self, request: Request, id: int) -> HttpResponse:  # noqa: A002
        """End an override now. It stays recorded as history."""
        expected = read_expected(request)

        def carry_out(_: datetime) -> HttpResponse:
            row = overrides.override_end(caller_of(request, Source.API), id, expected)
            return json_response(make_item(row), headers={"ETag": render_etag(row.version)}, cache=CACHE_HEADERS)

        return answer_once(request, carry_out)


class OverrideCheckView(CommandView):
    """The check of an override."""

    commands = (Command.CREATE_OVERRIDE, Command.CHANGE_OVERRIDE)
    is_read_only = True
    flags = ()

    @extend_schema(
        operation_id="override_check",
        summary="Check an override",
        tags=["overrides"],
        request=OverrideBody,
        responses={200: response_serializer(CheckedOverride)},
    )
    def post(self, request: Request) -> HttpResponse:
        """Return the workloads that an override would match, the effective strategy of each, and all findings."""
        found = overrides.override_dry_run(caller_of(request, Source.API), _read_draft(self.read_body(OverrideBody)))
        return cacheable_response(_render_check(found))


class WorkloadOverridesView(APIView):
    """The overrides that match a workload."""

    @extend_schema(
        operation_id="workloads_overrides",
        summary="List the overrides of a workload",
        tags=["workloads"],
        responses=WorkloadOverridesAnswer,
    )
    def get(self, request: Request, cluster: str, namespace: str, name: str) -> HttpResponse:
        """List the overrides in force that match a workload, in order of precedence."""
        reject_parameters(request)
        return cacheable_response({"results": workload_overrides(WorkloadRef(cluster, namespace, name))})


urlpatterns = [
    path("overrides/", OverridesView.as_view(), name="overrides"),
    path("overrides/check/", OverrideCheckView.as_view(), name="override-check"),
    path(_OVERRIDE_PATH, OverrideView.as_view(), name="override"),
    path(f"{WORKLOAD}overrides/", WorkloadOverridesView.as_view(), name="workload-overrides"),
]


# ---- parsing and rendering


def _read_draft(body: dict[str, Any]) -> OverrideDraft:
    strategy = body["strategy"]
    return OverrideDraft(
        **{name: body[name] for name in ("cluster", "namespace", "name", "labels", "reason", "expires_at")},
        strategy=strategy.get("type") or "",
        max_unavailable=strategy.get("maxUnavailable"),
        max_surge=strategy.get("maxSurge"),
        components=strategy.get("components") or {},
    )


def _override_response(
    request: Request, result: overrides.OverrideResult, status: HTTPStatus = HTTPStatus.OK
) -> HttpResponse:
    row = result.override
    body = {
        "override": make_item(row),
        "hits": result.check.total,
        "warnings": result.check.warnings,
        "request_id": getattr(request, "request_id", ""),
    }
    headers = {"ETag": render_etag(row.version)}
    if status is HTTPStatus.CREATED:
        headers["Location"] = reverse("override", args=[row.pk])
    return json_response(body, status=status, headers=headers, cache=CACHE_HEADERS)


def _render_check(found: OverrideCheck) -> CheckedOverride:
    return CheckedOverride(
        acceptable=not found.findings,
        total=found.total,
        hits=tuple(_render_affected(hit) for hit in found.affected),
        findings=found.findings,
        warnings=found.warnings,
    )


def _render_affected(hit: AffectedWorkload) -> CheckedWorkload:
    return CheckedWorkload(
        **asdict(hit.place),
        changes=hit.changes,
        before=_render_strategy(hit.before),
        after=_render_strategy(hit.after),
        findings=hit.findings,
        warnings=hit.warnings,
    )


def _render_strategy(in_force: ResolvedStrategy | None) -> CheckedStrategy | None:
    if in_force is None:
        return None
    levels = (
        CheckedLevel(
            level.component,
            level.kind,
            level.replicas,
            level.budget.max_unavailable if level.budget else None,
            level.budget.max_surge if level.budget else None,
        )
        for level in in_force.levels
    )
    return CheckedStrategy(in_force.strategy, tuple(levels))
