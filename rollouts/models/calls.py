"""Requests to the API with an Idempotency-Key, and their answers.

`api.idempotency` writes a row before it executes the command, and the answer afterwards. The invariant: a user has one
row for each key, however many processes receive the request.
"""

from typing import ClassVar

from django.conf import settings
from django.db import models

KEY_LENGTH = 255


class Call(models.Model):
    """A request, and its answer as it was sent."""

    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="+")
    key = models.CharField(max_length=KEY_LENGTH)
    fingerprint = models.CharField(max_length=64)  # of method, path and body: a key may not be used for another request
    started = models.DateTimeField(auto_now_add=True)
    # When its last attempt began; None: no process works on it, and its outcome is not known.
    tried = models.DateTimeField(null=True, blank=True)
    finished = models.DateTimeField(null=True, blank=True)  # None: not finished, or its process has ended
    status = models.PositiveSmallIntegerField(null=True, blank=True)
    headers = models.JSONField(default=dict, blank=True)  # those of the answer itself, such as ETag
    body = models.TextField(blank=True)
    # The permissions that it needed; they are checked again before the stored answer is sent: [[command, cluster,
    # namespace]].
    needs = models.JSONField(default=list, blank=True)

    class Meta:
        ordering = ("-started",)
        constraints: ClassVar = [models.UniqueConstraint(fields=("user", "key"), name="call_once")]
        indexes: ClassVar = [models.Index(fields=("started",), name="call_by_time")]

    def __str__(self) -> str:
        return self.key
