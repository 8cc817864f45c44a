"""Who comes to the API in the permission matrix, and with what.

Each has an account and a token; what may be refused for one reason only has every other right, so that a refusal
cannot come about for the wrong reason: the read-only token and the read-only installation are tried by an admin, and
the operator who lacks the namespace has another.
"""

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from django.conf import settings
from django.contrib.auth.models import Group, Permission
from django.core.signals import request_finished
from django.db import close_old_connections
from django.http import HttpResponse
from django.test import Client, override_settings

from rollouts.accounts.tokens import digest_of
from rollouts.models import ApiToken, NamespaceGrant, User
from tests.api.endpoints import PREFIX
from tests.api.scene import CLUSTER, ELSEWHERE, NAMESPACE


class Actor(StrEnum):
    """The columns of the matrix."""

    STRANGER = "stranger"
    NOBODY = "account without a role"
    VIEWER = "viewer"
    OPERATOR_ELSEWHERE = "operator without the namespace"
    OPERATOR = "operator"
    OPERATOR_PRIVILEGED = "operator who may apply privileged pods"
    ADMIN = "admin"
    ADMIN_READING = "admin with a read-only token"
    ADMIN_FROZEN = "admin of a read-only installation"
    ADMIN_SCALING = "admin with a token that only scales"
    ADMIN_APPLYING = "admin with a token that only applies"
    ADMIN_APPLYING_PRIVILEGED = "admin with a token that only applies, also privileged pods"
    ADMIN_ELSEWHERE = "admin with a token for another namespace"
    OPERATOR_SCOPED = "operator with a token for the namespace"

    @property
    def account(self) -> str:
        """The name of the account; nothing for a stranger."""
        names = {
            Actor.STRANGER: "",
            Actor.NOBODY: "nora",
            Actor.VIEWER: "vera",
            Actor.OPERATOR_ELSEWHERE: "otto",
            Actor.OPERATOR: "olga",
            Actor.OPERATOR_SCOPED: "olga",
            Actor.OPERATOR_PRIVILEGED: "petra",
        }
        return names.get(self, "ada")

    @property
    def token(self) -> str:
        """What is sent; nothing by a stranger."""
        return f"grove_{self.name.lower()}" if self.account else ""


@dataclass(frozen=True, slots=True)
class Request:
    """What an actor sends."""

    method: str
    path: str  # below /api/v1/
    body: Any = None
    content_type: str = "application/json"


_ROLES = {"vera": "viewer", "otto": "operator", "olga": "operator", "petra": "operator", "ada": "admin"}
_GRANTS = {"otto": ELSEWHERE, "olga": NAMESPACE, "petra": NAMESPACE}
_SCOPES: dict[Actor, dict[str, Any]] = {
    Actor.ADMIN_SCALING: {"commands": ["scale_workload"]},
    Actor.ADMIN_APPLYING: {"commands": ["apply_workload"]},
    Actor.ADMIN_APPLYING_PRIVILEGED: {"commands": ["apply_workload", "apply_privileged"]},
    Actor.ADMIN_ELSEWHERE: {"namespaces": [{"cluster": CLUSTER, "namespace": ELSEWHERE}]},
    Actor.OPERATOR_SCOPED: {"namespaces": [{"cluster": CLUSTER, "namespace": NAMESPACE}]},
}


def make_actors() -> None:
    """Create the accounts with their roles, grants and tokens."""
    for name in ("nora", *_ROLES):
        user = User.objects.create(username=name)
        if role := _ROLES.get(name):
            user.groups.add(Group.objects.get(name=role))
        if namespace := _GRANTS.get(name):
            NamespaceGrant.objects.create(user=user, cluster=CLUSTER, namespace=namespace)
    User.objects.get(username="petra").user_permissions.add(Permission.objects.get(codename="apply_privileged"))
    for actor in Actor:
        if actor.account:
            ApiToken.objects.create(
                user=User.objects.get(username=actor.account),
                name=actor.value,
                digest=digest_of(actor.token),
                read_only=actor is Actor.ADMIN_READING,
                **_SCOPES.get(actor, {}),
            )


def send(actor: Actor, request: Request) -> HttpResponse:
    """Send a request as one of them; a server error is an answer too."""
    client = Client(raise_request_exception=False)
    headers = {"Authorization": f"Bearer {actor.token}"} if actor.token else {}
    frozen = replace(settings.ENVIRONMENT, read_only=actor is Actor.ADMIN_FROZEN)
    with override_settings(ENVIRONMENT=frozen):
        return _answer(client, request, headers)


def send_by_session(actor: Actor, request: Request) -> HttpResponse:
    """Send a request as a browser that is signed in but was sent by another site: without the CSRF token."""
    client = Client(raise_request_exception=False, enforce_csrf_checks=True)
    client.force_login(User.objects.get(username=actor.account))
    return _answer(client, request, {})


def _answer(client: Client, request: Request, headers: dict[str, str]) -> HttpResponse:
    answer: Any = client.generic(
        request.method, f"/{PREFIX}{request.path}", request.body or b"", request.content_type, headers=headers
    )
    if answer.streaming:
        _hang_up(answer)
    response: HttpResponse = answer
    return response


def _hang_up(answer: Any) -> None:
    """Leave a stream unread; the connection to the database, which is the test's own, must survive that."""
    request_finished.disconnect(close_old_connections)
    answer.close()
    request_finished.connect(close_old_connections)
