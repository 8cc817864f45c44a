"""The lists of the admin site: their permissions, their constant number of queries, and what they never show."""

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from rollouts import models
from rollouts.admin.site import site
from tests.admin.conftest import SignIn
from tests.admin.tables import OF_ACCOUNTS, TABLES

pytestmark = [pytest.mark.database, pytest.mark.django_db]


def test_every_table_is_tried_here() -> None:
    registered = {f"{model._meta.app_label}/{model._meta.model_name}" for model in site._registry}
    assert registered == TABLES.keys()


@pytest.mark.parametrize("table", TABLES)
def test_a_list_costs_as_many_queries_at_a_thousand_rows_as_at_ten(
    ada: Client, row: models.Cluster, table: str
) -> None:
    counts: list[int] = []
    for number in (10, 990):
        _fill(table, row, number, already=bool(counts))
        with CaptureQueriesContext(
            connection,
        ) as queries:
            assert ada.get(f"/admin/{table}/").status_code == 200
        counts.append(len(queries))
    assert counts[0] == counts[1]
    assert counts[0] <= 18


def _fill(table: str, row: models.Cluster, number: int, *, already: bool) -> None:
    """Add rows; a second helping replaces the first, whose names it would repeat."""
    if already:
        model = next(one for one in site._registry if f"{one._meta.app_label}/{one._meta.model_name}" == table)
        kept = {"name__in": ("viewer", "operator", "admin")} if table == "auth/group" else {"username": "ada"}
        if table in ("auth/group", "rollouts/user"):
            model._default_manager.exclude(**kept).delete()
        elif table == "rollouts/auditentry":
            number += 10
        elif table == "rollouts/cluster":
            model._default_manager.exclude(pk=row.pk).delete()
        else:
            model._default_manager.all().delete()
            models.User.objects.exclude(username="ada").delete()
            models.Rollout.objects.all().delete()
    TABLES[table](row, number)


@pytest.mark.parametrize("table", TABLES)
def test_every_row_has_a_page(ada: Client, row: models.Cluster, table: str) -> None:
    TABLES[table](row, 1)
    model = next(one for one in site._registry if f"{one._meta.app_label}/{one._meta.model_name}" == table)
    newest = model._default_manager.order_by("-pk").first()
    assert newest is not None
    assert ada.get(f"/admin/{table}/{newest.pk}/change/").status_code == 200


@pytest.mark.parametrize("table", ["", "rollouts/pod", "rollouts/user"])
def test_only_those_who_look_after_the_installation_are_let_in(
    sign_in: SignIn, row: models.Cluster, table: str
) -> None:
    url = f"/admin/{table}/".replace("//", "/")
    assert sign_in("ada", "admin").get(url).status_code == 200
    for role in ("viewer", "operator", ""):
        answer = sign_in(role or "nobody", role).get(url, follow=True)
        assert answer.status_code == 403
        assert "may not use the admin site" in answer.content.decode()
    stranger = Client().get(url, follow=True)
    assert stranger.redirect_chain[-1][0].startswith("/sign-in/?next=/admin/")


@pytest.mark.parametrize("table", TABLES)
def test_an_operator_who_is_given_entry_sees_all_but_accounts(sign_in: SignIn, row: models.Cluster, table: str) -> None:
    client = sign_in("olga", "operator", is_staff=True)
    assert client.get(f"/admin/{table}/").status_code == (403 if table in OF_ACCOUNTS else 200)


READ_ONLY = [name for name in TABLES if name not in OF_ACCOUNTS and name != "rollouts/strategyoverride"]


@pytest.mark.parametrize("table", [*READ_ONLY, "rollouts/apitoken"])
def test_what_cannot_be_changed_has_no_form(ada: Client, row: models.Cluster, table: str) -> None:
    TABLES[table](row, 1)
    model = next(one for one in site._registry if f"{one._meta.app_label}/{one._meta.model_name}" == table)
    newest = model._default_manager.order_by("-pk").first()
    assert newest is not None
    assert ada.get(f"/admin/{table}/add/").status_code == 403
    assert ada.post(f"/admin/{table}/{newest.pk}/change/", {"name": "other"}).status_code == 403
    assert ada.post(f"/admin/{table}/{newest.pk}/delete/", {"post": "yes"}).status_code == 403


def test_the_first_page_costs_the_same_however_much_there_is(ada: Client, row: models.Cluster) -> None:
    counts = []
    for number in (10, 990):
        for table in ("rollouts/auditentry", "rollouts/strategyoverride"):
            models.User.objects.filter(username="author").delete()
            TABLES[table](row, number)
        with CaptureQueriesContext(connection) as queries:
            assert ada.get("/admin/").status_code == 200
        counts.append(len(queries))
    assert counts[0] == counts[1] <= 8


def test_literal_values_of_variables_are_masked_in_manifests_and_revisions(ada: Client, row: models.Cluster) -> None:
    from tests.engine.manifests import small

    secret = "s3cr3t-literal-value"
    manifest = small({"spec.template.cliques.0.spec.podSpec.containers.0.env": [{"name": "API_KEY", "value": secret}]})
    common = {"namespace": "web", "name": "chat"}
    workload = models.Workload.objects.create(
        cluster=row, uid="u", resource_version=1, created=1.0e9, manifest=manifest, **common
    )
    revision = models.Revision.objects.create(
        cluster="sandbox",
        workload_uid="u",
        number=1,
        generation_hash="g",
        template=manifest["spec"]["template"],
        created="2026-01-02T03:04:05Z",
        **common,
    )
    for page in (f"workload/{workload.pk}", f"revision/{revision.pk}"):
        text = ada.get(f"/admin/rollouts/{page}/change/").content.decode()
        assert "API_KEY" in text
        assert "‹hidden" in text
        assert secret not in text


def test_no_page_of_an_account_shows_anything_of_its_password_or_token(ada: Client, row: models.Cluster) -> None:
    user = models.User.objects.get(username="ada")
    user.set_password("correct horse battery")
    user.save()
    ada.force_login(user, "rollouts.accounts.permissions.AccountBackend")
    TABLES["rollouts/apitoken"](row, 1)
    token = models.ApiToken.objects.get()
    for page in (f"user/{user.pk}", f"apitoken/{token.pk}"):
        text = ada.get(f"/admin/rollouts/{page}/change/").content.decode()
        for part in (user.password, user.password.split("$")[2], token.digest, "pbkdf2"):
            assert part not in text


def test_the_policy_is_relaxed_for_the_admin_site_alone(ada: Client, row: models.Cluster) -> None:
    here = ada.get("/admin/")["Content-Security-Policy"]
    elsewhere = ada.get("/")["Content-Security-Policy"]
    assert "script-src 'self' 'unsafe-eval'" in here
    assert "unsafe" not in elsewhere
    assert here.replace(" 'unsafe-eval'", "") == elsewhere
    assert "style-src 'self'" in here


@pytest.mark.parametrize(
    "question",
    [
        "rollouts/workload/?manifest__icontains=secret",
        "rollouts/revision/?template__icontains=secret",
        "rollouts/apitoken/?digest__startswith=a",
        "rollouts/apitoken/?user__password__startswith=p",
        "rollouts/user/?password__startswith=p",
        "rollouts/user/?tokens__digest__startswith=a",
        "rollouts/auditentry/?before__icontains=secret",
    ],
)
def test_nobody_finds_out_by_asking_for_it_what_is_not_shown(ada: Client, row: models.Cluster, question: str) -> None:
    path, _, _ = question.partition("?")
    assert ada.get(f"/admin/{path}").status_code == 200
    assert ada.get(f"/admin/{question}").status_code == 400


def test_rollouts_lead_to_their_own_steps(ada: Client, row: models.Cluster) -> None:
    TABLES["rollouts/step"](row, 2)
    first = models.Rollout.objects.order_by("pk").first()
    assert first is not None
    text = ada.get(f"/admin/rollouts/step/?rollout__id__exact={first.pk}").content.decode()
    assert "1 of 2" in text
