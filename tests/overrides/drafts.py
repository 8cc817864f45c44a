"""Drafts of overrides for tests: a sound one, with whatever else a test wants."""

from datetime import timedelta
from typing import Any

from django.utils import timezone

from rollouts.services.drafts import OverrideDraft


def draft(**values: Any) -> OverrideDraft:
    """Return a draft that lasts for an hour and says why; without settings it switches to OnDelete."""
    settings = ("strategy", "max_unavailable", "max_surge", "components")
    sets = {} if any(name in values for name in settings) else {"strategy": "OnDelete"}
    common = {"reason": "the night shift is alone", "expires_at": timezone.now() + timedelta(hours=1)}
    return OverrideDraft(**{**common, **sets, **values})
