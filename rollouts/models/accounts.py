"""Accounts, their API tokens, the namespaces that are granted to them, and their single sign-on identities.

Services write these rows; `rollouts.accounts.permissions` decides by them. The invariant: nobody can sign in with what
a row holds. A password is stored as Django's slow hash, a token as a digest, and a single sign-on identity as the name
that the provider has for the user.
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
    """An account; a model of our own, because Django cannot replace its own one later."""

    # Sessions that began before this time are not valid. None: no session was ended.
    sessions_ended_at = models.DateTimeField(null=True, blank=True, editable=False)

    def get_session_auth_hash(self) -> str:
        """Return the hash that a session must have; it changes with the password, and when all sessions are ended."""
        return self._bind_to_end(super().get_session_auth_hash())

    def get_session_auth_fallback_hash(self) -> Iterator[str]:
        """Yield the same hash for each former secret key."""
        return map(self._bind_to_end, super().get_session_auth_fallback_hash())

    def _bind_to_end(self, digest: str) -> str:
        ended = self.sessions_ended_at
        return digest if ended is None else sha256(f"{digest} {ended.timestamp()}".encode()).hexdigest()


class ApiToken(models.Model):
    """A token that a program sends instead of signing in.

    The digest is a plain SHA-256. A slow hash protects passwords that can be guessed; nobody guesses 256 random bits,
    and every request would pay for the slow hash. A token is found by its digest, so the duration of the search reveals
    nothing about other tokens.
    """

    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="tokens")
    name = models.CharField(max_length=100)  # given by its owner
    prefix = models.CharField(
        max_length=PREFIX_LENGTH
    )  # its first characters, by which its owner recognizes it; not secret
    digest = models.CharField(max_length=DIGEST_LENGTH, unique=True)
    # Its scope, which `rollouts.accounts.token_scopes` reads; None: no limit.
    read_only = models.BooleanField(default=False)
    namespaces = models.JSONField(null=True, blank=True)  # [{"cluster": …, "namespace": …}]; an empty name means any
    commands = models.JSONField(null=True, blank=True)  # names of commands
    # The token that created it; this one is valid at most as long as that one. None: its owner was signed in.
    made_with = models.ForeignKey("self", on_delete=models.CASCADE, null=True, blank=True, related_name="+")
    # It comes from the setting GROVE_ADMIN_TOKEN, and is replaced or revoked when that setting changes.
    is_from_settings = models.BooleanField(default=False)
    created = models.DateTimeField(auto_now_add=True)
    expires_at = models.DateTimeField(null=True, blank=True)  # None: never
    last_used_at = models.DateTimeField(null=True, blank=True)  # updated at most once a minute
    revoked_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ("-created", "-id")
        verbose_name = "API token"

    def __str__(self) -> str:
        return f"{self.name} ({self.prefix}…)"


class NamespaceGrant(models.Model):
    """A namespace in which a user, or every user of a group, may use the commands that their permissions allow."""

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
    """The account of a user who signs in through an identity provider.

    A provider never gives the same issuer and subject to another user; names and addresses it may reuse.
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
