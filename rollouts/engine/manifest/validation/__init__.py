"""Every rule of admission: what a PodCliqueSet must be to be stored, and what of it may be changed.

The admission webhook, the REST API, the forms, the admin and the sandbox ask here and nowhere else. A manifest gets its
defaults first (`defaults`), then each field is looked at (`schema`), then names that refer to one another
(`references`), then come the rules of this package, a module for each subject. All that is found is returned at once.
The invariants: whatever is given, nothing is raised; one mistake is one finding; and scaling is never refused on
account of anything but the number it asks for.
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
    """Report whether a set may be created like this."""
    wanted = _ParsedManifest.of(manifest)
    sizes = [*strategy.check_budgets(wanted.pcs), *components.check_min_replicas(wanted.pcs)]
    return ValidationReport.of([*wanted.errors(), *sizes], wanted.warnings())


def validate_update(old: object, new: object) -> ValidationReport:
    """Report whether a stored set may be changed into this.

    An update that scales the set or leaves its spec alone is looked at in spec.replicas only: neither an autoscaler nor
    the removal of a finalizer may be held up by a rule that the set has got past before.
    """
    former, wanted = _ParsedManifest.of(old), _ParsedManifest.of(new)
    if wanted.spec_text is not None and former.spec_text == wanted.spec_text:
        return ValidationReport.of(finding for finding in wanted.errors() if finding.field == "spec.replicas")
    changes = [
        *strategy.check_budgets(wanted.pcs, former.pcs),
        *components.check_min_replicas(wanted.pcs, former.pcs),
        *immutable.check_immutable_fields(former.pcs, wanted.pcs),
    ]
    # What had no effect before is on the page and in the condition; an edit of something else is not warned about it.
    known = {*former.warnings()}
    warnings = [one for one in wanted.warnings() if one.code is not FindingCode.UNSUPPORTED or one not in known]
    return ValidationReport.of([*wanted.errors(), *changes], warnings)


def find_unsupported(manifest: object) -> tuple[Finding, ...]:
    """Return the fields of a set that have no effect, and what does not happen because of that."""
    return ValidationReport.of((), unsupported.warn_about_unsupported(_ParsedManifest.of(manifest).pcs)).warnings


@dataclass(frozen=True, slots=True)
class _ParsedManifest:
    """A manifest after its fields have been looked at."""

    pcs: SetManifest
    field_errors: tuple[Finding, ...]  # of single fields
    spec_text: str | None  # the spec without its replicas; None where it has none

    @classmethod
    def of(cls, manifest: object) -> "_ParsedManifest":
        filled = with_defaults(manifest)
        usable, faults = parse_set(filled)
        spec = filled.get("spec") if usable and isinstance(filled, dict) else None
        if not isinstance(spec, dict):
            return cls(SetManifest(usable), tuple(faults), None)
        # As text, since for Python true is 1.
        rest = {name: value for name, value in spec.items() if name != "replicas"}
        pcs = SetManifest(usable, list_cliques_without_min_available(manifest))
        return cls(pcs, tuple(faults), json.dumps(rest, sort_keys=True))

    def errors(self) -> list[Finding]:
        return [*self.field_errors, *(finding for rule in _RULES for finding in rule(self.pcs))]

    def warnings(self) -> list[Finding]:
        return [finding for rule in _WARNINGS for finding in rule(self.pcs)]
