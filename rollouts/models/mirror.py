"""The mirror: the objects of each cluster, one table for each kind, with the columns that decisions and pages need.

Only `rollouts.mirror` writes these rows, and it has the rules; a row holds the last state that the cluster reported. If
all rows are lost, the watcher lists the clusters again.

The row of an object that is gone stays for some minutes with `gone_at` set, so that a late report does not bring it
back. `objects` leaves such rows out; only `rollouts.mirror` reads `everything`.
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
    """A cluster, and whether it can be mirrored."""

    name = models.CharField(max_length=NAME_LENGTH, unique=True)
    source = models.CharField(max_length=500, blank=True)  # where its address is from: sandbox, a kubeconfig, ...
    url = models.CharField(max_length=500, blank=True)
    version = models.CharField(max_length=100, blank=True)  # of its API server
    # The uid of its kube-system namespace: another cluster may have taken over the name and the address.
    identity = models.CharField(max_length=UID_LENGTH, blank=True)
    # Whether every kind has been listed into this database since the row was created. Before that, a missing row does
    # not mean that the object is missing from the cluster.
    complete = models.BooleanField(default=False)
    trouble_code = models.CharField(max_length=40, blank=True, choices=Trouble.choices)
    trouble = models.TextField(blank=True)  # one sentence
    trouble_since = models.DateTimeField(null=True, blank=True)
    heard_at = models.DateTimeField(null=True, blank=True)  # when it last sent anything; updated every few seconds
    # Why nothing is written to it, as a sentence; empty: no other operator manages its workloads.
    other_operator = models.TextField(blank=True)

    def __str__(self) -> str:
        return self.name

    @property
    def other_operator_code(self) -> str:
        """The code of the reason why nothing is written to it; empty: there is none."""
        return OTHER_OPERATOR if self.other_operator else ""


class _PresentManager(models.Manager[Any]):
    """Leaves out the rows of objects that are gone."""

    def get_queryset(self) -> models.QuerySet[Any]:
        return super().get_queryset().filter(gone_at=None)


class Mirrored(models.Model):
    """An object of a cluster. A name has one row: a later object with the same name replaces the earlier one."""

    cluster = models.ForeignKey(Cluster, on_delete=models.CASCADE, db_index=False)
    namespace = models.CharField(max_length=LABEL_LENGTH, blank=True)  # empty: the kind has no namespaces
    name = models.CharField(max_length=NAME_LENGTH)
    uid = models.CharField(max_length=UID_LENGTH)
    resource_version = models.BigIntegerField()
    created = models.FloatField()  # seconds since the epoch
    leaving = models.BooleanField(default=False)  # has a deletionTimestamp
    gone_at = models.FloatField(null=True, blank=True)  # seconds since the epoch; None while it is in the cluster
    # Its end was inferred and not reported, so its resourceVersion is an earlier one: a report with a later one may
    # still be from before the end.
    end_inferred = models.BooleanField(default=False)
    # Of every column above that can change and every column below: a report with the same digest changes nothing.
    digest = models.BigIntegerField(default=0)
    # The write that last changed the content of the row, so that a write can return the rows that it changed.
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
    """A PodCliqueSet: its manifest, and the columns that lists show and sort by."""

    manifest = OrjsonField()  # without managedFields
    labels = OrjsonField(default=dict)
    generation = models.BigIntegerField(default=0)
    observed_generation = models.BigIntegerField(default=0)  # the last one that the controller has reconciled
    replicas = models.IntegerField(default=0)
    strategy = models.CharField(max_length=40, blank=True)  # as written, or the default
    generation_hash = models.CharField(max_length=LABEL_LENGTH, blank=True)  # status.currentGenerationHash
    updated_replicas = models.IntegerField(default=0)
    available_replicas = models.IntegerField(default=0)
    update_started_at = models.FloatField(null=True, blank=True)
    update_ended_at = models.FloatField(null=True, blank=True)
    progressing_reason = models.CharField(max_length=80, blank=True)  # of the condition Progressing
    stuck_reason = models.CharField(max_length=80, blank=True)  # of the condition UpdateStuck, while it is True
    waits_for = models.CharField(max_length=80, blank=True)  # of the same condition, while it is False
    # Why it cannot be reconciled as written: of the condition Valid while it is False, else of WriteDenied while True.
    fault_reason = models.CharField(max_length=80, blank=True)
    # Not from the cluster: deletes and creates whose answers are not stored yet, as [kind, name, uid]. Stored before
    # they are sent, so that a pass after a crash asks the cluster about them before it spends budget.
    in_doubt = OrjsonField(default=list)
    # Grove's own operator wrote it after Grove UI, according to its managed fields, or its finalizer is on it: nothing
    # is written to the workload.
    written_by_grove = models.BooleanField(default=False)
    grove_wrote_at = models.FloatField(null=True, blank=True)  # when that operator last wrote it
    # Not from the cluster: writes that it has rejected, and until when they are not repeated (`rejected_writes`).
    refused = OrjsonField(default=dict)
    # Not from the cluster: how long pods of its templates took to become Ready, for when no such pod is left: clique,
    # template hash, seconds, number of pods, oldest first.
    ready_times = OrjsonField(default=list)


class Owned(Mirrored):
    """An object that belongs to a workload."""

    workload = models.CharField(max_length=NAME_LENGTH, blank=True)  # name of the set, from the label part-of
    # The uid of its controller, if that is of a kind of Grove's; empty: it only has the labels of a workload.
    owner_uid = models.CharField(max_length=UID_LENGTH, blank=True)
    replica = models.IntegerField(default=-1)  # of the set; -1: its labels do not say

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
    template_keys = models.TextField(blank=True)  # annotations from the template, separated by commas, and their hash
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
    template_keys = models.TextField(blank=True)  # labels and annotations from the template, separated by commas
    status = OrjsonField(default=dict)
    written_by_grove = models.BooleanField(default=False)
    grove_wrote_at = models.FloatField(null=True, blank=True)


class Pod(Owned):
    """A pod of a PodClique: its position and its state, without its spec."""

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
    gone_by = models.FloatField(null=True, blank=True)  # its deletionTimestamp: when it should be gone
    failing = models.BooleanField(default=False)
    reason = models.CharField(max_length=200, blank=True)  # CamelCase, why it is not Ready: Unschedulable, ...
    message = models.TextField(blank=True)  # the message of the scheduler or the kubelet
    restarts = models.IntegerField(default=0)
    scheduled_at = models.FloatField(null=True, blank=True)  # when it was bound to its node
    # The fault of a container as a code; after a colon, a detail that stays the same: the image, the exit code. One
    # column for both: SQLite takes a thousand pods in one statement only if a row has at most 34 columns.
    fault = models.TextField(blank=True)
    images = models.TextField(blank=True)  # of its containers, in their order, separated by spaces
    # What it requests of its node, in thousandths by resource; the pod itself counts as one of the resource `pods`.
    requests = OrjsonField(default=dict)

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

    pod_groups = OrjsonField(default=dict)  # by PodClique: minReplicas and the names of the listed pods
    priority_class = models.CharField(max_length=NAME_LENGTH, blank=True)
    scheduler = models.CharField(max_length=LABEL_LENGTH, blank=True)  # of the label; empty: none
    status = OrjsonField(default=dict)
    written_by_grove = models.BooleanField(default=False)
    grove_wrote_at = models.FloatField(null=True, blank=True)


class Service(Owned):
    """The headless service of a replica of a set."""

    publish_not_ready_addresses = models.BooleanField(default=False)


class Node(Mirrored):
    """A node."""

    ready = models.BooleanField(default=False)
    unschedulable = models.BooleanField(default=False)
    labels = OrjsonField(default=dict)
    taints = OrjsonField(default=list)
    allocatable = OrjsonField(default=dict)
    # What pods that are not Grove's request of it, in thousandths by resource; the watcher adds them up every minute.
    # None: not yet.
    foreign_requests = OrjsonField(null=True, blank=True)
