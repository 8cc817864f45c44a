"""A code and a sentence say what is wrong with a cluster, and both end by themselves."""

from collections.abc import Iterator
from functools import partial

import pytest
from redis import Redis

from rollouts import models
from rollouts.cluster import (
    ClusterClient,
    ClusterError,
    Forbidden,
    Misconfigured,
    Resource,
    RetryPolicy,
    Throttled,
    Unauthorized,
    Unavailable,
    UnknownResource,
    kubeconfig,
)
from rollouts.cluster.resources import CUSTOMRESOURCEDEFINITIONS, PODCLIQUES, PODCLIQUESETS, PODS
from rollouts.watcher.health import find_health_issue
from tests.apiserver import HOW_TO_GET_THEM, ApiServer, install_definitions, missing_binaries, running_apiserver
from tests.contract.manifests import pod_clique_set
from tests.parts import missing
from tests.project.running import wait_until
from tests.watcher.watching import SECONDS, is_complete, trouble, watching

EAGER = RetryPolicy(deadline=10, initial_backoff=0.05, max_backoff=0.5)

AWAY = Unavailable("list pods: the API server cannot be reached")


@pytest.mark.parametrize(
    ("failures", "code", "sentence"),
    [
        ({PODS: AWAY, PODCLIQUES: Forbidden("no")}, "Unreachable", "The API server cannot be reached (list pods)."),
        ({PODS: Throttled("slow down")}, "Unreachable", "slow down"),
        (
            {PODS: AWAY, PODCLIQUES: Unauthorized("list podcliques: Unauthorized (401)", code=401)},
            "Unauthorized",
            "The API server rejects the request to list podcliques: Unauthorized (401).",
        ),
        ({PODS: Misconfigured("no such file")}, "Misconfigured", "no such file"),
        (
            {PODS: Forbidden("no"), PODCLIQUES: Forbidden("no"), PODCLIQUESETS: UnknownResource("what?")},
            "Forbidden",
            "Grove UI's account may not list and watch podcliques.grove.io, pods. Grant it a role that allows both.",
        ),
        (
            {PODCLIQUES: UnknownResource("what?"), PODCLIQUESETS: UnknownResource("what?")},
            "MissingDefinitions",
            "The cluster does not serve podcliques.grove.io, podcliquesets.grove.io. Apply deploy/crds.",
        ),
    ],
)
def test_of_several_failures_the_one_that_explains_most_is_told(
    failures: dict[Resource, ClusterError], code: str, sentence: str
) -> None:
    finding = find_health_issue(failures)
    assert finding is not None
    assert (finding.code, finding.message) == (code, sentence)


def test_without_failures_nothing_is_wrong() -> None:
    assert find_health_issue({}) is None


@pytest.fixture
def server() -> Iterator[ApiServer]:
    """A real API server without our CRDs."""
    if lacking := missing_binaries():
        missing(" and ".join(lacking), HOW_TO_GET_THEM)
    with running_apiserver() as running:
        yield running


@pytest.mark.apiserver
@pytest.mark.database
@pytest.mark.django_db(transaction=True)
def test_missing_definitions_and_permissions_are_said_and_waited_for(server: ApiServer, redis: Redis) -> None:
    admin = ClusterClient(kubeconfig(server.kubeconfig))
    restricted = partial(ClusterClient, kubeconfig(server.kubeconfig, "restricted"), retry_policy=EAGER)
    with (
        watching("real", partial(ClusterClient, kubeconfig(server.kubeconfig), retry_policy=EAGER), redis) as heard,
        watching("poor", restricted, redis),
    ):
        # Each kind is listed separately, so the sentence grows until all of them are rejected.
        lacking = "podcliques.grove.io, podcliquescalinggroups.grove.io, podcliquesets.grove.io"
        wait_until(lambda: lacking in trouble("real")[1], SECONDS)
        assert trouble("real")[0] == "MissingDefinitions"
        wait_until(lambda: "may not list and watch nodes, " in trouble("poor")[1], SECONDS)
        assert trouble("poor")[0] == "Forbidden"
        assert not is_complete("real")

        install_definitions(admin)
        admin.create(PODCLIQUESETS, pod_clique_set("default", "my"))
        wait_until(lambda: is_complete("real") and trouble("real") == ("", ""), SECONDS)
        wait_until(lambda: "real/default/my" in heard.woken, SECONDS)
        assert models.Workload.objects.get().cluster.name == "real"
        assert trouble("poor")[0] == "Forbidden"

        # A CRD is deleted: the problem is reported, and the mirror stays until the cluster can be read again.
        admin.delete(CUSTOMRESOURCEDEFINITIONS, "podgangs.scheduler.grove.io")
        wait_until(lambda: "does not serve podgangs.scheduler.grove.io. Apply" in trouble("real")[1], SECONDS)
        assert trouble("real")[0] == "MissingDefinitions"
        assert models.Workload.objects.exists()
