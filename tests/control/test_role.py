"""The role in deploy/rbac is enough to roll a workload, and has no verb that nobody needs."""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from rollouts.cluster import Cluster, Forbidden, Obj, Patience, Resource, kubeconfig
from rollouts.cluster.resources import EVENTS, NAMESPACES, NODES, PODCLIQUES, PODCLIQUESETS, SECRETS
from tests.control.loop import Loop, observe
from tests.control.test_passes import change_image, is_updated, make
from tests.project.running import wait_until
from tests.scenarios.sites import Site

pytestmark = [
    pytest.mark.database,
    pytest.mark.django_db(transaction=True),
    pytest.mark.usefixtures("redis"),
    pytest.mark.parametrize("site", [pytest.param("kube-apiserver", marks=pytest.mark.apiserver)], indirect=True),
]

ROLE: Final[Obj] = yaml.safe_load(Path("deploy/rbac/controller.yaml").read_text())
CLUSTERROLES: Final = Resource("rbac.authorization.k8s.io", "v1", "clusterroles", "ClusterRole", namespaced=False)
BINDINGS: Final = Resource(
    "rbac.authorization.k8s.io", "v1", "clusterrolebindings", "ClusterRoleBinding", namespaced=False
)


@contextlib.contextmanager
def bound(cluster: Cluster, restricted: Cluster, rules: list[dict[str, Any]]) -> Iterator[None]:
    """Let the user `restricted` do what some rules allow."""
    cluster.create(CLUSTERROLES, {**ROLE, "rules": rules})
    subject = {"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": "restricted"}
    reference = {"kind": "ClusterRole", "apiGroup": "rbac.authorization.k8s.io", "name": ROLE["metadata"]["name"]}
    binding = {"metadata": {"name": "grove-ui"}, "subjects": [subject], "roleRef": reference}
    cluster.create(BINDINGS, {"apiVersion": ROLE["apiVersion"], "kind": "ClusterRoleBinding", **binding})
    try:
        wait_until(lambda: may_list_nodes(restricted), seconds=10)
        yield
    finally:
        cluster.delete(BINDINGS, "grove-ui")
        cluster.delete(CLUSTERROLES, ROLE["metadata"]["name"])


def may_list_nodes(cluster: Cluster) -> bool:
    """Say whether the server has taken notice of the role; it does so a moment after it is stored."""
    try:
        cluster.list(NODES)
    except Forbidden:
        return False
    return True


@pytest.fixture
def restricted(site: Site) -> Cluster:
    """The cluster as a user who may do nothing by himself."""
    return Cluster(kubeconfig(site.kubeconfig, "restricted"), patience=Patience(read=10))


def test_a_workload_deploys_and_rolls_with_the_role(cluster: Cluster, restricted: Cluster, namespace: str) -> None:
    people = make(cluster, namespace)
    ours = Loop(restricted, namespace, people.name)
    with bound(cluster, restricted, ROLE["rules"]):
        restricted.get(NAMESPACES, "kube-system")
        ours.run(people.is_complete)
        change_image(people, "example/frontend:v2")
        ours.run(lambda: is_updated(people, "example/frontend:v2"))
    assert "Denied" not in str(people.status())


def test_the_role_reads_no_secrets_and_writes_no_workloads(
    cluster: Cluster, restricted: Cluster, namespace: str
) -> None:
    people = make(cluster, namespace)
    with bound(cluster, restricted, ROLE["rules"]):
        assert restricted.get(PODCLIQUESETS, people.name, namespace=namespace)
        with pytest.raises(Forbidden):
            restricted.list(SECRETS, namespace=namespace)
        with pytest.raises(Forbidden):
            restricted.patch_merge(PODCLIQUESETS, people.name, {"spec": {"replicas": 3}}, namespace=namespace)


def test_a_write_that_the_role_lacks_is_told_on_the_set(cluster: Cluster, restricted: Cluster, namespace: str) -> None:
    people = make(cluster, namespace)
    ours = Loop(restricted, namespace, people.name)
    rules = [
        {**rule, "verbs": [verb for verb in rule["verbs"] if verb != "create"]} if "pods" in rule["resources"] else rule
        for rule in ROLE["rules"]
    ]
    with bound(cluster, restricted, rules):
        ours.run(lambda: people.condition("WriteDenied").get("status") == "True")
    told = people.condition("WriteDenied")
    assert told["reason"] == "Forbidden"
    assert "cannot create resource" in told["message"]
    with bound(cluster, restricted, ROLE["rules"]):
        ours.run(people.is_complete)
    assert not people.condition("WriteDenied")


def test_everything_mirrored_can_be_listed_with_the_role(cluster: Cluster, restricted: Cluster, namespace: str) -> None:
    people = make(cluster, namespace)
    with bound(cluster, restricted, ROLE["rules"]):
        seen = observe(restricted, Loop(restricted, namespace, people.name).row, namespace)
        restricted.list(EVENTS, namespace=namespace)  # which are shown, and not mirrored
    assert PODCLIQUES in seen
