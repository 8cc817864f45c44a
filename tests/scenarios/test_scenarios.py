"""Every scenario on a real API server and on the sandbox, with the controller's real processes.

The scenarios of one cluster are played side by side, each in a namespace of its own; each test waits for one of them.
On the sandbox everything is doubled: two workers, two beats, two watchers, and every message.
"""

import pytest

from tests.scenarios import changes, hangs, of_grove, sequences, statuses
from tests.scenarios.conftest import Playing
from tests.scenarios.register import SCENARIOS

assert changes
assert hangs
assert of_grove
assert sequences
assert statuses

TITLES = sorted(SCENARIOS)
PLAYED_ON_THE_SANDBOX = [title for title in TITLES if not SCENARIOS[title].needs_real]

pytestmark = pytest.mark.slow


@pytest.mark.apiserver
@pytest.mark.parametrize("title", TITLES)
def test_on_a_real_api_server(on_a_real_api_server: Playing, title: str) -> None:
    on_a_real_api_server.result(title)


@pytest.mark.database
@pytest.mark.parametrize("title", PLAYED_ON_THE_SANDBOX)
def test_on_the_sandbox_with_everything_doubled(on_the_sandbox: Playing, title: str) -> None:
    on_the_sandbox.result(title)
