"""The mirror: what each cluster holds, one table a kind, as far as decisions and pages need it.

`rollouts.mirror` alone writes these rows and says how they move; whoever reads them finds what the cluster last said.
Dropping all of them loses nothing but the time the watcher needs to list the cluster again.

An object that is gone leaves its row behind for some minutes with `gone_at` set, so that late news of it cannot bring
it back. `objects` does not show such rows; only `rollouts.mirror` looks at `everything`.
"""

from typing import Any, ClassVar

from django.db import models

from rollouts.models.fields import OrjsonField

NAME_LENGTH = 253
LABEL_LENGTH = 63
UID_LENGTH = 64
OTHER_OPERATOR = "OtherOperator"


class Trouble(models.TextChoices):
    """Why a cluster cannot be mirrored."""

    UNREACHABLE = "Unreachable"
    UNAUTHORIZED = "Unauthorized"
    FORBIDDEN = "Forbidden"
    MISSING_DEFINITIONS = "MissingDefinitions"
    MISCONFIGURED = "Misconfigured"


class Cluster(models.Model):
    """A cluster we look after, and how we stand with it."""

    name = models.CharField(max_length=NAME_LENGTH, unique=True)
    source = models.CharField(max_length=500, blank=True)  # where its address came from: sandbox, a kubeconfig, ...
    url = models.CharField(max_length=500, blank=True)
    version = models.CharField(max_length=100, blank=True)  # of its API server
    # Tells it from another cluster that took over its name and address: the uid of its kube-system namespace.
    identity = models.CharField(max_length=UID_LENGTH, blank=True)
    # Every kind was listed into this database since the row was made; before that nobody may conclude that something
    # is missing from the cluster because it is missing here.
    complete = models.BooleanField(default=False)
    trouble_code = models.CharField(max_length=40, blank=True, choices=Trouble.choices)
    trouble = models.TextField(blank=True)  # one sentence
    trouble_since = models.DateTimeField(null=True, blank=True)
    heard_at = models.DateTimeField(null=True, blank=True)  # when it last said anything; renewed every few seconds
    # Why nothing is written there: one sentence. Empty: no other operator keeps its workloads.
    other_operator = models.TextField(blank=True)

    def __str__(self) -> str:
        return self.name

    @property
    def other_operator_code(self) -> str:
        """What keeps Grove UI from writing there, in one word; empty: nothing."""
        return OTHER_OPERATOR if self.other_operator else ""


class _PresentManager(models.Manager[Any]):
    """Shows only what is in the cluster."""

    def get_queryset(self) -> models.QuerySet[Any]:
        return super().get_queryset().filter(gone_at=None)


class Mirrored(models.Model):
    """An object of a cluster. A name has one row: what is heard of another object of that name takes its place."""

    cluster = models.ForeignKey(Cluster, on_delete=models.CASCADE, db_index=False)
    namespace = models.CharField(max_length=LABEL_LENGTH, blank=True)  # empty for what is in no namespace
    name = models.CharField(max_length=NAME_LENGTH)
    uid = models.CharField(max_length=UID_LENGTH)
    resource_version = models.BigIntegerField()
    created = models.FloatField()  # seconds since the epoch
    leaving = models.BooleanField(default=False)  # has a deletionTimestamp
    gone_at = models.FloatField(null=True, blank=True)  # seconds since the epoch; None while it is in the cluster
    # Its end was concluded and not told, so its resourceVersion is an earlier one: later ones may still be late news.
    end_inferred = models.BooleanField(default=False)
    # Of everything above that can change and everything below: news with the same digest is no news.
    digest = models.BigIntegerField(default=0)
    # Which write last changed what the row says; tells a write which of its rows were news.
    batch = models.BigIntegerField(default=0)

    objects = _PresentManager()
    everything: ClassVar[models.Manager[Any]] = models.Manager()

    class Meta:
        abstract = True
        constraints: ClassVar = [
            models.UniqueConstraint(fields=("cluster", "namespace", "name"), name="%(class)s_by_name")
        ]
        indexes: ClassVar = [
            models.Index(fields=("gone_at",), name="%(class)s_gone", condition=models.Q(gone_at__isnull=False))
        ]

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}" if self.namespace else self.name


class Workload(Mirrored):
    """A PodCliqueSet: the whole manifest, and beside it what lists show and sort by."""

    manifest = OrjsonField()  # without managedFields
    labels = OrjsonField(default=dict)
    generation = models.BigIntegerField(default=0)
    observed_generation = models.BigIntegerField(default=0)  # up to which the controller has looked at it
    replicas = models.IntegerField(default=0)
    strategy = models.CharField(max_length=40, blank=True)  # as written, or what leaving it out means
    generation_hash = models.CharField(max_length=LABEL_LENGTH, blank=True)  # status.currentGenerationHash
    updated_replicas = models.IntegerField(default=0)
    available_replicas = models.IntegerField(default=0)
    update_started_at = models.FloatField(null=True, blank=True)
    update_ended_at = models.FloatField(null=True, blank=True)
    progressing_reason = models.CharField(max_length=80, blank=True)  # of the condition Progressing
    stuck_reason = models.CharField(max_length=80, blank=True)  # of the condition UpdateStuck, while it is True
    waits_for = models.CharField(max_length=80, blank=True)  # of the same, while it is False: what an update waits for
    # Why it cannot be acted on as written: of the condition Valid while it is False, else of WriteDenied while True.
    fault_reason = models.CharField(max_length=80, blank=True)
    # Ours and not the cluster's: deletes that were sent and whose answers are not stored yet, as [kind, name, uid].
    # Written before they are sent, so that a pass after a crash asks the cluster about them before it spends budget.
    in_doubt = OrjsonField(default=list)
    # Grove's own operator wrote it after us, as its managed fields tell, or its finalizer is on it: nothing may be
    # written to its workload.
    written_by_grove = models.BooleanField(default=False)
    grove_wrote_at = models.FloatField(null=True, blank=True)  # when that operator last wrote it, whoever wrote since
    # Ours as well: writes that the cluster has refused, and until when they are held back (`rejected_writes`).
    refused = OrjsonField(default=dict)
    # And how long pods of its templates took to become Ready, for when none of them is left to measure: clique,
    # template hash, seconds, number of pods, oldest first.
    ready_times = OrjsonField(default=list)


class Owned(Mirrored):
    """An object that belongs to a workload."""

    workload = models.CharField(max_length=NAME_LENGTH, blank=True)  # name of the set, from the label part-of
    # The controller among its owners, if it is of Grove's kinds; else it only looks like ours.
    owner_uid = models.CharField(max_length=UID_LENGTH, blank=True)
    replica = models.IntegerField(default=-1)  # of the set; -1 when its labels do not say

    class Meta(Mirrored.Meta):
        abstract = True
        indexes: ClassVar = [
            *Mirrored.Meta.indexes,
            models.Index(
                fields=("cluster", "namespace", "workload", "name"),
                name="%(class)s_by_workload",
                condition=models.Q(gone_at__isnull=True),
            ),
        ]


class ScalingGroup(Owned):
    """A PodCliqueScalingGroup."""

    template = models.CharField(max_length=NAME_LENGTH, blank=True)  # its name in the set's template
    generation = models.BigIntegerField(default=0)
    replicas = models.IntegerField(default=0)
    min_available = models.IntegerField(default=0)
    template_replicas = models.IntegerField(null=True, blank=True)
    template_keys = models.TextField(blank=True)  # annotations that came from the template, by commas, and their hash
    status = OrjsonField(default=dict)
    written_by_grove = models.BooleanField(default=False)
    grove_wrote_at = models.FloatField(null=True, blank=True)


class Clique(Owned):
    """A PodClique."""

    template = models.CharField(max_length=NAME_LENGTH, blank=True)
    group = models.CharField(max_length=NAME_LENGTH, blank=True)  # name of its scaling group
    group_replica = models.IntegerField(default=-1)
    template_hash = models.CharField(max_length=LABEL_LENGTH, blank=True)
    generation = models.BigIntegerField(default=0)
    replicas = models.IntegerField(default=0)
    min_available = models.IntegerField(default=0)
    template_replicas = models.IntegerField(null=True, blank=True)
    template_keys = models.TextField(blank=True)  # labels and annotations that came from the template, by commas
    status = OrjsonField(default=dict)
    written_by_grove = models.BooleanField(default=False)
    grove_wrote_at = models.FloatField(null=True, blank=True)


class Pod(Owned):
    """A pod of a PodClique: where it is and how it does, not what it is made of."""

    clique = models.CharField(max_length=NAME_LENGTH, blank=True)  # name of its PodClique
    index = models.IntegerField(default=-1)
    template_hash = models.CharField(max_length=LABEL_LENGTH, blank=True)
    gang = models.CharField(max_length=NAME_LENGTH, blank=True)
    node = models.CharField(max_length=NAME_LENGTH, blank=True)
    ip = models.CharField(max_length=45, blank=True)
    phase = models.CharField(max_length=40, blank=True)
    ready = models.BooleanField(default=False)
    ready_since = models.FloatField(null=True, blank=True)  # when the Ready condition last changed
    gated = models.BooleanField(default=False)
    gone_by = models.FloatField(null=True, blank=True)  # its deletionTimestamp: when it should be gone at the latest
    failing = models.BooleanField(default=False)
    reason = models.CharField(max_length=200, blank=True)  # CamelCase, why it is not further: Unschedulable, ...
    message = models.TextField(blank=True)  # the same in the scheduler's or kubelet's words
    restarts = models.IntegerField(default=0)
    scheduled_at = models.FloatField(null=True, blank=True)  # when it got its node
    # What a container fails with, in one word; after a colon what stays the same meanwhile: the image, the exit code.
    # One column of both: SQLite takes a thousand pods in one statement only while a row has at most 34 columns.
    fault = models.TextField(blank=True)
    images = models.TextField(blank=True)  # of its containers, in their order, separated by spaces
    requests = OrjsonField(
        default=dict
    )  # of its node: thousandths by resource, itself as one of the `pod_strategy` included

    class Meta(Owned.Meta):
        indexes: ClassVar = [
            *Owned.Meta.indexes,
            models.Index(
                fields=("cluster", "namespace", "workload", "template_hash"),
                name="pod_by_template",
                condition=models.Q(gone_at__isnull=True),
            ),
        ]


class Gang(Owned):
    """A PodGang."""

    pod_groups = OrjsonField(default=dict)  # by PodClique: minReplicas and names of the pods referred to
    priority_class = models.CharField(max_length=NAME_LENGTH, blank=True)
    scheduler = models.CharField(max_length=LABEL_LENGTH, blank=True)  # of the label; empty: none
    status = OrjsonField(default=dict)
    written_by_grove = models.BooleanField(default=False)
    grove_wrote_at = models.FloatField(null=True, blank=True)


class Service(Owned):
    """The headless service of a replica of a set."""

    publish_not_ready_addresses = models.BooleanField(default=False)


class Node(Mirrored):
    """A node: where pods can go."""

    ready = models.BooleanField(default=False)
    unschedulable = models.BooleanField(default=False)
    labels = OrjsonField(default=dict)
    taints = OrjsonField(default=list)
    allocatable = OrjsonField(default=dict)
    # What pods that are not Grove's request here, thousandths by resource; the watcher counts them every minute. None:
    # they have not been counted yet.
    foreign_requests = OrjsonField(null=True, blank=True)
