"""kubectl on both servers: install, list with columns, explain, scale, apply the samples."""

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.apiserver import find_binary
from tests.deploy.conftest import Server
from tests.deploy.manifests import ROOT
from tests.deploy.sets import Sets
from tests.parts import missing

HEADINGS = {
    "pcs": "NAME REPLICAS AVAILABLE UPDATED PCLQS-UPDATED PCLQS-TOTAL PCSGS-UPDATED PCSGS-TOTAL AGE",
    "pclq": "NAME MINAVAIL REPLICAS READY SCHEDULED UPDATED AGE",
    "pcsg": "NAME MINAVAIL REPLICAS AVAILABLE SCHEDULED UPDATED PCLQS-UPDATED PCLQS-TOTAL AGE",
    "pg": "NAME PHASE AGE",
}
OBJECTS = {
    "pclq": ("grove.io", "PodClique", "podcliques", {"replicas": 2, "podSpec": {"containers": [{"name": "main"}]}}),
    "pcsg": ("grove.io", "PodCliqueScalingGroup", "podcliquescalinggroups", {"cliqueNames": ["worker"]}),
    "pg": ("scheduler.grove.io", "PodGang", "podgangs", {"podgroups": []}),
}

Kubectl = Callable[..., subprocess.CompletedProcess[str]]


def kubectl_for(kubeconfig: Path, home: Path) -> Kubectl:
    """Return a function that runs kubectl against a server, with a home of its own for its caches."""
    binary = find_binary("kubectl")
    if binary is None:
        missing("kubectl", "put it on the PATH or into KUBEBUILDER_ASSETS (.ci/run builds it)")

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [binary, *arguments],
            env=os.environ | {"KUBECONFIG": str(kubeconfig), "HOME": str(home)},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )

    return run


@pytest.fixture
def kubectl(server: Server, tmp_path: Path) -> Kubectl:
    """Kubectl against each of the two servers."""
    return kubectl_for(server.kubeconfig, tmp_path)


@pytest.mark.apiserver
def test_the_definitions_are_installed_by_plain_apply_and_stay_unchanged_by_another(
    apiserver: Server, tmp_path: Path
) -> None:
    run = kubectl_for(apiserver.kubeconfig, tmp_path)
    first = run("apply", "--validate=strict", "-f", str(ROOT / "deploy" / "crds"))
    assert first.returncode == 0, first.stderr
    second = run("apply", "--validate=strict", "-f", str(ROOT / "deploy" / "crds"))
    assert second.stderr == ""
    assert [line.split()[-1] for line in second.stdout.splitlines()] == ["unchanged"] * 4


@pytest.mark.parametrize("short_name", OBJECTS)
def test_kinds_are_listed_by_short_name_with_groves_columns(sets: Sets, kubectl: Kubectl, short_name: str) -> None:
    group, kind, plural, spec = OBJECTS[short_name]
    manifest = {"apiVersion": f"{group}/v1alpha1", "kind": kind, "metadata": {"name": "example"}, "spec": spec}
    path = f"/apis/{group}/v1alpha1/namespaces/{sets.namespace}/{plural}"
    _ = sets.raw.call("POST", path, manifest).obj
    listed = kubectl("get", short_name, "-n", sets.namespace)
    assert " ".join(listed.stdout.splitlines()[0].split()) == HEADINGS[short_name], listed
    assert listed.stdout.splitlines()[1].startswith("example")


def test_the_samples_are_applied_in_one_go_and_listed(sets: Sets, kubectl: Kubectl) -> None:
    applied = kubectl("apply", "-n", sets.namespace, "-f", str(ROOT / "deploy" / "samples"))
    assert applied.returncode == 0, applied.stderr
    listed = kubectl("get", "pcs", "-n", sets.namespace).stdout.splitlines()
    assert " ".join(listed[0].split()) == HEADINGS["pcs"]
    names = [line.split()[0] for line in listed[1:]]
    assert names == ["agg-multi", "chat-single", "disagg-surge", "disagg-tight", "interrupted", "training-workload"]
    again = kubectl("apply", "-n", sets.namespace, "-f", str(ROOT / "deploy" / "samples"))
    assert [line.split()[-1] for line in again.stdout.splitlines()] == ["unchanged"] * 6, again.stdout


def test_a_field_is_explained_in_our_words(kubectl: Kubectl) -> None:
    explained = kubectl("explain", "pcs.spec.updateStrategy.rollingUpdate.maxSurge").stdout
    assert "How many may exist beyond the replicas" in " ".join(explained.split())


def test_a_set_is_scaled_by_its_short_name(sets: Sets, kubectl: Kubectl) -> None:
    sample = ROOT / "deploy" / "samples" / "single-node-aggregated.yaml"
    assert kubectl("apply", "-n", sets.namespace, "-f", str(sample)).returncode == 0
    scaled = kubectl("scale", "pcs/chat-single", "--replicas=3", "-n", sets.namespace)
    assert scaled.returncode == 0, scaled.stderr
    assert sets.get("chat-single")["spec"]["replicas"] == 3


def test_a_mistyped_field_is_refused_and_named(sets: Sets, kubectl: Kubectl, tmp_path: Path) -> None:
    sample = (ROOT / "deploy" / "samples" / "single-node-aggregated.yaml").read_text()
    mistyped = tmp_path / "mistyped.yaml"
    mistyped.write_text(sample.replace("maxSurge: 1}", "maxsurge: 1}"))
    refused = kubectl("apply", "-n", sets.namespace, "-f", str(mistyped))
    assert refused.returncode == 1
    assert 'unknown field "spec.template.cliques[1].updateStrategy.maxsurge"' in refused.stderr
