"""Rules of what may not be changed once a set is stored: everything that gangs and names are made of.

Values are compared as they count, so that writing out a default is no change. A minAvailable that nobody wrote, neither
before nor now, is none that could be changed: it follows the replicas.
"""

from collections.abc import Iterator
from typing import Final

from rollouts.engine.manifest.findings import Code, Finding
from rollouts.engine.manifest.set_manifest import Place, SetManifest
from rollouts.engine.model.workload import Startup

_MINIMUM_OF_A_CLIQUE: Final = (
    "minAvailable cannot be changed; write the former value (the former replicas if it was left out), or create a new"
    " set"
)
_ORDER: Final = "the order of the cliques is their start-up order here and cannot be changed; restore the former order"
_TOPOLOGY: Final = (
    "topologyConstraint cannot be changed (but pack.required may be written for the same packDomain); restore the"
    " former one, or create a new set"
)


def look_at_changes(old: SetManifest, new: SetManifest) -> Iterator[Finding]:
    """Yield what was changed and may not be."""
    if old.template.value is None or new.template.value is None:
        return
    yield from _look_at_set(old, new)
    unsaid = old.without_minimum & new.without_minimum
    former = _by_name(old.cliques)
    for clique in new.cliques:
        if clique["name"].value in former:
            yield from _look_at_clique(former[clique["name"].value], clique)
            if clique["name"].value not in unsaid:
                spec = former[clique["name"].value]["spec"]
                yield from _same(spec, clique["spec"], "minAvailable", sentence=_MINIMUM_OF_A_CLIQUE)
    former = _by_name(old.groups)
    for group in new.groups:
        if group["name"].value in former:
            yield from _look_at_group(former[group["name"].value], group)


def _look_at_set(old: SetManifest, new: SetManifest) -> Iterator[Finding]:
    yield from _same(old.template, new.template, "cliqueStartupType")
    yield from _same(old.template, new.template, "resourceClaimTemplates")
    yield from _same(old.template, new.template, "resourceSharing")
    yield from _same_topology(old.template["topologyConstraint"], new.template["topologyConstraint"])
    yield from _same_cliques(old, new)
    if None not in (old.group_names, new.group_names) and old.group_names != new.group_names:
        sentence = "scaling groups cannot be added, removed or renamed; restore the former ones, or create a new set"
        yield new.template["podCliqueScalingGroups"].found(Code.IMMUTABLE, sentence)


def _same_cliques(old: SetManifest, new: SetManifest) -> Iterator[Finding]:
    cliques = new.template["cliques"]
    if old.clique_names is None or new.clique_names is None:
        return
    if old.clique_names != new.clique_names:
        sentence = "cliques cannot be added, removed or renamed; restore the former ones, or create a new set"
        yield cliques.found(Code.IMMUTABLE, sentence)
    elif new.template["cliqueStartupType"].value != Startup.ANY_ORDER and list(_by_name(old.cliques)) != list(
        _by_name(new.cliques)
    ):
        yield cliques.found(Code.IMMUTABLE, _ORDER)


def _look_at_clique(old: Place, new: Place) -> Iterator[Finding]:
    yield from _same(old["spec"], new["spec"], "roleName", empty="")
    yield from _same(old["spec"], new["spec"], "startsAfter", empty=[])
    yield from _same(old["spec"]["podSpec"], new["spec"]["podSpec"], "schedulerName", empty="")
    yield from _same(old, new, "resourceSharing")
    yield from _same_topology(old["topologyConstraint"], new["topologyConstraint"])


def _look_at_group(old: Place, new: Place) -> Iterator[Finding]:
    yield from _same(old, new, "cliqueNames")
    yield from _same(old, new, "minAvailable")
    yield from _same(old, new, "resourceSharing")
    yield from _same_topology(old["topologyConstraint"], new["topologyConstraint"])


def _same(old: Place, new: Place, name: str, *, empty: object = None, sentence: str = "") -> Iterator[Finding]:
    """Yield a finding if a field was changed; one that is left out counts as empty."""
    former, wanted = old[name], new[name]
    if former.is_wrong or wanted.is_wrong:
        return
    if (empty if former.is_absent else former.value) != (empty if wanted.is_absent else wanted.value):
        default = f"{name} cannot be changed; restore the former value, or create a new set"
        yield wanted.found(Code.IMMUTABLE, sentence or default)


def _same_topology(old: Place, new: Place) -> Iterator[Finding]:
    if old.is_wrong or new.is_wrong:
        return
    if old.is_absent != new.is_absent:
        yield new.found(Code.IMMUTABLE, _TOPOLOGY)
        return
    yield from _same(old, new, "topologyName", empty="", sentence=_TOPOLOGY)
    if _domains(old) != _domains(new) and not new["pack"].is_wrong:
        yield new["pack"].found(Code.IMMUTABLE, _TOPOLOGY)


def _domains(constraint: Place) -> tuple[str | None, str | None]:
    pack = constraint["pack"]
    return constraint["packDomain"].value or pack["required"].value, pack["preferred"].value


def _by_name(components: tuple[Place, ...]) -> dict[str, Place]:
    return {component["name"].value: component for component in components if component["name"].value is not None}
