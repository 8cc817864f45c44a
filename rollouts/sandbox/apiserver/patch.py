"""Patches as functions from an object to a new object: JSON merge patch and JSON patch (strategic merge:
`strategic_merge_patch`).

`verbs.patch` picks the function by the request's patch type and then treats the result as an update. The object given
is never changed; parts that the patch leaves alone are shared with it.
"""

from enum import StrEnum
from typing import Any

import jsonpatch
import jsonpointer
import orjson

from rollouts.sandbox.apiserver.errors import ApiError, QualifiedResource, bad_request

Obj = dict[str, Any]


class PatchType(StrEnum):
    """The patch types, named by their media types."""

    JSON = "application/json-patch+json"
    MERGE = "application/merge-patch+json"
    STRATEGIC = "application/strategic-merge-patch+json"
    APPLY = "application/apply-patch+yaml"


def merge_patch(target: Any, patch: Any) -> Any:
    """Apply RFC 7396: objects merge, null removes, everything else replaces."""
    if not isinstance(patch, dict):
        return patch
    result = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = merge_patch(result.get(key), value)
    return result


def json_patch(target: Obj, operations: Any) -> Obj:
    """Apply RFC 6902; reject the whole patch when one operation does not apply."""
    if not isinstance(operations, list):
        shape = "object" if isinstance(operations, dict) else "string"
        wanted = "Go value of type []handlers.jsonPatchOp"
        raise bad_request(f"error decoding patch: json: cannot unmarshal {shape} into {wanted}")
    result = orjson.loads(orjson.dumps(target))
    try:
        for operation in operations:
            adapted = _adapt_operation(result, operation)
            if adapted is not None:
                result = jsonpatch.JsonPatch([adapted]).apply(result, in_place=True)
    except (jsonpatch.JsonPatchException, jsonpointer.JsonPointerException, TypeError, KeyError) as error:
        sentence = "the server rejected our request due to an error in our request"
        raise ApiError(422, "Invalid", sentence, QualifiedResource("", "")) from error
    if not isinstance(result, dict):
        raise bad_request("the patched value is not an object")
    return result


def _adapt_operation(target: Obj, operation: Any) -> Any:
    """Return an operation as the real server reads it; None when it has no effect.

    There, an absent member can be replaced if its parent exists, and a test for null passes on an absent member.
    """
    if not isinstance(operation, dict) or operation.get("op") not in {"replace", "test"}:
        return operation
    parent, _, name = str(operation.get("path", "")).rpartition("/")
    holder = jsonpointer.resolve_pointer(target, parent, None) if parent or name else None
    key = name.replace("~1", "/").replace("~0", "~")
    if not isinstance(holder, dict) or key in holder:
        return operation
    if operation["op"] == "replace":
        return {**operation, "op": "add"}
    return None if operation.get("value") is None else operation
