"""Commands to a workload of Grove's own operator are refused, and nothing is written."""

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from redis import Redis

from rollouts import mirror, models
from rollouts.accounts.errors import ClusterUnavailable, CommandRefused, InvalidState
from rollouts.cluster import ClusterClient, kubeconfig
from rollouts.cluster.resources import PODCLIQUESETS
from rollouts.engine.manifest.edits import ImageEdit
from rollouts.mirror.other_operator import GROVE_FINALIZER, GROVE_MANAGER
from rollouts.models import User
from rollouts.services import workload_client
from rollouts.services.apply import workload_apply
from rollouts.services.audit import Caller, Source
from rollouts.services.changes import execute
from rollouts.services.takeover import workload_take_over
from rollouts.services.workload_deletion import workload_delete
from rollouts.services.workloads import edit_strategy, restart, scale, set_images
from tests import groves_operator
from tests.apiserver import ApiServer
from tests.contract.manifests import pod_clique_set
from tests.groves_operator import PLACE, Rival, keep_by_grove, list_all, made_by_grove, mark_definition, renew_lease
from tests.project.running import wait_until
from tests.watcher.watching import SECONDS, is_complete, watching

pytestmark = [pytest.mark.apiserver, pytest.mark.django_db(transaction=True)]

server, admin = groves_operator.server, groves_operator.admin


@pytest.mark.parametrize(
    ("appear", "sentence"),
    [
        (partial(mark_definition, value=None), "is not Grove UI's"),
        (partial(renew_lease, ago=0), "renews the lease"),
        (lambda _: None, "so it still runs. Stop it"),
    ],
    ids=["definition", "lease", "managed fields"],
)
def test_a_workload_is_not_taken_over_while_another_operator_runs(
    *,
    server: ApiServer,
    admin: ClusterClient,
    redis: Redis,
    monkeypatch: pytest.MonkeyPatch,
    appear: Callable[[ClusterClient], Any],
    sentence: str,
) -> None:
    monkeypatch.setattr(workload_client, "cluster_names", lambda: ("real",))
    monkeypatch.setattr(workload_client, "shared_cluster", lambda *_: ClusterClient(kubeconfig(server.kubeconfig)))
    caller = Caller(User.objects.create_superuser("ada"), "ada", None, "test-request", Source.API)
    rival = Rival(admin, admin.create(PODCLIQUESETS, pod_clique_set("default", "my")), (GROVE_FINALIZER,))
    rival.reconcile()
    appear(admin)
    before = list_all(admin)
    for dry_run in (True, False):
        with pytest.raises(InvalidState, match=sentence):
            workload_take_over(caller, PLACE, dry_run=dry_run)
    assert list_all(admin) == before


def test_a_command_is_refused_with_the_same_sentence(
    server: ApiServer, admin: ClusterClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workload_client, "cluster_names", lambda: ("real",))
    monkeypatch.setattr(workload_client, "shared_cluster", lambda *_: ClusterClient(kubeconfig(server.kubeconfig)))
    mirror.ensure_cluster("real")
    models.Cluster.objects.update(complete=True)
    assert workload_client.open_writable_client(PLACE).place == PLACE
    mark_definition(admin, None)
    with pytest.raises(InvalidState, match="is not Grove UI's"):
        workload_client.open_writable_client(PLACE)
    assert workload_client.open_client(PLACE).place == PLACE


# ---- commands to a workload that the mirror does not know

COMMANDS: dict[str, Callable[[Caller], object]] = {
    "strategy": lambda caller: execute(caller, PLACE, edit_strategy({"type": "OnDelete"})),
    "images": lambda caller: execute(caller, PLACE, set_images([ImageEdit("worker", "app:v2")])),
    "scale": lambda caller: execute(caller, PLACE, scale(3)),
    "scale one replica": lambda caller: execute(caller, PLACE, scale(3, "worker", 0)),
    "restart": lambda caller: execute(caller, PLACE, restart()),
    "apply": lambda caller: workload_apply(caller, PLACE, pod_clique_set("default", "my", replicas=2)),
    "delete": lambda caller: workload_delete(caller, PLACE),
}


@pytest.fixture
def caller(server: ApiServer, monkeypatch: pytest.MonkeyPatch) -> Caller:
    """A caller with all permissions, in the only cluster."""
    cluster = ClusterClient(kubeconfig(server.kubeconfig))
    monkeypatch.setattr(workload_client, "cluster_names", lambda: ("real",))
    monkeypatch.setattr(workload_client, "shared_cluster", lambda *_: cluster)
    return Caller(User.objects.create_superuser("ada"), "ada", None, "test-request", Source.API)


def refusal_of(command: Callable[[Caller], object], caller: Caller) -> tuple[type[CommandRefused], str]:
    """Run a command, and return the error."""
    with pytest.raises(CommandRefused) as refused:
        command(caller)
    return refused.type, refused.value.sentence


@pytest.mark.parametrize("name", COMMANDS)
def test_while_the_cluster_is_being_listed_nobody_commands_anything(
    name: str, admin: ClusterClient, redis: Redis, caller: Caller
) -> None:
    """The mirror does not know yet which operator manages the workload."""
    admin.create(PODCLIQUESETS, pod_clique_set("default", "my"))
    keep_by_grove(admin)
    before = list_all(admin)
    kind, sentence = refusal_of(COMMANDS[name], caller)
    assert (kind, list_all(admin)) == (ClusterUnavailable, before)
    assert "objects of real are still being listed" in sentence


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_looks_at_the_set_itself_where_the_mirror_has_none(
    name: str, admin: ClusterClient, redis: Redis, caller: Caller
) -> None:
    mirror.ensure_cluster("real")
    models.Cluster.objects.update(complete=True)
    admin.create(PODCLIQUESETS, pod_clique_set("default", "my"))
    keep_by_grove(admin)
    before = list_all(admin)
    kind, sentence = refusal_of(COMMANDS[name], caller)
    assert (kind, list_all(admin)) == (InvalidState, before)
    assert "Grove's own operator manages this set" in sentence


def test_a_command_looks_at_who_wrote_the_set_last_where_the_mirror_has_an_older_one(
    admin: ClusterClient, redis: Redis, caller: Caller, server: ApiServer
) -> None:
    admin.create(PODCLIQUESETS, pod_clique_set("default", "my"))
    with watching("real", partial(ClusterClient, kubeconfig(server.kubeconfig)), redis):
        wait_until(lambda: is_complete("real"), SECONDS)
    note = {"metadata": {"name": "my", "namespace": "default", "annotations": {"grove.io/reconcile-trigger": "1"}}}
    admin.apply(PODCLIQUESETS, note, field_manager=GROVE_MANAGER)
    before = list_all(admin)
    kind, sentence = refusal_of(COMMANDS["scale"], caller)
    assert (kind, list_all(admin)) == (InvalidState, before)
    assert "wrote PodCliqueSet my after Grove UI" in sentence


def test_a_component_that_grove_wrote_last_is_not_scaled(admin: ClusterClient, redis: Redis, caller: Caller) -> None:
    mirror.ensure_cluster("real")
    models.Cluster.objects.update(complete=True)
    resource, clique = next(made_by_grove(admin.create(PODCLIQUESETS, pod_clique_set("default", "my"))))
    admin.apply(resource, clique, field_manager=GROVE_MANAGER)
    before = list_all(admin)
    kind, sentence = refusal_of(COMMANDS["scale one replica"], caller)
    assert (kind, list_all(admin)) == (InvalidState, before)
    assert "wrote PodClique my-0-worker after Grove UI" in sentence
