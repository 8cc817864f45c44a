"""A manifest that was read and is sent back: its hidden values are restored where they were, and only there."""

import time
import tracemalloc
from typing import Any

import pytest

from rollouts.engine.manifest.findings import FindingCode
from rollouts.manifests import masking
from rollouts.manifests.masking import HIDDEN, MARK, make_workload_reader
from rollouts.manifests.strict_yaml import MAX_BODY_BYTES
from tests.manifests.masking.planted import PLANTED, SECRET, container, mask_manifest, unmask_manifest


@pytest.mark.parametrize("what", [what for what in PLANTED if what != "annotation with a copy"])
def test_it_comes_back(what: str) -> None:
    masked = mask_manifest(PLANTED[what])
    assert unmask_manifest(masked, PLANTED[what]) == (PLANTED[what], [])


def test_what_was_edited_around_a_hidden_value_stays_edited() -> None:
    live = container(args=["--token", SECRET, f"--url=http://me:{SECRET}@old/"], env=[{"name": "A", "value": SECRET}])
    sent = mask_manifest(live)
    main = sent["spec"]["podSpec"]["containers"][0]
    main["args"].insert(0, "--new")
    main["args"][3] = main["args"][3].replace("@old/", "@new/")
    main["env"].insert(0, {"name": "B", "value": "plain"})
    restored, findings = unmask_manifest(sent, live)
    main = restored["spec"]["podSpec"]["containers"][0]
    assert findings == []
    assert main["args"] == ["--new", "--token", SECRET, f"--url=http://me:{SECRET}@new/"]
    assert main["env"] == [{"name": "B", "value": "plain"}, {"name": "A", "value": SECRET}]


@pytest.mark.parametrize(
    ("change", "field"),
    [
        (lambda main: main["env"].append({"name": "LOG_LEVEL", "value": main["env"][0]["value"]}), "env[1].value"),
        (lambda main: main.update(workingDir=main["env"][0]["value"]), "workingDir"),
        (lambda main: main["env"][0].update(name="OTHER"), "env[0].value"),
        (lambda main: main["env"][0].update(value="‹hidden 00000000›"), "env[0].value"),
        (lambda main: main["env"][0].update(value=HIDDEN), "env[0].value"),
        (lambda main: main.update(args=["--token", main["env"][0]["value"]]), "args[1]"),
    ],
)
def test_a_hidden_value_is_put_back_nowhere_but_where_it_was(change: Any, field: str) -> None:
    live = container(env=[{"name": "X", "value": SECRET}])
    sent = mask_manifest(live)
    change(sent["spec"]["podSpec"]["containers"][0])
    restored, findings = unmask_manifest(sent, live)
    assert [(one.field, one.code) for one in findings] == [
        (f"spec.podSpec.containers[0].{field}", FindingCode.UNKNOWN_VALUE)
    ]
    assert [value for _, value in _leaves(restored)].count(SECRET) == (field != "env[0].value")


@pytest.mark.parametrize(
    ("live", "change"),
    [
        (container(args=[f"--api-key={SECRET}"]), lambda main, mark: main["args"].append(f"--model={mark}")),
        (container(args=[f"--api-key={SECRET}"]), lambda main, mark: main["args"].append(f"echo {mark}")),
        (container(args=[f"--db=x://{SECRET}@h"]), lambda main, mark: main.update(args=[f"--db=x://{mark}@h {mark}"])),
        (
            container(env=[{"name": "VLLM_HOST", "value": f"http://{SECRET}@host/"}]),
            lambda main, mark: main["env"][0].update(value=f"http://{mark}"),
        ),
    ],
)
def test_a_hidden_value_is_not_put_back_where_it_would_be_shown(live: dict[str, Any], change: Any) -> None:
    sent = mask_manifest(live)
    main = sent["spec"]["podSpec"]["containers"][0]
    found = MARK.search(str(main))
    assert found
    change(main, found[0])
    _, findings = unmask_manifest(sent, live)
    assert [one.code for one in findings] == [FindingCode.UNKNOWN_VALUE]


def test_a_mark_that_is_moved_to_where_parts_of_it_are_shown_is_refused_by_its_field() -> None:
    secret = "AccountName=acme;Key=Zx9Q,TOPSECRETPART"
    live = container(args=["--api-key", secret])
    sent = mask_manifest(live)
    main = sent["spec"]["podSpec"]["containers"][0]
    main["args"] = ["--x", main["args"][1]]
    _, findings = unmask_manifest(sent, live)
    assert [(one.field, one.code) for one in findings] == [
        ("spec.podSpec.containers[0].args[1]", FindingCode.UNKNOWN_VALUE)
    ]


def test_a_new_secret_may_be_written_beside_a_mark() -> None:
    live = container(command=["sh", "-c", f"serve --token={SECRET}"])
    sent = mask_manifest(live)
    main = sent["spec"]["podSpec"]["containers"][0]
    main["command"][2] += " --password=another --port=80"
    restored, findings = unmask_manifest(sent, live)
    assert findings == []
    assert restored["spec"]["podSpec"]["containers"][0]["command"][2] == (
        f"serve --token={SECRET} --password=another --port=80"
    )


def test_what_others_were_shown_cannot_be_applied_and_the_sentence_says_why() -> None:
    live = container(args=["serve"], env=[{"name": "X", "value": SECRET}])
    _, findings = unmask_manifest(masking.mask_manifest(live), live)
    fields = [one.field.removeprefix("spec.podSpec.containers[0].") for one in findings]
    assert fields == ["args[0]", "env[0].value"]
    assert all("read the manifest with an account that may apply it" in one.message for one in findings)


def test_marks_of_another_workload_are_not_put_back() -> None:
    live = container(env=[{"name": "X", "value": SECRET}])
    sent = masking.mask_manifest(live, make_workload_reader("east/team-b/chat"))
    _, findings = unmask_manifest(sent, live)
    assert [one.code for one in findings] == [FindingCode.UNKNOWN_VALUE]


@pytest.mark.parametrize(
    ("repeat", "field"),
    [
        (lambda main, mark: main["env"][0].update(value=mark * 10_000), "env[0].value"),
        (lambda main, mark: main.update(env=[{"name": "X", "value": mark}] * 500), "env[51].value"),
        (lambda main, mark: main.update(env=[{"name": "X", "value": "-" * 20_000 + mark}] * 100), "env[0].value"),
    ],
    ids=["in one text", "in many fields", "in a manifest that is large already"],
)
def test_a_manifest_that_hidden_values_would_make_too_large_is_refused_before_it_is_built(
    repeat: Any, field: str
) -> None:
    live = container(env=[{"name": "X", "value": "s" * 20_000}])
    sent = mask_manifest(live)
    main = sent["spec"]["podSpec"]["containers"][0]
    repeat(main, main["env"][0]["value"])
    tracemalloc.start()
    try:
        restored, findings = unmask_manifest(sent, live)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert [(one.field, one.code) for one in findings] == [
        (f"spec.podSpec.containers[0].{field}", FindingCode.TOO_LONG)
    ]
    assert "larger than 1024 KiB. Leave each mark only where it was shown" in findings[0].message
    assert peak < 20 * MAX_BODY_BYTES
    assert sum(len(value) for _, value in _leaves(restored)) < 2 * MAX_BODY_BYTES


@pytest.mark.parametrize(
    ("live", "entry"),
    [
        ([{"name": "VLLM_X", "value": "TOKEN=x " * 2_000}], {"name": "VLLM_X", "value": "‹hidden 00000000›"}),
        ([{"name": "VLLM_X", "value": "TOKEN=x " * 2_000}], {"name": "VLLM_X", "value": "TOKEN={mark}"}),
        ([{"name": f"TOKEN=x VLLM_{number}"} for number in range(2_000)], None),
    ],
    ids=["a mark that is none of it", "a mark that is one of it", "entries by their names"],
)
def test_what_a_live_value_hides_is_looked_for_once_however_often_it_is_asked_for(live: Any, entry: Any) -> None:
    whole = container(env=live)
    mark = MARK.search(str(mask_manifest(whole)))
    assert mark
    sent = container()
    if entry is None:
        sent["spec"]["podSpec"]["containers"] = [{"name": "main", "env": []}] * 2_000
    else:
        sent = container(env=[{**entry, "value": entry["value"].format(mark=mark[0])}] * 2_000)
    before = time.process_time()
    unmask_manifest(sent, whole)
    assert time.process_time() - before < 5


def test_a_value_that_is_hidden_in_a_large_manifest_is_put_back_up_to_the_limit() -> None:
    live = container(env=[{"name": "X", "value": "s" * (MAX_BODY_BYTES - 1_000)}])
    assert unmask_manifest(mask_manifest(live), live) == (live, [])


def test_a_value_that_changed_meanwhile_is_not_taken_for_the_one_that_was_shown() -> None:
    sent = mask_manifest(container(env=[{"name": "X", "value": "old"}]))
    restored, findings = unmask_manifest(sent, container(env=[{"name": "X", "value": "new"}]))
    assert len(findings) == 1
    assert "new" not in str(restored)


def _leaves(value: Any, path: str = "") -> list[tuple[str, Any]]:
    if isinstance(value, dict):
        return [leaf for key, member in value.items() for leaf in _leaves(member, f"{path}.{key}".strip("."))]
    if isinstance(value, list):
        return [leaf for index, member in enumerate(value) for leaf in _leaves(member, f"{path}[{index}]")]
    return [(path.removeprefix("spec.podSpec.containers[0]."), value)]
