"""The frame of every page: the permission to view, navigation, the theme, and notices about clusters.

Before it: Django's middleware, which redirects anonymous users to the sign-in page. After it: the views, each wrapped
in `viewer_required`. Every viewer sees the same; a view checks the permission for a command where it shows the button.
"""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from functools import wraps
from http import HTTPStatus
from typing import Any, Concatenate, Final, ParamSpec, TypeVar, cast

from django.conf import settings
from django.http import HttpRequest, HttpResponse, QueryDict
from django.http.response import HttpResponseBase
from django.shortcuts import render
from django.template.loader import render_to_string
from django.urls import NoReverseMatch, reverse
from django.utils import timezone
from django.utils.functional import SimpleLazyObject
from django.views.decorators.gzip import gzip_page
from django.views.decorators.http import require_safe

from rollouts.accounts import permissions
from rollouts.accounts.errors import NotFound
from rollouts.live.fragments import Fragment, FragmentView
from rollouts.live.registry import LIVE
from rollouts.mirror.other_operator import find_observe_only
from rollouts.models import Cluster
from rollouts.selectors.workload_snapshot import visible_clusters
from rollouts.web.text import age

_P = ParamSpec("_P")
_R = TypeVar("_R", bound=HttpResponseBase)
View = Callable[Concatenate[HttpRequest, _P], _R]

_THEMES: Final = ("light", "dark")


def viewer_required(view: View[_P, _R]) -> View[_P, _R | HttpResponse]:
    """Require the permission to view; render a page for NotFound."""

    @gzip_page
    @wraps(view)
    def reading(request: HttpRequest, /, *args: _P.args, **kwargs: _P.kwargs) -> _R | HttpResponse:
        if not permissions.may_view(request.user):
            return _render_message(request, "No access yet", permissions.NO_ROLE_SENTENCE, HTTPStatus.FORBIDDEN)
        try:
            return view(request, *args, **kwargs)
        except NotFound as refusal:
            return _render_message(request, "Not found", refusal.sentence, HTTPStatus.NOT_FOUND)

    return reading


def fragment_view(find: Callable[Concatenate[QueryDict, _P], Fragment]) -> FragmentView:
    """Make a view that answers with the fragment of `find`, which `live.stream` reads from the view as well."""

    @require_safe
    @viewer_required
    @wraps(find)
    def answering(request: HttpRequest, /, *args: _P.args, **kwargs: _P.kwargs) -> HttpResponse:
        return LIVE.fragments.response(request, find(request.GET, *args, **kwargs))

    view = cast("FragmentView", answering)
    view.find_fragment = find
    return view


def _render_message(request: HttpRequest, title: str, sentence: str, status: HTTPStatus) -> HttpResponse:
    return render(request, "layout/message.html", {"title": title, "sentence": sentence}, status=status)


# ---- navigation


@dataclass(frozen=True, slots=True)
class NavigationLink:
    """A page in the navigation."""

    name: str
    href: str
    key: str  # the key after `g` that opens it
    is_current: bool


_NAVIGATION: Final = (
    ("Workloads", "home", "w"),
    ("Nodes", "page-nodes", "n"),
    ("Overrides", "page-overrides", "o"),
    ("Clusters", "page-clusters", "c"),
    ("Audit", "page-audit", "a"),
)
_ACCOUNT_PAGES: Final = (("Account", "page-account", ""), ("Tokens", "page-tokens", ""), ("Help", "page-help", ""))


def _links(request: HttpRequest, pages: tuple[tuple[str, str, str], ...]) -> list[NavigationLink]:
    links = []
    for name, view, key in pages:
        try:
            href = reverse(view)
        except NoReverseMatch:
            continue
        section = "/workloads/" if view == "home" else href
        links.append(NavigationLink(name, href, key, request.path == href or request.path.startswith(section)))
    return links


# ---- notices about clusters


@dataclass(frozen=True, slots=True)
class ClusterNotice:
    """A sentence about a cluster whose data may be incomplete or out of date, or in which nothing is changed."""

    name: str
    sentence: str
    kind: str  # its CSS class


def list_cluster_notices() -> list[ClusterNotice]:
    """Return a notice for each cluster with a problem."""
    return [found for row in visible_clusters().values() if (found := _cluster_notice(row))]


def _cluster_notice(row: Cluster) -> ClusterNotice | None:
    heard = f" Last contact {age(row.heard_at)} ago." if row.heard_at else ""
    if row.trouble_code:
        return ClusterNotice(row.name, f"{row.trouble}{heard}", "warn")
    if not row.complete:
        return ClusterNotice(row.name, "The cluster is being listed; some objects are not shown yet.", "info")
    if row.heard_at is None or timezone.now() - row.heard_at > timedelta(seconds=settings.CLUSTER_MAX_AGE_SECONDS):
        contact = f"last answered {age(row.heard_at)} ago" if row.heard_at else "has never answered"
        sentence = f"The cluster {contact}, so its data may be out of date. Is the watcher running?"
        return ClusterNotice(row.name, sentence, "warn")
    return ClusterNotice(row.name, row.other_operator, "warn") if row.other_operator else None


@fragment_view
def cluster_notices_fragment(_: QueryDict) -> Fragment:
    """Return the notices about clusters."""

    def render_notices() -> str:
        return render_to_string("layout/_cluster_notices.html", {"cluster_notices": list_cluster_notices()})

    return Fragment("clusters", render_notices)


def page_layout(request: HttpRequest) -> dict[str, Any]:
    """Return the context of the frame for every template."""
    theme = request.COOKIES.get("theme", "")
    return {
        "theme": theme if theme in _THEMES else "",
        "navigation": SimpleLazyObject(lambda: _links(request, _NAVIGATION)),
        "own_pages": SimpleLazyObject(lambda: _links(request, _ACCOUNT_PAGES)),
        "cluster_notices": SimpleLazyObject(list_cluster_notices),
        "installation_notice": find_observe_only() or permissions.find_read_only(),
        "may_administer": SimpleLazyObject(lambda: permissions.may_administer(request.user)),
    }
