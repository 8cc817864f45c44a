"""What is expected of a workload's pods, from what they did: how long they take to become Ready, and which never do.

Before it: what the mirror recorded of each pod. After it: the `seed` of a forecast, which lets pods become Ready as
expected here, and a sentence for whoever reads the forecast.

The time to Ready is that of the same template; else of the same images; else of the template that the clique has now;
else of any pod of the clique; else of any pod of the workload. Where no such pod is there, what was noted of earlier
ones counts. A template is expected never to become Ready when none of its pods is Ready and one of them crashes, cannot
be started, or has taken three times as long as usual, or ten minutes where no pod of its clique was ever measured. A
pod that was restarted again and again and is Ready for a moment is not Ready: without a readiness probe a container
that crashes is Ready as long as it runs.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, Final

from rollouts.engine.model.container_faults import RESTARTS_OF_A_LOOP, is_steady
from rollouts.engine.model.observed import Measured
from rollouts.engine.model.values import value
from rollouts.engine.model.workload import CliqueTemplate, Workload
from rollouts.engine.rollout.ready_times import READY_WITHIN, compute_usual
from rollouts.engine.simulation.cluster import TemplateKey
from rollouts.engine.tree.layout import make_shape

SECONDS_TO_READY: Final = 30.0
"""That a pod is assumed to take where none has become Ready yet."""
TIMES_TOO_LONG: Final = 3.0
"""So many times as long as usual, and a pod is expected never to become Ready."""
STAMPS_OFF_BY: Final = 2.0
"""Seconds: both stamps that a time is the difference of are whole seconds."""
FAILURES: Final = frozenset(
    {
        *("CrashLoopBackOff", "ImagePullBackOff", "ErrImagePull", "ErrImageNeverPull", "InvalidImageName"),
        *("CreateContainerConfigError", "CreateContainerError", "RunContainerError", "OOMKilled"),
    }
)
"""Reasons of a pod that does not become Ready by waiting."""

_LATE: Final = 1.5


@value
class PodRecord:
    """What is known of how a pod started."""

    name: str
    clique: str  # of the template
    template_hash: str
    images: str  # of its containers, in their order, separated by spaces
    is_ready: bool
    to_ready: float | None  # seconds from its node to Ready; None: not Ready yet, or restarted since
    on_node_for: float | None  # seconds; None: it has no node
    reason: str = ""  # why it is not Ready
    restarts: int = 0
    is_node_ready: bool = True
    ready_for: float | None = None  # seconds; None: not Ready, or nobody noted since when

    @property
    def is_steady(self) -> bool:
        """Whether it is Ready, and not for a moment between two crashes."""
        return self.is_ready and is_steady(self.restarts, self.ready_for)

    @property
    def key(self) -> TemplateKey:
        """Which template it is of: cliques with equal templates have equal hashes."""
        return self.clique, self.template_hash


@value
class Expectation:
    """What is expected of new pods of a clique."""

    clique: str
    template_hash: str
    seconds: float  # from the node to Ready
    pods: int  # how many pods were measured, now or before; 0: none, it is assumed
    never: str = ""  # why they never become Ready; empty: they do
    is_own: bool = True  # measured on pods of this clique: those of others do not tell that it is late

    @property
    def key(self) -> TemplateKey:
        """Which template it is of."""
        return self.clique, self.template_hash


@value
class Outlook:
    """What is expected of all pods."""

    cliques: tuple[Expectation, ...]
    ready_seconds_of: Mapping[str | TemplateKey, float]  # by clique and template hash
    never_ready: frozenset[str | TemplateKey]  # cliques with template hashes, and names of single pods
    on_node_for: Mapping[str, float]  # by pod


def join_images(pod_spec: Mapping[str, Any]) -> str:
    """Return the images of a pod's containers, in their order, separated by spaces."""
    containers = pod_spec.get("containers")
    found = containers if isinstance(containers, list | tuple) else ()
    images = (one.get("image") for one in found if isinstance(one, Mapping))
    return " ".join(image if isinstance(image, str) else "" for image in images)


def compute_outlook(
    before: Workload, after: Workload, records: Iterable[PodRecord], noted: Iterable[Measured] = ()
) -> Outlook:
    """Return what is expected of the pods of a workload as it is and as it is to be.

    `noted` is what was measured of its pods before, for where none of them is left.
    """
    known = _Known(list(records), list(noted))
    former = {clique.name: clique for clique in before.cliques}
    old, new = make_shape(before).hashes, make_shape(after).hashes
    found = [known.expect(clique, old[clique.name], old[clique.name]) for clique in before.cliques]
    never = {one.clique: one.never for one in found}
    for clique in after.cliques:
        was = former.get(clique.name)
        if was is None or new[clique.name] != old[clique.name]:
            expected = known.expect(clique, new[clique.name], old.get(clique.name, ""))
            is_same = was is not None and was.pod_spec == clique.pod_spec
            if is_same and not expected.never and not known.has_worked(expected):
                # Another label or annotation repairs nothing.
                expected = _with_never(expected, never[clique.name])
            found.append(expected)
    lost = frozenset(record.name for record in known.records if known.is_lost(record, found))
    return Outlook(
        cliques=tuple(found),
        ready_seconds_of={one.key: one.seconds for one in found},
        never_ready=frozenset({one.key for one in found if one.never}) | lost,
        on_node_for={one.name: one.on_node_for for one in known.records if one.on_node_for is not None},
    )


class _Known:
    """What the pods of a workload have shown."""

    def __init__(self, records: list[PodRecord], noted: list[Measured]) -> None:
        self.records = records
        found: dict[tuple[str, ...], list[float]] = {}
        for one in records:
            if one.to_ready is not None:
                for key in ((one.clique, "hash", one.template_hash), (one.clique, "images", one.images)):
                    found.setdefault(key, []).append(one.to_ready)
                found.setdefault((one.clique,), []).append(one.to_ready)
                found.setdefault((), []).append(one.to_ready)
        self._shown = frozenset(found)  # by pods that are there
        self._noted = frozenset((one.clique, "hash", one.template_hash) for one in noted)
        self._times = {**_list_noted(noted), **found}

    def expect(self, clique: CliqueTemplate, template_hash: str, former_hash: str) -> Expectation:
        """Return what is expected of new pods of a clique with this template."""
        own = (clique.name, "hash", template_hash)
        keys = (own, (clique.name, "images", join_images(clique.pod_spec)), (clique.name, "hash", former_hash))
        key = next((key for key in (*keys, (clique.name,), ()) if key in self._times), ())
        times = self._times.get(key, [])
        usual = compute_usual(times) if times else SECONDS_TO_READY
        expected = Expectation(clique.name, template_hash, usual, len(times), is_own=key != ())
        if own in self._shown:
            return expected
        tried = [one for one in self.records if one.key == expected.key]
        return self._judge(expected, [one for one in tried if one.on_node_for is not None and one.is_node_ready])

    def has_worked(self, expected: Expectation) -> bool:
        """Whether a pod of just this template has become Ready."""
        own = (expected.clique, "hash", expected.template_hash)
        return own in self._shown | self._noted or any(one.is_steady for one in self.records if one.key == expected.key)

    def _judge(self, expected: Expectation, tried: list[PodRecord]) -> Expectation:
        """Say what becomes of a template of which no pod is known to have become Ready by itself."""
        if not tried or any(one.is_steady for one in tried):
            return expected
        failing = next((one for one in tried if _is_failing(one)), None)
        if failing is not None:
            why = failing.reason if failing.reason in FAILURES else f"{failing.restarts} restarts"
            return _with_never(expected, f"{failing.name}: {why}")
        slowest = max(tried, key=lambda one: one.on_node_for or 0.0)
        waited = slowest.on_node_for or 0.0
        if _is_too_long(waited, expected):
            usual = f", usually {expected.seconds:.0f} s" if expected.is_own else ""
            return _with_never(expected, f"{slowest.name} is not Ready after {waited:.0f} s{usual}")
        late = max(expected.seconds, _LATE * waited) if waited > expected.seconds else expected.seconds
        return replace(expected, seconds=late)

    def is_lost(self, record: PodRecord, found: list[Expectation]) -> bool:
        """Whether a single pod never becomes Ready though others of its template do."""
        if record.is_steady or record.on_node_for is None:
            return False
        if not record.is_node_ready or _is_failing(record):
            return True
        usual = [one for one in found if one.key == record.key]
        return any(_is_too_long(record.on_node_for, one) for one in usual)


def _list_noted(noted: Iterable[Measured]) -> dict[tuple[str, ...], list[float]]:
    """Return the times that were noted, each as often as it was measured; of a clique those that were noted last."""
    found: dict[tuple[str, ...], list[float]] = {}
    for one in noted:
        found[one.clique, "hash", one.template_hash] = found[one.clique,] = [one.seconds] * one.pods
    last = [times for key, times in found.items() if len(key) == 1]
    return {**found, (): [seconds for times in last for seconds in times]} if found else {}


def _is_too_long(waited: float, expected: Expectation) -> bool:
    return waited > (TIMES_TOO_LONG * expected.seconds + STAMPS_OFF_BY if expected.is_own else READY_WITHIN)


def _is_failing(record: PodRecord) -> bool:
    return record.reason in FAILURES or record.restarts >= RESTARTS_OF_A_LOOP


def _with_never(expected: Expectation, why: str) -> Expectation:
    return replace(expected, never=why)
