"""The Pod Security Standards, control by control: what each level forbids and allows, and what a change adds.

Each case has a forbidden and an allowed value of the same field.
"""

import copy
from typing import Any, Final

import pytest
from hypothesis import given

from rollouts.engine.manifest.findings import FindingCode
from rollouts.engine.manifest.validation import pod_security, validate_create, validate_update
from rollouts.engine.manifest.validation.pod_security import (
    CONTAINERS,
    PodSecurityLevel,
    find_added_violations,
    find_violations,
)
from tests.deploy.manifests import REMOVED, Edits, edited
from tests.engine.manifests import JSON, complete, damaged, small

BASELINE, RESTRICTED, PRIVILEGED = PodSecurityLevel.BASELINE, PodSecurityLevel.RESTRICTED, PodSecurityLevel.PRIVILEGED
FRONTEND: Final = "spec.template.cliques.0"
POD: Final = f"{FRONTEND}.spec.podSpec"
MAIN: Final = f"{POD}.containers.0"
PATH_OF_POD: Final = "spec.template.cliques[0].spec.podSpec"
PATH_OF_MAIN: Final = f"{PATH_OF_POD}.containers[0]"
APPARMOR: Final = "container.apparmor.security.beta.kubernetes.io/main"
SECCOMP: Final = "seccomp.security.alpha.kubernetes.io/pod"


def _handler(kind: str, host: str) -> dict[str, Any]:
    return {kind: {"host": host, "port": 80}}


# By control: the field, a value that baseline forbids, one that it allows, and where in the value the finding points.
BASELINE_CONTROLS: dict[str, tuple[str, Any, Any, str]] = {
    "hostNetwork": (f"{POD}.hostNetwork", True, False, f"{PATH_OF_POD}.hostNetwork"),
    "hostPID": (f"{POD}.hostPID", True, False, f"{PATH_OF_POD}.hostPID"),
    "hostIPC": (f"{POD}.hostIPC", True, False, f"{PATH_OF_POD}.hostIPC"),
    "hostProcess of the pod": (
        *(f"{POD}.securityContext.windowsOptions.hostProcess", True, False),
        f"{PATH_OF_POD}.securityContext.windowsOptions.hostProcess",
    ),
    "hostProcess of a container": (
        *(f"{MAIN}.securityContext.windowsOptions.hostProcess", True, False),
        f"{PATH_OF_MAIN}.securityContext.windowsOptions.hostProcess",
    ),
    "privileged": (f"{MAIN}.securityContext.privileged", True, False, f"{PATH_OF_MAIN}.securityContext.privileged"),
    "capabilities": (
        *(f"{MAIN}.securityContext.capabilities.add", ["CHOWN", "SYS_ADMIN"], ["CHOWN", "KILL"]),
        f"{PATH_OF_MAIN}.securityContext.capabilities.add[1]",
    ),
    "all capabilities": (
        *(f"{MAIN}.securityContext.capabilities.add", ["ALL"], []),
        f"{PATH_OF_MAIN}.securityContext.capabilities.add[0]",
    ),
    "hostPath": (
        *(f"{POD}.volumes", [{"name": "root", "hostPath": {"path": "/"}}], [{"name": "root", "emptyDir": {}}]),
        f"{PATH_OF_POD}.volumes[0].hostPath",
    ),
    "hostPort": (
        *(f"{MAIN}.ports", [{"containerPort": 80, "hostPort": 80}], [{"containerPort": 80, "hostPort": 0}]),
        f"{PATH_OF_MAIN}.ports[0].hostPort",
    ),
    **{
        f"{kind} of {probe}": (
            *(f"{MAIN}.{probe}", _handler(kind, "10.0.0.1"), _handler(kind, "")),
            f"{PATH_OF_MAIN}.{probe}.{kind}.host",
        )
        for kind in ("httpGet", "tcpSocket")
        for probe in ("livenessProbe", "readinessProbe", "startupProbe", "lifecycle.postStart", "lifecycle.preStop")
    },
    **{
        f"{profile} of {whom}": (
            *(f"{where}.securityContext.{profile}", {"type": "Unconfined"}, {"type": "RuntimeDefault"}),
            f"{path}.securityContext.{profile}.type",
        )
        for profile in ("appArmorProfile", "seccompProfile")
        for whom, where, path in (("the pod", POD, PATH_OF_POD), ("a container", MAIN, PATH_OF_MAIN))
    },
    "AppArmor by annotation": (
        *(f"{FRONTEND}.annotations", {APPARMOR: "unconfined"}, {APPARMOR: "localhost/mine"}),
        "spec.template.cliques[0].annotations",
    ),
    "seccomp by annotation": (
        *(f"{FRONTEND}.annotations", {SECCOMP: "unconfined"}, {SECCOMP: "runtime/default"}),
        "spec.template.cliques[0].annotations",
    ),
    "type of SELinux": (
        *(f"{POD}.securityContext.seLinuxOptions", {"type": "spc_t"}, {"type": "container_t"}),
        f"{PATH_OF_POD}.securityContext.seLinuxOptions.type",
    ),
    "user of SELinux": (
        *(f"{MAIN}.securityContext.seLinuxOptions", {"user": "root"}, {"level": "s0:c1"}),
        f"{PATH_OF_MAIN}.securityContext.seLinuxOptions.user",
    ),
    "role of SELinux": (
        *(f"{MAIN}.securityContext.seLinuxOptions", {"role": "sysadm_r"}, {"role": ""}),
        f"{PATH_OF_MAIN}.securityContext.seLinuxOptions.role",
    ),
    "procMount": (
        *(f"{MAIN}.securityContext.procMount", "Unmasked", "Default"),
        f"{PATH_OF_MAIN}.securityContext.procMount",
    ),
    "sysctls": (
        f"{POD}.securityContext.sysctls",
        [{"name": "kernel.msgmax", "value": "65536"}],
        [{"name": "net.ipv4.tcp_syncookies", "value": "1"}],
        f"{PATH_OF_POD}.securityContext.sysctls[0].name",
    ),
}

HARDENED: Final[Edits] = {
    f"{POD}.securityContext": {"runAsNonRoot": True, "runAsUser": 1000, "seccompProfile": {"type": "RuntimeDefault"}},
    f"{MAIN}.securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
}
"""What makes the pods of the first clique restricted."""

# What restricted forbids besides, as an edit of a pod that is as it wants it.
RESTRICTED_CONTROLS: dict[str, tuple[Edits, str]] = {
    "escalation left out": (
        {f"{MAIN}.securityContext.allowPrivilegeEscalation": REMOVED},
        f"{PATH_OF_MAIN}.securityContext.allowPrivilegeEscalation",
    ),
    "escalation": (
        {f"{MAIN}.securityContext.allowPrivilegeEscalation": True},
        f"{PATH_OF_MAIN}.securityContext.allowPrivilegeEscalation",
    ),
    "capabilities kept": (
        {f"{MAIN}.securityContext.capabilities.drop": ["NET_RAW"]},
        f"{PATH_OF_MAIN}.securityContext.capabilities.drop",
    ),
    "a capability that baseline allows": (
        {f"{MAIN}.securityContext.capabilities.add": ["NET_BIND_SERVICE", "CHOWN"]},
        f"{PATH_OF_MAIN}.securityContext.capabilities.add[1]",
    ),
    "root left open": (
        {f"{POD}.securityContext.runAsNonRoot": REMOVED},
        f"{PATH_OF_MAIN}.securityContext.runAsNonRoot",
    ),
    "root in a container": (
        {f"{MAIN}.securityContext.runAsNonRoot": False},
        f"{PATH_OF_MAIN}.securityContext.runAsNonRoot",
    ),
    "user 0 of the pod": ({f"{POD}.securityContext.runAsUser": 0}, f"{PATH_OF_POD}.securityContext.runAsUser"),
    "user 0 of a container": ({f"{MAIN}.securityContext.runAsUser": 0}, f"{PATH_OF_MAIN}.securityContext.runAsUser"),
    "seccomp left out": (
        {f"{POD}.securityContext.seccompProfile": REMOVED},
        f"{PATH_OF_MAIN}.securityContext.seccompProfile",
    ),
    "a volume of another kind": (
        {f"{POD}.volumes": [{"name": "share", "nfs": {"server": "files", "path": "/"}}]},
        f"{PATH_OF_POD}.volumes[0].nfs",
    ),
    "procMount in a user namespace": (
        {f"{POD}.hostUsers": False, f"{MAIN}.securityContext.procMount": "Unmasked"},
        f"{PATH_OF_MAIN}.securityContext.procMount",
    ),
}


def fields(manifest: object, level: PodSecurityLevel) -> list[str]:
    """Return which fields of the first clique a level forbids."""
    found = [one.to_finding(level) for one in find_violations(manifest, level)]
    return [one.field for one in found if one.field.startswith("spec.template.cliques[0]")]


@pytest.mark.parametrize("control", BASELINE_CONTROLS)
def test_baseline_forbids_what_leads_to_the_node(control: str) -> None:
    field, forbidden, allowed, at = BASELINE_CONTROLS[control]
    assert fields(small({field: forbidden}), BASELINE) == [at]
    assert fields(small({field: allowed}), BASELINE) == []


@pytest.mark.parametrize("control", BASELINE_CONTROLS)
def test_restricted_forbids_all_that_baseline_does(control: str) -> None:
    field, forbidden, _, at = BASELINE_CONTROLS[control]
    assert at in fields(small({**HARDENED, field: forbidden}), RESTRICTED)


@pytest.mark.parametrize("control", RESTRICTED_CONTROLS)
def test_restricted_forbids_more(control: str) -> None:
    edits, at = RESTRICTED_CONTROLS[control]
    hardened = small(HARDENED)
    assert fields(hardened, RESTRICTED) == []
    assert fields(edited(hardened, edits), RESTRICTED) == [at]
    assert fields(edited(hardened, edits), BASELINE) == []


@pytest.mark.parametrize("control", BASELINE_CONTROLS)
def test_privileged_forbids_nothing(control: str) -> None:
    field, forbidden, _, _ = BASELINE_CONTROLS[control]
    assert [*find_violations(small({field: forbidden}), PRIVILEGED)] == []


@pytest.mark.parametrize("kind", CONTAINERS)
@pytest.mark.parametrize("level", [BASELINE, RESTRICTED])
def test_containers_of_every_kind_are_looked_at(kind: str, level: PodSecurityLevel) -> None:
    one = {"name": "other", "image": "example/other:v1", "securityContext": {"privileged": True}}
    manifest = small({**HARDENED, f"{POD}.{kind}": [one]})
    assert f"{PATH_OF_POD}.{kind}[0].securityContext.privileged" in fields(manifest, level)


@pytest.mark.parametrize("level", [BASELINE, RESTRICTED])
def test_a_finding_names_field_and_level_and_the_way_out(level: PodSecurityLevel) -> None:
    found = [one.to_finding(level) for one in find_violations(small({f"{POD}.hostNetwork": True}), level)]
    finding = next(one for one in found if one.field == f"{PATH_OF_POD}.hostNetwork")
    assert finding.code is FindingCode.POD_SECURITY
    assert f"the Pod Security level {level}" in finding.message
    assert finding.message.endswith("hostNetwork may not be true; remove it")


def test_a_text_in_place_of_a_flag_does_not_get_past() -> None:
    assert fields(small({f"{POD}.hostNetwork": "true"}), BASELINE) == [f"{PATH_OF_POD}.hostNetwork"]


def test_every_clique_is_looked_at() -> None:
    manifest = small({"spec.template.cliques.2.spec.podSpec.hostPID": True})
    assert [one.field.path for one in find_violations(manifest, BASELINE)] == [
        "spec.template.cliques[2].spec.podSpec.hostPID"
    ]


@pytest.mark.parametrize("count", [64, 65])
def test_what_is_not_looked_at_since_there_are_too_many_cliques_is_refused_by_validation(count: int) -> None:
    """A list that is too long is left out when a set is read, and with it what its pods ask of their node."""
    harmless, dangerous = (_set_of_cliques(count, is_privileged=flag) for flag in (False, True))
    is_read = count <= 64
    assert bool(find_added_violations(harmless, dangerous, BASELINE)) is is_read
    reports = [validate_create(dangerous), *(validate_update(old, dangerous) for old in (small(), harmless))]
    for report in reports:
        assert (FindingCode.TOO_MANY in {one.code for one in report.errors}) is not is_read
        assert "spec.template.cliques" in {one.field for one in report.errors} or is_read


def _set_of_cliques(count: int, *, is_privileged: bool) -> dict[str, Any]:
    manifest = small()
    first = manifest["spec"]["template"]["cliques"][0]
    cliques = [{**copy.deepcopy(first), "name": f"c{number}"} for number in range(count)]
    cliques[-1]["spec"]["podSpec"]["hostPID"] = is_privileged
    manifest["spec"]["template"] = {"cliques": cliques}
    return manifest


def test_the_complete_set_is_baseline() -> None:
    assert [*find_violations(complete(), BASELINE)] == []


def test_pods_in_a_user_namespace_may_be_root_inside() -> None:
    root = {f"{POD}.hostUsers": False, f"{POD}.securityContext.runAsUser": 0}
    assert fields(small({**HARDENED, **root}), RESTRICTED) == []
    assert fields(small({**root, f"{MAIN}.securityContext.procMount": "Unmasked"}), BASELINE) == []


def test_pods_on_windows_need_not_write_what_they_may_not_write() -> None:
    context = {"runAsNonRoot": True}
    manifest = small({f"{POD}.os": {"name": "windows"}, f"{POD}.securityContext": context})
    assert fields(manifest, RESTRICTED) == []


# ---- what a change adds

PRIVILEGED_MAIN: Final[Edits] = {f"{MAIN}.securityContext": {"privileged": True}}
ROOT: Final[Edits] = {f"{POD}.volumes": [{"name": "logs", "hostPath": {"path": "/var/log"}}]}
SIDECAR: Final = {"name": "sidecar", "image": "example/sidecar:v1"}


@pytest.mark.parametrize(
    "change",
    [
        {},
        {"spec.replicas": 9},
        {f"{MAIN}.image": "example/app:v2"},
        {f"{FRONTEND}.spec.replicas": 7, f"{FRONTEND}.labels": {"tier": "web"}},
        {f"{POD}.containers": [SIDECAR, {"name": "main", "image": "a", "securityContext": {"privileged": True}}]},
        {f"{MAIN}.securityContext": REMOVED},
        {"spec.template.cliques": [small(PRIVILEGED_MAIN)["spec"]["template"]["cliques"][at] for at in (2, 0, 1)]},
    ],
    ids=["nothing", "replicas", "an image", "the clique", "a neighbour before it", "less", "another order"],
)
def test_what_is_there_already_is_nothing_new(change: Edits) -> None:
    before = small({**PRIVILEGED_MAIN, **ROOT})
    assert [*find_violations(before, BASELINE)]
    assert find_added_violations(before, edited(before, change), BASELINE) == ()


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({f"{POD}.hostNetwork": True}, f"{PATH_OF_POD}.hostNetwork"),
        (
            {f"{POD}.containers.1": {**SIDECAR, "securityContext": {"privileged": True}}},
            f"{PATH_OF_POD}.containers[1].securityContext.privileged",
        ),
        ({f"{POD}.volumes.0.hostPath.path": "/"}, f"{PATH_OF_POD}.volumes[0].hostPath"),
        ({f"{MAIN}.name": "renamed"}, f"{PATH_OF_MAIN}.securityContext.privileged"),
        (
            {"spec.template.cliques.1.spec.podSpec.containers.0.securityContext": {"privileged": True}},
            "spec.template.cliques[1].spec.podSpec.containers[0].securityContext.privileged",
        ),
        (
            {f"{MAIN}.securityContext.capabilities": {"add": ["SYS_ADMIN"]}},
            f"{PATH_OF_MAIN}.securityContext.capabilities.add[0]",
        ),
    ],
    ids=["another control", "another container", "another value", "another name", "another clique", "one more"],
)
def test_what_a_change_adds_is_found_alone(change: Edits, field: str) -> None:
    before = small({**PRIVILEGED_MAIN, **ROOT})
    found = find_added_violations(before, edited(before, change), BASELINE)
    assert [one.field for one in found] == [field]


def test_the_way_back_to_what_was_forbidden_is_an_addition() -> None:
    before, after = small(), small(PRIVILEGED_MAIN)
    assert find_added_violations(before, after, BASELINE)
    assert not find_added_violations(after, before, BASELINE)


def test_a_workload_that_is_new_adds_all_of_it() -> None:
    assert len(find_added_violations({}, small({**PRIVILEGED_MAIN, **ROOT}), BASELINE)) == 2


@pytest.mark.parametrize("level", [BASELINE, RESTRICTED])
def test_the_search_ends_with_the_limit(level: PodSecurityLevel, monkeypatch: pytest.MonkeyPatch) -> None:
    made = []
    make_violation = pod_security._PodOrContainer.make_violation

    def count(self: Any, *about: Any) -> pod_security.Violation:
        made.append(about)
        return make_violation(self, *about)

    monkeypatch.setattr(pod_security._PodOrContainer, "make_violation", count)
    manifest = small({f"{MAIN}.securityContext.capabilities.add": ["SYS_ADMIN"] * 5000})
    assert len(find_added_violations({}, manifest, level, limit=51)) == 51
    assert len(made) == 51


# ---- whatever is given


@given(damaged())
def test_nothing_is_raised_for_damaged_sets(manifest: Any) -> None:
    for level in PodSecurityLevel:
        find_added_violations(complete(), manifest, level)


@given(JSON)
def test_nothing_is_raised_for_anything_below_a_pod(value: Any) -> None:
    for field in ("securityContext", "volumes", "ephemeralContainers", "os", "hostUsers"):
        [*find_violations(small({f"{POD}.{field}": value}), RESTRICTED)]
    for field in ("securityContext", "ports", "livenessProbe", "lifecycle"):
        [*find_violations(small({f"{MAIN}.{field}": value}), RESTRICTED)]
