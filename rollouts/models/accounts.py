"""Who may sign in, what stands for them, and where they may command.

`rollouts.accounts.permissions` says what follows from these rows; services write them. The invariant: no
row holds anything by which somebody could sign in. A password is there as Django's slow hash, a token as a digest, and
of a single sign-on only the name that the provider has for the person.
"""

from collections.abc import Iterator
from hashlib import sha256
from typing import ClassVar

from django.conf import settings
from django.contrib.auth.models import AbstractUser, Group
from django.db import models
from django.db.models import Q

from rollouts.models.mirror import LABEL_LENGTH, NAME_LENGTH

DIGEST_LENGTH = 64
PREFIX_LENGTH = 12


class User(AbstractUser):
    """An account. A model of our own from the first migration on, since it cannot be swapped in later."""

    # Sessions that began before this moment are of no use. None: none was ended.
    sessions_ended_at = models.DateTimeField(null=True, blank=True, editable=False)

    def get_session_auth_hash(self) -> str:
        """Return what a session has to carry: it changes with the password, and when all sessions are ended."""
        return self._bind_to_end(super().get_session_auth_hash())

    def get_session_auth_fallback_hash(self) -> Iterator[str]:
        """Return the same for former secret keys."""
        return map(self._bind_to_end, super().get_session_auth_fallback_hash())

    def _bind_to_end(self, digest: str) -> str:
        ended = self.sessions_ended_at
        return digest if ended is None else sha256(f"{digest} {ended.timestamp()}".encode()).hexdigest()


class ApiToken(models.Model):
    """What a program shows instead of signing in.

    The digest is a plain SHA-256: a slow hash protects words that people think up, and would protect nothing here,
    since nobody can try out 256 random bits; but every request would pay for it. A token is found by its digest, so how
    long the search takes tells nothing about the tokens there are.
    """

    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="tokens")
    name = models.CharField(max_length=100)  # what it is for, as its owner calls it
    prefix = models.CharField(max_length=PREFIX_LENGTH)  # its first letters, to tell it from others; no secret
    digest = models.CharField(max_length=DIGEST_LENGTH, unique=True)
    # Its scope, which `rollouts.accounts.token_scopes` reads: None is no limit.
    read_only = models.BooleanField(default=False)
    namespaces = models.JSONField(null=True, blank=True)  # [{"cluster": …, "namespace": …}]; an empty name means any
    commands = models.JSONField(null=True, blank=True)  # names of commands
    # The token that was shown to make it, with which it ends; None: its owner was signed in.
    made_with = models.ForeignKey("self", on_delete=models.CASCADE, null=True, blank=True, related_name="+")
    # Named by the setting GROVE_ADMIN_TOKEN, and replaced or revoked when that says otherwise.
    is_from_settings = models.BooleanField(default=False)
    created = models.DateTimeField(auto_now_add=True)
    expires_at = models.DateTimeField(null=True, blank=True)  # None: never
    last_used_at = models.DateTimeField(null=True, blank=True)  # at most a minute behind
    revoked_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ("-created", "-id")
        verbose_name = "API token"

    def __str__(self) -> str:
        return f"{self.name} ({self.prefix}…)"


class NamespaceGrant(models.Model):
    """Where somebody, or everybody in a group, may command what their permissions allow."""

    user = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.CASCADE, null=True, blank=True, related_name="grants"
    )
    group = models.ForeignKey(Group, on_delete=models.CASCADE, null=True, blank=True, related_name="grants")
    cluster = models.CharField(max_length=NAME_LENGTH, blank=True)  # empty: any
    namespace = models.CharField(max_length=LABEL_LENGTH, blank=True)  # empty: any
    created = models.DateTimeField(auto_now_add=True)
    author = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.SET_NULL, null=True, blank=True, related_name="+"
    )

    class Meta:
        ordering = ("cluster", "namespace", "id")
        constraints: ClassVar = [
            models.CheckConstraint(
                condition=Q(user__isnull=True, group__isnull=False) | Q(user__isnull=False, group__isnull=True),
                name="grant_to_a_user_or_a_group",
                violation_error_message="Grant a namespace either to a user or to a group.",
            ),
            models.UniqueConstraint(
                fields=("user", "cluster", "namespace"), condition=Q(user__isnull=False), name="grant_once_a_user"
            ),
            models.UniqueConstraint(
                fields=("group", "cluster", "namespace"), condition=Q(group__isnull=False), name="grant_once_a_group"
            ),
        ]

    def __str__(self) -> str:
        return f"{self.cluster or '*'}/{self.namespace or '*'}"


class OidcIdentity(models.Model):
    """Which account somebody has whom an identity provider vouches for.

    Issuer and subject are all that a provider promises never to give to somebody else; names and addresses it may.
    """

    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="identities")
    issuer = models.CharField(max_length=500)
    subject = models.CharField(max_length=255)
    created = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ("issuer", "subject")
        verbose_name = "single sign-on identity"
        verbose_name_plural = "single sign-on identities"
        constraints: ClassVar = [models.UniqueConstraint(fields=("issuer", "subject"), name="identity_once")]

    def __str__(self) -> str:
        return f"{self.subject} of {self.issuer}"
