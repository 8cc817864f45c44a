"""The changes that can be made to a workload, as values, and the one function that makes them.

Before it: `workloads`, whose functions build an `Edit` or a `ScaleLive`, and forms and requests that build an `Apply`.
After it: `edit`, `apply` or `scaling`, which send the change to the cluster. `simulation` takes the same values and
two more, for pods that would be deleted: those are executed by `pods` and `surge`, which report on each pod.

The invariant: `execute` checks the permission before it reads anything, and writes an audit entry before it writes to
the cluster.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

from rollouts.accounts.commands import Command, WorkloadRef
from rollouts.engine.model.actions import Delete
from rollouts.engine.model.observed import Observed
from rollouts.engine.model.workload import Workload
from rollouts.services.apply import workload_apply
from rollouts.services.audit import Caller
from rollouts.services.edit import Edit, EditResult, workload_edit
from rollouts.services.scaling import ScaleLive, live_component_scale


@dataclass(frozen=True, slots=True)
class Apply:
    """Server-side apply of a manifest."""

    command: ClassVar[Command] = Command.APPLY_WORKLOAD

    manifest: Any
    force: bool = False  # take over fields that other managers own
    must_be_new: bool = False


@dataclass(frozen=True, slots=True)
class DeletePods:
    """Pods, and what owns them, that a person would delete; only simulated."""

    command: Command
    deletions: Callable[[Workload, Observed], tuple[Delete, ...]]


@dataclass(frozen=True, slots=True)
class ForgetPods:
    """Terminating pods whose objects a person would remove from the cluster; only simulated."""

    command: ClassVar[Command] = Command.DELETE_ANY_PODS

    uids: frozenset[str]


WorkloadChange = Edit | Apply | ScaleLive
"""A change that can be executed and simulated."""
Simulable = WorkloadChange | DeletePods | ForgetPods
"""A change that can be simulated."""


def execute(
    caller: Caller,
    ref: WorkloadRef,
    change: WorkloadChange,
    *,
    expected: str | None = None,
    dry_run: bool = False,
) -> EditResult:
    """Make a change.

    `expected` is the version that the caller saw, as an If-Match header names it; None accepts any version. A dry run
    asks the cluster too, and changes nothing.
    """
    match change:
        case Edit():
            return workload_edit(caller, ref, change, expected=expected, dry_run=dry_run)
        case ScaleLive():
            return live_component_scale(caller, ref, change, expected=expected, dry_run=dry_run)
        case Apply():
            return workload_apply(
                caller,
                ref,
                change.manifest,
                force=change.force,
                must_be_new=change.must_be_new,
                expected=expected,
                dry_run=dry_run,
            )
