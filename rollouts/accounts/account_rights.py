"""Who may change which account: the actor needs every right that the account or group has, or gains by the change.

Otherwise the permission `change_account` would equal the role admin: its holder could set an administrator's password.
The admin site and `services.passwords` ask here before they change an account or give rights. An inactive account
counts with all its rights, because it can be activated again.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import reduce
from typing import Final

from django.contrib.auth.models import Group, Permission
from django.db.models import Q

from rollouts.accounts.commands import COMMANDS
from rollouts.accounts.permissions import COMMAND_ANYWHERE
from rollouts.accounts.token_scopes import NamespaceKey, is_covered, render_namespace
from rollouts.models import NamespaceGrant, User

_MAX_SHOWN: Final = 4  # missing rights that a sentence names


@dataclass(frozen=True, slots=True)
class Rights:
    """The rights of an account, or those that a group gives to its members."""

    permissions: frozenset[str] = frozenset()  # as Django writes them: "rollouts.scale_workload"
    grants: frozenset[NamespaceKey] = frozenset()
    is_superuser: bool = False

    def __or__(self, other: "Rights") -> "Rights":
        return Rights(
            self.permissions | other.permissions,
            self.grants | other.grants,
            self.is_superuser or other.is_superuser,
        )

    def find_missing(self, other: "Rights") -> list[str]:
        """Return the names of the rights that the other has and this lacks."""
        if self.is_superuser:
            return []
        missing = ["superuser"] if other.is_superuser else []
        names = [name.rpartition(".")[2] for name in other.permissions - self.permissions]
        missing += sorted(
            names, key=lambda name: (name not in COMMANDS, name)
        )  # commands first: they say most to a reader
        if COMMAND_ANYWHERE not in self.permissions:
            grants = sorted(grant for grant in other.grants if not is_covered(grant, self.grants))
            missing += [f"a grant for {render_namespace(grant)}" for grant in grants]
        return missing


def rights_of(user: User) -> Rights:
    """Return the rights of an account."""
    return Rights(
        _fetch_permissions(Q(user=user) | Q(group__user=user)),
        _fetch_grants(Q(user=user) | Q(group__user=user)),
        user.is_superuser,
    )


def rights_of_groups(groups: Iterable[Group]) -> Rights:
    """Return the rights that groups give to their members."""
    keys = [group.pk for group in groups]
    return Rights(_fetch_permissions(Q(group__in=keys)), _fetch_grants(Q(group__in=keys)))


def rights_affected_by(group: Group) -> Rights:
    """Return the rights of a group and of its members: a change of the group affects them."""
    members = list(User.objects.filter(groups=group))
    rights = Rights(is_superuser=any(member.is_superuser for member in members))
    keys = [member.pk for member in members]
    of_members = Q(user__in=keys) | Q(group__user__in=keys)
    rights |= Rights(_fetch_permissions(of_members), _fetch_grants(of_members))
    return rights | rights_of_groups([group])


def find_missing(actor: User, *needed: Rights) -> str:
    """Return the sentence that refuses a change because the actor lacks rights; empty if the actor lacks none."""
    missing = rights_of(actor).find_missing(reduce(Rights.__or__, needed, Rights()))
    if not missing:
        return ""
    more = f" and {len(missing) - _MAX_SHOWN} more" if len(missing) > _MAX_SHOWN else ""
    return (
        "You may not change this: it has, or would give, rights that your own account lacks: "
        f"{', '.join(missing[:_MAX_SHOWN])}{more}. Ask an administrator who has them."
    )


def _fetch_permissions(which: Q) -> frozenset[str]:
    rows = Permission.objects.filter(which).order_by().values_list("content_type__app_label", "codename").distinct()
    return frozenset(f"{app}.{name}" for app, name in rows)


def _fetch_grants(which: Q) -> frozenset[NamespaceKey]:
    return frozenset(NamespaceGrant.objects.filter(which).order_by().values_list("cluster", "namespace"))
