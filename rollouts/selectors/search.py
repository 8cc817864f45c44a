"""The search for workloads. Each word must be in the name of the workload, its namespace or its cluster, or must be the
beginning of the name of one of its pods or of the hash of one of its templates.

`workloads` filters its list with it, and shows in a row which pod or hash matched if the names in the row do not. The
invariant: a search costs no further query, and two to find what matched; pods and revisions are found by an index.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import or_
from typing import Final, Literal, Protocol

from django.db import connection
from django.db.models import Exists, Min, OuterRef, Q

from rollouts import models

# The name of a pod is <set>-<replica>-…: text without a number after a dash is no beginning of one.
_POD: Final = re.compile(r"[a-z0-9][a-z0-9.-]*-[0-9][a-z0-9.-]*")
# The fewest characters of a hash: fewer match too many.
_HASH: Final = re.compile(r"[a-z0-9]{4,63}")
_MAX_CHARACTER: Final = "\U0010ffff"


@dataclass(frozen=True, slots=True)
class FoundBy:
    """The pod or hash that matched, if the names in the row do not."""

    kind: Literal["pod", "template"]
    text: str  # the name of the pod; the hash


class SearchableWorkload(Protocol):
    """The fields of a workload that a search needs."""

    @property
    def cluster(self) -> str:
        """The name of its cluster."""

    @property
    def namespace(self) -> str:
        """Where it is."""

    @property
    def name(self) -> str:
        """How it is called."""

    @property
    def uid(self) -> str:
        """Which of that name it is."""

    @property
    def generation_hash(self) -> str:
        """Of its current template."""


def matches_term(word: str) -> Q:
    """Return the condition for workloads that match a word."""
    found = Q(name__icontains=word) | Q(namespace__icontains=word) | Q(cluster__name__icontains=word)
    word = word.lower()
    pods = models.Pod.objects.filter(
        cluster=OuterRef("cluster"), namespace=OuterRef("namespace"), workload=OuterRef("name")
    )
    if _POD.fullmatch(word):
        found |= Q(Exists(pods.filter(_starts_with("name", word))))
    if _HASH.fullmatch(word):
        revisions = models.Revision.objects.filter(cluster=OuterRef("cluster__name"), workload_uid=OuterRef("uid"))
        found |= _starts_with("generation_hash", word)
        found |= Q(Exists(pods.filter(_starts_with("template_hash", word))))
        found |= Q(Exists(revisions.filter(_starts_with("generation_hash", word))))
    return found


def find_matches(search: str, lines: Sequence[SearchableWorkload]) -> Mapping[str, FoundBy]:
    """Return by uid what matched, for rows whose names do not."""
    words = [word.lower() for word in search.split()]
    hidden = [line for line in lines if not all(_is_in_names(line, word) for word in words)]
    names, hashes = list(filter(_POD.fullmatch, words)), list(filter(_HASH.fullmatch, words))
    if not hidden or not (names or hashes):
        return {}
    pods, revisions = _find_pods(hidden, names, hashes), _find_revisions(hidden, hashes)
    met = {}
    for line in hidden:
        pod, template = pods.get((line.cluster, line.namespace, line.name), (None, None))
        own = line.generation_hash if any(map(line.generation_hash.startswith, hashes)) else None
        if pod:
            met[line.uid] = FoundBy("pod", pod)
        elif text := own or template or revisions.get(line.uid):
            met[line.uid] = FoundBy("template", text)
    return met


def _is_in_names(line: SearchableWorkload, word: str) -> bool:
    return any(word in name.lower() for name in (line.name, line.namespace, line.cluster))


def _find_pods(
    lines: Iterable[SearchableWorkload], names: Iterable[str], hashes: Iterable[str]
) -> Mapping[tuple[str, str, str], tuple[str | None, str | None]]:
    """Return by workload the first pod and the first hash that matched."""
    named, templated = _starts_with_any("name", names), _starts_with_any("template_hash", hashes)
    rows = models.Pod.objects.filter(
        named | templated,
        cluster__name__in={line.cluster for line in lines},
        namespace__in={line.namespace for line in lines},
        workload__in={line.name for line in lines},
    )
    grouped = rows.order_by().values_list("cluster__name", "namespace", "workload")
    found = grouped.annotate(pod=Min("name", filter=named), template=Min("template_hash", filter=templated))
    return {(cluster, namespace, name): (pod, template) for cluster, namespace, name, pod, template in found}


def _find_revisions(lines: Iterable[SearchableWorkload], hashes: Sequence[str]) -> Mapping[str, str]:
    """Return by uid of the workload the hash of a revision that matched."""
    if not hashes:
        return {}
    rows = models.Revision.objects.filter(
        _starts_with_any("generation_hash", hashes),
        cluster__in={line.cluster for line in lines},
        workload_uid__in={line.uid for line in lines},
    )
    return dict(rows.order_by("number").values_list("workload_uid", "generation_hash"))


def _starts_with_any(column: str, words: Iterable[str]) -> Q:
    return reduce(or_, (_starts_with(column, word) for word in words), Q(pk__in=()))


def _starts_with(column: str, word: str) -> Q:
    """Return the condition that a column begins with a word, so that the database uses an index."""
    if connection.vendor == "sqlite":
        # Its LIKE ignores case, so it cannot use the index.
        return Q(**{f"{column}__gte": word, f"{column}__lt": f"{word}{_MAX_CHARACTER}"})
    return Q(**{f"{column}__startswith": word})
