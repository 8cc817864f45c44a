"""Rows for every table of the admin site, as many as a test wants."""

from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any

from django.contrib.auth.models import Group
from django.utils import timezone

from rollouts import models
from tests.engine.manifests import small

Fill = Callable[[models.Cluster, int], None]


def _mirrored(model: Any, **values: Any) -> Fill:
    def fill(cluster: models.Cluster, number: int) -> None:
        model.objects.bulk_create(
            model(
                cluster=cluster,
                namespace="" if model is models.Node else f"team-{index % 7}",
                name=f"thing-{index:04}",
                uid=f"uid-{index}",
                resource_version=index,
                created=1.0e9,
                **values,
            )
            for index in range(number)
        )

    return fill


def _users(_: models.Cluster, number: int) -> None:
    made = models.User.objects.bulk_create(models.User(username=f"person-{index:04}") for index in range(number))
    viewer = Group.objects.get(name="viewer")
    viewer.user_set.add(*made)


def _groups(_: models.Cluster, number: int) -> None:
    Group.objects.bulk_create(Group(name=f"group-{index:04}") for index in range(number))


def _tokens(_: models.Cluster, number: int) -> None:
    user = models.User.objects.create(username="owner")
    models.ApiToken.objects.bulk_create(
        models.ApiToken(user=user, name="pipeline", prefix="grove_abc", digest=f"{index:064}")
        for index in range(number)
    )


def _grants(_: models.Cluster, number: int) -> None:
    user, author = models.User.objects.create(username="granted"), models.User.objects.create(username="granting")
    models.NamespaceGrant.objects.bulk_create(
        models.NamespaceGrant(user=user, namespace=f"team-{index}", author=author) for index in range(number)
    )


def _levels(_: models.Cluster, number: int) -> None:
    author = models.User.objects.create(username="author-of-levels")
    models.NamespacePodSecurity.objects.bulk_create(
        models.NamespacePodSecurity(cluster="sandbox", namespace=f"team-{index}", level="privileged", author=author)
        for index in range(number)
    )


def _overrides(_: models.Cluster, number: int) -> None:
    author = models.User.objects.create(username="author")
    models.StrategyOverride.objects.bulk_create(
        models.StrategyOverride(
            namespace=f"team-{index % 7}",
            strategy="OnDelete",
            reason="a try",
            author=author,
            expires_at=timezone.now() + timedelta(hours=1),
        )
        for index in range(number)
    )


def _audit(_: models.Cluster, number: int) -> None:
    begun = models.AuditEntry.objects.bulk_create(
        models.AuditEntry(actor="ada", command="scale_workload", result="Begun", before={"replicas": 1})
        for _ in range(number)
    )
    models.AuditEntry.objects.bulk_create(
        models.AuditEntry(actor="ada", command="scale_workload", result="Done", begun=one) for one in begun
    )


def _rollouts(_: models.Cluster, number: int) -> None:
    models.Rollout.objects.bulk_create(
        models.Rollout(
            cluster="sandbox", namespace="web", name="chat", workload_uid=str(index), to_hash="a", started=at
        )
        for index, at in enumerate([timezone.now()] * number)
    )


def _steps(cluster: models.Cluster, number: int) -> None:
    _rollouts(cluster, number)
    models.Step.objects.bulk_create(
        models.Step(rollout=one, at=timezone.now(), reason="Deleted", fingerprint="f")
        for one in models.Rollout.objects.all()
    )


def _revisions(_: models.Cluster, number: int) -> None:
    models.Revision.objects.bulk_create(
        models.Revision(
            cluster="sandbox",
            namespace="web",
            name="chat",
            workload_uid=str(index),
            number=1,
            generation_hash="a",
            template=small()["spec"]["template"],
            created=timezone.now(),
        )
        for index in range(number)
    )


def _clusters(_: models.Cluster, number: int) -> None:
    models.Cluster.objects.bulk_create(models.Cluster(name=f"cluster-{index}") for index in range(number))


TABLES: Mapping[str, Fill] = {
    "rollouts/workload": _mirrored(models.Workload, manifest=small(), labels={"team": "search"}),
    "rollouts/scalinggroup": _mirrored(models.ScalingGroup),
    "rollouts/clique": _mirrored(models.Clique),
    "rollouts/pod": _mirrored(models.Pod, clique="c"),
    "rollouts/gang": _mirrored(models.Gang),
    "rollouts/service": _mirrored(models.Service),
    "rollouts/node": _mirrored(models.Node, allocatable={"cpu": "4", "nvidia.com/gpu": "8"}),
    "rollouts/cluster": _clusters,
    "rollouts/rollout": _rollouts,
    "rollouts/step": _steps,
    "rollouts/revision": _revisions,
    "rollouts/auditentry": _audit,
    "rollouts/strategyoverride": _overrides,
    "rollouts/user": _users,
    "auth/group": _groups,
    "rollouts/namespacegrant": _grants,
    "rollouts/apitoken": _tokens,
    "rollouts/namespacepodsecurity": _levels,
}
# What only those may see who may change it.
OF_ACCOUNTS = (
    *("rollouts/user", "auth/group", "rollouts/namespacegrant", "rollouts/apitoken"),
    "rollouts/namespacepodsecurity",
)
