"""`manage.py changepassword`: Django's command, which also ends what the old password has opened.

Before it: somebody at the terminal of the server. After it: `services.passwords`, as on the admin site.
"""

import getpass
from typing import Any

from django.contrib.auth.management.commands import changepassword

from rollouts.services.passwords import password_set_by_cli


class Command(changepassword.Command):
    """Set the password of an account."""

    help = "Set the password of an account, which ends its sessions and revokes its tokens."

    def handle(self, *args: Any, **options: Any) -> str:
        """Ask for the password, set it, and revoke the tokens."""
        username = options["username"] = options["username"] or getpass.getuser()
        message = super().handle(*args, **options)
        # Not in one transaction with the above, which waits for what is typed: nobody else could write meanwhile.
        count = password_set_by_cli(username)
        return f"{message}. Sessions ended, {count} {'token' if count == 1 else 'tokens'} revoked."
