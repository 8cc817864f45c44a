"""The two hashes that say whether pods are of the current template.

Comes after `parsing`; the planner compares its results with the labels and the status of what exists. The template hash
names the template of one clique and is a label of its pods; the generation hash names the templates of all cliques and
a new one starts an update. The invariant: the same templates give the same hash in every release of this software,
because another hash would replace every pod of every workload. `tests/engine/model/test_hashing.py` pins the values.

A hash is made of the template in a canonical form, so that two ways to write one template do not differ, whether a
person wrote it or a program that writes out every field:

- a field that is null, and an empty list, say the same as a field left out, in every part of a pod's spec;
- so do empty labels and annotations, and the empty texts and objects that are listed below;
- restartPolicy left out is Always, terminationGracePeriodSeconds left out is 30, as the API server makes them;
- 30.0 is 30: the API server stores whole numbers without their point;
- "1000m" is "1" and "1Gi" is "1024Mi", wherever a pod's spec has an amount of a resource (`quantities`);
- the order of fields does not matter, the order of lists does.

Other empty texts and objects stay as they are: `emptyDir: {}` is a volume, `storageClassName: ""` is not the default
class. When in doubt two templates differ: one update too many does less harm than one that never comes.
"""

import hashlib
import json
from collections.abc import Mapping
from typing import Any, Final

from rollouts.engine.model.quantities import with_canonical_quantities
from rollouts.engine.model.workload import CliqueTemplate, Workload

# Fits a label and the end of a name. No vowels and none of 0, 1 and 3, so that no hash spells a word.
_ALPHABET: Final = "bcdfghjklmnpqrstvwxz2456789"
_LENGTH: Final = 10
# Of the pod's spec itself; deeper down the same names may be somebody's keys.
_EMPTY_STRING_IS_ABSENT: Final = frozenset(
    {"nodeName", "priorityClassName", "restartPolicy", "schedulerName", "serviceAccountName"}
)
# Anywhere in the spec: no map with keys of somebody's own holds objects.
_EMPTY_OBJECT_IS_ABSENT: Final = frozenset(
    {
        *("affinity", "nodeAffinity", "podAffinity", "podAntiAffinity", "nodeSelector", "securityContext"),
        *("limits", "overhead", "requests", "resources"),
    }
)
_POD_DEFAULTS: Final = {"restartPolicy": "Always", "terminationGracePeriodSeconds": 30}


def compute_template_hash(clique: CliqueTemplate, priority_class: str) -> str:
    """Return the hash of the pods that a clique makes: labels, annotations, and the spec with the priority class."""
    return _short_hash(_template(clique, priority_class))


def compute_generation_hash(workload: Workload) -> str:
    """Return the hash over the templates of all cliques.

    The cliques count by their names, not by their order: listing them in another order changes no pod.
    """
    return _short_hash({clique.name: _template(clique, workload.priority_class) for clique in workload.cliques})


def compute_name_suffix(*parts: Any) -> str:
    """Return the end of a pod's name: five letters that follow from what is told."""
    return _short_hash(parts)[:5]


def compute_settings_hash(settings: Mapping[str, Any]) -> str:
    """Return the hash of settings that are no part of a pod's template: of those the same one is written once."""
    return _short_hash(_canonical(settings))


def effective_pod_spec(clique: CliqueTemplate, priority_class: str) -> dict[str, Any]:
    """Return the spec that the clique's pods get: the priority class of the set, where it has one, goes before."""
    return {**clique.pod_spec, "priorityClassName": priority_class} if priority_class else {**clique.pod_spec}


def _template(clique: CliqueTemplate, priority_class: str) -> dict[str, Any]:
    spec = with_canonical_quantities(_canonical(effective_pod_spec(clique, priority_class)))
    spec = {name: value for name, value in spec.items() if value != "" or name not in _EMPTY_STRING_IS_ABSENT}
    return {"labels": {**clique.labels}, "annotations": {**clique.annotations}, "spec": _POD_DEFAULTS | spec}


def _canonical(value: Any) -> Any:
    if isinstance(value, Mapping):
        members = ((name, _canonical(member)) for name, member in value.items())
        return {name: member for name, member in members if not _is_equivalent_to_absent(name, member)}
    if isinstance(value, list | tuple):
        return [_canonical(item) for item in value]
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value


def _is_equivalent_to_absent(name: str, value: Any) -> bool:
    if value == {}:
        return name in _EMPTY_OBJECT_IS_ABSENT
    return value is None or value == []


def _short_hash(value: Any) -> str:
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    number = int.from_bytes(hashlib.sha256(text.encode("ascii")).digest(), "big")
    letters = []
    for _ in range(_LENGTH):
        number, digit = divmod(number, len(_ALPHABET))
        letters.append(_ALPHABET[digit])
    return "".join(letters)
