"""The witness finds violations: for each rule a sequence of writes that breaks it."""

from dataclasses import dataclass, field
from itertools import count
from typing import Any
from uuid import uuid4

import pytest

from rollouts.cluster import Obj, Resource
from rollouts.cluster.resources import PODCLIQUES, PODCLIQUESETS, PODS
from rollouts.engine.manifest.parsing import parse_workload
from rollouts.engine.model import names
from rollouts.engine.model.hashing import compute_template_hash
from rollouts.engine.model.workload import Workload
from tests.scenarios.stage import clique, podcliqueset
from tests.scenarios.witness import Event, RuleChecker, Step, list_unit_changes, replay

CREATED = "2026-01-01T00:00:00Z"


@dataclass
class Story:
    """A sequence of writes to a set `w` with one clique `a` of three pods."""

    budget: tuple[Any, Any] = (1, 0)
    events: list[Event] = field(default_factory=list)
    versions: Any = field(default_factory=lambda: count(1))
    pods: dict[int, Obj] = field(default_factory=dict)
    generation: int = 0
    hash: str = ""
    clock: float = 0.0
    title: str = field(default_factory=lambda: str(uuid4()))

    def __post_init__(self) -> None:
        self.set_image("v1")
        self.clique(3)
        for index in range(3):
            self.create(index)
            self.make_ready(index)

    def set_image(self, image: str) -> None:
        self.generation += 1
        manifest = podcliqueset(clique("a", 3, 1, self.budget), strategy="RollingUpdate")
        manifest["spec"]["template"]["cliques"][0]["spec"]["podSpec"]["containers"][0]["image"] = image
        self._write(PODCLIQUESETS, manifest | {"metadata": self._metadata("w", {}) | {"namespace": "n"}})
        workload = parse_workload(self.events[-1].obj)
        assert isinstance(workload, Workload)
        self.hash = compute_template_hash(workload.cliques[0], workload.priority_class)

    def clique(self, replicas: int, observed: int | None = None) -> None:
        """Write the replicas of the clique, and the generation that the controller has observed."""
        labels = {names.REPLICA_INDEX: "0", names.TEMPLATE_HASH: self.hash}
        status = {} if observed is None else {"status": {"observedGeneration": observed}}
        metadata = self._metadata("w-0-a", labels)
        self._write(PODCLIQUES, {"metadata": metadata, "spec": {"replicas": replicas}, **status})

    def create(self, index: int) -> None:
        version = next(self.versions)
        labels = {
            names.REPLICA_INDEX: "0",
            names.CLIQUE: "w-0-a",
            names.POD_INDEX: str(index),
            names.TEMPLATE_HASH: self.hash,
        }
        self.pods[index] = {"metadata": self._metadata(f"p-{index}-{version}", labels), "spec": {}}
        self._write(PODS, self.pods[index])

    def make_ready(self, index: int) -> None:
        ready = {"conditions": [{"type": "Ready", "status": "True"}]}
        self.pods[index] = self.pods[index] | {"status": ready}
        self._write(PODS, self.pods[index])

    def delete(self, index: int) -> str:
        obj = self.pods.pop(index)
        self._write(PODS, obj, gone=True)
        uid: str = obj["metadata"]["uid"]
        return uid

    def replace(self, index: int) -> None:
        self.delete(index)
        self.create(index)
        self.make_ready(index)

    def steps(self) -> list[Step]:
        return list(replay(self.events))

    def judge(self, killed: set[str] | None = None) -> None:
        checker = RuleChecker("w", killed or set())
        for step in self.steps():
            checker.check(step)

    def _metadata(self, name: str, labels: dict[str, str]) -> Obj:
        return {
            "name": name,
            "uid": f"{name} of {self.title}",
            "generation": self.generation,
            "creationTimestamp": CREATED,
            "labels": {names.PART_OF: "w", **labels},
        }

    def _write(self, kind: Resource, obj: Obj, *, gone: bool = False) -> None:
        version = next(self.versions)
        stored = {**obj, "metadata": {**obj["metadata"], "resourceVersion": str(version)}}
        self.events.append(Event(version, self.clock, kind, stored, gone))


def test_pods_replaced_one_at_a_time_break_no_rule() -> None:
    story = Story()
    story.set_image("v2")
    for index in range(3):
        story.replace(index)
    story.judge()
    assert list(list_unit_changes(story.steps(), "w", "w-0-a"))[3:] == ["-0", "+0", "-1", "+1", "-2", "+2"]


def test_a_deletion_before_the_last_replacement_is_ready_is_seen() -> None:
    story = Story()
    story.set_image("v2")
    story.delete(0)
    story.create(0)
    story.delete(1)
    with pytest.raises(AssertionError, match="w-0-a"):
        story.judge()


def test_a_deletion_by_somebody_else_is_not_held_against_us() -> None:
    story = Story()
    story.set_image("v2")
    story.delete(0)
    killed = story.delete(1)
    story.judge({killed})


def test_one_pod_more_than_the_surge_allows_is_seen() -> None:
    story = Story(budget=(0, 1))
    story.set_image("v2")
    story.create(3)
    story.judge()
    story.create(4)
    with pytest.raises(AssertionError, match="w-0-a"):
        story.judge()


def test_the_deletion_of_a_pod_that_is_current_and_wanted_is_seen() -> None:
    story = Story()
    story.set_image("v2")
    story.replace(0)
    story.judge()
    story.delete(0)
    with pytest.raises(AssertionError, match="current and wanted"):
        story.judge()


def test_scaling_in_takes_what_is_current() -> None:
    story = Story()
    story.clique(1)
    story.delete(2)
    story.delete(1)
    story.judge()


def test_a_deletion_right_after_scaling_out_was_decided_before_it() -> None:
    story = Story()
    story.set_image("v2")
    story.clique(5)
    story.clock = 1.0
    story.delete(0)
    story.judge()


def test_a_deletion_by_a_controller_that_does_not_know_yet_was_decided_before() -> None:
    story = Story()
    story.set_image("v2")
    story.clique(5, observed=1)
    story.clock = 10.0
    story.delete(0)
    story.judge()


def test_a_deletion_long_after_the_controller_knew_is_seen() -> None:
    story = Story()
    story.set_image("v2")
    story.clique(5, observed=1)
    story.clique(5, observed=2)
    story.clock = 10.0
    story.create(3)
    story.delete(0)
    with pytest.raises(AssertionError, match="w-0-a"):
        story.judge()


def test_a_deletion_long_after_scaling_out_is_seen() -> None:
    story = Story()
    story.set_image("v2")
    story.clique(5)
    story.clock = 10.0
    story.clique(5)
    story.delete(0)
    with pytest.raises(AssertionError, match="w-0-a"):
        story.judge()


def test_surplus_that_stays_after_scaling_in_takes_no_room_from_a_missing_pod() -> None:
    story = Story()
    killed = {story.delete(0)}
    story.clique(2)
    story.clock = 10.0
    story.clique(2)
    story.create(0)
    story.judge(killed)


def test_more_surplus_than_scaling_in_has_left_is_seen() -> None:
    story = Story()
    killed = {story.delete(0)}
    story.clique(2)
    story.clock = 10.0
    story.clique(2)
    story.create(0)
    story.create(3)
    with pytest.raises(AssertionError, match="by the write of Pod p-3"):
        story.judge(killed)
