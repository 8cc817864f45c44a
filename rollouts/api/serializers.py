"""Serializers of command bodies and of their answers; the OpenAPI schema is made from them.

Bodies are read strictly: a number in quotes is not a number, and an unknown field is rejected, so a misspelt `replicas`
never has a different effect than intended. The engine decides whether the values make sense.
"""

from collections.abc import Mapping
from typing import Any, Final

from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers
from rest_framework.exceptions import ErrorDetail, ValidationError

from rollouts.engine.manifest.field_types import MAX_INT32
from rollouts.engine.model.workload import Strategy

MAX_ENTRIES: Final = 1000
_MAX_NAME_LENGTH: Final = 253
_MAX_UNAVAILABLE: Final = "How many replicas may be unavailable because of an update: a number or a percentage."
_MAX_SURGE: Final = "How many replicas an update may add beyond the desired number: a number or a percentage."


class StrictCharField(serializers.CharField):
    """A string; a number is rejected."""

    def __init__(self, **options: Any) -> None:
        super().__init__(trim_whitespace=False, **options)

    def to_internal_value(self, data: Any) -> str:
        """Return the value unchanged."""
        if not isinstance(data, str):
            self.fail("invalid")
        return str(super().to_internal_value(data))


class StrictIntegerField(serializers.IntegerField):
    """An integer; a string or a boolean is rejected."""

    def to_internal_value(self, data: Any) -> int:
        """Return the value unchanged."""
        if isinstance(data, bool) or not isinstance(data, int):
            self.fail("invalid")
        return int(super().to_internal_value(data))


def replica_index_field(words: str) -> StrictIntegerField:
    """Return an optional field for the index of a replica of the set."""
    return StrictIntegerField(
        required=False, allow_null=True, default=None, min_value=0, max_value=MAX_INT32, help_text=words
    )


class StrictFloatField(serializers.FloatField):
    """A number; a string or a boolean is rejected."""

    def to_internal_value(self, data: Any) -> float:
        """Return the value unchanged."""
        if isinstance(data, bool) or not isinstance(data, int | float):
            self.fail("invalid")
        return float(super().to_internal_value(data))


class StrictBooleanField(serializers.BooleanField):
    """A boolean; a string or a number is rejected."""

    def to_internal_value(self, data: Any) -> bool:
        """Return the value unchanged."""
        if not isinstance(data, bool):
            self.fail("invalid", input=data)
        return data


@extend_schema_field({"oneOf": [{"type": "integer", "minimum": 0}, {"type": "string", "pattern": "^[0-9]{1,4}%$"}]})
class BudgetField(serializers.Field[Any, Any, Any, Any]):
    """A number of units or a percentage of them; the engine validates the value."""

    def to_internal_value(self, data: Any) -> int | str:
        """Return the value unchanged."""
        if isinstance(data, bool) or not isinstance(data, int | str):
            sentence = 'must be a whole number, 0 or more, or a percentage such as "25%"'
            raise ValidationError(sentence, code="invalid")
        return data

    def to_representation(self, value: Any) -> Any:
        """Return the value unchanged."""
        return value


class StrictSerializer(serializers.Serializer[Any]):
    """The body of a command."""

    def to_internal_value(self, data: Any) -> Any:
        """Read the fields; reject unknown ones."""
        if isinstance(data, Mapping):
            unknown = [name for name in data if name not in self.fields]
            if unknown:
                raise ValidationError(
                    {
                        name[:_MAX_NAME_LENGTH]: [ErrorDetail("this field is unknown", code="unknown_field")]
                        for name in unknown
                    }
                )
        return super().to_internal_value(data)


# ---- request bodies


class ImageBody(StrictSerializer):
    """A new image for a container."""

    clique = StrictCharField(max_length=_MAX_NAME_LENGTH, help_text="Name of the clique in the template.")
    container = StrictCharField(
        required=False,
        default="",
        allow_blank=True,
        max_length=_MAX_NAME_LENGTH,
        help_text="Name of the container; optional if the clique has only one.",
    )
    image = StrictCharField(max_length=1024)


class ImagesBody(StrictSerializer):
    """New images for containers."""

    images = serializers.ListField(child=ImageBody(), allow_empty=False, max_length=MAX_ENTRIES)


class ScaleBody(StrictSerializer):
    """New replicas: of the set, of a component in the template, or of a live component of one replica."""

    replicas = StrictIntegerField(min_value=0, max_value=MAX_INT32)
    component = StrictCharField(
        required=False,
        default="",
        max_length=_MAX_NAME_LENGTH,
        help_text="A clique or scaling group. Default: the set.",
    )
    replica = replica_index_field(
        "Index of a replica of the set: scale its live component, and leave the template unchanged."
    )


class BudgetBody(StrictSerializer):
    """maxUnavailable and maxSurge of a component; null removes a value, so that its default applies."""

    maxUnavailable = BudgetField(required=False, allow_null=True, help_text=_MAX_UNAVAILABLE)  # noqa: N815 (as manifests)
    maxSurge = BudgetField(required=False, allow_null=True, help_text=_MAX_SURGE)  # noqa: N815


class StrategyBody(StrictSerializer):
    """Parts of the update strategy; a missing part stays unchanged, null removes it."""

    type = serializers.ChoiceField(choices=[str(one) for one in Strategy], required=False, allow_null=True)
    maxUnavailable = BudgetField(required=False, allow_null=True, help_text=_MAX_UNAVAILABLE)  # noqa: N815
    maxSurge = BudgetField(required=False, allow_null=True, help_text=_MAX_SURGE)  # noqa: N815
    components = serializers.DictField(
        child=BudgetBody(allow_null=True), required=False, help_text="Budgets by the name of a clique or scaling group."
    )


class RestartBody(StrictSerializer):
    """The components to restart."""

    components = serializers.ListField(
        child=StrictCharField(max_length=_MAX_NAME_LENGTH),
        required=False,
        default=list,
        max_length=MAX_ENTRIES,
        help_text="Cliques and scaling groups. Default: all.",
    )


class RollBackBody(StrictSerializer):
    """The revision to roll back to."""

    revision = StrictIntegerField(min_value=1, max_value=MAX_INT32, help_text="Its number from `revisions/`.")


class TakeOverBody(StrictSerializer):
    """An empty body."""


class SeenWorkloadBody(StrictSerializer):
    """A workload as a dry run has shown it."""

    namespace = StrictCharField(max_length=_MAX_NAME_LENGTH)
    name = StrictCharField(max_length=_MAX_NAME_LENGTH)
    version = StrictCharField(max_length=_MAX_NAME_LENGTH, help_text="Its `version` in the answer of the dry run.")


class TakeOverClusterBody(StrictSerializer):
    """The workloads to take over."""

    workloads = serializers.ListField(
        child=SeenWorkloadBody(),
        required=False,
        max_length=MAX_ENTRIES,
        help_text="Only these workloads; one that has changed since the dry run is refused. Default: all, as they are.",
    )


# ---- answers


class PlaceAnswer(serializers.Serializer[Any]):
    """The reference to a workload."""

    cluster = serializers.CharField()
    namespace = serializers.CharField()
    name = serializers.CharField()


class FindingAnswer(serializers.Serializer[Any]):
    """A broken rule or a warning about a field."""

    field = serializers.CharField(help_text="The path of the field in the manifest or in the body.")
    code = serializers.CharField(help_text="A stable code of the rule.")
    message = serializers.CharField()


@extend_schema_field(OpenApiTypes.ANY)
class AnyValueField(serializers.JSONField):
    """Any value of a manifest."""


class ChangeAnswer(serializers.Serializer[Any]):
    """A changed field; values that may be secret are hidden."""

    field = serializers.CharField(help_text="The path of the field in the manifest.")
    before = AnyValueField(allow_null=True, help_text="Null: the field did not exist.")
    after = AnyValueField(allow_null=True, help_text="Null: the field was removed.")


class ChangedAnswer(serializers.Serializer[Any]):
    """A workload after a command. Its ETag is the version."""

    workload = PlaceAnswer()
    version = serializers.CharField(help_text="Send it in quotes as If-Match with the next command.")
    changed = ChangeAnswer(many=True)
    warnings = FindingAnswer(many=True)
    created = serializers.BooleanField(help_text="Whether the command created the workload.")
    dry_run = serializers.BooleanField(help_text="True: nothing was changed; the answer shows what would be.")
    request_id = serializers.CharField(help_text="Identifies the request in the log and the audit.")


class DeletedWorkloadAnswer(serializers.Serializer[Any]):
    """A deleted workload, with what is deleted with it."""

    workload = PlaceAnswer()
    version = serializers.CharField(help_text="The last version of the workload.")
    pods = serializers.IntegerField()
    gangs = serializers.IntegerField()
    resources = serializers.DictField(
        child=serializers.IntegerField(), help_text="Extended resources that its pods request, such as GPUs, by name."
    )
    was_leaving = serializers.BooleanField(help_text="True: it was already being deleted; nothing was sent.")
    dry_run = serializers.BooleanField(help_text="True: nothing was deleted; the answer shows what would be.")
    request_id = serializers.CharField(help_text="Identifies the request in the log and the audit.")


class TakenOverAnswer(serializers.Serializer[Any]):
    """The outcome for one workload."""

    workload = PlaceAnswer()
    version = serializers.CharField(help_text="Its version before the takeover. Empty: it was not taken over.")
    objects = serializers.IntegerField(help_text="Number of objects that were changed, or would be.")
    pods = serializers.IntegerField(help_text="Number of pods that keep running.")
    outdated = serializers.IntegerField(help_text="Number of outdated pods; an update replaces them afterwards.")
    left_alone = serializers.IntegerField(help_text="Number of objects that are not changed; they belong to others.")
    problem = serializers.CharField(help_text="Why it was not taken over. Empty: it was.")


class ClusterTakenOverAnswer(serializers.Serializer[Any]):
    """The outcomes for the workloads of a cluster that Grove's operator managed."""

    cluster = serializers.CharField()
    workloads = TakenOverAnswer(many=True)
    left = serializers.IntegerField(help_text="How many workloads of Grove's operator remain: repeat the command.")
    dry_run = serializers.BooleanField(help_text="True: nothing was changed; the answer shows what would be.")
    request_id = serializers.CharField(help_text="Identifies the request in the log and the audit.")
