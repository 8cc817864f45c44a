"""What tells one state of a workload that people edit from the next: its uid and its generation.

Answers carry it as `version` and in their ETag; commands compare it with what the cluster has by then. Writes of a
status change no generation, so an edit is never refused because a rollout has moved on meanwhile.

The ETag of an answer that shows more than what can be edited ends with a part of its own, which tells one answer from
another (`"<uid>.<generation>.<digest>"`). If-Match looks at the first two parts only.
"""

from typing import Final

_PARTS: Final = 2


def version_of(uid: str, generation: int) -> str:
    """Return the version of a workload.

    >>> version_of("5f0c", 7)
    '5f0c.7'
    """
    return f"{uid}.{generation}"


def matches_version(header: str, version: str) -> bool:
    """Return whether an If-Match header names this version, alone or among others.

    >>> matches_version('"5f0c.7"', "5f0c.7"), matches_version('"a.1", "5f0c.7.90ab"', "5f0c.7")
    (True, True)
    >>> matches_version("*", "x.1")
    True
    >>> matches_version('"5f0c.8"', "5f0c.7"), matches_version("", "5f0c.7")
    (False, False)

    A weak tag never matches (RFC 9110, 13.1.1):

    >>> matches_version('W/"5f0c.7"', "5f0c.7")
    False
    """
    tags = [tag.strip() for tag in header.split(",")]
    return "*" in tags or any(_parse_version(tag) == version for tag in tags)


def _parse_version(tag: str) -> str:
    if len(tag) < len('""') or not (tag.startswith('"') and tag.endswith('"')):
        return ""
    return ".".join(tag[1:-1].split(".")[:_PARTS])
