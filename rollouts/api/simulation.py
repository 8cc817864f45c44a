"""What a change would do, by HTTP: the body of the command itself, and how the cluster is believed to behave."""

from collections.abc import Mapping
from typing import Any, Final

from django.http import HttpResponse
from django.urls import path
from django.utils import timezone
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import PolymorphicProxySerializer, extend_schema, extend_schema_field
from rest_framework import serializers
from rest_framework.exceptions import ErrorDetail, ValidationError
from rest_framework.request import Request

from rollouts.accounts.commands import Command, WorkloadRef
from rollouts.api.changes import Values, make_change
from rollouts.api.commands import IF_MATCH, CommandView
from rollouts.api.etags import read_expected
from rollouts.api.paths import WORKLOAD
from rollouts.api.rendering import json_response
from rollouts.api.response_serializers import response_serializer
from rollouts.api.serializers import (
    ImagesBody,
    RestartBody,
    RollBackBody,
    ScaleBody,
    StrategyBody,
    StrictBooleanField,
    StrictCharField,
    StrictFloatField,
    StrictSerializer,
)
from rollouts.selectors.forecast import Assumptions
from rollouts.services.audit import Source, caller_of
from rollouts.services.simulation import workload_simulate
from rollouts.services.simulation_report import Simulated


class ImagesChange(ImagesBody):
    """Other images."""

    kind = serializers.ChoiceField(["images"])


class ScaleChange(ScaleBody):
    """Other replicas."""

    kind = serializers.ChoiceField(["scale"])


class StrategyChange(StrategyBody):
    """Another strategy."""

    kind = serializers.ChoiceField(["strategy"])


class RestartChange(RestartBody):
    """A restart."""

    kind = serializers.ChoiceField(["restart"])


class RollBackChange(RollBackBody):
    """The way back."""

    kind = serializers.ChoiceField(["rollback"])


@extend_schema_field(OpenApiTypes.OBJECT)
class _ManifestField(serializers.Field[Any, Any, Any, Any]):
    """Whatever is sent as a manifest; the service says what is wrong with it."""

    def to_internal_value(self, data: Any) -> Any:
        """Return it as it is."""
        return data


class ApplyChange(StrictSerializer):
    """A manifest that is applied."""

    kind = serializers.ChoiceField(["apply"])
    manifest = _ManifestField()


_CHANGES: Final[Mapping[str, type[StrictSerializer]]] = {
    "apply": ApplyChange,
    "images": ImagesChange,
    "scale": ScaleChange,
    "strategy": StrategyChange,
    "restart": RestartChange,
    "rollback": RollBackChange,
}


@extend_schema_field(
    PolymorphicProxySerializer(
        component_name="ProposedChange", serializers=dict(_CHANGES), resource_type_field_name="kind", many=False
    )
)
class ChangeField(serializers.Field[Any, Any, Any, Any]):
    """A command that is considered, by its kind."""

    def to_internal_value(self, data: Any) -> dict[str, Any]:
        """Read it as the command itself would."""
        if not isinstance(data, Mapping):
            raise ValidationError(ErrorDetail("change must be an object with a kind", code="invalid"))
        shape = _CHANGES.get(data["kind"]) if isinstance(data.get("kind"), str) else None
        if shape is None:
            raise ValidationError(
                {"kind": [ErrorDetail(f"must be one of {', '.join(_CHANGES)}", code="invalid_choice")]}
            )
        body = shape(data=data)
        body.is_valid(raise_exception=True)
        values: dict[str, Any] = body.validated_data
        return values


class BehaviourBody(StrictSerializer):
    """How the cluster is believed to behave."""

    seconds_to_ready = StrictFloatField(
        required=False,
        min_value=0,
        max_value=86_400,
        help_text="From a pod's node to Ready. As measured by clique and image when left out, and 30 where none was.",
    )
    seconds_to_go = StrictFloatField(
        required=False,
        min_value=0,
        max_value=86_400,
        help_text="From a pod's deletion to its end. As measured when left out, and 5 where none was.",
    )
    never_ready = serializers.ListField(
        child=StrictCharField(max_length=253),
        required=False,
        max_length=64,
        help_text="Cliques whose pods of the new template never become Ready, besides those that fail now.",
    )
    all_ready = StrictBooleanField(
        required=False, help_text="Pods become Ready though others of their template fail now."
    )
    full = StrictBooleanField(required=False, help_text="There is room for the pods that run now, and no more.")
    unlimited = StrictBooleanField(
        required=False, help_text="There is room for every pod. Left out, the nodes of the cluster count."
    )

    def validate(self, attrs: Any) -> Any:
        """Refuse two answers to one question."""
        if attrs.get("full") and attrs.get("unlimited"):
            sentence = "room cannot be both full and unlimited; leave one of them out"
            raise ValidationError({"unlimited": [ErrorDetail(sentence, code="invalid")]})
        return attrs


class SimulationBody(StrictSerializer):
    """What is considered."""

    change = ChangeField()
    behaviour = BehaviourBody(required=False)


class SimulationView(CommandView):
    """Simulation."""

    commands = (
        *(Command.APPLY_WORKLOAD, Command.SET_IMAGES, Command.SCALE_WORKLOAD, Command.EDIT_STRATEGY),
        *(Command.RESTART_WORKLOAD, Command.ROLL_BACK_WORKLOAD),
    )
    is_read_only = True
    flags = ()

    @extend_schema(
        operation_id="workload_simulate",
        summary="What a change would do",
        tags=["commands"],
        parameters=[IF_MATCH],
        request=SimulationBody,
        responses={200: response_serializer(Simulated)},
    )
    def post(self, request: Request, cluster: str, namespace: str, name: str) -> HttpResponse:
        """Tell step by step what a change would do, without doing it; needs the permission for the command itself.

        The controller's own plan is run to its end on the nodes of the cluster as they are now, at the pace of the pods
        that run; `assumptions` says what the numbers rest on, and `behaviour` changes it. A large workload is followed
        for two seconds: the end is Unfinished then, and what is told is right as far as it goes.
        """
        place, body = WorkloadRef(cluster, namespace, name), self.read_body(SimulationBody)
        values = {**body["change"]}
        change = make_change(values.pop("kind"), place, values, timezone.now())
        assumptions = _read_assumptions(body.get("behaviour") or {})
        caller = caller_of(request, Source.API)
        return json_response(workload_simulate(caller, place, change, assumptions, expected=read_expected(request)))


def _read_assumptions(behaviour: Values) -> Assumptions:
    return Assumptions(
        seconds_to_ready=behaviour.get("seconds_to_ready"),
        seconds_to_terminate=behaviour.get("seconds_to_go"),
        never_ready=tuple(behaviour.get("never_ready", ())),
        all_ready=behaviour.get("all_ready", False),
        is_full=behaviour.get("full", False),
        is_unlimited=behaviour.get("unlimited", False),
    )


urlpatterns = [path(f"{WORKLOAD}simulation/", SimulationView.as_view(), name="workload-simulation")]
