"""The sandbox rejects PodCliqueSets by the engine's rules, also where schema and CEL cannot."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from rollouts.cluster import ClusterClient, Invalid, kubeconfig
from rollouts.cluster.resources import PODCLIQUESETS
from tests.contract.raw import Raw
from tests.contract.sandbox_process import SandboxProcess

SAMPLE = Path(__file__).parents[2] / "deploy" / "samples" / "multi-node-disaggregated-surge.yaml"


@pytest.fixture(scope="module")
def process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SandboxProcess]:
    with SandboxProcess(tmp_path_factory.mktemp("sandbox")) as process:
        yield process


@pytest.fixture(scope="module")
def cluster(process: SandboxProcess) -> ClusterClient:
    return ClusterClient(kubeconfig(process.kubeconfig))


def _set(name: str, **budget: Any) -> dict[str, Any]:
    manifest: dict[str, Any] = yaml.safe_load(SAMPLE.read_text())
    manifest["metadata"] |= {"name": name, "namespace": "default"}
    manifest["spec"]["updateStrategy"]["rollingUpdate"] = budget
    return manifest


def test_budgets_that_resolve_to_nothing_are_refused_and_the_same_with_room_accepted(cluster: ClusterClient) -> None:
    # 2 replicas: 25 % of them are none, rounded down.
    with pytest.raises(Invalid) as caught:
        cluster.create(PODCLIQUESETS, _set("small", maxUnavailable="25%", maxSurge=0))
    assert [cause.field for cause in caught.value.causes] == ["spec.updateStrategy.rollingUpdate"]
    cluster.create(PODCLIQUESETS, _set("small", maxUnavailable="50%", maxSurge=0))


def test_more_unavailable_than_replicas_is_refused_on_create_and_scaling_is_never_held_up(
    cluster: ClusterClient,
) -> None:
    with pytest.raises(Invalid) as caught:
        cluster.create(PODCLIQUESETS, _set("wide", maxUnavailable=3, maxSurge=0))
    assert caught.value.causes[0].field == "spec.updateStrategy.rollingUpdate.maxUnavailable"
    cluster.create(PODCLIQUESETS, _set("wide", maxUnavailable=2, maxSurge=0))
    scaled = cluster.patch_merge(PODCLIQUESETS, "wide", {"spec": {"replicas": 1}}, namespace="default")
    assert scaled["spec"]["replicas"] == 1


def test_fields_without_effect_are_accepted_with_a_warning_each(process: SandboxProcess) -> None:
    manifest = _set("paused", maxUnavailable=1, maxSurge=0)
    manifest["spec"] |= {"paused": True}
    raw, path = Raw(process.kubeconfig), "/apis/grove.io/v1alpha1/namespaces/default/podcliquesets"
    created = raw.call("POST", path, manifest)
    assert created.code == 201
    (warning,) = created.warnings
    assert warning.startswith('299 - "spec.paused: Grove UI does not pause updates yet')
    change = {"spec": {"progressDeadlineSeconds": 60}}
    changed = raw.call("PATCH", f"{path}/paused", change, content_type="application/merge-patch+json")
    (warning,) = changed.warnings
    assert warning.startswith('299 - "spec.progressDeadlineSeconds: ')
    labelled = {"metadata": {"labels": {"team": "a"}}}
    assert raw.call("PATCH", f"{path}/paused", labelled, content_type="application/merge-patch+json").warnings == ()
