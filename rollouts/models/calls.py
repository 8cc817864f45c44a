"""Calls of the API that carry an Idempotency-Key, with the answers they got.

`api.idempotency` writes them: the row is there before the command is carried out, the answer afterwards. The
invariant: a person has one row for a key, whichever process asked first.
"""

from typing import ClassVar

from django.conf import settings
from django.db import models

KEY_LENGTH = 255


class Call(models.Model):
    """One call, and its answer as it was sent."""

    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="+")
    key = models.CharField(max_length=KEY_LENGTH)
    fingerprint = models.CharField(max_length=64)  # of method, path and body: the same key may not ask for other things
    started = models.DateTimeField(auto_now_add=True)
    # When it was last set about; None: nobody is at work on it, and what came of it is not known.
    tried = models.DateTimeField(null=True, blank=True)
    finished = models.DateTimeField(null=True, blank=True)  # None: under way, or its process was ended
    status = models.PositiveSmallIntegerField(null=True, blank=True)
    headers = models.JSONField(default=dict, blank=True)  # those that belong to the answer, such as ETag
    body = models.TextField(blank=True)
    # The permissions that it needed, asked for again before it is answered from here: [[command, cluster, namespace]].
    needs = models.JSONField(default=list, blank=True)

    class Meta:
        ordering = ("-started",)
        constraints: ClassVar = [models.UniqueConstraint(fields=("user", "key"), name="call_once")]
        indexes: ClassVar = [models.Index(fields=("started",), name="call_by_time")]

    def __str__(self) -> str:
        return self.key
