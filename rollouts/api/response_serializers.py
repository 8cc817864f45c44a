"""Serializers for the OpenAPI schema, made from the dataclasses that selectors return.

They serialise nothing: `rendering` writes the dataclasses directly. Since they are made from the types of the fields,
the schema always agrees with the answers. `field_help` describes the fields.
"""

import dataclasses
import types
from collections.abc import Callable, Mapping
from datetime import datetime
from enum import Enum
from functools import cache
from typing import Any, Final, Literal, Union, get_args, get_origin, get_type_hints

from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import extend_schema_field, extend_schema_serializer
from rest_framework import serializers

from rollouts.api.field_help import field_help_of
from rollouts.engine.manifest.findings import FindingCode
from rollouts.selectors.workload_state import State

SerializerClass = type[serializers.Serializer[Any]]
Field = serializers.Field[Any, Any, Any, Any]


@extend_schema_field({"oneOf": [{"type": "integer"}, {"type": "string"}]})
class _IntOrPercentField(serializers.Field[Any, Any, Any, Any]):
    """A budget: 2, or "25%"."""


@extend_schema_field(OpenApiTypes.ANY)
class _AnyValueField(serializers.JSONField):
    """Any value of a manifest."""


_PLAIN_FIELDS: Final[Mapping[Any, type[Any]]] = {
    bool: serializers.BooleanField,
    int: serializers.IntegerField,
    float: serializers.FloatField,
    datetime: serializers.DateTimeField,
    Any: _AnyValueField,
}


@cache
def response_serializer(value: type[Any]) -> SerializerClass:
    """Return the serializer of a dataclass."""
    return _make(value.__name__, value.__doc__ or "", _build_fields(value))


def page_serializer(item: SerializerClass, name: str, **more: Field) -> SerializerClass:
    """Return the serializer of a page of a list."""
    fields: dict[str, Field] = {
        "count": serializers.IntegerField(help_text="Length of the whole list."),
        "next": serializers.CharField(allow_null=True, help_text="URL of the next page. Null: this is the last."),
        "previous": serializers.CharField(
            allow_null=True, help_text="URL of the previous page. Null: this is the first."
        ),
        "results": item(many=True),
        **more,
    }
    return _make(name, "A page of a list.", fields)


@extend_schema_serializer(component_name="Manifest")
class ManifestSerializer(serializers.Serializer[Any]):
    """A PodCliqueSet."""

    apiVersion = serializers.CharField()  # noqa: N815 (as manifests have it)
    kind = serializers.CharField()
    metadata = serializers.DictField(child=_AnyValueField(allow_null=True))
    spec = serializers.DictField(child=_AnyValueField(allow_null=True))
    status = serializers.DictField(child=_AnyValueField(allow_null=True), required=False)


def counts_by_state_field() -> Field:
    """Return the serializer of a number for each state."""
    return _mapping((State, int), {})


def _make(name: str, words: str, fields: dict[str, Field]) -> SerializerClass:
    made: SerializerClass = type(name, (serializers.Serializer,), {**fields, "__doc__": words})
    return made


def _build_fields(value: type[Any]) -> dict[str, Field]:
    hints, meanings = get_type_hints(value), field_help_of(value)
    return {
        field.name: _build_field(hints[field.name], help_text=meanings.get(field.name))
        for field in dataclasses.fields(value)
    }


def _build_field(hint: Any, **options: Any) -> Field:
    """Return the field of a type: a composed type, a dataclass, an enumeration, or a plain type."""
    compose = _FIELD_BUILDERS.get(get_origin(hint))
    if compose is not None:
        return compose(get_args(hint), options)
    if isinstance(hint, type) and dataclasses.is_dataclass(hint):
        return response_serializer(hint)(**options)
    if isinstance(hint, type) and issubclass(hint, Enum) and hint is not FindingCode:
        return serializers.ChoiceField(choices=[str(one.value) for one in hint], **options)
    if hint in _PLAIN_FIELDS:
        made: Field = _PLAIN_FIELDS[hint](**options)
        return made
    return serializers.CharField(allow_blank=True, **options)


Options = Mapping[str, Any]
"""Options of every field: whether it may be null, and its description."""


def _union(inner: tuple[Any, ...], options: Options) -> Field:
    rest = [hint for hint in inner if hint is not type(None)]
    nullable = {**options, "allow_null": len(rest) < len(inner)}
    return _build_field(rest[0], **nullable) if len(rest) == 1 else _IntOrPercentField(**nullable)


def _list(inner: tuple[Any, ...], options: Options) -> Field:
    item = inner[0]
    if isinstance(item, type) and dataclasses.is_dataclass(item):
        return response_serializer(item)(many=True, **options)
    return serializers.ListField(child=_build_field(item), **options)


def _mapping(inner: tuple[Any, ...], options: Options) -> Field:
    key, value = inner
    if isinstance(key, type) and issubclass(key, Enum):
        return _by_enum(key, value)(**options)
    return serializers.DictField(child=_build_field(value), **options)


@cache
def _by_enum(key: type[Enum], value: Any) -> SerializerClass:
    fields = {str(one.value): _build_field(value) for one in key}
    return _make(f"By{key.__name__}", f"A value for each {key.__name__.lower()}.", fields)


def _choice(inner: tuple[Any, ...], options: Options) -> Field:
    return serializers.ChoiceField(choices=list(inner), **options)


_FIELD_BUILDERS: Final[Mapping[Any, Callable[[tuple[Any, ...], Options], Field]]] = {
    Union: _union,
    types.UnionType: _union,
    tuple: _list,
    Mapping: _mapping,
    dict: _mapping,
    Literal: _choice,
}
