"""The rules of an update, as functions on values: preconditions, what each subresource may change, what a patch makes.

`verbs` calls them in this order: `compute_patched` or `parse_applied_configuration` on what was sent, `check_uid` and
`check_resource_version` against the stored object, `prepare_for_update` to keep what the caller may not change.
"""

from typing import Any

from rollouts.sandbox.apiserver import admission, objectmeta, strategies
from rollouts.sandbox.apiserver.errors import (
    ApiError,
    StatusCause,
    bad_request,
    conflict,
    invalid,
    object_modified,
    unsupported_media_type,
)
from rollouts.sandbox.apiserver.patch import PatchType, json_patch, merge_patch
from rollouts.sandbox.apiserver.registry import Kind
from rollouts.sandbox.apiserver.strategic_merge_patch import strategic_merge

Obj = dict[str, Any]

_PATCH_TYPES = ", ".join((PatchType.JSON, PatchType.MERGE, PatchType.APPLY))


def check_uid(kind: Kind, current: Obj, wanted: Obj) -> None:
    """Reject a replacement that names another uid than the stored object's."""
    uid, found = wanted.get("uid"), current["metadata"]["uid"]
    if not uid or uid == found:
        return
    place = "/".join(part for part in (kind.group, kind.plural, wanted.get("namespace"), wanted["name"]) if part)
    why = (
        f"StorageError: invalid object, Code: 4, Key: /registry/{place}, ResourceVersion: 0, AdditionalErrorMsg: "
        f"Precondition failed: UID in precondition: {uid}, UID in object meta: {found}"
    )
    raise conflict(kind.qualified_resource(wanted["name"]), why)


def check_uid_kept(kind: Kind, current: Obj, wanted: Obj) -> None:
    if wanted.get("uid", current["metadata"]["uid"]) != current["metadata"]["uid"]:
        raise immutable_uid(kind, wanted)


def immutable_uid(kind: Kind, metadata: Obj) -> ApiError:
    cause = StatusCause("FieldValueInvalid", f'Invalid value: "{metadata["uid"]}": field is immutable', "metadata.uid")
    return invalid(kind.qualified_kind(metadata["name"]), [cause])


def check_resource_version(kind: Kind, current: Obj, wanted: Obj) -> None:
    name, revision = current["metadata"]["name"], wanted.get("resourceVersion")
    if revision:
        if not revision.isdigit():
            raise ApiError(500, "", f'strconv.ParseUint: parsing "{revision}": invalid syntax')
        if revision != current["metadata"]["resourceVersion"]:
            raise object_modified(kind.qualified_resource(name))
    elif not kind.builtin or kind.plural in strategies.REQUIRES_RESOURCE_VERSION:
        message = "Invalid value: 0: must be specified for an update"
        raise invalid(
            kind.qualified_resource(name), [StatusCause("FieldValueInvalid", message, "metadata.resourceVersion")]
        )


def prepare_for_update(kind: Kind, current: Obj, obj: Obj, subresource: str) -> None:
    """Keep what this subresource may not change; raise the generation if more than metadata and status changed."""
    metadata, before = obj["metadata"], current["metadata"]
    if subresource in {"status", "scale"} and not (kind.builtin and subresource == "status"):
        entries = {key: metadata[key] for key in ("managedFields",) if key in metadata}
        metadata = obj["metadata"] = {**before, **entries}
    if subresource == "status":
        for member in [key for key in {**obj, **current} if key not in {"metadata", "status"}]:
            _keep_stored(obj, current, member)
    elif kind.has_status:
        _keep_stored(obj, current, "status")
    for member in (*objectmeta.SERVER_MANAGED, "resourceVersion"):
        _keep_stored(metadata, before, member)
    if kind.plural == "namespaces" and kind.builtin and subresource != "finalize":
        _keep_stored(obj, current, "spec")  # only namespaces/finalize changes its finalizers
    if kind.has_generation and _desired_state(obj) != _desired_state(current):
        metadata["generation"] = before.get("generation", 0) + 1


def _keep_stored(obj: Obj, current: Obj, member: str) -> None:
    """Restore the stored value of a member, also its absence."""
    if member in current:
        obj[member] = current[member]
    else:
        obj.pop(member, None)


def _desired_state(obj: Obj) -> Obj:
    return {key: value for key, value in obj.items() if key not in {"metadata", "status"}}


def unknown_patch_type() -> ApiError:
    """Return the error for a patch type that custom kinds do not accept."""
    return unsupported_media_type(
        f"the body of the request was in an unknown format - accepted media types include: {_PATCH_TYPES}"
    )


def compute_patched(kind: Kind, current: Obj, patch_type: PatchType, body: Any) -> Obj:
    """Return the stored object with a patch applied, before any check."""
    if patch_type is PatchType.JSON:
        return json_patch(current, body)
    if patch_type is PatchType.STRATEGIC and not kind.builtin:
        raise unknown_patch_type()
    if not isinstance(body, dict):
        shape = "array" if isinstance(body, list) else "string" if isinstance(body, str) else "number"
        raise bad_request(
            f"error decoding patch: json: cannot unmarshal {shape} into Go value of type map[string]interface {{}}"
        )
    if patch_type is PatchType.STRATEGIC:
        return strategic_merge(kind.schema, current, body)
    merged: Obj = merge_patch(current, body)
    return merged


def parse_applied_configuration(kind: Kind, namespace: str | None, name: str, body: Any) -> Obj:
    """Return an applied configuration with name and namespace; reject one of another kind or with managedFields."""
    if not isinstance(body, dict) or not body.get("kind") or not body.get("apiVersion"):
        raise bad_request("invalid object type: /, Kind=")
    if body["kind"] != kind.kind or body["apiVersion"] != kind.api_version:
        group, _, version = body["apiVersion"].rpartition("/")
        raise bad_request(f"invalid object type: {group}/{version}, Kind={body['kind']}")
    configuration: Obj = admission.deep_copy(body)
    metadata = configuration.setdefault("metadata", {})
    if "managedFields" in metadata:
        raise bad_request("metadata.managedFields must be nil")
    metadata.setdefault("name", name)
    admission.ensure_name_and_namespace(kind, namespace, {**metadata}, name)
    return configuration
