"""Drafts of overrides for tests: a sound one, with whatever else a test wants."""

from datetime import timedelta
from typing import Any

from django.utils import timezone

from rollouts.engine.model.budget import parse_budget
from rollouts.models import StrategyOverride
from rollouts.services.override_preview import OverrideDraft


def draft(**values: Any) -> OverrideDraft:
    """Return a draft that lasts for an hour and says why; without settings it switches to OnDelete."""
    settings = ("strategy", "max_unavailable", "max_surge", "components")
    sets = {} if any(name in values for name in settings) else {"strategy": "OnDelete"}
    common = {"reason": "the night shift is alone", "expires_at": timezone.now() + timedelta(hours=1)}
    return OverrideDraft(**{**common, **sets, **values})


def draft_of(row: StrategyOverride) -> OverrideDraft:
    """Return what is on record as a draft, to be changed."""
    return OverrideDraft(
        cluster=row.cluster,
        namespace=row.namespace,
        name=row.name,
        labels=row.selector or {},
        strategy=row.strategy,
        max_unavailable=parse_budget(row.max_unavailable),
        max_surge=parse_budget(row.max_surge),
        components=row.components or {},
        reason=row.reason,
        expires_at=row.expires_at,
    )
