"""Checks a change of pod templates against the Pod Security level of the namespace.

Every command and preview that changes a template calls this (`edit.evaluate_edit`, `apply`), because the pods are
created with the account of Grove UI and not with the caller's (docs/adr/0031). Violations that the template already has
never block a change: during an incident a workload can be scaled and get another image.
"""

from typing import Final

from django.conf import settings

from rollouts.accounts import permissions
from rollouts.accounts.commands import Command, WorkloadRef
from rollouts.cluster import Obj
from rollouts.engine.manifest.findings import Finding, FindingCode
from rollouts.engine.manifest.validation.pod_security import PodSecurityLevel, find_added_violations
from rollouts.models import NamespacePodSecurity
from rollouts.services.audit import Caller
from rollouts.services.workload_client import MAX_FINDINGS

_TOKEN_LACKS_PRIVILEGE: Final = (
    f"the scope of this token lacks {Command.APPLY_PRIVILEGED.value}, and your account has it; "
    "use a token that includes it"
)


def find_pod_security_violations(
    caller: Caller, place: WorkloadRef, before: Obj | None, after: Obj
) -> tuple[Finding, ...]:
    """Return the violations that a change adds and the caller may not add; `before` is None for a new workload.

    The search ends when it has found more than an answer shows.
    """
    if before is not None and _template_of(before) == _template_of(after):
        return ()
    where = (caller.user, Command.APPLY_PRIVILEGED, place.cluster, place.namespace)
    if permissions.find_refusal(*where, scope=caller.scope) is None:
        return ()
    found = find_added_violations(before or {}, after, find_pod_security_level(place), limit=MAX_FINDINGS + 1)
    if found and permissions.find_refusal(*where) is None:
        return Finding("", FindingCode.POD_SECURITY, _TOKEN_LACKS_PRIVILEGE), *found
    return found


def find_pod_security_level(place: WorkloadRef) -> PodSecurityLevel:
    """Return the level of a namespace: its own, or else that of its cluster, or else that of the installation."""
    rows = NamespacePodSecurity.objects.filter(cluster=place.cluster, namespace__in=("", place.namespace)).order_by()
    levels = dict(rows.values_list("namespace", "level"))
    of_installation = settings.ENVIRONMENT.pod_security_level
    return PodSecurityLevel(levels.get(place.namespace) or levels.get("") or of_installation)


def _template_of(manifest: Obj) -> object:
    spec = manifest.get("spec")
    return spec.get("template") if isinstance(spec, dict) else None
