"""Kubernetes Events about a workload: what `kubectl describe` and log collectors show of a rollout.

Before it: a pass of the reconciler, which chooses the Events from the timeline and from what its status now shows. They
are written at the end of the pass, best effort: an Event that cannot be written is logged and never fails a pass.

The invariant: each Event is written once, since its name is a hash of its content: a repeated pass gets AlreadyExists.
"""

import hashlib
import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

from rollouts.cluster import AlreadyExists, ClusterClient, ClusterError, Obj
from rollouts.cluster.client import FIELD_MANAGER
from rollouts.cluster.resources import EVENTS, PODCLIQUESETS
from rollouts.controller.set_status import StatusFacts, render_findings, render_unsupported_fields
from rollouts.engine.model.actions import TimelineEvent
from rollouts.engine.model.conditions import (
    INVALID_SPEC,
    PROGRESSING,
    STUCK,
    UNSUPPORTED,
    VALID,
    WRITE_DENIED,
    find_condition,
)
from rollouts.engine.model.times import render_time
from rollouts.engine.rollout.update import read_progress

logger = logging.getLogger(__name__)

Status = Mapping[str, Any]

# The timeline events that are also written as Kubernetes Events.
EVENT_REASONS: Final = frozenset(
    {"UpdateStarted", "UpdateSuperseded", "ReplicaSelected", "UpdateEnded", "GangTerminated"}
)
# Reasons of Progressing=False while nothing is wrong.
_IDLE_REASONS: Final = frozenset({"Complete", "AwaitingDeletion"})
_MAX_MESSAGE_LENGTH: Final = 1024  # the limit of the API


@dataclass(frozen=True, slots=True)
class WorkloadEvent:
    """An Event about a workload."""

    reason: str
    text: str
    occasion: str  # distinguishes it from a later Event with the same text, for example the start of the update
    type: Literal["Normal", "Warning"] = "Normal"


def choose_events(
    before: Status, after: Status, timeline_events: Iterable[TimelineEvent], facts: StatusFacts, generation: str
) -> list[WorkloadEvent]:
    """Return the Events of a pass, which has changed the status of the set from `before` to `after`."""
    progress, invalid = read_progress(after), find_condition(before, VALID).get("message")
    update = progress.started_at or progress.generation_hash
    return [
        *(WorkloadEvent(one.reason, one.text, update) for one in timeline_events if one.reason in EVENT_REASONS),
        *_make_stuck_events(before, after),
        *_make_stalled_events(before, after),
        *_make_write_denied_events(before, after, facts.now),
        *(make_invalid_spec_events(facts, generation) if invalid != render_findings(facts.findings) else ()),
        *make_unsupported_events(before, facts, generation),
    ]


def make_invalid_spec_events(facts: StatusFacts, generation: str) -> list[WorkloadEvent]:
    """Return the Event about an invalid spec, if it is invalid."""
    if not facts.findings:
        return []
    return [WorkloadEvent(INVALID_SPEC, render_findings(facts.findings), generation, "Warning")]


def make_unsupported_events(before: Status, facts: StatusFacts, generation: str) -> list[WorkloadEvent]:
    """Return the Event about fields without effect, unless the status already shows them."""
    text = render_unsupported_fields(facts.unsupported)
    if not text or find_condition(before, UNSUPPORTED).get("message") == text:
        return []
    return [WorkloadEvent(UNSUPPORTED, text, generation, "Warning")]


def _make_stuck_events(before: Status, after: Status) -> list[WorkloadEvent]:
    """Return the Event about an update that is stuck from now on."""
    stuck = find_condition(after, STUCK)
    if stuck.get("status") != "True" or find_condition(before, STUCK).get("status") == "True":
        return []
    return [WorkloadEvent(STUCK, str(stuck.get("message")), str(stuck.get("lastTransitionTime")), "Warning")]


def _make_stalled_events(before: Status, after: Status) -> list[WorkloadEvent]:
    """Return the Event about what keeps a set from becoming complete while no update is in progress.

    Example: a first deployment for which no node has room. A problem of an update is an UpdateStuck Event.
    """
    now = find_condition(after, PROGRESSING)
    if now.get("status") != "False" or now.get("reason") in _IDLE_REASONS:
        return []
    former = find_condition(before, PROGRESSING)
    if (former.get("status"), former.get("reason")) == (now["status"], now.get("reason")):
        return []
    reason, text, since = (str(now.get(name)) for name in ("reason", "message", "lastTransitionTime"))
    return [WorkloadEvent(reason, text, since, "Warning")]


def _make_write_denied_events(before: Status, after: Status, now: float) -> list[WorkloadEvent]:
    """Return the Event about writes that the cluster rejects, if the status shows others than before."""
    denied = find_condition(after, WRITE_DENIED)
    if not denied or find_condition(before, WRITE_DENIED).get("message") == denied.get("message"):
        return []
    return [WorkloadEvent(WRITE_DENIED, str(denied.get("message")), render_time(now), "Warning")]


def write_events(cluster: ClusterClient, workload: Obj, events: Sequence[WorkloadEvent], now: float) -> None:
    """Create Events about a PodCliqueSet; stop at the first error."""
    for event in events:
        try:
            cluster.create(EVENTS, render_event(workload, event, now))
        except AlreadyExists:
            continue
        except ClusterError as error:
            logger.info("The Event %s was not written: %s", event.reason, error)
            return


def render_event(workload: Obj, event: WorkloadEvent, now: float) -> Obj:
    """Return the manifest of an Event."""
    metadata = workload["metadata"]
    at = render_time(now)
    digest = hashlib.blake2b(
        "\0".join((metadata["uid"], event.reason, event.text, event.occasion)).encode(), digest_size=8
    ).hexdigest()
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"namespace": metadata["namespace"], "name": f"{metadata['name']}.{digest}"},
        "involvedObject": {
            "apiVersion": PODCLIQUESETS.api_version,
            "kind": PODCLIQUESETS.kind,
            "namespace": metadata["namespace"],
            "name": metadata["name"],
            "uid": metadata["uid"],
        },
        "reason": event.reason,
        "message": event.text[:_MAX_MESSAGE_LENGTH],
        "type": event.type,
        "source": {"component": FIELD_MANAGER},
        "firstTimestamp": at,
        "lastTimestamp": at,
        "count": 1,
    }
