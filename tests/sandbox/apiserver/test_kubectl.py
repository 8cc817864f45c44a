"""`kubectl` against the sandbox: the commands of daily use."""

import os
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.parts import missing
from tests.sandbox.apiserver.conftest import CRDS
from tests.sandbox.apiserver.objects import pod, widget
from tests.sandbox.apiserver.serving import Server
from tests.sandbox.apiserver.waiting import wait_until

Kubectl = Callable[..., str]
SECONDS = 120  # for a command, on a busy machine

WIDGET = """
apiVersion: test.grove.io/v1alpha1
kind: Widget
metadata: {name: w}
spec: {size: small, parts: [{name: a, value: "1", count: 1}]}
"""
POD = """
apiVersion: v1
kind: Pod
metadata: {name: p, labels: {app: web}}
spec:
  containers:
  - {name: c, image: "x:1", env: [{name: A, value: "1"}, {name: B, value: "2"}]}
"""
SET = """
apiVersion: grove.io/v1alpha1
kind: PodCliqueSet
metadata: {name: demo}
spec:
  replicas: 2
  template:
    cliques:
    - name: worker
      spec:
        roleName: worker
        replicas: 2
        minAvailable: 1
        podSpec: {containers: [{name: c, image: "x:1"}]}
"""


def _binary() -> str:
    assets = os.environ.get("KUBEBUILDER_ASSETS")
    found = shutil.which("kubectl", path=assets) if assets else None
    found = found or shutil.which("kubectl")
    if found is None:
        missing("kubectl", "put it on PATH or into the folder that KUBEBUILDER_ASSETS names")
    return found


class RefusedError(Exception):
    """kubectl failed."""


@pytest.fixture
def environment(server: Server, tmp_path: Path) -> dict[str, str]:
    config = tmp_path / "kubeconfig"
    config.write_text(
        f"""
apiVersion: v1
kind: Config
current-context: sandbox
clusters: [{{name: sandbox, cluster: {{server: "{server.url}"}}}}]
users: [{{name: sandbox, user: {{}}}}]
contexts: [{{name: sandbox, context: {{cluster: sandbox, user: sandbox}}}}]
"""
    )
    return {"KUBECONFIG": str(config), "HOME": str(tmp_path), "PATH": os.environ["PATH"]}


@pytest.fixture
def kubectl(environment: dict[str, str]) -> Kubectl:
    """Run kubectl with these arguments; return its output, raise its error."""
    binary = _binary()

    def run(*arguments: str, stdin: str = "") -> str:
        done = subprocess.run(
            [binary, *arguments],
            input=stdin,
            env=environment,
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )
        if done.returncode:
            raise RefusedError(done.stderr + done.stdout)
        return done.stdout + done.stderr

    return run


def _bound_pod(server: Server, name: str, **labels: str) -> None:
    server.verbs.create(server.registry.kind("pods"), "default", pod(name, labels=labels or None))
    server.verbs.bind("default", name, "n1")


def test_get_shows_the_columns_people_know(server: Server, kubectl: Kubectl) -> None:
    _bound_pod(server, "a", app="web")
    lines = kubectl("get", "pods").splitlines()
    assert lines[0].split() == ["NAME", "READY", "STATUS", "RESTARTS", "AGE"]
    assert lines[1].split()[:4] == ["a", "0/1", "Pending", "0"]
    wide = kubectl("get", "pods", "-o", "wide")
    assert "NOMINATED NODE" in wide
    assert " n1 " in wide
    assert kubectl("get", "pods", "-A").splitlines()[1].split()[:2] == ["default", "a"]
    assert kubectl("get", "pods", "-l", "app=web", "-o", "name").strip() == "pod/a"
    assert "No resources found" in kubectl("get", "pods", "-l", "app=other")
    assert "nodeName: n1" in kubectl("get", "pod", "a", "-o", "yaml")
    assert kubectl("get", "pods", "--field-selector", "spec.nodeName=n1", "-o", "name").strip() == "pod/a"


def test_get_shows_custom_columns(kubectl: Kubectl) -> None:
    kubectl("apply", "-f", "-", stdin=SET)
    head, row = kubectl("get", "pcs").splitlines()
    assert head.split()[0] == "NAME"
    assert row.split()[:2] == ["demo", "2"]


def test_get_with_watch_streams_changes(server: Server, kubectl: Kubectl, environment: dict[str, str]) -> None:
    _bound_pod(server, "a")
    pods = server.registry.kind("pods")
    process = subprocess.Popen(
        [_binary(), "get", "pods", "-w"], env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    assert process.stdout is not None
    try:
        seen = _lines(process.stdout)
        assert next(seen).split()[0] == "NAME"
        assert next(seen).split()[:3] == ["a", "0/1", "Pending"]
        current = server.verbs.get(pods, "default", "a")
        running = {**current, "status": {**current["status"], "phase": "Running"}}
        kubectl(
            "patch", "pod", "a", "--subresource", "status", "--type", "merge", "-p", '{"status":{"phase":"Running"}}'
        )
        assert running["status"]["phase"] in next(seen)
        kubectl("delete", "pod", "a", "--grace-period", "0", "--force")
        assert next(seen).split()[0] == "a"
    finally:
        process.kill()
        process.wait()


def _lines(stream: Iterator[str]) -> Iterator[str]:
    for line in stream:
        if line.strip():
            yield line


def test_apply_merges_what_changed_and_says_when_nothing_did(kubectl: Kubectl) -> None:
    assert "created" in kubectl("apply", "-f", "-", stdin=WIDGET)
    assert "unchanged" in kubectl("apply", "-f", "-", stdin=WIDGET)
    changed = WIDGET.replace("small", "large").replace("name: a,", "name: b,")
    assert "configured" in kubectl("apply", "-f", "-", stdin=changed)
    assert kubectl("get", "wd", "w", "-o", "jsonpath={.spec.size} {.spec.parts[*].name}") == "large b"


def test_apply_merges_built_in_lists_by_their_keys(kubectl: Kubectl) -> None:
    kubectl("apply", "-f", "-", stdin=POD)
    kubectl("label", "pod", "p", "added=by-hand")
    changed = POD.replace("x:1", "x:2")
    assert "configured" in kubectl("apply", "-f", "-", stdin=changed)
    path = "jsonpath={.spec.containers[0].image} {.spec.containers[0].env[*].name} {.metadata.labels.added}"
    assert kubectl("get", "pod", "p", "-o", path) == "x:2 A B by-hand"


def test_server_side_apply_names_the_manager_it_conflicts_with(kubectl: Kubectl) -> None:
    kubectl("apply", "--server-side", "--field-manager", "one", "-f", "-", stdin=WIDGET)
    other = ("apply", "--server-side", "--field-manager", "two", "-f", "-")
    changed = WIDGET.replace("small", "large")
    with pytest.raises(RefusedError, match=r'conflict with "one": \.spec\.size'):
        kubectl(*other, stdin=changed)
    assert "serverside-applied" in kubectl(*other, "--force-conflicts", stdin=changed)
    assert kubectl("get", "wd", "w", "-o", "jsonpath={.spec.size}") == "large"


def test_client_side_apply_moves_to_server_side(kubectl: Kubectl) -> None:
    kubectl("apply", "-f", "-", stdin=WIDGET)
    assert "serverside-applied" in kubectl("apply", "--server-side", "-f", "-", stdin=WIDGET.replace("small", "large"))
    shown = kubectl("get", "wd", "w", "-o", "yaml", "--show-managed-fields")
    assert "kubectl-client-side-apply" not in shown


def test_a_typing_error_in_a_manifest_is_refused(kubectl: Kubectl) -> None:
    with pytest.raises(RefusedError, match=r'unknown field "spec\.sizze"'):
        kubectl("create", "-f", "-", stdin=WIDGET.replace("size: small", "size: small, sizze: 1"))
    with pytest.raises(RefusedError, match=r'unknown field "spec\.containers\[0\]\.imagee"'):
        kubectl("create", "-f", "-", stdin=POD.replace("image:", "imagee:"))
    assert "No resources found" in kubectl("get", "wd")


def test_an_invalid_manifest_is_refused_with_its_field(kubectl: Kubectl) -> None:
    with pytest.raises(
        RefusedError, match=r'spec\.size: Unsupported value: "huge": supported values: "small", "large"'
    ):
        kubectl("create", "-f", "-", stdin=WIDGET.replace("small", "huge"))


def test_a_dry_run_on_the_server_stores_nothing(kubectl: Kubectl) -> None:
    assert "created (server dry run)" in kubectl("create", "-f", "-", "--dry-run=server", stdin=WIDGET)
    assert "created (server dry run)" in kubectl("apply", "-f", "-", "--dry-run=server", stdin=WIDGET)
    assert "No resources found" in kubectl("get", "wd")
    kubectl("create", "-f", "-", stdin=WIDGET)
    kubectl("delete", "wd", "w", "--dry-run=server")
    assert "w" in kubectl("get", "wd")


def test_patches_of_each_type_are_taken(kubectl: Kubectl) -> None:
    kubectl("create", "-f", "-", stdin=POD)
    kubectl("patch", "pod", "p", "-p", '{"spec":{"containers":[{"name":"c","image":"x:2"}]}}')
    kubectl("patch", "pod", "p", "--type", "merge", "-p", '{"metadata":{"labels":{"a":"1"}}}')
    kubectl("patch", "pod", "p", "--type", "json", "-p", '[{"op":"add","path":"/metadata/labels/b","value":"2"}]')
    path = "jsonpath={.spec.containers[0].image} {.metadata.labels.a}{.metadata.labels.b}"
    assert kubectl("get", "pod", "p", "-o", path) == "x:2 12"
    kubectl("create", "-f", "-", stdin=WIDGET)
    with pytest.raises(RefusedError, match="unknown format"):
        kubectl("patch", "wd", "w", "--type", "strategic", "-p", "{}")


def test_scale_writes_the_replicas(server: Server, kubectl: Kubectl) -> None:
    kubectl("create", "-f", "-", stdin=SET)
    assert "scaled" in kubectl("scale", "pcs", "demo", "--replicas", "5")
    assert kubectl("get", "pcs", "demo", "-o", "jsonpath={.spec.replicas}") == "5"
    with pytest.raises(RefusedError, match=r"Expected replicas to be 1, was 5"):
        kubectl("scale", "pcs", "demo", "--current-replicas", "1", "--replicas", "2")
    for plural, spec in (
        ("podcliques", {"roleName": "r", "replicas": 1, "podSpec": {"containers": [{"name": "c", "image": "x"}]}}),
        ("podcliquescalinggroups", {"replicas": 1, "cliqueNames": ["a"]}),
    ):
        kind = server.registry.kind(plural, "grove.io")
        server.verbs.create(kind, "default", {"metadata": {"name": "s"}, "spec": spec})
        kubectl("scale", plural, "s", "--replicas", "3")
        assert server.verbs.get(kind, "default", "s")["spec"]["replicas"] == 3


def test_delete_waits_for_finalizers(server: Server, kubectl: Kubectl, environment: dict[str, str]) -> None:
    widgets = server.registry.kind("widgets", "test.grove.io")
    server.verbs.create(widgets, "default", widget(finalizers=["test.grove.io/hold"]))
    waiting = subprocess.Popen([_binary(), "delete", "wd", "w", "--wait"], env=environment, stdout=subprocess.DEVNULL)

    def leaving() -> bool:
        return "deletionTimestamp" in server.verbs.get(widgets, "default", "w")["metadata"]

    wait_until(leaving, "the deletion was not asked for")
    assert waiting.poll() is None
    kubectl("patch", "wd", "w", "--type", "merge", "-p", '{"metadata":{"finalizers":null}}')
    assert waiting.wait(SECONDS) == 0
    with pytest.raises(RefusedError, match=r'widgets\.test\.grove\.io "w" not found'):
        kubectl("get", "wd", "w")


@pytest.mark.parametrize(("cascade", "finalizer"), [("foreground", "foregroundDeletion"), ("orphan", "orphan")])
def test_delete_leaves_the_cascade_to_the_garbage_collector(kubectl: Kubectl, cascade: str, finalizer: str) -> None:
    kubectl("create", "-f", "-", stdin=WIDGET)
    kubectl("delete", "wd", "w", f"--cascade={cascade}", "--wait=false")
    assert kubectl("get", "wd", "w", "-o", "jsonpath={.metadata.finalizers[0]}") == finalizer


def test_cordon_and_drain_empty_a_node(server: Server, kubectl: Kubectl) -> None:
    server.verbs.create(server.registry.kind("nodes"), None, {"metadata": {"name": "n1"}})
    _bound_pod(server, "a")
    assert "cordoned" in kubectl("cordon", "n1")
    assert "SchedulingDisabled" in kubectl("get", "nodes")
    kubectl("drain", "n1", "--force", "--grace-period", "0", "--timeout", f"{SECONDS}s")
    assert "No resources found" in kubectl("get", "pods")
    assert "uncordoned" in kubectl("uncordon", "n1")
    assert "SchedulingDisabled" not in kubectl("get", "nodes")


def test_label_and_annotate_write_metadata_only(kubectl: Kubectl) -> None:
    kubectl("create", "-f", "-", stdin=WIDGET)
    kubectl("label", "wd", "w", "a=1")
    kubectl("annotate", "wd", "w", "b=2")
    path = "jsonpath={.metadata.labels.a}{.metadata.annotations.b} {.metadata.generation}"
    assert kubectl("get", "wd", "w", "-o", path) == "12 1"
    with pytest.raises(RefusedError, match="a valid label must be"):
        kubectl("label", "wd", "w", "bad=not valid")


@pytest.mark.parametrize("what", ["pod/a", "node/n1", "pcs/demo", "wd/w"])
def test_describe_shows_objects_with_their_events(server: Server, kubectl: Kubectl, what: str) -> None:
    server.verbs.create(server.registry.kind("nodes"), None, {"metadata": {"name": "n1"}})
    _bound_pod(server, "a")
    kubectl("create", "-f", "-", stdin=SET)
    kubectl("create", "-f", "-", stdin=WIDGET)
    kind, _, name = what.partition("/")
    found = {"pod": "pods", "node": "nodes"}.get(kind)
    if found == "pods":
        about = server.verbs.get(server.registry.kind("pods"), "default", "a")
        event = {
            "metadata": {"name": "e", "namespace": "default"},
            "involvedObject": {"kind": "Pod", "name": "a", "namespace": "default", "uid": about["metadata"]["uid"]},
            "reason": "Scheduled",
            "message": "Successfully assigned",
            "type": "Normal",
            "count": 1,
        }
        server.verbs.create(server.registry.kind("events"), "default", event)
    shown = kubectl("describe", kind, name)
    assert re.search(rf"^Name:\s+{name}$", shown, re.MULTILINE)
    assert ("Successfully assigned" in shown) == (kind == "pod")


def test_explain_knows_the_fields(kubectl: Kubectl) -> None:
    assert "updateStrategy" in kubectl("explain", "pcs.spec")
    assert "schedulingGates" in kubectl("explain", "pod.spec")
    assert "containerPort" in kubectl("explain", "pod.spec.containers", "--recursive")


def test_api_resources_lists_every_kind(server: Server, kubectl: Kubectl) -> None:
    listed = {line.split()[0] for line in kubectl("api-resources", "--no-headers").splitlines()}
    assert listed == {kind.plural for kind in server.registry}
    assert {path.stem.rpartition("_")[2] for path in CRDS.glob("*.yaml")} <= listed


def test_wait_sees_conditions_and_deletions(server: Server, kubectl: Kubectl, environment: dict[str, str]) -> None:
    _bound_pod(server, "a")
    binary = _binary()
    ready = subprocess.Popen(
        [binary, "wait", "--for=condition=Ready", "pod/a", f"--timeout={SECONDS}s"], env=environment
    )
    kubectl(
        "patch",
        "pod",
        "a",
        "--subresource=status",
        "-p",
        '{"status":{"phase":"Running","conditions":[{"type":"Ready","status":"True"}]}}',
    )
    assert ready.wait(SECONDS) == 0
    gone = subprocess.Popen([binary, "wait", "--for=delete", "pod/a", f"--timeout={SECONDS}s"], env=environment)
    kubectl("delete", "pod", "a", "--grace-period", "0", "--force")
    assert gone.wait(SECONDS) == 0


def test_version_and_cluster_info_answer(kubectl: Kubectl) -> None:
    assert re.search(r"Server Version: v1\.36", kubectl("version"))


def test_a_pod_is_run_and_deleted(kubectl: Kubectl) -> None:
    assert "created" in kubectl("run", "a", "--image", "x:1")
    assert "deleted" in kubectl("delete", "pod", "a")
    assert "No resources found" in kubectl("get", "pods")


def test_the_imperative_commands_work_although_they_speak_protobuf(kubectl: Kubectl) -> None:
    def made(path: str, *arguments: str) -> str:
        return kubectl("create", *arguments, "-o", f"jsonpath={path}")

    assert made("{.data.a}", "secret", "generic", "s", "--from-literal", "a=b") == "Yg=="
    assert made("{.spec.ports[0].targetPort}", "service", "clusterip", "s", "--tcp=80:90") == "90"
    assert made("{.rules[0].verbs}", "role", "r", "--verb=get,list", "--resource=pods") == '["get","list"]'
    assert made("{.subjects[0].name}", "rolebinding", "b", "--role=r", "--serviceaccount=default:x") == "x"
    assert made("{.spec.minAvailable}", "pdb", "b", "--selector=a=b", "--min-available=50%") == "50%"
    assert made("{.value}", "priorityclass", "low", "--value=-5") == "-5"
    assert made("{.metadata.name}", "serviceaccount", "robot") == "robot"


def test_a_namespace_is_made_and_used(kubectl: Kubectl) -> None:
    kubectl("create", "namespace", "other")
    kubectl("-n", "other", "create", "configmap", "c", "--from-literal", "a=b")
    assert kubectl("-n", "other", "get", "cm", "-o", "name").strip() == "configmap/c"
    with pytest.raises(RefusedError, match='namespaces "nope" not found'):
        kubectl("-n", "nope", "create", "configmap", "c")
