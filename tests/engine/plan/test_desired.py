"""What is created: names, labels, owners, environment and gates, as Grove's users know them."""

from dataclasses import replace
from typing import Any

import pytest

from rollouts.engine.model.actions import Create, Kind
from rollouts.engine.model.hashing import compute_template_hash
from rollouts.engine.model.observed import Clique
from rollouts.engine.model.workload import StartupType, Workload
from rollouts.engine.plan.desired import build_clique, build_pod, build_service, patch_replicas, pod_name
from rollouts.engine.tree.availability import CliqueView
from rollouts.engine.tree.layout import Layout
from tests.engine.simulated import Cluster, clique, group, workload

FRONT = replace(clique("front", 2), labels={"team": "chat"}, annotations={"note": "hello"})
WORKLOAD = replace(
    workload(FRONT, clique("lead", 1), clique("work", 3), group("pre", ("lead", "work"), 3, 2)),
    name="my",
    priority_class="urgent",
)


def created(kind: Kind) -> dict[str, Any]:
    """Return everything that is created of a kind while the workload comes up, by name."""
    cluster = Cluster(WORKLOAD).settle()
    manifests = [action.manifest for action in cluster.actions if isinstance(action, Create) and action.kind is kind]
    return {manifest["metadata"]["name"]: manifest for manifest in manifests}


def owner(manifest: Any) -> tuple[str, str, bool]:
    (reference,) = manifest["metadata"]["ownerReferences"]
    return reference["kind"], reference["name"], reference["controller"]


def pod_of(pods: dict[str, Any], clique: str, index: int = 0) -> Any:
    return next(pod for pod in pods.values() if pod["spec"]["hostname"] == f"{clique}-{index}")


def test_a_replica_has_a_headless_service_that_finds_its_pods() -> None:
    (service,) = created(Kind.SERVICE).values()
    assert service["metadata"]["name"] == "my-0"
    assert service["spec"]["clusterIP"] == "None"
    assert service["spec"]["publishNotReadyAddresses"] is True
    pod = pod_of(created(Kind.POD), "my-0-pre-0-work")
    assert service["spec"]["selector"].items() <= pod["metadata"]["labels"].items()
    assert owner(service) == ("PodCliqueSet", "my", True)


def test_objects_are_named_and_owned_as_in_grove() -> None:
    assert {name: owner(one) for name, one in created(Kind.GROUP).items()} == {"my-0-pre": ("PodCliqueSet", "my", True)}
    cliques = {name: owner(one) for name, one in created(Kind.CLIQUE).items()}
    assert cliques == {"my-0-front": ("PodCliqueSet", "my", True)} | {
        f"my-0-pre-{part}-{name}": ("PodCliqueScalingGroup", "my-0-pre", True)
        for part in range(3)
        for name in ("lead", "work")
    }
    assert set(created(Kind.GANG)) == {"my-0", "my-0-pre-0"}
    assert all(owner(pod) == ("PodClique", name.rpartition("-")[0], True) for name, pod in created(Kind.POD).items())


def test_a_pod_carries_the_labels_it_is_found_by() -> None:
    pod = pod_of(created(Kind.POD), "my-0-pre-2-work", 1)
    assert pod["metadata"]["labels"] == {
        "app.kubernetes.io/managed-by": "grove-operator",
        "app.kubernetes.io/part-of": "my",
        "app.kubernetes.io/name": "my-0-pre-2-work",
        "app.kubernetes.io/component": "pcsg-podclique",
        "grove.io/podclique": "my-0-pre-2-work",
        "grove.io/podgang": "my-0-pre-0",
        "grove.io/base-podgang": "my-0",
        "grove.io/podcliqueset-replica-index": "0",
        "grove.io/podcliquescalinggroup": "my-0-pre",
        "grove.io/podcliquescalinggroup-replica-index": "2",
        "grove.io/podclique-pod-index": "1",
        "grove.io/pod-template-hash": compute_template_hash(WORKLOAD.cliques[2], "urgent"),
    }


def test_a_pod_of_the_base_gang_names_no_other() -> None:
    pods = created(Kind.POD)
    for pod in (pod_of(pods, "my-0-front"), pod_of(pods, "my-0-pre-1-lead")):
        assert pod["metadata"]["labels"]["grove.io/podgang"] == "my-0"
        assert "grove.io/base-podgang" not in pod["metadata"]["labels"]


def test_labels_and_annotations_of_the_template_reach_the_pods() -> None:
    pod = pod_of(created(Kind.POD), "my-0-front")
    assert pod["metadata"]["labels"]["team"] == "chat"
    assert pod["metadata"]["annotations"] == {"note": "hello"}


def test_a_pod_waits_behind_our_gate_and_has_a_stable_name() -> None:
    pod = pod_of(created(Kind.POD), "my-0-front", 1)
    assert pod["spec"]["schedulingGates"] == [{"name": "grove.io/podgang-pending-creation"}]
    assert (pod["spec"]["hostname"], pod["spec"]["subdomain"]) == ("my-0-front-1", "my-0")
    assert pod["spec"]["priorityClassName"] == "urgent"


def environment(pod: Any) -> dict[str, str]:
    (container,) = pod["spec"]["containers"]
    return {one["name"]: one.get("value") or one["valueFrom"]["fieldRef"]["fieldPath"] for one in container["env"]}


def test_a_pod_is_told_its_place() -> None:
    pods = created(Kind.POD)
    place = {
        "GROVE_PCS_NAME": "my",
        "GROVE_PCS_INDEX": "0",
        "GROVE_PCLQ_NAME": "my-0-front",
        "GROVE_HEADLESS_SERVICE": "my-0.default.svc.cluster.local",
        "GROVE_PCLQ_POD_INDEX": "metadata.labels['grove.io/podclique-pod-index']",
    }
    assert environment(pod_of(pods, "my-0-front")) == place
    assert environment(pod_of(pods, "my-0-pre-2-work")) == place | {
        "GROVE_PCLQ_NAME": "my-0-pre-2-work",
        "GROVE_PCSG_NAME": "metadata.labels['grove.io/podcliquescalinggroup']",
        "GROVE_PCSG_INDEX": "metadata.labels['grove.io/podcliquescalinggroup-replica-index']",
        "GROVE_PCSG_TEMPLATE_NUM_PODS": "4",
    }


def a_clique(set_of: Workload, **fields: Any) -> tuple[CliqueView, Clique]:
    template = set_of.cliques[0]
    values: dict[str, Any] = {
        "name": "my-0-front", "uid": "u1", "resource_version": "1", "generation": 1, "created": 0.0,
        "template": template.name, "replica": 0, "group": "", "group_replica": -1, "template_hash": "x",
        "replicas": 2, "template_replicas": 2, "leaving": False, "status": {},
    }  # fmt: skip
    found = Clique(**values | fields)
    shape = Layout(set_of, {one.name: "x" for one in set_of.cliques})
    return shape.make_clique_view(found.name, template, found, ()), found


def built(**pod_spec: Any) -> Any:
    front = replace(FRONT, pod_spec={**FRONT.pod_spec, **pod_spec})
    changed = replace(WORKLOAD, cliques=(front, *WORKLOAD.cliques[1:]))
    return build_pod(changed, *a_clique(changed), 0, replica=0)["spec"]


def test_variables_of_the_user_stay_except_those_that_would_lie_about_the_place() -> None:
    theirs = [{"name": "GROVE_PCS_NAME", "value": "wrong"}, {"name": "MODE", "value": "fast"}]
    main = {"name": "main", "image": "app:v1", "env": theirs}
    spec = built(containers=[main], initContainers=[{**main, "name": "init"}])
    for container in (*spec["containers"], *spec["initContainers"]):
        values = {one["name"]: one.get("value") for one in container["env"]}
        assert (values["GROVE_PCS_NAME"], values["MODE"]) == ("my", "fast")
        assert [one["name"] for one in container["env"]].count("GROVE_PCS_NAME") == 1


def test_gates_of_others_stay() -> None:
    gates = built(schedulingGates=[{"name": "others"}])["schedulingGates"]
    assert gates == [{"name": "grove.io/podgang-pending-creation"}, {"name": "others"}]


def test_building_changes_nothing_of_the_template() -> None:
    before = repr(WORKLOAD)
    built()
    build_service(WORKLOAD, 0)
    assert repr(WORKLOAD) == before


def test_a_pods_name_stays_until_it_exists_and_is_another_one_then() -> None:
    view, found = a_clique(WORKLOAD)
    name = pod_name(view, found, 0)
    assert name == pod_name(view, found, 0)
    assert name.startswith("my-0-front-")
    assert len(name.rpartition("-")[2]) == 5
    cluster = Cluster(WORKLOAD).settle()
    pod = next(pod for pod in cluster.live_pods("my-0-front") if pod.index == 0)
    replaced = pod_name(replace(view, pods=(pod,)), found, 0)
    others = {pod_name(view, found, 1), pod_name(view, replace(found, uid="u2"), 0), replaced}
    assert len(others | {name}) == 4


@pytest.mark.parametrize(
    ("noted", "expected"),
    [
        (2, None),
        (None, {"metadata": {"annotations": {"grove.io/template-replicas": "2"}}}),
        (5, {"metadata": {"annotations": {"grove.io/template-replicas": "2"}}, "spec": {"replicas": 2}}),
    ],
    ids=["as noted", "never noted", "changed since"],
)
def test_replicas_of_the_template_rule_when_they_change(noted: int | None, expected: Any) -> None:
    _, found = a_clique(WORKLOAD, replicas=7, template_replicas=noted)
    assert patch_replicas(found, 2) == expected


def test_a_minimum_goes_down_with_the_replicas_of_the_template_and_never_up() -> None:
    _, found = a_clique(WORKLOAD, replicas=5, template_replicas=5, min_available=5)
    assert (patch_replicas(found, 2) or {})["spec"] == {"replicas": 2, "minAvailable": 2}
    assert (patch_replicas(found, 7) or {})["spec"] == {"replicas": 7}


def starts_after(startup: StartupType, **after: tuple[str, ...]) -> dict[str, list[str]]:
    cliques = tuple(replace(one, starts_after=after.get(one.name, ())) for one in WORKLOAD.cliques)
    cluster = Cluster(replace(WORKLOAD, startup_type=startup, cliques=cliques)).settle()
    manifests = [a.manifest for a in cluster.actions if isinstance(a, Create) and a.kind is Kind.CLIQUE]
    return {one["metadata"]["name"]: one["spec"].get("startsAfter", []) for one in manifests}


def test_cliques_in_order_start_after_the_one_before() -> None:
    found = starts_after(StartupType.IN_ORDER)
    assert found["my-0-front"] == []
    assert found["my-0-pre-0-lead"] == ["my-0-front"]
    assert found["my-0-pre-1-work"] == ["my-0-pre-0-lead", "my-0-pre-1-lead"]


def test_a_clique_of_a_scaled_gang_looks_only_at_its_own_replica() -> None:
    found = starts_after(StartupType.EXPLICIT, work=("lead", "front"), front=("lead",))
    assert found["my-0-pre-2-work"] == ["my-0-pre-2-lead"]
    assert found["my-0-pre-1-work"] == ["my-0-pre-0-lead", "my-0-pre-1-lead", "my-0-front"]
    assert found["my-0-front"] == ["my-0-pre-0-lead", "my-0-pre-1-lead"]
    assert starts_after(StartupType.ANY_ORDER, work=("lead",))["my-0-pre-0-work"] == []


def test_a_podclique_notes_the_replicas_of_the_template() -> None:
    view, _ = a_clique(WORKLOAD)
    manifest = build_clique(WORKLOAD, view, 0)
    assert manifest["metadata"]["annotations"] == {
        "note": "hello",
        "grove.io/template-keys": "labels.team,annotations.note",
        "grove.io/template-replicas": "2",
    }
    assert manifest["spec"]["replicas"] == manifest["spec"]["minAvailable"] == 2
    assert manifest["spec"]["podSpec"]["priorityClassName"] == "urgent"
