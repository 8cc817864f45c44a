"""What an API server does with a request, on values.

`http` turns requests into these calls and the behaviour half calls them directly. Each verb is a synchronous function
on one event loop, so it is atomic. Every write takes the same way: a private copy is pruned and defaulted, joined with
what the caller may not change, checked, and only then stored; a refusal is raised as `ApiError` and leaves nothing
behind; a write that changes nothing keeps the resourceVersion.
"""

import copy
import uuid
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from typing import Any

from rollouts.sandbox import objectmeta, pods
from rollouts.sandbox.patch import PatchType, json_patch, merge_patch
from rollouts.sandbox.registry import Kind, Registry
from rollouts.sandbox.schema import default, prune, validate
from rollouts.sandbox.selectors import parse_selectors
from rollouts.sandbox.status import (
    Cause,
    Resource,
    already_exists,
    bad_request,
    conflict,
    forbidden,
    invalid,
    modified_meanwhile,
    not_found,
    unsupported_media_type,
)
from rollouts.sandbox.store import Store

Obj = dict[str, Any]
Objects = list[Obj]
UnknownFields = Callable[[Kind, Sequence[str]], None]

SYSTEM_NAMESPACES = ("default", "kube-node-lease", "kube-public", "kube-system")
_NAME_ATTEMPTS = 8


def ignore_unknown(_kind: Kind, _paths: Sequence[str]) -> None:
    """Prune silently, as fieldValidation=Ignore does."""


class Verbs:
    """The verbs over one store and one registry."""

    def __init__(self, store: Store, registry: Registry, clock: Callable[[], datetime]) -> None:
        self.store = store
        self.registry = registry
        self._clock = clock
        self._namespaces = registry.kind("namespaces")
        self._pods = registry.kind("pods")
        self._bootstrap()

    def _bootstrap(self) -> None:
        """What every API server has from the start: its own namespaces, and the definitions of what it serves."""
        for name in SYSTEM_NAMESPACES:
            if self.store.get(self._namespaces, None, name) is None:
                self.create(self._namespaces, None, {"metadata": {"name": name}})

    # --- reading ---------------------------------------------------------------------------------------------------

    def get(self, kind: Kind, namespace: str | None, name: str) -> Obj:
        stored = self.store.get(kind, namespace, name)
        if stored is None:
            raise not_found(kind.resource(name))
        return stored.obj

    def list(self, kind: Kind, namespace: str | None = None, *, labels: str = "", fields: str = "") -> Objects:
        matches = parse_selectors(kind, labels, fields)
        return [stored.obj for stored in self.store.list(kind, namespace) if matches(stored.obj)]

    # --- creating --------------------------------------------------------------------------------------------------

    def create(
        self,
        kind: Kind,
        namespace: str | None,
        body: Obj,
        *,
        manager: str = "sandbox",
        dry_run: bool = False,
        unknown_fields: UnknownFields = ignore_unknown,
    ) -> Obj:
        obj = self._decode(kind, body, unknown_fields)
        metadata = obj["metadata"]
        self._place(kind, namespace, metadata)
        if metadata.get("resourceVersion"):
            raise bad_request("resourceVersion should not be set on objects to be created")
        self._require_namespace(kind, metadata)
        self._begin(kind, obj)
        self._check(kind, obj, None)
        if self.store.get(kind, namespace, metadata["name"]) is not None:
            raise already_exists(kind.resource(metadata["name"]))
        return obj if dry_run else self.store.put(kind, obj)

    def _begin(self, kind: Kind, obj: Obj) -> None:
        """Give a new object what the server sets."""
        metadata = obj["metadata"]
        for member in ("deletionTimestamp", "deletionGracePeriodSeconds", "selfLink", "generation"):
            metadata.pop(member, None)
        if not metadata.get("name") and metadata.get("generateName"):
            metadata["name"] = self._free_name(kind, metadata.get("namespace"), metadata["generateName"])
        metadata["uid"] = str(uuid.uuid4())
        metadata["creationTimestamp"] = self.now()
        if kind.counts_generations:
            metadata["generation"] = 1
        if kind.has_status:
            obj.pop("status", None)
        if kind is self._pods:
            pods.begin(obj)
        elif kind is self._namespaces:
            obj["status"] = {"phase": "Active"}
            metadata.setdefault("labels", {})["kubernetes.io/metadata.name"] = metadata.get("name", "")

    def _free_name(self, kind: Kind, namespace: str | None, prefix: str) -> str:
        for _ in range(_NAME_ATTEMPTS):
            name = objectmeta.generate_name(prefix)
            if self.store.get(kind, namespace, name) is None:
                break
        return name

    # --- updating --------------------------------------------------------------------------------------------------

    def update(
        self,
        kind: Kind,
        namespace: str | None,
        name: str,
        body: Obj,
        *,
        subresource: str | None = None,
        manager: str = "sandbox",
        dry_run: bool = False,
        unknown_fields: UnknownFields = ignore_unknown,
    ) -> Obj:
        current = self.get(kind, namespace, name)
        obj = self._decode(kind, body, unknown_fields)
        self._place(kind, namespace, obj["metadata"], name)
        return self._replace(kind, current, obj, subresource=subresource, manager=manager, dry_run=dry_run)

    def patch(
        self,
        kind: Kind,
        namespace: str | None,
        name: str,
        patch_type: PatchType,
        body: Any,
        *,
        subresource: str | None = None,
        manager: str = "sandbox",
        force: bool = False,
        dry_run: bool = False,
        unknown_fields: UnknownFields = ignore_unknown,
    ) -> Obj:
        current = self.get(kind, namespace, name)
        patched = self._patched(kind, current, patch_type, body)
        obj = self._decode(kind, patched, unknown_fields)
        self._place(kind, namespace, obj["metadata"], name)
        return self._replace(kind, current, obj, subresource=subresource, manager=manager, dry_run=dry_run)

    def _patched(self, kind: Kind, current: Obj, patch_type: PatchType, body: Any) -> Obj:
        if patch_type is PatchType.MERGE:
            if not isinstance(body, dict):
                raise bad_request("the patch is not an object")
            merged: Obj = merge_patch(current, body)
            return merged
        if patch_type is PatchType.JSON:
            return json_patch(current, body)
        raise unsupported_media_type(f"the body of the request was in an unknown format: {patch_type}")

    def _replace(
        self, kind: Kind, current: Obj, obj: Obj, *, subresource: str | None, manager: str, dry_run: bool
    ) -> Obj:
        """Put a decoded object in place of the stored one, as far as the caller may."""
        self._check_preconditions(kind, current, obj["metadata"])
        if subresource == "status":
            obj = _with_status(kind, current, obj)
        elif kind.has_status:
            _keep(obj, current, "status")
        self._carry(kind, current, obj)
        if obj == current:
            return current
        self._check(kind, obj, current)
        if dry_run:
            return obj
        if _is_finished(obj):
            return self.store.remove(kind, obj)
        return self.store.put(kind, obj)

    def _check_preconditions(self, kind: Kind, current: Obj, wanted: Obj) -> None:
        name = current["metadata"]["name"]
        uid = wanted.get("uid")
        if uid and uid != current["metadata"]["uid"]:
            why = f"Precondition failed: UID in precondition: {uid}, UID in object meta: {current['metadata']['uid']}"
            raise conflict(kind.resource(name), why)
        revision = wanted.get("resourceVersion")
        if revision and revision != current["metadata"]["resourceVersion"]:
            raise modified_meanwhile(kind.resource(name))
        if not revision and not kind.builtin:
            message = "Invalid value: 0: must be specified for an update"
            cause = Cause("FieldValueInvalid", message, "metadata.resourceVersion")
            raise invalid(kind.named(name), [cause])

    def _carry(self, kind: Kind, current: Obj, obj: Obj) -> None:
        """Keep what only the server sets, and count a generation when more than metadata and status changed."""
        metadata, before = obj["metadata"], current["metadata"]
        for member in (*objectmeta.SERVER_SET, "resourceVersion"):
            _keep(metadata, before, member)
        if kind.counts_generations and _wishes(obj) != _wishes(current):
            metadata["generation"] = before.get("generation", 0) + 1

    # --- deleting --------------------------------------------------------------------------------------------------

    def delete(
        self,
        kind: Kind,
        namespace: str | None,
        name: str,
        *,
        uid: str | None = None,
        resource_version: str | None = None,
        grace_seconds: int | None = None,
        propagation: str | None = None,
        dry_run: bool = False,
    ) -> Obj:
        current = self.get(kind, namespace, name)
        metadata = current["metadata"]
        if uid is not None and uid != metadata["uid"]:
            why = f"Precondition failed: UID in precondition: {uid}, UID in object meta: {metadata['uid']}"
            raise conflict(kind.resource(name), why)
        if resource_version is not None and resource_version != metadata["resourceVersion"]:
            why = (
                f"Precondition failed: ResourceVersion in precondition: {resource_version}, "
                f"ResourceVersion in object meta: {metadata['resourceVersion']}"
            )
            raise conflict(kind.resource(name), why)
        return self._delete(kind, current, grace_seconds, propagation, dry_run)

    def _delete(
        self, kind: Kind, current: Obj, grace_seconds: int | None, propagation: str | None, dry_run: bool
    ) -> Obj:
        metadata = current["metadata"]
        grace = pods.grace_period(current, grace_seconds) if kind is self._pods else 0
        finalizers = [*(metadata.get("finalizers") or ())]
        for policy, finalizer in (("Foreground", "foregroundDeletion"), ("Orphan", "orphan")):
            if propagation == policy and finalizer not in finalizers:
                finalizers.append(finalizer)
        if not finalizers and grace == 0:
            return current if dry_run else self.store.remove(kind, current)
        leaving = {**metadata}
        if finalizers:
            leaving["finalizers"] = finalizers
        if "deletionTimestamp" not in leaving:
            leaving["deletionTimestamp"] = self.now(grace)
            if "generation" in leaving:
                leaving["generation"] += 1
            leaving["deletionGracePeriodSeconds"] = grace
        elif grace < leaving.get("deletionGracePeriodSeconds", 0):
            leaving["deletionTimestamp"] = self.now(grace)
            leaving["deletionGracePeriodSeconds"] = grace
        obj = {**current, "metadata": leaving}
        if obj == current or dry_run:
            return obj
        return self.store.put(kind, obj)

    def evict(self, namespace: str, name: str, *, uid: str | None = None, dry_run: bool = False) -> None:
        self.delete(self._pods, namespace, name, uid=uid, dry_run=dry_run)

    def bind(self, namespace: str, pod: str, node: str) -> None:
        """Assign a pod to a node, as pods/binding does."""
        current = self.get(self._pods, namespace, pod)
        bound = pods.bound(current, node, self.now())
        if bound is None:
            why = f'pod {pod} is already assigned to node "{current["spec"]["nodeName"]}"'
            raise conflict(Resource("", "pods/binding", pod), why)
        self.store.put(self._pods, bound)

    # --- the steps of a write --------------------------------------------------------------------------------------

    def now(self, after_seconds: int = 0) -> str:
        """The clock as objects write it."""
        moment = self._clock().astimezone(UTC)
        if after_seconds:
            moment = datetime.fromtimestamp(moment.timestamp() + after_seconds, UTC)
        return moment.strftime("%Y-%m-%dT%H:%M:%SZ")

    def _decode(self, kind: Kind, body: Any, unknown_fields: UnknownFields) -> Obj:
        """A private copy of what was sent, of the right kind, pruned and defaulted."""
        if not isinstance(body, dict):
            raise bad_request(f"json: cannot unmarshal into Go value of type {kind.kind}")
        for member, wanted in (("apiVersion", kind.api_version), ("kind", kind.kind)):
            if body.get(member, wanted) != wanted:
                raise bad_request(
                    f'{body.get("kind")} in version "{body.get("apiVersion")}" cannot be handled as a {kind.kind}'
                )
        obj: Obj = {"apiVersion": kind.api_version, "kind": kind.kind}
        obj |= copy.deepcopy(body)
        if not isinstance(obj.setdefault("metadata", {}), dict):
            raise bad_request("metadata is not an object")
        unknown_fields(kind, prune(kind.schema, obj, drop_nulls=kind.builtin))
        _drop_empty(obj["metadata"])
        default(kind.schema, obj)
        return obj

    def _place(self, kind: Kind, namespace: str | None, metadata: Obj, name: str | None = None) -> None:
        """Settle the object's name and namespace against those of the request."""
        if kind.namespaced:
            if metadata.setdefault("namespace", namespace) != namespace:
                sentence = "the namespace of the provided object does not match the namespace sent on the request"
                raise bad_request(sentence)
        else:
            metadata.pop("namespace", None)
        if name is not None and metadata.setdefault("name", name) != name:
            sentence = f"the name of the object ({metadata['name']}) does not match the name on the URL ({name})"
            raise bad_request(sentence)

    def _require_namespace(self, kind: Kind, metadata: Obj) -> None:
        if not kind.namespaced:
            return
        name = metadata["namespace"]
        stored = self.store.get(self._namespaces, None, name)
        if stored is None:
            raise not_found(self._namespaces.resource(name))
        if "deletionTimestamp" in stored.obj["metadata"]:
            why = f"unable to create new content in namespace {name} because it is being terminated"
            cause = Cause("NamespaceTerminating", f"namespace {name} is being terminated", "metadata.namespace")
            raise forbidden(kind.resource(metadata.get("name", "")), why, (cause,))

    def _check(self, kind: Kind, obj: Obj, old: Obj | None) -> None:
        findings = [*self._findings(kind, obj, old)]
        if findings:
            raise invalid(kind.named(obj["metadata"].get("name", "")), findings)

    def _findings(self, kind: Kind, obj: Obj, old: Obj | None) -> Iterator[Cause]:
        if old is None or obj["metadata"] != old["metadata"]:
            yield from objectmeta.validate_metadata(kind.plural, obj["metadata"])
        yield from validate(kind.schema, obj, old) if old is not None else validate(kind.schema, obj)


def _keep(obj: Obj, current: Obj, member: str) -> None:
    """Give a member its stored value, absence included."""
    if member in current:
        obj[member] = current[member]
    else:
        obj.pop(member, None)


def _wishes(obj: Obj) -> Obj:
    return {key: value for key, value in obj.items() if key not in {"metadata", "status"}}


def _with_status(kind: Kind, current: Obj, sent: Obj) -> Obj:
    """The stored object with the status that was sent; a built-in kind takes its labels and annotations too."""
    obj = {**current, "metadata": {**current["metadata"]}}
    if kind.builtin:
        obj["metadata"] = sent["metadata"]
    if "status" in sent:
        obj["status"] = sent["status"]
    else:
        obj.pop("status", None)
    return obj


def _is_finished(obj: Obj) -> bool:
    """Whether a leaving object waits for nothing any more."""
    metadata = obj["metadata"]
    return (
        "deletionTimestamp" in metadata
        and not metadata.get("finalizers")
        and not metadata.get("deletionGracePeriodSeconds")
    )


def _drop_empty(metadata: Obj) -> None:
    """Empty maps and lists in metadata are as good as absent, and the real server leaves them out."""
    for member in ("labels", "annotations", "finalizers", "ownerReferences", "managedFields"):
        if member in metadata and not metadata[member]:
            del metadata[member]
