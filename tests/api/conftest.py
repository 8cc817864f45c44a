"""Two things to try the API on: the whole product, running, and a scene for requests within the process of the test."""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from pytest_django import DjangoDbBlocker

from tests.accounts import conftest as accounts
from tests.api.scene import Scene, make_scene, running_sandbox
from tests.project.running import Product, product

make_person = accounts.make_person

ADMIN_PASSWORD = "correct horse battery"
ADMIN_TOKEN = "grove_only-for-the-tests-0123456789"


@dataclass(frozen=True, slots=True)
class Installation:
    """A running product with the token of its first account."""

    product: Product
    token: str = ADMIN_TOKEN
    password: str = ADMIN_PASSWORD

    @property
    def api(self) -> str:
        """Where the API is, without a slash at the end."""
        return f"{self.product.url}/api/v1"


@contextlib.contextmanager
def running_installation(folder: Path, **variables: str) -> Iterator[Installation]:
    """Start what `make run` starts, with pods that are quick to come and to go, and no limit to the requests."""
    ours = {
        "GROVE_ADMIN_PASSWORD": ADMIN_PASSWORD,
        "GROVE_ADMIN_TOKEN": ADMIN_TOKEN,
        "API_RATE": "off",
        "STRANGER_RATE": "off",
        "SIGN_IN_RATE": "off",
        "SANDBOX_READY_SECONDS": "0.3",
        "SANDBOX_TERMINATION_SECONDS": "0.2",
    }
    with product(folder, **ours, **variables) as running:
        running.wait_until_it_answers()
        yield Installation(running)


@pytest.fixture(scope="session")
def installation(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installation]:
    """One for all tests that only need some installation; each keeps to names of its own."""
    with running_installation(tmp_path_factory.mktemp("installation")) as running:
        yield running


@pytest.fixture(scope="module")
def played_scene(
    django_db_setup: None,
    django_db_blocker: DjangoDbBlocker,
    redis_server: None,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Scene]:
    """A workload that was deployed and changed, in a sandbox of the module's own."""
    with running_sandbox(tmp_path_factory.mktemp("sandbox")) as cluster:
        with django_db_blocker.unblock():
            scene = make_scene(cluster)
        yield scene


@pytest.fixture
def scene(played_scene: Scene, db: None) -> Scene:
    """The same with its rows in the database of the test."""
    played_scene.put_rows()
    return played_scene
