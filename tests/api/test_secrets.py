"""No secret of a pod spec, kubeconfig, token or setting in any answer, page, audit entry or log.

Secrets that can be recognised are planted everywhere (`planted`), the workload is taken through commands that work and
commands that do not, and then everything that can be read is read: every GET of the API as its description lists them,
every page of the dashboard and of the admin site, every error, and all that the product has printed. A viewer reads all
of it, too, and sees nothing of a command line either.
"""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import pytest
import yaml

from rollouts.cluster import ClusterClient, kubeconfig
from rollouts.cluster.resources import EVENTS, PODCLIQUESETS
from tests.api.planted import CLUSTER, HARMLESS, NAME, NAMESPACE, Planted, as_yaml, careless_workload, write_kubeconfig
from tests.api.visiting import Answer, Visitor
from tests.contract.sandbox_process import SandboxProcess
from tests.data_folders import database_of
from tests.project.running import ROOT, Product, product, wait_until

pytestmark = pytest.mark.slow

WORKLOAD = f"/api/v1/workloads/{CLUSTER}/{NAMESPACE}/{NAME}"
CONTAINER = ("spec", "template", "cliques", 0, "spec", "podSpec", "containers", 0)
YAML = {"Content-Type": "application/yaml"}
QUOTED = "FailedAsQuoted"  # the reason of Events that quote secrets
_LINK = re.compile(r'href="(/(?!static/|api/|sign-out)[^"?#]*)')
_MOST_PAGES = 200


@dataclass
class House:
    """A running product in which secrets are planted, and everything it has said so far."""

    product: Product
    planted: Planted
    cluster: ClusterClient
    variables: dict[str, str]  # its settings
    said: dict[str, str] = field(default_factory=dict)  # by what was asked
    said_to_viewer: dict[str, str] = field(default_factory=dict)

    def visitor(self, token: str = "") -> Visitor:
        """A caller."""
        return Visitor(self.product.url, token)

    def hear(self, what: str, answer: Answer) -> Answer:
        """Keep an answer."""
        self.said[what] = answer.everything
        return answer


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    """The product on a cluster that asks for a token, with a secret in every setting."""
    planted, folder = Planted(), tmp_path_factory.mktemp("house")
    (folder / "cluster").mkdir()
    quick = {"SANDBOX_READY_SECONDS": "0.2", "SANDBOX_TERMINATION_SECONDS": "0.1"}
    with SandboxProcess(folder / "cluster", **quick) as sandbox:
        config = yaml.safe_load(sandbox.kubeconfig.read_text())
        write_kubeconfig(folder / "config", config["clusters"][0]["cluster"]["server"], planted)
        variables = {**_settings(planted, folder), "CLUSTER": "kubeconfig", "KUBECONFIG": str(folder / "config")}
        with product(folder / "data", **variables) as running:
            running.wait_until_it_answers()
            yield House(running, planted, ClusterClient(kubeconfig(sandbox.kubeconfig)), variables)


def _settings(planted: Planted, folder: Path) -> dict[str, str]:
    named = ("SECRET_KEY", "GROVE_ADMIN_PASSWORD", "GROVE_ADMIN_TOKEN", "METRICS_TOKEN", "OIDC_CLIENT_SECRET")
    provider = {"OIDC_ISSUER": "http://127.0.0.1:1", "OIDC_CLIENT_ID": "grove"}
    limits = dict.fromkeys(("API_RATE", "STRANGER_RATE", "SIGN_IN_RATE"), "off")
    return {**{name: planted.at(name) for name in named}, **provider, **limits, **_database(planted, folder)}


def _database(planted: Planted, folder: Path) -> dict[str, str]:
    """Give the database's address a password; the server of the tests does not ask for it."""
    given = database_of(folder / "data")
    for name, url in given.items():
        parts = urlsplit(url)
        user = parts.username or "grove"
        if parts.password is None:
            place = parts.netloc.rpartition("@")[2]
            return {name: urlunsplit(parts._replace(netloc=f"{user}:{planted.at('DATABASE_URL')}@{place}"))}
        planted.keep("DATABASE_URL", parts.password)
    return given


# --- What happens in the house ----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def lived_in(house: House) -> House:
    """Everything has been commanded once, well and badly, and everything that can be read was read."""
    admin = house.visitor(house.planted.at("GROVE_ADMIN_TOKEN"))
    _command(house, admin)
    _tell(house)
    _err(house, admin)
    _read_api(house, admin)
    _read_pages(house)
    _read_as_viewer(house)
    return house


def _command(house: House, admin: Visitor) -> None:
    manifest = careless_workload(house.planted)
    applied = house.hear("apply", admin.send(f"{WORKLOAD}/apply/", as_yaml(manifest), **YAML))
    assert applied.status in (200, 201), applied.text
    wait_until(lambda: _is_settled(admin), 60, lambda: admin.get(f"{WORKLOAD}/").text)
    _put(manifest, (*CONTAINER, "env", 0, "value"), house.planted.at("env that was changed"))
    for what, path, body in (
        ("apply as a dry run", "apply/?dry_run=true", manifest),
        ("simulation of an apply", "simulation/", {"change": {"kind": "apply", "manifest": manifest}}),
        ("images", "images/", {"images": [{"clique": "worker", "container": "server", "image": "example/chat:v2"}]}),
        ("apply another secret", "apply/?force=true", manifest),
        ("restart", "restart/", {}),
        ("roll back", "rollback/", {"revision": 1}),
    ):
        answer = house.hear(what, admin.send(f"{WORKLOAD}/{path}", body))
        assert answer.status == 200, (what, answer.text)
    end = (datetime.now(UTC) + timedelta(days=1)).isoformat()
    override = {"name": NAME, "strategy": {"type": "OnDelete"}, "reason": "To have one.", "expires_at": end}
    assert house.hear("override", admin.send("/api/v1/overrides/", override)).status == 201
    made = admin.send("/api/v1/tokens/", {"name": "for the robot"})  # the one answer that may show it
    house.planted.keep("API token", made.json["token"])


def _tell(house: House) -> None:
    """Have the cluster quote secrets of the workload, as kubelets quote what failed to start."""
    metadata = house.cluster.get(PODCLIQUESETS, NAME, namespace=NAMESPACE)["metadata"]
    involved = {"kind": "PodCliqueSet", "name": NAME, "namespace": NAMESPACE, "uid": metadata["uid"]}
    at = datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
    for number, words in enumerate(_quotes(house.planted)):
        told = {"type": "Warning", "reason": QUOTED, "message": f"cannot start: {words} failed"}
        name = {"metadata": {"name": f"{NAME}.{number}", "namespace": NAMESPACE}}
        moments = {"firstTimestamp": at, "lastTimestamp": at, "count": 1}
        house.cluster.create(EVENTS, {**name, **told, **moments, "involvedObject": involved})


def _quotes(planted: Planted) -> Iterator[str]:
    """Return secrets as a cluster would quote them: alone, or in the words around them."""
    # By themselves, also where the manifest has them within something larger.
    alone = ("command", "args, in one", "args, in two", "env with a harmless name", "init", "volume attribute")
    within = ("args, in a URL", "env, in a URL", "image", "header of a probe", "hook")
    yield from map(planted.at, (*alone, *within))
    # Of a template that is not the current one any more, though a pod of it may still be told of.
    yield planted.at("env that was changed")
    yield f"https://robot:{planted.at('args, in a URL')}@models.example.com/v1"
    yield f"Authorization: Bearer {planted.at('header of a probe')}"
    yield f"curl --user=robot:{planted.at('hook')} localhost"


def _is_settled(admin: Visitor) -> bool:
    answer = admin.get(f"{WORKLOAD}/")
    return bool(answer.status == 200 and answer.json["state"] == "settled")


def _err(house: House, admin: Visitor) -> None:
    """Make every kind of mistake that could be quoted back."""
    at = house.planted.at
    for what, path, value in (
        ("a number of replicas that is a secret", ("spec", "replicas"), at("replicas")),
        ("an argument that is no list", (*CONTAINER, "args"), f"--token={at('args that are no list')}"),
        ("a variable that is an object", (*CONTAINER, "env", 0, "value"), {"of": at("env that is an object")}),
        ("a variable twice", (*CONTAINER, "env"), [{"name": "A_TOKEN", "value": at("env twice")}] * 2),
        ("a field that is not there", (*CONTAINER, "password"), at("unknown field")),
    ):
        manifest = careless_workload(house.planted)
        _put(manifest, path, value)
        for way in ("?dry_run=true", ""):
            house.hear(what + way, admin.send(f"{WORKLOAD}/apply/{way}", as_yaml(manifest), **YAML))
    broken = f"metadata: {{name: x\ntoken: {at('broken YAML')}\n\t- ]".encode()
    house.hear("broken YAML", admin.send(f"{WORKLOAD}/apply/", broken, **YAML))
    house.hear("broken JSON", admin.send(f"{WORKLOAD}/images/", f'{{"token": "{at("broken JSON")}'.encode()))
    house.hear("a parameter", admin.get(f"/api/v1/workloads/?token={at('parameter')}"))
    house.hear("a wrong token", house.visitor(at("wrong token")).get("/api/v1/me/"))
    house.hear("a wrong password", house.visitor().sign_in("admin", at("wrong password")))
    house.hear("a wrong metrics token", house.visitor(at("wrong metrics token")).get("/metrics"))


def _put(manifest: dict[str, Any], path: tuple[str | int, ...], value: Any) -> None:
    node: Any = manifest
    for part in path[:-1]:
        node = node[part]
    node[path[-1]] = value


def _read_api(house: House, reader: Visitor, *, refused: str = "") -> None:
    schema = json.loads(reader.get("/api/v1/schema/?format=json").text)
    for route in sorted(path for path, item in schema["paths"].items() if "get" in item and "/feed/" not in path):
        path = _fill(reader, route)
        answer = house.hear(f"GET {route}", reader.get(path))
        assert answer.status == (403 if route == refused else 200), (path, answer.text)


def _fill(admin: Visitor, route: str) -> str:
    """Put names of things that are there into a route: the first of the list that stands before the parameter."""
    path = route.format_map(_Known())
    while (found := re.search(r"\{(\w+)\}", path)) is not None:
        listed = admin.get(path[: found.start()]).json
        first = (listed["results"] if isinstance(listed, dict) else listed)[0]
        name = next(first[key] for key in (found[1], "id", "number", "name") if key in first)
        path = path.replace(found[0], str(name), 1)
    return path


class _Known(dict[str, str]):
    """The names that are the same wherever they stand; the others are left in their braces."""

    def __missing__(self, name: str) -> str:
        return {"cluster": CLUSTER, "namespace": NAMESPACE, "name": NAME}.get(name, f"{{{name}}}")


def _read_as_viewer(house: House) -> None:
    """Read the same as an account with the role viewer and no grant."""
    said, house.said = house.said, {}
    token, password = house.planted.at("token of the viewer"), house.planted.at("password of the viewer")
    _run(house, "shell", "-c", _MAKE_VIEWER.format(token=token, password=password))
    _read_api(house, house.visitor(token), refused="/api/v1/audit/export/")
    _follow_links(house, "vera", password, "/")
    house.said, house.said_to_viewer = said, house.said


_MAKE_VIEWER = """
from django.contrib.auth.models import Group
from rollouts.models import ApiToken, User
from rollouts.accounts.tokens import digest_of
vera = User.objects.create_user("vera", password="{password}")
vera.groups.add(Group.objects.get(name="viewer"))
ApiToken.objects.create(user=vera, name="t", prefix="p", digest=digest_of("{token}"))
"""


def _read_pages(house: House) -> None:
    """Follow every link of the dashboard and of the admin site."""
    house.hear("page /metrics", house.visitor(house.planted.at("METRICS_TOKEN")).get("/metrics"))
    _follow_links(house, "admin", house.planted.at("GROVE_ADMIN_PASSWORD"), "/", "/admin/")


def _follow_links(house: House, name: str, password: str, *waiting_first: str) -> None:
    browser, waiting = house.visitor(), list(waiting_first)
    house.hear("sign in", browser.sign_in(name, password))
    seen = set(waiting)
    while waiting and len(seen) < _MOST_PAGES:
        path = waiting.pop(0)
        answer = house.hear(f"page {path}", browser.get(path))
        assert answer.status < 500, (path, answer.text)
        new = [link for link in _LINK.findall(answer.text) if link not in seen and "logout" not in link]
        seen.update(new)
        waiting += dict.fromkeys(new)


# --- What must hold afterwards ----------------------------------------------------------------------------------------


def test_no_answer_of_the_api_has_a_secret(lived_in: House) -> None:
    answers = {what: text for what, text in lived_in.said.items() if not what.startswith("page ")}
    assert _leaks(lived_in.planted, answers) == {}
    assert "‹hidden " in json.dumps(answers, ensure_ascii=False)


def test_a_viewer_sees_no_command_and_no_variable_either(lived_in: House) -> None:
    said = lived_in.said_to_viewer
    assert len([what for what in said if what.startswith("page ")]) > 10, sorted(said)
    assert {what: found for what, text in said.items() if (found := lived_in.planted.found_in(text))} == {}
    assert "‹hidden›" in said[next(what for what in said if what.endswith("/manifest/"))]
    assert [what for what, text in said.items() if "‹hidden " in text] == []


def test_an_operator_is_shown_what_nothing_tells_to_be_a_secret(lived_in: House) -> None:
    """Otherwise the test of the viewer would prove nothing: it is there to be seen."""
    (shown,) = [text for what, text in lived_in.said.items() if what.startswith("GET") and what.endswith("/manifest/")]
    assert {one for one in lived_in.planted.found_in(shown) if one.startswith(HARMLESS)} == {
        f"{HARMLESS}{place}" for place in ("positional argument", "env of a setting", "script")
    }


def test_events_that_quote_a_secret_are_read_without_it(lived_in: House) -> None:
    (told,) = [text for what, text in lived_in.said.items() if what.startswith("GET") and what.endswith("/events/")]
    messages = [one["message"] for one in json.loads(told.splitlines()[-1])["results"] if one["reason"] == QUOTED]
    assert len(messages) == len(list(_quotes(lived_in.planted)))
    assert all("‹hidden›" in message for message in messages), messages


def test_no_page_has_a_secret(lived_in: House) -> None:
    pages = {what: text for what, text in lived_in.said.items() if what.startswith("page ")}
    assert len(pages) > 20, sorted(pages)
    assert _leaks(lived_in.planted, pages) == {}


def test_the_log_has_no_secret(lived_in: House) -> None:
    assert lived_in.planted.found_in(lived_in.product.output) == []


def test_what_opens_doors_is_not_in_the_database(lived_in: House) -> None:
    keys = ("SECRET_KEY", "GROVE_ADMIN_PASSWORD", "GROVE_ADMIN_TOKEN", "METRICS_TOKEN", "OIDC_CLIENT_SECRET")
    kept = set(lived_in.planted.found_in(_dump(lived_in)))
    assert kept.isdisjoint({*keys, "kubeconfig", "API token", "DATABASE_URL", "wrong token", "wrong password"}), kept


def test_what_is_hidden_is_still_in_the_cluster(lived_in: House) -> None:
    """A workload whose manifest was read and sent back has its secrets, but for a copy that is not shown."""
    admin = lived_in.visitor(lived_in.planted.at("GROVE_ADMIN_TOKEN"))
    shown = admin.get(f"{WORKLOAD}/manifest/").json
    answer = admin.send(f"{WORKLOAD}/apply/?force=true&dry_run=true", shown.get("manifest", shown))
    assert answer.status == 200, answer.text
    assert [(one["field"], one["after"]) for one in answer.json["changed"]] == [
        ("metadata.annotations[kubectl.kubernetes.io/last-applied-configuration]", None)
    ]


def _leaks(planted: Planted, texts: dict[str, str]) -> dict[str, list[str]]:
    """Return the planted secrets that an account that may apply could read, although masking can find them."""
    found = {
        what: [one for one in planted.found_in(text) if not one.startswith(HARMLESS)] for what, text in texts.items()
    }
    return {what: places for what, places in found.items() if places}


def _dump(house: House) -> str:
    """Everything in the database, as text."""
    return _run(house, "dumpdata", "--natural-foreign")


def _run(house: House, *arguments: str) -> str:
    """Run a command on the database of the house, and return what it prints."""
    command = [sys.executable, "manage.py", *arguments]
    environment = {**os.environ, **house.variables, "DATA_DIR": str(house.product.data_dir)}
    done = subprocess.run(command, cwd=ROOT, env=environment, text=True, capture_output=True, check=True)
    return done.stdout
