"""Answers requests about resources: chooses the verb by method and path, and renders its result.

`asgi` passes complete requests; everything here is synchronous. As in a real server, the errors for methods and
subresources that are not served differ between built-in and custom kinds.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import orjson

from rollouts.sandbox.apiserver import strategies
from rollouts.sandbox.apiserver.discovery import subresources_of
from rollouts.sandbox.apiserver.errors import (
    ApiError,
    QualifiedResource,
    StatusCause,
    bad_request,
    invalid,
    method_not_allowed,
    not_found,
    resource_expired,
    resource_not_served,
    too_large_resource_version,
)
from rollouts.sandbox.apiserver.formats import render_json
from rollouts.sandbox.apiserver.paging import Page, Paging
from rollouts.sandbox.apiserver.patch import PatchType
from rollouts.sandbox.apiserver.paths import NotServedError, RequestInfo
from rollouts.sandbox.apiserver.registry import Kind
from rollouts.sandbox.apiserver.requests import (
    Request,
    check_media_type,
    decode_body,
    decode_patch,
    find_duplicate_fields,
    parse_delete_options,
    parse_write_options,
    parse_yaml,
    require_kind,
)
from rollouts.sandbox.apiserver.response_encoding import ResponseEncoder, negotiate_form, stored_bytes
from rollouts.sandbox.apiserver.selectors import parse_selectors
from rollouts.sandbox.apiserver.storage import Storage, StoredObject
from rollouts.sandbox.apiserver.updates import unknown_patch_type
from rollouts.sandbox.apiserver.verbs import Verbs
from rollouts.sandbox.apiserver.watch import WatchRequest, parse_resource_version

Obj = dict[str, Any]

JSON = "application/json"
# The timeout of a watch that sets none: a real server takes one between 30 and 60 minutes, here it is the mean.
DEFAULT_WATCH_SECONDS = 2_700


@dataclass(frozen=True, slots=True)
class Response:
    """A complete response."""

    code: int
    body: bytes
    media_type: str = JSON
    headers: Mapping[str, str] = field(default_factory=dict)
    warnings: Sequence[str] = ()


class _FieldValidation:
    """Collects unknown and duplicate fields: as warnings, or as an error."""

    def __init__(self, validation: str, *, patching: bool = False) -> None:
        self._validation, self._patching = validation, patching
        self.warnings: list[str] = []

    def report_duplicate(self, kind: Kind, body: bytes) -> None:
        if self._validation != "Ignore":
            self._report(kind, [f'duplicate field "{path}"' for path in find_duplicate_fields(body)], {})

    def report_unknown(self, kind: Kind, paths: Sequence[str], obj: Obj) -> None:
        self._report(kind, [f'unknown field "{path}"' for path in sorted(paths)], obj)

    def _report(self, kind: Kind, findings: list[str], obj: Obj) -> None:
        if self._validation == "Warn":
            self.warnings += findings
        elif self._validation == "Strict" and findings:
            listed = f"strict decoding error: {', '.join(findings)}"
            if self._patching:
                shown = render_json(orjson.dumps(obj).decode())
                cause = StatusCause("FieldValueInvalid", f"Invalid value: {shown}: {listed}", "patch")
                raise invalid(QualifiedResource("", ""), [cause])
            head = f'{kind.kind} in version "{kind.version}" cannot be handled as a {kind.kind}'
            raise bad_request(f"{head}: {listed}")


class ResourceHandlers:
    """Answers requests about resources."""

    def __init__(self, verbs: Verbs, store: Storage, clock: Callable[[], datetime]) -> None:
        self._verbs, self._store, self._clock = verbs, store, clock
        self._paging = Paging(store)

    def handle(self, target: RequestInfo, request: Request) -> Response:
        """Carry out one request that is not a watch."""
        if target.name is None:
            return self._collection(target, request)
        if target.subresource is not None:
            return self._subresource(target, request)
        match request.method:
            case "GET" | "HEAD":
                return self._get(target, request)
            case "PUT":
                return self._put(target, request)
            case "PATCH":
                return self._patch(target, request)
            case "DELETE":
                return self._delete(target, request)
        raise _not_allowed(target.kind)

    def make_encoder(self, target: RequestInfo, request: Request) -> ResponseEncoder:
        form = negotiate_form(request.headers.get("accept", ""))
        return ResponseEncoder(target.kind, form, request.text("includeObject"), self._clock)

    # --- collections -----------------------------------------------------------------------------------------------

    def _collection(self, target: RequestInfo, request: Request) -> Response:
        match request.method:
            case "GET" | "HEAD":
                return self._list(target, request)
            case "POST":
                return self._post(target, request)
            case "DELETE":
                return self._delete_collection(target, request)
        if not target.kind.builtin and request.method in {"PUT", "PATCH"}:
            raise bad_request("name must be provided")
        raise method_not_allowed()

    def _list(self, target: RequestInfo, request: Request) -> Response:
        presenter = self.make_encoder(target, request)
        page = self._page(target, request)
        counted = not request.text("labelSelector") and not request.text("fieldSelector")
        return Response(200, presenter.encode_list(page, counted=counted))

    def _page(self, target: RequestInfo, request: Request) -> Page:
        labels, fields = request.text("labelSelector"), request.text("fieldSelector")
        matches = parse_selectors(target.kind, labels, fields)
        self._check_revision(request)
        limit = request.number("limit") or 0
        selection = (f"{labels}\n{fields}", matches)
        return self._paging.page(target.kind, target.namespace, selection, limit, request.text("continue"))

    def _check_revision(self, request: Request) -> None:
        """Reject a list of a future or an exact past revision: a list always shows the current one."""
        text = request.text("resourceVersion")
        if not text or request.text("continue"):
            return
        if not text.isdigit():
            why = f'Invalid value: "{text}": strconv.ParseUint: parsing "{text}": invalid syntax'
            raise bad_request(f"invalid resource version: resourceVersion: {why}")
        if int(text) > self._store.revision:
            raise too_large_resource_version(int(text), self._store.revision)
        if request.text("resourceVersionMatch") == "Exact" and int(text) != self._store.revision:
            raise resource_expired("The resourceVersion for the provided list is too old.")

    def parse_watch_request(self, target: RequestInfo, request: Request) -> WatchRequest:
        """Read what a watch asks for; reject it before the stream begins."""
        matches = parse_selectors(target.kind, request.text("labelSelector"), request.text("fieldSelector"))
        initial = request.flag("sendInitialEvents") if "sendInitialEvents" in request.query else False
        if "sendInitialEvents" in request.query and request.text("resourceVersionMatch") != "NotOlderThan":
            sentence = "Forbidden: sendInitialEvents requires setting resourceVersionMatch to NotOlderThan"
            cause = StatusCause("FieldValueForbidden", sentence, "resourceVersionMatch")
            raise invalid(QualifiedResource("meta.k8s.io", "ListOptions"), [cause])
        since = request.text("resourceVersion")
        if since:
            parse_resource_version(since)
        return WatchRequest(
            kind=target.kind,
            namespace=target.namespace,
            name=target.name,
            matches=matches,
            since=since,
            timeout=float(request.number("timeoutSeconds") or DEFAULT_WATCH_SECONDS),
            bookmarks=request.flag("allowWatchBookmarks"),
            initial_events=initial,
        )

    def _post(self, target: RequestInfo, request: Request) -> Response:
        kind = target.kind
        if kind.namespaced and target.namespace is None:
            raise method_not_allowed() if kind.builtin else NotServedError()
        options = parse_write_options(request, "CreateOptions")
        presenter = self.make_encoder(target, request)
        body, report = self._body(kind, request, options.validation)
        obj = self._verbs.create(
            kind,
            target.namespace,
            body,
            manager=options.manager,
            dry_run=options.dry_run,
            unknown_fields=report.report_unknown,
        )
        return self._stored_response(
            201, target, obj, presenter, [*report.warnings, *_compute_warnings(target, obj, None)]
        )

    def _body(self, kind: Kind, request: Request, validation: str) -> tuple[Obj, _FieldValidation]:
        check_media_type(request)
        body: Obj = decode_body(request, kind.kind)
        report = _FieldValidation(validation)
        if isinstance(body, dict):
            require_kind(kind, request, body)
        if request.media_type in {"", JSON}:
            report.report_duplicate(kind, request.body)
        return body, report

    def _stored_response(
        self, code: int, target: RequestInfo, obj: Obj, presenter: ResponseEncoder, warnings: Sequence[str]
    ) -> Response:
        stored = self._store.get(target.kind, target.namespace, obj["metadata"]["name"])
        return Response(code, presenter.encode_object(obj, stored_bytes(stored, obj)), warnings=warnings)

    def _delete_collection(self, target: RequestInfo, request: Request) -> Response:
        if target.kind.plural in {"namespaces", "customresourcedefinitions"} and target.kind.builtin:
            raise method_not_allowed()
        options = parse_delete_options(request)
        page = self._page(target, request)
        items: list[StoredObject] = []
        for stored in page.items:
            metadata = stored.obj["metadata"]
            try:
                obj = self._verbs.delete(
                    target.kind,
                    metadata.get("namespace"),
                    metadata["name"],
                    grace_seconds=options.grace_seconds,
                    propagation=options.propagation,
                    dry_run=options.dry_run,
                )
            except ApiError as error:
                if error.code != 404:  # noqa: PLR2004 already deleted, by a controller that observed an earlier deletion
                    raise
                continue
            items.append(StoredObject(obj, orjson.dumps(obj), stored.revision))
        presenter = self.make_encoder(target, request)
        return Response(200, presenter.encode_list(Page(items, self._store.revision, "", 0), counted=False))

    # --- single objects --------------------------------------------------------------------------------------------

    def _get(self, target: RequestInfo, request: Request) -> Response:
        presenter = self.make_encoder(target, request)
        obj = self._verbs.get(target.kind, target.namespace, target.name or "")
        return self._stored_response(200, target, obj, presenter, ())

    def _put(self, target: RequestInfo, request: Request) -> Response:
        options = parse_write_options(request, "UpdateOptions")
        presenter = self.make_encoder(target, request)
        if target.subresource == "scale":
            check_media_type(request)
            body, report = decode_body(request, "Scale"), _FieldValidation("Ignore")
        else:
            body, report = self._body(target.kind, request, options.validation)
        former = self._store.get(target.kind, target.namespace, target.name or "")
        obj = self._verbs.update(
            target.kind,
            target.namespace,
            target.name or "",
            body,
            subresource=target.subresource,
            manager=options.manager,
            dry_run=options.dry_run,
            unknown_fields=report.report_unknown,
        )
        return self._write_response(
            200, target, obj, presenter, [*report.warnings, *_compute_warnings(target, obj, former)]
        )

    def _patch(self, target: RequestInfo, request: Request) -> Response:
        kind, name = target.kind, target.name or ""
        patch_type = _patch_type(kind, request)
        applying = patch_type is PatchType.APPLY
        options = parse_write_options(request, "PatchOptions", apply=applying)
        presenter = self.make_encoder(target, request)
        body = parse_yaml(request.body) if applying else decode_patch(request.body)
        report = _FieldValidation(options.validation, patching=True)
        former = self._store.get(kind, target.namespace, name)
        obj = self._verbs.patch(
            kind,
            target.namespace,
            name,
            patch_type,
            body,
            subresource=target.subresource,
            manager=options.manager,
            force=bool(options.force),
            dry_run=options.dry_run,
            unknown_fields=report.report_unknown,
        )
        warnings = [*report.warnings, *_compute_warnings(target, obj, former)]
        return self._write_response(201 if former is None else 200, target, obj, presenter, warnings)

    def _write_response(
        self, code: int, target: RequestInfo, obj: Obj, presenter: ResponseEncoder, warnings: Sequence[str]
    ) -> Response:
        if target.subresource == "scale":
            return Response(code, orjson.dumps(obj), warnings=warnings)
        return self._stored_response(code, target, obj, presenter, warnings)

    def _delete(self, target: RequestInfo, request: Request) -> Response:
        options = parse_delete_options(request)
        kind = target.kind
        obj = self._verbs.delete(
            kind,
            target.namespace,
            target.name or "",
            uid=options.uid,
            resource_version=options.resource_version,
            grace_seconds=options.grace_seconds,
            propagation=options.propagation,
            dry_run=options.dry_run,
        )
        returned = kind.builtin and kind.plural in strategies.RETURNED_WHEN_DELETED
        stored = self._store.get(kind, target.namespace, target.name or "")
        is_removed = stored is None or (options.dry_run and "deletionTimestamp" not in obj["metadata"])
        if is_removed and not returned:
            return _make_success(200, kind.qualified_resource(obj["metadata"]["name"]), obj["metadata"]["uid"])
        return Response(200, orjson.dumps(obj))

    # --- subresources ----------------------------------------------------------------------------------------------

    def _subresource(self, target: RequestInfo, request: Request) -> Response:
        served = {name: verbs for name, _, verbs in subresources_of(target.kind)}
        name = target.subresource or ""
        if name not in served:
            raise (
                resource_not_served()
                if target.kind.builtin
                else not_found(target.kind.qualified_resource(target.name or ""))
            )
        match request.method, name:
            case (("GET" | "HEAD"), "status"):
                return self._get(target, request)
            case (("GET" | "HEAD"), "scale"):
                scale = self._verbs.get_scale(target.kind, target.namespace, target.name or "")
                return Response(200, orjson.dumps(scale))
            case "PUT", ("status" | "scale" | "finalize"):
                return self._put(target, request)
            case "PATCH", ("status" | "scale"):
                return self._patch(target, request)
            case "POST", "binding":
                return self._bind(target, request)
            case "POST", "eviction":
                return self._evict(target, request)
        raise method_not_allowed()

    def _bind(self, target: RequestInfo, request: Request) -> Response:
        options = parse_write_options(request, "CreateOptions")
        check_media_type(request)
        body = decode_body(request, "Binding")
        node = (body.get("target") or {}).get("name")
        if not node:
            raise ApiError(500, "", "target.name: Required value")
        self._verbs.bind(target.namespace or "", target.name or "", node, dry_run=options.dry_run)
        return _make_success(201)

    def _evict(self, target: RequestInfo, request: Request) -> Response:
        options = parse_write_options(request, "CreateOptions")
        check_media_type(request)
        body = decode_body(request, "Eviction")
        if (body.get("metadata") or {}).get("name", target.name) != target.name:
            raise bad_request("name in URL does not match name in Eviction object")
        deleting = body.get("deleteOptions") or {}
        conditions = deleting.get("preconditions") or {}
        self._verbs.evict(
            target.namespace or "",
            target.name or "",
            uid=conditions.get("uid"),
            resource_version=conditions.get("resourceVersion"),
            grace_seconds=deleting.get("gracePeriodSeconds"),
            dry_run=options.dry_run or bool(deleting.get("dryRun")),
        )
        return _make_success(201)


def _compute_warnings(target: RequestInfo, obj: Obj, former: StoredObject | None) -> list[str]:
    """Return the warnings that a webhook would give about the written object."""
    if target.kind.admission_warner is None or target.subresource:
        return []
    return target.kind.admission_warner(obj, None if former is None else former.obj)


def _not_allowed(kind: Kind) -> ApiError:
    if kind.builtin:
        return method_not_allowed()
    sentence = f' is not supported on resources of kind "{kind.plural}.{kind.group}"'
    return ApiError(405, "MethodNotAllowed", sentence, kind.qualified_resource())


def _patch_type(kind: Kind, request: Request) -> PatchType:
    try:
        patch_type = PatchType(request.media_type)
    except ValueError:
        patch_type = None
    if patch_type is None and kind.builtin:
        raise ApiError(415, "UnsupportedMediaType", "415: Unsupported Media Type", QualifiedResource("", ""))
    if patch_type is None or (patch_type is PatchType.STRATEGIC and not kind.builtin):
        raise unknown_patch_type()
    return patch_type


def _make_success(code: int, resource: QualifiedResource | None = None, uid: str = "") -> Response:
    status: Obj = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"}
    if resource is not None:
        parts = {"name": resource.name, "group": resource.group, "kind": resource.kind, "uid": uid}
        status["details"] = {key: value for key, value in parts.items() if value}
    else:
        status["code"] = code
    return Response(code, orjson.dumps(status))
