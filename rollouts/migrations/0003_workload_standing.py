"""What lists tell of a workload, as columns: how far the controller has looked, and why it cannot act."""

from typing import Any

from django.db import migrations, models


def forget_mirror(apps: Any, _schema_editor: Any) -> None:
    """Drop the mirror, which the watcher brings back with all its columns: old rows would keep blanks."""
    apps.get_model("rollouts", "Cluster").objects.all().delete()


class Migration(migrations.Migration):
    dependencies = [("rollouts", "0002_mirror_history_overrides_audit")]

    operations = [
        migrations.AddField("workload", "observed_generation", models.BigIntegerField(default=0)),
        migrations.AddField("workload", "fault_reason", models.CharField(blank=True, max_length=80)),
        migrations.RunPython(forget_mirror, migrations.RunPython.noop),
    ]
