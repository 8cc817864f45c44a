"""Random commands to a cluster, with nodes that are added and deleted, and kills of the sandbox.

The same invariants must hold after every command and at the end.
"""

from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from rollouts.engine.scheduling.resources import compute_requests
from rollouts.sandbox.cluster.node_info import parse_node_info
from rollouts.sandbox.cluster.pod_lifecycle import KubeletTimings
from rollouts.sandbox.conditions import find_condition
from tests.sandbox.cluster.cluster import Cluster
from tests.thoroughness import examples

NAMES = st.sampled_from([f"p{number}" for number in range(8)])
NODE_NAMES = st.sampled_from(["n0", "n1", "n2"])
IMAGES = st.sampled_from(["app:v1", "app:v1", "app:broken", "app:crash", "app:slow", "app:oom", "app:missing"])
GATES = [{"name": "example.com/wait"}]


class RandomLife(RuleBasedStateMachine):
    """One cluster under random commands."""

    @initialize()
    def start(self) -> None:
        self.directory = TemporaryDirectory()
        self.cluster = Cluster(Path(self.directory.name) / "sandbox.sqlite3", KubeletTimings())

    @rule(name=NAMES, gpus=st.integers(0, 3), image=IMAGES, gated=st.booleans(), gang=st.sampled_from(["", "g0"]))
    def add_pod(self, name: str, gpus: int, image: str, gated: bool, gang: str) -> None:
        if not self.cluster.exists(name):
            gates = GATES if gated else []
            self.cluster.add_pod(name, gpus=gpus, image=image, gang=gang, schedulingGates=gates)

    @rule(name=NAMES, force=st.booleans())
    def delete_pod(self, name: str, force: bool) -> None:
        if self.cluster.exists(name):
            self.cluster.verbs.delete(self.cluster.pods, "default", name, grace_seconds=0 if force else None)

    @rule(name=NAMES)
    def open_gate(self, name: str) -> None:
        if self.cluster.exists(name):
            self.cluster.merge(self.cluster.pods, name, {"spec": {"schedulingGates": None}}, namespace="default")

    @rule(members=st.lists(NAMES, unique=True), minimum=st.integers(0, 3))
    def put_gang(self, members: list[str], minimum: int) -> None:
        self.cluster.put_gang("g0", workers=(minimum, members))

    @rule(name=NODE_NAMES, gpus=st.integers(1, 4))
    def add_node(self, name: str, gpus: int) -> None:
        if self.cluster.store.get(self.cluster.nodes, None, name) is None:
            self.cluster.add_node(name, gpus=gpus)

    @rule(name=NODE_NAMES, cordoned=st.booleans())
    def cordon(self, name: str, cordoned: bool) -> None:
        if self.cluster.store.get(self.cluster.nodes, None, name) is not None:
            self.cluster.merge(self.cluster.nodes, name, {"spec": {"unschedulable": cordoned or None}})

    @rule(name=NODE_NAMES)
    def delete_node(self, name: str) -> None:
        if self.cluster.store.get(self.cluster.nodes, None, name) is not None:
            self.cluster.verbs.delete(self.cluster.nodes, None, name)
            self.cluster.advance()  # a new node of this name would take over the pods of the old one

    @rule(seconds=st.sampled_from([0.01, 0.5, 3.0, 30.0]))
    def let_time_pass(self, seconds: float) -> None:
        self.cluster.advance(seconds)

    @rule()
    def kill(self) -> None:
        self.cluster.restart()

    @invariant()
    def no_gated_pod_has_a_node(self) -> None:
        for pod in self.cluster.verbs.list(self.cluster.pods):
            assert not (pod["spec"].get("schedulingGates") and pod["spec"].get("nodeName"))

    @invariant()
    def no_node_is_asked_for_more_than_it_has(self) -> None:
        asked: dict[str, Counter[str]] = {}
        for pod in self.cluster.verbs.list(self.cluster.pods):
            if pod["spec"].get("nodeName"):
                asked.setdefault(pod["spec"]["nodeName"], Counter()).update(compute_requests(pod["spec"]))
        for manifest in self.cluster.verbs.list(self.cluster.nodes):
            node = parse_node_info(manifest)
            for resource, amount in asked.get(node.name, {}).items():
                assert amount <= node.allocatable.get(resource, 0)

    @invariant()
    def no_two_pods_share_an_address(self) -> None:
        addresses = [pod["status"].get("podIP") for pod in self.cluster.verbs.list(self.cluster.pods)]
        taken = [address for address in addresses if address]
        assert len(taken) == len(set(taken))

    def teardown(self) -> None:
        self.cluster.advance(60)
        self._everybody_knows_where_they_stand()
        assert self.cluster.simulation.client.write_counts["refused"] == 0
        self.cluster.close()
        self.directory.cleanup()

    def _everybody_knows_where_they_stand(self) -> None:
        nodes = {node["metadata"]["name"] for node in self.cluster.verbs.list(self.cluster.nodes)}
        for pod in self.cluster.verbs.list(self.cluster.pods):
            assert not pod["metadata"].get("deletionTimestamp"), "deleted pods end"
            if pod["spec"].get("nodeName"):
                assert pod["spec"]["nodeName"] in nodes, "pods of deleted nodes are gone"
                is_missing = pod["spec"]["containers"][0]["image"] == "app:missing"
                assert pod["status"]["phase"] == ("Pending" if is_missing else "Running")
            else:
                condition = find_condition(pod, "PodScheduled")
                assert condition
                assert condition["reason"] in ("SchedulingGated", "Unschedulable")


RandomLife.TestCase.settings = settings(
    max_examples=examples(25), stateful_step_count=30, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
TestWhateverHappensTheClusterStaysSound = RandomLife.TestCase
