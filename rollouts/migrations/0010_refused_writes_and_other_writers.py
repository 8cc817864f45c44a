from django.db import migrations, models

import rollouts.models.fields


class Migration(migrations.Migration):
    dependencies = [
        ("rollouts", "0009_cluster_other_operator"),
    ]

    operations = [
        migrations.AddField(
            model_name="workload",
            name="refused",
            field=rollouts.models.fields.OrjsonField(default=dict),
        ),
        *(
            migrations.AddField(model_name=kind, name="written_by_grove", field=models.BooleanField(default=False))
            for kind in ("workload", "scalinggroup", "clique", "gang")
        ),
    ]
