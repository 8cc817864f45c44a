"""How long pods of a workload took to become Ready, for when an update has replaced all of them at once."""

from django.db import migrations

from rollouts.models.fields import OrjsonField


class Migration(migrations.Migration):
    dependencies = [("rollouts", "0022_namespace_pod_security")]

    operations = [migrations.AddField("workload", "ready_times", OrjsonField(default=list))]
