"""Rules of pods: labels, annotations, containers, environment variables, and fields that conflict with gangs.

The API server checks the rest of a pod's spec when the controller creates the first pod.
"""

import re
from collections.abc import Iterator
from typing import Final

from rollouts.engine.manifest.field_types import MAX_LABEL_LENGTH, is_dns_label
from rollouts.engine.manifest.findings import Finding, FindingCode
from rollouts.engine.manifest.set_manifest import FieldValue, SetManifest

_MAX_PREFIX_LENGTH: Final = 253
_MAX_ANNOTATION_BYTES: Final = 256 * 1024
_LABEL_NAME: Final = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?")
_PREFIX: Final = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_ENV_NAME: Final = re.compile(r"[ -<>-~]+")
_RESERVED_PREFIX: Final = "grove.io/"


def check_pods(pcs: SetManifest) -> Iterator[Finding]:
    """Yield errors of the pods of the cliques."""
    for clique in pcs.cliques:
        yield from check_labels(clique["labels"])
        yield from _check_annotations(clique["annotations"])
        yield from _check_gang_compatibility(clique["spec"]["podSpec"])
        yield from _check_container_names(clique["spec"]["podSpec"])
    for group in pcs.groups:
        yield from _check_annotations(group["annotations"])
    yield from _check_single_scheduler(pcs)


def warn_about_pods(pcs: SetManifest) -> Iterator[Finding]:
    """Yield warnings about the pods of the cliques."""
    priority = pcs.template["priorityClassName"].value
    for clique in pcs.cliques:
        pod = clique["spec"]["podSpec"]
        restart, own_priority = pod["restartPolicy"], pod["priorityClassName"]
        if restart.value not in (None, "", "Always"):
            sentence = f"with restartPolicy {restart.value}, a pod may end and is not started again; set Always"
            yield restart.make_finding(FindingCode.RESTART_POLICY_NOT_ALWAYS, sentence)
        if priority and own_priority.value and own_priority.value != priority:
            sentence = "priorityClassName of the set overrides this one; remove one of them"
            yield own_priority.make_finding(FindingCode.PRIORITY_CLASS_OVERRIDDEN, sentence)
        if any(name.startswith(_RESERVED_PREFIX) for name in clique["labels"].value or ()):
            sentence = f"labels that start with {_RESERVED_PREFIX} are written by the controller; use another prefix"
            yield clique["labels"].make_finding(FindingCode.RESERVED_LABEL, sentence)


def _check_gang_compatibility(pod: FieldValue) -> Iterator[Finding]:
    if pod["nodeName"].value:
        sentence = "nodeName would bypass the gang scheduler; remove it and use nodeSelector or affinity"
        yield pod["nodeName"].make_finding(FindingCode.NODE_NAME_SET, sentence)
    if pod["topologySpreadConstraints"].value:
        sentence = (
            "topologySpreadConstraints work against packing a gang; remove them and use topologyConstraint of the"
            " clique"
        )
        yield pod["topologySpreadConstraints"].make_finding(FindingCode.SPREAD_CONSTRAINTS_SET, sentence)


def _check_single_scheduler(pcs: SetManifest) -> Iterator[Finding]:
    schedulers = [clique["spec"]["podSpec"]["schedulerName"] for clique in pcs.cliques]
    named = [scheduler for scheduler in schedulers if scheduler.value]
    other = next((scheduler for scheduler in named if scheduler.value != named[0].value), None)
    if other is not None:
        sentence = (
            "the pods of a set are placed as gangs by one scheduler; write the same podSpec.schedulerName for all"
            " cliques"
        )
        yield other.make_finding(FindingCode.SEVERAL_SCHEDULERS, sentence)


def _check_container_names(pod: FieldValue) -> Iterator[Finding]:
    before = {container["name"].value for container in pod["initContainers"]}
    for container in (*pod["initContainers"], *pod["containers"]):
        name = container["name"]
        if name.value and not is_dns_label(name.value):
            sentence = (
                "the name of a container may contain only lower-case letters, digits and hyphens, at most 63"
                " characters; rename it"
            )
            yield name.make_finding(FindingCode.INVALID_NAME, sentence)
        yield from _check_variable_names(container)
    for container in pod["containers"]:
        if container["name"].value and container["name"].value in before:
            sentence = "a container and an init container have the same name; rename one of them"
            yield container["name"].make_finding(FindingCode.DUPLICATE_NAME, sentence)


def _check_variable_names(container: FieldValue) -> Iterator[Finding]:
    for variable in container["env"]:
        if variable["name"].value and not _ENV_NAME.fullmatch(variable["name"].value):
            sentence = "an environment variable name may contain printable ASCII characters except =; rename it"
            yield variable["name"].make_finding(FindingCode.INVALID_ENV_NAME, sentence)


def check_labels(labels: FieldValue) -> Iterator[Finding]:
    """Yield the labels whose key or value is not valid."""
    yield from _check_keys(labels, FindingCode.INVALID_LABEL)
    for value in (labels.value or {}).values():
        if value and not _is_label_value(value):
            sentence = (
                f"{_shorten(value)} is not a valid label value; use letters, digits and -_. with a letter or digit"
                " at both ends, at most 63 characters"
            )
            yield labels.make_finding(FindingCode.INVALID_LABEL, sentence)


def _check_annotations(annotations: FieldValue) -> Iterator[Finding]:
    yield from _check_keys(annotations, FindingCode.INVALID_ANNOTATION)
    texts = (annotations.value or {}).items()
    if sum(len(text.encode("utf-8", "replace")) for member in texts for text in member) > _MAX_ANNOTATION_BYTES:
        sentence = "annotations may have at most 256 KiB together; shorten or remove some"
        yield annotations.make_finding(FindingCode.TOO_LONG, sentence)


def _check_keys(texts: FieldValue, code: FindingCode) -> Iterator[Finding]:
    for key in texts.value or ():
        prefix, slash, name = key.rpartition("/")
        is_prefix = len(prefix) <= _MAX_PREFIX_LENGTH and _PREFIX.fullmatch(prefix)
        if not _is_label_value(name) or (slash and not is_prefix):
            sentence = (
                f"{_shorten(key)} is not a valid key; use name or prefix/name: the name has at most 63 letters, digits"
                " and -_. with a letter or digit at both ends, the prefix is a DNS domain in lower case"
            )
            yield texts.make_finding(code, sentence)


def _is_label_value(text: str) -> bool:
    return len(text) <= MAX_LABEL_LENGTH and _LABEL_NAME.fullmatch(text) is not None


def _shorten(text: str) -> str:
    return repr(text if len(text) <= MAX_LABEL_LENGTH else f"{text[:MAX_LABEL_LENGTH]}…")
