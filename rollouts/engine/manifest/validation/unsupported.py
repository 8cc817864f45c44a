"""Fields that are accepted and have no effect yet, each with the consequence.

Manifests written for Grove must apply here, so these fields are not refused. To keep users from relying on them, the
warnings of admission, the condition `Unsupported`, an Event, the page of the workload and the API name each of them.
The release that implements a field removes it from this module.

Values without a consequence are not named: start in any order, `paused: false`, `partition: 0`, empty lists.
"""

from collections.abc import Iterator, Sequence
from typing import Final

from rollouts.engine.manifest.findings import Finding, FindingCode
from rollouts.engine.manifest.set_manifest import FieldValue, SetManifest
from rollouts.engine.model.workload import REVISIONS_KEPT, StartupType

_NO_ORDER: Final = "Grove UI does not order the start of cliques yet: the pods of all cliques start at the same time"
_NO_WAIT: Final = "Grove UI does not order the start of cliques yet: these pods do not wait for {names}"
_NO_AUTOSCALER: Final = (
    "Grove UI creates no HorizontalPodAutoscaler yet: this {kind} keeps its replicas until a user or another autoscaler"
    " scales it"
)
_NO_TOPOLOGY: Final = (
    "Grove UI does not hand topology constraints to the scheduler yet: the pods may be spread over several domains"
)
_NO_CLAIMS: Final = "Grove UI creates no ResourceClaims yet: the pods do not get the claimed resources"
_NO_PAUSE: Final = "Grove UI does not pause updates yet: an update of this set goes on"
_NO_DEADLINE: Final = (
    "Grove UI watches no progress deadline yet: an update that makes no progress is not marked as failed"
)
_NO_LIMIT: Final = f"Grove UI does not use this limit yet: it keeps {REVISIONS_KEPT} revisions of every workload"
_NO_PARTITION: Final = "Grove UI does not hold replicas back yet: an update reaches all replicas"


def warn_about_unsupported(pcs: SetManifest) -> Iterator[Finding]:
    """Yield a finding for each field that is written and has no effect."""
    yield from _warn_about_set(pcs)
    yield from _warn_about_startup(pcs)
    for clique in pcs.cliques:
        yield from _warn_about_autoscaling(clique["spec"]["autoScalingConfig"], "clique")
    for group in pcs.groups:
        yield from _warn_about_autoscaling(group["scaleConfig"], "scaling group")
    for owner in (pcs.template, *pcs.cliques, *pcs.groups):
        if owner["topologyConstraint"].value is not None:
            yield owner["topologyConstraint"].make_finding(FindingCode.UNSUPPORTED, _NO_TOPOLOGY)
        if owner["resourceSharing"].value:
            yield owner["resourceSharing"].make_finding(FindingCode.UNSUPPORTED, _NO_CLAIMS)
    if pcs.template["resourceClaimTemplates"].value:
        yield pcs.template["resourceClaimTemplates"].make_finding(FindingCode.UNSUPPORTED, _NO_CLAIMS)


def render_unsupported(findings: Sequence[Finding]) -> str:
    """Return one text about fields without effect: the names of all fields, then each consequence once."""
    if not findings:
        return ""
    by_consequence: dict[str, list[str]] = {}
    for one in findings:
        by_consequence.setdefault(one.message, []).append(one.field)
    names = ", ".join(field for fields in by_consequence.values() for field in fields)
    start = "This field has" if len(findings) == 1 else "These fields have"
    return f"{start} no effect: {names}. {'. '.join(by_consequence)}."


def _warn_about_set(pcs: SetManifest) -> Iterator[Finding]:
    if pcs.spec["paused"].value is True:
        yield pcs.spec["paused"].make_finding(FindingCode.UNSUPPORTED, _NO_PAUSE)
    if pcs.spec["progressDeadlineSeconds"].value is not None:
        yield pcs.spec["progressDeadlineSeconds"].make_finding(FindingCode.UNSUPPORTED, _NO_DEADLINE)
    if pcs.spec["revisionHistoryLimit"].value is not None:
        yield pcs.spec["revisionHistoryLimit"].make_finding(FindingCode.UNSUPPORTED, _NO_LIMIT)
    partition = pcs.strategy["rollingUpdate"]["partition"]
    if partition.value:
        yield partition.make_finding(FindingCode.UNSUPPORTED, _NO_PARTITION)


def _warn_about_startup(pcs: SetManifest) -> Iterator[Finding]:
    startup = pcs.template["cliqueStartupType"]
    if startup.value in (StartupType.IN_ORDER, StartupType.EXPLICIT):
        yield startup.make_finding(FindingCode.UNSUPPORTED, _NO_ORDER)
    if startup.value != StartupType.EXPLICIT:
        return  # startsAfter has no effect then, as in Grove
    for clique in pcs.cliques:
        after = clique["spec"]["startsAfter"]
        names = ", ".join(name.value for name in after)
        if names:
            yield after.make_finding(FindingCode.UNSUPPORTED, _NO_WAIT.format(names=names))


def _warn_about_autoscaling(scaling: FieldValue, kind: str) -> Iterator[Finding]:
    if scaling.value is not None:
        yield scaling.make_finding(FindingCode.UNSUPPORTED, _NO_AUTOSCALER.format(kind=kind))
