"""The metadata of every object: its schema, the rules of names, and which members only the server may set.

`registry` puts SCHEMA into each kind's schema; `verbs` calls the functions while it prepares an object for the store.
"""

import json
import re
import secrets
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from rollouts.sandbox.apiserver.errors import StatusCause
from rollouts.sandbox.apiserver.formats import render_json

FOREGROUND_FINALIZER: Final = "foregroundDeletion"
ORPHAN_FINALIZER: Final = "orphan"

_STRING: Final = {"type": "string"}
_STRINGS: Final = {"type": "object", "additionalProperties": {"type": "string"}}
_TIME: Final = {"type": "string", "format": "date-time", "nullable": True}

SCHEMA: Final[dict[str, Any]] = {
    "type": "object",
    "properties": {
        "annotations": _STRINGS,
        "creationTimestamp": _TIME,
        "deletionGracePeriodSeconds": {"type": "integer", "format": "int64"},
        "deletionTimestamp": _TIME,
        "finalizers": {
            "type": "array",
            "items": _STRING,
            "x-kubernetes-list-type": "set",
            "x-kubernetes-patch-strategy": "merge",
        },
        "generateName": _STRING,
        "generation": {"type": "integer", "format": "int64"},
        "labels": _STRINGS,
        "managedFields": {
            "type": "array",
            "x-kubernetes-list-type": "atomic",
            "items": {
                "type": "object",
                "properties": {
                    "apiVersion": _STRING,
                    "fieldsType": _STRING,
                    "fieldsV1": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
                    "manager": _STRING,
                    "operation": _STRING,
                    "subresource": _STRING,
                    "time": _TIME,
                },
            },
        },
        "name": _STRING,
        "namespace": _STRING,
        "ownerReferences": {
            "type": "array",
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["uid"],
            "x-kubernetes-patch-merge-key": "uid",
            "x-kubernetes-patch-strategy": "merge",
            "items": {
                "type": "object",
                "x-kubernetes-map-type": "atomic",
                "properties": {
                    "apiVersion": _STRING,
                    "blockOwnerDeletion": {"type": "boolean"},
                    "controller": {"type": "boolean"},
                    "kind": _STRING,
                    "name": _STRING,
                    "uid": _STRING,
                },
            },
        },
        "resourceVersion": _STRING,
        "selfLink": _STRING,
        "uid": _STRING,
    },
}

# Only the server sets these: an update keeps the stored value.
SERVER_MANAGED: Final = (
    "uid",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "generation",
    "generateName",
)

# Vowels and characters that look alike are left out, so that a suffix never reads as a word.
_SUFFIX_ALPHABET: Final = "bcdfghjklmnpqrstvwxz2456789"
_SUFFIX_LENGTH: Final = 5
_MAX_PREFIX_LENGTH: Final = 63 - _SUFFIX_LENGTH


def generate_name(prefix: str) -> str:
    """Append the random suffix of generateName, shortening the prefix so that the name stays a DNS label."""
    suffix = "".join(secrets.choice(_SUFFIX_ALPHABET) for _ in range(_SUFFIX_LENGTH))
    return prefix[:_MAX_PREFIX_LENGTH] + suffix


# --- names ---------------------------------------------------------------------------------------------------------

_LABEL = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_SUBDOMAIN = rf"{_LABEL}(\.{_LABEL})*"
_LABEL_1035 = r"[a-z]([-a-z0-9]*[a-z0-9])?"
_QUALIFIED = r"([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]"
_LABEL_VALUE = rf"(({_QUALIFIED})?)"

_SUBDOMAIN_MESSAGE = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start "
    f"and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '{_SUBDOMAIN}')"
)
_LABEL_MESSAGE = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end "
    f"with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '{_LABEL}')"
)
_LABEL_1035_MESSAGE = (
    "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, "
    "and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation is "
    f"'{_LABEL_1035}')"
)
_LABEL_VALUE_MESSAGE = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start "
    "and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation "
    "is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"
)
_QUALIFIED_MESSAGE = (
    "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric "
    "character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is "
    "'([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"
)
_MAX_LABEL = 63
_MAX_SUBDOMAIN = 253


def subdomain_findings(text: str) -> Iterator[str]:
    if len(text) > _MAX_SUBDOMAIN:
        yield f"must be no more than {_MAX_SUBDOMAIN} characters"
    if re.fullmatch(_SUBDOMAIN, text) is None:
        yield _SUBDOMAIN_MESSAGE


def label_findings(text: str) -> Iterator[str]:
    return _short_text_findings(text, _LABEL, _LABEL_MESSAGE)


def label_1035_findings(text: str) -> Iterator[str]:
    return _short_text_findings(text, _LABEL_1035, _LABEL_1035_MESSAGE)


def label_value_findings(text: str) -> Iterator[str]:
    return _short_text_findings(text, _LABEL_VALUE, _LABEL_VALUE_MESSAGE)


def _short_text_findings(text: str, pattern: str, words: str) -> Iterator[str]:
    if len(text) > _MAX_LABEL:
        yield f"must be no more than {_MAX_LABEL} bytes"
    if re.fullmatch(pattern, text) is None:
        yield words


def path_segment_findings(text: str) -> Iterator[str]:
    """Find what keeps a text from being a segment of a path; names of RBAC objects may be any such segment."""
    if text in {".", ".."}:
        yield f"may not be '{text}'"
    for part in ("/", "%"):
        if part in text:
            yield f"may not contain '{part}'"


def qualified_findings(text: str) -> Iterator[str]:
    """Find what keeps a text from being a label key (a name with an optional DNS prefix)."""
    prefix, slash, name = text.rpartition("/")
    if slash and not prefix:
        yield "prefix part must be non-empty"
    elif slash:
        yield from (f"prefix part {finding}" for finding in subdomain_findings(prefix))
    if not name:
        yield "name part must be non-empty"
    elif len(name) > _MAX_LABEL:
        yield f"name part must be no more than {_MAX_LABEL} bytes"
    if re.fullmatch(_QUALIFIED, name) is None:
        yield _QUALIFIED_MESSAGE


_NAME_RULES = {
    "namespaces": label_findings,
    "services": label_1035_findings,
    "roles": path_segment_findings,
    "rolebindings": path_segment_findings,
}


def validate_metadata(plural: str, metadata: Mapping[str, Any]) -> Iterator[StatusCause]:
    """Find what is wrong with an object's name, labels, annotations, finalizers and owners."""
    name = metadata.get("name", "")
    if not name:
        yield StatusCause("FieldValueRequired", "Required value: name or generateName is required", "metadata.name")
    else:
        for finding in _NAME_RULES.get(plural, subdomain_findings)(name):
            yield _invalid(name, finding, "metadata.name")
    yield from _validate_labels(metadata.get("labels") or {})
    yield from _validate_annotations(metadata.get("annotations") or {})
    yield from _validate_owners(metadata.get("ownerReferences") or ())
    for finalizer in metadata.get("finalizers") or ():
        for finding in qualified_findings(finalizer):
            yield _invalid(finalizer, finding, "metadata.finalizers")


def validate_metadata_change(metadata: Mapping[str, Any], before: Mapping[str, Any]) -> Iterator[StatusCause]:
    """Find what an update may not change in metadata."""
    if "deletionTimestamp" not in before:
        return
    added = [one for one in metadata.get("finalizers") or () if one not in (before.get("finalizers") or ())]
    if added:
        listed = ", ".join(render_json(one) for one in added)
        sentence = "Forbidden: no new finalizers can be added if the object is being deleted, found new finalizers "
        yield StatusCause("FieldValueForbidden", f"{sentence}[]string{{{listed}}}", "metadata.finalizers")


def _invalid(value: Any, finding: str, path: str) -> StatusCause:
    return StatusCause("FieldValueInvalid", f"Invalid value: {render_json(value)}: {finding}", path)


def _validate_owners(owners: Sequence[Mapping[str, Any]]) -> Iterator[StatusCause]:
    controllers = []
    for owner in owners:
        for member in ("apiVersion", "kind", "name", "uid"):
            if not owner.get(member):
                yield _invalid("", "must not be empty", f"metadata.ownerReferences.{member}")
        if owner.get("controller"):
            controllers.append(f"{owner.get('kind')}/{owner.get('name')}")
    if len(controllers) > 1:
        listed = f"{controllers[0]} and {controllers[1]}"
        sentence = f'Only one reference can have Controller set to true. Found "true" in references for {listed}'
        order = ("apiVersion", "kind", "name", "uid", "controller", "blockOwnerDeletion")
        shown = json.dumps([{k: o[k] for k in order if k in o} for o in owners], separators=(",", ":"))
        yield StatusCause("FieldValueInvalid", f"Invalid value: {shown}: {sentence}", "metadata.ownerReferences")


def _validate_labels(labels: Mapping[str, str]) -> Iterator[StatusCause]:
    for key, value in labels.items():
        for finding in qualified_findings(key):
            yield _invalid(key, finding, "metadata.labels")
        for finding in label_value_findings(value):
            yield _invalid(value, finding, "metadata.labels")


_MAX_ANNOTATION_BYTES = 256 * 1024


def _validate_annotations(annotations: Mapping[str, str]) -> Iterator[StatusCause]:
    size = 0
    for key, value in annotations.items():
        size += len(key.encode()) + len(value.encode())
        for finding in qualified_findings(key.lower()):
            yield _invalid(key, finding, "metadata.annotations")
    if size > _MAX_ANNOTATION_BYTES:
        sentence = f"Too long: may not be more than {_MAX_ANNOTATION_BYTES} bytes"
        yield StatusCause("FieldValueTooLong", sentence, "metadata.annotations")
