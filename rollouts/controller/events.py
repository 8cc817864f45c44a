"""Kubernetes Events about a workload: what `kubectl describe` and log collectors see of a rollout.

Told at the end of a pass, best effort: an Event that cannot be written is logged and forgotten, it never fails a pass.
The invariant: the same thing is told once, since the name of an Event follows from what it tells, so that a repeated
pass is refused as existing.
"""

import hashlib
import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from rollouts.cluster import AlreadyExists, ClusterClient, ClusterError, Obj
from rollouts.cluster.client import FIELD_MANAGER
from rollouts.cluster.resources import EVENTS, PODCLIQUESETS
from rollouts.engine.model.actions import TimelineEvent
from rollouts.engine.model.times import render_time

logger = logging.getLogger(__name__)

INVALID_SPEC: Final = "InvalidSpec"
WRITE_DENIED: Final = "WriteDenied"
UPDATE_STUCK: Final = "UpdateStuck"
UNSUPPORTED: Final = "Unsupported"

# The moments of a plan that are worth an Event; the rest is on the timeline.
EVENT_REASONS: Final = frozenset(
    {"UpdateStarted", "UpdateSuperseded", "ReplicaSelected", "UpdateEnded", "GangTerminated"}
)
_MAX_MESSAGE_LENGTH: Final = 1024  # the API takes no more


@dataclass(frozen=True, slots=True)
class WorkloadEvent:
    """Something to tell about a workload."""

    reason: str
    text: str
    occasion: str  # what tells this occasion from the next with the same words, such as the start of the update
    type: Literal["Normal", "Warning"] = "Normal"


def choose_events(moments: Iterable[TimelineEvent], since: str) -> list[WorkloadEvent]:
    """Return the moments of a plan that are told as Events."""
    return [WorkloadEvent(moment.reason, moment.text, since) for moment in moments if moment.reason in EVENT_REASONS]


def write_events(cluster: ClusterClient, workload: Obj, events: Sequence[WorkloadEvent], now: float) -> None:
    """Write Events about a PodCliqueSet, as far as the cluster takes them."""
    for event in events:
        try:
            cluster.create(EVENTS, render_event(workload, event, now))
        except AlreadyExists:
            continue
        except ClusterError as error:
            logger.info("An Event could not be written: %s", error)
            return


def render_event(workload: Obj, event: WorkloadEvent, now: float) -> Obj:
    """Return the Event as the API wants it."""
    metadata = workload["metadata"]
    at = render_time(now)
    mark = hashlib.blake2b(
        "\0".join((metadata["uid"], event.reason, event.text, event.occasion)).encode(), digest_size=8
    ).hexdigest()
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"namespace": metadata["namespace"], "name": f"{metadata['name']}.{mark}"},
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
