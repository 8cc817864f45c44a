"""Records every version of every object in a namespace, in order, and checks the rules of rollouts after each write.

All kinds of an API server share one version counter, so the events of several watches, sorted by resourceVersion, are
the history of the namespace, one write at a time. `steps` replays it, and `RuleChecker` checks the rules after every
single write: how many units are available, not only how many were deleted.

The rules are those of the roller (`docs/semantics.md` 4), at every level:

    available units never go below R − U because of us, units that stay are never more than R + S, save for
    surplus that may not be deleted yet, and what is current and wanted is not replaced.

A controller sees an edit only after its watch has delivered it. Until it reports that (`observedGeneration`), and `LAG`
seconds longer, the former spec of the set is allowed as well.
"""

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from types import TracebackType
from typing import Self

from rollouts.cluster import Changed, ClusterClient, Deleted, Obj, Resource, Synced, Watch
from rollouts.cluster.resources import PODCLIQUES, PODCLIQUESCALINGGROUPS, PODCLIQUESETS, PODS
from rollouts.engine.model import names
from rollouts.engine.model.workload import Strategy
from tests.engine.chance import Count
from tests.scenarios.scene import WATCHED, Scene, Unit, is_gated, is_leaving, is_placed, is_ready, units_of

LAG = 3.0
_COUNTED = (PODCLIQUESETS, PODCLIQUESCALINGGROUPS, PODCLIQUES, PODS)
DEADLINE = 120.0


@dataclass(frozen=True, slots=True)
class Event:
    """One write: how an object is from this version on, or that it is gone."""

    version: int
    at: float  # when it was observed, by the monotonic clock
    resource: Resource
    obj: Obj
    gone: bool


@dataclass(frozen=True, slots=True)
class Step:
    """What one write did."""

    event: Event
    before: Scene
    after: Scene


class Witness:
    """Watches one namespace for as long as the block lasts."""

    def __init__(self, cluster: ClusterClient, namespace: str) -> None:
        self._watches = [(kind, Watch(cluster, kind, namespace=namespace)) for kind in WATCHED]
        self._threads: list[threading.Thread] = []
        self._heard = threading.Condition()
        self._events: list[Event] = []
        self._now: dict[Resource, dict[str, Obj]] = {kind: {} for kind in WATCHED}
        self._synced: set[Resource] = set()
        self.killed: set[str] = set()  # uids of the pods that a test has deleted itself

    def __enter__(self) -> Self:
        for kind, watch in self._watches:
            thread = threading.Thread(target=self._listen, args=(kind, watch), daemon=True)
            thread.start()
            self._threads.append(thread)
        with self._heard:
            assert self._heard.wait_for(lambda: len(self._synced) == len(WATCHED), DEADLINE), (
                "the witness observes nothing"
            )
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for _, watch in self._watches:
            watch.stop()
        for thread in self._threads:
            thread.join(10)

    def _listen(self, kind: Resource, watch: Watch) -> None:
        for note in watch:
            with self._heard:
                match note:
                    case Changed(obj):
                        self._note(kind, obj, gone=False)
                    case Deleted(obj):
                        self._note(kind, obj, gone=True)
                    case Synced(keys, version):
                        self._synced.add(kind)
                        there = {key.name for key in keys}
                        for name in self._now[kind].keys() - there:
                            self._note_missed_end(kind, name, version)
                self._heard.notify_all()

    def _note(self, kind: Resource, obj: Obj, *, gone: bool) -> None:
        metadata = obj["metadata"]
        self._events.append(Event(int(metadata["resourceVersion"]), time.monotonic(), kind, obj, gone))
        if gone:
            self._now[kind].pop(metadata["name"], None)
        else:
            self._now[kind][metadata["name"]] = obj

    def _note_missed_end(self, kind: Resource, name: str, version: str) -> None:
        """Record the deletion of an object that a list after a reconnection does not contain."""
        obj = self._now[kind][name]
        self._note(kind, {**obj, "metadata": {**obj["metadata"], "resourceVersion": version}}, gone=True)

    # --- now -------------------------------------------------------------------------------------------------

    def scene(self) -> Scene:
        """Return the objects of the namespace now."""
        with self._heard:
            return self._scene()

    def _scene(self) -> Scene:
        return Scene({kind: dict(table) for kind, table in self._now.items()})

    def wait(
        self, true: Callable[[Scene], object], what: str, seconds: float = DEADLINE, since: int | None = None
    ) -> Scene:
        """Wait until a scene fulfils the condition, if only between two writes; on failure describe the last scene.

        A scene after the version `since` counts as well.
        """
        deadline = time.monotonic() + seconds
        with self._heard:
            if since is not None:
                for step in replay(self._events):
                    if step.event.version > since and _holds(true, step.after):
                        return step.after
            scene, looked_at = self._scene(), len(self._events)
            while not _holds(true, scene):
                if not self._heard.wait_for(lambda: len(self._events) > looked_at, deadline - time.monotonic()):  # noqa: B023
                    raise AssertionError(f"not within {seconds:g} s: {what}\n{describe(scene)}")
                scene = _after(scene, self._events[looked_at])
                looked_at += 1
            return scene

    def never(self, true: Callable[[Scene], object], seconds: float, what: str) -> None:
        """Watch for a while, and fail if a scene fulfils the condition."""
        deadline = time.monotonic() + seconds
        with self._heard:
            while (left := deadline - time.monotonic()) > 0:
                scene = self._scene()
                assert not _holds(true, scene), f"{what}\n{describe(scene)}"
                self._heard.wait(left)

    def mark(self) -> int:
        """Return the newest version observed, to look back to."""
        with self._heard:
            return max((event.version for event in self._events), default=0)

    def seconds_of_silence(self) -> float:
        """Return the seconds since the last write."""
        with self._heard:
            return time.monotonic() - max((event.at for event in self._events), default=0.0)

    # --- the past --------------------------------------------------------------------------------------------

    def steps(self, since: int = 0) -> Iterator[Step]:
        """Yield every write after a version."""
        with self._heard:
            events = list(self._events)
        yield from (step for step in replay(events) if step.event.version > since)

    def unit_changes(self, name: str, component: str, since: int = 0) -> list[str]:
        """Return which units of a component were removed and added, in order: `+3s`, `-0`, `+0`."""
        return list(list_unit_changes(self.steps(since), name, component))

    def fewest(self, name: str, component: str, since: int = 0) -> int:
        """Return the lowest number of available units of a component at any time."""
        return min(
            sum(unit.available for unit in units_of(step.after, name, component))
            for step in self.steps(since)
            if step.after.has(PODCLIQUESETS, name)
        )

    def most(self, name: str, component: str, since: int = 0) -> int:
        """Return the highest number of units of a component at any time."""
        return max(
            len(units_of(step.after, name, component))
            for step in self.steps(since)
            if step.after.has(PODCLIQUESETS, name)
        )

    def assert_rules(self, name: str, since: int = 0) -> None:
        """Assert that every write after a version kept the budgets and replaced no current unit."""
        checker = RuleChecker(name, self.killed, since=since)
        for step in self.steps():
            checker.check(step)


def replay(events: list[Event]) -> Iterator[Step]:
    """Yield the writes in the order in which they were made."""
    scene = Scene({kind: {} for kind in WATCHED})
    for event in sorted(events, key=lambda event: event.version):
        after = _after(scene, event)
        yield Step(event, scene, after)
        scene = after


def _after(scene: Scene, event: Event) -> Scene:
    table = {**scene.tables[event.resource]}
    if event.gone:
        table.pop(event.obj["metadata"]["name"], None)
    else:
        table[event.obj["metadata"]["name"]] = event.obj
    return Scene({**scene.tables, event.resource: table})


def list_unit_changes(steps: Iterable[Step], name: str, component: str) -> Iterator[str]:
    """Yield which units of a component are removed and added."""
    for step in steps:
        if not (step.before.has(PODCLIQUESETS, name) and step.after.has(PODCLIQUESETS, name)):
            continue
        before, after = (
            {unit.index: unit for unit in units_of(scene, name, component)} for scene in (step.before, step.after)
        )
        yield from (f"-{unit}" for index, unit in sorted(before.items()) if not _is_same(unit, after.get(index)))
        yield from (f"+{unit}" for index, unit in sorted(after.items()) if not _is_same(unit, before.get(index)))


def _is_same(unit: Unit, other: Unit | None) -> bool:
    """Return whether two units have an object in common."""
    return other is not None and bool(unit.identity & other.identity)


@dataclass(frozen=True, slots=True)
class Allowance:
    """The limits that the set's spec allows from some time on."""

    edit: Event  # after which they hold
    at: float  # of the last write before the controller reported the edit in observedGeneration
    floors: Mapping[str, int]  # by component, the fewest units that may be available
    ceilings: Mapping[str, int]  # by component, the most units that may exist
    wanted: Mapping[str, int]
    whole: bool  # the unit of an update is the replica of the set, and its components have no limits


@dataclass
class RuleChecker:
    """Checks one write after the other against the limits that the set has allowed lately."""

    name: str
    killed: set[str]
    lag: float = LAG
    since: int = 0  # writes up to this version are not checked
    deletions: int = 0  # of units, by any client
    _lately: deque[Allowance] = field(default_factory=deque)
    _counted: Mapping[str, Count] = field(default_factory=dict)  # after the last write

    def check(self, step: Step) -> None:
        """Assert that a write broke no rule."""
        if not self._concerns(step):
            return
        if not step.after.has(PODCLIQUESETS, self.name):
            self._counted = {}
            return
        before, after = self._counted, step.after.counts(self.name)
        self._counted = after
        whole = step.after.workload(self.name).strategy is Strategy.REPLICA_RECREATE
        self._remember(step, after, whole=whole)
        is_whole = any(one.whole for one in self._lately)
        for component in before.keys() & after.keys():
            if step.event.version > self.since and (component == self.name or not is_whole):
                self._check_component(step, component, before[component], after[component])

    def _concerns(self, step: Step) -> bool:
        """Return whether a write concerns the workload and a field that is counted."""
        event, metadata = step.event, step.event.obj["metadata"]
        is_set = event.resource is PODCLIQUESETS and metadata["name"] == self.name
        if event.resource not in _COUNTED or not (is_set or _part_of(event.obj) == self.name):
            return False
        former = step.before.tables[event.resource].get(metadata["name"])
        return event.gone or former is None or _counted_state(former) != _counted_state(event.obj)

    def _check_component(self, step: Step, component: str, before: Count, after: Count) -> None:
        ceiling = max(one.ceilings[component] for one in self._lately if component in one.ceilings)
        # Surplus that must not be removed yet does not block a missing original; nothing else may be added.
        refilled = after.extra <= before.extra and after.live <= after.wanted + after.extra
        assert refilled or after.live <= max(before.live, ceiling), self._explain(step, component, before, after)
        if step.event.obj["metadata"]["uid"] in self.killed:
            return
        if after.available < before.available or after.live < before.live:
            self._check_loss(step, component, before, after)

    def _check_loss(self, step: Step, component: str, before: Count, after: Count) -> None:
        units = units_of(step.before, self.name, component), units_of(step.after, self.name, component)
        wanted = min(one.wanted[component] for one in self._lately if component in one.wanted)
        left = {unit.index for unit in units[1]}
        gone = [unit for unit in units[0] if unit.index not in left]
        serving = {unit.index for unit in units[1] if unit.available}
        lost = [unit for unit in units[0] if unit.available and unit.index not in serving]
        self.deletions += len(gone)
        # Scaling in removes the highest index, even if it is the last that is available.
        if any(unit.index < wanted for unit in lost):
            floor = min(one.floors[component] for one in self._lately if component in one.floors)
            assert after.available >= min(before.available, floor), self._explain(step, component, before, after)
        if component != self.name or step.after.workload(self.name).strategy is Strategy.REPLICA_RECREATE:
            wrong = [str(unit) for unit in gone if unit.index < wanted and not unit.outdated and unit.available]
            assert not wrong, (
                f"{wrong} of {component} were current and wanted; {self._explain(step, component, before, after)}"
            )

    def _remember(self, step: Step, found: Mapping[str, Count], *, whole: bool) -> None:
        at = step.event.at
        floors = {name: count.wanted - count.budget.max_unavailable for name, count in found.items()}
        ceilings = {name: count.wanted + count.budget.max_surge for name, count in found.items()}
        wanted = {name: count.wanted for name, count in found.items()}
        last = self._lately[-1] if self._lately else None
        if last is None or (last.floors, last.ceilings, last.whole) != (floors, ceilings, whole):
            self._lately.append(Allowance(step.event, at, floors, ceilings, wanted, whole))
        elif not _is_known(last.edit, step.after):
            self._lately[-1] = replace(last, at=at)
        # One that was replaced more than LAG ago no longer holds.
        while len(self._lately) > 1 and self._lately[1].at < at - self.lag:
            self._lately.popleft()

    def _explain(self, step: Step, component: str, before: Count, after: Count) -> str:
        event = step.event
        action = "removal" if event.gone else "write"
        of = f"{event.resource.kind} {event.obj['metadata']['name']}"
        return (
            f"{component}: {before} → {after} by the {action} of {of} (version {event.version})\n{describe(step.after)}"
        )


def _is_known(edit: Event, scene: Scene) -> bool:
    """Return whether the controller knows of an edit: its observedGeneration says so, or the object has none."""
    metadata = edit.obj["metadata"]
    obj = scene.tables[edit.resource].get(metadata["name"]) or {}
    seen = (obj.get("status") or {}).get("observedGeneration")
    return seen is None or bool(seen >= metadata["generation"])


def _part_of(obj: Obj) -> str:
    return str((obj["metadata"].get("labels") or {}).get(names.PART_OF, ""))


def _counted_state(obj: Obj) -> tuple[object, ...]:
    """Return the fields of an object that are counted."""
    metadata = obj["metadata"]
    return metadata["uid"], metadata.get("generation"), metadata.get("labels"), is_leaving(obj), is_ready(obj)


def describe(scene: Scene) -> str:
    """Describe a scene, to explain a failure."""
    lines = []
    for obj in scene.all(PODCLIQUESETS):
        name = obj["metadata"]["name"]
        status = scene.status(name)
        shown = {key: status.get(key) for key in ("observedGeneration", "availableReplicas", "updatedReplicas")}
        progress = {key: value for key, value in scene.progress(name).items() if value}
        lines.append(f"{name}: generation {obj['metadata']['generation']}, {shown}, progress {progress}")
        lines += [
            f"  {one['type']} {one['status']} {one.get('reason')}: {one.get('message')}"
            for one in status.get("conditions") or ()
        ]
        try:
            lines += [f"  {component}: {units(scene, name, component)}" for component in scene.counts(name)]
            lines.append(f"  not settled: {scene.why_not_settled(name) or 'it is'}; outdated: {scene.outdated(name)}")
            lines += [
                f"  {_describe_pod(pod)}" for pod in scene.all(PODS, name) if is_leaving(pod) or not is_ready(pod)
            ]
        except (AssertionError, KeyError) as error:
            lines.append(f"  cannot be counted: {error!r}")
    return "\n".join(lines)


def _describe_pod(pod: Obj) -> str:
    states = {"leaving": is_leaving(pod), "gated": is_gated(pod), "on a node": is_placed(pod), "Ready": is_ready(pod)}
    return f"{pod['metadata']['name']}: {', '.join(state for state, holds in states.items() if holds) or 'waiting'}"


def units(scene: Scene, name: str, component: str) -> str:
    """Render the units of a component as in `docs/semantics.md`: `0 1* 3s?`."""
    found = sorted(units_of(scene, name, component), key=lambda unit: unit.index)
    return " ".join(f"{unit}{'*' if unit.outdated else ''}{'' if unit.available else '?'}" for unit in found)


def _holds(true: Callable[[Scene], object], scene: Scene) -> bool:
    """Return whether a scene fulfils a condition; not if an object of it does not exist yet."""
    try:
        return bool(true(scene))
    except KeyError:
        return False
