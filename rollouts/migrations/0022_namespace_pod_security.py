"""Which Pod Security level is in force in a namespace, where it is not the one of the installation."""

import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('rollouts', '0021_account_security'),
    ]

    operations = [
        migrations.CreateModel(
            name='NamespacePodSecurity',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('cluster', models.CharField(max_length=253)),
                ('namespace', models.CharField(blank=True, max_length=63)),
                ('level', models.CharField(choices=[('restricted', 'Restricted'), ('baseline', 'Baseline'), ('privileged', 'Privileged')], max_length=20)),
                ('changed', models.DateTimeField(auto_now=True)),
                ('author', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='+', to=settings.AUTH_USER_MODEL)),
            ],
            options={
                'verbose_name': 'Pod Security level',
                'ordering': ('cluster', 'namespace'),
                'constraints': [models.UniqueConstraint(fields=('cluster', 'namespace'), name='one_pod_security_level_a_namespace', violation_error_message='This namespace has a level already; change that one.')],
            },
        ),
    ]
