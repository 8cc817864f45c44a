"""Permission and grant are checked before a body is parsed, so a refused command costs little."""

from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import Permission
from django.test import Client
from django.utils import timezone

from rollouts.manifests import strict_yaml
from rollouts.models import ApiToken, AuditEntry, NamespaceGrant, User
from tests.api.actors import Actor, Request, make_actors, send
from tests.api.scene import CLUSTER, ELSEWHERE, NAMESPACE

pytestmark = [pytest.mark.database, pytest.mark.django_db]

PLACE = f"workloads/{CLUSTER}/{NAMESPACE}/chat/"
COMMANDS = [
    *(("POST", f"{PLACE}{command}/") for command in ("apply", "images", "scale", "restart", "rollback", "take-over")),
    *(("POST", f"{PLACE}{command}/") for command in ("pods/delete", "pods/let-go", "surge/delete", "simulation")),
    ("PATCH", f"{PLACE}strategy/"),
    ("POST", f"clusters/{CLUSTER}/take-over/"),
    ("POST", "overrides/"),
    ("POST", "overrides/check/"),
    ("PUT", "overrides/1/"),
    ("POST", "tokens/"),
]


@pytest.fixture
def parsed(monkeypatch: pytest.MonkeyPatch, redis: Any) -> list[bytes]:
    """The bodies that were parsed."""
    make_actors()
    bodies: list[bytes] = []
    for name in ("parse_json", "parse_yaml"):
        parse = getattr(strict_yaml, name)

        def note(body: bytes, parse: Any = parse) -> Any:
            bodies.append(body)
            return parse(body)

        monkeypatch.setattr(f"rollouts.api.parsers.{name}", note)
    return bodies


@pytest.mark.parametrize(("method", "path"), COMMANDS)
def test_nothing_is_parsed_for_who_may_not(parsed: list[bytes], method: str, path: str) -> None:
    refused = send(Actor.NOBODY, Request(method, path, b"{}"))
    assert (refused.status_code, parsed) == (403, [])
    send(Actor.ADMIN, Request(method, path, b"{}"))
    assert parsed == [b"{}"]


def test_nor_for_who_has_no_grant_for_the_namespace(parsed: list[bytes]) -> None:
    yaml = Request("POST", f"{PLACE}apply/", b"a: &a [1]", "application/yaml")
    assert send(Actor.OPERATOR_ELSEWHERE, yaml).status_code == 403
    assert parsed == []
    entry = AuditEntry.objects.get()
    assert (entry.result, entry.command, entry.namespace) == ("Refused", "apply_workload", NAMESPACE)


def test_a_refused_dry_run_is_not_on_record(parsed: list[bytes]) -> None:
    assert send(Actor.OPERATOR_ELSEWHERE, Request("POST", f"{PLACE}apply/?dry_run=true", b"{}")).status_code == 403
    assert (parsed, AuditEntry.objects.count()) == ([], 0)


def test_an_answer_that_was_kept_is_not_given_again_to_who_may_no_more(parsed: list[bytes]) -> None:
    override = {
        "strategy": {"type": "RollingRecreate"},
        "reason": "The night before the release.",
        "expires_at": (timezone.now() + timedelta(days=1)).isoformat(),
    }
    headers = {"Authorization": f"Bearer {Actor.ADMIN.token}", "Idempotency-Key": "once"}

    def create() -> int:
        return Client().post("/api/v1/overrides/", override, "application/json", headers=headers).status_code

    assert [create(), create()] == [201, 201]
    User.objects.get(username=Actor.ADMIN.account).groups.clear()
    assert create() == 403


def test_nor_to_who_may_still_give_the_command_elsewhere_only(parsed: list[bytes]) -> None:
    """A grant for another namespace lets the request in, so only the replay itself can refuse it."""
    user = User.objects.get(username=Actor.OPERATOR.account)
    user.user_permissions.add(Permission.objects.get(codename="create_override"))
    NamespaceGrant.objects.create(user=user, cluster=CLUSTER, namespace=ELSEWHERE)
    grant = NamespaceGrant.objects.get(user=user, namespace=NAMESPACE)
    override = {
        "cluster": CLUSTER,
        "namespace": NAMESPACE,
        "strategy": {"type": "RollingRecreate"},
        "reason": "The night before the release.",
        "expires_at": (timezone.now() + timedelta(days=1)).isoformat(),
    }
    headers = {"Authorization": f"Bearer {Actor.OPERATOR.token}", "Idempotency-Key": "once"}

    def create() -> tuple[int, bool]:
        answer = Client().post("/api/v1/overrides/", override, "application/json", headers=headers)
        return answer.status_code, "Idempotent-Replayed" in answer

    assert [create(), create()] == [(201, False), (201, True)]
    grant.delete()
    assert create() == (403, False)
    entry = AuditEntry.objects.latest("id")
    assert (entry.result, entry.command, entry.namespace) == ("Refused", "create_override", NAMESPACE)
    grant.save()
    assert create() == (201, True)


def test_a_token_for_one_namespace_may_put_overrides_in_force_there(parsed: list[bytes]) -> None:
    ApiToken.objects.filter(user__username=Actor.ADMIN.account).update(
        namespaces=[{"cluster": CLUSTER, "namespace": NAMESPACE}]
    )
    assert send(Actor.ADMIN, Request("POST", "overrides/", b"{}")).status_code == 422
    assert parsed == [b"{}"]
