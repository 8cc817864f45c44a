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

from rollouts.engine.manifest.findings import Finding, FindingCode
from rollouts.engine.model.budget import parse_percentage
from rollouts.engine.model.durations import parse_duration
from rollouts.engine.model.workload import StartupType, Strategy

MAX_INT32: Final = 2**31 - 1
MAX_LABEL_LENGTH: Final = 63
# The deepest field of a pod's spec lies about 20 levels down; what is far beyond is not a manifest but an attack on
# whoever walks through it.
MAX_DEPTH: Final = 64
# Whole numbers have 64 bits for the API server.
_INTEGER_LIMIT: Final = 2**64

_LABEL: Final = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_DOMAIN: Final = re.compile(r"[a-z][a-z0-9-]*")


@dataclass(frozen=True, slots=True)
class FieldError:
    """Why a value cannot be used. In the sentence, {field} stands for the name of the field."""

    code: FindingCode
    message: str

    def to_finding(self, path: str) -> Finding:
        """Return the finding of this fault somewhere."""
        return Finding(path, self.code, self.message.replace("{field}", last_field(path) or "the manifest"))


class FieldType:
    """What a field may hold."""

    __slots__ = ()

    def find_error(self, value: object) -> FieldError | None:
        """Return why a value that is not null cannot be used at all, if so."""
        raise NotImplementedError

    def parse(self, value: Any, path: str, found: list[Finding]) -> Any:
        """Return the usable part of a value without fault; note what is wrong with its other parts."""
        return value


@dataclass(frozen=True, slots=True)
class IntegerType(FieldType):
    """A whole number."""

    minimum: int
    maximum: int = MAX_INT32

    def find_error(self, value: object) -> FieldError | None:
        """Return what keeps it from being such a number."""
        if not is_integer(value):
            return FieldError(FindingCode.WRONG_TYPE, "{field} must be a whole number")
        if value < self.minimum:
            return FieldError(FindingCode.OUT_OF_RANGE, f"{{field}} must be {self.minimum} or more; raise it")
        if value > self.maximum:
            return FieldError(FindingCode.OUT_OF_RANGE, f"{{field}} may be at most {self.maximum}; lower it")
        return None


class BooleanType(FieldType):
    """True or false."""

    __slots__ = ()

    def find_error(self, value: object) -> FieldError | None:
        """Return what keeps it from being a flag."""
        return None if isinstance(value, bool) else FieldError(FindingCode.WRONG_TYPE, "{field} must be true or false")


@dataclass(frozen=True, slots=True)
class StringType(FieldType):
    """A text; if there are choices, one of them."""

    max_length: int | None = None
    choices: tuple[str, ...] = ()
    allow_empty: bool = True

    def find_error(self, value: object) -> FieldError | None:
        """Return what keeps it from being such a text."""
        if not isinstance(value, str):
            return FieldError(FindingCode.WRONG_TYPE, "{field} must be a string")
        if not value and not self.allow_empty:
            return FieldError(FindingCode.FIELD_MISSING, "{field} may not be empty; set it")
        if self.choices and value not in self.choices:
            return FieldError(
                FindingCode.UNKNOWN_VALUE, f"{{field}} must be one of {', '.join(filter(None, self.choices))}"
            )
        if self.max_length is not None and len(value) > self.max_length:
            return FieldError(
                FindingCode.TOO_LONG, f"{{field}} may have at most {self.max_length} characters; shorten it"
            )
        return None


@dataclass(frozen=True, slots=True)
class PatternType(FieldType):
    """A text of a certain form."""

    pattern: re.Pattern[str]
    error: FieldError
    max_length: int = MAX_LABEL_LENGTH

    def find_error(self, value: object) -> FieldError | None:
        """Return the fault of any other text."""
        is_so = isinstance(value, str) and len(value) <= self.max_length and self.pattern.fullmatch(value)
        return None if is_so else self.error


class DurationType(FieldType):
    """A time longer than 0."""

    __slots__ = ()

    def find_error(self, value: object) -> FieldError | None:
        """Return what keeps it from being a time."""
        if isinstance(value, str) and parse_duration(value) is not None:
            return None
        sentence = "{field} must be a duration longer than 0, such as 30m, 4h or 1h30m"
        return FieldError(FindingCode.INVALID_DURATION, sentence)


@dataclass(frozen=True, slots=True)
class IntOrPercentType(FieldType):
    """A number of units or a percentage of them."""

    max_percent: int
    error: FieldError

    def find_error(self, value: object) -> FieldError | None:
        """Return the fault of anything else."""
        if isinstance(value, str):
            percent = parse_percentage(value)
            return None if percent is not None and percent <= self.max_percent else self.error
        return None if is_integer(value) and 0 <= value <= MAX_INT32 else self.error


class StringMapType(FieldType):
    """An object of texts by name, such as labels."""

    __slots__ = ()

    def find_error(self, value: object) -> FieldError | None:
        """Return what keeps it from being one."""
        if not isinstance(value, dict):
            return FieldError(FindingCode.WRONG_TYPE, "{field} must be a map of strings")
        if not all(isinstance(member, str) for member in value.values()):
            return FieldError(
                FindingCode.WRONG_TYPE, "the values of {field} must be strings; put numbers, true and false in quotes"
            )
        return None


@dataclass(frozen=True, slots=True)
class ListType(FieldType):
    """A list; its entries may need a name of their own."""

    entry: FieldType
    min_items: int = 0
    max_items: int | None = None
    key: str | None = None

    def find_error(self, value: object) -> FieldError | None:
        """Return what keeps it from being such a list, its entries aside."""
        if not isinstance(value, list):
            return FieldError(FindingCode.WRONG_TYPE, "{field} must be a list")
        if len(value) < self.min_items:
            return FieldError(FindingCode.TOO_FEW, "{field} needs at least one entry; add one")
        if self.max_items is not None and len(value) > self.max_items:
            return FieldError(FindingCode.TOO_MANY, f"{{field}} may have at most {self.max_items} entries; remove some")
        return None

    def parse(self, value: Any, path: str, found: list[Finding]) -> list[Any]:
        """Return the list with None for each entry that cannot be used, so that the others keep their index."""
        entries = [_parse_field(self.entry, entry, f"{path}[{index}]", found) for index, entry in enumerate(value)]
        seen = set()
        for index, entry in enumerate(entries):
            name = entry.get(self.key) if self.key and entry else None
            if name is not None and name in seen:
                sentence = f"two entries of {last_field(path)} have the same {self.key}; change one of them"
                found.append(Finding(f"{path}[{index}].{self.key}", FindingCode.DUPLICATE_NAME, sentence))
            seen.add(name)
        return entries


@dataclass(frozen=True, slots=True)
class ObjectType(FieldType):
    """An object with known fields among others."""

    fields: Mapping[str, FieldType] = field(default_factory=dict)
    required: tuple[str, ...] = ()

    def find_error(self, value: object) -> FieldError | None:
        """Return what keeps it from being an object, its fields aside."""
        return None if isinstance(value, dict) else FieldError(FindingCode.WRONG_TYPE, "{field} must be an object")

    def parse(self, value: Any, path: str, found: list[Finding]) -> dict[str, Any]:
        """Return the object with None for each known field that cannot be used."""
        # A known field with nothing behind its name counts as left out, as it does for the API server.
        usable = {name: member for name, member in value.items() if member is not None or name not in self.fields}
        for name, kind in self.fields.items():
            if name in usable or name in self.required:
                usable[name] = _parse_field(kind, value.get(name), _join_path(path, name), found)
        return usable


def parse_set(manifest: object) -> tuple[dict[str, Any], list[Finding]]:
    """Return the usable part of a PodCliqueSet with its defaults in place, and what is wrong with the rest."""
    # Nobody reads the status here, and it may be as long as the workload is large.
    without_status = {**manifest, "status": None} if isinstance(manifest, dict) else manifest
    found = _find_non_json(without_status)
    if found:
        return {}, found
    return _parse_field(SET_FIELDS, manifest, "", found) or {}, found


def is_integer(value: object) -> TypeGuard[int]:
    """Return whether a value is a whole number; true and false are none, though Python counts them in."""
    return isinstance(value, int) and not isinstance(value, bool)


def is_dns_label(text: str) -> bool:
    """Return whether a text is a label in the sense of DNS, which names of pods are made of."""
    return len(text) <= MAX_LABEL_LENGTH and _LABEL.fullmatch(text) is not None


def last_field(path: str) -> str:
    """Return the last field of a path."""
    return path.rpartition(".")[2]


def _parse_field(kind: FieldType, value: object, path: str, found: list[Finding]) -> Any:
    fault = (
        FieldError(FindingCode.FIELD_MISSING, "{field} is missing; add it") if value is None else kind.find_error(value)
    )
    if fault is None:
        return kind.parse(value, path, found)
    found.append(fault.to_finding(path))
    return None


def _join_path(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _find_non_json(manifest: object) -> list[Finding]:
    """Return a finding for what JSON cannot say or nobody can walk through; without recursion, for that very reason."""
    waiting: list[tuple[object, str, int]] = [(manifest, "", 0)]
    while waiting:
        value, path, depth = waiting.pop()
        if depth > MAX_DEPTH:
            return [Finding("", FindingCode.TOO_DEEP, f"the manifest nests deeper than {MAX_DEPTH} levels; flatten it")]
        if isinstance(value, dict) and all(isinstance(name, str) for name in value):
            waiting += [(member, _join_path(path, name), depth + 1) for name, member in value.items()]
        elif isinstance(value, list):
            waiting += [(entry, f"{path}[{index}]", depth + 1) for index, entry in enumerate(value)]
        elif fault := _find_scalar_error(value):
            return [fault.to_finding(path)]
    return []


def _find_scalar_error(value: object) -> FieldError | None:
    if value is None or isinstance(value, str):
        return None
    if isinstance(value, int):
        is_stored = abs(value) < _INTEGER_LIMIT
        return (
            None
            if is_stored
            else FieldError(FindingCode.OUT_OF_RANGE, "{field} is too large a number to store; lower it")
        )
    if isinstance(value, float) and math.isfinite(value):
        return None
    return FieldError(
        FindingCode.WRONG_TYPE, "{field} is not a JSON value; use a string, a number, a list or an object"
    )


ANY_OBJECT: Final = ObjectType()
_POSITIVE_INTEGER: Final = IntegerType(minimum=1)
_NAME: Final = PatternType(
    _LABEL,
    FieldError(
        FindingCode.INVALID_NAME,
        "{field} becomes part of pod names, so use only lower-case letters, digits and hyphens, with a letter or digit"
        " at both ends",
    ),
)
_SET_NAME: Final = PatternType(
    _LABEL,
    FieldError(
        FindingCode.INVALID_NAME,
        "the name of the set becomes part of pod and service names, so use only lower-case letters, digits and hyphens",
    ),
)
_TOPOLOGY_DOMAIN: Final = PatternType(
    _DOMAIN,
    FieldError(
        FindingCode.INVALID_DOMAIN,
        "{field} must be a topology domain such as rack: lower-case letters, digits and hyphens, a letter first",
    ),
)
BUDGET_FIELDS: Final = {
    "maxUnavailable": IntOrPercentType(
        100,
        FieldError(
            FindingCode.INVALID_BUDGET, '{field} must be a whole number, 0 or more, or a percentage from "0%" to "100%"'
        ),
    ),
    "maxSurge": IntOrPercentType(
        9999,
        FieldError(
            FindingCode.INVALID_BUDGET, '{field} must be a whole number, 0 or more, or a percentage such as "25%"'
        ),
    ),
}
_COMPONENT_STRATEGY: Final = ObjectType(BUDGET_FIELDS)
_CLIQUE_NAMES: Final = ListType(StringType(max_length=63), max_items=64)
_TOPOLOGY: Final = ObjectType(
    {
        "topologyName": StringType(max_length=253),
        "pack": ObjectType({"required": _TOPOLOGY_DOMAIN, "preferred": _TOPOLOGY_DOMAIN}),
        "packDomain": _TOPOLOGY_DOMAIN,
    }
)
_SHARING: Final = ListType(
    ObjectType(
        {
            "name": StringType(max_length=253),
            "namespace": StringType(max_length=63),
            "scope": StringType(choices=("AllReplicas", "PerReplica")),
            "filter": ObjectType({"childCliqueNames": _CLIQUE_NAMES, "childScalingGroupNames": _CLIQUE_NAMES}),
        },
        required=("name", "scope"),
    ),
    max_items=32,
)
_SCALING: Final = ObjectType(
    {"minReplicas": _POSITIVE_INTEGER, "maxReplicas": _POSITIVE_INTEGER, "metrics": ListType(ANY_OBJECT)},
    required=("maxReplicas",),
)
_NAMED: Final = ObjectType({"name": StringType(allow_empty=False)}, required=("name",))
_CONTAINER: Final = ObjectType(
    {
        "name": StringType(allow_empty=False),
        "image": StringType(),
        "env": ListType(_NAMED, key="name"),
        "volumeMounts": ListType(
            ObjectType({"mountPath": StringType(allow_empty=False)}, required=("mountPath",)), key="mountPath"
        ),
    },
    required=("name",),
)
_POD: Final = ObjectType(
    {
        "containers": ListType(_CONTAINER, min_items=1, key="name"),
        "initContainers": ListType(_CONTAINER, key="name"),
        "volumes": ListType(_NAMED, key="name"),
        "resourceClaims": ListType(_NAMED, key="name"),
        "schedulingGates": ListType(_NAMED, key="name"),
        "schedulerName": StringType(max_length=253),
        "nodeName": StringType(max_length=253),
        "priorityClassName": StringType(),
        "restartPolicy": StringType(choices=("Always", "OnFailure", "Never", "")),
        "terminationGracePeriodSeconds": IntegerType(minimum=0, maximum=2**63 - 1),
        "topologySpreadConstraints": ListType(ANY_OBJECT),
    },
    required=("containers",),
)
_CLIQUE: Final = ObjectType(
    {
        "name": _NAME,
        "labels": StringMapType(),
        "annotations": StringMapType(),
        "updateStrategy": _COMPONENT_STRATEGY,
        "topologyConstraint": _TOPOLOGY,
        "resourceSharing": _SHARING,
        "spec": ObjectType(
            {
                "roleName": StringType(max_length=253),
                "replicas": _POSITIVE_INTEGER,
                "minAvailable": _POSITIVE_INTEGER,
                "startsAfter": _CLIQUE_NAMES,
                "autoScalingConfig": _SCALING,
                "podSpec": _POD,
            },
            required=("podSpec",),
        ),
    },
    required=("name", "spec"),
)
_GROUP: Final = ObjectType(
    {
        "name": _NAME,
        "cliqueNames": ListType(StringType(max_length=63), min_items=1, max_items=64),
        "annotations": StringMapType(),
        "replicas": _POSITIVE_INTEGER,
        "minAvailable": _POSITIVE_INTEGER,
        "updateStrategy": _COMPONENT_STRATEGY,
        "scaleConfig": _SCALING,
        "resourceSharing": _SHARING,
        "topologyConstraint": _TOPOLOGY,
    },
    required=("name", "cliqueNames"),
)
_TEMPLATE: Final = ObjectType(
    {
        "cliques": ListType(_CLIQUE, min_items=1, max_items=64, key="name"),
        "cliqueStartupType": StringType(choices=tuple(StartupType)),
        "priorityClassName": StringType(),
        "headlessServiceConfig": ObjectType({"publishNotReadyAddresses": BooleanType()}),
        "topologyConstraint": _TOPOLOGY,
        "terminationDelay": DurationType(),
        "resourceClaimTemplates": ListType(
            ObjectType(
                {"name": StringType(max_length=253, allow_empty=False), "templateSpec": ANY_OBJECT},
                required=("name", "templateSpec"),
            ),
            max_items=64,
        ),
        "resourceSharing": _SHARING,
        "podCliqueScalingGroups": ListType(_GROUP, max_items=64, key="name"),
    },
    required=("cliques",),
)
_SPEC: Final = ObjectType(
    {
        "replicas": IntegerType(minimum=0),
        "updateStrategy": ObjectType(
            {
                "type": StringType(choices=tuple(Strategy)),
                "rollingUpdate": ObjectType({**BUDGET_FIELDS, "partition": IntegerType(minimum=0)}),
            }
        ),
        "paused": BooleanType(),
        "progressDeadlineSeconds": IntegerType(minimum=1),
        "revisionHistoryLimit": IntegerType(minimum=0),
        "template": _TEMPLATE,
    },
    required=("template",),
)
SET_FIELDS: Final = ObjectType(
    {
        "apiVersion": StringType(choices=("grove.io/v1alpha1",)),
        "kind": StringType(choices=("PodCliqueSet",)),
        "metadata": ObjectType(
            {
                "name": _SET_NAME,
                "namespace": StringType(),
                "uid": StringType(),
                "generation": IntegerType(minimum=0, maximum=2**63 - 1),
            },
            required=("name",),
        ),
        "spec": _SPEC,
    },
    required=("metadata", "spec"),
)
