"""What `kubectl get` shows: cells, columns, ages, paths."""

from datetime import UTC, datetime
from typing import Any

import pytest

from rollouts.sandbox.apiserver.ages import render_age, render_duration
from rollouts.sandbox.apiserver.jsonpath import parse_jsonpath
from rollouts.sandbox.apiserver.printer_columns import pod_status
from rollouts.sandbox.apiserver.registry import Registry
from rollouts.sandbox.apiserver.tables import list_columns, render_row

Obj = dict[str, Any]
NOW = datetime(2030, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        (0, "0s"),
        (119, "119s"),
        (120, "2m"),
        (121, "2m1s"),
        (599, "9m59s"),
        (600, "10m"),
        (10_799, "179m"),
        (10_800, "3h"),
        (11_000, "3h3m"),
        (28_800, "8h"),
        (172_799, "47h"),
        (172_800, "2d"),
        (180_000, "2d2h"),
        (691_200, "8d"),
        (63_072_000, "2y"),
        (64_000_000, "2y10d"),
        (400_000_000, "12y"),
    ],
)
def test_an_age_is_shown_in_at_most_two_units(seconds: int, shown: str) -> None:
    assert render_duration(seconds) == shown


def test_an_age_without_a_time_is_unknown_and_the_future_invalid() -> None:
    assert render_age(None, NOW) == "<unknown>"
    assert render_age("not a time", NOW) == "<unknown>"
    assert render_age("2029-12-31T23:59:00Z", NOW) == "60s"
    assert render_age("2030-01-01T01:00:00Z", NOW) == "<invalid>"


@pytest.mark.parametrize(
    ("path", "found"),
    [
        (".spec.replicas", [2]),
        (".status.conditions[?(@.type=='Ready')].status", ["True"]),
        ('.status.conditions[?(@.type=="Nope")].status', []),
        (".items[0].name", ["a"]),
        (".items[-1].name", ["b"]),
        (".items[*].name", ["a", "b"]),
        (".metadata.labels['a.b/c']", ["x"]),
        (r".metadata.labels.a\.b/c", ["x"]),
        (".nothing.here", []),
        ("{.spec.replicas}", [2]),
    ],
)
def test_paths_of_printer_columns_are_read(path: str, found: list[Any]) -> None:
    obj = {
        "metadata": {"labels": {"a.b/c": "x"}},
        "spec": {"replicas": 2},
        "status": {"conditions": [{"type": "Other", "status": "False"}, {"type": "Ready", "status": "True"}]},
        "items": [{"name": "a"}, {"name": "b"}],
    }
    assert parse_jsonpath(path)(obj) == found


def test_a_path_that_cannot_be_read_is_told() -> None:
    with pytest.raises(ValueError, match="cannot read the path"):
        parse_jsonpath(".a[?(@.b>1)]")


def test_every_column_of_every_definition_can_be_read(registry: Registry) -> None:
    for kind in registry:
        cells = render_row(kind, {"metadata": {"name": "a"}, "spec": {}}, NOW, "None")["cells"]
        assert len(cells) == len(list_columns(kind))


def _pod(status: Obj, **metadata: Any) -> Obj:
    return {"metadata": {"name": "p", **metadata}, "spec": {"containers": [{"name": "c"}]}, "status": status}


def _container(state: Obj, **more: Any) -> Obj:
    return {"containerStatuses": [{"name": "c", "state": state, **more}]}


@pytest.mark.parametrize(
    ("status", "word"),
    [
        ({"phase": "Pending"}, "Pending"),
        ({"phase": "Failed", "reason": "Evicted"}, "Evicted"),
        (
            {"phase": "Pending", "conditions": [{"type": "PodScheduled", "reason": "SchedulingGated"}]},
            "SchedulingGated",
        ),
        ({"phase": "Pending", **_container({"waiting": {"reason": "ContainerCreating"}})}, "ContainerCreating"),
        ({"phase": "Running", **_container({"waiting": {"reason": "CrashLoopBackOff"}})}, "CrashLoopBackOff"),
        ({"phase": "Failed", **_container({"terminated": {"exitCode": 137, "signal": 9}})}, "Signal:9"),
        ({"phase": "Failed", **_container({"terminated": {"exitCode": 2}})}, "ExitCode:2"),
        ({"phase": "Succeeded", **_container({"terminated": {"exitCode": 0, "reason": "Completed"}})}, "Completed"),
        ({"phase": "Running", **_container({"running": {}}, ready=True)}, "Running"),
        ({"phase": "Pending", "initContainerStatuses": [{"state": {"running": {}}}]}, "Init:0/1"),
        (
            {
                "phase": "Pending",
                "initContainerStatuses": [
                    {"state": {"terminated": {"exitCode": 0}}},
                    {"state": {"waiting": {"reason": "CrashLoopBackOff"}}},
                ],
            },
            "Init:CrashLoopBackOff",
        ),
    ],
)
def test_a_pods_state_is_said_in_one_word(status: Obj, word: str) -> None:
    assert pod_status(_pod(status)) == word
    assert pod_status(_pod(status, deletionTimestamp="2030-01-01T00:00:00Z")) == "Terminating"


def test_restarts_tell_how_long_ago(registry: Registry) -> None:
    ended = {"terminated": {"finishedAt": "2029-12-31T23:55:00Z"}}
    status = {"phase": "Running", **_container({"running": {}}, ready=True, restartCount=3, lastState=ended)}
    cells = render_row(registry.kind("pods"), _pod(status), NOW, "None")["cells"]
    assert cells[:4] == ["p", "1/1", "Running", "3 (5m ago)"]


@pytest.mark.parametrize(
    ("node", "status", "roles"),
    [
        ({}, "Unknown", "<none>"),
        ({"status": {"conditions": [{"type": "Ready", "status": "True"}]}}, "Ready", "<none>"),
        (
            {
                "metadata": {"name": "n", "labels": {"node-role.kubernetes.io/worker": ""}},
                "spec": {"unschedulable": True},
                "status": {"conditions": [{"type": "Ready", "status": "Unknown"}]},
            },
            "NotReady,SchedulingDisabled",
            "worker",
        ),
    ],
)
def test_a_node_shows_its_state_and_roles(registry: Registry, node: Obj, status: str, roles: str) -> None:
    cells = render_row(registry.kind("nodes"), {"metadata": {"name": "n"}, "spec": {}, **node}, NOW, "None")["cells"]
    assert cells[1:3] == [status, roles]
