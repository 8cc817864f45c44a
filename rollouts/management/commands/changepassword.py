"""`manage.py changepassword`: Django's command, which also ends the sessions and revokes the tokens of the account.

An administrator runs it at a terminal of the server. `services.passwords` does the rest, as for the admin site.
"""

import getpass
from typing import Any

from django.contrib.auth.management.commands import changepassword

from rollouts.services.passwords import password_set_by_cli


class Command(changepassword.Command):
    """Set the password of an account."""

    help = "Set the password of an account, which ends its sessions and revokes its tokens."

    def handle(self, *args: Any, **options: Any) -> str:
        """Ask for the password, set it, end the sessions and revoke the tokens."""
        username = options["username"] = options["username"] or getpass.getuser()
        message = super().handle(*args, **options)
        # Not in one transaction with the above, which waits for input: no other process could write meanwhile.
        count = password_set_by_cli(username)
        return f"{message}. Sessions ended, {count} {'token' if count == 1 else 'tokens'} revoked."
