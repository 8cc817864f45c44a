from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("rollouts", "0006_token_made_with"),
    ]

    operations = [
        migrations.AddIndex(
            model_name="pod",
            index=models.Index(
                condition=models.Q(("gone_at__isnull", True)),
                fields=["cluster", "namespace", "workload", "template_hash"],
                name="pod_by_template",
            ),
        ),
    ]
