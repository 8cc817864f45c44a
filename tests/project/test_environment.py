"""The environment is parsed into values; an error names the invalid variable and a valid value."""

import stat
from pathlib import Path

import pytest

from grove_ui.environment import (
    BASE_DIR,
    POD_SECURITY_LEVELS,
    ConfigurationError,
    ensure_secret_key,
    parse_environment,
)
from rollouts.accounts.permissions import CONTROLLER_CONTINUES
from rollouts.engine.manifest.validation.pod_security import PodSecurityLevel
from rollouts.management.commands.run import find_warning, render_greeting
from rollouts.services.first_account import FirstAccount


def test_nothing_set_gives_working_defaults() -> None:
    environment = parse_environment({})
    assert (environment.host, environment.port, environment.sandbox_port) == ("127.0.0.1", 8000, 8001)
    assert environment.data_dir == BASE_DIR / "var"
    assert (environment.clusters, environment.kube_contexts) == (("sandbox",), ())
    assert environment.database_url is None
    assert environment.redis_url is None


def test_merely_having_a_kubeconfig_does_not_choose_a_real_cluster() -> None:
    assert parse_environment({"KUBECONFIG": "/home/me/.kube/config"}).clusters == ("sandbox",)


def test_an_empty_variable_counts_as_not_set() -> None:
    assert parse_environment({"PORT": "", "CLUSTER": "", "REDIS_URL": ""}) == parse_environment({})


@pytest.mark.parametrize(
    ("name", "value", "way_out"),
    [
        ("PORT", "eighty", "a whole number of at least 1"),
        ("PORT", "-1", "a whole number of at least 1"),
        ("PORT", "0", "a whole number of at least 1"),
        ("PORT", "²", "a whole number of at least 1"),
        ("SANDBOX_PORT", "70000", "a port from 1 to 65535"),
        ("CLUSTER", "prod", "one of sandbox, kubeconfig, in-cluster"),
        ("CLUSTER", "sandbox,prod", "one of sandbox, kubeconfig, in-cluster"),
        ("HTTPS", "maybe", "1 or 0"),
        ("POD_SECURITY_LEVEL", "strict", "one of baseline, restricted, privileged"),
        ("WORKER_PROCESSES", "0", "a whole number of at least 1"),
        ("WORKERS", "none", "a whole number of at least 1"),
        ("TOKEN_MAX_DAYS", "0", "a number of days from 1 to 36500, or to off"),
        ("TOKEN_MAX_DAYS", "never", "a number of days from 1 to 36500, or to off"),
        ("OIDC_TOKEN_DAYS", "99999999999", "a number of days from 1 to 36500, or to off"),
    ],
)
def test_a_wrong_value_is_named_with_the_way_out(name: str, value: str, way_out: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        parse_environment({name: value})
    assert str(caught.value).startswith(f"{name} is ")
    assert way_out in str(caught.value)


def test_days_can_be_without_end() -> None:
    usual, off = parse_environment({}), parse_environment({"TOKEN_MAX_DAYS": "off", "OIDC_TOKEN_DAYS": "off"})
    assert (usual.token_max_days, usual.oidc_token_days) == (365, 30)
    assert (off.token_max_days, off.oidc_token_days) == (None, None)


def test_several_clusters_are_named_in_a_list() -> None:
    environment = parse_environment({"CLUSTER": "sandbox, kubeconfig", "KUBE_CONTEXT": "east,west"})
    assert (environment.clusters, environment.kube_contexts) == (("sandbox", "kubeconfig"), ("east", "west"))


def test_pods_are_held_to_baseline_unless_another_level_is_set() -> None:
    assert {*POD_SECURITY_LEVELS} == {*PodSecurityLevel}
    assert parse_environment({}).pod_security_level == "baseline"
    assert parse_environment({"POD_SECURITY_LEVEL": "restricted"}).pod_security_level == "restricted"


def test_lists_are_split_at_commas() -> None:
    assert parse_environment({"ALLOWED_HOSTS": "a.example, b.example,"}).allowed_hosts == (
        "a.example",
        "b.example",
    )


def test_a_given_secret_key_is_used_and_nothing_is_written(tmp_path: Path) -> None:
    assert ensure_secret_key({"SECRET_KEY": "given"}, tmp_path) == "given"
    assert list(tmp_path.iterdir()) == []


def test_a_made_up_secret_key_is_kept_for_its_owner_only(tmp_path: Path) -> None:
    first = ensure_secret_key({}, tmp_path / "data")
    assert ensure_secret_key({}, tmp_path / "data") == first
    assert len(first) > 50
    assert stat.S_IMODE((tmp_path / "data" / "secret_key").stat().st_mode) == 0o600
    assert [path.name for path in (tmp_path / "data").iterdir()] == ["secret_key"]


def test_a_data_folder_that_cannot_be_written_is_said_in_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(ConfigurationError, match=r"DATA_DIR is .* set DATA_DIR to a writable folder"):
        ensure_secret_key({}, tmp_path / "file" / "data")


@pytest.mark.parametrize("url", ["mysql2://me:secret-word@db/x", "oracle://me:secret-word@db/x", "secret-word", "://"])
def test_a_database_of_another_kind_is_refused_without_its_password(url: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        parse_environment({"DATABASE_URL": url})
    assert str(caught.value).startswith("DATABASE_URL ")
    assert "set it to postgresql://" in str(caught.value)
    assert "secret-word" not in str(caught.value)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.0.0.5", "grove.example.com"])
def test_debug_pages_are_refused_to_other_machines(host: str) -> None:
    with pytest.raises(ConfigurationError, match=r"DEBUG is 1 and HOST is .*; set DEBUG to 0, or HOST to 127\.0\.0\.1"):
        parse_environment({"DEBUG": "1", "HOST": host})
    assert not parse_environment({"HOST": host}).is_loopback


@pytest.mark.parametrize("host", ["", "127.0.0.1", "::1", "localhost"])
def test_debug_pages_are_allowed_on_this_machine(host: str) -> None:
    environment = parse_environment({"DEBUG": "1", "HOST": host})
    assert environment.debug
    assert environment.is_loopback


def test_a_start_warns_of_an_address_beyond_this_machine_without_https() -> None:
    warning = find_warning(parse_environment({"HOST": "0.0.0.0"}))
    assert "HOST is 0.0.0.0 and HTTPS is 0" in warning
    assert "set HTTPS=1, or set HOST to 127.0.0.1" in warning
    assert find_warning(parse_environment({"HOST": "0.0.0.0", "HTTPS": "1"})) == ""
    assert find_warning(parse_environment({})) == ""


def test_what_https_promises_for_other_names_is_off_unless_it_is_set() -> None:
    assert not parse_environment({"HTTPS": "1"}).hsts_include_subdomains
    assert not parse_environment({"HTTPS": "1"}).hsts_preload
    assert parse_environment({"HTTPS": "1", "HSTS_INCLUDE_SUBDOMAINS": "1"}).hsts_include_subdomains
    assert parse_environment({"HTTPS": "1", "HSTS_PRELOAD": "1"}).hsts_preload


@pytest.mark.parametrize(
    ("variables", "line"),
    [
        ({"READ_ONLY": "1"}, f"READ_ONLY is set     Commands of users are refused. {CONTROLLER_CONTINUES}"),
        ({"READ_ONLY": "1", "OBSERVE": "1"}, "OBSERVE is set       Grove UI writes nothing to any cluster."),
    ],
)
def test_the_greeting_says_which_writes_are_stopped(variables: dict[str, str], line: str) -> None:
    account = FirstAccount("admin", None)
    assert f"  {line}" in render_greeting(parse_environment(variables), account).splitlines()
    assert " is set " not in render_greeting(parse_environment({}), account)
