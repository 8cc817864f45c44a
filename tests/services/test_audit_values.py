"""What the audit keeps of values that are too large: the names of all fields, and as much of the rest as fits."""

from typing import Any, Final

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rollouts.services.audit_values import MAX_FIELDS, MAX_NAME_BYTES, MAX_VALUE_BYTES, limit_size, merge_fields

PADDING: Final = "x" * 300_000
IMAGE: Final = "spec.template.cliques[0].spec.podSpec.containers[0].image"


def count_bytes(value: Any) -> int:
    """Return the size of a value as JSON."""
    return len(orjson.dumps(value))


def test_the_largest_value_is_omitted_first() -> None:
    fields = {"args": [PADDING, "--port=80"], "image": "app:v2", "labels": {"note": "y" * 100_000}}
    limited = limit_size({"version": "uid.3", "fields": fields})
    assert limited == {
        "version": "uid.3",
        "fields": {**fields, "args": [f"omitted: {count_bytes(PADDING)} bytes", "--port=80"]},
    }


def test_a_list_of_too_many_entries_keeps_the_first_ones() -> None:
    limited = limit_size({"args": ["a" * 20] * 20_000, "image": "app:v2"})
    *kept, rest = limited["args"]
    assert {*kept} == {"a" * 20}
    assert rest == f"omitted: {20_000 - len(kept)} entries"
    assert limited["image"] == "app:v2"


def test_of_too_many_members_the_shortest_names_are_kept() -> None:
    limited = limit_size({PADDING: 1, **{f"name-{number}": number for number in range(20)}})
    assert limited == {**{f"name-{number}": number for number in range(20)}, "…": "omitted: 1 field"}


_VALUES = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-99, 99), st.text(max_size=200)),
    lambda inner: st.one_of(st.lists(inner, max_size=30), st.dictionaries(st.text(max_size=60), inner, max_size=30)),
)


@given(_VALUES, st.integers(40, 600))
def test_any_value_fits_and_a_value_that_fits_stays(value: Any, limit: int) -> None:
    limited = limit_size(value, limit)
    assert count_bytes(limited) <= limit
    assert limited == value or count_bytes(value) > limit


# ---- names


def test_few_fields_stay_as_they_are() -> None:
    fields = {"spec.replicas": 3, IMAGE: "app:v2"}
    assert merge_fields(fields) == fields


@pytest.mark.parametrize("parent", ["metadata.annotations", "spec.template.cliques[0].spec.podSpec.containers[0].args"])
def test_fields_of_the_largest_parent_are_counted(parent: str) -> None:
    fields = {**{f"{parent}[example.com/{number}]": number for number in range(5000)}, IMAGE: "app:v2"}
    assert merge_fields(fields) == {IMAGE: "app:v2", parent: "omitted: 5000 fields"}


@pytest.mark.parametrize("names", [("image", "workingDir"), ("image",)])
def test_fields_of_many_parents_are_counted_higher_up(names: tuple[str, ...]) -> None:
    containers = "spec.template.cliques[0].spec.podSpec.containers"
    fields = {f"{containers}[{number}].{name}": number for number in range(1000) for name in names}
    merged = merge_fields({"spec.replicas": 3, **fields})
    assert merged == {"spec.replicas": 3, containers: f"omitted: {1000 * len(names)} fields"}


def test_a_name_that_is_too_long_is_counted_with_its_parent() -> None:
    volume = "spec.template.cliques[0].spec.podSpec.volumes[0].csi.volumeAttributes"
    assert merge_fields({f"{volume}[{PADDING}.x]": 1, IMAGE: "app:v2"}) == {IMAGE: "app:v2", volume: "omitted: 1 field"}


@given(st.lists(st.text(alphabet="ab.[]\u0000é", max_size=40), max_size=60))
def test_any_names_end_in_few_names(parts: list[str]) -> None:
    names = [f"{one}.{other}" * 12 for one in parts for other in parts]
    merged = merge_fields(dict.fromkeys(names, "value"))
    assert len(merged) <= MAX_FIELDS
    assert all(count_bytes(name) <= MAX_NAME_BYTES for name in merged)
    assert count_bytes(limit_size({"version": "v", "fields": merged})) <= MAX_VALUE_BYTES
