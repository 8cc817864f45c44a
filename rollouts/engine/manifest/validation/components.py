"""Rules of cliques and scaling groups: their names, their numbers, their autoscaling."""

from collections.abc import Iterator
from typing import Final

from rollouts.engine.manifest.findings import Finding, FindingCode
from rollouts.engine.manifest.set_manifest import FieldValue, SetManifest

# A host name has 63 characters; indices and hyphens take the rest.
MAX_NAME_LENGTH: Final = 45


def check_components(pcs: SetManifest) -> Iterator[Finding]:
    """Yield errors of cliques and scaling groups."""
    yield from _check_name_lengths(pcs)
    yield from _check_unique_roles(pcs)
    yield from _check_autoscaler_names(pcs)
    for clique in pcs.cliques:
        spec = clique["spec"]
        yield from _check_min_available(spec)
        yield from _check_autoscaling(
            spec, spec["autoScalingConfig"], is_min_available_set=not _omits_min_available(pcs, clique)
        )
        if clique["name"].value in pcs.member_names and not spec["autoScalingConfig"].is_absent:
            yield spec["autoScalingConfig"].make_finding(FindingCode.MEMBER_AUTOSCALED, _MEMBER_AUTOSCALED)
    for group in pcs.groups:
        yield from _check_min_available(group)
        yield from _check_autoscaling(group, group["scaleConfig"], is_min_available_set=True)


def check_min_replicas(pcs: SetManifest, former: SetManifest | None = None) -> Iterator[Finding]:
    """Yield the cliques that autoscaling may scale below their minAvailable, which is left out and so equals replicas.

    A clique that left it out before is exempt: its replicas may be raised above minReplicas.
    """
    known = frozenset() if former is None else former.without_min_available
    for clique in pcs.cliques:
        floor, replicas = clique["spec"]["autoScalingConfig"]["minReplicas"], clique["spec"]["replicas"].value
        if not _omits_min_available(pcs, clique) or clique["name"].value in known:
            continue
        if floor.value is not None and replicas is not None and floor.value < replicas:
            yield floor.make_finding(FindingCode.MIN_REPLICAS_UNDER_REPLICAS, _MIN_REPLICAS_BELOW_REPLICAS)


def _omits_min_available(pcs: SetManifest, clique: FieldValue) -> bool:
    return clique["name"].value in pcs.without_min_available


_MIN_REPLICAS_BELOW_MIN_AVAILABLE: Final = "minReplicas may not be below minAvailable; raise it"
_MIN_REPLICAS_BELOW_REPLICAS: Final = (
    "minReplicas may not be below replicas where minAvailable is left out; raise it, or in a new set write a lower"
    " minAvailable"
)
_MEMBER_AUTOSCALED: Final = (
    "a clique in a scaling group is scaled with its group, so it may not have an autoScalingConfig; use scaleConfig of"
    " the group"
)


def _check_min_available(component: FieldValue) -> Iterator[Finding]:
    minimum, replicas = component["minAvailable"], component["replicas"].value
    if minimum.value is not None and replicas is not None and minimum.value > replicas:
        sentence = "minAvailable may not exceed replicas; raise replicas, or in a new set lower minAvailable"
        yield minimum.make_finding(FindingCode.MIN_AVAILABLE_OVER_REPLICAS, sentence)


def _check_autoscaling(component: FieldValue, scaling: FieldValue, *, is_min_available_set: bool) -> Iterator[Finding]:
    floor, ceiling = scaling["minReplicas"], scaling["maxReplicas"]
    replicas, minimum = component["replicas"].value, component["minAvailable"].value
    if ceiling.value is not None and replicas is not None and ceiling.value < replicas:
        sentence = "maxReplicas may not be below replicas; raise it, or lower replicas"
        yield ceiling.make_finding(FindingCode.MAX_REPLICAS_UNDER_REPLICAS, sentence)
    # A minReplicas that equals replicas, which is also its default, is wrong only if replicas is.
    if floor.value is None or floor.value == replicas:
        return
    if ceiling.value is not None and floor.value > ceiling.value:
        sentence = "minReplicas may not exceed maxReplicas; lower it, or raise maxReplicas"
        yield floor.make_finding(FindingCode.MIN_REPLICAS_OVER_MAX_REPLICAS, sentence)
    if is_min_available_set and minimum is not None and floor.value < minimum:
        yield floor.make_finding(FindingCode.MIN_REPLICAS_UNDER_MIN_AVAILABLE, _MIN_REPLICAS_BELOW_MIN_AVAILABLE)


def _check_name_lengths(pcs: SetManifest) -> Iterator[Finding]:
    if pcs.name is None:
        return
    for clique in pcs.standalone:
        if len(pcs.name) + len(clique["name"].value) > MAX_NAME_LENGTH:
            yield clique["name"].make_finding(
                FindingCode.NAMES_TOO_LONG,
                "the names of the set and of a clique may have at most 45 characters together; shorten one of them",
            )
    for group in pcs.groups:
        longest = max((len(member.value) for member in group["cliqueNames"]), default=0)
        if group["name"].value and len(pcs.name) + len(group["name"].value) + longest > MAX_NAME_LENGTH:
            yield group["name"].make_finding(
                FindingCode.NAMES_TOO_LONG,
                "the names of the set, of a scaling group and of a clique in it may have at most 45 characters"
                " together; shorten one of them",
            )


def _check_unique_roles(pcs: SetManifest) -> Iterator[Finding]:
    seen = set()
    for clique in pcs.cliques:
        role = clique["spec"]["roleName"]
        if role.value and role.value in seen:
            sentence = "two cliques have the same spec.roleName; rename one of them"
            yield role.make_finding(FindingCode.DUPLICATE_NAME, sentence)
        seen.add(role.value)


def _check_autoscaler_names(pcs: SetManifest) -> Iterator[Finding]:
    """Yield groups whose autoscaler would have the name of another; each is named after the object that it scales."""
    scaled = {clique["name"].value for clique in pcs.standalone if not clique["spec"]["autoScalingConfig"].is_absent}
    for group in pcs.groups:
        if group["name"].value in scaled and not group["scaleConfig"].is_absent:
            yield group["name"].make_finding(
                FindingCode.NAME_COLLISION,
                "the autoscalers of this group and of the clique of the same name would have the same name; rename"
                " one of them",
            )
