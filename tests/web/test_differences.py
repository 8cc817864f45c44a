"""Diffs of templates: as everybody writes them, with the cliques that a hunk is in."""

import difflib

import pytest
import yaml

from rollouts.selectors.template_diff import find_cliques, render_diff


def template(**images: str) -> list[str]:
    """Return a template of cliques with these images as lines of YAML, as revisions have it."""
    cliques = [
        {
            "annotations": {"example.com/why": "because"},
            "labels": {"a": "b"},
            "name": name,
            "spec": {"podSpec": {"containers": [{"name": "main", "image": image, "args": ["--x", "--y"]}]}},
        }
        for name, image in images.items()
    ]
    groups = [{"name": "group", "cliqueNames": list(images)}]
    text: str = yaml.safe_dump({"cliques": cliques, "podCliqueScalingGroups": groups, "priorityClassName": "high"})
    return text.splitlines()


def test_a_hunk_names_the_clique_that_it_is_in() -> None:
    old, new = template(web="v1", worker="v1", last="v1"), template(web="v1", worker="v2", last="v1")
    lines = list(render_diff(old, new, ("one", "two")))
    assert lines[:2] == ["--- one", "+++ two"]
    assert lines[2].endswith("@@ worker")
    assert [line for line in lines[2:] if line[0] in "+-"] == ["-        image: v1", "+        image: v2"]


def test_hunks_far_apart_name_their_own_and_one_that_covers_two_names_both() -> None:
    hunks = [
        line.rpartition("@@ ")[2]
        for line in render_diff(template(web="v1", worker="v1"), template(web="v2", worker="v2"), ("one", "two"))
        if line.startswith("@@")
    ]
    assert hunks == ["web", "worker"]
    replaced = list(render_diff(template(web="v1"), template(worker="v1"), ("one", "two")))
    assert replaced[2].endswith("@@ web, worker")


def test_what_belongs_to_no_clique_names_none() -> None:
    old = template(web="v1")
    new = [line.replace("high", "low") for line in old]
    assert list(render_diff(old, new, ("one", "two")))[2].endswith("@@")
    owners = find_cliques(old)
    assert {owners[number] for number, line in enumerate(old) if "group" in line or "high" in line} == {""}
    assert set(owners[1 : old.index("podCliqueScalingGroups:")]) == {"web"}


def test_nothing_differs_in_the_same() -> None:
    assert list(render_diff(template(web="v1"), template(web="v1"), ("one", "two"))) == []


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (template(web="v1"), template(web="v2")),
        (template(web="v1"), []),
        ([], template(web="v1")),
        (["a"], ["b"]),
        (template(a="1", b="1", c="1"), template(b="2", c="1", d="3")),
    ],
)
def test_but_for_the_names_it_is_an_ordinary_diff(old: list[str], new: list[str]) -> None:
    ours = list(render_diff(old, new, ("one", "two")))
    plain = [f"{line.rpartition('@@')[0]}@@" if line.startswith("@@") else line for line in ours]
    assert plain == list(difflib.unified_diff(old, new, "one", "two", lineterm=""))
