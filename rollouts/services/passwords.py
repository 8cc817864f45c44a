"""Changes passwords, and ends sessions and tokens of accounts.

People do this for their own account on its page, and for other accounts on the admin site or with
`manage.py changepassword`. The invariants: a password that an administrator sets ends all sessions and tokens of the
account, and so does deactivating or activating it; on the admin site the caller must have all rights of the account
(`rollouts.accounts.account_rights`); and no audit entry contains a password.
"""

from typing import Final

from django.db import transaction
from django.utils import timezone

from rollouts.accounts.account_rights import find_missing, rights_of
from rollouts.accounts.commands import Command, WorkloadRef
from rollouts.accounts.errors import PermissionDenied
from rollouts.models import ApiToken, User
from rollouts.services.audit import Caller, Result, Source, audited_command, record, require

_COMMAND_LINE: Final = Caller(
    user=None, name="manage.py changepassword", source_ip=None, request_id="", source=Source.COMMAND
)


def password_change(caller: Caller, user: User, password: str, *, with_tokens: bool) -> None:
    """Change the caller's password, which ends all other sessions; `with_tokens` revokes all tokens too."""
    with (
        audited_command(caller, Command.CHANGE_PASSWORD, WorkloadRef(name=caller.name)) as audited,
        transaction.atomic(),
    ):
        user.set_password(password)
        user.save(update_fields=["password"])
        count = tokens_revoke_all(user) if with_tokens else 0
        audited.done(
            detail=f"Changed their own password. {_count_tokens(count)}"
            if with_tokens
            else "Changed their own password."
        )


def password_change_refused(caller: Caller) -> None:
    """Record that the old password was wrong."""
    record(
        caller,
        Command.CHANGE_PASSWORD,
        WorkloadRef(name=caller.name),
        Result.REFUSED,
        detail="The old password is wrong.",
    )


def password_set_by_admin(caller: Caller, user: User) -> None:
    """Revoke the tokens of an account after an administrator has set its password, and record it."""
    with (
        audited_command(caller, Command.CHANGE_ACCOUNT, WorkloadRef(name=user.get_username())) as audited,
        transaction.atomic(),
    ):
        count = tokens_revoke_all(user)
        audited.done(detail=f"Set the password of {user}. {_count_tokens(count)}")


def password_set_by_cli(username: str) -> int:
    """Revoke the tokens of an account after its password was set on the server; return how many."""
    user = User.objects.get_by_natural_key(username)
    with transaction.atomic():
        count = tokens_revoke_all(user)
        detail = f"Set the password of {user}. {_count_tokens(count)}"
        record(_COMMAND_LINE, Command.CHANGE_ACCOUNT, WorkloadRef(name=username), Result.DONE, detail=detail)
    return count


def sessions_end(caller: Caller, user: User) -> int:
    """End all sessions and revoke all tokens of an account: the caller's own, or one that the caller may change."""
    with audited_command(caller, Command.END_SESSIONS, WorkloadRef(name=user.get_username())) as audited:
        if user != caller.user:
            require_may_change_account(caller, user)
        with transaction.atomic():
            count = revoke_all_access(user)
            audited.done(detail=f"Ended all sessions of {user}. {_count_tokens(count)}")
    return count


def revoke_all_access(user: User) -> int:
    """End all sessions of an account and revoke its tokens; return how many tokens."""
    User.objects.filter(pk=user.pk).update(sessions_ended_at=timezone.now())
    return tokens_revoke_all(user)


def tokens_revoke_all(user: User) -> int:
    """Revoke all tokens of an account; return how many."""
    return ApiToken.objects.filter(user=user, revoked_at=None).update(revoked_at=timezone.now())


def require_may_change_account(caller: Caller, user: User) -> None:
    """Raise PermissionDenied unless the caller may change accounts, and this one."""
    require(caller, Command.CHANGE_ACCOUNT)
    if caller.user is None:  # `require` has refused anonymous callers
        raise PermissionDenied("Sign in first.")
    if sentence := find_missing(caller.user, rights_of(user)):
        raise PermissionDenied(sentence)


def _count_tokens(count: int) -> str:
    return f"{count} {'token' if count == 1 else 'tokens'} revoked."
