"""The text that pages show for codes, numbers and times.

`rollouts.templatetags.grove` registers these functions as template filters. `age` has a twin in
`static/relative-time.js`, which lets ages grow while a page is open: both return the same text.
"""

import json
import re
from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

from django.utils import timezone

from rollouts.accounts.commands import Command
from rollouts.engine.plan.messages import CAUSES, FAULT_LABELS, REASON_LABELS

_MINUTE: Final = 60
_HOUR: Final = 3600
_DAY: Final = 86400


def age(moment: datetime | None) -> str:
    """Render how long ago something happened.

    >>> from datetime import timedelta
    >>> [age(timezone.now() - timedelta(seconds=seconds)) for seconds in (5, 130, 7300, 200000)]
    ['5 s', '2 min', '2 h', '2 d']
    """
    if moment is None:
        return ""
    seconds = max(0, int((timezone.now() - moment).total_seconds()))
    if seconds < _MINUTE:
        return f"{seconds} s"
    if seconds < _HOUR:
        return f"{seconds // _MINUTE} min"
    return f"{seconds // _HOUR} h" if seconds < 2 * _DAY else f"{seconds // _DAY} d"


def duration(seconds: float | None) -> str:
    """Render a duration.

    >>> [duration(seconds) for seconds in (0.4, 2, 130, 7300)]
    ['1 s', '2 s', '2 min', '2 h']
    """
    if seconds is None:
        return ""
    whole = max(1, round(seconds))
    if whole < _MINUTE:
        return f"{whole} s"
    return f"{whole // _MINUTE} min" if whole < _HOUR else f"{whole // _HOUR} h"


def reason(code: str) -> str:
    """Render a reason.

    >>> reason("SurgeUnschedulable"), reason("MissingDefinitions")
    ('Surge cannot be scheduled', 'Missing definitions')
    """
    if code in REASON_LABELS:
        return REASON_LABELS[code]
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", " ", code)
    return words[:1] + words[1:].lower()


def problem(code: str) -> str:
    """Render why a workload needs attention.

    >>> problem("SurgeUnschedulable"), problem("AlreadyExists")
    ('Surge cannot be scheduled', 'The cluster rejects writes')
    """
    return FAULT_LABELS.get(code) or reason(code)


def cause(code: str) -> str:
    """Render what an update waits for.

    >>> cause("WaitingForReady")
    'Pods are not Ready yet'
    """
    return CAUSES.get(code, reason(code)).rstrip(".")


_STATE_LABELS: Final[Mapping[str, str]] = {
    "needs-attention": "Need attention",
    "progressing": "Progressing",
    "waiting": "Waiting for you",
    "settled": "Settled",
}


def state_label(state: str) -> str:
    """Render a state of the list."""
    return _STATE_LABELS.get(state, state)


def share(number: float, whole: float) -> str:
    """Render a share of a whole for SVG attributes.

    >>> share(1, 3), share(0, 0), share(7, 5)
    ('33.33%', '0%', '100%')
    """
    if not whole:
        return "0%"
    return f"{min(100, max(0, 100 * number / whole)):.4g}%"


def lookup(mapping: Mapping[Any, Any] | None, key: Any) -> Any:
    """Return the value of a key that a template has in a variable; None without a mapping."""
    return mapping.get(key) if mapping else None


def plural(number: int, word: str) -> str:
    """Render a count.

    >>> plural(1, "pod"), plural(1200, "pod")
    ('1 pod', '1,200 pods')
    """
    return f"{number:,} {word}" if number == 1 else f"{number:,} {word}s"


def split(words: str) -> list[str]:
    """Split a comma-separated list in a template."""
    return words.split(",")


def command_label(command: str) -> str:
    """Render a command; an unknown one stays unchanged.

    >>> command_label("set_images"), command_label("juggle")
    ('change images', 'juggle')
    """
    known = {str(one): one.label for one in Command}
    return known.get(command, command)


def as_json(value: Any) -> str:
    """Render a value as indented JSON."""
    return json.dumps(value, indent=2, ensure_ascii=False, sort_keys=True)
