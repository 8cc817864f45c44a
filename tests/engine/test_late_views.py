"""Plans from a stale view: no budget is spent twice, and everything converges once the view is current.

The controller sees its own writes, so its view has every live object. An object that it believes to be live may be
gone, and one that it believes to be available may be broken; the budget holds for what the controller can know.
"""

from dataclasses import dataclass, field

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rollouts.engine.model.actions import Create, Delete, Plan
from rollouts.engine.model.observed import Observed
from rollouts.engine.model.workload import Workload
from rollouts.engine.simulation.cluster import ClusterBehaviour, SimulatedCluster
from tests.engine.chance import (
    AUTOMATIC,
    GENTLE,
    assert_all_there,
    assert_within_budget,
    clusters,
    counts,
    delete_clique,
    finish,
    workloads,
)
from tests.engine.late import LateCluster, place_of
from tests.engine.simulated import Cluster, settled
from tests.thoroughness import examples

sometimes = settings(max_examples=examples(5), deadline=None, suppress_health_check=[HealthCheck.too_slow])
DISTURBANCES = [*GENTLE, delete_clique]


@dataclass
class Watch:
    """A controller with a late view, checked after every pass."""

    late: LateCluster
    deleted: set[str] = field(default_factory=set)

    @property
    def cluster(self) -> Cluster:
        return self.late.cluster

    def step(self, hear: int) -> Plan:
        """Plan from the view, carry the plan out, and apply some of the events to the view."""
        known, planned = self.late.known(), self.late.plan()
        self._assert_nothing_is_deleted_twice(planned)
        self._assert_the_budget_is_kept(known, planned)
        there = self.late.world.observed()
        refused = self.late.write(planned.actions)
        self._assert_no_more_are_there_than_may_be(known, there)
        self.late.fetch(refused)
        self.late.hear(hear)
        return planned

    def _assert_the_budget_is_kept(self, known: Observed, planned: Plan) -> None:
        """Carry the plan out in a cluster that equals the view, and check the budgets."""
        believed = SimulatedCluster(known, self.cluster.behaviour, self.late.world.now)
        believed.apply(planned.actions)
        workload = self.cluster.workload
        scaled_in = any(isinstance(one, Delete) and one.reason == "ScaledIn" for one in planned.actions)
        after = counts(workload, believed.observed())
        assert_within_budget(workload, counts(workload, known), after, scaled_in=scaled_in)

    def _assert_no_more_are_there_than_may_be(self, known: Observed, there: Observed) -> None:
        """Assert that there are no more than R + S units and surplus, with the R that the plan knew.

        Surplus that may not go yet takes no room from a missing original.
        """
        wanted = counts(self.cluster.workload, known)
        before = counts(self.cluster.workload, there)
        for name, count in counts(self.cluster.workload, self.late.world.observed()).items():
            if name in wanted and name in before:
                most = wanted[name].wanted + max(wanted[name].budget.max_surge, wanted[name].extra)
                assert count.live <= max(before[name].live, most), (name, count)
        taken = [(pod.clique, pod.index) for pod in self.late.world.pods.values() if not pod.leaving]
        assert len({*taken}) == len(taken)

    def _assert_nothing_is_deleted_twice(self, planned: Plan) -> None:
        uids = [action.uid for action in planned.actions if isinstance(action, Delete)]
        assert len({*uids}) == len(uids)
        assert not self.deleted & {*uids}
        self.deleted.update(uids)

    def run(self, passes: int, data: st.DataObject) -> None:
        for _ in range(passes):
            planned = self.step(data.draw(st.integers(0, 8)))
            if not planned.actions and self.late.world.next_at is not None:
                self.late.world.advance()


@sometimes
@given(workloads(AUTOMATIC), clusters(), st.data())
def test_a_late_view_never_spends_twice_and_converges_when_it_catches_up(
    start: Workload, behaviour: ClusterBehaviour, data: st.DataObject
) -> None:
    watch = Watch(LateCluster(settled(start, behaviour)))
    for _ in range(data.draw(st.integers(1, 5))):
        data.draw(st.sampled_from(DISTURBANCES))(watch.cluster, data.draw)
        watch.run(data.draw(st.integers(0, 12)), data)
    watch.late.hear(None)
    finish(watch.cluster)
    assert_all_there(watch.cluster)
    assert not any(unit.outdated for unit in watch.cluster.view.set_units())


@sometimes
@given(workloads(AUTOMATIC), clusters(), st.data())
def test_creates_whose_answer_was_lost_are_refused_when_they_are_repeated(
    start: Workload, behaviour: ClusterBehaviour, data: st.DataObject
) -> None:
    """The worker stopped between a write and its record: the view is the same, so the plan is the same."""
    watch = Watch(LateCluster(settled(start, behaviour)))
    watch.cluster.update()
    for _ in range(data.draw(st.integers(1, 4))):
        watch.run(data.draw(st.integers(1, 8)), data)
        planned = watch.late.plan()
        lost = [action for action in planned.actions if isinstance(action, Create)]
        watch.late.world.apply(lost)
        before = {*watch.late.world.pods}
        assert watch.late.plan() == planned
        assert {place_of(one) for one in watch.late.write(planned.actions) if isinstance(one, Create)} == {
            place_of(one) for one in lost
        }
        assert {*watch.late.world.pods} <= before
        watch.late.fetch(lost)
    watch.late.hear(None)
    finish(watch.cluster)
    assert_all_there(watch.cluster)
