"""Whether somebody may put such pods into a namespace: the Pod Security level in force there, and what a change adds.

Every command and every preview that changes a template comes by here (`edit.evaluate_edit`, `apply`), since the pods
are created with the account of Grove UI and not with the caller's (docs/adr/0031). What is in the template already
never stands in the way of a change of something else: a workload can be scaled and get another image in an incident.
"""

from django.conf import settings

from rollouts.accounts import permissions
from rollouts.accounts.commands import WorkloadRef
from rollouts.cluster import Obj
from rollouts.engine.manifest.findings import Finding
from rollouts.engine.manifest.validation.pod_security import PodSecurityLevel, find_added_violations
from rollouts.models import NamespacePodSecurity
from rollouts.services.audit import Caller


def find_pod_security_violations(
    caller: Caller, place: WorkloadRef, before: Obj | None, after: Obj
) -> tuple[Finding, ...]:
    """Return what a change adds that the caller may not put there; `before` is None for a workload that is new."""
    if before is not None and _template_of(before) == _template_of(after):
        return ()
    if permissions.may_apply_privileged(caller.user):
        return ()
    return find_added_violations(before or {}, after, find_pod_security_level(place))


def find_pod_security_level(place: WorkloadRef) -> PodSecurityLevel:
    """Return the level in force in a namespace: its own, that of its cluster, or that of the installation."""
    rows = NamespacePodSecurity.objects.filter(cluster=place.cluster, namespace__in=("", place.namespace)).order_by()
    levels = dict(rows.values_list("namespace", "level"))
    of_installation = settings.ENVIRONMENT.pod_security_level
    return PodSecurityLevel(levels.get(place.namespace) or levels.get("") or of_installation)


def _template_of(manifest: Obj) -> object:
    spec = manifest.get("spec")
    return spec.get("template") if isinstance(spec, dict) else None
