"""The template hash and the generation hash, which decide whether pods are outdated (`docs/semantics.md` 2).

Comes after `parsing`; the planner compares the hashes with the labels and the status of existing objects. The template
hash identifies the template of one clique and is a label of its pods. The generation hash identifies the templates of
all cliques; a new one starts an update. The invariant: the same templates give the same hash in every release, because
another hash would replace every pod of every workload. `tests/engine/model/test_hashing.py` pins the values.

A hash covers the canonical form of a template, so that two spellings of one template are equal, whether a person wrote
the manifest or a program that writes out every field:

- a null field and an empty list count as absent, in every part of a pod's spec;
- so do empty labels and annotations, and the empty strings and objects that are listed below;
- an absent restartPolicy is Always, an absent terminationGracePeriodSeconds is 30, the defaults of the API server;
- 30.0 is 30: the API server stores whole numbers without a decimal point;
- "1000m" is "1" and "1Gi" is "1024Mi", wherever a pod's spec has a quantity (`quantities`);
- the order of fields does not count, the order of lists does.

Other empty strings and objects stay: `emptyDir: {}` is a volume, `storageClassName: ""` is not the default class. In
doubt two templates differ: an unnecessary update does less harm than a missing one.
"""

import hashlib
import json
from collections.abc import Mapping
from typing import Any, Final

from rollouts.engine.model.quantities import with_canonical_quantities
from rollouts.engine.model.workload import CliqueTemplate, Workload

# Valid in a label and in a name. Without vowels and 0, 1 and 3, so that no hash spells a word.
_ALPHABET: Final = "bcdfghjklmnpqrstvwxz2456789"
_LENGTH: Final = 10
# Only at the top of a pod's spec; deeper, a user may have chosen these names as keys.
_EMPTY_STRING_IS_ABSENT: Final = frozenset(
    {"nodeName", "priorityClassName", "restartPolicy", "schedulerName", "serviceAccountName"}
)
# Anywhere in the spec: no map with keys chosen by a user holds objects.
_EMPTY_OBJECT_IS_ABSENT: Final = frozenset(
    {
        *("affinity", "nodeAffinity", "podAffinity", "podAntiAffinity", "nodeSelector", "securityContext"),
        *("limits", "overhead", "requests", "resources"),
    }
)
_POD_DEFAULTS: Final = {"restartPolicy": "Always", "terminationGracePeriodSeconds": 30}


def compute_template_hash(clique: CliqueTemplate, priority_class: str) -> str:
    """Return the hash of the pods of a clique: labels, annotations, and the spec with the priority class."""
    return _short_hash(_template(clique, priority_class))


def compute_generation_hash(workload: Workload) -> str:
    """Return the hash over the templates of all cliques.

    Cliques count by name, not by position: another order of the list changes no pod.
    """
    return _short_hash({clique.name: _template(clique, workload.priority_class) for clique in workload.cliques})


def compute_name_suffix(*parts: Any) -> str:
    """Return the suffix of a pod's name: five letters derived from the parts."""
    return _short_hash(parts)[:5]


def compute_settings_hash(settings: Mapping[str, Any]) -> str:
    """Return the hash of settings outside the pod template, by which the controller notices a change of them."""
    return _short_hash(_canonical(settings))


def effective_pod_spec(clique: CliqueTemplate, priority_class: str) -> dict[str, Any]:
    """Return the spec of the clique's pods; a priority class of the set overrides that of the clique."""
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
