"""Admission by our own rules: what the product's webhook refuses on a real cluster, the sandbox refuses itself.

The rules are the engine's; here they only get the form in which an API server tells a refusal. They come after schema
and CEL and say what those cannot: budgets that resolve to nothing, start-up cycles, names that collide.
"""

from typing import Any, Final

from rollouts.engine.manifest.validation import Report, validate_create, validate_update
from rollouts.sandbox.apiserver.errors import Cause
from rollouts.sandbox.apiserver.registry import Advice, Review

Obj = dict[str, Any]


def review_set(obj: Obj, old: Obj | None) -> list[Cause]:
    """Return what the engine's rules find wrong with a PodCliqueSet."""
    return [Cause("FieldValueInvalid", finding.message, finding.field) for finding in _look_at(obj, old).errors]


def advise_on_set(obj: Obj, old: Obj | None) -> list[str]:
    """Return what the engine's rules find odd about a PodCliqueSet: kubectl prints it as warnings."""
    return [f"{finding.field}: {finding.message}" for finding in _look_at(obj, old).warnings]


def _look_at(obj: Obj, old: Obj | None) -> Report:
    if old is None:
        return validate_create(obj)
    if obj.get("spec") == old.get("spec"):
        return Report(())  # a status, a label or a finalizer: nothing that the rules are about
    return validate_update(old, obj)


REVIEWS: Final[dict[str, Review]] = {"podcliquesets.grove.io": review_set}
ADVICE: Final[dict[str, Advice]] = {"podcliquesets.grove.io": advise_on_set}
