"""Commands on the two clusters: the sandbox, and a real kube-apiserver with its companions."""

import itertools
import secrets
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from django.conf import settings
from django.test import override_settings

from rollouts import connections
from rollouts.audit import Caller, Via
from rollouts.cluster import Cluster
from rollouts.cluster.resources import NAMESPACES, PODCLIQUESETS
from rollouts.models import User
from tests.commands.stage import Stage
from tests.engine.manifests import small
from tests.scenarios.sites import Site, real_site, sandbox_site
from tests.standin import make_nodes

# One replica of a set: three pods of the clique frontend, one group replica of a leader and two workers.
ONE_REPLICA = {"spec.replicas": 1, "spec.template.podCliqueScalingGroups.0.replicas": 1}


@pytest.fixture(
    scope="session",
    params=[pytest.param("sandbox"), pytest.param("kube-apiserver", marks=pytest.mark.apiserver)],
)
def site(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """One of the two clusters, with nodes."""
    running = real_site() if request.param == "kube-apiserver" else sandbox_site(tmp_path_factory.mktemp("sandbox"))
    with running as opened:
        make_nodes(opened.cluster, [f"node-{number}" for number in range(4)])
        yield opened


@pytest.fixture
def cluster(site: Site) -> Iterator[Cluster]:
    """The cluster's API; the settings name it, for this test alone."""
    environment = replace(settings.ENVIRONMENT, clusters=("kubeconfig",), kubeconfig=site.kubeconfig)
    with override_settings(ENVIRONMENT=environment):
        connections._shared_cluster.cache_clear()
        yield site.cluster
    connections._shared_cluster.cache_clear()


_numbers = itertools.count(1)


@pytest.fixture
def namespace(cluster: Cluster) -> str:
    """A namespace that no other test uses."""
    name = f"commands-{next(_numbers)}-{secrets.token_hex(3)}"
    cluster.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    return name


@pytest.fixture
def caller() -> Caller:
    """Somebody who may do everything."""
    user = User.objects.create_superuser("ada")
    return Caller(user=user, name="ada", source_ip="192.0.2.1", request_id="test-request", via=Via.API)


@pytest.fixture
def stage(cluster: Cluster, namespace: str, redis: Any) -> Stage:
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
