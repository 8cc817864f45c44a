"""Which fields a PodCliqueSet has and what each may hold, looked at one by one.

Takes any value at all, with its defaults in place (`defaults`), and returns it with everything unusable replaced by
None, and a finding for each such place. So what comes after (`validation`, `parsing`) meets only the right types, in
range, or None, and never takes offence at the same mistake twice. The definitions in `deploy/crds` say the same for
the API server. Fields that are not listed here are nobody's business and stay.
"""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeGuard

from rollouts.engine.manifest.findings import Code, Finding
from rollouts.engine.model.budget import parse_percentage
from rollouts.engine.model.durations import parse_duration
from rollouts.engine.model.workload import Startup, Strategy

MOST_INT32: Final = 2**31 - 1
MOST_LABEL_CHARACTERS: Final = 63
# The deepest field of a pod's spec lies about 20 levels down; what is far beyond is not a manifest but an attack on
# whoever walks through it.
DEEPEST: Final = 64
# Whole numbers have 64 bits for the API server.
_LEAST_NOT_STORED: Final = 2**64

_LABEL: Final = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_DOMAIN: Final = re.compile(r"[a-z][a-z0-9-]*")


@dataclass(frozen=True, slots=True)
class Fault:
    """Why a value cannot be used. In the sentence, {field} stands for the name of the field."""

    code: Code
    sentence: str

    def at(self, path: str) -> Finding:
        """Return the finding of this fault somewhere."""
        return Finding(path, self.code, self.sentence.replace("{field}", leaf(path) or "the manifest"))


class Kind:
    """What a field may hold."""

    __slots__ = ()

    def fault(self, value: object) -> Fault | None:
        """Return why a value that is not null cannot be used at all, if so."""
        raise NotImplementedError

    def read(self, value: Any, path: str, found: list[Finding]) -> Any:
        """Return the usable part of a value without fault; note what is wrong with its other parts."""
        return value


@dataclass(frozen=True, slots=True)
class Whole(Kind):
    """A whole number."""

    at_least: int
    at_most: int = MOST_INT32

    def fault(self, value: object) -> Fault | None:
        """Return what keeps it from being such a number."""
        if not is_whole(value):
            return Fault(Code.WRONG_TYPE, "{field} must be a whole number")
        if value < self.at_least:
            return Fault(Code.OUT_OF_RANGE, f"{{field}} must be {self.at_least} or more; raise it")
        if value > self.at_most:
            return Fault(Code.OUT_OF_RANGE, f"{{field}} may be at most {self.at_most}; lower it")
        return None


class Flag(Kind):
    """True or false."""

    __slots__ = ()

    def fault(self, value: object) -> Fault | None:
        """Return what keeps it from being a flag."""
        return None if isinstance(value, bool) else Fault(Code.WRONG_TYPE, "{field} must be true or false")


@dataclass(frozen=True, slots=True)
class Text(Kind):
    """A text; if there are choices, one of them."""

    at_most: int | None = None
    choices: tuple[str, ...] = ()
    may_be_empty: bool = True

    def fault(self, value: object) -> Fault | None:
        """Return what keeps it from being such a text."""
        if not isinstance(value, str):
            return Fault(Code.WRONG_TYPE, "{field} must be a text")
        if not value and not self.may_be_empty:
            return Fault(Code.FIELD_MISSING, "{field} may not be empty; write one")
        if self.choices and value not in self.choices:
            return Fault(Code.UNKNOWN_VALUE, f"{{field}} must be one of {', '.join(filter(None, self.choices))}")
        if self.at_most is not None and len(value) > self.at_most:
            return Fault(Code.TOO_LONG, f"{{field}} may have at most {self.at_most} characters; shorten it")
        return None


@dataclass(frozen=True, slots=True)
class Pattern(Kind):
    """A text of a certain form."""

    form: re.Pattern[str]
    otherwise: Fault
    at_most: int = MOST_LABEL_CHARACTERS

    def fault(self, value: object) -> Fault | None:
        """Return the fault of any other text."""
        is_so = isinstance(value, str) and len(value) <= self.at_most and self.form.fullmatch(value)
        return None if is_so else self.otherwise


class Duration(Kind):
    """A time longer than 0."""

    __slots__ = ()

    def fault(self, value: object) -> Fault | None:
        """Return what keeps it from being a time."""
        if isinstance(value, str) and parse_duration(value) is not None:
            return None
        sentence = "{field} must be a time longer than 0, written like 30m, 4h or 1h30m"
        return Fault(Code.INVALID_DURATION, sentence)


@dataclass(frozen=True, slots=True)
class IntOrPercent(Kind):
    """A number of units or a percentage of them."""

    most_percent: int
    otherwise: Fault

    def fault(self, value: object) -> Fault | None:
        """Return the fault of anything else."""
        if isinstance(value, str):
            percent = parse_percentage(value)
            return None if percent is not None and percent <= self.most_percent else self.otherwise
        return None if is_whole(value) and 0 <= value <= MOST_INT32 else self.otherwise


class Texts(Kind):
    """An object of texts by name, such as labels."""

    __slots__ = ()

    def fault(self, value: object) -> Fault | None:
        """Return what keeps it from being one."""
        if not isinstance(value, dict):
            return Fault(Code.WRONG_TYPE, "{field} must be an object of names and texts")
        if not all(isinstance(member, str) for member in value.values()):
            return Fault(Code.WRONG_TYPE, "{field} may hold texts only; put numbers, true and false in quotes")
        return None


@dataclass(frozen=True, slots=True)
class ListOf(Kind):
    """A list; its entries may need a name of their own."""

    entry: Kind
    at_least: int = 0
    at_most: int | None = None
    key: str | None = None

    def fault(self, value: object) -> Fault | None:
        """Return what keeps it from being such a list, its entries aside."""
        if not isinstance(value, list):
            return Fault(Code.WRONG_TYPE, "{field} must be a list")
        if len(value) < self.at_least:
            return Fault(Code.TOO_FEW, "{field} needs at least one entry; add one")
        if self.at_most is not None and len(value) > self.at_most:
            return Fault(Code.TOO_MANY, f"{{field}} may have at most {self.at_most} entries; remove some")
        return None

    def read(self, value: Any, path: str, found: list[Finding]) -> list[Any]:
        """Return the list with None for each entry that cannot be used, so that the others keep their index."""
        entries = [_read(self.entry, entry, f"{path}[{index}]", found) for index, entry in enumerate(value)]
        seen = set()
        for index, entry in enumerate(entries):
            name = entry.get(self.key) if self.key and entry else None
            if name is not None and name in seen:
                sentence = f"each of {leaf(path)} needs a {self.key} of its own; change one of the two"
                found.append(Finding(f"{path}[{index}].{self.key}", Code.DUPLICATE_NAME, sentence))
            seen.add(name)
        return entries


@dataclass(frozen=True, slots=True)
class Object(Kind):
    """An object with known fields among others."""

    fields: Mapping[str, Kind] = field(default_factory=dict)
    required: tuple[str, ...] = ()

    def fault(self, value: object) -> Fault | None:
        """Return what keeps it from being an object, its fields aside."""
        return None if isinstance(value, dict) else Fault(Code.WRONG_TYPE, "{field} must be an object")

    def read(self, value: Any, path: str, found: list[Finding]) -> dict[str, Any]:
        """Return the object with None for each known field that cannot be used."""
        # A known field with nothing behind its name counts as left out, as it does for the API server.
        usable = {name: member for name, member in value.items() if member is not None or name not in self.fields}
        for name, kind in self.fields.items():
            if name in usable or name in self.required:
                usable[name] = _read(kind, value.get(name), _join(path, name), found)
        return usable


def read_set(manifest: object) -> tuple[dict[str, Any], list[Finding]]:
    """Return the usable part of a PodCliqueSet with its defaults in place, and what is wrong with the rest."""
    # Nobody reads the status here, and it may be as long as the workload is large.
    without_status = {**manifest, "status": None} if isinstance(manifest, dict) else manifest
    found = _look_for_what_is_no_json(without_status)
    if found:
        return {}, found
    return _read(SET, manifest, "", found) or {}, found


def is_whole(value: object) -> TypeGuard[int]:
    """Return whether a value is a whole number; true and false are none, though Python counts them in."""
    return isinstance(value, int) and not isinstance(value, bool)


def is_label(text: str) -> bool:
    """Return whether a text is a label in the sense of DNS, which names of pods are made of."""
    return len(text) <= MOST_LABEL_CHARACTERS and _LABEL.fullmatch(text) is not None


def leaf(path: str) -> str:
    """Return the last field of a path."""
    return path.rpartition(".")[2]


def _read(kind: Kind, value: object, path: str, found: list[Finding]) -> Any:
    fault = Fault(Code.FIELD_MISSING, "{field} is missing; add it") if value is None else kind.fault(value)
    if fault is None:
        return kind.read(value, path, found)
    found.append(fault.at(path))
    return None


def _join(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _look_for_what_is_no_json(manifest: object) -> list[Finding]:
    """Return a finding for what JSON cannot say or nobody can walk through; without recursion, for that very reason."""
    waiting: list[tuple[object, str, int]] = [(manifest, "", 0)]
    while waiting:
        value, path, depth = waiting.pop()
        if depth > DEEPEST:
            return [Finding("", Code.TOO_DEEP, f"the manifest nests deeper than {DEEPEST} levels; flatten it")]
        if isinstance(value, dict) and all(isinstance(name, str) for name in value):
            waiting += [(member, _join(path, name), depth + 1) for name, member in value.items()]
        elif isinstance(value, list):
            waiting += [(entry, f"{path}[{index}]", depth + 1) for index, entry in enumerate(value)]
        elif fault := _fault_of_scalar(value):
            return [fault.at(path)]
    return []


def _fault_of_scalar(value: object) -> Fault | None:
    if value is None or isinstance(value, str):
        return None
    if isinstance(value, int):
        is_stored = abs(value) < _LEAST_NOT_STORED
        return None if is_stored else Fault(Code.OUT_OF_RANGE, "{field} is too large a number to be stored; lower it")
    if isinstance(value, float) and math.isfinite(value):
        return None
    return Fault(Code.WRONG_TYPE, "{field} is not a JSON value; write a text, a number, a list or an object")


ANY_OBJECT: Final = Object()
_COUNT: Final = Whole(at_least=1)
_NAME: Final = Pattern(
    _LABEL,
    Fault(
        Code.INVALID_NAME,
        "{field} becomes part of pod names, so use only lower-case letters, digits and hyphens, with a letter or digit"
        " at both ends",
    ),
)
_SET_NAME: Final = Pattern(
    _LABEL,
    Fault(
        Code.INVALID_NAME,
        "the name of the set becomes part of pod and service names, so use only lower-case letters, digits and hyphens",
    ),
)
_TOPOLOGY_DOMAIN: Final = Pattern(
    _DOMAIN,
    Fault(
        Code.INVALID_DOMAIN,
        "{field} must be a topology domain such as rack: lower-case letters, digits and hyphens, a letter first",
    ),
)
BUDGET: Final = {
    "maxUnavailable": IntOrPercent(
        100,
        Fault(Code.INVALID_BUDGET, '{field} must be a whole number, 0 or more, or a percentage from "0%" to "100%"'),
    ),
    "maxSurge": IntOrPercent(
        9999, Fault(Code.INVALID_BUDGET, '{field} must be a whole number, 0 or more, or a percentage such as "25%"')
    ),
}
_COMPONENT_STRATEGY: Final = Object(BUDGET)
_CLIQUE_NAMES: Final = ListOf(Text(at_most=63), at_most=64)
_TOPOLOGY: Final = Object(
    {
        "topologyName": Text(at_most=253),
        "pack": Object({"required": _TOPOLOGY_DOMAIN, "preferred": _TOPOLOGY_DOMAIN}),
        "packDomain": _TOPOLOGY_DOMAIN,
    }
)
_SHARING: Final = ListOf(
    Object(
        {
            "name": Text(at_most=253),
            "namespace": Text(at_most=63),
            "scope": Text(choices=("AllReplicas", "PerReplica")),
            "filter": Object({"childCliqueNames": _CLIQUE_NAMES, "childScalingGroupNames": _CLIQUE_NAMES}),
        },
        required=("name", "scope"),
    ),
    at_most=32,
)
_SCALING: Final = Object(
    {"minReplicas": _COUNT, "maxReplicas": _COUNT, "metrics": ListOf(ANY_OBJECT)}, required=("maxReplicas",)
)
_NAMED: Final = Object({"name": Text(may_be_empty=False)}, required=("name",))
_CONTAINER: Final = Object(
    {
        "name": Text(may_be_empty=False),
        "image": Text(),
        "env": ListOf(_NAMED, key="name"),
        "volumeMounts": ListOf(
            Object({"mountPath": Text(may_be_empty=False)}, required=("mountPath",)), key="mountPath"
        ),
    },
    required=("name",),
)
_POD: Final = Object(
    {
        "containers": ListOf(_CONTAINER, at_least=1, key="name"),
        "initContainers": ListOf(_CONTAINER, key="name"),
        "volumes": ListOf(_NAMED, key="name"),
        "resourceClaims": ListOf(_NAMED, key="name"),
        "schedulingGates": ListOf(_NAMED, key="name"),
        "schedulerName": Text(at_most=253),
        "nodeName": Text(at_most=253),
        "priorityClassName": Text(),
        "restartPolicy": Text(choices=("Always", "OnFailure", "Never", "")),
        "terminationGracePeriodSeconds": Whole(at_least=0, at_most=2**63 - 1),
        "topologySpreadConstraints": ListOf(ANY_OBJECT),
    },
    required=("containers",),
)
_CLIQUE: Final = Object(
    {
        "name": _NAME,
        "labels": Texts(),
        "annotations": Texts(),
        "updateStrategy": _COMPONENT_STRATEGY,
        "topologyConstraint": _TOPOLOGY,
        "resourceSharing": _SHARING,
        "spec": Object(
            {
                "roleName": Text(at_most=253),
                "replicas": _COUNT,
                "minAvailable": _COUNT,
                "startsAfter": _CLIQUE_NAMES,
                "autoScalingConfig": _SCALING,
                "podSpec": _POD,
            },
            required=("podSpec",),
        ),
    },
    required=("name", "spec"),
)
_GROUP: Final = Object(
    {
        "name": _NAME,
        "cliqueNames": ListOf(Text(at_most=63), at_least=1, at_most=64),
        "annotations": Texts(),
        "replicas": _COUNT,
        "minAvailable": _COUNT,
        "updateStrategy": _COMPONENT_STRATEGY,
        "scaleConfig": _SCALING,
        "resourceSharing": _SHARING,
        "topologyConstraint": _TOPOLOGY,
    },
    required=("name", "cliqueNames"),
)
_TEMPLATE: Final = Object(
    {
        "cliques": ListOf(_CLIQUE, at_least=1, at_most=64, key="name"),
        "cliqueStartupType": Text(choices=tuple(Startup)),
        "priorityClassName": Text(),
        "headlessServiceConfig": Object({"publishNotReadyAddresses": Flag()}),
        "topologyConstraint": _TOPOLOGY,
        "terminationDelay": Duration(),
        "resourceClaimTemplates": ListOf(
            Object(
                {"name": Text(at_most=253, may_be_empty=False), "templateSpec": ANY_OBJECT},
                required=("name", "templateSpec"),
            ),
            at_most=64,
        ),
        "resourceSharing": _SHARING,
        "podCliqueScalingGroups": ListOf(_GROUP, at_most=64, key="name"),
    },
    required=("cliques",),
)
_SPEC: Final = Object(
    {
        "replicas": Whole(at_least=0),
        "updateStrategy": Object(
            {
                "type": Text(choices=tuple(Strategy)),
                "rollingUpdate": Object({**BUDGET, "partition": Whole(at_least=0)}),
            }
        ),
        "paused": Flag(),
        "progressDeadlineSeconds": Whole(at_least=1),
        "revisionHistoryLimit": Whole(at_least=0),
        "template": _TEMPLATE,
    },
    required=("template",),
)
SET: Final = Object(
    {
        "apiVersion": Text(choices=("grove.io/v1alpha1",)),
        "kind": Text(choices=("PodCliqueSet",)),
        "metadata": Object(
            {"name": _SET_NAME, "namespace": Text(), "uid": Text(), "generation": Whole(at_least=0, at_most=2**63 - 1)},
            required=("name",),
        ),
        "spec": _SPEC,
    },
    required=("metadata", "spec"),
)
