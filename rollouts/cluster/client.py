"""The verbs of the Kubernetes API, on plain JSON objects.

Before it: the mirror, the controller and the services, which name a kind by its `resources` constant. After it:
`connection`, which makes one HTTP exchange at a time, and `errors` for every answer that is not a success.

The invariants: a read is repeated with back-off, up to the deadline, while the server is away, fails or throttles; a
write is sent exactly once, and if its result is not known `Unavailable` is raised (fetch the object before you send the
write again). Writes can carry preconditions: `uid` and `resourceVersion` in delete and evict, the same two under
`metadata` of an update, a merge patch or an applied object, `test` operations in a JSON patch.

Objects are the API's own JSON as dicts, never model classes: lists of thousands of pods are normal here.
"""

import contextlib
import copy
import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Literal

import orjson

from rollouts.cluster.config import ConfigurationLoader
from rollouts.cluster.connection import Connection, Request, Response, Stream
from rollouts.cluster.errors import Expired, Throttled, Unavailable, parse_failure
from rollouts.cluster.resources import PODS, Resource, ResourcePath
from rollouts.cluster.retry_policy import RetryPolicy, compute_backoff

logger = logging.getLogger(__name__)

Obj = dict[str, Any]
"""An object of the API, as JSON."""

Propagation = Literal["Background", "Foreground", "Orphan"]

Observer = Callable[[str, str, int, float], None]
"""Called after every exchange: verb, resource, HTTP status (0: no answer) and seconds; from any thread."""

Fence = Callable[[], None]
"""Raises if nothing more may be written; called right before each write, from any thread."""

FIELD_MANAGER = "grove-ui"
PAGE_SIZE = 500


@dataclass(frozen=True, slots=True)
class Page:
    """Some of the objects of a list."""

    items: Sequence[Obj]
    resource_version: str  # of the whole list: where a watch starts
    continue_token: str | None  # of the next page; None on the last one


@dataclass(frozen=True, slots=True)
class Listing:
    """All objects of a list, as of one resourceVersion."""

    items: Sequence[Obj]
    resource_version: str


class ClusterClient:
    """The API of one cluster. Safe to share between threads, but not between processes: make it after a fork.

    Up to `pool_size` connections are kept open, so that as many parallel calls need no new handshake.
    """

    def __init__(
        self,
        source: ConfigurationLoader,
        *,
        retry_policy: RetryPolicy | None = None,
        pool_size: int = 32,
        observer: Observer | None = None,
    ) -> None:
        self._connection = Connection(source, pool_size=pool_size)
        self._retry_policy = retry_policy or RetryPolicy()
        self._observer = observer
        self._fence: Fence = allow_every_write

    def fenced(self, fence: Fence) -> "ClusterClient":
        """Return a client of the same connections that calls the fence before each write."""
        fenced = copy.copy(self)
        fenced._fence = fence  # noqa: SLF001 (of this class)
        return fenced

    def __repr__(self) -> str:
        return f"Cluster({self.url!r})"

    @property
    def url(self) -> str:
        """The address of the API server."""
        return self._connection.url

    @property
    def is_verified(self) -> bool:
        """Whether the certificate of the API server is verified."""
        return self._connection.is_verified

    @property
    def retry_policy(self) -> RetryPolicy:
        """How long calls wait for this cluster, and how often they are repeated."""
        return self._retry_policy

    def close(self) -> None:
        """Close the idle connections."""
        self._connection.close()

    # Reading

    def version(self, *, retry: bool = True) -> Obj:
        """Return the server's version: the cheapest call that shows whether it answers and accepts our credentials."""
        return self._read(Request("get version", "GET", "/version"), retry=retry)

    def get(
        self,
        resource: Resource,
        name: str,
        *,
        namespace: str | None = None,
        subresource: str | None = None,
        retry: bool = True,
    ) -> Obj:
        """Return one object, or its `scale` or `status`; without `retry` the first failure is raised."""
        target = ResourcePath(resource, namespace, name, subresource)
        return self._read(Request(target.describe("get"), "GET", target.path), retry=retry)

    def list(self, resource: Resource, *, namespace: str | None = None, labels: str = "", fields: str = "") -> Listing:
        """Return all objects of a kind, in one namespace or everywhere, fetched page by page."""
        items: list[Obj] = []
        version = ""
        try:
            for page in self.list_pages(resource, namespace=namespace, labels=labels, fields=fields):
                items.extend(page.items)
                version = page.resource_version
        except Expired:
            # Paging took longer than the server keeps the resourceVersion of the first page: fetch all in one page.
            whole = self.list_page(resource, namespace=namespace, labels=labels, fields=fields, page_size=0)
            return Listing(whole.items, whole.resource_version)
        return Listing(items, version)

    def list_pages(
        self,
        resource: Resource,
        *,
        namespace: str | None = None,
        labels: str = "",
        fields: str = "",
        page_size: int = PAGE_SIZE,
    ) -> Iterator[Page]:
        """Yield the pages of a list, all of one resourceVersion; Expired if the server no longer has that version."""
        continue_token: str | None = None
        while True:
            page = self.list_page(
                resource,
                namespace=namespace,
                labels=labels,
                fields=fields,
                page_size=page_size,
                continue_token=continue_token,
            )
            yield page
            continue_token = page.continue_token
            if continue_token is None:
                return

    def list_page(
        self,
        resource: Resource,
        *,
        namespace: str | None = None,
        labels: str = "",
        fields: str = "",
        page_size: int = PAGE_SIZE,
        continue_token: str | None = None,
        retry: bool = True,
    ) -> Page:
        """Return the first page of a list, or the one that the token of the page before names.

        A page size of 0 asks for all objects at once. Without `retry` the first failure is raised.
        """
        target = ResourcePath(resource, namespace)
        query = {
            "labelSelector": labels,
            "fieldSelector": fields,
            "limit": str(page_size) if page_size else "",
            "continue": continue_token or "",
        }
        request = Request(target.describe("list"), "GET", target.path, _without_empty(query))
        return _parse_page(request.call, resource, self._read(request, retry=retry))

    def open_watch(
        self,
        resource: Resource,
        since: str,
        *,
        namespace: str | None = None,
        labels: str = "",
        fields: str = "",
    ) -> Stream:
        """Open one stream of changes after a resourceVersion; `watch.Watch` joins many of them."""
        target = ResourcePath(resource, namespace)
        query = {
            "watch": "true",
            "resourceVersion": since,
            "allowWatchBookmarks": "true",
            "labelSelector": labels,
            "fieldSelector": fields,
            "timeoutSeconds": str(max(1, round(self._retry_policy.watch_timeout))),
        }
        request = Request(target.describe("watch"), "GET", target.path, _without_empty(query))
        with self._observed(request) as result:
            opened = self._connection.stream(request, self._retry_policy)
            result.code = opened.code if isinstance(opened, Response) else HTTPStatus.OK
        if isinstance(opened, Response):
            raise parse_failure(request.call, opened.code, opened.body, opened.retry_after)
        return opened

    # Writing

    def create(self, resource: Resource, obj: Obj, *, dry_run: bool = False) -> Obj:
        """Create an object in the namespace of its metadata, and return it as stored."""
        namespace, _ = _namespace_and_name(obj)
        if resource.namespaced and namespace is None:
            raise ValueError(f"{resource} are namespaced, but the manifest names no namespace")
        return self._write("create", "POST", ResourcePath(resource, namespace), obj, query=_write_query(dry_run))

    def update(self, resource: Resource, obj: Obj, *, subresource: str | None = None, dry_run: bool = False) -> Obj:
        """Replace an object; Conflict if its `metadata.resourceVersion` is not the current one."""
        target = ResourcePath(resource, *_namespace_and_name(obj), subresource)
        return self._write("update", "PUT", target, obj, query=_write_query(dry_run))

    def patch_merge(
        self,
        resource: Resource,
        name: str,
        patch: Mapping[str, Any],
        *,
        namespace: str | None = None,
        subresource: str | None = None,
        dry_run: bool = False,
    ) -> Obj:
        """Change the fields that the patch names; `None` removes one."""
        target = ResourcePath(resource, namespace, name, subresource)
        return self._write("patch", "PATCH", target, patch, query=_write_query(dry_run), media="merge-patch+json")

    def patch_json(
        self,
        resource: Resource,
        name: str,
        operations: Sequence[Mapping[str, Any]],
        *,
        namespace: str | None = None,
        subresource: str | None = None,
        dry_run: bool = False,
    ) -> Obj:
        """Apply JSON patch operations, all or none."""
        target = ResourcePath(resource, namespace, name, subresource)
        return self._write("patch", "PATCH", target, operations, query=_write_query(dry_run), media="json-patch+json")

    def apply(
        self,
        resource: Resource,
        obj: Obj,
        *,
        field_manager: str = FIELD_MANAGER,
        force: bool = False,
        subresource: str | None = None,
        dry_run: bool = False,
    ) -> Obj:
        """Apply fields of an object (server-side apply); create the object if it does not exist.

        Fields that were applied before and are missing now are removed. If another manager owns a field with another
        value, that is a Conflict whose causes name field and manager, unless `force` takes the field over.
        """
        target = ResourcePath(resource, *_namespace_and_name(obj), subresource)
        query = _write_query(dry_run) | {"fieldManager": field_manager, "force": "true" if force else "false"}
        typed = {"apiVersion": resource.api_version, "kind": resource.kind} | obj
        # JSON is YAML, and the API accepts this patch under no other media type.
        return self._write("apply", "PATCH", target, typed, query=query, media="apply-patch+yaml")

    def delete(
        self,
        resource: Resource,
        name: str,
        *,
        namespace: str | None = None,
        uid: str | None = None,
        resource_version: str | None = None,
        grace_seconds: int | None = None,
        propagation: Propagation | None = None,
        dry_run: bool = False,
    ) -> Obj:
        """Delete an object if uid and resourceVersion match, and return the server's answer; `deletion` reads it."""
        options = _delete_options(uid, resource_version, grace_seconds, dry_run)
        if propagation is not None:
            options["propagationPolicy"] = propagation
        return self._write("delete", "DELETE", ResourcePath(resource, namespace, name), options, query={})

    def evict(
        self,
        name: str,
        *,
        namespace: str,
        uid: str | None = None,
        resource_version: str | None = None,
        grace_seconds: int | None = None,
        dry_run: bool = False,
    ) -> None:
        """Evict a pod; Throttled, with the budget as its cause, if a disruption budget does not allow it."""
        eviction = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": name, "namespace": namespace},
            "deleteOptions": _delete_options(uid, resource_version, grace_seconds, dry_run),
        }
        target = ResourcePath(PODS, namespace, name, "eviction")
        self._write("create", "POST", target, eviction, query=_write_query(dry_run))

    # Exchanges

    def _write(
        self,
        verb: str,
        method: str,
        target: ResourcePath,
        body: Any,
        *,
        query: Mapping[str, str],
        media: str = "json",
    ) -> Obj:
        call = target.describe(verb)
        request = Request(call, method, target.path, query, orjson.dumps(body), f"application/{media}")
        self._fence()
        return self._exchange(request, self._retry_policy)

    def _read(self, request: Request, *, retry: bool = True) -> Obj:
        deadline = time.monotonic() + self._retry_policy.deadline
        attempt = 0
        while True:
            try:
                return self._exchange(request, self._retry_policy.within(deadline - time.monotonic()))
            except (Unavailable, Throttled) as error:
                pause = compute_backoff(self._retry_policy, attempt, error.retry_after)
                if not retry or time.monotonic() + pause >= deadline:
                    raise
                logger.info("%s; trying again in %.1f s", error, pause)
            time.sleep(pause)
            attempt += 1

    def _exchange(self, request: Request, retry_policy: RetryPolicy) -> Obj:
        with self._observed(request) as result:
            answer = self._connection.send(request, retry_policy)
            result.code = answer.code
        if not HTTPStatus.OK <= answer.code < HTTPStatus.MULTIPLE_CHOICES:
            raise parse_failure(request.call, answer.code, answer.body, answer.retry_after)
        return _parse_object(request.call, answer.body)

    @contextlib.contextmanager
    def _observed(self, request: Request) -> Iterator["_ExchangeResult"]:
        result, started = _ExchangeResult(), time.monotonic()
        try:
            yield result
        finally:
            if self._observer is not None:
                verb, resource = request.call.split(maxsplit=2)[:2]
                self._observer(verb, resource, result.code, time.monotonic() - started)


@dataclass(slots=True)
class _ExchangeResult:
    """The result of an exchange, for the observer."""

    code: int = 0


def _parse_object(call: str, body: bytes) -> Obj:
    try:
        obj = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise Unavailable(f"{call}: the answer is not JSON") from error
    if not isinstance(obj, dict):
        raise Unavailable(f"{call}: the answer is not an object")
    return obj


def is_object(value: object) -> bool:
    """Return whether a value has what every object of the API has: a name and a resourceVersion."""
    metadata = value.get("metadata") if isinstance(value, dict) else None
    return isinstance(metadata, dict) and isinstance(metadata.get("resourceVersion"), str) and "name" in metadata


def _parse_page(call: str, resource: Resource, body: Obj) -> Page:
    metadata, items = body.get("metadata"), body.get("items")
    if not isinstance(metadata, dict) or not isinstance(items, list | None) or not all(map(is_object, items or ())):
        raise Unavailable(f"{call}: the answer is not a list of objects")
    typed = {"apiVersion": resource.api_version, "kind": resource.kind}
    # Inside lists, and only there, built-in kinds omit these two; with them an item is the same as in a watch.
    return Page(
        [typed | item for item in items or ()],
        metadata.get("resourceVersion", ""),
        metadata.get("continue") or None,
    )


def _delete_options(uid: str | None, resource_version: str | None, grace_seconds: int | None, dry_run: bool) -> Obj:
    preconditions = {"uid": uid, "resourceVersion": resource_version}
    options = {
        "preconditions": {key: value for key, value in preconditions.items() if value is not None} or None,
        "gracePeriodSeconds": grace_seconds,
        # Not in the query: a server that finds options in the body ignores the query.
        "dryRun": ["All"] if dry_run else None,
    }
    present = {key: value for key, value in options.items() if value is not None}
    return {"apiVersion": "v1", "kind": "DeleteOptions"} | present


def _write_query(dry_run: bool) -> dict[str, str]:
    return {"fieldManager": FIELD_MANAGER} | ({"dryRun": "All"} if dry_run else {})


def _namespace_and_name(obj: Obj) -> tuple[str | None, str]:
    """Return namespace and name of a manifest."""
    metadata = obj.get("metadata") or {}
    return metadata.get("namespace"), metadata.get("name") or ""


def allow_every_write() -> None:
    """Allow every write: the fence of clients that need none."""


def _without_empty(query: Mapping[str, str]) -> dict[str, str]:
    return {key: value for key, value in query.items() if value}
