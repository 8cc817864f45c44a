"""Quantities, and the requests of a pod, against worked examples."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rollouts.engine.scheduling.resources import compute_requests, parse_resource_list, quantity_to_milli


@pytest.mark.parametrize(
    ("text", "thousandths"),
    [
        ("1", 1000),
        (2, 2000),
        (0.5, 500),
        ("100m", 100),
        ("1500u", 2),
        ("1n", 1),
        ("1.5", 1500),
        (".5", 500),
        ("1k", 1_000_000),
        ("1Ki", 1_024_000),
        ("1.5Gi", 1_610_612_736_000),
        ("2E", 2 * 10**21),
        ("2e3", 2_000_000),
        ("2E-1", 200),
        ("-1", -1000),
    ],
)
def test_a_quantity_is_read_exactly_into_thousandths(text: str | float, thousandths: int) -> None:
    assert quantity_to_milli(text) == thousandths


@pytest.mark.parametrize("text", ["", "one", "1 Gi", "1GiB", "--1", "1e", "Gi"])
def test_what_is_no_quantity_counts_as_zero(text: str) -> None:
    assert quantity_to_milli(text) == 0


@given(st.integers(min_value=0, max_value=10**12))
def test_a_number_of_millis_reads_the_same_with_and_without_its_suffix(millis: int) -> None:
    assert quantity_to_milli(f"{millis}m") == millis
    assert quantity_to_milli(f"{millis // 1000}.{millis % 1000:03d}") == millis


def test_a_resource_list_is_read_whole_and_an_absent_one_is_empty() -> None:
    assert parse_resource_list({"cpu": "a lot", "memory": "1"}) == {"cpu": 0, "memory": 1000}
    assert parse_resource_list(None) == {}


def test_a_pod_asks_for_its_containers_together_and_for_one_pod_slot() -> None:
    spec = {
        "containers": [
            {"name": "a", "resources": {"requests": {"cpu": "500m"}}},
            {"name": "b", "resources": {"requests": {"cpu": "1"}, "limits": {"nvidia.com/gpu": "2"}}},
        ]
    }
    assert compute_requests(spec) == {"cpu": 1500, "nvidia.com/gpu": 2000, "pods": 1000}


def test_a_limit_counts_as_request_only_where_no_request_is_given() -> None:
    spec = {"containers": [{"name": "a", "resources": {"requests": {"cpu": "1"}, "limits": {"cpu": "4"}}}]}
    assert compute_requests(spec)["cpu"] == 1000


def test_init_containers_count_by_their_peak_and_sidecars_stay() -> None:
    def asks(cpu: str, **more: str) -> dict[str, object]:
        return {"name": "c", "resources": {"requests": {"cpu": cpu}}, **more}

    spec = {
        "initContainers": [asks("1", restartPolicy="Always"), asks("4")],
        "containers": [asks("2"), asks("2")],
        "overhead": {"cpu": "250m"},
    }
    assert compute_requests(spec)["cpu"] == 5250
    assert compute_requests({**spec, "initContainers": [asks("9")]})["cpu"] == 9250


def test_a_pod_without_resources_still_takes_a_pod_slot() -> None:
    assert compute_requests({"containers": [{"name": "a"}]}) == {"pods": 1000}
