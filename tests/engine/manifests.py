"""PodCliqueSets for the engine's tests: a small one, any valid one, and values that are no manifest.

Edits are written as in `tests.deploy.manifests`; most refused sets are its complete set with one edit.
"""

from typing import Any, Final

from hypothesis import strategies as st

from rollouts.engine.manifest.parsing import parse_workload
from rollouts.engine.model.workload import Workload
from tests.deploy.manifests import COMPLETE, Edits, Obj, edited, load

_COMPLETE: Final = load(COMPLETE)


def pod() -> Obj:
    """Return the spec of a small pod."""
    return {"containers": [{"name": "main", "image": "ghcr.io/example/app:v1"}]}


def complete(edits: Edits | None = None) -> Obj:
    """Return the set that uses every field, with these edits."""
    return edited(_COMPLETE, edits or {})


def small(edits: Edits | None = None) -> Obj:
    """Return a set of one clique of three pods and one group of a leader and two workers, with these edits."""
    manifest = {
        "apiVersion": "grove.io/v1alpha1",
        "kind": "PodCliqueSet",
        "metadata": {"name": "chat"},
        "spec": {
            "replicas": 2,
            "template": {
                "cliques": [
                    {"name": "frontend", "spec": {"roleName": "frontend", "replicas": 3, "podSpec": pod()}},
                    {"name": "leader", "spec": {"roleName": "leader", "replicas": 1, "podSpec": pod()}},
                    {"name": "worker", "spec": {"roleName": "worker", "replicas": 2, "podSpec": pod()}},
                ],
                "podCliqueScalingGroups": [{"name": "decode", "cliqueNames": ["leader", "worker"], "replicas": 4}],
            },
        },
    }
    return edited(manifest, edits or {})


def workload_of(manifest: object) -> Workload:
    """Parse a valid manifest."""
    workload = parse_workload(manifest)
    assert isinstance(workload, Workload), workload
    return workload


# Any JSON value; objects often have the names of fields that the engine reads, so that it walks into them.
FIELD_NAMES = st.sampled_from(
    [
        *("metadata", "name", "namespace", "spec", "replicas", "template", "cliques", "podCliqueScalingGroups"),
        *("updateStrategy", "type", "rollingUpdate", "maxUnavailable", "maxSurge", "podSpec", "containers", "env"),
        *("cliqueNames", "startsAfter", "minAvailable", "autoScalingConfig", "scaleConfig", "maxReplicas", "labels"),
        *("minReplicas", "topologyConstraint", "pack", "required", "resourceSharing", "filter", "terminationDelay"),
    ]
)
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=8)
    | st.sampled_from([-1, 0, 10**30, "x%", "150%", " 5 %", "0%", "25%", "4h", "-1h", "OnDelete", "a", "b", "\ud800"])
)
JSON = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(FIELD_NAMES | st.text(max_size=4), inner, max_size=4),
    max_leaves=25,
)


def paths(value: Any) -> list[tuple[str | int, ...]]:
    """Return the path to every value inside a value."""
    members = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [way for name, member in members for way in [(name,), *((name, *rest) for rest in paths(member))]]


@st.composite
def damaged(draw: st.DrawFn) -> Any:
    """Draw the complete set with some of its values replaced by others or removed."""
    manifest: Any = complete()
    for _ in range(draw(st.integers(1, 3))):
        *parents, last = draw(st.sampled_from(paths(manifest)))
        node = manifest
        for part in parents:
            node = node[part]
        if draw(st.booleans()):
            node[last] = draw(JSON)
        elif isinstance(node, dict):
            del node[last]
    return manifest


@st.composite
def valid(draw: st.DrawFn) -> Obj:
    """Draw a set that no rule refuses."""
    cliques = [_clique(draw, f"c{index}") for index in range(draw(st.integers(1, 5)))]
    members = draw(st.integers(0, len(cliques)))
    cut = draw(st.integers(0, members))
    named = [clique["name"] for clique in cliques]
    groups = [_group(draw, f"g{at}", names) for at, names in enumerate((named[:cut], named[cut:members])) if names]
    strategy = draw(st.sampled_from([None, "RollingRecreate", "RollingUpdate", "ReplicaRecreate", "OnDelete"]))
    spec: Obj = {
        "replicas": draw(st.integers(0, 9)),
        "template": {"cliques": cliques, "podCliqueScalingGroups": groups},
    }
    if strategy is not None:
        spec["updateStrategy"] = {"type": strategy}
    if strategy == "ReplicaRecreate":
        spec["updateStrategy"]["rollingUpdate"] = _budget(draw, spec["replicas"] or 1)
    else:
        for component in (*cliques[members:], *groups):
            if draw(st.booleans()):
                component["updateStrategy"] = _budget(draw, component.get("spec", component)["replicas"])
    return {"metadata": {"name": "any", "x-unknown": draw(st.text(max_size=3))}, "spec": spec}


def _clique(draw: st.DrawFn, name: str) -> Obj:
    replicas = draw(st.integers(1, 12))
    spec = {"roleName": name, "replicas": replicas, "podSpec": pod(), "x-unknown": draw(st.integers(0, 3))}
    if draw(st.booleans()):
        spec["minAvailable"] = draw(st.integers(1, replicas))
    return {"name": name, "labels": {"tier": name}, "spec": spec}


def _group(draw: st.DrawFn, name: str, cliques: list[str]) -> Obj:
    replicas = draw(st.integers(1, 9))
    group = {"name": name, "cliqueNames": cliques, "replicas": replicas, "minAvailable": draw(st.integers(1, replicas))}
    if draw(st.booleans()):
        group["scaleConfig"] = {"maxReplicas": replicas + draw(st.integers(0, 3))}
    return group


def _budget(draw: st.DrawFn, replicas: int) -> Obj:
    surge = draw(st.sampled_from([0, 1, 3, "25%", "150%"]))
    least = 0 if surge else 1
    return {"maxUnavailable": draw(st.integers(least, max(least, replicas)) | st.just("100%")), "maxSurge": surge}
