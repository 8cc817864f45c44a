"""Rules of names that refer to one another, and of the total number of pods.

Comes after `schema`, which checks each field by itself. `parsing` returns no Workload where one of these rules is
broken, because its objects could not be named, found or counted; `validation` reports these rules with all others.
"""

import re
from collections.abc import Iterator
from itertools import permutations
from typing import Final

from rollouts.engine.manifest.findings import Finding, FindingCode
from rollouts.engine.manifest.set_manifest import FieldValue, SetManifest
from rollouts.engine.model.workload import StartupType

# The largest cluster that Kubernetes supports has 150,000 pods.
MAX_PODS: Final = 150_000

_INDEX: Final = "(0|[1-9][0-9]*)"


def check_references(pcs: SetManifest) -> Iterator[Finding]:
    """Yield errors of names that refer to one another, and of the number of pods."""
    yield from _check_members_exist(pcs)
    yield from _check_members_in_one_group(pcs)
    yield from _check_predecessors_exist(pcs)
    yield from _check_name_collisions(pcs)
    yield from _check_pod_count(pcs)


def _check_members_exist(pcs: SetManifest) -> Iterator[Finding]:
    for group in pcs.groups:
        for member in group["cliqueNames"]:
            if pcs.clique_names is not None and member.value not in pcs.clique_names:
                yield member.make_finding(
                    FindingCode.UNKNOWN_CLIQUE,
                    "cliqueNames may only name cliques of this set; correct the name, or add the clique",
                )


def _check_members_in_one_group(pcs: SetManifest) -> Iterator[Finding]:
    seen: dict[str, FieldValue] = {}
    for group in pcs.groups:
        for member in group["cliqueNames"]:
            first = seen.setdefault(member.value, group)
            if first != group:
                sentence = "a clique may be in one scaling group only; remove it from cliqueNames of the others"
                yield member.make_finding(FindingCode.CLIQUE_IN_TWO_GROUPS, sentence)
        yield from _check_no_duplicates(group["cliqueNames"])


def _check_predecessors_exist(pcs: SetManifest) -> Iterator[Finding]:
    is_explicit = pcs.template["cliqueStartupType"].value == StartupType.EXPLICIT
    for clique in pcs.cliques:
        yield from _check_no_duplicates(clique["spec"]["startsAfter"])
        for name in clique["spec"]["startsAfter"]:
            if is_explicit and pcs.clique_names is not None and name.value not in pcs.clique_names:
                sentence = "startsAfter may only name cliques of this set; correct the name, or add the clique"
                yield name.make_finding(FindingCode.UNKNOWN_CLIQUE, sentence)


def _check_no_duplicates(names: FieldValue) -> Iterator[Finding]:
    seen = set()
    for name in names:
        if name.value in seen:
            field = names.path.rpartition(".")[2]
            yield name.make_finding(
                FindingCode.DUPLICATE_NAME, f"{field} names a clique twice; remove the second mention"
            )
        seen.add(name.value)


def _check_name_collisions(pcs: SetManifest) -> Iterator[Finding]:
    """Yield the cliques whose PodCliques could get the same name, however far groups are scaled.

    In a set `chat`, the PodClique of a standalone clique `decode-0-leader` would be `chat-0-decode-0-leader`, and so
    would that of the clique `leader` in replica 0 of the group `decode`.
    """
    members = _map_members_to_groups(pcs)
    for clique in pcs.standalone:
        for member, group in members.items():
            if re.fullmatch(f"{group}-{_INDEX}-{member}", clique["name"].value):
                yield _make_collision_finding(clique["name"], group, member)
    names = {clique["name"].value: clique["name"] for clique in pcs.cliques}
    for (member, group), (other_member, other_group) in permutations(members.items(), 2):
        if _names_collide(group, member, other_group, other_member):
            yield _make_collision_finding(names[other_member], group, member)


def _map_members_to_groups(pcs: SetManifest) -> dict[str, str]:
    """Return the group of each member clique, without unusable and unknown names."""
    return {
        member.value: group["name"].value
        for group in pcs.groups
        for member in group["cliqueNames"]
        if group["name"].value is not None and member.value in (pcs.clique_names or ())
    }


def _names_collide(group: str, clique: str, other: str, others_clique: str) -> bool:
    """Whether `<group>-<n>-<clique>` and `<other>-<m>-<other's clique>` can be the same name, by a longer other group.

    Example: the clique `1-b` in the group `a` and the clique `b` in the group `a-0` can both be `a-0-1-b`.
    """
    longer = re.fullmatch(f"{group}-{_INDEX}(-.+)?", other)
    if longer is None:
        return False
    rest = (longer[2] or "").removeprefix("-")
    start = f"{rest}-" if rest else ""
    return re.fullmatch(f"{start}{_INDEX}-{others_clique}", clique) is not None


def _make_collision_finding(name: FieldValue, group: str, member: str) -> Finding:
    return name.make_finding(
        FindingCode.NAME_COLLISION,
        f"PodCliques of this clique could get the same name as those of {member} in the scaling group {group}; rename"
        " one of them",
    )


def _check_pod_count(pcs: SetManifest) -> Iterator[Finding]:
    sizes = {clique["name"].value: clique["spec"]["replicas"].value or 0 for clique in pcs.cliques}
    alone = sum(clique["spec"]["replicas"].value or 0 for clique in pcs.standalone)
    grouped = sum(
        (group["replicas"].value or 0) * sum(sizes.get(member.value, 0) for member in group["cliqueNames"])
        for group in pcs.groups
    )
    replicas = pcs.spec["replicas"]
    pods = (replicas.value or 0) * (alone + grouped)
    if pods > MAX_PODS:
        yield replicas.make_finding(
            FindingCode.TOO_MANY_PODS,
            f"the set asks for {pods} pods, and the largest clusters hold {MAX_PODS}; lower replicas of the set, of its"
            " cliques or of its scaling groups",
        )
