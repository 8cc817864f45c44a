"""Admission by our own rules: what the product's webhook refuses on a real cluster, the sandbox refuses itself.

The rules are the engine's; here they only get the form in which an API server tells a refusal. They come after schema
and CEL and say what those cannot: budgets that resolve to nothing, start-up cycles, names that collide.
"""

from typing import Any, Final

from rollouts.engine.manifest.validation import ValidationReport, validate_create, validate_update
from rollouts.sandbox.apiserver.errors import StatusCause
from rollouts.sandbox.apiserver.registry import AdmissionValidator, AdmissionWarner

Obj = dict[str, Any]


def validate_set(obj: Obj, old: Obj | None) -> list[StatusCause]:
    """Return what the engine's rules find wrong with a PodCliqueSet."""
    return [StatusCause("FieldValueInvalid", finding.message, finding.field) for finding in _validate(obj, old).errors]


def warn_about_set(obj: Obj, old: Obj | None) -> list[str]:
    """Return what the engine's rules find odd about a PodCliqueSet: kubectl prints it as warnings."""
    return [f"{finding.field}: {finding.message}" for finding in _validate(obj, old).warnings]


def _validate(obj: Obj, old: Obj | None) -> ValidationReport:
    if old is None:
        return validate_create(obj)
    if obj.get("spec") == old.get("spec"):
        return ValidationReport(())  # a status, a label or a finalizer: nothing that the rules are about
    return validate_update(old, obj)


VALIDATORS: Final[dict[str, AdmissionValidator]] = {"podcliquesets.grove.io": validate_set}
WARNERS: Final[dict[str, AdmissionWarner]] = {"podcliquesets.grove.io": warn_about_set}
