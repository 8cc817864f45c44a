"""The environment is read into values, and a variable that cannot be read is named with the way out."""

import stat
from pathlib import Path

import pytest

from grove_ui.environment import BASE_DIR, ConfigurationError, ensure_secret_key, parse_environment


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
        ("PORT", "eighty", "a whole number from 1 up"),
        ("PORT", "-1", "a whole number from 1 up"),
        ("PORT", "0", "a whole number from 1 up"),
        ("PORT", "²", "a whole number from 1 up"),
        ("SANDBOX_PORT", "70000", "a port from 1 to 65535"),
        ("CLUSTER", "prod", "one of sandbox, kubeconfig, in-cluster"),
        ("CLUSTER", "sandbox,prod", "one of sandbox, kubeconfig, in-cluster"),
        ("HTTPS", "maybe", "1 or 0"),
        ("WORKER_PROCESSES", "0", "a whole number from 1 up"),
    ],
)
def test_a_wrong_value_is_named_with_the_way_out(name: str, value: str, way_out: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        parse_environment({name: value})
    assert str(caught.value).startswith(f"{name} is ")
    assert way_out in str(caught.value)


def test_several_clusters_are_named_in_a_list() -> None:
    environment = parse_environment({"CLUSTER": "sandbox, kubeconfig", "KUBE_CONTEXT": "east,west"})
    assert (environment.clusters, environment.kube_contexts) == (("sandbox", "kubeconfig"), ("east", "west"))


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
    with pytest.raises(ConfigurationError, match=r"DATA_DIR is .* set DATA_DIR to a folder"):
        ensure_secret_key({}, tmp_path / "file" / "data")
