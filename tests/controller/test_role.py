"""The role in deploy/rbac is enough for a rollout, and has no verb that nothing uses."""

from pathlib import Path
from typing import Final

import pytest
import yaml

from rollouts.cluster import ClusterClient, Forbidden, Obj
from rollouts.cluster.resources import EVENTS, NAMESPACES, PODCLIQUES, PODCLIQUESETS
from tests.builtin_resources import SECRETS
from tests.controller.loop import Loop, observe
from tests.controller.roles import allowed, restricted_user
from tests.controller.small_set import change_image, is_updated, make
from tests.scenarios.running_clusters import TargetCluster

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.usefixtures("redis"),
    pytest.mark.parametrize("target", [pytest.param("kube-apiserver", marks=pytest.mark.apiserver)], indirect=True),
]

ROLE: Final[Obj] = yaml.safe_load(Path("deploy/rbac/controller.yaml").read_text())


@pytest.fixture
def restricted(target: TargetCluster) -> ClusterClient:
    """The cluster as a user without permissions of its own sees it."""
    return restricted_user(target)


def test_a_workload_deploys_and_rolls_with_the_role(
    cluster: ClusterClient, restricted: ClusterClient, namespace: str
) -> None:
    people = make(cluster, namespace)
    ours = Loop(restricted, namespace, people.name)
    with allowed(cluster, restricted, ROLE):
        restricted.get(NAMESPACES, "kube-system")
        ours.run(people.is_complete)
        change_image(people, "example/frontend:v2")
        ours.run(lambda: is_updated(people, "example/frontend:v2"))
    assert "Denied" not in str(people.status())


def test_the_role_reads_no_secrets_and_writes_no_workloads(
    cluster: ClusterClient, restricted: ClusterClient, namespace: str
) -> None:
    people = make(cluster, namespace)
    with allowed(cluster, restricted, ROLE):
        assert restricted.get(PODCLIQUESETS, people.name, namespace=namespace)
        with pytest.raises(Forbidden):
            restricted.list(SECRETS, namespace=namespace)
        with pytest.raises(Forbidden):
            restricted.patch_merge(PODCLIQUESETS, people.name, {"spec": {"replicas": 3}}, namespace=namespace)


def test_a_write_that_the_role_lacks_is_told_on_the_set(
    cluster: ClusterClient, restricted: ClusterClient, namespace: str
) -> None:
    people = make(cluster, namespace)
    ours = Loop(restricted, namespace, people.name)
    rules = [
        {**rule, "verbs": [verb for verb in rule["verbs"] if verb != "create"]} if "pods" in rule["resources"] else rule
        for rule in ROLE["rules"]
    ]
    with allowed(cluster, restricted, {**ROLE, "rules": rules}):
        ours.run(lambda: people.condition("WriteDenied").get("status") == "True")
    told = people.condition("WriteDenied")
    assert told["reason"] == "Forbidden"
    assert "cannot create resource" in told["message"]
    with allowed(cluster, restricted, ROLE):
        ours.run(people.is_complete)
    assert not people.condition("WriteDenied")


def test_everything_mirrored_can_be_listed_with_the_role(
    cluster: ClusterClient, restricted: ClusterClient, namespace: str
) -> None:
    people = make(cluster, namespace)
    with allowed(cluster, restricted, ROLE):
        seen = observe(restricted, Loop(restricted, namespace, people.name).row, namespace)
        restricted.list(EVENTS, namespace=namespace)  # which are shown, and not mirrored
    assert PODCLIQUES in seen
