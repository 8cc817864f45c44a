"""The fields of a PodCliqueSet and what each may hold, checked one by one.

Takes any value, with its defaults in place (`defaults`). Returns it with None in place of each unusable part, and a
finding for each. So the next steps (`validation`, `parsing`) meet only values of the right type and range, or None, and
report no mistake twice. The definitions in `deploy/crds` state the same for the API server. Fields that are not listed
here are kept as they are.
"""

import math
import re
from typing import Any, Final

from rollouts.engine.manifest.field_types import (
    LABEL_PATTERN,
    BooleanType,
    DurationType,
    FieldError,
    IntegerType,
    IntOrPercentType,
    ListType,
    ObjectType,
    PatternType,
    StringMapType,
    StringType,
    join_path,
    parse_field,
)
from rollouts.engine.manifest.findings import Finding, FindingCode
from rollouts.engine.model.workload import StartupType, Strategy

# The deepest field of a pod's spec is about 20 levels down; a far deeper manifest is an attack on every recursive
# function that reads it.
MAX_DEPTH: Final = 64
# The API server stores whole numbers in 64 bits.
_INTEGER_LIMIT: Final = 2**64

_DOMAIN: Final = re.compile(r"[a-z][a-z0-9-]*")


def parse_set(manifest: object) -> tuple[dict[str, Any], list[Finding]]:
    """Return the usable part of a PodCliqueSet with its defaults in place, and what is wrong with the rest."""
    # The rules do not read the status, which grows with the workload.
    without_status = {**manifest, "status": None} if isinstance(manifest, dict) else manifest
    found = _find_non_json(without_status)
    if found:
        return {}, found
    return parse_field(SET_FIELDS, manifest, "", found) or {}, found


def _find_non_json(manifest: object) -> list[Finding]:
    """Return a finding for a part that is no JSON or nests too deep; without recursion, since the depth is unknown."""
    waiting: list[tuple[object, str, int]] = [(manifest, "", 0)]
    while waiting:
        value, path, depth = waiting.pop()
        if depth > MAX_DEPTH:
            return [Finding("", FindingCode.TOO_DEEP, f"the manifest nests deeper than {MAX_DEPTH} levels; flatten it")]
        if isinstance(value, dict) and all(isinstance(name, str) for name in value):
            waiting += [(member, join_path(path, name), depth + 1) for name, member in value.items()]
        elif isinstance(value, list):
            waiting += [(entry, f"{path}[{index}]", depth + 1) for index, entry in enumerate(value)]
        elif error := _find_scalar_error(value):
            return [error.to_finding(path)]
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
    LABEL_PATTERN,
    FieldError(
        FindingCode.INVALID_NAME,
        "{field} becomes part of pod names, so use only lower-case letters, digits and hyphens, with a letter or digit"
        " at both ends",
    ),
)
_SET_NAME: Final = PatternType(
    LABEL_PATTERN,
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
