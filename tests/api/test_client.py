"""A client generated from the served description: it imports, reads, commands, and shows a problem as a value."""

import importlib
import pkgutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests.api.conftest import Installation
from tests.api.documented import read_blocks
from tests.api.visiting import Visitor
from tests.project.running import wait_until

pytestmark = pytest.mark.slow

PACKAGE = "grove_client"
SECONDS = 60.0  # generous: only reached when something is broken
PLACE = {"cluster": "sandbox", "namespace": "default", "name": "training-workload"}


class Generated:
    """The client, with its operations by the name that the description gives them."""

    def __init__(self, package: ModuleType, installation: Installation) -> None:
        self._package = package
        self.api = package.AuthenticatedClient(base_url=installation.product.url, token=installation.token)
        self._modules = {
            found.name.rpartition(".")[2]: found.name
            for found in pkgutil.walk_packages(package.api.__path__, f"{PACKAGE}.api.")
        }

    def call(self, operation: str, **arguments: Any) -> Any:
        """Call an operation and return what it answered, with the status."""
        module = importlib.import_module(self._modules[operation])
        return module.sync_detailed(client=self.api, **arguments)

    def model(self, name: str) -> Any:
        """Return a class of what is sent or answered."""
        return getattr(self._package.models, name)


@pytest.fixture(scope="module")
def generated(installation: Installation, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Generated]:
    """Generate the client from what the server says about itself."""
    folder = tmp_path_factory.mktemp("client")
    schema = Visitor(installation.product.url, installation.token).get("/api/v1/schema/?format=json")
    (folder / "schema.json").write_bytes(schema.body)
    _generate(folder)
    sys.path.insert(0, str(folder))
    try:
        package = importlib.import_module(PACKAGE)
        for part in ("api", "models"):
            importlib.import_module(f"{PACKAGE}.{part}")
        yield Generated(package, installation)
    finally:
        sys.path.remove(str(folder))


def _generate(folder: Path) -> None:
    (folder / "config.yaml").write_text("post_hooks: []\n")  # formatting the client is of no use here
    command = [
        *(
            sys.executable,
            "-m",
            "openapi_python_client",
            "generate",
            "--path",
            "schema.json",
            "--config",
            "config.yaml",
        ),
        *("--meta", "none", "--output-path", PACKAGE),
    ]
    done = subprocess.run(command, cwd=folder, text=True, capture_output=True, check=False)
    said = done.stdout + done.stderr
    assert done.returncode == 0, said
    # It leaves the YAML body of apply out, and sends JSON. It has nothing else to say.
    assert said.count("WARNING") == said.count("Unsupported content type application/yaml") == 1, said


def test_every_module_of_the_client_imports(generated: Generated) -> None:
    for name in generated._modules.values():
        importlib.import_module(name)
    assert len(generated._modules) > 30


def test_the_example_of_the_document_lists_workloads(
    generated: Generated,
    installation: Installation,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("GROVE_URL", installation.product.url)
    monkeypatch.setenv("GROVE_TOKEN", installation.token)
    (example,) = read_blocks("python")
    exec(compile(example, "docs/api.md", "exec"), {})
    assert "training-workload " in capsys.readouterr().out


def test_the_client_changes_an_image(generated: Generated) -> None:
    body = generated.model("ImagesBody").from_dict({"images": [{"clique": "worker", "image": "example/trainer:v2"}]})
    answer = generated.call("workload_set_images", **PLACE, body=body)
    assert answer.status_code == 200, answer.content
    (changed,) = answer.parsed.changed
    assert changed.after == "example/trainer:v2"
    detail = generated.call("workloads_detail", **PLACE)
    assert [one.images for one in detail.parsed.components] == [["example/trainer:v2"]]


def test_the_client_reads_events_and_surge(generated: Generated) -> None:
    # The workload is one of the samples; the controller may only be coming to it.
    wait_until(lambda: bool(generated.call("events_list", **PLACE).parsed.results), SECONDS)
    told = generated.call("events_list", **PLACE).parsed
    assert told.problem == ""
    assert all(one.name.startswith(PLACE["name"]) for one in told.results)
    assert generated.call("surge_list", **PLACE).parsed.findings == []


def test_the_client_reads_the_problem_of_a_bad_request(generated: Generated) -> None:
    body = generated.model("ImagesBody").from_dict({"images": [{"clique": "nobody", "image": "example/trainer:v2"}]})
    answer = generated.call("workload_set_images", **PLACE, body=body)
    assert answer.status_code == 422
    assert isinstance(answer.parsed, generated.model("Problem"))
    (finding,) = answer.parsed.findings
    assert finding.field == "images[0].clique"
    assert "the set has no clique with this name" in answer.parsed.detail
