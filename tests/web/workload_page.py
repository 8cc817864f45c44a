"""A workload with all levels, and its page."""

from datetime import timedelta
from typing import Any

from django.test import Client
from django.utils import timezone

from rollouts import models
from rollouts.cluster import Obj
from tests.api.read import fleet
from tests.markup import compact

CHAT = "/workloads/sandbox/default/chat/"


def chat(**fields: Any) -> Obj:
    """Return a workload with all levels."""
    cliques = [fleet.clique("web", 3), fleet.clique("leader", 1), fleet.clique("worker", 2)]
    groups = [fleet.group("decode", ["leader", "worker"], 2)]
    return fleet.podcliqueset("chat", cliques=cliques, groups=groups, **fields)


def get(client: Client, address: str = CHAT) -> str:
    """Return a page."""
    answer = client.get(address)
    assert answer.status_code == 200, answer.content
    return compact(answer.content.decode())


def add_history(row: models.Cluster, manifest: Obj) -> models.Rollout:
    """Put a rollout that is under way on record, with counts and steps."""
    made = fleet.make_history(row, manifest, rollouts=3, steps=4)
    newest = made[-1]
    newest.started, newest.ended, newest.outcome = timezone.now() - timedelta(minutes=3), None, ""
    newest.save()
    models.Sample.objects.bulk_create(
        models.Sample(
            rollout=newest,
            at=newest.started + timedelta(seconds=second),
            desired=9,
            available=9 - second % 2,
            updated=second,
            surge=second % 2,
            floor=8,
        )
        for second in range(9)
    )
    return newest
