"""The scheduler label of PodGangs, so that PodGangs of an earlier version get it; and which sets have Grove's finalizer."""

from typing import Any

from django.db import migrations, models

GROVE_FINALIZER = "grove.io/podcliqueset.grove.io"


def read_anew(apps: Any, _schema_editor: Any) -> None:
    """Drop the rows that lack the new column, and let nothing be planned before the watcher has listed them again.

    A row takes in only news with a greater resourceVersion, so an object that nobody changes would keep the default.
    """
    apps.get_model("rollouts", "Cluster").objects.update(complete=False)
    apps.get_model("rollouts", "Gang").objects.all().delete()


def count_finalizers(apps: Any, _schema_editor: Any) -> None:
    """Mark the sets that Grove's operator manages by its finalizer alone."""
    table = apps.get_model("rollouts", "Workload")
    theirs = [
        row.pk
        for row in table.objects.filter(written_by_grove=False).iterator()
        if GROVE_FINALIZER in (row.manifest["metadata"].get("finalizers") or ())
    ]
    table.objects.filter(pk__in=theirs).update(written_by_grove=True)


class Migration(migrations.Migration):
    dependencies = [("rollouts", "0023_workload_ready_times")]

    operations = [
        migrations.AddField("gang", "scheduler", models.CharField(blank=True, max_length=63)),
        migrations.RunPython(read_anew, migrations.RunPython.noop),
        migrations.RunPython(count_finalizers, migrations.RunPython.noop),
    ]
