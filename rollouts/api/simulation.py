"""Simulation of a change by HTTP: the body of the command, and assumptions about the cluster."""

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
    """New images."""

    kind = serializers.ChoiceField(["images"])


class ScaleChange(ScaleBody):
    """New replicas."""

    kind = serializers.ChoiceField(["scale"])


class StrategyChange(StrategyBody):
    """A new strategy."""

    kind = serializers.ChoiceField(["strategy"])


class RestartChange(RestartBody):
    """A restart."""

    kind = serializers.ChoiceField(["restart"])


class RollBackChange(RollBackBody):
    """A rollback."""

    kind = serializers.ChoiceField(["rollback"])


@extend_schema_field(OpenApiTypes.OBJECT)
class _ManifestField(serializers.Field[Any, Any, Any, Any]):
    """A manifest; the service validates it."""

    def to_internal_value(self, data: Any) -> Any:
        """Return the value unchanged."""
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
    """A proposed command, by its kind."""

    def to_internal_value(self, data: Any) -> dict[str, Any]:
        """Read the body as the command itself does."""
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
    """Assumptions about the behaviour of the cluster."""

    seconds_to_ready = StrictFloatField(
        required=False,
        min_value=0,
        max_value=86_400,
        help_text="Seconds from a pod's node to Ready. Default: measured by clique and image, else 30.",
    )
    seconds_to_go = StrictFloatField(
        required=False,
        min_value=0,
        max_value=86_400,
        help_text="Seconds from a pod's deletion to its end. Default: measured, else 5.",
    )
    never_ready = serializers.ListField(
        child=StrictCharField(max_length=253),
        required=False,
        max_length=64,
        help_text="Cliques whose new pods never become Ready, in addition to those that fail now.",
    )
    all_ready = StrictBooleanField(
        required=False, help_text="Pods become Ready even if other pods of their template fail now."
    )
    full = StrictBooleanField(required=False, help_text="The nodes have room for the present pods only.")
    unlimited = StrictBooleanField(
        required=False, help_text="The nodes have room for every pod. Default: the real nodes of the cluster."
    )

    def validate(self, attrs: Any) -> Any:
        """Refuse contradicting assumptions."""
        if attrs.get("full") and attrs.get("unlimited"):
            sentence = "full and unlimited exclude each other; remove one of them"
            raise ValidationError({"unlimited": [ErrorDetail(sentence, code="invalid")]})
        return attrs


class SimulationBody(StrictSerializer):
    """The change to simulate."""

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
        summary="Simulate a change",
        tags=["commands"],
        parameters=[IF_MATCH],
        request=SimulationBody,
        responses={200: response_serializer(Simulated)},
    )
    def post(self, request: Request, cluster: str, namespace: str, name: str) -> HttpResponse:
        """Simulate a change step by step, and change nothing. Needs the permission for the command itself.

        The simulation runs the controller's planner on the nodes of the cluster, with the measured times of the present
        pods. `assumptions` says what the numbers are based on; `behaviour` changes it. The simulation of a large
        workload stops after two seconds: `end` is Unfinished then, and the steps up to there are valid.
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
