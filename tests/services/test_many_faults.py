"""A manifest with thousands of faults is refused in time in proportion to its size, with as many findings as help."""

from typing import Any

import pytest

from rollouts.cluster.errors import Invalid, StatusCause
from rollouts.manifests.masking import make_text_mask
from rollouts.services import workload_client
from rollouts.services.workload_client import MAX_FINDINGS, translate_error

SECRET = "hunter2-hunter2"


def manifest_with(cliques: int) -> dict[str, Any]:
    """Return a manifest, each clique of which hides something."""
    env = [{"name": "DB_PASSWORD", "value": SECRET}]
    container = {"name": "main", "image": "main:v1", "env": env}
    return {"spec": {"template": {"cliques": [{"spec": {"podSpec": {"containers": [container]}}}] * cliques}}}


def refused(faults: int, message: str = "Required value") -> Invalid:
    """Return what a cluster says of so many cliques."""
    causes = tuple(StatusCause("FieldValueRequired", f".spec.cliques[{number}]", message) for number in range(faults))
    return Invalid("too many to say", causes=causes)


def test_the_manifests_are_searched_for_secrets_once_however_many_faults_there_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    searched = []

    def search(*manifests: Any) -> Any:
        searched.append(manifests)
        return make_text_mask(*manifests)

    monkeypatch.setattr(workload_client, "make_text_mask", search)
    translate_error(refused(800), "PodCliqueSet chat", hiding=[manifest_with(800)])
    assert len(searched) == 1


def test_the_first_findings_are_told_and_how_many_more_there_are() -> None:
    refusal = translate_error(refused(8_000), "PodCliqueSet chat")
    assert len(refusal.findings) == MAX_FINDINGS + 1
    assert refusal.findings[0].field == "spec.cliques[0]"
    assert refusal.findings[-1].message == "7,950 more errors are left out; correct these first"
    assert refusal.sentence.endswith("; and 7997 more.")


def test_as_many_faults_as_are_told_leave_none_out() -> None:
    assert len(translate_error(refused(MAX_FINDINGS), "PodCliqueSet chat").findings) == MAX_FINDINGS


def test_a_sentence_too_long_to_search_is_not_shown() -> None:
    words = f"Invalid value: {SECRET * 1000}"
    refusal = translate_error(refused(1, words), "PodCliqueSet chat", hiding=[manifest_with(1)])
    assert SECRET not in refusal.sentence
    assert refusal.findings[0].message == "the message of the cluster is too long to show"
