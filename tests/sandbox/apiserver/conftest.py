"""The API server of a sandbox: called in the test's own process, and served over HTTP."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from rollouts.sandbox.apiserver.registry import Kind, Registry
from rollouts.sandbox.apiserver.storage import Storage
from rollouts.sandbox.apiserver.verbs import Verbs
from tests.sandbox.apiserver.objects import Clock
from tests.sandbox.apiserver.serving import Server, served

HERE = Path(__file__).parent
DEFINITIONS = HERE / "definitions"
CRDS = HERE.parents[2] / "deploy" / "crds"


@dataclass(frozen=True, slots=True)
class Api:
    """The verbs over an empty store, with a clock that the test sets."""

    verbs: Verbs
    store: Storage
    registry: Registry
    clock: Clock
    pods: Kind
    widgets: Kind


@pytest.fixture(scope="session")
def registry() -> Registry:
    """The built-in kinds, the project's own and the widgets."""
    return Registry.load(CRDS, DEFINITIONS)


@pytest.fixture
def api(registry: Registry) -> Iterator[Api]:
    store = Storage.open(":memory:")
    clock = Clock()
    verbs = Verbs(store, registry, clock)
    yield Api(verbs, store, registry, clock, registry.kind("pods"), registry.kind("widgets", "test.grove.io"))
    store.close()


@pytest.fixture
def server(registry: Registry) -> Iterator[Server]:
    """A served sandbox of the test's own."""
    with served(":memory:", registry) as running:
        yield running
