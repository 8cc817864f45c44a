"""The executor: the order of writes and what ends them, on a cluster that only records calls."""

import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any, cast

from rollouts.cluster import ClusterClient, Forbidden, Obj, Resource, Unavailable
from rollouts.controller import executor
from rollouts.controller.executor import (
    ExecutionContext,
    ExecutionResult,
    WriteResult,
    compute_delete_batches,
    is_truncated,
    name_of,
)
from rollouts.engine.model.actions import Action, Delete, Kind, Patch
from rollouts.engine.model.observed import Clique, Gang, Group, Observed, Pod
from tests.controller.writes import NOTHING, bare, observed_clique, result_of


class Notes:
    """A cluster that only records the order of calls; `answer` may raise."""

    def __init__(
        self, answer: Callable[[str], Obj] = lambda _name: {"metadata": {"uid": "u", "resourceVersion": "1"}}
    ) -> None:
        self.calls: list[tuple[str, str]] = []
        self._answer = answer
        self._lock = threading.Lock()

    def create(self, _resource: Resource, obj: Obj) -> Obj:
        return self._note("create", obj["metadata"]["name"])

    def delete(self, _resource: Resource, name: str, **_options: Any) -> Obj:
        return self._note("delete", name)

    def patch_merge(self, _resource: Resource, name: str, _patch: Obj, **_place: Any) -> Obj:
        return self._note("patch", name)

    def _note(self, verb: str, name: str) -> Obj:
        with self._lock:
            self.calls.append((verb, name))
        return self._answer(name)


def send_to(notes: Notes, *actions: Action, observed: Observed = NOTHING) -> ExecutionResult:
    """Send writes to the recording cluster."""
    return result_of(cast("ClusterClient", notes), actions, ExecutionContext("web", observed, "1"))


def pods(*told: tuple[str, str, str]) -> tuple[Pod, ...]:
    """Return pods by name, clique and template."""
    rest = {"created": 0.0, "node": "n", "phase": "Running", "ready": True, "leaving": False, "gated": False}
    return tuple(
        Pod(name=name, uid=f"u-{name}", clique=clique, index=0, template_hash=template, **cast("Any", rest))
        for name, clique, template in told
    )


def clique_in(name: str, replica: int) -> Clique:
    """Return a PodClique of a replica of the set."""
    clique = observed_clique({"metadata": {"name": name, "uid": f"u-{name}", "resourceVersion": "1"}})
    return replace(clique, replica=replica)


def group_in(name: str, replica: int) -> Group:
    """Return a scaling group of a replica of the set."""
    return Group(name, f"u-{name}", "1", 1, 0.0, "sg", replica, 1, 1, leaving=False, status={})


def going(kind: Kind, *names_: str) -> list[Delete]:
    """Return deletions by name."""
    return [Delete(kind, name, f"u-{name}", "Outdated") for name in names_]


def rounds(deletes: list[Delete], observed: Observed) -> list[set[str]]:
    """Return the names of what is deleted together."""
    return [{delete.name for delete in part} for part in compute_delete_batches(deletes, observed)]


def test_pods_of_one_clique_and_template_are_deleted_at_once() -> None:
    observed = Observed(pods=pods(("a", "c", "old"), ("b", "c", "old")), cliques=(clique_in("c", 0),))
    assert rounds(going(Kind.POD, "a", "b"), observed) == [{"a", "b"}]


def test_what_stays_the_same_is_deleted_before_what_is_outdated() -> None:
    told = pods(("same", "c", "new"), ("a", "c", "old"), ("b", "c", "old"))
    observed = Observed(pods=told, cliques=(clique_in("c", 0),))
    assert rounds(going(Kind.POD, "same", "a", "b"), observed) == [{"same"}, {"a", "b"}]


def test_parts_of_a_replica_are_deleted_one_by_one_and_replicas_side_by_side() -> None:
    observed = Observed(
        groups=(group_in("g0", 0), group_in("g1", 1)),
        gangs=(Gang("gang0", "u-gang0", "1", 0, leaving=False, pod_groups={}, status={}),),
        cliques=(clique_in("c0", 0), clique_in("c1", 1)),
    )
    deletes = [
        *going(Kind.GANG, "gang0"),
        *going(Kind.GROUP, "g0"),
        *going(Kind.CLIQUE, "c0"),
        *going(Kind.GROUP, "g1"),
        *going(Kind.CLIQUE, "c1"),
    ]
    assert rounds(deletes, observed) == [{"gang0", "g1"}, {"g0", "c1"}, {"c0"}]


def test_stages_follow_each_other() -> None:
    notes = Notes()
    observed = Observed(pods=pods(("x", "c", "old"), ("y", "c", "old")), cliques=(clique_in("c", 0),))
    patches = [Patch(Kind.CLIQUE, name, "u", "", {}) for name in ("p", "q")]
    send_to(notes, bare("a"), bare("b"), *patches, *going(Kind.POD, "x", "y"), observed=observed)
    assert [verb for verb, _ in notes.calls] == ["create"] * 2 + ["patch"] * 2 + ["delete"] * 2


def test_nothing_is_sent_after_a_write_without_an_answer() -> None:
    def answer(name: str) -> Obj:
        if name == "x":
            raise Unavailable("cut off")
        return {"metadata": {"uid": "u", "resourceVersion": "1"}}

    notes = Notes(answer)
    told = pods(("x", "c", "old"), ("y", "d", "old"))
    observed = Observed(pods=told, cliques=(clique_in("c", 0), clique_in("d", 0)))
    applied = send_to(notes, bare("a"), *going(Kind.POD, "x", "y"), observed=observed)
    assert notes.calls == [("create", "a"), ("delete", "x")]
    assert isinstance(applied.failure, Unavailable)
    assert [name_of(action) for action in applied.unconfirmed] == ["x"]


def test_what_is_forbidden_is_not_asked_for_again_while_other_things_go_on() -> None:
    def answer(name: str) -> Obj:
        if name.startswith("p"):
            raise Forbidden("exceeded quota")
        return {"metadata": {"uid": "u", "resourceVersion": "1"}}

    notes = Notes(answer)
    observed = Observed(pods=pods(("x", "c", "old")), cliques=(clique_in("c", 0),))
    creates = [bare(f"p{number}") for number in range(300)]
    applied = send_to(notes, *creates, *going(Kind.POD, "x"), observed=observed)
    assert len([verb for verb, _ in notes.calls if verb == "create"]) <= executor.WRITER_THREADS
    assert notes.calls[-1] == ("delete", "x")
    assert applied.failure is None
    assert len(applied.with_result(WriteResult.SKIPPED)) >= 300 - executor.WRITER_THREADS


def test_a_long_plan_is_cut_short_at_its_beginning() -> None:
    notes = Notes()
    writes = [bare(f"p{number}") for number in range(executor.MAX_WRITES_PER_PASS + 10)]
    assert is_truncated(writes, send_to(notes, *writes).writes)
    assert len(notes.calls) == executor.MAX_WRITES_PER_PASS
