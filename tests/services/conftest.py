"""Commands on the two clusters: the sandbox, and a real kube-apiserver with its companions."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from django.conf import settings
from django.test import override_settings

from rollouts.cluster import ClusterClient
from rollouts.cluster.resources import PODCLIQUESETS
from rollouts.engine.manifest.edits import ImageEdit
from rollouts.models import User
from rollouts.runtime import connections
from rollouts.services.audit import Caller, Source
from rollouts.services.changes import execute
from rollouts.services.workloads import edit_strategy, set_images
from tests import both_clusters
from tests.accounts import conftest as accounts
from tests.engine.manifests import small
from tests.scenarios.running_clusters import TargetCluster
from tests.services.stage import Stage

# One replica of a set: three pods of the clique frontend, one group replica of a leader and two workers.
ONE_REPLICA = {"spec.replicas": 1, "spec.template.podCliqueScalingGroups.0.replicas": 1}


target, namespace = both_clusters.target, both_clusters.namespace
make_person = accounts.make_person


@pytest.fixture
def cluster(target: TargetCluster) -> Iterator[ClusterClient]:
    """The cluster's API; the settings name it, for this test alone."""
    environment = replace(settings.ENVIRONMENT, clusters=("kubeconfig",), kubeconfig=target.kubeconfig)
    with override_settings(ENVIRONMENT=environment):
        connections._shared_cluster.cache_clear()
        yield target.cluster
    connections._shared_cluster.cache_clear()


@pytest.fixture
def caller() -> Caller:
    """Somebody who may do everything."""
    user = User.objects.create_superuser("ada")
    return Caller(user=user, name="ada", source_ip="192.0.2.1", request_id="test-request", source=Source.API)


@pytest.fixture
def stage(cluster: ClusterClient, namespace: str, redis: Any) -> Stage:
    """A small set that nobody has acted on."""
    stage = Stage(cluster, namespace, "chat", connections.cluster_names()[0])
    cluster.create(PODCLIQUESETS, small({"metadata.namespace": namespace, **ONE_REPLICA}))
    stage.observe()
    return stage


@pytest.fixture
def deployed(stage: Stage) -> Stage:
    """The same, deployed by passes of the controller."""
    stage.deploy()
    return stage


@pytest.fixture
def outdated(deployed: Stage, caller: Caller) -> Stage:
    """A deployed workload under OnDelete whose frontend has another template by now; its three pods are outdated."""
    execute(caller, deployed.place, edit_strategy({"type": "OnDelete"}))
    execute(caller, deployed.place, set_images([ImageEdit("frontend", "app:v2")]))
    deployed.deploy()
    return deployed
