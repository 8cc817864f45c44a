"""What commands take and answer, as the schema describes it and bodies are read by it.

Read strictly: a number in quotes is no number, and a field that nobody knows is refused, since whoever misspells
`replicas` has asked for something else than they get. Whether what is asked for makes sense is decided by the engine.
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
_MAX_UNAVAILABLE: Final = "How many may be missing because of an update: a number, or a percentage of the replicas."
_MAX_SURGE: Final = "How many an update may add beyond the replicas: a number, or a percentage of them."


class StrictCharField(serializers.CharField):
    """A text; a number is none."""

    def __init__(self, **options: Any) -> None:
        super().__init__(trim_whitespace=False, **options)

    def to_internal_value(self, data: Any) -> str:
        """Return it as it was written."""
        if not isinstance(data, str):
            self.fail("invalid")
        return str(super().to_internal_value(data))


class StrictIntegerField(serializers.IntegerField):
    """A whole number; neither a text nor true is one."""

    def to_internal_value(self, data: Any) -> int:
        """Return it as it was written."""
        if isinstance(data, bool) or not isinstance(data, int):
            self.fail("invalid")
        return int(super().to_internal_value(data))


def replica_index_field(words: str) -> StrictIntegerField:
    """Return a field that may name a replica of the set; the words say what for."""
    return StrictIntegerField(
        required=False, allow_null=True, default=None, min_value=0, max_value=MAX_INT32, help_text=words
    )


class StrictFloatField(serializers.FloatField):
    """A number; neither a text nor true is one."""

    def to_internal_value(self, data: Any) -> float:
        """Return it as it was written."""
        if isinstance(data, bool) or not isinstance(data, int | float):
            self.fail("invalid")
        return float(super().to_internal_value(data))


class StrictBooleanField(serializers.BooleanField):
    """True or false, and nothing that might be meant so."""

    def to_internal_value(self, data: Any) -> bool:
        """Return it as it was written."""
        if not isinstance(data, bool):
            self.fail("invalid", input=data)
        return data


@extend_schema_field({"oneOf": [{"type": "integer", "minimum": 0}, {"type": "string", "pattern": "^[0-9]{1,4}%$"}]})
class BudgetField(serializers.Field[Any, Any, Any, Any]):
    """A number of units or a percentage of them; the engine says which may be meant."""

    def to_internal_value(self, data: Any) -> int | str:
        """Return it as it was written."""
        if isinstance(data, bool) or not isinstance(data, int | str):
            sentence = 'must be a whole number, 0 or more, or a percentage such as "25%"'
            raise ValidationError(sentence, code="invalid")
        return data

    def to_representation(self, value: Any) -> Any:
        """Return it as it is."""
        return value


class StrictSerializer(serializers.Serializer[Any]):
    """The body of a command."""

    def to_internal_value(self, data: Any) -> Any:
        """Read the fields; one that is not among them is refused."""
        if isinstance(data, Mapping):
            unknown = [name for name in data if name not in self.fields]
            if unknown:
                raise ValidationError(
                    {
                        name[:_MAX_NAME_LENGTH]: [ErrorDetail("there is no such field here", code="unknown_field")]
                        for name in unknown
                    }
                )
        return super().to_internal_value(data)


# ---- what commands take


class ImageBody(StrictSerializer):
    """Another image for a container."""

    clique = StrictCharField(max_length=_MAX_NAME_LENGTH, help_text="By its name in the template.")
    container = StrictCharField(
        required=False,
        default="",
        allow_blank=True,
        max_length=_MAX_NAME_LENGTH,
        help_text="Which one; may be left out where there is only one.",
    )
    image = StrictCharField(max_length=1024)


class ImagesBody(StrictSerializer):
    """Other images for containers."""

    images = serializers.ListField(child=ImageBody(), allow_empty=False, max_length=MAX_ENTRIES)


class ScaleBody(StrictSerializer):
    """How many replicas: of the set, of a component in the template, or of a live component of one replica."""

    replicas = StrictIntegerField(min_value=0, max_value=MAX_INT32)
    component = StrictCharField(
        required=False,
        default="",
        max_length=_MAX_NAME_LENGTH,
        help_text="A clique or scaling group; left out, the set is scaled.",
    )
    replica = replica_index_field(
        "Index of a replica of the set: its live component is scaled, and the template left alone."
    )


class BudgetBody(StrictSerializer):
    """maxUnavailable and maxSurge of a component; null takes one out, so that its default counts."""

    maxUnavailable = BudgetField(required=False, allow_null=True, help_text=_MAX_UNAVAILABLE)  # noqa: N815 (as manifests)
    maxSurge = BudgetField(required=False, allow_null=True, help_text=_MAX_SURGE)  # noqa: N815


class StrategyBody(StrictSerializer):
    """Parts of the update strategy; what is left out stays, null takes something out."""

    type = serializers.ChoiceField(choices=[str(one) for one in Strategy], required=False, allow_null=True)
    maxUnavailable = BudgetField(required=False, allow_null=True, help_text=_MAX_UNAVAILABLE)  # noqa: N815
    maxSurge = BudgetField(required=False, allow_null=True, help_text=_MAX_SURGE)  # noqa: N815
    components = serializers.DictField(
        child=BudgetBody(allow_null=True), required=False, help_text="By the name of a clique or scaling group."
    )


class RestartBody(StrictSerializer):
    """What is restarted."""

    components = serializers.ListField(
        child=StrictCharField(max_length=_MAX_NAME_LENGTH),
        required=False,
        default=list,
        max_length=MAX_ENTRIES,
        help_text="Cliques and scaling groups; left out, everything is.",
    )


class RollBackBody(StrictSerializer):
    """Where to go back to."""

    revision = StrictIntegerField(min_value=1, max_value=MAX_INT32, help_text="Its number, as `revisions/` lists it.")


class TakeOverBody(StrictSerializer):
    """Nothing has to be said."""


# ---- what they answer


class PlaceAnswer(serializers.Serializer[Any]):
    """A workload by name."""

    cluster = serializers.CharField()
    namespace = serializers.CharField()
    name = serializers.CharField()


class FindingAnswer(serializers.Serializer[Any]):
    """Something to know about a field."""

    field = serializers.CharField(help_text="Its path in the manifest, or in what was sent.")
    code = serializers.CharField(help_text="Which rule, in one word that stays.")
    message = serializers.CharField()


@extend_schema_field(OpenApiTypes.ANY)
class AnyValueField(serializers.JSONField):
    """Any value of a manifest."""


class ChangeAnswer(serializers.Serializer[Any]):
    """A field that was changed; what is secret about it is hidden."""

    field = serializers.CharField(help_text="Its path in the manifest.")
    before = AnyValueField(allow_null=True, help_text="Null: it was not there.")
    after = AnyValueField(allow_null=True, help_text="Null: it was taken out.")


class ChangedAnswer(serializers.Serializer[Any]):
    """A workload after a command. Its ETag is the version."""

    workload = PlaceAnswer()
    version = serializers.CharField(help_text="Send it in quotes as If-Match with the next command.")
    changed = ChangeAnswer(many=True)
    warnings = FindingAnswer(many=True)
    created = serializers.BooleanField(help_text="The workload is new.")
    dry_run = serializers.BooleanField(help_text="Nothing was changed: this is what would be.")
    request_id = serializers.CharField(help_text="By which logs and audit know it.")


class DeletedWorkloadAnswer(serializers.Serializer[Any]):
    """A workload that was deleted, and what goes with it."""

    workload = PlaceAnswer()
    version = serializers.CharField(help_text="Of the workload as it was.")
    pods = serializers.IntegerField()
    gangs = serializers.IntegerField()
    resources = serializers.DictField(
        child=serializers.IntegerField(), help_text="Extended resources that its pods request, such as GPUs, by name."
    )
    was_leaving = serializers.BooleanField(help_text="Somebody had deleted it before; nothing was sent.")
    dry_run = serializers.BooleanField(help_text="Nothing was deleted: this is what would be.")
    request_id = serializers.CharField(help_text="By which logs and audit know it.")


class TakenOverAnswer(serializers.Serializer[Any]):
    """What became of one workload."""

    workload = PlaceAnswer()
    objects = serializers.IntegerField(help_text="That were changed, or would be.")
    pods = serializers.IntegerField(help_text="That stay as they are.")
    outdated = serializers.IntegerField(help_text="Pods of another template: an update replaces them afterwards.")
    problem = serializers.CharField(help_text="Why it was not taken over. Empty: it was.")


class ClusterTakenOverAnswer(serializers.Serializer[Any]):
    """What became of the workloads of a cluster that were Grove's."""

    cluster = serializers.CharField()
    workloads = TakenOverAnswer(many=True)
    left = serializers.IntegerField(help_text="So many are Grove's as well: give the command again.")
    dry_run = serializers.BooleanField(help_text="Nothing was changed: this is what would be.")
    request_id = serializers.CharField(help_text="By which logs and audit know it.")
