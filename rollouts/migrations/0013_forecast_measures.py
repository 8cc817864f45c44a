"""What a forecast needs to know of pods and nodes: what each requests, and what pods of others request of a node."""

from typing import Any

from django.db import migrations, models

from rollouts.models.fields import OrjsonField


def forget_pods(apps: Any, _schema_editor: Any) -> None:
    """Drop the mirrored pods: the watcher lists them again with all columns, while old rows would keep blanks."""
    apps.get_model("rollouts", "Cluster").objects.update(complete=False)
    apps.get_model("rollouts", "Pod").objects.all().delete()


class Migration(migrations.Migration):
    dependencies = [("rollouts", "0012_pod_gang_priority_class")]

    operations = [
        migrations.AddField("node", "foreign_requests", OrjsonField(blank=True, null=True)),
        migrations.AddField("pod", "requests", OrjsonField(default=dict)),
        migrations.RunPython(forget_pods, migrations.RunPython.noop),
    ]
