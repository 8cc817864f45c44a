"""What people command to a workload as a whole: images, numbers, strategy, a restart, the way back.

Each command says what is to be edited (`engine.manifest.edits`); how that reaches the cluster, without overwriting what somebody
else has written meanwhile, is told in `edit`. `expected` is what the caller saw, as an If-Match header names it,
and None for whoever does not care. A dry run asks the cluster too, and changes nothing.
"""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Any

from django.utils import timezone

from rollouts.accounts.commands import Command, Place
from rollouts.accounts.errors import NotThere
from rollouts.cluster import Obj
from rollouts.engine.manifest import edits
from rollouts.engine.manifest.edits import Image, Unfit
from rollouts.engine.manifest.findings import Code, Finding
from rollouts.engine.manifest.parsing import Unreadable, parse_workload
from rollouts.engine.model.hashing import compute_generation_hash
from rollouts.models import Revision
from rollouts.services.audit import Caller, deed
from rollouts.services.edit import Changed, change_workload
from rollouts.services.scaling import LiveScale, scale_live
from rollouts.services.workload_client import open_site


def workload_set_images(
    caller: Caller, place: Place, images: Sequence[Image], *, expected: str | None = None, dry_run: bool = False
) -> Changed:
    """Give containers other images."""
    edit = partial(edits.set_images, images=images)
    return change_workload(caller, Command.SET_IMAGES, place, edit, expected=expected, dry_run=dry_run)


def workload_scale(
    caller: Caller,
    place: Place,
    replicas: int,
    component: str = "",
    replica: int | None = None,
    *,
    expected: str | None = None,
    dry_run: bool = False,
) -> Changed:
    """Set replicas: of the set, of a component in its template, or of the live component of one replica of the set.

    What the template says is put in force in every replica when it changes; in between, a live PodClique or scaling
    group belongs to whoever scales it, and keeps what it is given here.
    """
    if replica is not None:
        with deed(caller, Command.SCALE_WORKLOAD, place, dry_run=dry_run) as it:
            wanted = LiveScale(component, replica, replicas)
            return scale_live(open_site(place), it, wanted, expected=expected, dry_run=dry_run)
    edit = partial(edits.scale, replicas=replicas, component=component)
    return change_workload(caller, Command.SCALE_WORKLOAD, place, edit, expected=expected, dry_run=dry_run)


def workload_scale_template(
    caller: Caller, place: Place, numbers: Mapping[str, int], *, expected: str | None = None, dry_run: bool = False
) -> Changed:
    """Set replicas of the set (by an empty name) and of components in its template, all at once or none."""
    edit = partial(scale_template, numbers=numbers)
    return change_workload(caller, Command.SCALE_WORKLOAD, place, edit, expected=expected, dry_run=dry_run)


def scale_template(live: Obj, numbers: Mapping[str, int]) -> Obj | Unfit:
    """Return the workload with other replicas, by component; empty names the set."""
    wanted: Obj | Unfit = live
    for component, replicas in numbers.items():
        if isinstance(wanted, Unfit):
            break
        wanted = edits.scale(wanted, replicas, component)
    return wanted


def workload_edit_strategy(
    caller: Caller, place: Place, changes: Mapping[str, Any], *, expected: str | None = None, dry_run: bool = False
) -> Changed:
    """Change parts of the update strategy; null takes one out."""
    edit = partial(edits.edit_strategy, changes=changes)
    return change_workload(caller, Command.EDIT_STRATEGY, place, edit, expected=expected, dry_run=dry_run)


def workload_restart(
    caller: Caller,
    place: Place,
    components: Sequence[str] = (),
    *,
    at: float | None = None,
    expected: str | None = None,
    dry_run: bool = False,
) -> Changed:
    """Have all pods replaced, or those of some components, as the strategy says.

    A restart that is asked for again with the same moment is the same restart; two within a second are two.
    """
    moment = timezone.now() if at is None else datetime.fromtimestamp(at, UTC)
    stamp = moment.isoformat(timespec="microseconds").replace("+00:00", "Z")
    edit = partial(edits.restart, at=stamp, components=components)
    return change_workload(caller, Command.RESTART_WORKLOAD, place, edit, expected=expected, dry_run=dry_run)


def workload_roll_back(
    caller: Caller, place: Place, revision: int, *, expected: str | None = None, dry_run: bool = False
) -> Changed:
    """Make the pods again what they were under an earlier revision."""
    edit = partial(roll_back_to, place=place, revision=revision)
    return change_workload(caller, Command.ROLL_BACK_WORKLOAD, place, edit, expected=expected, dry_run=dry_run)


def roll_back_to(live: Obj, place: Place, revision: int) -> Obj | Unfit:
    """Return the workload with the pods of a revision of its own; raises NotThere when that is not on record."""
    record = Revision.objects.filter(
        cluster=place.cluster, workload_uid=live["metadata"]["uid"], number=revision
    ).first()
    if record is None:
        raise NotThere(f"There is no revision {revision} of {place.name}; the oldest ones are not kept for ever.")
    wanted = edits.roll_back(live, record.template)
    if isinstance(wanted, Unfit):
        return wanted
    workload = parse_workload(wanted)
    if isinstance(workload, Unreadable) or compute_generation_hash(workload) != record.generation_hash:
        sentence = f"what is on record of revision {revision} does not give the pods that it stands for any more"
        return Unfit((Finding("revision", Code.UNKNOWN_VALUE, sentence),))
    return wanted
