"""The age of the templates of pods, for pods of many workloads at once: current, previous or older.

This costs two queries for all pods, and one more for revisions that are new to this process.
"""

from collections import defaultdict
from collections.abc import Iterable
from enum import StrEnum
from typing import Final

from rollouts import models
from rollouts.selectors.revisions import list_template_hashes

_UNKNOWN: Final = 0  # comes before every revision


class TemplateAge(StrEnum):
    """How old the template of a pod is."""

    CURRENT = "current"
    PREVIOUS = "previous"  # of the revision before
    OLDER = "older"  # of an earlier revision, or of one that is not stored


class TemplateAges:
    """The ages of the templates of some workloads."""

    def __init__(self, cluster: models.Cluster, workloads: Iterable[tuple[str, str]]) -> None:
        """Read the revisions of workloads, each given by namespace and name."""
        wanted = set(workloads)
        rows = models.Workload.objects.filter(
            cluster=cluster, namespace__in={one for one, _ in wanted}, name__in={other for _, other in wanted}
        )
        self._current: dict[tuple[str, str], str] = {}
        uids: dict[str, tuple[str, str]] = {}
        for namespace, name, uid, generation in rows.values_list("namespace", "name", "uid", "generation_hash"):
            self._current[namespace, name] = generation
            uids[uid] = (namespace, name)
        self._revisions: defaultdict[tuple[str, str], dict[str, tuple[int, str]]] = defaultdict(dict)
        self._read_revisions(cluster.name, uids)

    def _read_revisions(self, cluster: str, uids: dict[str, tuple[str, str]]) -> None:
        rows = models.Revision.objects.filter(cluster=cluster, workload_uid__in=uids).order_by("number")
        known = list(rows.values_list("id", "workload_uid", "number", "generation_hash"))
        hashes = list_template_hashes([(row, generation) for row, _, _, generation in known])
        for row, uid, number, generation in known:
            for template_hash in hashes.get((row, generation), {}).values():
                # The newest revision with this template, but the current revision first: not all its templates are new.
                found = self._revisions[uids[uid]].get(template_hash)
                if found is None or found[1] != self._current[uids[uid]]:
                    self._revisions[uids[uid]][template_hash] = (number, generation)

    def of(self, namespace: str, workload: str, template_hash: str, among: Iterable[str]) -> TemplateAge:
        """Return the age of a template; `among` are the templates that pods of its workload run."""
        number, generation = self._find(namespace, workload, template_hash)
        if generation and generation == self._current.get((namespace, workload)):
            return TemplateAge.CURRENT
        others = [self._find(namespace, workload, one) for one in among]
        newest = max(
            (one for one, other in others if other != self._current.get((namespace, workload))), default=number
        )
        return TemplateAge.PREVIOUS if number != _UNKNOWN and number == newest else TemplateAge.OLDER

    def _find(self, namespace: str, workload: str, template_hash: str) -> tuple[int, str]:
        return self._revisions[namespace, workload].get(template_hash, (_UNKNOWN, ""))
