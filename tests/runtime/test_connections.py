"""Several clusters: each name leads to one cluster, and a cluster that is down affects no other."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from django.test import Client
from pytest_django.fixtures import Settings
from redis import Redis

from rollouts.cluster import Misconfigured
from rollouts.runtime.connections import cluster_names, connect_cluster, shared_cluster
from rollouts.runtime.readiness import is_ready, readiness_detail
from rollouts.telemetry import heartbeats


def write_kubeconfig(path: Path, *contexts: str, current: str) -> Path:
    """Write a kubeconfig with these contexts, each leading to a server named after it."""
    path.write_text(
        yaml.safe_dump(
            {
                "current-context": current,
                "contexts": [{"name": name, "context": {"cluster": name, "user": "me"}} for name in contexts],
                "clusters": [
                    {"name": name, "cluster": {"server": f"https://{name.rpartition('/')[2]}.example"}}
                    for name in contexts
                ],
                "users": [{"name": "me", "user": {"token": "secret-word"}}],
            }
        )
    )
    return path


def configure(settings: Settings, **changes: Any) -> None:
    """Change the environment."""
    settings.ENVIRONMENT = replace(settings.ENVIRONMENT, **changes)


def test_the_sandbox_is_called_so() -> None:
    assert cluster_names() == ("sandbox",)


def test_each_context_is_a_cluster_of_that_name(settings: Settings, tmp_path: Path) -> None:
    path = write_kubeconfig(tmp_path / "config", "east", "west", "other", current="other")
    configure(settings, clusters=("kubeconfig",), kubeconfig=path, kube_contexts=("east", "west"))
    assert cluster_names() == ("east", "west")
    assert connect_cluster("west").url == "https://west.example"


def test_without_a_context_the_current_one_is_meant_and_stays_meant(settings: Settings, tmp_path: Path) -> None:
    path = write_kubeconfig(tmp_path / "config", "east", "west", current="west")
    configure(settings, clusters=("sandbox", "kubeconfig"), kubeconfig=path)
    assert cluster_names() == ("sandbox", "west")
    write_kubeconfig(path, "east", "west", current="east")
    assert cluster_names() == ("sandbox", "west")
    assert connect_cluster("west").url == "https://west.example"


def test_a_name_can_be_part_of_a_key(settings: Settings, tmp_path: Path) -> None:
    context = "arn:aws:eks:eu-west-1:123456789012:cluster/prod"
    path = write_kubeconfig(tmp_path / "config", context, current=context)
    configure(settings, clusters=("kubeconfig",), kubeconfig=path)
    assert cluster_names() == ("arn:aws:eks:eu-west-1:123456789012:cluster-prod",)
    assert connect_cluster(cluster_names()[0]).url == "https://prod.example"


def test_a_kubeconfig_that_is_not_there_has_a_name_until_it_is(settings: Settings, tmp_path: Path) -> None:
    path = tmp_path / "config"
    configure(settings, clusters=("kubeconfig",), kubeconfig=path)
    assert cluster_names() == ("kubeconfig",)
    with pytest.raises(Misconfigured, match="does not exist"):
        connect_cluster("kubeconfig")
    write_kubeconfig(path, "east", current="east")
    assert cluster_names() == ("east",)


def test_two_clusters_of_one_name_are_refused(settings: Settings, tmp_path: Path) -> None:
    path = write_kubeconfig(tmp_path / "config", "sandbox", current="sandbox")
    configure(settings, clusters=("sandbox", "kubeconfig"), kubeconfig=path)
    with pytest.raises(Misconfigured, match="Two clusters have the name 'sandbox'"):
        cluster_names()


def test_a_cluster_that_is_not_configured_cannot_be_opened() -> None:
    with pytest.raises(Misconfigured, match=r"No cluster 'west' is configured\. Configured clusters: sandbox"):
        connect_cluster("west")


def test_a_process_shares_one_client_a_cluster(settings: Settings, tmp_path: Path) -> None:
    path = write_kubeconfig(tmp_path / "config", "shared-a", "shared-b", current="shared-a")
    configure(settings, clusters=("kubeconfig",), kubeconfig=path, kube_contexts=("shared-a", "shared-b"))
    assert shared_cluster("shared-a") is shared_cluster("shared-a")
    assert shared_cluster("shared-a") is not shared_cluster("shared-b")


def test_a_context_that_leads_elsewhere_by_now_is_followed_once_the_watcher_has(
    settings: Settings, tmp_path: Path
) -> None:
    path = write_kubeconfig(tmp_path / "config", "moved", current="moved")
    configure(settings, clusters=("kubeconfig",), kubeconfig=path, kube_contexts=("moved",))
    assert shared_cluster("moved", "https://moved.example").url == "https://moved.example"
    path.write_text(path.read_text().replace("moved.example", "elsewhere.example"))
    assert shared_cluster("moved", "https://moved.example").url == "https://moved.example"
    assert shared_cluster("moved", "https://elsewhere.example").url == "https://elsewhere.example"


@pytest.mark.database
@pytest.mark.django_db
def test_the_product_is_ready_while_one_of_several_clusters_is_heard(
    redis: Redis, settings: Settings, tmp_path: Path
) -> None:
    path = write_kubeconfig(tmp_path / "config", "east", "west", current="east")
    configure(settings, clusters=("kubeconfig",), kubeconfig=path, kube_contexts=("east", "west"))
    heartbeats.record_sweep(redis)
    heartbeats.record_cluster_heartbeat(redis, "east", {"pods": 3})
    heartbeats.record_cluster_trouble(redis, "west", "Unreachable: The API server cannot be reached (list pods).")
    found = readiness_detail()
    parts = {part.name: part.ok for part in found}
    assert (is_ready(found), parts["cluster east"], parts["cluster west"]) == (True, True, False)
    heartbeats.record_cluster_trouble(redis, "east", "Unreachable: The API server cannot be reached (list pods).")
    assert not is_ready(readiness_detail())


@pytest.mark.database
@pytest.mark.django_db
@pytest.mark.usefixtures("static_files")
def test_the_page_of_clusters_shows_each_one(
    admin_client: Client, redis: Redis, settings: Settings, tmp_path: Path
) -> None:
    path = write_kubeconfig(tmp_path / "config", "east", "west", current="east")
    configure(settings, clusters=("kubeconfig",), kubeconfig=path, kube_contexts=("east", "west"))
    heartbeats.record_cluster_heartbeat(redis, "east", {"pods": 3})
    heartbeats.record_cluster_trouble(redis, "west", "MissingDefinitions: install deploy/crds.")
    page = admin_client.get("/clusters/").content.decode()
    assert ">east</h2>" in page
    assert ">west</h2>" in page
    assert "MissingDefinitions: install deploy/crds." in page
