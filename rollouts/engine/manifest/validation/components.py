"""Rules of cliques and scaling groups: their names, their numbers, their autoscaling."""

from collections.abc import Iterator
from typing import Final

from rollouts.engine.manifest.findings import Code, Finding
from rollouts.engine.manifest.set_manifest import Place, SetManifest

# What is left of the 63 characters of a host name for names, after the indices and hyphens between them.
MOST_NAME_CHARACTERS: Final = 45


def look_at_components(pcs: SetManifest) -> Iterator[Finding]:
    """Yield what is wrong with cliques and scaling groups."""
    yield from _names_are_short(pcs)
    yield from _roles_differ(pcs)
    yield from _autoscalers_differ(pcs)
    for clique in pcs.cliques:
        spec = clique["spec"]
        yield from _minimum_fits(spec)
        yield from _scaling_fits(spec, spec["autoScalingConfig"], is_minimum_said=not _leaves_minimum_out(pcs, clique))
        if clique["name"].value in pcs.members and not spec["autoScalingConfig"].is_absent:
            yield spec["autoScalingConfig"].found(Code.MEMBER_AUTOSCALED, _MEMBER_AUTOSCALED)
    for group in pcs.groups:
        yield from _minimum_fits(group)
        yield from _scaling_fits(group, group["scaleConfig"], is_minimum_said=True)


def look_at_floors(pcs: SetManifest, former: SetManifest | None = None) -> Iterator[Finding]:
    """Yield where autoscaling may go below a minAvailable that is left out, and so is all replicas.

    Not where it was left out before: that default was nobody's word, and replicas may be raised above minReplicas.
    """
    known = frozenset() if former is None else former.without_minimum
    for clique in pcs.cliques:
        floor, replicas = clique["spec"]["autoScalingConfig"]["minReplicas"], clique["spec"]["replicas"].value
        if not _leaves_minimum_out(pcs, clique) or clique["name"].value in known:
            continue
        if floor.value is not None and replicas is not None and floor.value < replicas:
            yield floor.found(Code.MIN_REPLICAS_UNDER_REPLICAS, _FLOOR_WITHOUT_MINIMUM)


def _leaves_minimum_out(pcs: SetManifest, clique: Place) -> bool:
    return clique["name"].value in pcs.without_minimum


_FLOOR: Final = "minReplicas may not be below minAvailable; raise it"
_FLOOR_WITHOUT_MINIMUM: Final = (
    "minReplicas may not be below replicas where minAvailable is left out; raise it, or in a new set write a lower"
    " minAvailable"
)
_MEMBER_AUTOSCALED: Final = (
    "a clique in a scaling group is scaled with its group, so it may not have an autoScalingConfig; use scaleConfig of"
    " the group"
)


def _minimum_fits(component: Place) -> Iterator[Finding]:
    minimum, replicas = component["minAvailable"], component["replicas"].value
    if minimum.value is not None and replicas is not None and minimum.value > replicas:
        sentence = "minAvailable may not exceed replicas; raise replicas, or in a new set lower minAvailable"
        yield minimum.found(Code.MIN_AVAILABLE_OVER_REPLICAS, sentence)


def _scaling_fits(component: Place, scaling: Place, *, is_minimum_said: bool) -> Iterator[Finding]:
    floor, ceiling = scaling["minReplicas"], scaling["maxReplicas"]
    replicas, minimum = component["replicas"].value, component["minAvailable"].value
    if ceiling.value is not None and replicas is not None and ceiling.value < replicas:
        sentence = "maxReplicas may not be below replicas; raise it, or lower replicas"
        yield ceiling.found(Code.MAX_REPLICAS_UNDER_REPLICAS, sentence)
    # A floor that is the same as replicas, as it is when left out, can be wrong only where replicas are.
    if floor.value is None or floor.value == replicas:
        return
    if ceiling.value is not None and floor.value > ceiling.value:
        sentence = "minReplicas may not exceed maxReplicas; lower it, or raise maxReplicas"
        yield floor.found(Code.MIN_REPLICAS_OVER_MAX_REPLICAS, sentence)
    if is_minimum_said and minimum is not None and floor.value < minimum:
        yield floor.found(Code.MIN_REPLICAS_UNDER_MIN_AVAILABLE, _FLOOR)


def _names_are_short(pcs: SetManifest) -> Iterator[Finding]:
    if pcs.name is None:
        return
    for clique in pcs.standalone:
        if len(pcs.name) + len(clique["name"].value) > MOST_NAME_CHARACTERS:
            yield clique["name"].found(
                Code.NAMES_TOO_LONG,
                "the names of the set and of a clique may have at most 45 characters together; shorten one of them",
            )
    for group in pcs.groups:
        longest = max((len(member.value) for member in group["cliqueNames"]), default=0)
        if group["name"].value and len(pcs.name) + len(group["name"].value) + longest > MOST_NAME_CHARACTERS:
            yield group["name"].found(
                Code.NAMES_TOO_LONG,
                "the names of the set, of a scaling group and of a clique in it may have at most 45 characters"
                " together; shorten one of them",
            )


def _roles_differ(pcs: SetManifest) -> Iterator[Finding]:
    seen = set()
    for clique in pcs.cliques:
        role = clique["spec"]["roleName"]
        if role.value and role.value in seen:
            sentence = "each clique needs a spec.roleName of its own; rename one of the two"
            yield role.found(Code.DUPLICATE_NAME, sentence)
        seen.add(role.value)


def _autoscalers_differ(pcs: SetManifest) -> Iterator[Finding]:
    """An autoscaler is called like what it scales, be it a PodClique or a PodCliqueScalingGroup."""
    scaled = {clique["name"].value for clique in pcs.standalone if not clique["spec"]["autoScalingConfig"].is_absent}
    for group in pcs.groups:
        if group["name"].value in scaled and not group["scaleConfig"].is_absent:
            yield group["name"].found(
                Code.NAME_COLLISION,
                "the autoscalers of this group and of the clique of the same name would have one name; rename one of"
                " the two",
            )
