"""What people command to a workload as a whole: images, numbers, strategy, a restart, the way back.

Each command says what is to be edited (`engine.manifest.edits`); how that reaches the cluster, without overwriting what
somebody else has written meanwhile, is told in `edit`. `expected` is what the caller saw, as an If-Match header names
it, and None for whoever does not care. A dry run asks the cluster too, and changes nothing.
"""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Any

from django.utils import timezone

from rollouts.accounts.commands import Command, WorkloadRef
from rollouts.accounts.errors import NotFound
from rollouts.cluster import Obj
from rollouts.engine.manifest import edits
from rollouts.engine.manifest.edits import ImageEdit, InvalidEdit
from rollouts.engine.manifest.findings import Finding, FindingCode
from rollouts.engine.manifest.parsing import ParseFailure, parse_workload
from rollouts.engine.model.hashing import compute_generation_hash
from rollouts.models import Revision
from rollouts.services.audit import Caller, audited_command
from rollouts.services.edit import EditResult, workload_edit
from rollouts.services.scaling import LiveScale, scale_live_component
from rollouts.services.workload_client import open_writable_client


def workload_set_images(
    caller: Caller,
    place: WorkloadRef,
    images: Sequence[ImageEdit],
    *,
    expected: str | None = None,
    dry_run: bool = False,
) -> EditResult:
    """Give containers other images."""
    edit = partial(edits.set_images, images=images)
    return workload_edit(caller, Command.SET_IMAGES, place, edit, expected=expected, dry_run=dry_run)


def workload_scale(
    caller: Caller,
    place: WorkloadRef,
    replicas: int,
    component: str = "",
    replica: int | None = None,
    *,
    expected: str | None = None,
    dry_run: bool = False,
) -> EditResult:
    """Set replicas: of the set, of a component in its template, or of the live component of one replica of the set.

    What the template says is put in force in every replica when it changes; in between, a live PodClique or scaling
    group belongs to whoever scales it, and keeps what it is given here.
    """
    if replica is not None:
        with audited_command(caller, Command.SCALE_WORKLOAD, place, dry_run=dry_run) as audited:
            wanted = LiveScale(component, replica, replicas)
            return scale_live_component(
                open_writable_client(place), audited, wanted, expected=expected, dry_run=dry_run
            )
    edit = partial(edits.scale, replicas=replicas, component=component)
    return workload_edit(caller, Command.SCALE_WORKLOAD, place, edit, expected=expected, dry_run=dry_run)


def workload_scale_template(
    caller: Caller,
    place: WorkloadRef,
    numbers: Mapping[str, int],
    *,
    expected: str | None = None,
    dry_run: bool = False,
) -> EditResult:
    """Set replicas of the set (by an empty name) and of components in its template, all at once or none."""
    edit = partial(scale_template, numbers=numbers)
    return workload_edit(caller, Command.SCALE_WORKLOAD, place, edit, expected=expected, dry_run=dry_run)


def scale_template(live: Obj, numbers: Mapping[str, int]) -> Obj | InvalidEdit:
    """Return the workload with other replicas, by component; empty names the set."""
    wanted: Obj | InvalidEdit = live
    for component, replicas in numbers.items():
        if isinstance(wanted, InvalidEdit):
            break
        wanted = edits.scale(wanted, replicas, component)
    return wanted


def workload_edit_strategy(
    caller: Caller,
    place: WorkloadRef,
    changes: Mapping[str, Any],
    *,
    expected: str | None = None,
    dry_run: bool = False,
) -> EditResult:
    """Change parts of the update strategy; null takes one out."""
    edit = partial(edits.edit_strategy, changes=changes)
    return workload_edit(caller, Command.EDIT_STRATEGY, place, edit, expected=expected, dry_run=dry_run)


def workload_restart(
    caller: Caller,
    place: WorkloadRef,
    components: Sequence[str] = (),
    *,
    at: float | None = None,
    expected: str | None = None,
    dry_run: bool = False,
) -> EditResult:
    """Have all pods replaced, or those of some components, as the strategy says.

    A restart that is asked for again with the same moment is the same restart; two within a second are two.
    """
    moment = timezone.now() if at is None else datetime.fromtimestamp(at, UTC)
    stamp = moment.isoformat(timespec="microseconds").replace("+00:00", "Z")
    edit = partial(edits.restart, at=stamp, components=components)
    return workload_edit(caller, Command.RESTART_WORKLOAD, place, edit, expected=expected, dry_run=dry_run)


def workload_roll_back(
    caller: Caller, place: WorkloadRef, revision: int, *, expected: str | None = None, dry_run: bool = False
) -> EditResult:
    """Make the pods again what they were under an earlier revision."""
    edit = partial(roll_back_to, place=place, revision=revision)
    return workload_edit(caller, Command.ROLL_BACK_WORKLOAD, place, edit, expected=expected, dry_run=dry_run)


def roll_back_to(live: Obj, place: WorkloadRef, revision: int) -> Obj | InvalidEdit:
    """Return the workload with the pods of a revision of its own; raises NotThere when that is not on record."""
    record = Revision.objects.filter(
        cluster=place.cluster, workload_uid=live["metadata"]["uid"], number=revision
    ).first()
    if record is None:
        raise NotFound(f"There is no revision {revision} of {place.name}; the oldest ones are not kept for ever.")
    wanted = edits.roll_back(live, record.template)
    if isinstance(wanted, InvalidEdit):
        return wanted
    workload = parse_workload(wanted)
    if isinstance(workload, ParseFailure) or compute_generation_hash(workload) != record.generation_hash:
        sentence = f"what is on record of revision {revision} does not give the pods that it stands for any more"
        return InvalidEdit((Finding("revision", FindingCode.UNKNOWN_VALUE, sentence),))
    return wanted
