"""Rules of the start-up order of cliques."""

from collections.abc import Iterator, Mapping

from rollouts.engine.manifest.findings import Finding, FindingCode
from rollouts.engine.manifest.set_manifest import SetManifest
from rollouts.engine.model.workload import StartupType


def check_startup(pcs: SetManifest) -> Iterator[Finding]:
    """Yield the cliques that could never start."""
    for clique in pcs.cliques:
        for name in clique["spec"]["startsAfter"]:
            if name.value == clique["name"].value:
                sentence = "a clique cannot start after itself; remove its own name from startsAfter"
                yield name.make_finding(FindingCode.STARTS_AFTER_ITSELF, sentence)
    if pcs.template["cliqueStartupType"].value == StartupType.EXPLICIT:
        yield from _check_cycles(pcs)


def _check_cycles(pcs: SetManifest) -> Iterator[Finding]:
    after = {
        clique["name"].value: [name.value for name in clique["spec"]["startsAfter"]]
        for clique in pcs.cliques
        if clique["name"].value is not None
    }
    reported: set[str] = set()
    for clique in pcs.cliques:
        cycle = find_cycle(after, clique["name"].value)
        if cycle and reported.isdisjoint(cycle):
            reported.update(cycle)
            chain = " after ".join([*cycle, cycle[0]])
            yield clique["spec"]["startsAfter"].make_finding(
                FindingCode.STARTUP_CYCLE,
                f"none of these could ever start: {chain}; remove one of the names from startsAfter",
            )


def find_cycle(after: Mapping[str, list[str]], start: str) -> list[str]:
    """Return a shortest cycle through a clique, the clique first and mentioned once; empty if there is none.

    >>> find_cycle({"a": ["b"], "b": ["c"], "c": ["a"]}, "a")
    ['a', 'b', 'c']
    >>> find_cycle({"a": ["b"], "b": ["c"], "c": ["b"]}, "a")
    []
    """
    paths = [[start]]
    seen = {start}
    for path in paths:
        for name in after.get(path[-1], []):
            if name == start and len(path) > 1:
                return path
            if name not in seen:
                seen.add(name)
                paths.append([*path, name])
    return []
