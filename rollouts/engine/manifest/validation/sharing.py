"""Rules of topology constraints and shared resource claims."""

from collections.abc import Iterator, Set
from typing import Final

from rollouts.engine.manifest.findings import Finding, FindingCode
from rollouts.engine.manifest.set_manifest import FieldValue, SetManifest

_FILTER_NOT_ALLOWED: Final = "resourceSharing of a {owner} cannot be limited to {what}; remove them"


def check_sharing(pcs: SetManifest) -> Iterator[Finding]:
    """Yield errors of topology constraints and shared claims, at all three levels."""
    for owner in (pcs.template, *pcs.cliques, *pcs.groups):
        yield from _check_domain(owner["topologyConstraint"])
    yield from _check_unique_claims(pcs)
    for shared in pcs.template["resourceSharing"]:
        yield from _check_filter_names(shared, pcs.clique_names, pcs.group_names)
    for group in pcs.groups:
        members = frozenset(name.value for name in group["cliqueNames"])
        for shared in group["resourceSharing"]:
            yield from _check_filter_names(shared, members, None)
            yield from _check_no_filter(shared["filter"]["childScalingGroupNames"], "scaling group", "scaling groups")
    for clique in pcs.cliques:
        for shared in clique["resourceSharing"]:
            for name in ("childCliqueNames", "childScalingGroupNames"):
                yield from _check_no_filter(shared["filter"][name], "clique", "cliques or scaling groups")


def _check_domain(constraint: FieldValue) -> Iterator[Finding]:
    if constraint.value is None:
        return
    pack, former = constraint["pack"], constraint["packDomain"]
    if pack.is_absent and former.is_absent:
        sentence = "topologyConstraint needs a domain; set pack.required or pack.preferred"
        yield constraint.make_finding(FindingCode.DOMAIN_MISSING, sentence)
    if pack.value is not None and pack["required"].is_absent and pack["preferred"].is_absent:
        yield pack.make_finding(FindingCode.DOMAIN_MISSING, "pack needs a domain; set required or preferred")
    if not former.is_absent and not pack["required"].is_absent and not pack.is_invalid:
        sentence = "packDomain is the former name of pack.required; remove packDomain"
        yield former.make_finding(FindingCode.DOMAIN_TWICE, sentence)


def _check_unique_claims(pcs: SetManifest) -> Iterator[Finding]:
    seen = set()
    for claim in pcs.template["resourceClaimTemplates"]:
        name = claim["name"]
        if name.value is not None and name.value in seen:
            sentence = "two resource claim templates have the same name; rename one of them"
            yield name.make_finding(FindingCode.DUPLICATE_NAME, sentence)
        seen.add(name.value)


def _check_filter_names(shared: FieldValue, cliques: Set[str] | None, groups: Set[str] | None) -> Iterator[Finding]:
    for name in shared["filter"]["childCliqueNames"]:
        if cliques is not None and name.value not in cliques:
            sentence = "childCliqueNames may only name cliques below this level; correct the name, or remove it"
            yield name.make_finding(FindingCode.UNKNOWN_CLIQUE, sentence)
    for name in shared["filter"]["childScalingGroupNames"]:
        if groups is not None and name.value not in groups:
            sentence = "childScalingGroupNames may only name scaling groups of this set; correct the name, or remove it"
            yield name.make_finding(FindingCode.UNKNOWN_GROUP, sentence)


def _check_no_filter(names: FieldValue, owner: str, what: str) -> Iterator[Finding]:
    if names.value:
        yield names.make_finding(FindingCode.FILTER_NOT_ALLOWED, _FILTER_NOT_ALLOWED.format(owner=owner, what=what))
