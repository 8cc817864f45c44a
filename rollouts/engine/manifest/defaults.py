"""Puts the defaults into a PodCliqueSet manifest.

The first step for every manifest: `schema`, `validation` and `parsing` see it with its defaults. Takes any value and
never raises; values of a wrong type stay for `schema` to find. The invariant: written values stay, the given manifest
is not changed, and a second run changes nothing.

The definitions in `deploy/crds` set the constant defaults, too; the others depend on other fields (docs/resources.md).
Nothing inside `podSpec` gets a default, because it would look like a change of the template.
"""

from typing import Any, Final

from rollouts.engine.manifest.field_types import is_integer
from rollouts.engine.model.workload import StartupType, Strategy

_TEMPLATE_DEFAULTS: Final[dict[str, Any]] = {
    "cliqueStartupType": str(StartupType.ANY_ORDER),
    "terminationDelay": "4h",
    "headlessServiceConfig": {},
}

Obj = dict[str, Any]


def with_defaults(manifest: object) -> object:
    """Return the manifest with its defaults; it shares unchanged parts with the given manifest."""
    if not isinstance(manifest, dict):
        return manifest
    filled = dict(manifest)
    if isinstance(manifest.get("metadata"), dict):
        filled["metadata"] = _set_defaults(manifest["metadata"], {"namespace": "default"}, empty="")
    if isinstance(manifest.get("spec"), dict):
        filled["spec"] = _fill_spec(manifest["spec"])
    return filled


def list_cliques_without_min_available(manifest: object) -> frozenset[str]:
    """Return the names of the cliques that leave minAvailable out, in a manifest without defaults."""
    spec = manifest.get("spec") if isinstance(manifest, dict) else None
    cliques = _list_objects(spec.get("template"), "cliques") if isinstance(spec, dict) else []
    return frozenset(
        clique["name"]
        for clique in cliques
        if isinstance(clique.get("name"), str)
        and isinstance(clique.get("spec"), dict)
        and clique["spec"].get("minAvailable") is None
    )


def _fill_spec(spec: Obj) -> Obj:
    filled = _set_defaults(spec, {"replicas": 0, "updateStrategy": {}})
    if isinstance(spec.get("template"), dict):
        filled["template"] = _fill_template(spec["template"])
    if isinstance(filled["updateStrategy"], dict):
        filled["updateStrategy"] = _set_defaults(filled["updateStrategy"], {"type": str(_default_strategy_type(spec))})
    return filled


def _default_strategy_type(spec: Obj) -> Strategy:
    components = [
        *_list_objects(spec.get("template"), "cliques"),
        *_list_objects(spec.get("template"), "podCliqueScalingGroups"),
    ]
    has_budgets = any(component.get("updateStrategy") is not None for component in components)
    return Strategy.ROLLING_UPDATE if has_budgets else Strategy.ROLLING_RECREATE


def _fill_template(template: Obj) -> Obj:
    filled = _set_defaults(template, _TEMPLATE_DEFAULTS)
    if isinstance(filled["headlessServiceConfig"], dict):
        filled["headlessServiceConfig"] = _set_defaults(
            filled["headlessServiceConfig"], {"publishNotReadyAddresses": True}
        )
    for name, fill in (("cliques", _fill_clique), ("podCliqueScalingGroups", _fill_group)):
        if isinstance(template.get(name), list):
            filled[name] = [fill(entry) if isinstance(entry, dict) else entry for entry in template[name]]
    return filled


def _fill_clique(clique: Obj) -> Obj:
    if not isinstance(clique.get("spec"), dict):
        return clique
    spec = _set_defaults(clique["spec"], {"replicas": 1})
    if _is_positive_integer(spec["replicas"]):
        spec = _set_defaults(spec, {"minAvailable": spec["replicas"]})
    return {**clique, "spec": _fill_scaling(spec, "autoScalingConfig")}


def _fill_group(group: Obj) -> Obj:
    return _fill_scaling(_set_defaults(group, {"replicas": 1, "minAvailable": 1}), "scaleConfig")


def _fill_scaling(component: Obj, name: str) -> Obj:
    scaling = component.get(name)
    if isinstance(scaling, dict) and _is_positive_integer(component["replicas"]):
        return {**component, name: _set_defaults(scaling, {"minReplicas": component["replicas"]})}
    return component


def _set_defaults(obj: Obj, defaults: Obj, *, empty: object = None) -> Obj:
    """Return the object with a default for each field that is missing, null or the empty value."""
    return {**obj, **{name: value for name, value in defaults.items() if obj.get(name) in (None, empty)}}


def _list_objects(parent: object, name: str) -> list[Obj]:
    entries = parent.get(name) if isinstance(parent, dict) else None
    return [entry for entry in entries if isinstance(entry, dict)] if isinstance(entries, list) else []


def _is_positive_integer(value: object) -> bool:
    # A default that repeats a wrong number would yield a second finding.
    return is_integer(value) and value >= 1
