"""What visitors of every page do: sign in, see what the browser complains about, look for what axe finds."""

from typing import Any

import yaml
from axe_playwright_python.sync_playwright import Axe  # type: ignore[import-untyped]
from playwright.sync_api import BrowserContext, ConsoleMessage, Locator, Page

from rollouts.cluster import ClusterClient, kubeconfig
from rollouts.cluster.resources import NODES, PODCLIQUESETS, PODS
from rollouts.engine.model.names import CLIQUE, POD_INDEX
from tests.browser.conftest import PASSWORD, PATIENCE
from tests.project.running import ROOT, Product, wait_until

_HELD = {"metadata": {"finalizers": ["test.example/held"]}}


def sign_in(context: BrowserContext, address: str = "/", name: str = "admin") -> Page:
    """Open a page as the first account, or another one."""
    page = context.new_page()
    page.set_default_timeout(PATIENCE)
    page.goto(address)
    if "/sign-in/" in page.url:
        page.get_by_label("Name").fill(name)
        page.get_by_label("Password").fill(PASSWORD)
        page.get_by_role("button", name="Sign in", exact=True).click()
        page.wait_for_url(lambda url: "/sign-in/" not in url)
    page.locator('#live[data-state="live"]').wait_for()
    return page


def open_settled(page: Page, name: str) -> None:
    """Open the page of a workload of the namespace default once all of it is there."""
    page.goto(f"/?search={name}")
    row = page.locator("#workload-rows > tr").filter(has=page.get_by_role("link", name=name, exact=True))
    row.filter(has_text="Settled").wait_for()
    page.goto(f"/workloads/sandbox/default/{name}/")


def follow(link: Locator) -> None:
    """Click what leads to another page, and wait until the scripts of that page have run: it hears nothing before."""
    with link.page.expect_navigation():
        link.click()


def note_complaints(page: Page) -> list[str]:
    """Return a list that fills with what the browser complains about from now on."""
    complaints: list[str] = []

    def note(message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            complaints.append(message.text)

    page.on("console", note)
    page.on("pageerror", lambda error: complaints.append(str(error)))
    return complaints


def find_barriers(page: Page) -> list[str]:
    """Return what axe finds that keeps people out, a line each.

    Colours are looked at as they are at rest: halfway through a transition there is no telling.
    """
    page.wait_for_load_state()
    page.emulate_media(reduced_motion="reduce")
    page.evaluate("document.getAnimations().forEach((one) => one.cancel())")
    options = {"runOnly": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]}
    found = Axe().run(page, options=options).response["violations"]
    return [
        f"{one['id']}: {one['help']} at {', '.join(str(node['target']) for node in one['nodes'][:4])}" for one in found
    ]


class Sandbox:
    """The cluster behind the pages, changed as somebody with kubectl would."""

    def __init__(self, site: Product) -> None:
        self._cluster = ClusterClient(kubeconfig(site.kubeconfig))

    def add(self, name: str, **spec: object) -> None:
        """Apply a small workload of one pod."""
        container = {"name": "main", "image": "example/main:v1"}
        clique = {"roleName": "main", "replicas": 1, "minAvailable": 1, "podSpec": {"containers": [container]}}
        manifest = {
            "apiVersion": "grove.io/v1alpha1",
            "kind": "PodCliqueSet",
            "metadata": {"name": name, "namespace": "default"},
            "spec": {"replicas": 1, "template": {"cliques": [{"name": "main", "spec": clique}]}, **spec},
        }
        self._cluster.create(PODCLIQUESETS, manifest)

    def add_large(self) -> str:
        """Apply the sample of a thousand pods; return its name."""
        manifest = yaml.safe_load((ROOT / "deploy" / "samples" / "large" / "thousand-pods.yaml").read_text())
        manifest["metadata"].setdefault("namespace", "default")
        self._cluster.create(PODCLIQUESETS, manifest)
        return str(manifest["metadata"]["name"])

    def add_pods(self, name: str, pods: int, budget: tuple[int, int] | None = None, **spec: object) -> None:
        """Apply a workload of some pods that only fit on a node of its own name; with a budget, rolled by it."""
        container = {"name": "main", "image": "example/main:v1"}
        pod = {"containers": [container], "nodeSelector": {"kubernetes.io/hostname": name}}
        clique: dict[str, object] = {
            "name": "main",
            "spec": {"roleName": "main", "replicas": pods, "minAvailable": 1, "podSpec": pod},
        }
        if budget is not None:
            clique["updateStrategy"] = {"maxUnavailable": budget[0], "maxSurge": budget[1]}
            spec = {"updateStrategy": {"type": "RollingUpdate"}, **spec}
        self.add(name, template={"cliques": [clique]}, **spec)

    def add_node(self, name: str, pods: int) -> None:
        """Have a node that is up and has room for so many pods."""
        room = {"cpu": "32", "memory": "128Gi", "pods": str(pods)}
        status = {"capacity": room, "allocatable": room, "conditions": [{"type": "Ready", "status": "True"}]}
        labels = {"kubernetes.io/hostname": name}
        self._cluster.create(NODES, {"metadata": {"name": name, "labels": labels}, "status": status})

    def remove_node(self, name: str) -> None:
        """Take a node away."""
        self._cluster.delete(NODES, name)

    def delete_pod(self, name: str) -> None:
        """Delete a pod."""
        self._cluster.delete(PODS, name, namespace="default")

    def replace_pod(self, name: str) -> None:
        """Delete a pod, which stays until its successor is there: else that one may have its name."""
        pod = self._cluster.patch_merge(PODS, name, _HELD, namespace="default")
        place = {key: pod["metadata"]["labels"][key] for key in (CLIQUE, POD_INDEX)}
        labels = ",".join(f"{key}={value}" for key, value in place.items())
        self._cluster.delete(PODS, name, namespace="default")
        wait_until(
            lambda: len(self._cluster.list(PODS, namespace="default", labels=labels).items) == 2, PATIENCE / 1000
        )
        self._cluster.patch_merge(PODS, name, {"metadata": {"finalizers": None}}, namespace="default")

    def remove(self, name: str) -> None:
        """Delete a workload."""
        self._cluster.delete(PODCLIQUESETS, name, namespace="default")

    def set_image(self, name: str, image: str) -> None:
        """Change the image of a workload's first clique."""
        path = "/spec/template/cliques/0/spec/podSpec/containers/0/image"
        operation = {"op": "replace", "path": path, "value": image}
        self._cluster.patch_json(PODCLIQUESETS, name, [operation], namespace="default")

    def put(self, name: str, path: str, value: object) -> None:
        """Write a field of a workload, as somebody else does."""
        operation = {"op": "add", "path": path, "value": value}
        self._cluster.patch_json(PODCLIQUESETS, name, [operation], namespace="default")

    def spec(self, name: str) -> Any:
        """Return what a workload says."""
        return self._cluster.get(PODCLIQUESETS, name, namespace="default")["spec"]


def add_viewer(page: Page, name: str) -> None:
    """Have an account that may see and nothing else, made by the first one in the admin."""
    page.goto("/admin/rollouts/user/add/")
    page.locator('[name="username"]').fill(name)
    page.locator('[name="password1"]').fill(PASSWORD)
    page.locator('[name="password2"]').fill(PASSWORD)
    page.locator('button[name="_continue"], input[name="_continue"], [name="_save"]').first.click()
    page.get_by_label("viewer", exact=True).check()
    page.locator('[name="_save"]').first.click()
    page.wait_for_url("**/admin/rollouts/user/")
