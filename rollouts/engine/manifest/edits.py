"""Edits of a PodCliqueSet manifest: images, replicas, strategy, restart, rollback.

An edit takes a stored manifest and returns the edited one. Then `validation` checks the result, the services send the
difference, and the preview simulates it. An edit checks only its own arguments (does this clique exist, and this
container?); the rules for the result are those of `validation`.

The invariants: the given manifest is not changed, and fields that an edit is not about stay as written, so that the
difference is exactly the edit. An edit that cannot be made returns InvalidEdit and changes nothing.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from rollouts.engine.manifest.findings import Finding, FindingCode
from rollouts.engine.manifest.strategy_parts import MAX_SURGE, MAX_UNAVAILABLE, STRATEGY_TYPE, put_strategy_parts

Obj = dict[str, Any]

# An annotation in the template of each restarted clique: a new value makes a new template.
RESTARTED_AT: Final = "grove.io/restarted-at"

_CLIQUES: Final = "cliques"
_GROUPS: Final = "podCliqueScalingGroups"
# With the pod spec, the fields of a clique that a revision restores.
_POD_METADATA_FIELDS: Final = ("labels", "annotations")
_MAX_IMAGE_LENGTH: Final = 1024
_IMAGE: Final = re.compile(r"[!-~]+")
_NO_SUCH_CLIQUE: Final = Finding("clique", FindingCode.UNKNOWN_CLIQUE, "the set has no clique with this name")


@dataclass(frozen=True, slots=True)
class InvalidEdit:
    """Why an edit cannot be made; the findings name the arguments of the edit."""

    findings: tuple[Finding, ...]


@dataclass(frozen=True, slots=True)
class ImageEdit:
    """A new image for a container."""

    clique: str
    image: str
    container: str = ""  # empty: the only container of the clique


def set_images(manifest: Obj, images: Sequence[ImageEdit]) -> Obj | InvalidEdit:
    """Set the images of containers."""
    cliques, found = dict(enumerate(_entries(manifest, _CLIQUES))), []
    for index, asked in enumerate(images):
        position = next((at for at, clique in cliques.items() if clique.get("name") == asked.clique), None)
        changed = _NO_SUCH_CLIQUE if position is None else _set_image(cliques[position], asked)
        if isinstance(changed, Finding):
            found.append(replace(changed, field=f"images[{index}].{changed.field}"))
        elif position is not None:
            cliques[position] = changed
    return InvalidEdit(tuple(found)) if found else _with_template(manifest, {_CLIQUES: list(cliques.values())})


def scale(manifest: Obj, replicas: Any, component: str = "") -> Obj | InvalidEdit:
    """Set the replicas of the set, or those of a clique or scaling group in its template."""
    if not component:
        return {**manifest, "spec": {**_dict(manifest.get("spec")), "replicas": replicas}}
    if _kind_of(manifest, component) is None:
        return InvalidEdit((make_unknown_component("component"),))
    return _with_components(manifest, {component}, lambda kind, entry: _scaled(kind, entry, replicas))


def edit_strategy(manifest: Obj, changes: Mapping[str, Any]) -> Obj | InvalidEdit:
    """Change parts of the update strategy; parts that are not named stay, and null removes a part.

    The parts are `type`, `maxUnavailable` and `maxSurge` of the set, and `components`: `maxUnavailable` and `maxSurge`
    by the name of a clique or scaling group, or null to remove its strategy.
    """
    components: Mapping[str, Any] = changes.get("components") or {}
    unknown = [name for name in components if _kind_of(manifest, name) is None]
    if unknown:
        return InvalidEdit(tuple(make_unknown_component(f"components.{name}") for name in unknown))
    of_set = {name: changes[name] for name in (STRATEGY_TYPE, MAX_UNAVAILABLE, MAX_SURGE) if name in changes}
    return put_strategy_parts(manifest, of_set, components, both_kinds=False)


def restart(manifest: Obj, at: str, components: Sequence[str] = ()) -> Obj | InvalidEdit:
    """Change the templates so that the strategy replaces all pods, or those of the named components."""
    unknown = [index for index, name in enumerate(components) if _kind_of(manifest, name) is None]
    if unknown:
        return InvalidEdit(tuple(make_unknown_component(f"components[{index}]") for index in unknown))
    named = _members(manifest, components) if components else {_name(one) for one in _entries(manifest, _CLIQUES)}
    cliques = [_restarted(one, at) if _name(one) in named else one for one in _entries(manifest, _CLIQUES)]
    return _with_template(manifest, {_CLIQUES: cliques})


def roll_back(manifest: Obj, template: Mapping[str, Any]) -> Obj | InvalidEdit:
    """Restore the pods of an earlier template of the set.

    Pod specs, labels, annotations and the priority class come from the earlier template, so that the generation hash is
    the earlier one; replicas, minimums and strategies stay.
    """
    former = {_name(clique): clique for clique in _list(template.get(_CLIQUES))}
    names = {_name(clique) for clique in _entries(manifest, _CLIQUES)}
    if names != former.keys():
        sentence = "that revision has other cliques than the set has now, so the set cannot be rolled back to it"
        return InvalidEdit((Finding("revision", FindingCode.IMMUTABLE, sentence),))
    cliques = [_with_former_pods(clique, former[_name(clique)]) for clique in _entries(manifest, _CLIQUES)]
    changed = _with_template(manifest, {_CLIQUES: cliques})
    spec = changed["spec"]
    return {**changed, "spec": {**spec, "template": _copy_fields(spec["template"], template, ("priorityClassName",))}}


# ---- images


def _set_image(clique: Obj, asked: ImageEdit) -> Obj | Finding:
    if not _IMAGE.fullmatch(asked.image) or len(asked.image) > _MAX_IMAGE_LENGTH:
        sentence = f"image must be a reference of at most {_MAX_IMAGE_LENGTH} characters, without spaces"
        return Finding("image", FindingCode.INVALID_IMAGE, sentence)
    pod = _dict(_dict(clique.get("spec")).get("podSpec"))
    containers = [*_list(pod.get("containers"))]
    if not asked.container and len(containers) != 1:
        sentence = f"{asked.clique} has several containers; name one of {', '.join(map(_name, containers))}"
        return Finding("container", FindingCode.FIELD_MISSING, sentence)
    wanted = asked.container or _name(containers[0])
    for kind in ("containers", "initContainers"):
        entries = _list(pod.get(kind))
        if any(_name(entry) == wanted for entry in entries):
            changed = [{**entry, "image": asked.image} if _name(entry) == wanted else entry for entry in entries]
            return {**clique, "spec": {**clique["spec"], "podSpec": {**pod, kind: changed}}}
    sentence = f"{asked.clique} has no such container; it has {', '.join(map(_name, containers))}"
    return Finding("container", FindingCode.UNKNOWN_CONTAINER, sentence)


# ---- numbers


def _scaled(kind: str, entry: Obj, replicas: Any) -> Obj:
    if kind == _GROUPS:
        return {**entry, "replicas": replicas}
    # A minimum that was left out stays left out, and running PodCliques keep theirs.
    return {**entry, "spec": {**_dict(entry.get("spec")), "replicas": replicas}}


# ---- pods


def _restarted(clique: Obj, at: str) -> Obj:
    return {**clique, "annotations": {**_dict(clique.get("annotations")), RESTARTED_AT: at}}


def _with_former_pods(clique: Obj, former: Mapping[str, Any]) -> Obj:
    spec = {**_dict(clique.get("spec")), "podSpec": _dict(former.get("spec")).get("podSpec")}
    return _copy_fields({**clique, "spec": spec}, former, _POD_METADATA_FIELDS)


def _copy_fields(owner: Obj, former: Mapping[str, Any], names: Iterable[str]) -> Obj:
    """Return the object with these fields of another object; a field that is missing there is removed."""
    taken = {name: former.get(name) for name in names}
    rest = {name: value for name, value in owner.items() if taken.get(name, value) is not None}
    return {**rest, **{name: value for name, value in taken.items() if value is not None}}


# ---- the parts of a manifest


def _with_template(manifest: Obj, fields: Mapping[str, Any]) -> Obj:
    spec = _dict(manifest.get("spec"))
    return {**manifest, "spec": {**spec, "template": {**_dict(spec.get("template")), **fields}}}


def _with_components(manifest: Obj, names: set[str], change: Callable[[str, Obj], Obj]) -> Obj:
    """Return the manifest with the cliques and scaling groups of these names changed."""
    meant = {(_kind_of(manifest, name), name) for name in names}
    fields = {
        kind: [change(kind, entry) if (kind, _name(entry)) in meant else entry for entry in _entries(manifest, kind)]
        for kind in {kind for kind, _ in meant if kind is not None}
    }
    return _with_template(manifest, fields) if fields else manifest


def _members(manifest: Obj, components: Iterable[str]) -> set[str]:
    """Return the cliques among the components, and those of the scaling groups among them."""
    named = {*components}
    groups = [group for group in _entries(manifest, _GROUPS) if _name(group) in named]
    return named | {name for group in groups for name in _list(group.get("cliqueNames"), of=str)}


def _kind_of(manifest: Obj, component: str) -> str | None:
    """Return the list that holds a component; if a clique and a scaling group share the name, that of the groups."""
    kinds = (kind for kind in (_GROUPS, _CLIQUES) if any(_name(one) == component for one in _entries(manifest, kind)))
    return next(kinds, None)


def _entries(manifest: Mapping[str, Any], kind: str) -> list[Obj]:
    return _list(_dict(_dict(manifest.get("spec")).get("template")).get(kind))


def _name(entry: Mapping[str, Any]) -> str:
    return str(entry.get("name") or "")


def _dict(value: Any) -> Obj:
    return value if isinstance(value, dict) else {}


def _list(value: Any, of: type = dict) -> list[Any]:
    return [entry for entry in value if isinstance(entry, of)] if isinstance(value, list) else []


def make_unknown_component(field: str) -> Finding:
    """Return the finding about a field that names no component of the set."""
    sentence = "the set has no clique and no scaling group with this name"
    return Finding(field, FindingCode.UNKNOWN_COMPONENT, sentence)
