"""The priority class of PodGangs and what scaling groups have from their template, so that both follow edits."""

from typing import Any

from django.db import migrations, models


def read_anew(apps: Any, _schema_editor: Any) -> None:
    """Drop the rows that lack the new columns, and let nothing be planned before the watcher has listed them again.

    A row takes in only news with a greater resourceVersion, so an object that nobody changes would keep the defaults.
    """
    apps.get_model("rollouts", "Cluster").objects.update(complete=False)
    for name in ("Gang", "ScalingGroup"):
        apps.get_model("rollouts", name).objects.all().delete()


class Migration(migrations.Migration):
    dependencies = [
        ("rollouts", "0011_pod_fault"),
    ]

    operations = [
        migrations.AddField(
            model_name="gang",
            name="priority_class",
            field=models.CharField(blank=True, max_length=253),
        ),
        migrations.AddField(
            model_name="scalinggroup",
            name="template_keys",
            field=models.TextField(blank=True),
        ),
        migrations.RunPython(read_anew, migrations.RunPython.noop),
    ]
