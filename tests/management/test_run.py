"""The workers that `manage.py run` starts share the processes of the settings; `tests/project` tests the rest of it."""

from dataclasses import replace

import pytest
from django.conf import settings

from rollouts.management.commands import run


@pytest.mark.parametrize(
    ("workers", "processes", "names", "shares"),
    [
        (1, 2, ["worker"], [2]),
        (2, 2, ["worker-1", "worker-2"], [1, 1]),
        (2, 5, ["worker-1", "worker-2"], [2, 3]),
        (3, 5, ["worker-1", "worker-2", "worker-3"], [1, 2, 2]),
        (2, 1, ["worker"], [1]),  # no worker without a process
    ],
)
def test_workers_share_the_processes(workers: int, processes: int, names: list[str], shares: list[int]) -> None:
    environment = replace(settings.ENVIRONMENT, workers=workers, worker_processes=processes)
    programs = list(run._workers(environment))
    assert [program.name for program in programs] == names
    assert [int(program.command[-1]) for program in programs] == shares
    assert len({program.command[program.command.index("--hostname") + 1] for program in programs}) == len(programs)
