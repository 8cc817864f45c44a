"""Admission by the engine's rules: the sandbox rejects the PodCliqueSets that the product's webhook would reject.

The rules are in `engine.manifest.validation`; this module puts their findings into the form of an API server's
answer. They run after schema and CEL and check what those cannot: budgets that resolve to nothing, start-up cycles,
names that collide.
"""

from typing import Any, Final

from rollouts.engine.manifest.validation import ValidationReport, validate_create, validate_update
from rollouts.sandbox.apiserver.errors import StatusCause
from rollouts.sandbox.apiserver.registry import AdmissionValidator, AdmissionWarner

Obj = dict[str, Any]


def validate_set(obj: Obj, old: Obj | None) -> list[StatusCause]:
    """Return the errors that the engine's rules find in a PodCliqueSet."""
    return [StatusCause("FieldValueInvalid", finding.message, finding.field) for finding in _validate(obj, old).errors]


def warn_about_set(obj: Obj, old: Obj | None) -> list[str]:
    """Return the warnings that the engine's rules give about a PodCliqueSet; kubectl prints them."""
    return [f"{finding.field}: {finding.message}" for finding in _validate(obj, old).warnings]


def _validate(obj: Obj, old: Obj | None) -> ValidationReport:
    if old is None:
        return validate_create(obj)
    if obj.get("spec") == old.get("spec"):
        return ValidationReport(())  # only a status, a label or a finalizer changed: no rule is about those
    return validate_update(old, obj)


VALIDATORS: Final[dict[str, AdmissionValidator]] = {"podcliquesets.grove.io": validate_set}
WARNERS: Final[dict[str, AdmissionWarner]] = {"podcliquesets.grove.io": warn_about_set}
