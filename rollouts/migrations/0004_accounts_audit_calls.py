"""Tokens, grants and single sign-on; calls that may be repeated; beginnings and outcomes in the audit."""

from typing import Any

import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models


# What Python refuses, the database refuses too, to whoever speaks SQL to it. Not on SQLite, where whoever can speak SQL to
# the database can also write into its file.
_REFUSE = """
    CREATE FUNCTION rollouts_audit_refuse() RETURNS trigger LANGUAGE plpgsql AS
        $$ BEGIN RAISE EXCEPTION 'Audit entries are never changed or deleted.'; END $$;
    CREATE TRIGGER rollouts_audit_append_only BEFORE UPDATE OR DELETE ON rollouts_auditentry
        FOR EACH ROW EXECUTE FUNCTION rollouts_audit_refuse();
"""
_ALLOW = """
    DROP TRIGGER rollouts_audit_append_only ON rollouts_auditentry;
    DROP FUNCTION rollouts_audit_refuse();
"""


def refuse_changes(_apps: Any, schema_editor: Any) -> None:
    if schema_editor.connection.vendor == "postgresql":
        schema_editor.execute(_REFUSE)


def allow_changes(_apps: Any, schema_editor: Any) -> None:
    if schema_editor.connection.vendor == "postgresql":
        schema_editor.execute(_ALLOW)


class Migration(migrations.Migration):

    dependencies = [
        ('auth', '0012_alter_user_first_name_max_length'),
        ('rollouts', '0003_workload_standing'),
    ]

    operations = [
        migrations.CreateModel(
            name='ApiToken',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('name', models.CharField(max_length=100)),
                ('prefix', models.CharField(max_length=12)),
                ('digest', models.CharField(max_length=64, unique=True)),
                ('read_only', models.BooleanField(default=False)),
                ('is_from_settings', models.BooleanField(default=False)),
                ('created', models.DateTimeField(auto_now_add=True)),
                ('expires_at', models.DateTimeField(blank=True, null=True)),
                ('last_used_at', models.DateTimeField(blank=True, null=True)),
                ('revoked_at', models.DateTimeField(blank=True, null=True)),
            ],
            options={
                'verbose_name': 'API token',
                'ordering': ('-created', '-id'),
            },
        ),
        migrations.CreateModel(
            name='Call',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('key', models.CharField(max_length=255)),
                ('fingerprint', models.CharField(max_length=64)),
                ('started', models.DateTimeField(auto_now_add=True)),
                ('finished', models.DateTimeField(blank=True, null=True)),
                ('status', models.PositiveSmallIntegerField(blank=True, null=True)),
                ('headers', models.JSONField(blank=True, default=dict)),
                ('body', models.TextField(blank=True)),
            ],
            options={
                'ordering': ('-started',),
            },
        ),
        migrations.CreateModel(
            name='NamespaceGrant',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('cluster', models.CharField(blank=True, max_length=253)),
                ('namespace', models.CharField(blank=True, max_length=63)),
                ('created', models.DateTimeField(auto_now_add=True)),
            ],
            options={
                'ordering': ('cluster', 'namespace', 'id'),
            },
        ),
        migrations.CreateModel(
            name='OidcIdentity',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('issuer', models.CharField(max_length=500)),
                ('subject', models.CharField(max_length=255)),
                ('created', models.DateTimeField(auto_now_add=True)),
            ],
            options={
                'verbose_name': 'single sign-on identity',
                'verbose_name_plural': 'single sign-on identities',
                'ordering': ('issuer', 'subject'),
            },
        ),
        migrations.AddField(
            model_name='auditentry',
            name='begun',
            field=models.OneToOneField(blank=True, null=True, on_delete=django.db.models.deletion.PROTECT, related_name='outcome', to='rollouts.auditentry'),
        ),
        migrations.AddField(
            model_name='auditentry',
            name='token',
            field=models.CharField(blank=True, max_length=100),
        ),
        migrations.AddField(
            model_name='auditentry',
            name='via',
            field=models.CharField(blank=True, max_length=20),
        ),
        migrations.AlterField(
            model_name='auditentry',
            name='result',
            field=models.CharField(choices=[('Begun', 'Begun'), ('Done', 'Done'), ('Refused', 'Refused'), ('Failed', 'Failed')], max_length=40),
        ),
        migrations.AddIndex(
            model_name='auditentry',
            index=models.Index(fields=['actor', '-at'], name='audit_by_actor'),
        ),
        migrations.AddIndex(
            model_name='auditentry',
            index=models.Index(fields=['command', '-at'], name='audit_by_command'),
        ),
        migrations.AddField(
            model_name='apitoken',
            name='user',
            field=models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='tokens', to=settings.AUTH_USER_MODEL),
        ),
        migrations.AddField(
            model_name='call',
            name='user',
            field=models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='+', to=settings.AUTH_USER_MODEL),
        ),
        migrations.AddField(
            model_name='namespacegrant',
            name='author',
            field=models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='+', to=settings.AUTH_USER_MODEL),
        ),
        migrations.AddField(
            model_name='namespacegrant',
            name='group',
            field=models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.CASCADE, related_name='grants', to='auth.group'),
        ),
        migrations.AddField(
            model_name='namespacegrant',
            name='user',
            field=models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.CASCADE, related_name='grants', to=settings.AUTH_USER_MODEL),
        ),
        migrations.AddField(
            model_name='oidcidentity',
            name='user',
            field=models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='identities', to=settings.AUTH_USER_MODEL),
        ),
        migrations.AddIndex(
            model_name='call',
            index=models.Index(fields=['started'], name='call_by_time'),
        ),
        migrations.AddConstraint(
            model_name='call',
            constraint=models.UniqueConstraint(fields=('user', 'key'), name='call_once'),
        ),
        migrations.AddConstraint(
            model_name='namespacegrant',
            constraint=models.CheckConstraint(condition=models.Q(models.Q(('group__isnull', False), ('user__isnull', True)), models.Q(('group__isnull', True), ('user__isnull', False)), _connector='OR'), name='grant_to_a_user_or_a_group', violation_error_message='Grant a namespace either to a user or to a group.'),
        ),
        migrations.AddConstraint(
            model_name='namespacegrant',
            constraint=models.UniqueConstraint(condition=models.Q(('user__isnull', False)), fields=('user', 'cluster', 'namespace'), name='grant_once_a_user'),
        ),
        migrations.AddConstraint(
            model_name='namespacegrant',
            constraint=models.UniqueConstraint(condition=models.Q(('group__isnull', False)), fields=('group', 'cluster', 'namespace'), name='grant_once_a_group'),
        ),
        migrations.AddConstraint(
            model_name='oidcidentity',
            constraint=models.UniqueConstraint(fields=('issuer', 'subject'), name='identity_once'),
        ),
        migrations.RunPython(refuse_changes, allow_changes),
    ]
