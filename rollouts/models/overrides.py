"""Strategy overrides: parts of the strategies of workloads that users replace here, not in the manifests.

`rollouts.controller.effective_strategy` applies them; nothing else decides by them.
"""

import hashlib
from datetime import datetime
from typing import Any, ClassVar

import orjson
from django.conf import settings
from django.db import models

from rollouts.engine.model.budget import parse_budget
from rollouts.models.mirror import LABEL_LENGTH, NAME_LENGTH


class StrategyOverrideQuerySet(models.QuerySet["StrategyOverride"]):
    """Overrides, filtered by whether they are in force."""

    def in_force(self, now: datetime) -> "StrategyOverrideQuerySet":
        """Return the overrides in force at a time; `StrategyOverride.is_in_force` is the same rule for one."""
        return self.filter(self._is_in_force(now))

    def ended(self, now: datetime) -> "StrategyOverrideQuerySet":
        """Return the overrides that have ended."""
        return self.exclude(self._is_in_force(now))

    @staticmethod
    def _is_in_force(now: datetime) -> models.Q:
        return models.Q(expires_at=None) | models.Q(expires_at__gt=now)


class StrategyOverride(models.Model):
    """A replacement for parts of a strategy: for which workloads, what, why and until when."""

    # Which workloads it matches; empty: any.
    cluster = models.CharField(max_length=NAME_LENGTH, blank=True)
    namespace = models.CharField(max_length=LABEL_LENGTH, blank=True)
    name = models.CharField(max_length=NAME_LENGTH, blank=True)
    selector = models.JSONField(default=dict, blank=True)  # labels of the workload, all of which must match
    # What it sets; empty or None: it does not set this.
    strategy = models.CharField(max_length=40, blank=True)
    max_unavailable = models.CharField(max_length=20, null=True, blank=True)  # noqa: DJ001 (None: not set)
    max_surge = models.CharField(max_length=20, null=True, blank=True)  # noqa: DJ001
    components = models.JSONField(
        default=dict, blank=True
    )  # {"<clique or group>": {"maxUnavailable": …, "maxSurge": …}}
    reason = models.TextField()
    author = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.SET_NULL, null=True, related_name="+")
    created = models.DateTimeField(auto_now_add=True)
    expires_at = models.DateTimeField(null=True, blank=True)

    objects = StrategyOverrideQuerySet.as_manager()

    class Meta:
        ordering = ("-created",)
        indexes: ClassVar = [models.Index(fields=("cluster", "namespace", "name"), name="override_by_workload")]

    def __str__(self) -> str:
        whom = "/".join(part or "*" for part in (self.cluster, self.namespace, self.name))
        return f"{whom}: {self.reason}"

    @property
    def settings(self) -> dict[str, Any]:
        """The fields that it sets, as the API writes a strategy."""
        strategy = {
            "type": self.strategy or None,
            "maxUnavailable": parse_budget(self.max_unavailable),
            "maxSurge": parse_budget(self.max_surge),
            "components": self.components or None,
        }
        return {name: value for name, value in strategy.items() if value is not None}

    @property
    def version(self) -> str:
        """A text that differs for each state of the override, for ETags."""
        said = (self.cluster, self.namespace, self.name, self.selector, self.settings, self.reason, self.expires_at)
        # A database keeps neither the order of keys in JSON nor the spelling of a time zone.
        text = orjson.dumps(said, option=orjson.OPT_SORT_KEYS | orjson.OPT_UTC_Z)
        return f"{self.pk}.{hashlib.sha256(text).hexdigest()[:16]}"

    def is_in_force(self, now: datetime) -> bool:
        """Whether it applies at a time."""
        return self.expires_at is None or self.expires_at > now
