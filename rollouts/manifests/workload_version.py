"""The version of a workload for optimistic concurrency: its uid and its metadata.generation.

API answers carry it as `version` and in the ETag; a command compares it with the version in the cluster. Writes to the
status do not change the generation, so the progress of a rollout never makes an edit fail.

If an answer shows more than the editable fields, its ETag ends with a digest of the answer
(`"<uid>.<generation>.<digest>"`). If-Match compares the first two parts only.
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
    """Whether an If-Match header names this version, alone or among others.

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
