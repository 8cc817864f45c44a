"""What visitors of every page do: sign in, see what the browser complains about, look for what axe finds."""

from axe_playwright_python.sync_playwright import Axe  # type: ignore[import-untyped]
from playwright.sync_api import BrowserContext, ConsoleMessage, Page

from rollouts.cluster import Cluster, kubeconfig
from rollouts.cluster.resources import PODCLIQUESETS
from tests.browser.conftest import PASSWORD
from tests.project.running import Product

SECONDS = 30_000  # milliseconds, only reached when something is broken


def sign_in(context: BrowserContext, address: str = "/") -> Page:
    """Open a page as the first account."""
    page = context.new_page()
    page.set_default_timeout(SECONDS)
    page.goto(address)
    if "/sign-in/" in page.url:
        page.get_by_label("Name").fill("admin")
        page.get_by_label("Password").fill(PASSWORD)
        page.get_by_role("button", name="Sign in", exact=True).click()
        page.wait_for_url(lambda url: "/sign-in/" not in url)
    page.locator('#live[data-state="live"]').wait_for()
    return page


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
    """Return what axe finds that keeps people out, a line each."""
    options = {"runOnly": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]}
    found = Axe().run(page, options=options).response["violations"]
    return [
        f"{one['id']}: {one['help']} at {', '.join(str(node['target']) for node in one['nodes'][:4])}" for one in found
    ]


class Sandbox:
    """The cluster behind the pages, changed as somebody with kubectl would."""

    def __init__(self, site: Product) -> None:
        self._cluster = Cluster(kubeconfig(site.kubeconfig))

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

    def remove(self, name: str) -> None:
        """Delete a workload."""
        self._cluster.delete(PODCLIQUESETS, name, namespace="default")

    def set_image(self, name: str, image: str) -> None:
        """Change the image of a workload's first clique."""
        path = "/spec/template/cliques/0/spec/podSpec/containers/0/image"
        operation = {"op": "replace", "path": path, "value": image}
        self._cluster.patch_json(PODCLIQUESETS, name, [operation], namespace="default")
