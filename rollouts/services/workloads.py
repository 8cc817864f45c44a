"""The changes that people make to a whole workload, each as one value: images, replicas, strategy, restart, rollback.

Before it: a form or a request that has been parsed. After it: `changes.execute`, which makes the change, and
`simulation.workload_simulate`, which shows what it would do. Both run the same `function` on the manifest that they
read, so a preview and a command cannot differ. Nothing here reads or writes anything, except that a rollback reads its
revision when its function runs.
"""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Any, Final

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
from rollouts.services.edit import Edit
from rollouts.services.scaling import ScaleLive

# Differs from the time of every real restart.
_NEXT_ROLLOUT: Final = "the next time"


def set_images(images: Sequence[ImageEdit]) -> Edit:
    """Set the images of containers."""
    return Edit(Command.SET_IMAGES, partial(edits.set_images, images=images))


def scale(replicas: int, component: str = "", replica: int | None = None) -> Edit | ScaleLive:
    """Set replicas: of the set, of a component in its template, or of the live component of one replica of the set.

    A change of the template sets every live component to the new number. Between two such changes a live PodClique or
    scaling group keeps the number that an autoscaler or `ScaleLive` gave it.
    """
    return scale_template({component: replicas}) if replica is None else ScaleLive(component, replica, replicas)


def scale_template(numbers: Mapping[str, int]) -> Edit:
    """Set replicas of components in the template and of the set (the empty name), in one write."""
    return Edit(Command.SCALE_WORKLOAD, partial(_scale_template, numbers=numbers))


def edit_strategy(changes: Mapping[str, Any], *, rehearse: bool = False) -> Edit:
    """Change parts of the update strategy; null removes one. `rehearse` lets a simulation run the next rollout."""
    return Edit(
        Command.EDIT_STRATEGY,
        partial(edits.edit_strategy, changes=changes),
        rehearsal=partial(edits.restart, at=_NEXT_ROLLOUT) if rehearse else None,
    )


def restart(components: Sequence[str] = (), *, at: float | None = None) -> Edit:
    """Replace all pods, or those of some components, as the strategy says.

    Two restarts with the same time are one restart; two within the same second are two.
    """
    moment = timezone.now() if at is None else datetime.fromtimestamp(at, UTC)
    stamp = moment.isoformat(timespec="microseconds").replace("+00:00", "Z")
    return Edit(Command.RESTART_WORKLOAD, partial(edits.restart, at=stamp, components=components))


def roll_back(ref: WorkloadRef, revision: int) -> Edit:
    """Restore the pod templates of an earlier revision."""
    return Edit(Command.ROLL_BACK_WORKLOAD, partial(_roll_back, ref=ref, revision=revision))


def _scale_template(live: Obj, numbers: Mapping[str, int]) -> Obj | InvalidEdit:
    wanted: Obj | InvalidEdit = live
    for component, replicas in numbers.items():
        if isinstance(wanted, InvalidEdit):
            break
        wanted = edits.scale(wanted, replicas, component)
    return wanted


def _roll_back(live: Obj, ref: WorkloadRef, revision: int) -> Obj | InvalidEdit:
    """Return the workload with the pods of one of its own revisions; raises NotFound when it is not stored."""
    record = Revision.objects.filter(cluster=ref.cluster, workload_uid=live["metadata"]["uid"], number=revision).first()
    if record is None:
        raise NotFound(f"{ref.name} has no revision {revision}; the oldest revisions are deleted after a while.")
    wanted = edits.roll_back(live, record.template)
    if isinstance(wanted, InvalidEdit):
        return wanted
    workload = parse_workload(wanted)
    if isinstance(workload, ParseFailure) or compute_generation_hash(workload) != record.generation_hash:
        sentence = f"revision {revision} cannot be restored: its stored template now has another hash"
        return InvalidEdit((Finding("revision", FindingCode.UNKNOWN_VALUE, sentence),))
    return wanted
