"""The verbs of the API server, on values: get, list, create, update, patch, apply, delete, evict, bind.

`handlers` turns requests into these calls, and the controllers of `cluster` call them directly. Each verb is a
synchronous function on one event loop, so it is atomic. Every write takes the same steps: prune and default a private
copy (`admission`), restore what the caller may not change, assign the changed fields to their manager
(`managed_fields`), validate, and only then store. A rejected write raises an `ApiError` and stores nothing; a write
that changes nothing keeps the resourceVersion.
"""

import uuid
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import orjson

from rollouts.sandbox.apiserver import (
    admission,
    deletion,
    eviction,
    managed_fields,
    objectmeta,
    pod_strategy,
    strategies,
)
from rollouts.sandbox.apiserver.admission import UnknownFields, ignore_unknown
from rollouts.sandbox.apiserver.crd_publishing import publish_definitions
from rollouts.sandbox.apiserver.errors import (
    ApiError,
    QualifiedResource,
    StatusCause,
    already_exists,
    bad_request,
    conflict,
    forbidden,
    invalid,
    method_not_allowed,
    not_found,
    resource_not_served,
)
from rollouts.sandbox.apiserver.formats import render_json
from rollouts.sandbox.apiserver.managed_fields import FieldManager
from rollouts.sandbox.apiserver.patch import PatchType
from rollouts.sandbox.apiserver.registry import Kind, Registry
from rollouts.sandbox.apiserver.scale import find_scale_problem, from_scale, to_scale
from rollouts.sandbox.apiserver.selectors import parse_selectors
from rollouts.sandbox.apiserver.server_side_apply import apply_configuration
from rollouts.sandbox.apiserver.storage import Storage
from rollouts.sandbox.apiserver.updates import (
    check_resource_version,
    check_uid,
    check_uid_kept,
    compute_patched,
    immutable_uid,
    parse_applied_configuration,
    prepare_for_update,
)
from rollouts.sandbox.times import render_time

Obj = dict[str, Any]
Objects = list[Obj]

SYSTEM_NAMESPACES = ("default", "kube-node-lease", "kube-public", "kube-system")
SYSTEM_PRIORITIES = {"system-cluster-critical": 2_000_000_000, "system-node-critical": 2_000_001_000}
_NAME_ATTEMPTS = 8


class Verbs:
    """The verbs over one store and one registry."""

    def __init__(self, store: Storage, registry: Registry, clock: Callable[[], datetime]) -> None:
        self.store = store
        self.registry = registry
        self._clock = clock
        self._namespaces = registry.kind("namespaces")
        self._pods = registry.kind("pods")
        self._priorities = registry.kind("priorityclasses", "scheduling.k8s.io")
        self._definitions = registry.kind("customresourcedefinitions", "apiextensions.k8s.io")
        self._bootstrap()

    def _bootstrap(self) -> None:
        """Create what every API server has from the start: namespaces, priorities, the definitions it serves."""
        for name in SYSTEM_NAMESPACES:
            if self.store.get(self._namespaces, None, name) is None:
                self.create(self._namespaces, None, {"metadata": {"name": name}})
        for name, value in SYSTEM_PRIORITIES.items():
            if self.store.get(self._priorities, None, name) is None:
                self.create(self._priorities, None, {"metadata": {"name": name}, "value": value})
        publish_definitions(self.store, self.registry, self.now())
        for stored in (*self.store.list(self._pods),):
            if deletion.is_removable(stored.obj):  # the last process ended between the two steps of `_end`
                self.store.remove(self._pods, stored.obj)

    def now(self, after_seconds: int = 0) -> str:
        """Return the time as objects carry it."""
        return render_time(self._clock() + timedelta(seconds=after_seconds))

    # --- reading ---------------------------------------------------------------------------------------------------

    def get(self, kind: Kind, namespace: str | None, name: str) -> Obj:
        stored = self.store.get(kind, namespace, name)
        if stored is None:
            raise not_found(kind.qualified_resource(name))
        return stored.obj

    def get_scale(self, kind: Kind, namespace: str | None, name: str) -> Obj:
        """Return the Scale of an object whose kind has one."""
        if kind.scale is None:
            raise resource_not_served()
        return to_scale(kind.scale, self.get(kind, namespace, name))

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
        self._require_writable(kind)
        obj = admission.decode(kind, body, unknown_fields)
        admission.ensure_name_and_namespace(kind, namespace, obj["metadata"])
        if kind.has_status and kind.plural not in strategies.STATUS_ON_CREATE:
            obj.pop("status", None)
        self._prepare_metadata(kind, obj["metadata"])
        owners = managed_fields.base_managed_fields(None, obj, "")
        managed_fields.track_managed_fields(
            kind, None, obj, owners, FieldManager(manager, "Update", "", kind.api_version), now=self.now()
        )
        return self._create(kind, namespace, obj, dry_run=dry_run)

    def _create(self, kind: Kind, namespace: str | None, obj: Obj, *, dry_run: bool) -> Obj:
        metadata = obj["metadata"]
        if metadata.get("resourceVersion"):
            raise ApiError(500, "", "resourceVersion should not be set on objects to be created")
        self._require_namespace(kind, metadata)
        if kind is self._pods:
            self._assign_priority(obj)
        strategies.prepare_for_create(kind, obj, self.now())
        strategies.mutate(kind, obj)
        admission.validate_object(kind, obj, None)
        existing = self.store.get(kind, namespace, metadata["name"])
        if existing is not None:
            terminating = "deletionTimestamp" in existing.obj["metadata"]
            raise already_exists(kind.qualified_resource(metadata["name"]), terminating=terminating)
        return obj if dry_run else self.store.put(kind, obj)

    def _assign_priority(self, pod: Obj) -> None:
        problem = pod_strategy.assign_priority(pod, (one.obj for one in self.store.list(self._priorities)))
        if problem is not None:
            raise forbidden(self._pods.qualified_resource(pod["metadata"].get("name", "")), problem)

    def _prepare_metadata(self, kind: Kind, metadata: Obj) -> None:
        """Give a new object what the server sets."""
        for member in ("deletionTimestamp", "deletionGracePeriodSeconds", "selfLink", "generation"):
            metadata.pop(member, None)
        if not metadata.get("name") and metadata.get("generateName"):
            metadata["name"] = self._generate_free_name(kind, metadata.get("namespace"), metadata["generateName"])
        metadata["uid"] = str(uuid.uuid4())
        metadata["creationTimestamp"] = self.now()
        if kind.has_generation:
            metadata["generation"] = 1

    def _generate_free_name(self, kind: Kind, namespace: str | None, prefix: str) -> str:
        for _ in range(_NAME_ATTEMPTS):
            name = objectmeta.generate_name(prefix)
            if self.store.get(kind, namespace, name) is None:
                break
        return name

    def _require_namespace(self, kind: Kind, metadata: Obj) -> None:
        if not kind.namespaced:
            return
        name = metadata["namespace"]
        stored = self.store.get(self._namespaces, None, name)
        if stored is None:
            raise not_found(self._namespaces.qualified_resource(name))
        if "deletionTimestamp" in stored.obj["metadata"]:
            why = f"unable to create new content in namespace {name} because it is being terminated"
            cause = StatusCause("NamespaceTerminating", f"namespace {name} is being terminated", "metadata.namespace")
            raise forbidden(kind.qualified_resource(metadata.get("name", "")), why, (cause,))

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
        self._require_writable(kind)
        if isinstance(body, dict) and isinstance(body.get("metadata"), dict):
            admission.ensure_name_and_namespace(kind, namespace, {**body["metadata"]}, name)
        if self._is_created_by_update(kind, namespace, name, subresource):
            return self.create(kind, namespace, body, manager=manager, dry_run=dry_run, unknown_fields=unknown_fields)
        current = self.get(kind, namespace, name)
        if subresource == "scale":
            scaled = self._scaled(kind, current, body)
            check_uid(kind, current, scaled["metadata"])
            return self._scale(kind, current, scaled, dry_run=dry_run)
        if subresource == "status":
            obj = admission.decode_status(kind, current, body, unknown_fields)
        else:
            obj = admission.decode(kind, body, unknown_fields)
        admission.ensure_name_and_namespace(kind, namespace, obj["metadata"], name)
        check_uid(kind, current, obj["metadata"])
        owners = managed_fields.base_managed_fields(current, obj, subresource or "")
        return self._replace(kind, current, obj, subresource or "", (manager, owners), dry_run=dry_run)

    def _is_created_by_update(self, kind: Kind, namespace: str | None, name: str, subresource: str | None) -> bool:
        if subresource or not kind.builtin or kind.plural not in strategies.ALLOW_CREATE_ON_UPDATE:
            return False
        return self.store.get(kind, namespace, name) is None

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
        self._require_writable(kind)
        if patch_type is PatchType.APPLY:
            return self._apply(kind, namespace, name, body, (manager, subresource or ""), force=force, dry_run=dry_run)
        current = self.get(kind, namespace, name)
        if subresource == "scale":
            scale = compute_patched(kind, self.get_scale(kind, namespace, name), patch_type, body)
            return self._scale(kind, current, self._scaled(kind, current, scale, patching=True), dry_run=dry_run)
        patched_object = compute_patched(kind, current, patch_type, body)
        try:
            if subresource == "status":
                obj = admission.decode_status(kind, current, patched_object, unknown_fields)
            else:
                obj = admission.decode(kind, patched_object, unknown_fields)
            admission.ensure_name_and_namespace(kind, namespace, obj["metadata"], name)
            check_uid_kept(kind, current, obj["metadata"])
            owners = managed_fields.base_managed_fields(current, obj, subresource or "")
            return self._replace(kind, current, obj, subresource or "", (manager, owners), dry_run=dry_run)
        except admission.UndecodableError as error:
            raise error.as_patch_error(patched_object) from None

    def _replace(
        self,
        kind: Kind,
        current: Obj,
        obj: Obj,
        subresource: str,
        tracking: tuple[str, managed_fields.ManagedFields] | None,
        *,
        dry_run: bool,
    ) -> Obj:
        """Replace the stored object by a decoded one, except for what the caller may not change."""
        check_resource_version(kind, current, obj["metadata"])
        prepare_for_update(kind, current, obj, subresource)
        strategies.keep_allocated_values(kind, current, obj)
        if tracking is not None:
            manager, owners = tracking
            me = FieldManager(manager, "Update", subresource, kind.api_version)
            managed_fields.track_managed_fields(kind, current, obj, owners, me, now=self.now())
        strategies.mutate(kind, obj)
        if managed_fields.is_equal_except_timestamps(obj, current):
            return current
        admission.validate_object(kind, obj, current)
        if dry_run:
            return obj
        if deletion.is_removable(obj):
            self.store.remove(kind, current)  # watches see its removal with the last version they saw
            return obj
        return self.store.put(kind, obj)

    def _scaled(self, kind: Kind, current: Obj, scale: Any, *, patching: bool = False) -> Obj:
        if kind.scale is None:
            raise resource_not_served()
        problem = find_scale_problem(scale)
        if problem is not None and patching:
            shown = render_json(orjson.dumps(scale).decode())
            raise invalid(
                QualifiedResource("", ""),
                [StatusCause("FieldValueInvalid", f"Invalid value: {shown}: {problem}", "patch")],
            )
        if problem is not None:
            raise bad_request(f'Scale in version "v1" cannot be handled as a Scale: {problem}')
        return from_scale(kind.scale, current, scale)

    def _scale(self, kind: Kind, current: Obj, obj: Obj, *, dry_run: bool) -> Obj:
        """Store scaled replicas; the former managers of the number no longer own it."""
        owners = managed_fields.parse_managed_fields(current)
        result = self._replace(kind, current, obj, "scale", ("", owners), dry_run=dry_run)
        return to_scale(kind.scale, result) if kind.scale is not None else result

    def _apply(
        self,
        kind: Kind,
        namespace: str | None,
        name: str,
        body: Any,
        writer: tuple[str, str],
        *,
        force: bool,
        dry_run: bool,
    ) -> Obj:
        manager, subresource = writer
        configuration = parse_applied_configuration(kind, namespace, name, body)
        stored = self.store.get(kind, namespace, name)
        if stored is None and subresource:
            raise not_found(kind.qualified_resource(name))
        current = stored.obj if stored is not None else None
        owner = FieldManager(manager, "Apply", subresource, kind.api_version)
        applied = apply_configuration(kind, current, configuration, owner, force=force, now=self.now())
        if current is None:
            return self._create_applied(kind, namespace, applied, dry_run=dry_run)
        obj = admission.decode(kind, applied, ignore_unknown)
        admission.ensure_name_and_namespace(kind, namespace, obj["metadata"], name)
        check_uid_kept(kind, current, obj["metadata"])
        if "resourceVersion" not in configuration["metadata"]:
            obj["metadata"]["resourceVersion"] = current["metadata"]["resourceVersion"]
        return self._replace(kind, current, obj, subresource, None, dry_run=dry_run)

    def _create_applied(self, kind: Kind, namespace: str | None, applied: Obj, *, dry_run: bool) -> Obj:
        obj = admission.decode(kind, applied, ignore_unknown)
        if obj["metadata"].get("uid"):
            raise immutable_uid(kind, obj["metadata"])
        admission.ensure_name_and_namespace(kind, namespace, obj["metadata"])
        if kind.has_status and kind.plural not in strategies.STATUS_ON_CREATE:
            obj.pop("status", None)
        self._prepare_metadata(kind, obj["metadata"])
        return self._create(kind, namespace, obj, dry_run=dry_run)

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
        """Delete an object or mark it as terminating; return its last or its terminating version."""
        self._require_writable(kind)
        current = self.get(kind, namespace, name)
        deletion.check_preconditions(kind, current, uid, resource_version)
        grace = pod_strategy.compute_grace_period(current, grace_seconds) if kind is self._pods else 0
        finalizers = deletion.finalizers_for(current, propagation)
        obj = deletion.with_deletion_timestamp(current, finalizers, grace, self.now(grace))
        if kind is self._namespaces:
            if name in SYSTEM_NAMESPACES[:1]:
                raise forbidden(kind.qualified_resource(name), "this namespace may not be deleted")
            obj["status"] = {**obj.get("status", {}), "phase": "Terminating"}
        if deletion.is_removable(obj):
            return self._remove(kind, current, obj, dry_run=dry_run)
        if dry_run:
            return obj
        return current if obj == current else self.store.put(kind, obj)

    def _remove(self, kind: Kind, current: Obj, obj: Obj, *, dry_run: bool) -> Obj:
        """Remove an object; watches see only a pod as terminating before its removal."""
        if kind is not self._pods:
            return current if dry_run else self.store.remove(kind, current)
        if dry_run:
            return obj
        if obj != current:
            obj = self.store.put(kind, obj)
        return self.store.remove(kind, obj)

    def evict(
        self,
        namespace: str,
        name: str,
        *,
        uid: str | None = None,
        resource_version: str | None = None,
        grace_seconds: int | None = None,
        dry_run: bool = False,
    ) -> None:
        """Delete a pod as far as the disruption budgets allow; 429 when they do not."""
        pod = self.get(self._pods, namespace, name)
        if not eviction.can_ignore_budget(pod):
            self._check_and_decrement_budget(pod, dry_run=dry_run)
        deletion.check_preconditions(self._pods, pod, uid, resource_version)
        if not dry_run and "deletionTimestamp" not in pod["metadata"]:
            self.store.put(self._pods, eviction.with_disruption_target(pod, self.now()))
        self.delete(self._pods, namespace, name, grace_seconds=grace_seconds, dry_run=dry_run)

    def _check_and_decrement_budget(self, pod: Obj, *, dry_run: bool) -> None:
        """Take one disruption from the budget that covers a pod; reject the eviction when none is left."""
        budgets, namespace = self.registry.kind("poddisruptionbudgets", "policy"), pod["metadata"]["namespace"]
        budget = eviction.find_budget(pod, self.list(budgets, namespace))
        status = eviction.compute_status_after_eviction(pod, budget, self.now()) if budget is not None else None
        if budget is not None and status is not None and not dry_run:
            name, spent = budget["metadata"]["name"], {**budget, "status": status}
            self.update(budgets, namespace, name, spent, subresource="status")

    def bind(self, namespace: str, pod: str, node: str, *, dry_run: bool = False) -> None:
        """Bind a pod to a node, as pods/binding does."""
        current = self.get(self._pods, namespace, pod)
        refusal = pod_strategy.find_bind_conflict(current)
        if refusal is not None:
            raise conflict(QualifiedResource("", "pods/binding", pod), refusal)
        if not dry_run:
            self.store.put(self._pods, pod_strategy.with_node(current, node, self.now()))

    def _require_writable(self, kind: Kind) -> None:
        """Reject writes of definitions: they come from files, and clients can only read them."""
        if kind is self._definitions:
            raise method_not_allowed()
