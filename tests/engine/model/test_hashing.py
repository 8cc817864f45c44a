"""Which fields a hash covers, and that hashes stay the same from release to release."""

import doctest
import hashlib
import json
import re
from typing import Any

import pytest

from rollouts.engine.model import quantities
from rollouts.engine.model.hashing import compute_generation_hash, compute_template_hash, effective_pod_spec
from rollouts.engine.model.workload import Workload
from tests.deploy.manifests import REMOVED, Edits, edited
from tests.engine.manifests import complete, small, workload_of

CLIQUE = "spec.template.cliques.0"
POD = f"{CLIQUE}.spec.podSpec"
MAIN = f"{POD}.containers.0"
GROUP = "spec.template.podCliqueScalingGroups.0"


def template_hash(workload: Workload, index: int = 0) -> str:
    return compute_template_hash(workload.cliques[index], workload.priority_class)


def hashes(edits: Edits) -> tuple[str, str]:
    """Return the template hash of the first clique and the generation hash of the complete set with some edits."""
    workload = workload_of(complete(edits))
    return template_hash(workload), compute_generation_hash(workload)


RICH: Edits = {
    "spec.template.priorityClassName": "high",
    f"{CLIQUE}.labels": {"tier": "web", "owner": "caf\u00e9"},
    f"{CLIQUE}.annotations": {"example.com/note": "two\nlines"},
    f"{POD}.nodeSelector": {"example.com/pool": "a"},
    f"{POD}.volumes": [{"name": "cache", "emptyDir": {}}],
    f"{MAIN}.args": ["serve", "--port=8000"],
    f"{MAIN}.resources": {"requests": {"cpu": 1, "memory": "4Gi"}, "limits": {}},
    f"{MAIN}.readinessProbe": {"httpGet": {"path": "/health", "port": 8000}, "periodSeconds": 5},
}


def test_the_hashes_are_those_of_every_release() -> None:
    # A change here replaces every pod of every workload at the next start: do not adapt the values, mend the code.
    assert _all_hashes(small()) == ["4d7b79lj87", "mqnjwmwzh6", "mqnjwmwzh6", "mqnjwmwzh6"]
    assert _all_hashes(small(RICH)) == ["r27r47h5vl", "8qhg8nk995", "fbzng4r2bz", "fbzng4r2bz"]


def test_the_hash_is_the_start_of_a_sha256_of_canonical_json() -> None:
    template = (
        '{"annotations":{},"labels":{},"spec":{"containers":[{"image":"ghcr.io/example/app:v1","name":"main"}],'
        '"restartPolicy":"Always","terminationGracePeriodSeconds":30}}'
    )
    number = int(hashlib.sha256(template.encode()).hexdigest(), 16)
    digits = (number // 27**place % 27 for place in range(10))
    assert template_hash(workload_of(small())) == "".join("bcdfghjklmnpqrstvwxz2456789"[digit] for digit in digits)


def _all_hashes(manifest: Any) -> list[str]:
    workload = workload_of(manifest)
    templates = [template_hash(workload, index) for index in range(len(workload.cliques))]
    return [compute_generation_hash(workload), *templates]


def test_a_hash_fits_a_label_and_a_name() -> None:
    for value in _all_hashes(complete()):
        assert re.fullmatch("[a-z0-9]{10}", value)


INCLUDED: dict[str, Edits] = {
    "image": {f"{MAIN}.image": "ghcr.io/example/app:v2"},
    "environment": {f"{MAIN}.env.0.value": "debug"},
    "a-field-the-engine-does-not-know": {f"{MAIN}.lifecycle": {"preStop": {"sleep": {"seconds": 5}}}},
    "init-container": {f"{POD}.initContainers.0.image": "ghcr.io/example/fetch:v2"},
    "node-selector": {f"{POD}.nodeSelector": {"example.com/pool": "b"}},
    "an-empty-object": {f"{POD}.volumes.0.emptyDir": REMOVED},
    "an-empty-text": {f"{MAIN}.env.0.value": ""},
    "an-empty-text-of-the-pod": {f"{POD}.hostname": ""},
    "an-empty-label": {f"{CLIQUE}.labels.schedulerName": ""},
    "an-empty-object-that-selects": {f"{POD}.affinity": {"podAffinity": {"required": [{"labelSelector": {}}]}}},
    "order-of-a-list": {f"{POD}.volumes": [{"name": "b", "emptyDir": {}}, {"name": "cache", "emptyDir": {}}]},
    "restart-policy": {f"{POD}.restartPolicy": "OnFailure"},
    "grace-period": {f"{POD}.terminationGracePeriodSeconds": 31},
    "label": {f"{CLIQUE}.labels.tier": "edge"},
    "label-added": {f"{CLIQUE}.labels.zone": "a"},
    "labels-removed": {f"{CLIQUE}.labels": REMOVED},
    "annotation": {f"{CLIQUE}.annotations": {"example.com/owner": "platform"}},
    "annotations-removed": {f"{CLIQUE}.annotations": REMOVED},
    "priority-class-of-the-set": {"spec.template.priorityClassName": "low"},
    "priority-class-removed": {"spec.template.priorityClassName": REMOVED},
}


@pytest.mark.parametrize("edits", INCLUDED.values(), ids=INCLUDED.keys())
def test_a_change_of_the_template_changes_both_hashes(edits: Edits) -> None:
    template, generation = hashes(edits)
    assert template != hashes({})[0]
    assert generation != hashes({})[1]


EXCLUDED: dict[str, Edits] = {
    "name-of-the-set": {"metadata.name": "other"},
    "labels-of-the-set": {"metadata.labels": {"team": "a"}},
    "replicas-of-the-set": {"spec.replicas": 7},
    "strategy": {"spec.updateStrategy": {"type": "OnDelete"}},
    "budget-of-the-set": {"spec.updateStrategy.rollingUpdate": REMOVED},
    "budget-of-a-clique": {f"{CLIQUE}.updateStrategy": {"maxUnavailable": 3}},
    "budget-of-a-group": {f"{GROUP}.updateStrategy": {"maxSurge": "50%"}},
    "paused": {"spec.paused": True},
    "deadline": {"spec.progressDeadlineSeconds": 5},
    "history": {"spec.revisionHistoryLimit": 1},
    "replicas-of-a-clique": {f"{CLIQUE}.spec.replicas": 6},
    "minimum-of-a-clique": {f"{CLIQUE}.spec.minAvailable": 1},
    "role": {f"{CLIQUE}.spec.roleName": "web"},
    "predecessors": {"spec.template.cliques.1.spec.startsAfter": []},
    "autoscaling": {f"{CLIQUE}.spec.autoScalingConfig": REMOVED},
    "topology-of-a-clique": {f"{CLIQUE}.topologyConstraint": REMOVED},
    "claims-of-a-clique": {f"{CLIQUE}.resourceSharing": REMOVED},
    "replicas-of-a-group": {f"{GROUP}.replicas": 5},
    "minimum-of-a-group": {f"{GROUP}.minAvailable": 1},
    "annotations-of-a-group": {f"{GROUP}.annotations": {"a": "b"}},
    "scaling-of-a-group": {f"{GROUP}.scaleConfig": REMOVED},
    "members-of-a-group": {f"{GROUP}.cliqueNames": ["leader"]},
    "start-up": {"spec.template.cliqueStartupType": "CliqueStartupTypeAnyOrder"},
    "delay": {"spec.template.terminationDelay": "1s"},
    "headless-service": {"spec.template.headlessServiceConfig": {"publishNotReadyAddresses": True}},
    "topology-of-the-set": {"spec.template.topologyConstraint": REMOVED},
    "claims-of-the-set": {"spec.template.resourceSharing": [], "spec.template.resourceClaimTemplates": []},
}


@pytest.mark.parametrize("edits", EXCLUDED.values(), ids=EXCLUDED.keys())
def test_a_change_outside_the_template_changes_neither_hash(edits: Edits) -> None:
    assert hashes(edits) == hashes({})


SAME: dict[str, Edits] = {
    "restart-policy-written-out": {f"{POD}.restartPolicy": "Always"},
    "restart-policy-empty": {f"{POD}.restartPolicy": ""},
    "restart-policy-null": {f"{POD}.restartPolicy": None},
    "grace-period-written-out": {f"{POD}.terminationGracePeriodSeconds": 30},
    "grace-period-null": {f"{POD}.terminationGracePeriodSeconds": None},
    "null-of-an-unknown-field": {f"{POD}.affinity": None, f"{MAIN}.resources": None},
    "empty-list": {f"{POD}.tolerations": [], f"{MAIN}.args": []},
    "empty-texts": {f"{POD}.serviceAccountName": "", f"{POD}.nodeName": ""},
    "empty-objects": {f"{POD}.securityContext": {}, f"{POD}.affinity": {"nodeAffinity": {}}},
    "empty-resources": {f"{MAIN}.resources": {"limits": {}, "claims": []}},
    "own-priority-under-that-of-the-set": {f"{POD}.priorityClassName": "low"},
}


@pytest.mark.parametrize("edits", SAME.values(), ids=SAME.keys())
def test_another_way_to_write_the_same_template_has_the_same_hash(edits: Edits) -> None:
    assert hashes(edits) == hashes({})


def test_empty_labels_are_no_labels() -> None:
    without = small()
    empty = edited(
        without, {f"{CLIQUE}.labels": {}, f"{CLIQUE}.annotations": {}, "spec.template.priorityClassName": ""}
    )
    assert _all_hashes(empty) == _all_hashes(without)


def test_a_whole_number_is_the_same_with_a_point() -> None:
    ports = [{"containerPort": 80}], [{"containerPort": 80.0}], [{"containerPort": 81}]
    first, same, other = (_all_hashes(small({f"{MAIN}.ports": value})) for value in ports)
    assert first == same
    assert first != other


TWO_SPELLINGS: dict[str, tuple[str, Any, Any]] = {
    "processors": (f"{MAIN}.resources", {"requests": {"cpu": "1"}}, {"requests": {"cpu": "1000m"}}),
    "memory": (f"{MAIN}.resources", {"limits": {"memory": "1Gi"}}, {"limits": {"memory": "1024Mi"}}),
    "memory-in-bytes": (f"{MAIN}.resources", {"limits": {"memory": "1Gi"}}, {"limits": {"memory": 1073741824}}),
    "a-number-for-a-text": (
        f"{MAIN}.resources",
        {"limits": {"nvidia.com/gpu": 8}},
        {"limits": {"nvidia.com/gpu": "8"}},
    ),
    "a-fraction": (f"{MAIN}.resources", {"limits": {"cpu": 0.1}}, {"limits": {"cpu": "100m"}}),
    "an-exponent": (f"{MAIN}.resources", {"limits": {"memory": "1e9"}}, {"limits": {"memory": "1G"}}),
    "of-the-pod": (f"{POD}.resources", {"limits": {"cpu": "2"}}, {"limits": {"cpu": "2.0"}}),
    "overhead": (f"{POD}.overhead", {"cpu": "250m"}, {"cpu": "0.25"}),
    "of-an-init-container": (
        f"{POD}.initContainers",
        [{"name": "fetch", "image": "a", "resources": {"limits": {"cpu": "1"}}}],
        [{"name": "fetch", "image": "a", "resources": {"limits": {"cpu": "1000m"}}}],
    ),
    "of-an-ephemeral-container": (
        f"{POD}.ephemeralContainers",
        [{"name": "look", "resources": {"limits": {"cpu": "1"}}}],
        [{"name": "look", "resources": {"limits": {"cpu": "1000m"}}}],
    ),
    "size-of-an-empty-dir": (
        f"{POD}.volumes",
        [{"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": "64Gi"}}],
        [{"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": "65536Mi"}}],
    ),
    "size-of-a-claim": (
        f"{POD}.volumes",
        [
            {
                "name": "c",
                "ephemeral": {"volumeClaimTemplate": {"spec": {"resources": {"requests": {"storage": "1Ti"}}}}},
            }
        ],
        [
            {
                "name": "c",
                "ephemeral": {"volumeClaimTemplate": {"spec": {"resources": {"requests": {"storage": "1024Gi"}}}}},
            }
        ],
    ),
    "divisor-of-a-variable": (
        f"{MAIN}.env",
        [{"name": "MEMORY", "valueFrom": {"resourceFieldRef": {"resource": "limits.memory", "divisor": "1Mi"}}}],
        [{"name": "MEMORY", "valueFrom": {"resourceFieldRef": {"resource": "limits.memory", "divisor": "1024Ki"}}}],
    ),
    "divisor-of-a-file": (
        f"{POD}.volumes",
        [{"name": "about", "downwardAPI": {"items": [{"path": "cpu", "resourceFieldRef": {"divisor": "1m"}}]}}],
        [{"name": "about", "downwardAPI": {"items": [{"path": "cpu", "resourceFieldRef": {"divisor": "0.001"}}]}}],
    ),
    "divisor-of-a-projected-file": (
        f"{POD}.volumes",
        [
            {
                "name": "about",
                "projected": {"sources": [{"downwardAPI": {"items": [{"resourceFieldRef": {"divisor": "1k"}}]}}]},
            }
        ],
        [
            {
                "name": "about",
                "projected": {"sources": [{"downwardAPI": {"items": [{"resourceFieldRef": {"divisor": "1e3"}}]}}]},
            }
        ],
    ),
}


@pytest.mark.parametrize(("field", "one", "other"), TWO_SPELLINGS.values(), ids=TWO_SPELLINGS.keys())
def test_two_spellings_of_one_amount_are_one_template(field: str, one: Any, other: Any) -> None:
    assert _all_hashes(small({field: one})) == _all_hashes(small({field: other}))
    assert _all_hashes(small({field: one})) != _all_hashes(small())


def test_another_amount_is_another_template() -> None:
    # The third and the fourth are the same float.
    amounts = ["1", "1001m", "9007199254740992", "9007199254740993", "1n", "-1", "1Mi", "1M", "1m", "1E", "1Ei", "0"]
    found = {_all_hashes(small({f"{MAIN}.resources": {"limits": {"memory": amount}}}))[0] for amount in amounts}
    assert len(found) == len(amounts)


def test_what_is_no_amount_counts_as_it_is_written() -> None:
    texts = ["", "much", " 1", "1 ", "1gi", "1KI", "1e", "1e1.5", "--1", ".", "0x1", "\u0661", "1_000", "9" * 5000]
    found = {_all_hashes(small({f"{MAIN}.resources": {"limits": {"memory": text}}}))[0] for text in texts}
    assert len(found) == len(texts)


def test_an_exponent_without_end_is_read_in_no_time() -> None:
    one, other = (
        _all_hashes(small({f"{MAIN}.resources": {"limits": {"memory": text}}}))
        for text in ("1e999999999999", "10e999999999998")
    )
    assert one == other


def test_a_text_that_reads_like_an_amount_is_none_outside_the_fields_of_amounts() -> None:
    for field in (f"{MAIN}.args", f"{MAIN}.command"):
        assert _all_hashes(small({field: ["1000m"]})) != _all_hashes(small({field: ["1"]}))
    assert _all_hashes(small({f"{CLIQUE}.labels": {"cpu": "1000m"}})) != _all_hashes(
        small({f"{CLIQUE}.labels": {"cpu": "1"}})
    )
    one, other = ([{"name": "CPU", "value": text}] for text in ("1000m", "1"))
    assert _all_hashes(small({f"{MAIN}.env": one})) != _all_hashes(small({f"{MAIN}.env": other}))


def test_the_examples_of_amounts_hold() -> None:
    results = doctest.testmod(quantities)
    assert results.attempted > 2
    assert results.failed == 0


def test_true_is_not_one() -> None:
    assert _all_hashes(small({f"{POD}.hostNetwork": True})) != _all_hashes(small({f"{POD}.hostNetwork": 1}))


def test_the_order_of_fields_does_not_matter() -> None:
    assert _all_hashes(json.loads(json.dumps(complete(), sort_keys=True))) == _all_hashes(complete())


def test_the_order_of_cliques_does_not_matter() -> None:
    turned = small({"spec.template.cliques": small()["spec"]["template"]["cliques"][::-1]})
    assert _all_hashes(turned)[0] == _all_hashes(small())[0]


def test_two_cliques_that_change_places_are_a_change() -> None:
    second = "spec.template.cliques.1.spec.podSpec.containers.0.image"
    one = small({f"{MAIN}.image": "a", second: "b"})
    other = small({f"{MAIN}.image": "b", second: "a"})
    assert _all_hashes(one)[0] != _all_hashes(other)[0]


def test_cliques_of_one_template_share_its_hash() -> None:
    _, frontend, leader, worker = _all_hashes(small())
    assert frontend == leader == worker


def test_a_clique_keeps_its_own_priority_class_where_the_set_has_none() -> None:
    alone = workload_of(small({f"{POD}.priorityClassName": "low"}))
    both = workload_of(small({f"{POD}.priorityClassName": "low", "spec.template.priorityClassName": "high"}))
    assert effective_pod_spec(alone.cliques[0], alone.priority_class)["priorityClassName"] == "low"
    assert effective_pod_spec(both.cliques[0], both.priority_class)["priorityClassName"] == "high"
    assert "priorityClassName" not in effective_pod_spec(alone.cliques[1], alone.priority_class)


def test_texts_beyond_ascii_are_hashed() -> None:
    texts = ["caf\u00e9", "cafe", "\U0001f333", "\ud800"]
    assert len({_all_hashes(small({f"{MAIN}.image": text}))[0] for text in texts}) == len(texts)
