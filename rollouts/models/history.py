"""The history of workloads: revisions, rollouts, the events of their timelines, and counts over time for charts.

`rollouts.controller.history` writes these rows; pages read them. A row names its workload by cluster, namespace, name
and uid, and does not refer to the mirror, which may be dropped. A pass may be repeated: the unique constraints keep one
row for each entry, however often it is written.
"""

from typing import ClassVar

from django.db import models

from rollouts.models.mirror import LABEL_LENGTH, NAME_LENGTH, UID_LENGTH


class _OfWorkload(models.Model):
    """A row about one workload."""

    cluster = models.CharField(max_length=NAME_LENGTH)
    namespace = models.CharField(max_length=LABEL_LENGTH)
    name = models.CharField(max_length=NAME_LENGTH)
    workload_uid = models.CharField(max_length=UID_LENGTH)

    class Meta:
        abstract = True


class Revision(_OfWorkload):
    """A template that a workload had, with its generation hash."""

    number = models.IntegerField()
    generation_hash = models.CharField(max_length=LABEL_LENGTH)
    template = models.JSONField()  # spec.template of the set
    created = models.DateTimeField()

    class Meta:
        ordering = ("workload_uid", "-number")
        constraints: ClassVar = [
            models.UniqueConstraint(fields=("cluster", "workload_uid", "number"), name="revision_by_number"),
            models.UniqueConstraint(fields=("cluster", "workload_uid", "generation_hash"), name="revision_by_hash"),
        ]
        indexes: ClassVar = [models.Index(fields=("cluster", "namespace", "name"), name="revision_by_workload")]

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name} #{self.number}"


class Rollout(_OfWorkload):
    """A change of a workload from one generation hash to another."""

    class Outcome(models.TextChoices):
        """How it ended; empty while it is under way."""

        COMPLETE = "Complete"
        SUPERSEDED = "Superseded"
        ROLLED_BACK = "RolledBack"
        STUCK = "Stuck"
        DELETED = "Deleted"

    from_hash = models.CharField(max_length=LABEL_LENGTH, blank=True)
    to_hash = models.CharField(max_length=LABEL_LENGTH)
    strategy = models.CharField(max_length=40)
    started = models.DateTimeField()  # updateStartedAt
    ended = models.DateTimeField(null=True, blank=True)
    outcome = models.CharField(max_length=20, blank=True, choices=Outcome.choices)
    progressing_seconds = models.FloatField(default=0.0)
    waiting_seconds = models.FloatField(default=0.0)
    observed_at = models.DateTimeField(null=True, blank=True)  # the end of the time that the two sums cover

    class Meta:
        ordering = ("-started",)
        constraints: ClassVar = [
            models.UniqueConstraint(fields=("cluster", "workload_uid", "to_hash", "started"), name="rollout_once")
        ]
        indexes: ClassVar = [
            models.Index(fields=("cluster", "namespace", "name", "-started"), name="rollout_by_workload"),
            models.Index(fields=("outcome", "-started"), name="rollout_by_outcome"),
        ]

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name} → {self.to_hash}"


class Step(models.Model):
    """An event of the timeline of a rollout."""

    rollout = models.ForeignKey(Rollout, on_delete=models.CASCADE, related_name="steps")
    at = models.DateTimeField()
    reason = models.CharField(max_length=80)
    component = models.CharField(max_length=NAME_LENGTH, blank=True)
    text = models.TextField(blank=True)
    count = models.IntegerField(default=1)
    # Equal for the same event, so a repeated pass stores it once.
    fingerprint = models.CharField(max_length=LABEL_LENGTH)

    class Meta:
        ordering = ("at", "id")
        constraints: ClassVar = [models.UniqueConstraint(fields=("rollout", "fingerprint"), name="step_once")]

    def __str__(self) -> str:
        return f"{self.reason} {self.component}"


class Sample(models.Model):
    """The counts of a rollout from a time on; stored when they change."""

    rollout = models.ForeignKey(Rollout, on_delete=models.CASCADE, related_name="samples")
    at = models.DateTimeField()
    # As `controller.pod_counts` counts them.
    desired = models.IntegerField()
    available = models.IntegerField()
    updated = models.IntegerField()
    surge = models.IntegerField()
    floor = models.IntegerField()  # an update must keep at least so many available

    class Meta:
        ordering = ("at", "id")
        constraints: ClassVar = [models.UniqueConstraint(fields=("rollout", "at"), name="sample_once")]

    def __str__(self) -> str:
        return f"{self.available}/{self.desired}"
