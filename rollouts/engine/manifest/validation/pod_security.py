"""The Pod Security Standards of Kubernetes: which access to their node the pods of a set may ask for.

Three levels: `privileged` allows everything, `baseline` forbids known privilege escalations, `restricted` forbids more.
The controls are those of the package `pod-security-admission` of Kubernetes 1.37. The rules of admission do not use
this module, because the level depends on the user: the services do (`services.pod_security`), with the template before
and after the change.

A violation is identified by clique, container, field and value. So it stays the same violation when its container gets
another image or another position in the list, and is a new one in another container or with another value. The
invariant: these functions never raise.
"""

import itertools
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from typing import Any, Final

from rollouts.engine.manifest.findings import Finding, FindingCode, ValidationReport
from rollouts.engine.manifest.schema import parse_set
from rollouts.engine.manifest.set_manifest import FieldValue, SetManifest


class PodSecurityLevel(StrEnum):
    """The levels of the Pod Security Standards, the most permissive first."""

    PRIVILEGED = "privileged"
    BASELINE = "baseline"
    RESTRICTED = "restricted"


CONTAINERS: Final = ("initContainers", "containers", "ephemeralContainers")

_HOST_NAMESPACES: Final = ("hostNetwork", "hostPID", "hostIPC")
_CAPABILITIES: Final = frozenset(
    {
        *("AUDIT_WRITE", "CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "KILL", "MKNOD", "NET_BIND_SERVICE", "SETFCAP"),
        *("SETGID", "SETPCAP", "SETUID", "SYS_CHROOT"),
    }
)
_RESTRICTED_CAPABILITIES: Final = frozenset({"NET_BIND_SERVICE"})
_SELINUX_TYPES: Final = ("container_t", "container_init_t", "container_kvm_t", "container_engine_t")
_PROFILES: Final = ("RuntimeDefault", "Localhost")
_SYSCTLS: Final = frozenset(
    {
        *("kernel.shm_rmid_forced", "net.ipv4.ip_local_port_range", "net.ipv4.tcp_syncookies"),
        *("net.ipv4.ping_group_range", "net.ipv4.ip_unprivileged_port_start", "net.ipv4.ip_local_reserved_ports"),
        *("net.ipv4.tcp_keepalive_time", "net.ipv4.tcp_fin_timeout", "net.ipv4.tcp_keepalive_intvl"),
        *("net.ipv4.tcp_keepalive_probes", "net.ipv4.tcp_rmem", "net.ipv4.tcp_wmem"),
        *("net.ipv4.tcp_slow_start_after_idle", "net.ipv4.tcp_notsent_lowat"),
    }
)
_VOLUMES: Final = frozenset(
    {
        *("configMap", "csi", "downwardAPI", "emptyDir", "ephemeral", "image", "persistentVolumeClaim", "projected"),
        "secret",
    }
)
_APPARMOR_ANNOTATION: Final = "container.apparmor.security.beta.kubernetes.io/"
# Kubernetes before 1.27 copies these into the fields of a new pod; later versions ignore them.
_SECCOMP_ANNOTATIONS: Final = (
    "seccomp.security.alpha.kubernetes.io/pod",
    "container.seccomp.security.alpha.kubernetes.io/",
)


@dataclass(frozen=True, slots=True)
class Violation:
    """A field of a set that a level forbids."""

    field: FieldValue
    key: tuple[str, ...]  # identifies it, whatever its position in a list
    requirement: str  # the sentence that says how to fix it

    def to_finding(self, level: PodSecurityLevel) -> Finding:
        """Return this as a finding about a level."""
        sentence = f"the Pod Security level {level} applies here: {self.requirement}"
        return self.field.make_finding(FindingCode.POD_SECURITY, sentence)


def find_violations(manifest: object, level: PodSecurityLevel) -> Iterator[Violation]:
    """Yield the violations of a level in the pods of a set."""
    if level is PodSecurityLevel.PRIVILEGED:
        return
    controls = _BASELINE if level is PodSecurityLevel.BASELINE else _RESTRICTED
    pcs = SetManifest(parse_set(manifest)[0])
    for clique in pcs.cliques:
        pod = _Pod.of(clique)
        for control in controls:
            yield from control(pod)


def find_added_violations(
    before: object, after: object, level: PodSecurityLevel, limit: int | None = None
) -> tuple[Finding, ...]:
    """Return the violations of a level that a change adds to a set, at most `limit`; a short list may stand for many.

    A manifest of one megabyte can have a hundred thousand violations, so the search ends with the limit.
    """
    known = {one.key for one in find_violations(before, level)}
    added = (one for one in find_violations(after, level) if one.key not in known)
    return ValidationReport.of(one.to_finding(level) for one in itertools.islice(added, limit)).errors


# ---- what the controls read


@dataclass(frozen=True, slots=True)
class _PodOrContainer:
    """A pod or one of its containers, with the names that identify it."""

    fields: FieldValue
    names: tuple[str, ...]

    @property
    def context(self) -> FieldValue:
        """The security context."""
        return self.fields["securityContext"]

    def make_violation(self, at: FieldValue, field: str, allowed: str, value: Any = None) -> Violation:
        """Return a violation at a field; the value distinguishes violations of the same field."""
        return Violation(
            at, (*self.names, field, json.dumps(at.value if value is None else value, sort_keys=True)), allowed
        )


@dataclass(frozen=True, slots=True)
class _Pod(_PodOrContainer):
    """The pod of a clique."""

    annotations: FieldValue
    containers: tuple[_PodOrContainer, ...]

    @classmethod
    def of(cls, clique: FieldValue) -> "_Pod":
        """Return the pod that a clique describes."""
        pod, name = clique["spec"]["podSpec"], str(clique["name"].value)
        containers = tuple(
            _PodOrContainer(container, (name, kind, str(container["name"].value)))
            for kind in CONTAINERS
            for container in pod[kind]
        )
        return cls(pod, (name,), clique["annotations"], containers)

    @property
    def subjects(self) -> "tuple[_PodOrContainer, ...]":
        """The pod and its containers, which all have a security context."""
        return (self, *self.containers)

    @property
    def is_windows(self) -> bool:
        """Whether the pod runs on Windows, where some fields are forbidden."""
        return bool(self.fields["os"]["name"].value == "windows")

    @property
    def is_in_user_namespace(self) -> bool:
        """Whether root in the pod is not root on the node."""
        return self.fields["hostUsers"].value is False


_Control = Callable[[_Pod], Iterator[Violation]]


def _is_enabled(flag: FieldValue) -> bool:
    # Any other value counts as true, to be safe; the API server refuses it later.
    return flag.value is not None and flag.value is not False


@lru_cache
def _list_names(names: frozenset[str]) -> str:
    return ", ".join(sorted(names))


# ---- baseline


def _host_namespaces(pod: _Pod) -> Iterator[Violation]:
    for name in _HOST_NAMESPACES:
        if _is_enabled(pod.fields[name]):
            yield pod.make_violation(pod.fields[name], name, f"{name} may not be true; remove it")


def _host_process(pod: _Pod) -> Iterator[Violation]:
    for part in pod.subjects:
        flag = part.context["windowsOptions"]["hostProcess"]
        if _is_enabled(flag):
            yield part.make_violation(flag, "hostProcess", "hostProcess may not be true; remove it")


def _privileged(pod: _Pod) -> Iterator[Violation]:
    for part in pod.containers:
        if _is_enabled(part.context["privileged"]):
            yield part.make_violation(part.context["privileged"], "privileged", "privileged may not be true; remove it")


def _capabilities_baseline(pod: _Pod) -> Iterator[Violation]:
    yield from _added_capabilities(pod, _CAPABILITIES)


def _added_capabilities(pod: _Pod, allowed: frozenset[str]) -> Iterator[Violation]:
    sentence = f"only these capabilities may be added: {_list_names(allowed)}; remove the others"
    for part in pod.containers:
        for capability in part.context["capabilities"]["add"]:
            if not isinstance(capability.value, str) or capability.value not in allowed:
                yield part.make_violation(capability, "capabilities.add", sentence)


def _host_paths(pod: _Pod) -> Iterator[Violation]:
    for volume in pod.fields["volumes"]:
        if volume["hostPath"].value is not None:
            sentence = "a volume may not be a hostPath; use another kind of volume"
            yield pod.make_violation(volume["hostPath"], f"volumes.{volume['name'].value}.hostPath", sentence)


def _host_ports(pod: _Pod) -> Iterator[Violation]:
    for part in pod.containers:
        for port in part.fields["ports"]:
            if port["hostPort"].value not in (None, 0):
                sentence = "a container may not have a hostPort; remove it and use a Service"
                yield part.make_violation(port["hostPort"], "hostPort", sentence)


def _host_probes(pod: _Pod) -> Iterator[Violation]:
    for part in pod.containers:
        container, lifecycle = part.fields, part.fields["lifecycle"]
        probes = [container[name] for name in ("livenessProbe", "readinessProbe", "startupProbe")]
        for handler in (*probes, lifecycle["postStart"], lifecycle["preStop"]):
            for host in (handler["httpGet"]["host"], handler["tcpSocket"]["host"]):
                if host.value not in (None, ""):
                    sentence = (
                        "probes and lifecycle hooks may not name a host, since they go to the pod itself; remove it"
                    )
                    yield part.make_violation(host, handler.path.rpartition(".")[2], sentence)


def _apparmor(pod: _Pod) -> Iterator[Violation]:
    for part in pod.subjects:
        yield from _profile(part, "appArmorProfile")
    for name, value in (pod.annotations.value or {}).items():
        if (
            name.startswith(_APPARMOR_ANNOTATION)
            and value not in ("", "runtime/default")
            and not value.startswith("localhost/")
        ):
            sentence = f"{name} must be runtime/default or localhost/<profile>; remove it"
            yield pod.make_violation(pod.annotations, name, sentence, value)


def _selinux(pod: _Pod) -> Iterator[Violation]:
    for part in pod.subjects:
        options = part.context["seLinuxOptions"]
        if options["type"].value not in (None, "", *_SELINUX_TYPES):
            sentence = f"type must be one of {', '.join(_SELINUX_TYPES)}, or be left out"
            yield part.make_violation(options["type"], "seLinuxOptions.type", sentence)
        for name in ("user", "role"):
            if options[name].value not in (None, ""):
                sentence = f"seLinuxOptions may have no {name}; remove it"
                yield part.make_violation(options[name], f"seLinuxOptions.{name}", sentence)


def _proc_mount_baseline(pod: _Pod) -> Iterator[Violation]:
    if not pod.is_in_user_namespace:
        yield from _proc_mount_restricted(pod)


def _proc_mount_restricted(pod: _Pod) -> Iterator[Violation]:
    for part in pod.containers:
        mount = part.context["procMount"]
        if mount.value not in (None, "Default"):
            yield part.make_violation(mount, "procMount", "procMount must be Default, or be left out")


def _seccomp_baseline(pod: _Pod) -> Iterator[Violation]:
    for part in pod.subjects:
        yield from _profile(part, "seccompProfile")
    for name, value in (pod.annotations.value or {}).items():
        is_known = value in ("", "runtime/default", "docker/default") or value.startswith("localhost/")
        if name.startswith(_SECCOMP_ANNOTATIONS) and not is_known:
            yield pod.make_violation(pod.annotations, name, f"{name} must be runtime/default; remove it", value)


def _profile(part: _PodOrContainer, name: str) -> Iterator[Violation]:
    profile = part.context[name]
    if profile.value is not None and profile["type"].value not in _PROFILES:
        sentence = f"the type of {name} must be RuntimeDefault or Localhost; correct it, or leave {name} out"
        yield part.make_violation(profile["type"], name, sentence)


def _sysctls(pod: _Pod) -> Iterator[Violation]:
    for sysctl in pod.context["sysctls"]:
        name = sysctl["name"].value
        if not isinstance(name, str) or name not in _SYSCTLS:
            sentence = "this sysctl is not among those that are safe for other pods of the node; remove it"
            yield pod.make_violation(sysctl["name"], "sysctls", sentence, sysctl.value)


# ---- restricted


def _volumes_restricted(pod: _Pod) -> Iterator[Violation]:
    sentence = f"a volume must be one of {_list_names(_VOLUMES)}; use one of these"
    for volume in pod.fields["volumes"]:
        fields = volume.value if isinstance(volume.value, dict) else {}
        for kind in fields:
            # A volume of no kind is an emptyDir.
            if kind not in ("name", *_VOLUMES) and volume[kind].value is not None:
                yield pod.make_violation(volume[kind], f"volumes.{volume['name'].value}.{kind}", sentence)


def _allow_privilege_escalation(pod: _Pod) -> Iterator[Violation]:
    for part in () if pod.is_windows else pod.containers:
        flag = part.context["allowPrivilegeEscalation"]
        if flag.value is not False:
            sentence = "allowPrivilegeEscalation must be false; set it"
            yield part.make_violation(flag, "allowPrivilegeEscalation", sentence)


def _run_as_non_root(pod: _Pod) -> Iterator[Violation]:
    if pod.is_in_user_namespace:
        return
    sentence = "runAsNonRoot must be true, for the pod or for each container; set it"
    of_pod = pod.context["runAsNonRoot"]
    if of_pod.value not in (None, True):
        yield pod.make_violation(of_pod, "runAsNonRoot", sentence)
    for part in pod.containers:
        flag = part.context["runAsNonRoot"]
        if flag.value is not True and not (flag.value is None and of_pod.value is True):
            yield part.make_violation(flag, "runAsNonRoot", sentence)


def _run_as_user(pod: _Pod) -> Iterator[Violation]:
    for part in () if pod.is_in_user_namespace else pod.subjects:
        user = part.context["runAsUser"]
        if user.value is not None and user.value == 0:
            yield part.make_violation(user, "runAsUser", "runAsUser may not be 0; set another, or remove it")


def _seccomp_restricted(pod: _Pod) -> Iterator[Violation]:
    yield from _seccomp_baseline(pod)
    if pod.is_windows or pod.context["seccompProfile"]["type"].value in _PROFILES:
        return
    for part in pod.containers:
        profile = part.context["seccompProfile"]
        if profile.value is None:
            sentence = "the type of seccompProfile must be RuntimeDefault or Localhost, for the pod or each container"
            yield part.make_violation(profile, "seccompProfile", f"{sentence}; set it")


def _capabilities_restricted(pod: _Pod) -> Iterator[Violation]:
    if pod.is_windows:
        return
    for part in pod.containers:
        dropped = part.context["capabilities"]["drop"]
        if not any(capability.value == "ALL" for capability in dropped):
            yield part.make_violation(dropped, "capabilities.drop", "drop must contain ALL; add it")
    yield from _added_capabilities(pod, _RESTRICTED_CAPABILITIES)


_COMMON: Final[tuple[_Control, ...]] = (
    *(_host_namespaces, _host_process, _privileged, _host_ports, _host_probes, _apparmor, _selinux, _sysctls),
)
_BASELINE: Final[tuple[_Control, ...]] = (
    *_COMMON,
    _capabilities_baseline,
    _host_paths,
    _proc_mount_baseline,
    _seccomp_baseline,
)
_RESTRICTED: Final[tuple[_Control, ...]] = (
    *_COMMON,
    *(_capabilities_restricted, _volumes_restricted, _proc_mount_restricted, _seccomp_restricted),
    *(_allow_privilege_escalation, _run_as_non_root, _run_as_user),
)
