from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("rollouts", "0007_pod_by_template"),
    ]

    operations = [
        migrations.AddField(
            model_name="workload",
            name="waits_for",
            field=models.CharField(blank=True, max_length=80),
        ),
    ]
