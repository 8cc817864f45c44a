"""Who may see, and who may give which command in which namespace.

Viewing has no namespaces: an account that may see workloads sees those of all namespaces. A command needs its
permission (`rollouts.<command>`), for most commands a grant that covers the namespace, and an installation that is not
read-only; the role admin and superusers need no grant (docs/adr/0016). The scope of a token narrows that further.
`audit.audited_command` asks here before it executes a command, and pages ask before they show a button, so both give
the same answer.

However many namespaces are asked about, an account costs two queries: one for its permissions, one for its grants. Both
are cached on the user object, which lives as long as a request.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from django.apps import AppConfig, apps
from django.conf import settings
from django.contrib.auth.backends import ModelBackend
from django.contrib.auth.management import create_permissions
from django.contrib.auth.models import AbstractBaseUser, AnonymousUser, Group, Permission
from django.contrib.contenttypes.models import ContentType
from django.db import models
from django.db.models import Q
from django.db.models.signals import post_migrate

from rollouts.accounts.commands import Command
from rollouts.accounts.token_scopes import Scope, is_covered
from rollouts.models import (
    ApiToken,
    AuditEntry,
    Clique,
    Cluster,
    Gang,
    NamespaceGrant,
    NamespacePodSecurity,
    Node,
    Pod,
    Revision,
    Rollout,
    Sample,
    ScalingGroup,
    Service,
    Step,
    StrategyOverride,
    User,
    Workload,
)

AnyUser = AbstractBaseUser | AnonymousUser

# Commands to workloads: they need a grant for the namespace.
WORKLOAD_COMMANDS: Final = frozenset(
    {
        Command.APPLY_WORKLOAD,
        Command.SET_IMAGES,
        Command.SCALE_WORKLOAD,
        Command.EDIT_STRATEGY,
        Command.RESTART_WORKLOAD,
        Command.ROLL_BACK_WORKLOAD,
        Command.DELETE_OUTDATED_PODS,
        Command.DELETE_ANY_PODS,
        Command.TAKE_OVER_WORKLOAD,
        Command.DELETE_WORKLOAD,
    }
)
OVERRIDE_COMMANDS: Final = frozenset({Command.CREATE_OVERRIDE, Command.CHANGE_OVERRIDE, Command.END_OVERRIDE})
# Every account may give these to itself; they have no permission of their own.
SELF_COMMANDS: Final = frozenset(
    {Command.SIGN_IN, Command.SIGN_OUT, Command.REVOKE_TOKEN, Command.CHANGE_PASSWORD, Command.END_SESSIONS}
)
# These concern the caller's own tokens, so the namespaces in the scope of a token do not matter.
_COMMANDS_WITHOUT_NAMESPACE: Final = frozenset({Command.CREATE_TOKEN, Command.REVOKE_TOKEN})
# These change nothing, so a read-only token and a read-only installation allow them.
READ_ONLY_COMMANDS: Final = frozenset({Command.TEST_CLUSTER, Command.EXPORT_AUDIT})

VIEW_PERMISSION: Final = "rollouts.view_workload"
NO_ROLE_SENTENCE: Final = "Your account has no role. Ask an administrator for the role viewer."
# Allows commands in all namespaces without a grant.
COMMAND_ANYWHERE: Final = "rollouts.command_anywhere"

UNLIMITED_SCOPE: Final = Scope()

_VIEWABLE_MODELS: Final[tuple[type[models.Model], ...]] = (
    *(Cluster, Workload, ScalingGroup, Clique, Gang, Pod, Node, Service),
    *(Revision, Rollout, Step, Sample, StrategyOverride, AuditEntry),
)

CONTROLLER_CONTINUES: Final = "The controller still creates and deletes pods. OBSERVE=1 stops that."
"""What READ_ONLY does not stop."""


class RefusalReason(StrEnum):
    """Why a command is refused."""

    NOT_SIGNED_IN = "NotSignedIn"
    READ_ONLY_INSTALLATION = "ReadOnlyInstallation"
    OBSERVING_INSTALLATION = "ObservingInstallation"
    READ_ONLY_TOKEN = "ReadOnlyToken"  # noqa: S105 (no password)
    TOKEN_LACKS_COMMAND = "TokenLacksCommand"  # noqa: S105
    TOKEN_LACKS_NAMESPACE = "TokenLacksNamespace"  # noqa: S105
    PERMISSION_MISSING = "PermissionMissing"
    GRANT_MISSING = "GrantMissing"


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a command is refused, with a sentence that says whom to ask."""

    reason: RefusalReason
    sentence: str


def find_read_only() -> str:
    """Return a sentence if READ_ONLY is set and the controller still writes; else an empty one."""
    if settings.ENVIRONMENT.observe or not settings.ENVIRONMENT.read_only:
        return ""
    return f"This installation is read-only (READ_ONLY is set): it refuses commands of users. {CONTROLLER_CONTINUES}"


def may_view(user: AnyUser) -> bool:
    """Whether an account may see workloads and all that belongs to them."""
    return user.is_active and _has_permission(user, VIEW_PERMISSION)


def may_administer(user: AnyUser) -> bool:
    """Whether an account may use the admin site: staff, and accounts that may change accounts."""
    return user.is_active and (
        getattr(user, "is_staff", False) or _has_permission(user, permission_of(Command.CHANGE_ACCOUNT))
    )


def permission_of(command: Command) -> str:
    """Return the name of the permission that a command needs, as Django writes it."""
    return f"rollouts.{command.value}"


def find_refusal(
    user: AnyUser | None, command: Command, cluster: str = "", namespace: str = "", *, scope: Scope = UNLIMITED_SCOPE
) -> Refusal | None:
    """Return why an account may not give a command in a namespace; None: it may. An empty name means all.

    `scope` is the scope of the token with which the caller authenticates.
    """
    if user is None or not user.is_authenticated or not user.is_active:
        return Refusal(RefusalReason.NOT_SIGNED_IN, f"You may not {command.label}: sign in first.")
    if refusal := _find_token_limit(scope, command, cluster, namespace):
        return refusal
    if settings.ENVIRONMENT.observe and command in WORKLOAD_COMMANDS | OVERRIDE_COMMANDS:
        return Refusal(
            RefusalReason.OBSERVING_INSTALLATION,
            f"You may not {command.label}: this installation only observes (OBSERVE is set).",
        )
    if settings.ENVIRONMENT.read_only and command in WORKLOAD_COMMANDS | OVERRIDE_COMMANDS:
        return Refusal(
            RefusalReason.READ_ONLY_INSTALLATION,
            f"You may not {command.label}: this installation is read-only (READ_ONLY is set). {CONTROLLER_CONTINUES}",
        )
    if command not in SELF_COMMANDS and not _has_permission(user, permission_of(command)):
        return Refusal(
            RefusalReason.PERMISSION_MISSING,
            f"You may not {command.label}: your account lacks the permission {command.value}. "
            "Ask an administrator for a role that has it.",
        )
    return _find_missing_grant(user, command, cluster, namespace)


def may_view_pod_commands(user: AnyUser | None, cluster: str, namespace: str, scope: Scope = UNLIMITED_SCOPE) -> bool:
    """Whether an account sees the commands, arguments and variables of templates in a namespace.

    Only accounts that may apply templates there see them. A read-only token and a read-only installation do not hide
    them; the commands and namespaces in the scope of a token do.
    """
    if user is None or not user.is_authenticated or not user.is_active:
        return False
    command = Command.APPLY_WORKLOAD
    if not scope.allows_command(command) or not scope.allows_namespace(cluster, namespace):
        return False
    return _has_permission(user, permission_of(command)) and not _find_missing_grant(user, command, cluster, namespace)


def grants_of(user: AnyUser) -> frozenset[tuple[str, str]]:
    """Return the grants of an account, as pairs of cluster and namespace; an empty name means any."""
    known: frozenset[tuple[str, str]] | None = getattr(user, "_grants", None)
    if known is None:
        rows = NamespaceGrant.objects.filter(Q(user=user.pk) | Q(group__user=user.pk)).order_by()
        known = frozenset(rows.values_list("cluster", "namespace"))
        user._grants = known  # type: ignore[union-attr]  # noqa: SLF001 (cached there, as Django does)
    return known


def _find_missing_grant(user: AnyUser, command: Command, cluster: str, namespace: str) -> Refusal | None:
    if command not in WORKLOAD_COMMANDS | OVERRIDE_COMMANDS or _has_permission(user, COMMAND_ANYWHERE):
        return None
    if is_covered((cluster, namespace), grants_of(user)):
        return None
    return Refusal(
        RefusalReason.GRANT_MISSING,
        f"You may not {command.label} there: your account has no grant for {_describe_target(cluster, namespace)}. "
        "Ask an administrator for one.",
    )


def _find_token_limit(scope: Scope, command: Command, cluster: str, namespace: str) -> Refusal | None:
    """Return why the scope of a token excludes a command; None: it allows the command."""
    if scope.read_only and command not in READ_ONLY_COMMANDS:
        return Refusal(
            RefusalReason.READ_ONLY_TOKEN,
            f"You may not {command.label} with a read-only token. Use a token that is not read-only.",
        )
    if not scope.allows_command(command):
        return Refusal(
            RefusalReason.TOKEN_LACKS_COMMAND,
            f"You may not {command.label} with this token: its scope lacks the command {command.value}. "
            "Use a token that includes it.",
        )
    if command not in _COMMANDS_WITHOUT_NAMESPACE and not scope.allows_namespace(cluster, namespace):
        return Refusal(
            RefusalReason.TOKEN_LACKS_NAMESPACE,
            f"You may not {command.label} there with this token: its scope lacks "
            f"{_describe_target(cluster, namespace)}. Use a token that includes it.",
        )
    return None


def _describe_target(cluster: str, namespace: str) -> str:
    where = f"the namespace {namespace}" if namespace else "all namespaces"
    return where + (f" of the cluster {cluster}" if cluster else " of all clusters")


def _has_permission(user: AnyUser, permission: str) -> bool:
    # Both user classes have has_perm; their common base class does not declare it.
    return bool(user.has_perm(permission))  # type: ignore[union-attr]


class AccountBackend(ModelBackend):
    """Django's model backend, which reads the permissions of a user and of all groups in one query."""

    def get_all_permissions(self, user_obj: Any, obj: Any = None) -> set[str]:
        """Return the names of all permissions, and cache them on the user object."""
        if not user_obj.is_active or user_obj.is_anonymous or obj is not None:
            return set()
        if not hasattr(user_obj, "_perm_cache"):
            user_obj._perm_cache = _fetch_permissions(user_obj)  # noqa: SLF001 (where Django looks for it)
        names: set[str] = user_obj._perm_cache  # noqa: SLF001
        return names


def _fetch_permissions(user: User) -> set[str]:
    rows = Permission.objects.order_by()
    if not user.is_superuser:
        rows = rows.filter(Q(user=user) | Q(group__user=user))
    return {f"{app}.{name}" for app, name in rows.values_list("content_type__app_label", "codename")}


# --- Roles ------------------------------------------------------------------------------------------------------------

# The model under which the admin site lists the permission of a command.
_PERMISSION_MODELS: Final[Mapping[Command, type[models.Model]]] = {
    **dict.fromkeys(WORKLOAD_COMMANDS, Workload),
    Command.APPLY_PRIVILEGED: Workload,
    **dict.fromkeys(OVERRIDE_COMMANDS, StrategyOverride),
    Command.TEST_CLUSTER: Cluster,
    Command.EXPORT_AUDIT: AuditEntry,
    Command.CREATE_TOKEN: ApiToken,
    Command.CHANGE_ACCOUNT: User,
    Command.CHANGE_POD_SECURITY: NamespacePodSecurity,
}

_VIEWER: Final = frozenset({f"rollouts.view_{model._meta.model_name}" for model in _VIEWABLE_MODELS}) | {  # noqa: SLF001
    permission_of(Command.CREATE_TOKEN)
}
_OPERATOR: Final = _VIEWER | {permission_of(command) for command in WORKLOAD_COMMANDS}
# Permissions by role; None: all permissions.
ROLES: Final[Mapping[str, frozenset[str] | None]] = {"viewer": _VIEWER, "operator": _OPERATOR, "admin": None}


def ensure_roles() -> None:
    """Create the permissions of this version and reset the groups of the three roles; other groups stay."""
    for label in ("rollouts", "auth"):
        create_permissions(apps.get_app_config(label), verbosity=0)
    _ensure_command_permissions()
    known = {
        f"{app}.{name}": pk
        for app, name, pk in Permission.objects.order_by().values_list("content_type__app_label", "codename", "pk")
        if app in ("rollouts", "auth")
    }
    for role, names in ROLES.items():
        group, _ = Group.objects.get_or_create(name=role)
        group.permissions.set([known[name] for name in (known if names is None else names)])


def connect_roles(app: AppConfig) -> None:
    """Reset the roles after every migration of the database."""
    post_migrate.connect(_on_migrated, sender=app, dispatch_uid="rollouts.accounts.permissions.roles")


def _ensure_command_permissions() -> None:
    subjects = ContentType.objects.get_for_models(*{*_PERMISSION_MODELS.values(), Workload})
    wanted = {(command.value, f"Can {command.label}"): subjects[model] for command, model in _PERMISSION_MODELS.items()}
    wanted["command_anywhere", "Needs no grants"] = subjects[Workload]
    rows = [Permission(codename=code, name=name, content_type=subject) for (code, name), subject in wanted.items()]
    Permission.objects.bulk_create(rows, ignore_conflicts=True)


def _on_migrated(**_: Any) -> None:
    ensure_roles()
