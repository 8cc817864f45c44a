"""Counts the pods of a workload by clique, from its tree."""

from collections import Counter
from collections.abc import Iterator, Mapping

from rollouts.selectors.tree import CliqueNode, WorkloadTree


def count_pods_by_clique(tree: WorkloadTree) -> Mapping[str, int]:
    """Return how many pods each clique of the template has; terminating pods do not count."""
    counts: Counter[str] = Counter()
    for clique in _iter_cliques(tree):
        counts[clique.template] += sum(not pod.leaving for pod in clique.pods)
    return counts


def _iter_cliques(tree: WorkloadTree) -> Iterator[CliqueNode]:
    for replica in tree.replicas:
        yield from replica.cliques
        for group in replica.groups:
            for part in group.replicas:
                yield from part.cliques
