"""The smaller pages: nodes, overrides, audit, tokens, help; and what every page keeps to."""

import re
from dataclasses import replace
from datetime import timedelta

import pytest
from django.conf import settings
from django.contrib.auth.models import Group
from django.test import Client
from django.utils import timezone

from rollouts import models
from rollouts.accounts.tokens import digest_of
from rollouts.models import ApiToken, AuditEntry, StrategyOverride, User
from tests.api.read import fleet
from tests.markup import compact

pytestmark = pytest.mark.django_db

PAGES = ("/", "/nodes/", "/overrides/", "/clusters/", "/audit/", "/tokens/", "/help/")


def get(client: Client, address: str) -> str:
    """Return a page."""
    answer = client.get(address)
    assert answer.status_code == 200, answer.content
    return compact(answer.content.decode())


@pytest.mark.parametrize("address", PAGES)
def test_no_page_has_script_or_style_of_its_own(viewer: Client, row: models.Cluster, address: str) -> None:
    fleet.store_parts(row, fleet.big_workload(pods=20))
    page = get(viewer, address)
    assert not re.search(r"<script(?![^>]*\bsrc=)", page)
    assert not re.search(r"<style|\sstyle=|\son[a-z]+=", page)


def test_no_script_is_loaded_by_a_page_and_imported_by_another_script() -> None:
    """Pages name a script with its hash and imports without: a browser takes them for two, and runs both."""
    templates, scripts = (
        (path.read_text() for path in (settings.BASE_DIR / folder).rglob(pattern))
        for folder, pattern in (("templates", "*.html"), ("static", "*.js"))
    )
    loaded = {name for text in templates for name in re.findall(r"<script[^>]*{% static '([^']+)' %}", text)}
    imported = {name for text in scripts for name in re.findall(r'^import .*from "\./([^"]+)"', text, re.MULTILINE)}
    assert "live-updates.js" in loaded
    assert "relative-time.js" in imported
    assert not loaded & imported


@pytest.mark.parametrize("address", PAGES)
def test_every_page_has_one_heading_and_names_where_one_is(viewer: Client, row: models.Cluster, address: str) -> None:
    page = get(viewer, address)
    assert page.count("<h1") == 1
    if address not in ("/tokens/", "/help/"):
        assert page.count('aria-current="page"') == 1


@pytest.mark.parametrize("address", ["/", "/nodes/", "/clusters/"])
def test_pages_say_why_nothing_is_changed_and_go_on_showing_everything(
    viewer: Client, row: models.Cluster, address: str
) -> None:
    fleet.store_parts(row, fleet.big_workload(pods=20))
    before = get(viewer, address)
    models.Cluster.objects.update(other_operator="Grove's own operator runs in this cluster.")
    page = get(viewer, address)
    assert "Grove&#x27;s own operator runs" in page
    assert "Grove&#x27;s own operator runs" not in before
    assert page.count("<tr") == before.count("<tr")


def test_a_cluster_counts_the_workloads_of_which_grove_wrote_a_part(viewer: Client, row: models.Cluster) -> None:
    for name in ("chat", "search"):
        fleet.store_parts(row, fleet.big_workload(name, pods=20))
    assert "Take over from Grove" not in get(viewer, "/clusters/")
    models.Clique.objects.filter(workload="chat").update(written_by_grove=True)
    page = get(viewer, "/clusters/")
    assert "operator manages 1 workload here." in page
    assert 'href="/clusters/sandbox/take-over/"' in page


@pytest.mark.parametrize("address", ["/", "/nodes/", "/clusters/"])
def test_every_page_of_an_installation_that_only_observes_says_so(
    viewer: Client, row: models.Cluster, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "only observes" not in get(viewer, address)
    monkeypatch.setattr(settings, "ENVIRONMENT", replace(settings.ENVIRONMENT, observe=True))
    assert "only observes (OBSERVE is set)" in get(viewer, address)


@pytest.mark.parametrize("address", ["/", "/nodes/", "/clusters/"])
def test_every_page_of_a_read_only_installation_says_that_the_controller_continues(
    viewer: Client, row: models.Cluster, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "READ_ONLY" not in get(viewer, address)
    monkeypatch.setattr(settings, "ENVIRONMENT", replace(settings.ENVIRONMENT, read_only=True))
    page = get(viewer, address)
    assert "This installation is read-only (READ_ONLY is set): it refuses commands of users." in page
    assert "The controller still creates and deletes pods. OBSERVE=1 stops that." in page
    monkeypatch.setattr(settings, "ENVIRONMENT", replace(settings.ENVIRONMENT, observe=True))
    page = get(viewer, address)
    assert "only observes (OBSERVE is set)" in page
    assert "still creates" not in page


def test_the_theme_is_rendered_by_the_server(viewer: Client, row: models.Cluster) -> None:
    assert "data-theme" not in get(viewer, "/").split("<head>")[0]
    viewer.cookies["theme"] = "dark"
    assert '<html lang="en" data-theme="dark">' in get(viewer, "/")
    viewer.cookies["theme"] = '"><script>'
    assert '<html lang="en">' in get(viewer, "/")


# ---- nodes


def test_a_node_shows_the_workloads_and_templates_that_it_holds(viewer: Client, row: models.Cluster) -> None:
    fleet.store_nodes(row, 2)
    manifest = fleet.podcliqueset("chat", cliques=[fleet.clique("main", 1)], replicas=2)
    fleet.store_parts(row, manifest, outdated=[1])
    page = get(viewer, "/nodes/?search=node-0000")
    assert "node-0001" not in page
    assert re.search(r'hash older"[^>]*>old ×1', page)
    assert re.findall(r'<i class="cell ([^"]+)"', page) == ["older ready"] * 2
    assert 'chat/?by=node#node-node-0000"' in page


def test_an_unknown_cluster_is_a_page_that_says_so(viewer: Client, row: models.Cluster) -> None:
    answer = viewer.get("/nodes/?cluster=nowhere")
    assert answer.status_code == 404
    assert "There is no cluster" in compact(answer.content.decode())


# ---- overrides


def test_overrides_in_force_and_ended_are_told_apart(viewer: Client, row: models.Cluster) -> None:
    now = timezone.now()
    StrategyOverride.objects.create(name="chat", strategy="OnDelete", reason="launch", expires_at=now + timedelta(1))
    StrategyOverride.objects.create(name="old", max_surge="1", reason="past", expires_at=now - timedelta(1))
    in_force, ended = get(viewer, "/overrides/"), get(viewer, "/overrides/?state=ended")
    assert ("launch" in in_force, "past" in in_force) == (True, False)
    assert ("launch" in ended, "past" in ended) == (False, True)


def test_who_may_not_override_is_told_why_and_who_may_gets_the_button(viewer: Client, row: models.Cluster) -> None:
    assert "lacks the permission create_override" in get(viewer, "/overrides/")
    User.objects.get(username="vera").groups.add(Group.objects.get(name="admin"))
    page = get(viewer, "/overrides/")
    assert "lacks the permission" not in page
    assert "/admin/rollouts/strategyoverride/add/" in page


# ---- audit


def test_the_audit_is_narrowed_by_the_address(viewer: Client, row: models.Cluster) -> None:
    for actor, command in (("ana", "set_images"), ("bea", "scale_workload")):
        AuditEntry.objects.create(actor=actor, command=command, result="Done", after={"replicas": 3}, name="chat")
    page = get(viewer, "/audit/?actor=ana")
    assert "change images</td>" in page or "change images <details" in page
    assert "<b>bea</b>" not in page
    assert "<b>bea</b>" in get(viewer, "/audit/?command=scale_workload&since=2020-01-01&until=2999-01-01")
    assert "No matching commands" in get(viewer, "/audit/?until=2020-01-01")
    get(viewer, "/audit/?since=2020-02-31")


def test_what_the_audit_is_narrowed_by_stays_while_one_pages_and_while_it_is_live(
    viewer: Client, row: models.Cluster
) -> None:
    AuditEntry.objects.bulk_create(AuditEntry(actor="ana", command="set_images", result="Done") for _ in range(60))
    page = get(viewer, "/audit/?actor=ana&since=2020-01-01&until=2999-01-01&page=2")
    for address in re.findall(r'(?:rel="next"|data-live-src)[^>]*?="(?:/audit/|/live/audit/)\?([^"]+)"', page):
        assert "actor=ana&amp;since=2020-01-01&amp;until=2999-01-01" in address
    assert 'value="2999-01-01"' in page, "the day that was chosen, not the one after it"
    assert get(viewer, "/live/audit/?actor=nobody-like-that").count("No matching commands") == 1


# ---- tokens


def test_a_token_is_shown_once_and_works(viewer: Client, row: models.Cluster) -> None:
    answer = viewer.post("/tokens/", {"name": "pipeline", "days": "30", "read_only": "on"})
    text = re.search(r'id="new-token">([^<]+)<', compact(answer.content.decode()))
    assert text
    assert "no-store" in answer["Cache-Control"]
    made = ApiToken.objects.get(digest=digest_of(text[1]))
    assert (made.name, made.read_only, made.user.username) == ("pipeline", True, "vera")
    assert text[1] not in get(viewer, "/tokens/")
    told = Client().get("/api/v1/workloads/", headers={"Authorization": f"Bearer {text[1]}"})
    assert told.status_code == 200


def test_a_token_without_a_name_is_refused_with_a_sentence(viewer: Client) -> None:
    answer = viewer.post("/tokens/", {"name": " "})
    assert answer.status_code == 400
    assert 'role="alert"' in compact(answer.content.decode())
    assert not ApiToken.objects.exists()


def test_one_revokes_ones_own_token_and_nobody_elses(viewer: Client) -> None:
    viewer.post("/tokens/", {"name": "mine"})
    mine = ApiToken.objects.get()
    other = ApiToken.objects.create(user=User.objects.create_user("olaf"), name="theirs", prefix="grove_x", digest="d")
    assert viewer.post(f"/tokens/{mine.pk}/revoke/").status_code == 302
    assert viewer.post(f"/tokens/{other.pk}/revoke/").status_code == 400
    mine.refresh_from_db()
    other.refresh_from_db()
    assert (mine.revoked_at is not None, other.revoked_at) == (True, None)


@pytest.mark.parametrize("day", ["9999-12-31", "0001-01-01", "2026-02-30", "soon"])
def test_a_day_that_cannot_be_used_is_no_filter_of_the_audit(viewer: Client, day: str) -> None:
    for name in ("since", "until"):
        assert viewer.get("/audit/", {name: day}).status_code == 200
        assert viewer.get("/live/audit/", {name: day}).status_code == 200
