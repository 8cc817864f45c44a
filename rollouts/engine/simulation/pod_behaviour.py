"""The expected behaviour of a workload's pods: how long they take to become Ready, and which templates never do.

The mirror records each pod before it; the simulated `cluster` of a forecast uses the result, and the forecast shows a
sentence for each expectation.

The time to Ready is that of the same template; else of the same images; else of the current template of the clique;
else of any pod of the clique; else of any pod of the workload. Where no such pod exists, the recorded times of earlier
pods count. A template is expected never to become Ready if none of its pods is Ready and one of them crashes, cannot
start, or takes three times as long as usual, or ten minutes where no pod of its clique was measured. A pod that is
Ready only between two crashes counts as not Ready: without a readiness probe, a container that crashes is Ready while
it runs.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, Final

from rollouts.engine.model.container_faults import CRASH_LOOP_RESTARTS, is_stable
from rollouts.engine.model.observed import ReadyTime
from rollouts.engine.model.values import value
from rollouts.engine.model.workload import CliqueTemplate, Workload
from rollouts.engine.rollout.ready_times import READY_WITHIN, compute_usual_seconds
from rollouts.engine.simulation.cluster import TemplateKey
from rollouts.engine.tree.layout import make_layout

DEFAULT_READY_SECONDS: Final = 30.0
"""The assumed time to Ready where none was measured."""
NEVER_READY_FACTOR: Final = 3.0
"""After this many times the usual time, a pod is expected never to become Ready."""
TIMESTAMP_ERROR: Final = 2.0
"""Seconds by which a measured time may be wrong: both of its timestamps are whole seconds."""
FAILURE_REASONS: Final = frozenset(
    {
        *("CrashLoopBackOff", "ImagePullBackOff", "ErrImagePull", "ErrImageNeverPull", "InvalidImageName"),
        *("CreateContainerConfigError", "CreateContainerError", "RunContainerError", "OOMKilled"),
    }
)
"""Reasons of pods that waiting does not cure."""

_LATE_FACTOR: Final = 1.5


@value
class PodRecord:
    """What is known of how a pod started."""

    name: str
    clique: str  # of the template
    template_hash: str
    images: str  # of its containers, in their order, separated by spaces
    is_ready: bool
    ready_seconds: float | None  # seconds from its node to Ready; None: not Ready yet, or restarted since
    seconds_on_node: float | None  # seconds; None: it has no node
    reason: str = ""  # why it is not Ready
    restarts: int = 0
    is_node_ready: bool = True
    seconds_ready: float | None = None  # seconds; None: not Ready, or not known since when

    @property
    def is_stable(self) -> bool:
        """Whether it is Ready, and not only between two crashes."""
        return self.is_ready and is_stable(self.restarts, self.seconds_ready)

    @property
    def key(self) -> TemplateKey:
        """Its clique and template hash; cliques with equal templates have equal hashes."""
        return self.clique, self.template_hash


@value
class CliqueExpectation:
    """The expected behaviour of new pods of a clique."""

    clique: str
    template_hash: str
    seconds: float  # from the node to Ready
    pods: int  # the number of measured pods, now or before; 0: the time is assumed
    never_ready_reason: str = ""  # why they never become Ready; empty if they do
    is_measured_on_clique: bool = True  # whether pods of this clique were measured: only then a pod can be late

    @property
    def key(self) -> TemplateKey:
        """Its clique and template hash."""
        return self.clique, self.template_hash


@value
class ExpectedBehaviour:
    """The expected behaviour of all pods."""

    cliques: tuple[CliqueExpectation, ...]
    ready_seconds_of: Mapping[str | TemplateKey, float]  # by clique and template hash
    never_ready: frozenset[str | TemplateKey]  # cliques with template hashes, and names of single pods
    seconds_on_node: Mapping[str, float]  # by pod


def join_images(pod_spec: Mapping[str, Any]) -> str:
    """Return the images of a pod's containers, in their order, separated by spaces."""
    containers = pod_spec.get("containers")
    found = containers if isinstance(containers, list | tuple) else ()
    images = (one.get("image") for one in found if isinstance(one, Mapping))
    return " ".join(image if isinstance(image, str) else "" for image in images)


def compute_expected_behaviour(
    before: Workload, after: Workload, records: Iterable[PodRecord], noted: Iterable[ReadyTime] = ()
) -> ExpectedBehaviour:
    """Return the expected behaviour of the pods of a workload before and after a change.

    `noted` is what was measured of its pods before, for where none of them is left.
    """
    known = _PodHistory(list(records), list(noted))
    former = {clique.name: clique for clique in before.cliques}
    old, new = make_layout(before).hashes, make_layout(after).hashes
    found = [known.expect(clique, old[clique.name], old[clique.name]) for clique in before.cliques]
    never = {one.clique: one.never_ready_reason for one in found}
    for clique in after.cliques:
        was = former.get(clique.name)
        if was is None or new[clique.name] != old[clique.name]:
            expected = known.expect(clique, new[clique.name], old.get(clique.name, ""))
            is_same = was is not None and was.pod_spec == clique.pod_spec
            if is_same and not expected.never_ready_reason and not known.has_worked(expected):
                # A change of labels or annotations alone repairs nothing.
                expected = _with_never_ready(expected, never[clique.name])
            found.append(expected)
    lost = frozenset(record.name for record in known.records if known.is_never_ready(record, found))
    return ExpectedBehaviour(
        cliques=tuple(found),
        ready_seconds_of={one.key: one.seconds for one in found},
        never_ready=frozenset({one.key for one in found if one.never_ready_reason}) | lost,
        seconds_on_node={one.name: one.seconds_on_node for one in known.records if one.seconds_on_node is not None},
    )


class _PodHistory:
    """The measured behaviour of the pods of a workload."""

    def __init__(self, records: list[PodRecord], noted: list[ReadyTime]) -> None:
        self.records = records
        found: dict[tuple[str, ...], list[float]] = {}
        for one in records:
            if one.ready_seconds is not None:
                for key in ((one.clique, "hash", one.template_hash), (one.clique, "images", one.images)):
                    found.setdefault(key, []).append(one.ready_seconds)
                found.setdefault((one.clique,), []).append(one.ready_seconds)
                found.setdefault((), []).append(one.ready_seconds)
        self._measured_keys = frozenset(found)  # of pods that exist
        self._recorded_keys = frozenset((one.clique, "hash", one.template_hash) for one in noted)
        self._times = {**_map_recorded_times(noted), **found}

    def expect(self, clique: CliqueTemplate, template_hash: str, former_hash: str) -> CliqueExpectation:
        """Return the expected behaviour of new pods of a clique with this template."""
        own = (clique.name, "hash", template_hash)
        keys = (own, (clique.name, "images", join_images(clique.pod_spec)), (clique.name, "hash", former_hash))
        key = next((key for key in (*keys, (clique.name,), ()) if key in self._times), ())
        times = self._times.get(key, [])
        usual = compute_usual_seconds(times) if times else DEFAULT_READY_SECONDS
        expected = CliqueExpectation(clique.name, template_hash, usual, len(times), is_measured_on_clique=key != ())
        if own in self._measured_keys:
            return expected
        tried = [one for one in self.records if one.key == expected.key]
        return self._expect_from_attempts(
            expected, [one for one in tried if one.seconds_on_node is not None and one.is_node_ready]
        )

    def has_worked(self, expected: CliqueExpectation) -> bool:
        """Whether a pod of this very template has become Ready."""
        own = (expected.clique, "hash", expected.template_hash)
        return own in self._measured_keys | self._recorded_keys or any(
            one.is_stable for one in self.records if one.key == expected.key
        )

    def _expect_from_attempts(self, expected: CliqueExpectation, tried: list[PodRecord]) -> CliqueExpectation:
        """Say what becomes of a template of which no pod is known to have become Ready by itself."""
        if not tried or any(one.is_stable for one in tried):
            return expected
        failing = next((one for one in tried if _is_failing(one)), None)
        if failing is not None:
            why = failing.reason if failing.reason in FAILURE_REASONS else f"{failing.restarts} restarts"
            return _with_never_ready(expected, f"{failing.name}: {why}")
        slowest = max(tried, key=lambda one: one.seconds_on_node or 0.0)
        waited = slowest.seconds_on_node or 0.0
        if _is_too_long(waited, expected):
            usual = f", usually {expected.seconds:.0f} s" if expected.is_measured_on_clique else ""
            return _with_never_ready(expected, f"{slowest.name} is not Ready after {waited:.0f} s{usual}")
        late = max(expected.seconds, _LATE_FACTOR * waited) if waited > expected.seconds else expected.seconds
        return replace(expected, seconds=late)

    def is_never_ready(self, record: PodRecord, found: list[CliqueExpectation]) -> bool:
        """Whether a single pod never becomes Ready though others of its template do."""
        if record.is_stable or record.seconds_on_node is None:
            return False
        if not record.is_node_ready or _is_failing(record):
            return True
        usual = [one for one in found if one.key == record.key]
        return any(_is_too_long(record.seconds_on_node, one) for one in usual)


def _map_recorded_times(noted: Iterable[ReadyTime]) -> dict[tuple[str, ...], list[float]]:
    """Return the times that were noted, each as often as it was measured; of a clique those that were noted last."""
    found: dict[tuple[str, ...], list[float]] = {}
    for one in noted:
        found[one.clique, "hash", one.template_hash] = found[one.clique,] = [one.seconds] * one.pods
    last = [times for key, times in found.items() if len(key) == 1]
    return {**found, (): [seconds for times in last for seconds in times]} if found else {}


def _is_too_long(waited: float, expected: CliqueExpectation) -> bool:
    return waited > (
        NEVER_READY_FACTOR * expected.seconds + TIMESTAMP_ERROR if expected.is_measured_on_clique else READY_WITHIN
    )


def _is_failing(record: PodRecord) -> bool:
    return record.reason in FAILURE_REASONS or record.restarts >= CRASH_LOOP_RESTARTS


def _with_never_ready(expected: CliqueExpectation, why: str) -> CliqueExpectation:
    return replace(expected, never_ready_reason=why)
