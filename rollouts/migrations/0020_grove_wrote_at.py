from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("rollouts", "0013_forecast_measures"),
    ]

    operations = [
        migrations.AddField(
            model_name=kind, name="grove_wrote_at", field=models.FloatField(null=True, blank=True)
        )
        for kind in ("workload", "scalinggroup", "clique", "gang")
    ]
