"""Strategy overrides by HTTP: what is on record, what one would do, and putting it in force, changing and ending it."""

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


# ---- what goes in


class OverrideBody(StrictSerializer):
    """An override: whom it hits, what it sets, why and until when."""

    cluster = StrictCharField(required=False, default="", allow_blank=True, max_length=253, help_text="Empty: any.")
    namespace = StrictCharField(required=False, default="", allow_blank=True, max_length=63, help_text="Empty: any.")
    name = StrictCharField(
        required=False, default="", allow_blank=True, max_length=253, help_text="Of a workload; empty: any."
    )
    labels = serializers.DictField(
        child=StrictCharField(allow_blank=True, max_length=63),
        required=False,
        default=dict,
        help_text="Labels of the workload, all of which must match.",
    )
    strategy = StrategyBody(help_text="What counts instead of what the workload says; what is left out stays.")
    reason = StrictCharField(max_length=MAX_REASON_CHARACTERS, help_text="Why.")
    expires_at = serializers.DateTimeField(help_text=f"Until when; at most {MAX_DAYS} days from now.")


# ---- what comes out


class OverrideStrategyAnswer(serializers.Serializer[Any]):
    """What an override sets; what it leaves alone is left out."""

    type = serializers.ChoiceField(choices=[str(one) for one in Strategy], required=False)
    maxUnavailable = BudgetField(required=False)  # noqa: N815 (as manifests have it)
    maxSurge = BudgetField(required=False)  # noqa: N815
    components = serializers.DictField(child=BudgetBody(allow_null=True), required=False)


class OverrideAnswer(serializers.Serializer[Any]):
    """An override on record."""

    id = serializers.IntegerField()
    cluster = serializers.CharField(allow_blank=True)
    namespace = serializers.CharField(allow_blank=True)
    name = serializers.CharField(allow_blank=True)
    labels = serializers.DictField(child=serializers.CharField(allow_blank=True))
    strategy = OverrideStrategyAnswer()
    reason = serializers.CharField()
    author = serializers.CharField(allow_blank=True, help_text="Empty: the account is gone.")
    created = serializers.DateTimeField()
    expires_at = serializers.DateTimeField(allow_null=True)
    active = serializers.BooleanField(help_text="Whether it counts now; those that have ended stay as history.")
    version = serializers.CharField(help_text="Send it in quotes as If-Match to change or end just this state.")


class OverrideChangedAnswer(serializers.Serializer[Any]):
    """An override after a command. Its ETag is the version."""

    override = OverrideAnswer()
    hits = serializers.IntegerField(help_text="Workloads that it is about now.")
    warnings = FindingAnswer(many=True)
    request_id = serializers.CharField()


class WorkloadOverrideAnswer(serializers.Serializer[Any]):
    """An override that is about a workload."""

    override = OverrideAnswer()
    parts = serializers.ListField(child=serializers.CharField(), help_text="Which parts of the strategy come from it.")
    findings = FindingAnswer(many=True, help_text="Why the workload cannot take it.")


class WorkloadOverridesAnswer(serializers.Serializer[Any]):
    """The overrides that are about a workload, the one that wins first."""

    results = WorkloadOverrideAnswer(many=True)


@dataclass(frozen=True, slots=True)
class CheckedLevel:
    """A level that an update moves through, and what it may do there."""

    component: str  # empty: the set
    kind: LevelKind
    replicas: int
    max_unavailable: int | None  # None: an update does nothing by itself at this level
    max_surge: int | None


@dataclass(frozen=True, slots=True)
class CheckedStrategy:
    """A strategy in force."""

    type: Strategy
    levels: tuple[CheckedLevel, ...]


@dataclass(frozen=True, slots=True)
class CheckedWorkload:
    """What an override would do to one workload."""

    cluster: str
    namespace: str
    name: str
    changes: bool
    before: CheckedStrategy | None  # None: the workload cannot be read
    after: CheckedStrategy | None
    findings: tuple[Finding, ...]  # why it would keep what it has
    warnings: tuple[Finding, ...]


@dataclass(frozen=True, slots=True)
class CheckedOverride:
    """What is to be known before an override is put in force."""

    acceptable: bool
    total: int  # of workloads that it hits
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
        summary="The overrides on record",
        tags=["overrides"],
        parameters=[
            query_parameter("cluster", "Only those that name this cluster."),
            query_parameter("namespace", "Only those that name this namespace."),
            query_parameter("name", "Only those that name this workload."),
            query_parameter(
                "active", "Only those that count now, or only those that have ended.", among=("true", "false")
            ),
            *PAGING,
        ],
        responses=page_serializer(OverrideAnswer, "OverridePage"),
    )
    def get(self, request: Request) -> HttpResponse:
        """List overrides, the newest first; those that have ended are their history."""
        query = QueryParams(request)
        places = {name: query.text(name) for name in ("cluster", "namespace", "name")}
        active = query.text_choices("active", ("true", "false"))[:1]
        filters = OverrideFilters(**places, active=active[0] == "true" if active else None)
        window = query.window()
        query.raise_if_invalid()
        return cacheable_response(render_page(request, override_list(filters, window)))

    @extend_schema(
        operation_id="override_create",
        summary="Put an override in force",
        tags=["overrides"],
        request=OverrideBody,
        parameters=COMMAND_HEADERS[1:],
        responses={201: OverrideChangedAnswer},
    )
    def post(self, request: Request) -> HttpResponse:
        """Put an override in force: parts of the strategy count instead of what workloads say, until it ends."""
        draft = _read_draft(self.read_body(OverrideBody))

        def carry_out(_: datetime) -> HttpResponse:
            made = overrides.override_create(caller_of(request, Source.API), draft)
            return _override_response(request, made, HTTPStatus.CREATED)

        return answer_once(request, carry_out)


class OverrideView(CommandView):
    """One override."""

    flags = ()

    def commands_of(self, request: Request) -> tuple[Command, ...]:
        """Return which of the two it is."""
        return (Command.END_OVERRIDE if request.method == "DELETE" else Command.CHANGE_OVERRIDE,)

    @extend_schema(
        operation_id="overrides_detail",
        summary="One override",
        tags=["overrides"],
        parameters=CONDITIONAL,
        responses={200: OverrideAnswer, **NOT_MODIFIED},
    )
    def get(self, request: Request, id: int) -> HttpResponse:  # noqa: A002 (as the path calls it)
        """Tell what an override says, also one that has ended."""
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
        """Have an override that is in force say this from now on; what is left out is as if it had never been."""
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
        """End an override now; the record stays, as history."""
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
        summary="What an override would do",
        tags=["overrides"],
        request=OverrideBody,
        responses={200: response_serializer(CheckedOverride)},
    )
    def post(self, request: Request) -> HttpResponse:
        """Say which workloads an override would hit, what would be in force for each, and what is wrong with it."""
        found = overrides.override_dry_run(caller_of(request, Source.API), _read_draft(self.read_body(OverrideBody)))
        return cacheable_response(_render_check(found))


class WorkloadOverridesView(APIView):
    """The overrides that are about a workload."""

    @extend_schema(
        operation_id="workloads_overrides",
        summary="The overrides that are about a workload",
        tags=["workloads"],
        responses=WorkloadOverridesAnswer,
    )
    def get(self, request: Request, cluster: str, namespace: str, name: str) -> HttpResponse:
        """List the overrides in force that hit a workload, the one that wins first."""
        reject_parameters(request)
        return cacheable_response({"results": workload_overrides(WorkloadRef(cluster, namespace, name))})


urlpatterns = [
    path("overrides/", OverridesView.as_view(), name="overrides"),
    path("overrides/check/", OverrideCheckView.as_view(), name="override-check"),
    path(_OVERRIDE_PATH, OverrideView.as_view(), name="override"),
    path(f"{WORKLOAD}overrides/", WorkloadOverridesView.as_view(), name="workload-overrides"),
]


# ---- in between


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
