"""Who may use command forms: every route that the URL configuration has for them, by everybody.

For each form all send the very same fields to the same workload, those who are refused first: what is refused and what
is allowed share their set-up. A refusal changes nothing in the cluster, is told in a sentence, and stands in the audit
when somebody known gave a command.
"""

import html
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from secrets import token_hex
from typing import Any

import pytest
import yaml
from django.conf import settings
from django.test import Client, override_settings
from django.urls import URLPattern, URLResolver, get_resolver, reverse

from rollouts.accounts.commands import Command
from rollouts.cluster import Obj
from rollouts.cluster.resources import PODCLIQUESETS
from rollouts.engine.manifest.edits import RESTARTED_AT, ImageEdit
from rollouts.mirror.other_operator import GROVE_FINALIZER
from rollouts.models import AuditEntry, NamespaceGrant, User
from rollouts.selectors.revisions import revision_list
from rollouts.services.audit import Caller
from rollouts.services.changes import execute
from rollouts.services.deletion import PodRef
from rollouts.services.pods import pods_delete
from rollouts.services.workloads import edit_strategy, set_images
from tests.engine.manifests import small
from tests.markup import compact
from tests.services.conftest import ONE_REPLICA
from tests.services.grove import delete_sets_of_grove
from tests.services.stage import Stage
from tests.web.commands.conftest import sign_in
from tests.web.commands.filling import Fields, address, boxes_of, fields_of, is_barred, say
from tests.web.commands.waiting import bring_nodes_back, is_there, lose_pod, make_surge

pytestmark = pytest.mark.django_db

TOKEN = "csrfmiddlewaretoken"


@dataclass(frozen=True, slots=True)
class Scene:
    """The workload, somebody who prepares it, and everybody who comes to its forms."""

    stage: Stage
    caller: Caller
    people: dict[str, Client]  # by the name of the account; nothing for a stranger
    lost: list[str] = field(default_factory=list)  # pods that were deleted and do not go by themselves

    def state(self) -> Any:
        """Return everything that a form could change."""
        return (
            {one["metadata"]["name"]: one["metadata"]["resourceVersion"] for one in self.sets()},
            {pod["metadata"]["uid"] for pod in self.stage.loop.pods()},
            {pod for pod in self.lost if is_there(self.stage, pod)},
        )

    def sets(self) -> list[Obj]:
        """Return the PodCliqueSets that there are."""
        return list(self.stage.cluster.list(PODCLIQUESETS, namespace=self.stage.namespace).items)


# ---- what each form needs in order to have something to do; whoever comes next finds it so again


def _as_it_is(_: Scene) -> None:
    """Any workload will do."""


def _deployed(scene: Scene) -> None:
    if not scene.stage.loop.pods():
        scene.stage.deploy()


def _changed(scene: Scene) -> None:
    scene.stage.deploy()
    execute(scene.caller, scene.stage.place, set_images([ImageEdit("frontend", f"app:{token_hex(4)}")]))
    scene.stage.deploy()


def _outdated(scene: Scene) -> None:
    _deployed(scene)
    execute(scene.caller, scene.stage.place, edit_strategy({"type": "OnDelete"}))
    execute(scene.caller, scene.stage.place, set_images([ImageEdit("frontend", f"app:{token_hex(4)}")]))
    scene.stage.deploy()


def _surging(scene: Scene) -> None:
    _deployed(scene)
    make_surge(scene.stage, scene.caller)


def _without_room(scene: Scene) -> None:
    scene.stage.edit_elsewhere(replicas=2)
    scene.stage.observe()


def _anew(scene: Scene) -> None:
    stage = scene.stage
    if not any(one["metadata"]["name"] == stage.name for one in scene.sets()):
        stage.cluster.create(PODCLIQUESETS, small({"metadata.namespace": stage.namespace, **ONE_REPLICA}))
        stage.observe()


def _kept_by_grove(scene: Scene) -> None:
    _deployed(scene)
    kept = {"metadata": {"finalizers": [GROVE_FINALIZER]}}
    scene.stage.cluster.patch_merge(PODCLIQUESETS, scene.stage.name, kept, namespace=scene.stage.namespace)
    scene.stage.observe()


def _kept_alone_by_grove(scene: Scene) -> None:
    delete_sets_of_grove(scene.stage.cluster, but=scene.stage.namespace)
    _kept_by_grove(scene)


def _lingering(scene: Scene) -> None:
    _deployed(scene)
    scene.lost.append(lose_pod(scene.stage))


# ---- what is filled in


def _nothing(_: Scene, page: Any) -> Fields:
    """The form can be sent as it stands."""
    return {}


def _images(_: Scene, page: Any) -> Fields:
    return {"image_frontend_main": f"ghcr.io/example/app:{token_hex(4)}"}


def _strategy(scene: Scene, page: Any) -> Fields:
    frontend = scene.stage.spec()["template"]["cliques"][0].get("updateStrategy") or {}
    return {"type": "RollingUpdate", "components.frontend.maxUnavailable": str(frontend.get("maxUnavailable", 1) + 1)}


def _restart(scene: Scene, page: Any) -> Fields:
    cliques = scene.stage.spec()["template"]["cliques"]
    return {"component": [next(one["name"] for one in cliques if RESTARTED_AT not in (one.get("annotations") or {}))]}


def _scale(scene: Scene, page: Any) -> Fields:
    return {"replicas_": str(scene.stage.spec()["replicas"] + 1)}


def _manifest(_: Scene, page: Any) -> Fields:
    text = fields_of(page.content.decode())["manifest"]
    return {"manifest": re.sub(r"image: \S+", f"image: app:{token_hex(4)}", text), "force": "on"}


def _new(scene: Scene, page: Any) -> Fields:
    manifest = {**small(), "metadata": {"name": f"fresh-{token_hex(4)}"}}
    place = scene.stage.place
    return {"manifest": yaml.safe_dump(manifest), "cluster": place.cluster, "namespace": place.namespace}


def _pod(_: Scene, page: Any) -> Fields:
    return {"pod": [next(iter(boxes_of(page, "pod")))]}


def _seen(scene: Scene, page: Any) -> Fields:
    """The dry run shows what is taken over, so the form carries it only by then."""
    tried = scene.people["anna"].post(f"{page.wsgi_request.path}preview/", fields_of(page.content.decode()))
    (seen,) = re.findall(r'name="seen" value="([^"]+)"', tried.content.decode())
    return {"seen": html.unescape(seen)}


def _all(_: Scene, page: Any) -> Fields:
    return {"chosen": [*boxes_of(page, "chosen")]}


@dataclass(frozen=True, slots=True)
class Row:
    """A form: what it commands, when it has something to do, and how it is filled in."""

    name: str
    command: Command
    prepare: Callable[[Scene], None] = _as_it_is
    fill_in: Callable[[Scene, Any], Fields] = _nothing
    is_for_cluster: bool = False  # it needs a grant for all namespaces, and puts its workload and itself on record

    def __str__(self) -> str:
        return self.name

    def address(self, stage: Stage) -> str:
        """Return where it is: a new workload has no address to hang it below, and a way back leads to a revision."""
        if self.name == "new":
            return "/workloads/new/"
        if self.is_for_cluster:
            return f"/clusters/{stage.cluster_name}/take-over/"
        if self.name == "roll-back":
            former = max(one.number for one in revision_list(stage.place) if not one.is_current)
            return address(stage, f"roll-back/{former}")
        return address(stage, self.name)


ROWS = [
    Row("images", Command.SET_IMAGES, fill_in=_images),
    Row("strategy", Command.EDIT_STRATEGY, fill_in=_strategy),
    Row("scale", Command.SCALE_WORKLOAD, fill_in=_scale),
    Row("restart", Command.RESTART_WORKLOAD, fill_in=_restart),
    Row("roll-back", Command.ROLL_BACK_WORKLOAD, _changed),
    Row("apply", Command.APPLY_WORKLOAD, fill_in=_manifest),
    Row("new", Command.APPLY_WORKLOAD, fill_in=_new),
    Row("pods", Command.DELETE_OUTDATED_PODS, _outdated, _pod),
    Row("any-pods", Command.DELETE_ANY_PODS, _deployed, _pod),
    Row("take-over", Command.TAKE_OVER_WORKLOAD, _kept_by_grove),
    Row("take-over-cluster", Command.TAKE_OVER_WORKLOAD, _kept_alone_by_grove, _seen, is_for_cluster=True),
    Row("delete", Command.DELETE_WORKLOAD, _anew),
    Row("no-surge", Command.EDIT_STRATEGY, _surging),
    Row("more-unavailable", Command.EDIT_STRATEGY, _surging),
    Row("scale-in", Command.SCALE_WORKLOAD, _without_room),
    Row("delete-surge", Command.DELETE_ANY_PODS, _surging),
    Row("let-go", Command.DELETE_ANY_PODS, _lingering, _all),
]
NO_VERSION_CHECK = ("new", "roll-back", "take-over-cluster")
# What only shows something, by the name of its route.
SHOWN = {
    **{
        f"command-{row.name}-version-check": f"{row.name}/version-check"
        for row in ROWS
        if row.name not in NO_VERSION_CHECK
    },
    "command-roll-back-version-check": "roll-back/1/version-check",
    "command-pods-pod-grid": "pods/pod-grid",
    "command-any-pods-pod-grid": "any-pods/pod-grid",
    "command-pods-done": "pods/{record}",
    "command-pods-live": "pods/{record}/live",
    "command-remedy": "remedy/ScaleIn",
}


def routes(patterns: Iterable[URLPattern | URLResolver]) -> Iterator[str]:
    """Yield the names of all routes of command forms."""
    for pattern in patterns:
        if isinstance(pattern, URLResolver):
            yield from routes(pattern.url_patterns)
        elif (pattern.name or "").startswith("command-"):
            yield str(pattern.name)


def test_every_route_of_a_command_form_is_tried_here() -> None:
    tried = {*SHOWN, *(f"command-{row.name}{end}" for row in ROWS for end in ("", "-preview"))}
    assert tried == set(routes(get_resolver().url_patterns))


# ---- everybody


@pytest.fixture
def scene(stage: Stage, caller: Caller) -> Iterator[Scene]:
    """Everybody in front of a workload."""
    people = {"": Client(), "nora": Client()}
    people["nora"].force_login(User.objects.create_user("nora"))
    for name, role in {"vera": "viewer", "otto": "operator", "olga": "operator", "anna": "admin"}.items():
        people[name] = sign_in(role, name)
    for name, namespace in {"otto": "elsewhere", "olga": stage.namespace}.items():
        account = User.objects.get(username=name)
        NamespaceGrant.objects.create(user=account, cluster=stage.cluster_name, namespace=namespace)
    # Whoever may do everything is believed only with a token of the page.
    strict = Client(enforce_csrf_checks=True)
    strict.cookies = people["anna"].cookies
    yield Scene(stage, caller, {**people, "anna": strict})
    bring_nodes_back(stage.cluster)


@dataclass(frozen=True, slots=True)
class Came:
    """What came of a form that somebody sent."""

    status: int
    has_changed: bool = False
    on_record: tuple[tuple[str, str, str], ...] = ()  # who, what, and with which result


def send(scene: Scene, name: str, where: str, fields: Fields) -> tuple[Came, Any]:
    """Send a form as somebody."""
    before, entries = scene.state(), AuditEntry.objects.count()
    answer = scene.people[name].post(where, fields)
    added = AuditEntry.objects.order_by("id").values_list("actor", "command", "result")[entries:]
    ended = tuple(entry for entry in added if entry[2] != AuditEntry.Result.BEGUN)
    return Came(answer.status_code, scene.state() != before, ended), answer


def fill_in(scene: Scene, row: Row) -> Fields:
    """Return a form as whoever may do everything fills it in, with whatever has to be agreed to."""
    where = row.address(scene.stage)
    page = scene.people["anna"].get(where)
    fields = {**fields_of(page.content.decode()), **row.fill_in(scene, page)}
    came, tried = send(scene, "anna", f"{where}preview/", fields)
    assert came == Came(200)
    asked = re.findall(r'name="agreed" value="([^"]+)"', compact(tried.content.decode()))
    return {**fields, "agreed": html.unescape(asked[0])} if asked else fields


def refuse_strangers(scene: Scene, row: Row, fields: Fields) -> None:
    """See that a form does nothing for those who may not even look."""
    for where in (row.address(scene.stage), f"{row.address(scene.stage)}preview/"):
        came, answer = send(scene, "", where, fields)
        assert came == Came(302)
        assert answer.headers["Location"].startswith(reverse("login"))
        came, answer = send(scene, "nora", where, fields)
        assert came == Came(403)
        assert "Your account has no role" in say(answer)


def refuse(scene: Scene, row: Row, name: str, fields: Fields, sentence: str) -> None:
    """See that a form says why somebody may not send it, and does nothing when it is sent nevertheless."""
    where = row.address(scene.stage)
    page = scene.people[name].get(where)
    # Where a new workload is to go, and so whether it may, is known only once somebody says it.
    if row.name != "new" or name != "otto":
        assert sentence in say(page, "blocked")
        assert is_barred(page.content.decode())
    came, answer = send(scene, name, where, fields)
    assert came == Came(403, on_record=((name, str(row.command), "Refused"),))
    assert sentence in say(answer)
    came, answer = send(scene, name, f"{where}preview/", fields)
    assert came == Came(200)
    assert sentence in say(answer)


def refuse_forged(scene: Scene, row: Row, fields: Fields) -> None:
    """See that a form does nothing that another site makes a browser send."""
    forged = {name: value for name, value in fields.items() if name != TOKEN}
    for where in (row.address(scene.stage), f"{row.address(scene.stage)}preview/"):
        assert send(scene, "anna", where, forged)[0] == Came(403)


def let(scene: Scene, row: Row, name: str, fields: Fields) -> None:
    """See that a form is carried out."""
    came, _ = send(scene, name, row.address(scene.stage), fields)
    on_record = ((name, str(row.command), "Done"),) * (2 if row.is_for_cluster else 1)
    assert came == Came(302, has_changed=True, on_record=on_record)
    scene.stage.observe()


@pytest.mark.parametrize("row", ROWS, ids=str)
def test_those_who_may_are_let_and_all_others_refused(row: Row, scene: Scene) -> None:
    row.prepare(scene)
    fields = fill_in(scene, row)
    refuse_strangers(scene, row, fields)
    refuse(scene, row, "vera", fields, f"You may not {row.command.label}: your account lacks the permission")
    refuse(scene, row, "otto", fields, f"You may not {row.command.label}")
    with override_settings(ENVIRONMENT=replace(settings.ENVIRONMENT, read_only=True)):
        refuse(scene, row, "anna", fields, f"You may not {row.command.label}: this installation is read-only")
    refuse_forged(scene, row, fields)
    if row.is_for_cluster:
        refuse(scene, row, "olga", fields, "your account has no grant for all namespaces of the cluster")
    else:
        let(scene, row, "olga", fields)
    row.prepare(scene)
    let(scene, row, "anna", fill_in(scene, row))


def test_what_only_shows_is_for_all_who_may_see_and_takes_nothing(scene: Scene) -> None:
    _changed(scene)
    pod = scene.stage.loop.pods()[0]["metadata"]
    record = pods_delete(scene.caller, scene.stage.place, [PodRef(pod["name"], pod["uid"])], force=True).record
    for name, route in SHOWN.items():
        where = address(scene.stage, route.format(record=record))
        found = {who: scene.people[who].get(where) for who in ("", "nora", "vera")}
        seen = 302 if name == "command-remedy" else 200  # it leads to the page of a form
        assert [answer.status_code for answer in found.values()] == [302, 403, seen], name
        assert found[""].headers["Location"].startswith(reverse("login"))
        assert send(scene, "olga", where, {})[0] == Came(405), name


def test_a_form_about_what_is_not_there_is_not_there(scene: Scene) -> None:
    assert scene.people["olga"].get("/workloads/sandbox/default/nobody/images/").status_code == 404
