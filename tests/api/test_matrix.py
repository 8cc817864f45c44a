"""Permissions: every endpoint of the URL configuration, called by every kind of account.

For each row all actors send the same request to the same workload, those who are refused first: what is allowed and
what is refused share their set-up. A refusal changes nothing, neither in the cluster nor in the database, and stands in
the audit when it was a command.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from enum import Enum
from secrets import token_hex
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from rollouts.accounts.commands import Command, WorkloadRef
from rollouts.cluster.resources import PODCLIQUESETS
from rollouts.engine.tree.surge import SurgeUnit, find_surge
from rollouts.mirror.other_operator import GROVE_FINALIZER
from rollouts.models import ApiToken, AuditEntry, Rollout, StrategyOverride, User
from rollouts.selectors.workload_snapshot import read_snapshot
from tests.api.actors import Actor, Request, make_actors, send, send_by_session
from tests.api.endpoints import described, endpoints
from tests.api.scene import CLUSTER, NAME, NAMESPACE, Scene

pytestmark = pytest.mark.django_db

SPARE = "spare"
EVERYBODY = frozenset(Actor) - {Actor.STRANGER}
SEEING = EVERYBODY - {Actor.NOBODY}
ADMINS = frozenset({Actor.ADMIN, Actor.ADMIN_READING, Actor.ADMIN_FROZEN})
OPERATORS = frozenset({Actor.OPERATOR_PRIVILEGED, Actor.ADMIN, Actor.OPERATOR, Actor.OPERATOR_SCOPED})
APPLYING = OPERATORS | {Actor.ADMIN_APPLYING, Actor.ADMIN_APPLYING_PRIVILEGED}
PRIVILEGED = frozenset({Actor.OPERATOR_PRIVILEGED, Actor.ADMIN, Actor.ADMIN_APPLYING_PRIVILEGED})
NARROW = frozenset({Actor.ADMIN_READING, Actor.ADMIN_SCALING, Actor.ADMIN_APPLYING, Actor.ADMIN_APPLYING_PRIVILEGED})


class Needs(Enum):
    """What a row asks for, as those who have it."""

    ACCOUNT = EVERYBODY
    SIGHT = SEEING
    GRANT = OPERATORS  # a command to a workload
    APPLY = APPLYING
    SCALE = OPERATORS | {Actor.ADMIN_SCALING}
    ADMIN = frozenset({Actor.ADMIN})  # a command that only admins have
    ADMIN_SIGHT = ADMINS  # one that changes nothing
    OWN_TOKEN = EVERYBODY - NARROW
    NEW_TOKEN = SEEING - NARROW


@dataclass(frozen=True, slots=True)
class Row:
    """An endpoint, who may use it, and what to send."""

    method: str
    route: str
    needs: Needs
    status: int = 200  # for those who may
    command: Command | None = None  # None: nothing is on record
    body: Callable[[Scene], Any] | None = None
    title: str = ""  # where a route has several rows
    workload: str = NAME
    simulated: bool = False  # needs the command's permission and puts nothing on record

    def __str__(self) -> str:
        return f"{self.method} {self.route} {self.title}".strip()


# Bodies ask for something else each time: whoever is allowed must find it done.


def _pods(scene: Scene) -> dict[str, Any]:
    there = scene.pods() or [scene.add_surge()]  # those who may have deleted one each
    outdated_first = sorted(there, key=lambda pod: "frontend" not in pod["metadata"]["name"])
    pod = outdated_first[0]["metadata"]
    return {"pods": [{"name": pod["name"], "uid": pod["uid"]}]}


def _outdated(scene: Scene) -> dict[str, Any]:
    scene.change_image(f"example:{token_hex(4)}")
    scene.observe()
    return _pods(scene)


def _surge(scene: Scene) -> dict[str, Any]:
    while not (found := _list_surge()):  # earlier rows deleted pods; a pod in place of a missing one is not surge
        scene.add_surge()
    return {"units": [{"name": unit.name, "mark": unit.mark} for unit in found[:1]]}


def _list_surge() -> tuple[SurgeUnit, ...]:
    look = read_snapshot(WorkloadRef(CLUSTER, NAMESPACE, NAME))
    assert look.workload is not None
    return find_surge(look.workload, look.mirrored.observed)


def _lost(scene: Scene) -> dict[str, Any]:
    pod = next(iter(scene.lost_pods()), None) or scene.lose_pod()
    return {"pods": [{"name": pod["metadata"]["name"], "uid": pod["metadata"]["uid"]}]}


def _manifest(scene: Scene) -> dict[str, Any]:
    stored = scene.stored()
    metadata = {"name": NAME, "namespace": NAMESPACE, "labels": {"round": token_hex(4)}}
    kind = {name: stored[name] for name in ("apiVersion", "kind")}
    return {**kind, "metadata": metadata, "spec": stored["spec"]}


def _privileged(scene: Scene) -> dict[str, Any]:
    manifest = _manifest(scene)
    pod = manifest["spec"]["template"]["cliques"][0]["spec"]["podSpec"]
    pod["containers"][0]["securityContext"] = {"privileged": True}
    return manifest


def _images(_: Scene) -> dict[str, Any]:
    return {"images": [{"clique": "frontend", "image": f"example:{token_hex(4)}"}]}


def _scale(scene: Scene) -> dict[str, Any]:
    return {"replicas": scene.stored()["spec"]["replicas"] + 1}


def _strategy(scene: Scene) -> dict[str, Any]:
    frontend = scene.stored()["spec"]["template"]["cliques"][0]
    return {"components": {"frontend": {"maxSurge": frontend.get("updateStrategy", {}).get("maxSurge", 0) + 1}}}


def _revision(scene: Scene) -> dict[str, Any]:
    image = scene.stored()["spec"]["template"]["cliques"][0]["spec"]["podSpec"]["containers"][0]["image"]
    return {"revision": 2 if image == "example:v1" else 1}


def _kept_by_grove(scene: Scene) -> dict[str, Any]:
    kept = {"metadata": {"finalizers": [GROVE_FINALIZER]}}
    scene.cluster.patch_merge(PODCLIQUESETS, NAME, kept, namespace=NAMESPACE)
    return {}


def _spare(scene: Scene) -> None:
    """Have a workload beside the other one, for everybody who comes to delete it."""
    if not any(one["metadata"]["name"] == SPARE for one in _sets(scene)):
        metadata = {"name": SPARE, "namespace": NAMESPACE}
        kind = {name: scene.stored()[name] for name in ("apiVersion", "kind")}
        scene.cluster.create(PODCLIQUESETS, {**kind, "metadata": metadata, "spec": scene.stored()["spec"]})
        scene.observe()


def _sets(scene: Scene) -> list[Any]:
    return list(scene.cluster.list(PODCLIQUESETS, namespace=NAMESPACE).items)


def _override(_: Scene) -> dict[str, Any]:
    return {
        "cluster": CLUSTER,
        "namespace": NAMESPACE,
        "name": NAME,
        "strategy": {"type": "RollingRecreate"},
        "reason": f"The matrix asks for it: {token_hex(4)}.",
        "expires_at": (timezone.now() + timedelta(days=1)).isoformat(),
    }


WORKLOAD = "workloads/{cluster}/{namespace}/{name}/"
ROWS = [
    # What is seen.
    *(
        Row("GET", route, Needs.SIGHT)
        for route in (
            "clusters/",
            "clusters/{cluster}/",
            "clusters/{cluster}/nodes/",
            "workloads/",
            WORKLOAD,
            f"{WORKLOAD}tree/",
            f"{WORKLOAD}surge/",
            f"{WORKLOAD}manifest/",
            f"{WORKLOAD}strategy/",
            f"{WORKLOAD}diagnosis/",
            f"{WORKLOAD}rollouts/",
            f"{WORKLOAD}rollouts/{{rollout}}/",
            f"{WORKLOAD}rollouts/{{rollout}}/timeline/",
            f"{WORKLOAD}timeline/",
            f"{WORKLOAD}events/",
            f"{WORKLOAD}revisions/",
            f"{WORKLOAD}revisions/{{revision}}/",
            f"{WORKLOAD}revisions/{{revision}}/diff/",
            f"{WORKLOAD}overrides/",
            f"{WORKLOAD}audit/",
            "overrides/",
            "overrides/{id}/",
            "audit/",
            "feed/",
        )
    ),
    Row("GET", "schema/", Needs.ACCOUNT),
    Row("GET", "docs/", Needs.ACCOUNT),
    Row("GET", "me/", Needs.ACCOUNT),
    Row("GET", "tokens/", Needs.ACCOUNT),
    # What is commanded.
    Row("POST", f"{WORKLOAD}apply/", Needs.APPLY, 200, Command.APPLY_WORKLOAD, _manifest),
    Row("POST", f"{WORKLOAD}images/", Needs.GRANT, 200, Command.SET_IMAGES, _images),
    Row("POST", f"{WORKLOAD}scale/", Needs.SCALE, 200, Command.SCALE_WORKLOAD, _scale),
    Row("PATCH", f"{WORKLOAD}strategy/", Needs.GRANT, 200, Command.EDIT_STRATEGY, _strategy),
    Row("POST", f"{WORKLOAD}restart/", Needs.GRANT, 200, Command.RESTART_WORKLOAD, lambda _: {}),
    Row("POST", f"{WORKLOAD}rollback/", Needs.GRANT, 200, Command.ROLL_BACK_WORKLOAD, _revision),
    Row("POST", f"{WORKLOAD}take-over/", Needs.GRANT, 200, Command.TAKE_OVER_WORKLOAD, _kept_by_grove),
    Row("POST", "clusters/{cluster}/take-over/", Needs.ADMIN, 200, Command.TAKE_OVER_WORKLOAD, _kept_by_grove),
    Row("DELETE", WORKLOAD, Needs.GRANT, 200, Command.DELETE_WORKLOAD, _spare, workload=SPARE),
    Row("POST", f"{WORKLOAD}pods/delete/", Needs.GRANT, 200, Command.DELETE_OUTDATED_PODS, _outdated),
    Row(
        *("POST", f"{WORKLOAD}pods/delete/", Needs.GRANT, 200, Command.DELETE_ANY_PODS),
        *(lambda scene: {**_pods(scene), "force": True}, "by force"),
    ),
    Row("POST", f"{WORKLOAD}surge/delete/", Needs.GRANT, 200, Command.DELETE_ANY_PODS, _surge),
    Row("POST", f"{WORKLOAD}pods/let-go/", Needs.GRANT, 200, Command.DELETE_ANY_PODS, _lost),
    Row(
        *("POST", f"{WORKLOAD}simulation/", Needs.GRANT, 200, Command.SET_IMAGES),
        body=lambda scene: {"change": {"kind": "images", **_images(scene)}},
        simulated=True,
    ),
    Row("POST", "overrides/", Needs.ADMIN, 201, Command.CREATE_OVERRIDE, _override),
    Row("POST", "overrides/check/", Needs.ADMIN, 200, Command.CREATE_OVERRIDE, _override, simulated=True),
    Row("PUT", "overrides/{id}/", Needs.ADMIN, 200, Command.CHANGE_OVERRIDE, _override),
    Row("DELETE", "overrides/{id}/", Needs.ADMIN, 200, Command.END_OVERRIDE),
    Row("POST", "clusters/{cluster}/test/", Needs.ADMIN_SIGHT, 200, Command.TEST_CLUSTER),
    Row("GET", "audit/export/", Needs.ADMIN_SIGHT, 200, Command.EXPORT_AUDIT),
    Row("POST", "tokens/", Needs.NEW_TOKEN, 201, Command.CREATE_TOKEN, lambda _: {"name": "another"}),
    Row("DELETE", "tokens/{number}/", Needs.OWN_TOKEN, 204, Command.REVOKE_TOKEN),
]


def test_every_endpoint_has_a_row_and_every_row_an_endpoint() -> None:
    rows = {(row.method, row.route) for row in ROWS}
    assert endpoints() - rows == set()
    assert rows - endpoints() == set()


def test_every_endpoint_is_described(client: Client) -> None:
    make_actors()
    answer = client.get("/api/v1/schema/?format=json", headers={"Authorization": f"Bearer {Actor.VIEWER.token}"})
    assert endpoints() - described(answer.json()) == {("GET", "schema/"), ("GET", "docs/")}
    assert described(answer.json()) - endpoints() == set()


@pytest.fixture(autouse=True)
def _static_files(static_files: None) -> None:
    """What the page of the API is made of."""


@pytest.fixture
def actors(scene: Scene) -> Scene:
    """The scene with everybody there, and an override in force."""
    make_actors()
    StrategyOverride.objects.create(
        cluster=CLUSTER,
        namespace=NAMESPACE,
        name=NAME,
        max_unavailable="1",
        reason="Since yesterday.",
        author=User.objects.get(username="ada"),
        expires_at=timezone.now() + timedelta(days=1),
    )
    return scene


@pytest.mark.parametrize("row", ROWS, ids=str)
def test_those_who_may_are_let_and_all_others_refused(row: Row, actors: Scene) -> None:
    surprises = []
    for actor in sorted(Actor, key=lambda one: one in row.needs.value):
        request = _request(row, actor, actors)
        before, entries_before = _state(actors), AuditEntry.objects.count()
        answer = send(actor, request)
        expected = _expected(row, actor)
        if answer.status_code != expected:
            surprises.append(f"{actor}: {answer.status_code} and not {expected}: {_words(answer)}")
        changes = row.command is not None and row.needs is not Needs.ADMIN_SIGHT and not row.simulated
        if (_state(actors) != before) != (changes and expected < 400):
            surprises.append(f"{actor}: {'something' if expected >= 400 else 'nothing'} was changed: {_words(answer)}")
        surprises += _surprises_on_record(row, actor, expected, entries_before)
    assert not surprises, "\n".join(surprises)


def test_privileged_pods_are_for_those_who_may_apply_them(actors: Scene) -> None:
    row = Row("POST", f"{WORKLOAD}apply/?dry_run=true", Needs.APPLY, 200, Command.APPLY_WORKLOAD, _privileged)
    before = _state(actors)
    for actor in sorted(APPLYING):
        answer = send(actor, _request(row, actor, actors))
        if actor in PRIVILEGED:
            assert answer.status_code == 200, f"{actor}: {_words(answer)}"
            continue
        assert answer.status_code == 422, f"{actor}: {_words(answer)}"
        *others, error = json.loads(answer.content)["findings"]
        is_of_token = actor is Actor.ADMIN_APPLYING
        assert ["the scope of this token lacks apply_privileged" in one["message"] for one in others] == [
            True
        ] * is_of_token
        assert error["field"] == "spec.template.cliques[0].spec.podSpec.containers[0].securityContext.privileged"
        assert "level baseline" in error["message"]
    assert _state(actors) == before


@pytest.mark.parametrize("row", [row for row in ROWS if row.method != "GET"], ids=str)
def test_what_another_site_makes_a_browser_send_is_refused(row: Row, actors: Scene) -> None:
    request = _request(row, Actor.ADMIN, actors)
    before = _state(actors)
    answer = send_by_session(Actor.ADMIN, request)
    assert answer.status_code == 403
    assert "CSRF" in json.loads(answer.content)["detail"]
    assert _state(actors) == before


def _expected(row: Row, actor: Actor) -> int:
    if actor is Actor.STRANGER:
        return 401
    return row.status if actor in row.needs.value else 403


def _surprises_on_record(row: Row, actor: Actor, expected: int, entries_before: int) -> list[str]:
    """Compare what was put into the audit with what happened."""
    added = AuditEntry.objects.order_by("id").values_list("actor", "command", "result")[entries_before:]
    found = {entry for entry in added if entry[2] != "Begun"}
    if row.command is None or row.simulated or actor is Actor.STRANGER:
        wanted = set()
    else:
        # Which of the two deletions was meant stands in the body, which is not read for who may not.
        is_unread = expected >= 400 and row.command is Command.DELETE_ANY_PODS and row.route.endswith("/pods/delete/")
        command = Command.DELETE_OUTDATED_PODS if is_unread else row.command
        wanted = {(actor.account, command.value, "Done" if expected < 400 else "Refused")}
    return [] if found == wanted else [f"{actor}: on record is {found} and not {wanted}"]


def _state(scene: Scene) -> Any:
    """Everything that a command could change."""
    return (
        sorted(one["metadata"]["resourceVersion"] for one in _sets(scene)),
        sorted(pod["metadata"]["uid"] for pod in (*scene.pods(), *scene.lost_pods())),
        list(StrategyOverride.objects.values()),
        list(ApiToken.objects.values("id", "revoked_at", "expires_at").order_by("id")),
        list(User.objects.values("username", "password", "is_active").order_by("id")),
    )


def _request(row: Row, actor: Actor, scene: Scene) -> Request:
    token = ApiToken.objects.filter(name=actor.value if actor.account else Actor.ADMIN.value).first()
    override = StrategyOverride.objects.order_by("id").first()
    rollout = Rollout.objects.order_by("id").first()
    assert token is not None
    assert override is not None
    assert rollout is not None
    path = row.route.format(
        cluster=CLUSTER,
        namespace=NAMESPACE,
        name=row.workload,
        revision=1,
        rollout=rollout.pk,
        number=token.pk,
        id=override.pk,
    )
    body = row.body(scene) if row.body else None
    return Request(row.method, path, None if body is None else json.dumps(body))


def _words(answer: Any) -> str:
    return "" if answer.streaming else answer.content.decode(errors="replace")[:500]
