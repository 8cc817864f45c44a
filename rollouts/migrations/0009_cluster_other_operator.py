from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("rollouts", "0008_workload_waits_for"),
    ]

    operations = [
        migrations.AddField(
            model_name="cluster",
            name="other_operator",
            field=models.TextField(blank=True, default=""),
            preserve_default=False,
        ),
    ]
