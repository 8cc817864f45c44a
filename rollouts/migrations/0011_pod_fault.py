from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("rollouts", "0010_refused_writes_and_other_writers"),
    ]

    operations = [
        migrations.AddField(
            model_name="pod",
            name="scheduled_at",
            field=models.FloatField(blank=True, null=True),
        ),
        migrations.AddField(
            model_name="pod",
            name="fault",
            field=models.TextField(blank=True, default=""),
            preserve_default=False,
        ),
    ]
