#!/usr/bin/env python
"""Grove UI's command line: `manage.py run` starts everything, `manage.py help` lists the rest."""

import os
import sys


def main() -> int:
    """Run a management command; print a wrong setting as one sentence, not as a traceback."""
    from grove_ui.environment import ConfigurationError  # noqa: PLC0415 (settings are read below)

    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "grove_ui.settings")
    try:
        from django.core.management import execute_from_command_line  # noqa: PLC0415

        execute_from_command_line(sys.argv)
    except ConfigurationError as error:
        sys.stderr.write(f"grove-ui: {error}\n")
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
