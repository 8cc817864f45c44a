"""The rules of admission: which PodCliqueSets may be stored, and which changes of a stored one are allowed.

The one place that the admission webhook, the REST API, the forms, the admin and the sandbox ask. A manifest first gets
its defaults (`defaults`); then its fields are checked (`schema`), then names that refer to one another (`references`),
then the rules of this package, one module a subject. A report holds all findings at once. The invariants: validation
never raises; one mistake yields one finding; scaling is refused only because of the number of replicas.
"""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from rollouts.engine.manifest.defaults import list_cliques_without_min_available, with_defaults
from rollouts.engine.manifest.findings import Finding, FindingCode, ValidationReport
from rollouts.engine.manifest.references import check_references
from rollouts.engine.manifest.schema import parse_set
from rollouts.engine.manifest.set_manifest import SetManifest
from rollouts.engine.manifest.validation import components, immutable, pods, sharing, startup, strategy, unsupported

__all__ = [
    "Finding",
    "FindingCode",
    "ValidationReport",
    "find_unsupported",
    "render_unsupported",
    "validate_create",
    "validate_update",
]
render_unsupported = unsupported.render_unsupported

Rule = Callable[[SetManifest], Iterator[Finding]]

_RULES: Final[tuple[Rule, ...]] = (
    check_references,
    components.check_components,
    startup.check_startup,
    pods.check_pods,
    sharing.check_sharing,
    strategy.check_strategy,
)
_WARNINGS: Final[tuple[Rule, ...]] = (
    pods.warn_about_pods,
    strategy.warn_about_strategy,
    unsupported.warn_about_unsupported,
)


def validate_create(manifest: object) -> ValidationReport:
    """Report whether a set may be created from a manifest."""
    wanted = _ParsedManifest.of(manifest)
    sizes = [*strategy.check_budgets(wanted.pcs), *components.check_min_replicas(wanted.pcs)]
    return ValidationReport.of([*wanted.errors(), *sizes], wanted.warnings())


def validate_update(old: object, new: object) -> ValidationReport:
    """Report whether a stored set may be changed into another.

    If only spec.replicas differs, or nothing in the spec, the rules check spec.replicas alone: a rule that the stored
    set breaks must not block an autoscaler or the removal of a finalizer.
    """
    former, wanted = _ParsedManifest.of(old), _ParsedManifest.of(new)
    if wanted.spec_text is not None and former.spec_text == wanted.spec_text:
        return ValidationReport.of(finding for finding in wanted.errors() if finding.field == "spec.replicas")
    changes = [
        *strategy.check_budgets(wanted.pcs, former.pcs),
        *components.check_min_replicas(wanted.pcs, former.pcs),
        *immutable.check_immutable_fields(former.pcs, wanted.pcs),
    ]
    # The page and a condition already show fields without effect; only new ones are worth a warning here.
    known = {*former.warnings()}
    warnings = [one for one in wanted.warnings() if one.code is not FindingCode.UNSUPPORTED or one not in known]
    return ValidationReport.of([*wanted.errors(), *changes], warnings)


def find_unsupported(manifest: object) -> tuple[Finding, ...]:
    """Return a finding for each field of a set that has no effect."""
    return ValidationReport.of((), unsupported.warn_about_unsupported(_ParsedManifest.of(manifest).pcs)).warnings


@dataclass(frozen=True, slots=True)
class _ParsedManifest:
    """A manifest whose fields have been checked."""

    pcs: SetManifest
    field_errors: tuple[Finding, ...]
    spec_text: str | None  # the spec without its replicas; None if there is no usable spec

    @classmethod
    def of(cls, manifest: object) -> "_ParsedManifest":
        filled = with_defaults(manifest)
        usable, errors = parse_set(filled)
        spec = filled.get("spec") if usable and isinstance(filled, dict) else None
        if not isinstance(spec, dict):
            return cls(SetManifest(usable), tuple(errors), None)
        # Compared as text, since in Python True equals 1.
        rest = {name: value for name, value in spec.items() if name != "replicas"}
        pcs = SetManifest(usable, list_cliques_without_min_available(manifest))
        return cls(pcs, tuple(errors), json.dumps(rest, sort_keys=True))

    def errors(self) -> list[Finding]:
        return [*self.field_errors, *(finding for rule in _RULES for finding in rule(self.pcs))]

    def warnings(self) -> list[Finding]:
        return [finding for rule in _WARNINGS for finding in rule(self.pcs)]
