"""A request as a value: its parameters read by the rules of the API, its body decoded.

`asgi` receives the bytes, `handlers` then calls the verbs. A malformed request is rejected here, in the words of a real
server.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import orjson
import yaml

from rollouts.sandbox.apiserver import protobuf
from rollouts.sandbox.apiserver.errors import (
    ApiError,
    QualifiedResource,
    StatusCause,
    bad_request,
    invalid,
    unsupported_media_type,
)
from rollouts.sandbox.apiserver.formats import render_json
from rollouts.sandbox.apiserver.registry import Kind

Obj = dict[str, Any]

_MAX_MANAGER_LENGTH = 128
_FIELD_VALIDATIONS = ("", "Ignore", "Strict", "Warn")
_MEDIA_TYPES = f"application/json, application/yaml, {protobuf.MEDIA}"
_SHOWN_LENGTH = 30


@dataclass(frozen=True, slots=True)
class Request:
    """One HTTP request, complete."""

    method: str
    path: str
    query: Mapping[str, Sequence[str]]
    headers: Mapping[str, str]  # names in lower case
    body: bytes = b""

    def text(self, name: str) -> str:
        values = self.query.get(name)
        return values[0] if values else ""

    def flag(self, name: str) -> bool:
        """Return a boolean parameter: false if it is absent, empty, 0 or false."""
        return self.text(name).lower() not in {"", "0", "false"}

    def number(self, name: str) -> int | None:
        text = self.text(name)
        if not text:
            return None
        try:
            return int(text)
        except ValueError:
            raise bad_request(f'strconv.ParseInt: parsing "{text}": invalid syntax') from None

    @property
    def media_type(self) -> str:
        """The body's media type without its parameters."""
        return self.headers.get("content-type", "").split(";")[0].strip().lower()


# --- options -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """The options of a write."""

    dry_run: bool
    manager: str
    validation: str  # Ignore, Warn or Strict
    force: bool | None


def parse_write_options(request: Request, options: str, *, apply: bool = False) -> WriteOptions:
    """Read and check the options of a create, update or patch; `options` is their name in errors."""
    causes = []
    dry_run = list(request.query.get("dryRun", ()))
    if dry_run not in ([], ["All"], [""]):
        sentence = f'Unsupported value: {render_json(dry_run)}: supported values: "All"'
        causes.append(StatusCause("FieldValueNotSupported", sentence, "dryRun"))
    named = request.text("fieldManager")
    if apply and not named:
        causes.append(StatusCause("FieldValueRequired", "Required value: is required for apply patch", "fieldManager"))
    if len(named) > _MAX_MANAGER_LENGTH:
        causes.append(
            StatusCause(
                "FieldValueTooLong", f"Too long: may not be more than {_MAX_MANAGER_LENGTH} bytes", "fieldManager"
            )
        )
    force = request.flag("force") if "force" in request.query else None
    if options == "PatchOptions" and force is not None and not apply:
        causes.append(
            StatusCause("FieldValueForbidden", "Forbidden: may not be specified for non-apply patch", "force")
        )
    validation = request.text("fieldValidation")
    if validation not in _FIELD_VALIDATIONS:
        supported = ", ".join(render_json(one) for one in _FIELD_VALIDATIONS)
        sentence = f"Unsupported value: {render_json(validation)}: supported values: {supported}"
        causes.append(StatusCause("FieldValueNotSupported", sentence, "fieldValidation"))
    if causes:
        raise invalid(QualifiedResource("meta.k8s.io", options), causes)
    agent = request.headers.get("user-agent", "").split("/")[0][:_MAX_MANAGER_LENGTH]
    return WriteOptions(dry_run == ["All"], named or agent or "unknown", validation or "Warn", force)


@dataclass(frozen=True, slots=True)
class DeleteOptions:
    """The options and preconditions of a delete."""

    grace_seconds: int | None
    propagation: str | None
    uid: str | None
    resource_version: str | None
    dry_run: bool


_POLICIES = ("Foreground", "Background", "Orphan")


def parse_delete_options(request: Request) -> DeleteOptions:
    """Read the options of a delete from its body, or from the parameters when there is no body."""
    given: Obj = {}
    if request.body.strip():
        given = _read_options_body(request)
    else:
        grace = request.number("gracePeriodSeconds")
        given = {} if grace is None else {"gracePeriodSeconds": grace}
        if request.text("propagationPolicy"):
            given["propagationPolicy"] = request.text("propagationPolicy")
        if "orphanDependents" in request.query:
            given["orphanDependents"] = request.flag("orphanDependents")
        given["dryRun"] = [one for one in request.query.get("dryRun", ()) if one]
    conditions = given.get("preconditions") or {}
    return DeleteOptions(
        given.get("gracePeriodSeconds"),
        _propagation(given),
        conditions.get("uid"),
        conditions.get("resourceVersion"),
        _delete_dry_run(given.get("dryRun") or []),
    )


def _read_options_body(request: Request) -> Obj:
    check_media_type(request)
    value = decode_body(request, "DeleteOptions")
    if not isinstance(value, dict):
        raise bad_request("the delete options are not an object")
    grace = value.get("gracePeriodSeconds")
    if grace is not None and (isinstance(grace, bool) or not isinstance(grace, int)):
        raise bad_request("json: cannot unmarshal into Go struct field DeleteOptions.gracePeriodSeconds of type int64")
    return value


def _propagation(given: Obj) -> str | None:
    policy, orphan = given.get("propagationPolicy"), given.get("orphanDependents")
    if policy is not None and orphan is not None:
        sentence = f"Invalid value: {render_json(policy)}: orphanDependents and deletionPropagation cannot be both set"
        raise _invalid_delete_options(StatusCause("FieldValueInvalid", sentence, "propagationPolicy"))
    if policy is not None and policy not in _POLICIES:
        supported = ", ".join(render_json(one) for one in (*_POLICIES, "nil"))
        sentence = f"Unsupported value: {render_json(policy)}: supported values: {supported}"
        raise _invalid_delete_options(StatusCause("FieldValueNotSupported", sentence, "propagationPolicy"))
    if orphan is not None:
        return "Orphan" if orphan else "Background"
    return policy


def _delete_dry_run(given: list[str]) -> bool:
    if given not in ([], ["All"]):
        sentence = f'Unsupported value: {render_json(given)}: supported values: "All"'
        raise _invalid_delete_options(StatusCause("FieldValueNotSupported", sentence, "dryRun"))
    return bool(given)


def _invalid_delete_options(cause: StatusCause) -> ApiError:
    return invalid(QualifiedResource("meta.k8s.io", "DeleteOptions"), [cause])


# --- bodies --------------------------------------------------------------------------------------------------------


class _JsonLoader(yaml.CSafeLoader):
    """Reads YAML like JSON: timestamps stay text."""


_JsonLoader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:timestamp"]
    for first, resolvers in yaml.CSafeLoader.yaml_implicit_resolvers.items()
}


def check_media_type(request: Request) -> None:
    """Reject other media types, among them all that a web page's form or beacon can send."""
    if request.media_type not in {"application/json", "application/yaml", protobuf.MEDIA}:
        raise unsupported_media_type(
            f"the body of the request was in an unknown format - accepted media types include: {_MEDIA_TYPES}"
        )


def decode_body(request: Request, kind: str) -> Any:
    """Return the body as a JSON value; `kind` is the expected one."""
    if request.media_type == "application/yaml":
        return parse_yaml(request.body)
    if request.media_type == protobuf.MEDIA:
        return protobuf.parse_protobuf(request.body)
    try:
        value = orjson.loads(request.body)
    except orjson.JSONDecodeError as error:
        raise _unrecognized(
            kind, request.body, f"couldn't get version/kind; json parse error: {_go_error(request.body, error)}"
        ) from None
    if not isinstance(value, dict):
        shape = {list: "array", str: "string", bool: "bool", type(None): "null"}.get(type(value), "number")
        problem = f"json: cannot unmarshal {shape} into Go value of type {_TYPE_META}"
        raise _unrecognized(kind, request.body, f"couldn't get version/kind; json parse error: {problem}")
    return value


_TYPE_META = 'struct { APIVersion string "json:\\"apiVersion,omitempty\\""; Kind string "json:\\"kind,omitempty\\"" }'


def require_kind(kind: Kind, request: Request, value: Obj) -> None:
    """Reject a custom object without apiVersion and kind; for a built-in kind the path is enough."""
    for member in ("apiVersion", "kind"):
        if not kind.builtin and not value.get(member):
            said = "Kind" if not value.get("kind") else "apiVersion"
            text = request.body.decode(errors="replace")
            raise _unrecognized(kind.kind, request.body, f"Object '{said}' is missing in '{text}'")


def parse_yaml(body: bytes) -> Any:
    """Return YAML as a JSON value."""
    try:
        return orjson.loads(orjson.dumps(yaml.load(body, Loader=_JsonLoader), option=orjson.OPT_NON_STR_KEYS))  # noqa: S506 derived from the safe loader
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f"line {max(mark.line, 1)}: " if mark else ""
        problem = getattr(error, "problem", None) or str(error)
        raise bad_request(f"error decoding YAML: error converting YAML to JSON: yaml: {where}{problem}") from None
    except (TypeError, ValueError, RecursionError) as error:
        raise bad_request(f"error decoding YAML: {error}") from None


def decode_patch(body: bytes) -> Any:
    """Return a patch of any shape; reject one nested deeper than an object may be."""
    try:
        value = orjson.loads(body)
        orjson.dumps(value)
    except orjson.JSONDecodeError as error:
        raise bad_request(f"error decoding patch: {_go_error(body, error)}") from None
    except TypeError as error:
        raise bad_request(f"error decoding patch: {error}") from None
    return value


def _unrecognized(kind: str, body: bytes, why: str) -> ApiError:
    return bad_request(f"the object provided is unrecognized (must be of type {kind}): {why} ({_excerpt(body)})")


def _excerpt(body: bytes) -> str:
    if not body:
        return "<empty>"
    if not body.lstrip().startswith(b"{"):
        return body[:_SHOWN_LENGTH].hex()
    text = body.decode(errors="replace")
    return text if len(text) <= _SHOWN_LENGTH else f"{text[:_SHOWN_LENGTH]} ..."


_GO_PARSE_ERRORS = (
    ("Expecting property name", "looking for beginning of object key string"),
    ("Expecting ':'", "after object key"),
    ("Expecting ','", "after object key:value pair"),
    ("Extra data", "after top-level value"),
)


def _go_error(body: bytes, error: ValueError) -> str:
    """Return a parse error in the words of the real server's parser."""
    text = body.decode(errors="replace")
    try:
        json.loads(text)
    except json.JSONDecodeError as found:
        if found.pos >= len(text.rstrip()):
            return "unexpected end of JSON input"
        place = next((words for start, words in _GO_PARSE_ERRORS if found.msg.startswith(start)), None)
        return f"invalid character '{text[found.pos]}' {place or 'looking for beginning of value'}"
    except RecursionError:
        return "exceeded max depth"
    return str(error)


# --- fields given twice --------------------------------------------------------------------------------------------


class _DictWithDuplicates(dict[str, Any]):
    """An object in which keys occurred more than once."""

    duplicates: tuple[str, ...] = ()


def _record_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) == len(pairs):
        return value
    seen: set[str] = set()
    again = [key for key, _ in pairs if key in seen or seen.add(key)]  # type: ignore[func-returns-value]
    doubled = _DictWithDuplicates(value)
    doubled.duplicates = tuple(dict.fromkeys(again))
    return doubled


def find_duplicate_fields(body: bytes) -> list[str]:
    """Return the paths of fields that a JSON body has more than once; the last value wins."""
    try:
        value = json.loads(body, object_pairs_hook=_record_duplicates)
    except (ValueError, RecursionError):
        return []
    found: list[str] = []
    _collect_duplicates(value, "", found)
    return found


def _collect_duplicates(value: Any, path: str, found: list[str]) -> None:
    if isinstance(value, dict):
        if isinstance(value, _DictWithDuplicates):
            found += [f"{path}.{key}" if path else key for key in value.duplicates]
        for key, member in value.items():
            if isinstance(member, dict | list):
                _collect_duplicates(member, f"{path}.{key}" if path else key, found)
    else:
        for index, item in enumerate(value if isinstance(value, list) else ()):
            if isinstance(item, dict | list):
                _collect_duplicates(item, f"{path}[{index}]", found)
