"""Rules of fields that cannot be changed after creation: everything that determines gangs and names.

Values are compared with their defaults, so that writing out a default is no change. A minAvailable that is left out
before and after is not compared: it follows the replicas.
"""

from collections.abc import Iterator
from typing import Final

from rollouts.engine.manifest.findings import Finding, FindingCode
from rollouts.engine.manifest.set_manifest import FieldValue, SetManifest
from rollouts.engine.model.workload import StartupType

_MIN_AVAILABLE: Final = (
    "minAvailable cannot be changed; restore the former value (the former replicas if it was left out), or create a new"
    " set"
)
_ORDER: Final = "the order of the cliques is their start-up order here and cannot be changed; restore the former order"
_TOPOLOGY: Final = (
    "topologyConstraint cannot be changed (but pack.required may be written for the same packDomain); restore the"
    " former one, or create a new set"
)


def check_immutable_fields(old: SetManifest, new: SetManifest) -> Iterator[Finding]:
    """Yield the changed fields that are immutable."""
    if old.template.value is None or new.template.value is None:
        return
    yield from _check_set(old, new)
    unset_in_both = old.without_min_available & new.without_min_available
    former = _by_name(old.cliques)
    for clique in new.cliques:
        if clique["name"].value in former:
            yield from _check_clique(former[clique["name"].value], clique)
            if clique["name"].value not in unset_in_both:
                spec = former[clique["name"].value]["spec"]
                yield from _check_unchanged(spec, clique["spec"], "minAvailable", sentence=_MIN_AVAILABLE)
    former = _by_name(old.groups)
    for group in new.groups:
        if group["name"].value in former:
            yield from _check_group(former[group["name"].value], group)


def _check_set(old: SetManifest, new: SetManifest) -> Iterator[Finding]:
    yield from _check_unchanged(old.template, new.template, "cliqueStartupType")
    yield from _check_unchanged(old.template, new.template, "resourceClaimTemplates")
    yield from _check_unchanged(old.template, new.template, "resourceSharing")
    yield from _check_topology(old.template["topologyConstraint"], new.template["topologyConstraint"])
    yield from _check_clique_names(old, new)
    if None not in (old.group_names, new.group_names) and old.group_names != new.group_names:
        sentence = "scaling groups cannot be added, removed or renamed; restore the former ones, or create a new set"
        yield new.template["podCliqueScalingGroups"].make_finding(FindingCode.IMMUTABLE, sentence)


def _check_clique_names(old: SetManifest, new: SetManifest) -> Iterator[Finding]:
    cliques = new.template["cliques"]
    if old.clique_names is None or new.clique_names is None:
        return
    if old.clique_names != new.clique_names:
        sentence = "cliques cannot be added, removed or renamed; restore the former ones, or create a new set"
        yield cliques.make_finding(FindingCode.IMMUTABLE, sentence)
    elif new.template["cliqueStartupType"].value != StartupType.ANY_ORDER and list(_by_name(old.cliques)) != list(
        _by_name(new.cliques)
    ):
        yield cliques.make_finding(FindingCode.IMMUTABLE, _ORDER)


def _check_clique(old: FieldValue, new: FieldValue) -> Iterator[Finding]:
    yield from _check_unchanged(old["spec"], new["spec"], "roleName", empty="")
    yield from _check_unchanged(old["spec"], new["spec"], "startsAfter", empty=[])
    yield from _check_unchanged(old["spec"]["podSpec"], new["spec"]["podSpec"], "schedulerName", empty="")
    yield from _check_unchanged(old, new, "resourceSharing")
    yield from _check_topology(old["topologyConstraint"], new["topologyConstraint"])


def _check_group(old: FieldValue, new: FieldValue) -> Iterator[Finding]:
    yield from _check_unchanged(old, new, "cliqueNames")
    yield from _check_unchanged(old, new, "minAvailable")
    yield from _check_unchanged(old, new, "resourceSharing")
    yield from _check_topology(old["topologyConstraint"], new["topologyConstraint"])


def _check_unchanged(
    old: FieldValue, new: FieldValue, name: str, *, empty: object = None, sentence: str = ""
) -> Iterator[Finding]:
    """Yield a finding if a field was changed; a missing field equals `empty`."""
    former, wanted = old[name], new[name]
    if former.is_invalid or wanted.is_invalid:
        return
    if (empty if former.is_absent else former.value) != (empty if wanted.is_absent else wanted.value):
        default = f"{name} cannot be changed; restore the former value, or create a new set"
        yield wanted.make_finding(FindingCode.IMMUTABLE, sentence or default)


def _check_topology(old: FieldValue, new: FieldValue) -> Iterator[Finding]:
    if old.is_invalid or new.is_invalid:
        return
    if old.is_absent != new.is_absent:
        yield new.make_finding(FindingCode.IMMUTABLE, _TOPOLOGY)
        return
    yield from _check_unchanged(old, new, "topologyName", empty="", sentence=_TOPOLOGY)
    if _topology_domains(old) != _topology_domains(new) and not new["pack"].is_invalid:
        yield new["pack"].make_finding(FindingCode.IMMUTABLE, _TOPOLOGY)


def _topology_domains(constraint: FieldValue) -> tuple[str | None, str | None]:
    pack = constraint["pack"]
    return constraint["packDomain"].value or pack["required"].value, pack["preferred"].value


def _by_name(components: tuple[FieldValue, ...]) -> dict[str, FieldValue]:
    return {component["name"].value: component for component in components if component["name"].value is not None}
