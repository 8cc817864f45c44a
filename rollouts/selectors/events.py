"""Kubernetes Events about a workload and all its objects, from schedulers, kubelets and controllers.

They are read from the cluster for each request, because the mirror does not store them: a cluster itself deletes them
after an hour. The Kubernetes API cannot select Events of many objects, so this reads the Events of the namespace, up to
a limit, and keeps those about objects of the workload, also deleted ones. Secrets in the messages are masked.

The invariant: a cluster that does not answer gives a sentence, never an error page; each request is sent once, and not
at all while the watcher has a problem with the cluster.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from rollouts import models
from rollouts.accounts.commands import WorkloadRef
from rollouts.cluster import ClusterError, Forbidden, Obj
from rollouts.cluster.resources import EVENTS, PODCLIQUESETS
from rollouts.engine.model.times import parse_time
from rollouts.manifests.masking import make_text_mask
from rollouts.runtime.connections import shared_cluster
from rollouts.selectors.workload_snapshot import find_workload

# How many Events the page of all Events has: the newest.
MAX_SHOWN: Final = 50
_MAX_PAGES: Final = 4
_PAGE_SIZE: Final = 500
_OWNED: Final = (models.Clique, models.ScalingGroup, models.Gang, models.Service)


@dataclass(frozen=True, slots=True)
class EventItem:
    """An Event about an object."""

    id: str  # the uid of the Event
    at: datetime | None  # the last occurrence
    is_warning: bool
    reason: str
    message: str
    kind: str  # of the object
    name: str
    count: int  # how often it happened
    source: str  # the component that reports it


@dataclass(frozen=True, slots=True)
class EventList:
    """The Events of a workload, the newest first."""

    items: Sequence[EventItem]
    count: int  # of all Events, before the limit
    is_partial: bool  # the namespace has more Events than were read
    problem: str  # why Events may be missing, as a sentence


def event_list(place: WorkloadRef, most: int = MAX_SHOWN) -> EventList:
    """Return the newest Events about a workload and its objects; raises NotFound."""
    row = find_workload(place)
    if row.cluster.trouble_code:
        return EventList((), 0, is_partial=False, problem=f"{_UNAVAILABLE} {place.cluster}: {row.cluster.trouble}")
    try:
        found, is_partial = _read(row.cluster, place.namespace)
    except Forbidden:
        return EventList((), 0, is_partial=False, problem=_FORBIDDEN)
    except ClusterError as error:
        return EventList((), 0, is_partial=False, problem=f"{_UNAVAILABLE} {place.cluster}: {error}")
    about = sorted(filter(_make_filter(row), found), key=_order, reverse=True)
    mask = make_text_mask(row.manifest, *_former_templates(row))
    items = [_item(one, mask) for one in about[:most]]
    return EventList(items, len(about), is_partial, "")


_UNAVAILABLE: Final = "Events are not kept here, and cannot be read from the cluster now."
_FORBIDDEN: Final = (
    "Grove UI may not list the Events of this cluster; the ClusterRole grove-ui of this version allows it "
    "(kubectl apply -f deploy/rbac)."
)


def _read(cluster: models.Cluster, namespace: str) -> tuple[list[Obj], bool]:
    client = shared_cluster(cluster.name, cluster.url)
    found: list[Obj] = []
    following: str | None = None
    for _ in range(_MAX_PAGES):
        # One try, because a person is waiting.
        page = client.list_page(
            EVENTS, namespace=namespace, page_size=_PAGE_SIZE, continue_token=following, retry=False
        )
        found += page.items
        following = page.continue_token
        if following is None:
            break
    return found, following is not None


def _make_filter(row: models.Workload) -> Callable[[Obj], bool]:
    """Return a function that says whether an Event is about a workload or one of its objects.

    Objects are found by uid, as far as the mirror remembers deleted ones. A pod is also found by name: a deleted pod
    has a successor with the same name, and people want to know why it was deleted. The name contains a hash of the uid
    of its PodClique, so no pod of another workload has had it.
    """
    whose = {"cluster": row.cluster, "namespace": row.namespace, "workload": row.name}
    uids = {row.uid}
    for model in _OWNED:
        uids.update(model.everything.filter(**whose).values_list("uid", flat=True))
    pods = models.Pod.everything.filter(**whose).values_list("name", "uid")
    uids.update(uid for _, uid in pods)
    names = {name for name, _ in pods}

    def is_about(event: Obj) -> bool:
        involved = _involved(event)
        return involved.get("uid") in uids or (involved.get("kind") == "Pod" and involved.get("name") in names)

    return is_about


def _former_templates(row: models.Workload) -> list[Obj]:
    """Return the former templates of a workload: an Event of an older pod may quote a secret of its template."""
    kept = models.Revision.objects.filter(cluster=row.cluster.name, workload_uid=row.uid)
    return list(kept.values_list("template", flat=True))


def _item(event: Obj, mask: Callable[[str], str]) -> EventItem:
    involved, series, at = _involved(event), event.get("series") or {}, _timestamp_of(event)
    source = event.get("reportingComponent") or (event.get("source") or {}).get("component")
    return EventItem(
        id=str(event["metadata"].get("uid") or event["metadata"]["name"]),
        at=datetime.fromtimestamp(at, tz=UTC) if at else None,
        is_warning=event.get("type") == "Warning",
        reason=str(event.get("reason") or ""),
        message=mask(str(event.get("message") or "")),
        kind=str(involved.get("kind") or ""),
        name=str(involved.get("name") or ""),
        count=int(series.get("count") or event.get("count") or 1),
        source=str(source or ""),
    )


def _timestamp_of(event: Obj) -> float:
    """Return the last occurrence; the two versions of the Event API have it in different fields."""
    repeated = (event.get("series") or {}).get("lastObservedTime")
    last = repeated or event.get("lastTimestamp") or event.get("eventTime") or event.get("firstTimestamp")
    return parse_time(last or event["metadata"].get("creationTimestamp")) or 0.0


def _involved(event: Obj) -> Obj:
    involved: Obj = event.get("involvedObject") or {}
    return involved


def _order(event: Obj) -> tuple[float, bool, str]:
    # In the same second, Events about the set come first.
    return _timestamp_of(event), _involved(event).get("kind") == PODCLIQUESETS.kind, event["metadata"]["name"]
