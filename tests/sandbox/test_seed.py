"""The cluster a new sandbox starts with."""

from pathlib import Path

import pytest

from rollouts.engine.scheduling.resources import quantity_to_milli
from rollouts.sandbox.seed import NodeCounts, ensure_seeded, parse_node_counts
from tests.sandbox.cluster.cluster import Cluster

SAMPLES = Path(__file__).parents[2] / "deploy" / "samples"


def sets(cluster: Cluster) -> set[str]:
    kind = cluster.registry.kind("podcliquesets", "grove.io")
    return {entry["metadata"]["name"] for entry in cluster.verbs.list(kind)}


def nodes(cluster: Cluster) -> set[str]:
    return {entry["metadata"]["name"] for entry in cluster.verbs.list(cluster.nodes)}


def test_a_new_cluster_has_nodes_and_every_sample_but_the_large_one(cluster: Cluster) -> None:
    ensure_seeded(cluster.verbs, None, SAMPLES)
    cluster.advance()
    assert len(sets(cluster)) == len(list(SAMPLES.glob("*.yaml")))
    assert "thousand" not in sets(cluster)
    gpus = [node["status"]["capacity"].get("nvidia.com/gpu", "0") for node in cluster.verbs.list(cluster.nodes)]
    assert sum(map(quantity_to_milli, gpus)) == 64_000
    labels = cluster.node("gpu-node-0")["metadata"]["labels"]
    assert labels["node.kubernetes.io/instance-type"] == "gpu-node"
    assert labels["kubernetes.io/hostname"] == "gpu-node-0"
    assert labels["topology.kubernetes.io/zone"]


def test_what_people_delete_stays_deleted_over_a_restart(cluster: Cluster) -> None:
    ensure_seeded(cluster.verbs, None, SAMPLES)
    cluster.verbs.delete(cluster.nodes, None, "gpu-node-0")
    kind = cluster.registry.kind("podcliquesets", "grove.io")
    for name in sets(cluster):
        cluster.verbs.delete(kind, "default", name)
    cluster.restart()
    ensure_seeded(cluster.verbs, None, SAMPLES)
    assert sets(cluster) == set()
    assert "gpu-node-0" not in nodes(cluster)


def test_a_start_that_was_killed_half_way_is_completed_by_the_next(cluster: Cluster, tmp_path: Path) -> None:
    ensure_seeded(cluster.verbs, NodeCounts(cpu=1, gpu=0), None)
    note = cluster.verbs.get(cluster.registry.kind("configmaps"), "kube-system", "sandbox-world")
    cluster.verbs.delete(cluster.registry.kind("configmaps"), "kube-system", note["metadata"]["name"])
    cluster.restart()
    ensure_seeded(cluster.verbs, None, SAMPLES)
    assert len(nodes(cluster)) == 11
    assert sets(cluster)


def test_nodes_asked_for_by_number_are_added_to_an_old_cluster(cluster: Cluster) -> None:
    ensure_seeded(cluster.verbs, None, None)
    ensure_seeded(cluster.verbs, NodeCounts(cpu=12, gpu=8), None)
    assert len(nodes(cluster)) == 20


def test_a_sample_that_is_refused_does_not_keep_the_others_out(cluster: Cluster, tmp_path: Path) -> None:
    config = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: %s}\n"
    (tmp_path / "a.yaml").write_text("apiVersion: example.com/v1\nkind: Nothing\nmetadata: {name: a}\n")
    (tmp_path / "b.yaml").write_text("{ not yaml")
    (tmp_path / "c.yaml").write_text(config % "Not_A_Name")
    (tmp_path / "d.yaml").write_text(config % "good" + "---\n" + config % "better")
    ensure_seeded(cluster.verbs, NodeCounts(0, 0), tmp_path)
    found = cluster.verbs.list(cluster.registry.kind("configmaps"), "default")
    assert [entry["metadata"]["name"] for entry in found] == ["better", "good"]


def test_node_counts_are_read_from_text() -> None:
    assert parse_node_counts("cpu=10") == NodeCounts(cpu=10, gpu=8)
    assert parse_node_counts("gpu=0, cpu=1") == NodeCounts(cpu=1, gpu=0)
    for wrong in ("ten", "cpu=-1", "tpu=4", "cpu"):
        with pytest.raises(ValueError, match="expected something like"):
            parse_node_counts(wrong)
