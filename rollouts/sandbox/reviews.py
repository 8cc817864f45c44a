"""Admission by our own rules: what the product's webhook refuses on a real cluster, the sandbox refuses itself.

The rules are the engine's; here they only get the form in which an API server tells a refusal. They come after schema
and CEL and say what those cannot: budgets that resolve to nothing, start-up cycles, names that collide.
"""

from typing import Any, Final

from rollouts.engine.validation import validate_create, validate_update
from rollouts.sandbox.api.registry import Review
from rollouts.sandbox.api.status import Cause

Obj = dict[str, Any]


def review_set(obj: Obj, old: Obj | None) -> list[Cause]:
    """Return what the engine's rules find wrong with a PodCliqueSet."""
    if old is None:
        report = validate_create(obj)
    elif obj.get("spec") == old.get("spec"):
        return []  # a status, a label or a finalizer: nothing that the rules are about
    else:
        report = validate_update(old, obj)
    return [Cause("FieldValueInvalid", finding.message, finding.field) for finding in report.errors]


REVIEWS: Final[dict[str, Review]] = {"podcliquesets.grove.io": review_set}
