"""Token scopes: a scope only narrows the permissions of the owner, and a token never creates a wider one."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rollouts.accounts.commands import Command
from rollouts.accounts.permissions import OVERRIDE_COMMANDS, WORKLOAD_COMMANDS, RefusalReason, find_refusal
from rollouts.accounts.token_scopes import SCOPE_COMMANDS, RequestedScope, Scope, is_covered, parse_scope, scope_of
from rollouts.models import ApiToken, AuditEntry, User
from tests.accounts.conftest import MakePerson, bearing, give_token

JSON = "application/json"
PLACES = st.tuples(st.sampled_from(("", "east", "west")), st.sampled_from(("", "team-a", "team-b")))
SCOPES = st.builds(
    Scope,
    st.booleans(),
    st.none() | st.frozensets(PLACES, min_size=1, max_size=3),
    st.none() | st.frozensets(st.sampled_from(SCOPE_COMMANDS), min_size=1, max_size=4),
)


# ---- the scope


@given(SCOPES, SCOPES, st.sampled_from(SCOPE_COMMANDS), PLACES)
def test_a_scope_without_excess_allows_nothing_that_the_outer_one_refuses(
    wish: Scope, outer: Scope, command: Command, place: tuple[str, str]
) -> None:
    inner = wish.narrowed_by(outer)
    if wish.find_excess(outer):
        return
    assert outer.allows_command(command) or not inner.allows_command(command)
    assert outer.allows_namespace(*place) or not inner.allows_namespace(*place)
    assert inner.read_only or not outer.read_only


@given(SCOPES, SCOPES)
def test_what_is_in_excess_is_named(wish: Scope, outer: Scope) -> None:
    wider = any(not outer.allows_command(one) for one in wish.commands or ())
    wider |= any(not outer.allows_namespace(*one) for one in wish.namespaces or ())
    assert bool(wish.find_excess(outer)) is wider


@pytest.mark.parametrize(
    ("wish", "field"),
    [
        (RequestedScope(namespaces=[]), "namespaces"),
        (RequestedScope(namespaces=[{"cluster": "nowhere", "namespace": ""}]), "namespaces[0].cluster"),
        (RequestedScope(namespaces=[{"cluster": "", "namespace": "Team A"}]), "namespaces[0].namespace"),
        (RequestedScope(namespaces=[{"cluster": "", "namespace": f"n{index}"} for index in range(101)]), "namespaces"),
        (RequestedScope(commands=[]), "commands"),
        (RequestedScope(commands=["scale_workload", "juggle"]), "commands[1]"),
        (RequestedScope(commands=["sign_in"]), "commands[0]"),
    ],
)
def test_a_scope_that_means_nothing_is_refused_by_field(wish: RequestedScope, field: str) -> None:
    scope, findings = parse_scope(wish, ["sandbox"])
    assert [finding.field for finding in findings] == [field]
    assert scope == Scope(read_only=True)


def test_a_stored_command_that_this_version_does_not_know_is_no_command() -> None:
    scope = scope_of(ApiToken(commands=["juggle"]))
    assert [command for command in SCOPE_COMMANDS if scope.allows_command(command)] == []


@pytest.mark.parametrize(
    ("place", "covered"), [(("east", "a"), True), (("east", ""), False), (("west", "a"), False), (("", "a"), False)]
)
def test_an_empty_name_asks_for_all(place: tuple[str, str], covered: bool) -> None:
    assert is_covered(place, {("east", "a")}) is covered


# ---- decisions


def reason(user: User, command: Command, scope: Scope, namespace: str = "team-a") -> str:
    refusal = find_refusal(user, command, "sandbox", namespace, scope=scope)
    return refusal.reason if refusal else "may"


@pytest.mark.database
@pytest.mark.django_db
@pytest.mark.parametrize("command", sorted(WORKLOAD_COMMANDS | OVERRIDE_COMMANDS))
def test_a_token_commands_only_what_and_where_its_scope_says(make_person: MakePerson, command: Command) -> None:
    admin, other = make_person("ada", "admin"), Command.TEST_CLUSTER
    assert reason(admin, command, Scope(commands=frozenset({command}))) == "may"
    assert reason(admin, command, Scope(commands=frozenset({other}))) == RefusalReason.TOKEN_LACKS_COMMAND
    team = Scope(namespaces=frozenset({("sandbox", "team-a")}))
    assert reason(admin, command, team) == "may"
    assert reason(admin, command, team, "team-b") == RefusalReason.TOKEN_LACKS_NAMESPACE
    assert reason(admin, command, team, "") == RefusalReason.TOKEN_LACKS_NAMESPACE


@pytest.mark.database
@pytest.mark.django_db
def test_a_scope_gives_nothing_that_the_owner_lacks(make_person: MakePerson) -> None:
    viewer, command = make_person("vera", "viewer"), Command.SCALE_WORKLOAD
    scope = Scope(namespaces=frozenset({("", "")}), commands=frozenset({command}))
    assert reason(viewer, command, scope) == RefusalReason.PERMISSION_MISSING
    assert reason(make_person("olga", "operator"), command, scope) == RefusalReason.GRANT_MISSING


@pytest.mark.database
@pytest.mark.django_db
@pytest.mark.parametrize("command", [Command.CHANGE_ACCOUNT, Command.EXPORT_AUDIT])
def test_what_concerns_the_whole_installation_needs_a_token_without_namespaces(
    make_person: MakePerson, command: Command
) -> None:
    refusal = find_refusal(
        make_person("ada", "admin"), command, scope=Scope(namespaces=frozenset({("sandbox", "team-a")}))
    )
    assert refusal is not None
    assert refusal.reason == RefusalReason.TOKEN_LACKS_NAMESPACE


@pytest.mark.database
@pytest.mark.django_db
def test_the_sentence_names_what_the_token_lacks(make_person: MakePerson) -> None:
    admin = make_person("ada", "admin")
    scope = Scope(namespaces=frozenset({("sandbox", "team-a")}), commands=frozenset({Command.SCALE_WORKLOAD}))
    sentences = [
        refusal.sentence
        for command in (Command.SET_IMAGES, Command.SCALE_WORKLOAD)
        if (refusal := find_refusal(admin, command, "sandbox", "team-b", scope=scope))
    ]
    place = "the namespace team-b of the cluster sandbox"
    start, end = "You may not", "Use a token that includes it."
    assert sentences == [
        f"{start} change images with this token: its scope lacks the command set_images. {end}",
        f"{start} scale a workload there with this token: its scope lacks {place}. {end}",
    ]


# ---- the API


@pytest.fixture
def ana(make_person: MakePerson, redis: Any) -> User:
    """An administrator."""
    return make_person("ana", "admin")


def make(text: str, **wish: Any) -> Any:
    return bearing(text).post("/api/v1/tokens/", {"name": "ci", **wish}, content_type=JSON)


TEAM_A = {"cluster": "sandbox", "namespace": "team-a"}


@pytest.mark.database
@pytest.mark.django_db
def test_a_scope_is_stored_shown_and_on_record(ana: User) -> None:
    made = make(give_token(ana)[1], namespaces=[TEAM_A], commands=["scale_workload", "restart_workload"])
    assert made.status_code == 201
    answer = made.json()
    commands = ["restart_workload", "scale_workload"]
    assert (answer["namespaces"], answer["commands"], answer["state"]) == ([TEAM_A], commands, "valid")
    me = bearing(answer["token"]).get("/api/v1/me/").json()
    assert (me["token_namespaces"], me["token_commands"]) == ([TEAM_A], commands)
    listed = bearing(answer["token"]).get("/api/v1/tokens/").json()[0]
    assert (listed["namespaces"], listed["commands"]) == ([TEAM_A], commands)
    entry = AuditEntry.objects.get(command="create_token")
    assert entry.after is not None
    assert (entry.after["namespaces"], entry.after["commands"]) == ([TEAM_A], commands)


@pytest.mark.database
@pytest.mark.django_db
@pytest.mark.parametrize(
    ("wish", "field"),
    [
        ({"namespaces": [{"cluster": "nowhere"}]}, "namespaces[0].cluster"),
        ({"namespaces": [{"namespace": "Team A"}]}, "namespaces[0].namespace"),
        ({"namespaces": []}, "namespaces"),
        ({"namespaces": "team-a"}, "namespaces"),
        ({"commands": ["juggle"]}, "commands[0]"),
        ({"commands": []}, "commands"),
    ],
)
def test_a_scope_that_means_nothing_is_a_422(ana: User, wish: dict[str, Any], field: str) -> None:
    answer = make(give_token(ana)[1], **wish)
    assert answer.status_code == 422
    assert [finding["field"] for finding in answer.json()["findings"]] == [field]


@pytest.mark.database
@pytest.mark.django_db
def test_a_token_made_with_a_token_has_its_scope_or_a_narrower_one(ana: User) -> None:
    columns = {"namespaces": [TEAM_A], "commands": ["create_token", "restart_workload", "scale_workload"]}
    _, text = give_token(ana, **columns)
    same = make(text).json()
    assert (same["namespaces"], same["commands"]) == (columns["namespaces"], columns["commands"])
    narrower = make(text, commands=["scale_workload"]).json()
    assert (narrower["namespaces"], narrower["commands"]) == ([TEAM_A], ["scale_workload"])
    for wish, field in (
        ({"commands": ["set_images"]}, "commands"),
        ({"namespaces": [{"cluster": "sandbox", "namespace": "team-b"}]}, "namespaces"),
        ({"namespaces": [{"cluster": "sandbox"}]}, "namespaces"),
    ):
        answer = make(text, **wish)
        assert answer.status_code == 422, wish
        assert [finding["field"] for finding in answer.json()["findings"]] == [field]


@pytest.mark.database
@pytest.mark.django_db
def test_a_token_that_lacks_the_command_makes_and_revokes_no_token(ana: User) -> None:
    token, text = give_token(ana, commands=["scale_workload"])
    assert make(text).status_code == 403
    assert bearing(text).delete(f"/api/v1/tokens/{token.pk}/").status_code == 403


@pytest.mark.database
@pytest.mark.django_db
def test_an_administrators_token_for_a_namespace_revokes_nobody_elses(ana: User, make_person: MakePerson) -> None:
    theirs, _ = give_token(make_person("bea", "viewer"))
    for columns, status in (({"namespaces": [TEAM_A]}, 404), ({}, 204)):
        client = bearing(give_token(ana, **columns)[1])
        assert client.delete(f"/api/v1/tokens/{theirs.pk}/").status_code == status
