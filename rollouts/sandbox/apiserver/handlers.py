"""Requests about resources, answered: which verb a method and a path mean, and how its result is written.

`asgi` hands over complete requests; everything here is synchronous. The refusals for methods and subresources that
are not served differ between built-in and custom kinds in a real server, and so they do here.
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
    Cause,
    Resource,
    bad_request,
    gone,
    invalid,
    method_not_allowed,
    no_such_resource,
    not_found,
    too_large_revision,
    unsupported_media_type,
)
from rollouts.sandbox.apiserver.formats import render
from rollouts.sandbox.apiserver.paging import Page, Paging
from rollouts.sandbox.apiserver.patch import PatchType
from rollouts.sandbox.apiserver.paths import NotServedError, Target
from rollouts.sandbox.apiserver.registry import Kind
from rollouts.sandbox.apiserver.requests import (
    Request,
    check_media,
    decode_body,
    decode_patch,
    doubled_fields,
    parse_delete_options,
    parse_write_options,
    parse_yaml,
    require_kind,
)
from rollouts.sandbox.apiserver.response_encoding import Presenter, choose_form, stored_bytes
from rollouts.sandbox.apiserver.selectors import parse_selectors
from rollouts.sandbox.apiserver.storage import Store, Stored
from rollouts.sandbox.apiserver.verbs import Verbs
from rollouts.sandbox.apiserver.watch import WatchRequest, parse_revision

Obj = dict[str, Any]

JSON = "application/json"
# A watch that names no end gets one, as from a real server: between 30 and 60 minutes there, the mean here.
WATCH_SECONDS = 2_700


@dataclass(frozen=True, slots=True)
class Response:
    """What goes back, complete."""

    code: int
    body: bytes
    media: str = JSON
    headers: Mapping[str, str] = field(default_factory=dict)
    warnings: Sequence[str] = ()


class _FieldReport:
    """Collects unknown and doubled fields: into warnings, or into a refusal."""

    def __init__(self, validation: str, *, patching: bool = False) -> None:
        self._validation, self._patching = validation, patching
        self.warnings: list[str] = []

    def doubled(self, kind: Kind, body: bytes) -> None:
        if self._validation != "Ignore":
            self._say(kind, [f'duplicate field "{path}"' for path in doubled_fields(body)], {})

    def unknown(self, kind: Kind, paths: Sequence[str], obj: Obj) -> None:
        self._say(kind, [f'unknown field "{path}"' for path in sorted(paths)], obj)

    def _say(self, kind: Kind, findings: list[str], obj: Obj) -> None:
        if self._validation == "Warn":
            self.warnings += findings
        elif self._validation == "Strict" and findings:
            listed = f"strict decoding error: {', '.join(findings)}"
            if self._patching:
                shown = render(orjson.dumps(obj).decode())
                cause = Cause("FieldValueInvalid", f"Invalid value: {shown}: {listed}", "patch")
                raise invalid(Resource("", ""), [cause])
            head = f'{kind.kind} in version "{kind.version}" cannot be handled as a {kind.kind}'
            raise bad_request(f"{head}: {listed}")


class Resources:
    """Answers requests about resources."""

    def __init__(self, verbs: Verbs, store: Store, clock: Callable[[], datetime]) -> None:
        self._verbs, self._store, self._clock = verbs, store, clock
        self._paging = Paging(store)

    def answer(self, target: Target, request: Request) -> Response:
        """Carry out one request, watches excepted."""
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

    def presenter(self, target: Target, request: Request) -> Presenter:
        form = choose_form(request.headers.get("accept", ""))
        return Presenter(target.kind, form, request.text("includeObject"), self._clock)

    # --- collections -----------------------------------------------------------------------------------------------

    def _collection(self, target: Target, request: Request) -> Response:
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

    def _list(self, target: Target, request: Request) -> Response:
        presenter = self.presenter(target, request)
        page = self._page(target, request)
        counted = not request.text("labelSelector") and not request.text("fieldSelector")
        return Response(200, presenter.many(page, counted=counted))

    def _page(self, target: Target, request: Request) -> Page:
        labels, fields = request.text("labelSelector"), request.text("fieldSelector")
        matches = parse_selectors(target.kind, labels, fields)
        self._check_revision(request)
        limit = request.number("limit") or 0
        selection = (f"{labels}\n{fields}", matches)
        return self._paging.page(target.kind, target.namespace, selection, limit, request.text("continue"))

    def _check_revision(self, request: Request) -> None:
        """A list is always of now; a revision still to come, or an exact one of the past, cannot be served."""
        text = request.text("resourceVersion")
        if not text or request.text("continue"):
            return
        if not text.isdigit():
            why = f'Invalid value: "{text}": strconv.ParseUint: parsing "{text}": invalid syntax'
            raise bad_request(f"invalid resource version: resourceVersion: {why}")
        if int(text) > self._store.revision:
            raise too_large_revision(int(text), self._store.revision)
        if request.text("resourceVersionMatch") == "Exact" and int(text) != self._store.revision:
            raise gone("The resourceVersion for the provided list is too old.")

    def watch_request(self, target: Target, request: Request) -> WatchRequest:
        """What a watch asks for; refused before the stream begins."""
        matches = parse_selectors(target.kind, request.text("labelSelector"), request.text("fieldSelector"))
        initial = request.flag("sendInitialEvents") if "sendInitialEvents" in request.query else False
        if "sendInitialEvents" in request.query and request.text("resourceVersionMatch") != "NotOlderThan":
            sentence = "Forbidden: sendInitialEvents requires setting resourceVersionMatch to NotOlderThan"
            cause = Cause("FieldValueForbidden", sentence, "resourceVersionMatch")
            raise invalid(Resource("meta.k8s.io", "ListOptions"), [cause])
        since = request.text("resourceVersion")
        if since:
            parse_revision(since)
        return WatchRequest(
            kind=target.kind,
            namespace=target.namespace,
            name=target.name,
            matches=matches,
            since=since,
            timeout=float(request.number("timeoutSeconds") or WATCH_SECONDS),
            bookmarks=request.flag("allowWatchBookmarks"),
            initial_events=initial,
        )

    def _post(self, target: Target, request: Request) -> Response:
        kind = target.kind
        if kind.namespaced and target.namespace is None:
            raise method_not_allowed() if kind.builtin else NotServedError()
        options = parse_write_options(request, "CreateOptions")
        presenter = self.presenter(target, request)
        body, report = self._body(kind, request, options.validation)
        obj = self._verbs.create(
            kind,
            target.namespace,
            body,
            manager=options.manager,
            dry_run=options.dry_run,
            unknown_fields=report.unknown,
        )
        return self._written(201, target, obj, presenter, [*report.warnings, *_advise(target, obj, None)])

    def _body(self, kind: Kind, request: Request, validation: str) -> tuple[Obj, _FieldReport]:
        check_media(request)
        body: Obj = decode_body(request, kind.kind)
        report = _FieldReport(validation)
        if isinstance(body, dict):
            require_kind(kind, request, body)
        if request.media in {"", JSON}:
            report.doubled(kind, request.body)
        return body, report

    def _written(self, code: int, target: Target, obj: Obj, presenter: Presenter, warnings: Sequence[str]) -> Response:
        stored = self._store.get(target.kind, target.namespace, obj["metadata"]["name"])
        return Response(code, presenter.one(obj, stored_bytes(stored, obj)), warnings=warnings)

    def _delete_collection(self, target: Target, request: Request) -> Response:
        if target.kind.plural in {"namespaces", "customresourcedefinitions"} and target.kind.builtin:
            raise method_not_allowed()
        options = parse_delete_options(request)
        page = self._page(target, request)
        items: list[Stored] = []
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
                if error.code != 404:  # noqa: PLR2004 gone with one of the others, by a listener
                    raise
                continue
            items.append(Stored(obj, orjson.dumps(obj), stored.revision))
        presenter = self.presenter(target, request)
        return Response(200, presenter.many(Page(items, self._store.revision, "", 0), counted=False))

    # --- single objects --------------------------------------------------------------------------------------------

    def _get(self, target: Target, request: Request) -> Response:
        presenter = self.presenter(target, request)
        obj = self._verbs.get(target.kind, target.namespace, target.name or "")
        return self._written(200, target, obj, presenter, ())

    def _put(self, target: Target, request: Request) -> Response:
        options = parse_write_options(request, "UpdateOptions")
        presenter = self.presenter(target, request)
        if target.subresource == "scale":
            check_media(request)
            body, report = decode_body(request, "Scale"), _FieldReport("Ignore")
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
            unknown_fields=report.unknown,
        )
        return self._changed(200, target, obj, presenter, [*report.warnings, *_advise(target, obj, former)])

    def _patch(self, target: Target, request: Request) -> Response:
        kind, name = target.kind, target.name or ""
        patch_type = _patch_type(kind, request)
        applying = patch_type is PatchType.APPLY
        options = parse_write_options(request, "PatchOptions", apply=applying)
        presenter = self.presenter(target, request)
        body = parse_yaml(request.body) if applying else decode_patch(request.body)
        report = _FieldReport(options.validation, patching=True)
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
            unknown_fields=report.unknown,
        )
        warnings = [*report.warnings, *_advise(target, obj, former)]
        return self._changed(201 if former is None else 200, target, obj, presenter, warnings)

    def _changed(self, code: int, target: Target, obj: Obj, presenter: Presenter, warnings: Sequence[str]) -> Response:
        if target.subresource == "scale":
            return Response(code, orjson.dumps(obj), warnings=warnings)
        return self._written(code, target, obj, presenter, warnings)

    def _delete(self, target: Target, request: Request) -> Response:
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
        there = self._store.get(kind, target.namespace, target.name or "")
        gone = there is None or (options.dry_run and "deletionTimestamp" not in obj["metadata"])
        if gone and not returned:
            return _success(200, kind.resource(obj["metadata"]["name"]), obj["metadata"]["uid"])
        return Response(200, orjson.dumps(obj))

    # --- subresources ----------------------------------------------------------------------------------------------

    def _subresource(self, target: Target, request: Request) -> Response:
        served = {name: verbs for name, _, verbs in subresources_of(target.kind)}
        name = target.subresource or ""
        if name not in served:
            raise no_such_resource() if target.kind.builtin else not_found(target.kind.resource(target.name or ""))
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

    def _bind(self, target: Target, request: Request) -> Response:
        options = parse_write_options(request, "CreateOptions")
        check_media(request)
        body = decode_body(request, "Binding")
        node = (body.get("target") or {}).get("name")
        if not node:
            raise ApiError(500, "", "target.name: Required value")
        self._verbs.bind(target.namespace or "", target.name or "", node, dry_run=options.dry_run)
        return _success(201)

    def _evict(self, target: Target, request: Request) -> Response:
        options = parse_write_options(request, "CreateOptions")
        check_media(request)
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
        return _success(201)


def _advise(target: Target, obj: Obj, former: Stored | None) -> list[str]:
    """Return the warnings that a webhook would give with what was written."""
    if target.kind.advice is None or target.subresource:
        return []
    return target.kind.advice(obj, None if former is None else former.obj)


def _not_allowed(kind: Kind) -> ApiError:
    if kind.builtin:
        return method_not_allowed()
    sentence = f' is not supported on resources of kind "{kind.plural}.{kind.group}"'
    return ApiError(405, "MethodNotAllowed", sentence, kind.resource())


def _patch_type(kind: Kind, request: Request) -> PatchType:
    try:
        patch_type = PatchType(request.media)
    except ValueError:
        patch_type = None
    if patch_type is None and kind.builtin:
        raise ApiError(415, "UnsupportedMediaType", "415: Unsupported Media Type", Resource("", ""))
    if patch_type is None or (patch_type is PatchType.STRATEGIC and not kind.builtin):
        listed = ", ".join((PatchType.JSON, PatchType.MERGE, PatchType.APPLY))
        raise unsupported_media_type(
            f"the body of the request was in an unknown format - accepted media types include: {listed}"
        )
    return patch_type


def _success(code: int, resource: Resource | None = None, uid: str = "") -> Response:
    status: Obj = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"}
    if resource is not None:
        parts = {"name": resource.name, "group": resource.group, "kind": resource.kind, "uid": uid}
        status["details"] = {key: value for key, value in parts.items() if value}
    else:
        status["code"] = code
    return Response(code, orjson.dumps(status))
