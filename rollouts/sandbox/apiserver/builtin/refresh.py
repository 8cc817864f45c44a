"""Rewrites the built-in kinds' schemas from the OpenAPI documents of a real API server.

A developer runs it when the pinned Kubernetes version changes; the running sandbox does not use it:

    kubectl get --raw /openapi/v3/api/v1 | python -m rollouts.sandbox.apiserver.builtin.refresh v1

Each YAML file beside this module is a CustomResourceDefinition. The tool keeps its head (names, scope, subresources,
columns), which is written by hand, and replaces its schema. Descriptions are left out; types, list and map types, merge
keys and defaults stay. Definitions that occur more than once become YAML anchors, which keeps the files readable.
"""

import json
import sys
from pathlib import Path
from typing import Any

import yaml

HERE = Path(__file__).parent
KEPT = ("type", "format", "enum", "required", "nullable")
PREFIX = "#/components/schemas/"
OPAQUE = {"CustomResourceDefinitionSpec", "CustomResourceDefinitionStatus", "FieldsV1", "RawExtension"}
ZERO_VALUES: tuple[Any, ...] = ("", 0, False, {}, [])
# Defaults in the real server's code that its OpenAPI documents lack: definition → field → value.
CODED_DEFAULTS: dict[str, dict[str, Any]] = {
    "PodSpec": {
        "restartPolicy": "Always",
        "terminationGracePeriodSeconds": 30,
        "dnsPolicy": "ClusterFirst",
        "securityContext": {},
        "schedulerName": "default-scheduler",
        "enableServiceLinks": True,
    },
    "Container": {
        "terminationMessagePath": "/dev/termination-log",
        "terminationMessagePolicy": "File",
        "resources": {},
    },
    "Probe": {"timeoutSeconds": 1, "periodSeconds": 10, "successThreshold": 1, "failureThreshold": 3},
    "HTTPGetAction": {"path": "/", "scheme": "HTTP"},
    "ConfigMapVolumeSource": {"defaultMode": 420},
    "SecretVolumeSource": {"defaultMode": 420},
    "ProjectedVolumeSource": {"defaultMode": 420},
    "DownwardAPIVolumeSource": {"defaultMode": 420},
    "HostPathVolumeSource": {"type": ""},
    "ObjectFieldSelector": {"apiVersion": "v1"},
    "ServiceAccountTokenProjection": {"expirationSeconds": 3600},
    "ServiceSpec": {"type": "ClusterIP", "sessionAffinity": "None", "internalTrafficPolicy": "Cluster"},
    "Secret": {"type": "Opaque"},
    "HorizontalPodAutoscalerSpec": {"minReplicas": 1},
    "PriorityClass": {"preemptionPolicy": "PreemptLowerPriority"},
    "Pod": {"spec": {}},
    "Service": {"spec": {}},
    "PodCondition": {"lastProbeTime": None, "lastTransitionTime": None},
}
# Where the real server's errors list the values in another order than its OpenAPI documents.
CODED_ENUMS: dict[str, dict[str, list[str]]] = {"PodSpec": {"restartPolicy": ["Always", "OnFailure", "Never"]}}
CODED_DEFAULTS["EphemeralContainer"] = CODED_DEFAULTS["Container"]


class Converter:
    """Turns one OpenAPI document's definitions into structural schemas, each definition once."""

    def __init__(self, document: dict[str, Any]) -> None:
        self.definitions: dict[str, Any] = document["components"]["schemas"]
        self.converted: dict[str, dict[str, Any]] = {}

    def definition(self, name: str) -> dict[str, Any]:
        """Convert a named definition; return the same object for each use, so that YAML can share it."""
        if name not in self.converted:
            short = name.rsplit(".", 1)[-1]
            self.converted[name] = self._special(short) or self._object(self.definitions[name], short)
        return self.converted[name]

    def _special(self, short: str) -> dict[str, Any] | None:
        if short in OPAQUE:
            return {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
        if short in {"Quantity", "IntOrString"}:
            form = {"format": "quantity"} if short == "Quantity" else {}
            return {"x-kubernetes-int-or-string": True, **form}
        if short in {"Time", "MicroTime"}:
            return {"type": "string", "format": "date-time", "nullable": True}
        return None

    def _object(self, source: dict[str, Any], short: str) -> dict[str, Any]:
        result = {key: source[key] for key in KEPT if key in source}
        result |= {key: value for key, value in source.items() if key.startswith("x-kubernetes-")}
        result.pop("x-kubernetes-group-version-kind", None)
        result.pop("x-kubernetes-unions", None)
        if "properties" in source:
            result["properties"] = {
                name: self._property(child, short, name) for name, child in source["properties"].items()
            }
            self._zero_filled(result, source, short)
        for key in ("items", "additionalProperties"):
            if key in source:
                result[key] = self._property(source[key], short, "")
        return result

    def _property(self, source: dict[str, Any], owner: str, name: str) -> dict[str, Any]:
        reference = source.get("$ref") or next((part["$ref"] for part in source.get("allOf", [])), None)
        base = self.definition(reference.removeprefix(PREFIX)) if reference else self._object(source, "")
        default = CODED_DEFAULTS.get(owner, {}).get(name, source.get("default"))
        extras = {k: v for k, v in source.items() if reference and k.startswith("x-kubernetes-")}
        coded = name in CODED_DEFAULTS.get(owner, {})
        if name in CODED_ENUMS.get(owner, {}):
            extras["enum"] = CODED_ENUMS[owner][name]
        if coded or (default is not None and default not in ZERO_VALUES):
            extras["default"] = default
        return {**base, **extras} if extras else base

    def _zero_filled(self, result: dict[str, Any], source: dict[str, Any], short: str) -> None:
        """Give required fields of a status their zero values as defaults, as the real server writes them."""
        if not short.endswith(("Status", "Condition", "Statuses")) or "required" not in result:
            return
        for name in result.pop("required"):
            zero = source["properties"][name].get("default")
            if zero is not None and zero != {}:
                result["properties"][name] = {**result["properties"][name], "default": zero}


def convert_kind(converter: Converter, group: str, version: str, kind: str) -> dict[str, Any]:
    """Return the schema of one kind in the form of its file."""
    named = {"group": group, "version": version, "kind": kind}
    found = converter.definitions.items()
    name = next(key for key, value in found if named in value.get("x-kubernetes-group-version-kind", []))
    schema = dict(converter.definition(name))
    schema["properties"] = {
        key: {"type": "object"} if key == "metadata" else value for key, value in schema["properties"].items()
    }
    return schema


def rewrite_file(path: Path, converter: Converter, group_version: str) -> None:
    """Replace the schema in one file, if it is of that group and version; write leaves on one line."""
    manifest = yaml.safe_load(path.read_text())
    spec = manifest["spec"]
    group, _, version = group_version.rpartition("/")
    entry = next((one for one in spec["versions"] if one["name"] == version), None)
    if entry is None or group != (spec["group"] or ""):
        return
    entry["schema"] = {"openAPIV3Schema": convert_kind(converter, group, version, spec["names"]["kind"])}
    head = "".join(line for line in path.read_text().splitlines(True) if line.startswith("#"))
    body = yaml.safe_dump(manifest, sort_keys=False, default_flow_style=None, width=115)
    path.write_text(head + body)


def main() -> None:
    """Read an OpenAPI document of the named group version from standard input."""
    version = sys.argv[1]
    converter = Converter(json.load(sys.stdin))
    for path in sorted(HERE.glob("*.yaml")):
        rewrite_file(path, converter, version)


if __name__ == "__main__":
    main()
