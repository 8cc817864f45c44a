"""Who may change whose account: the caller must have all that the account or group has, or would get.

Otherwise the permission to change accounts would be the role admin: its holder could set an administrator's password.
The admin site and `services.passwords` ask here before they change or give anything. What an account has is read
whether or not it is active, since an account can be activated again.
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

_MAX_SHOWN: Final = 4  # of what is missing


@dataclass(frozen=True, slots=True)
class Rights:
    """What an account has, or a group gives."""

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
        """Return what another one has beyond this, in words."""
        if self.is_superuser:
            return []
        missing = ["superuser"] if other.is_superuser else []
        names = [name.rpartition(".")[2] for name in other.permissions - self.permissions]
        missing += sorted(names, key=lambda name: (name not in COMMANDS, name))  # what one commands by tells most
        if COMMAND_ANYWHERE not in self.permissions:
            places = sorted(place for place in other.grants if not is_covered(place, self.grants))
            missing += [f"a grant for {render_namespace(place)}" for place in places]
        return missing


def rights_of(user: User) -> Rights:
    """Return what an account has."""
    return Rights(
        _fetch_permissions(Q(user=user) | Q(group__user=user)),
        _fetch_grants(Q(user=user) | Q(group__user=user)),
        user.is_superuser,
    )


def rights_of_groups(groups: Iterable[Group]) -> Rights:
    """Return what groups give to their members."""
    keys = [group.pk for group in groups]
    return Rights(_fetch_permissions(Q(group__in=keys)), _fetch_grants(Q(group__in=keys)))


def rights_affected_by(group: Group) -> Rights:
    """Return what a group gives, and what its members have: a change of the group changes them."""
    members = list(User.objects.filter(groups=group))
    whole = Rights(is_superuser=any(member.is_superuser for member in members))
    keys = [member.pk for member in members]
    of_members = Q(user__in=keys) | Q(group__user__in=keys)
    whole |= Rights(_fetch_permissions(of_members), _fetch_grants(of_members))
    return whole | rights_of_groups([group])


def find_missing(actor: User, *needed: Rights) -> str:
    """Return the sentence that refuses a change for which the actor lacks rights; empty: the actor has them all."""
    missing = rights_of(actor).find_missing(reduce(Rights.__or__, needed, Rights()))
    if not missing:
        return ""
    more = f" and {len(missing) - _MAX_SHOWN} more" if len(missing) > _MAX_SHOWN else ""
    return (
        "You may not change this: it has, or would give, more than your own account has. "
        f"You lack {', '.join(missing[:_MAX_SHOWN])}{more}. Ask an administrator who has it."
    )


def _fetch_permissions(which: Q) -> frozenset[str]:
    rows = Permission.objects.filter(which).order_by().values_list("content_type__app_label", "codename").distinct()
    return frozenset(f"{app}.{name}" for app, name in rows)


def _fetch_grants(which: Q) -> frozenset[NamespaceKey]:
    return frozenset(NamespaceGrant.objects.filter(which).order_by().values_list("cluster", "namespace"))
