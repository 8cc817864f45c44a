"""Rules of the order in which cliques start."""

from collections.abc import Iterator, Mapping

from rollouts.engine.manifest.findings import Finding, FindingCode
from rollouts.engine.manifest.set_manifest import SetManifest
from rollouts.engine.model.workload import StartupType


def check_startup(pcs: SetManifest) -> Iterator[Finding]:
    """Yield which cliques could never start."""
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
        circle = find_cycle(after, clique["name"].value)
        if circle and reported.isdisjoint(circle):
            reported.update(circle)
            chain = " after ".join([*circle, circle[0]])
            yield clique["spec"]["startsAfter"].make_finding(
                FindingCode.STARTUP_CYCLE,
                f"none of these could ever start: {chain}; remove one of the names from startsAfter",
            )


def find_cycle(after: Mapping[str, list[str]], start: str) -> list[str]:
    """Return a shortest way from a clique back to itself, without that clique's second mention; empty if none.

    >>> find_cycle({"a": ["b"], "b": ["c"], "c": ["a"]}, "a")
    ['a', 'b', 'c']
    >>> find_cycle({"a": ["b"], "b": ["c"], "c": ["b"]}, "a")
    []
    """
    ways = [[start]]
    seen = {start}
    for way in ways:
        for name in after.get(way[-1], []):
            if name == start and len(way) > 1:
                return way
            if name not in seen:
                seen.add(name)
                ways.append([*way, name])
    return []
