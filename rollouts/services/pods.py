"""Deletes pods for a person: outdated pods under OnDelete, each by an eviction, and any pod by force.

Under OnDelete a pod gets the new template when a person deletes it. So without force a command evicts only outdated
pods, and only under OnDelete; the cluster asks the disruption budgets. Every other deletion needs force, which asks no
budget and has a permission of its own.

`pods_delete_stuck` removes terminating pods that do not go, because their node no longer reports: the cluster forgets
them at once, whether their containers have ended or not.

Before it: a form or a request. After it: `deletion`, which sends each deletion with the uid of the pod that was chosen.
Which pods exist is read from the mirror; which are outdated follows from the template that the cluster has now.

The invariants: the outcome of each pod is reported and stays in the audit log; and a command has a limit of pods and of
time, and counts the pods that are left.
"""

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from rollouts import mirror
from rollouts.accounts.commands import Command, WorkloadRef
from rollouts.accounts.errors import InvalidState
from rollouts.cluster import Obj
from rollouts.controller.effective_strategy import compute_effective_strategy, list_overrides
from rollouts.engine.manifest.edits import make_unknown_component
from rollouts.engine.manifest.parsing import ParseFailure, parse_workload
from rollouts.engine.model.observed import Observed, Pod
from rollouts.engine.model.workload import Strategy, Workload
from rollouts.engine.tree.layout import Layout, PodCliquePosition, make_layout
from rollouts.services.audit import AuditedCommand, Caller, audited_command
from rollouts.services.deletion import (
    DeletionMode,
    DeletionResult,
    PodDeleter,
    PodOutcome,
    PodRef,
    PodsDeleted,
    make_outcome,
    render_audit_begin,
    render_audit_outcomes,
    summarize_outcomes,
)
from rollouts.services.edit import fetch_expected
from rollouts.services.workload_client import (
    WorkloadClient,
    invalid_command,
    open_writable_client,
    require_synced,
    version_of_object,
)

MAX_PODS: Final = 500
"""How many pods one command deletes; the pods that are left need another command."""


@dataclass(frozen=True, slots=True)
class Selection:
    """Pods by position and node; a pod must match every field that is set."""

    replica: int | None = None  # of the set
    component: str = ""  # a clique or scaling group of the template, or the full name of a PodClique
    node: str = ""

    def matches(self, pod: Pod, position: PodCliquePosition) -> bool:
        """Return whether a pod is selected."""
        return (
            self.replica in (None, position.replica)
            and self.component in ("", position.clique, position.group, pod.clique)
            and self.node in ("", pod.node)
        )


def pods_delete(
    caller: Caller,
    place: WorkloadRef,
    chosen: Sequence[PodRef] | Selection,
    *,
    force: bool = False,
    expected: str | None = None,
    dry_run: bool = False,
) -> PodsDeleted:
    """Delete pods, by name or by position."""
    command = Command.DELETE_ANY_PODS if force else Command.DELETE_OUTDATED_PODS
    with audited_command(caller, command, place, dry_run=dry_run) as audited:
        client = open_writable_client(place)
        live = fetch_expected(client, expected)
        layout = _read_layout(client, live, force=force)
        choice = _choose_targets(layout, read_observed(client, live).pods, chosen, force=force)
        mode = DeletionMode.DELETE if force else DeletionMode.EVICT
        return _delete_targets(client, audited, version_of_object(live), choice, mode, dry_run=dry_run)


def pods_delete_stuck(
    caller: Caller,
    place: WorkloadRef,
    chosen: Sequence[PodRef],
    *,
    expected: str | None = None,
    dry_run: bool = False,
) -> PodsDeleted:
    """Remove terminating pods from the cluster at once; pods that are not terminating stay."""
    with audited_command(caller, Command.DELETE_ANY_PODS, place, dry_run=dry_run) as audited:
        client = open_writable_client(place)
        live = fetch_expected(client, expected)
        choice = _choose_terminating(_read_layout(client, live, force=True), read_observed(client, live).pods, chosen)
        return _delete_targets(
            client, audited, version_of_object(live), choice, DeletionMode.FORCE_DELETE, dry_run=dry_run
        )


def _delete_targets(
    client: WorkloadClient,
    audited: AuditedCommand,
    version: str,
    choice: "_Targets",
    mode: DeletionMode,
    *,
    dry_run: bool,
) -> PodsDeleted:
    pods, rest = choice.pods[:MAX_PODS], choice.pods[MAX_PODS:]
    outcomes = choice.outcomes
    if pods:
        audited.begin(after=render_audit_begin(pods))
        sender = PodDeleter(client, mode, dry_run=dry_run)
        outcomes = [*choice.outcomes, *sender.delete_all(pods)]
        if not dry_run:
            client.write_through([sender.changes])
    if outcomes and not dry_run:
        audited.done(after=render_audit_outcomes(outcomes, rest), detail=summarize_outcomes(outcomes))
    return PodsDeleted(client.place, version, tuple(outcomes), len(rest), dry_run, audited.entry_id)


# ---- which pods


def read_workload(client: WorkloadClient, live: Obj) -> Workload:
    """Return a workload with its effective strategy; raises ValidationFailed when it cannot be parsed."""
    overrides = list_overrides(client.place.cluster)
    effective = compute_effective_strategy(live, overrides, time.time(), cluster=client.place.cluster)
    workload = parse_workload(effective.manifest)
    if isinstance(workload, ParseFailure):
        raise invalid_command(workload.findings)
    return workload


def read_observed(client: WorkloadClient, live: Obj) -> Observed:
    """Return the objects of a workload from the mirror; raises ClusterUnavailable while the mirror is incomplete."""
    require_synced(client)
    seen = mirror.fetch_workload(client.cluster_row, client.place.namespace, client.place.name)
    return seen.observed if seen is not None and seen.uid == live["metadata"]["uid"] else Observed()


def _read_layout(client: WorkloadClient, live: Obj, *, force: bool) -> Layout:
    """Return the workload with its current hashes; raises InvalidState where the strategy replaces pods itself."""
    workload = read_workload(client, live)
    if not force and (sentence := find_obstacle(workload)):
        raise InvalidState(sentence)
    return make_layout(workload)


def find_obstacle(workload: Workload) -> str:
    """Return why outdated pods cannot be deleted without force; empty: they can."""
    if workload.strategy is Strategy.ON_DELETE:
        return ""
    return f"{workload.strategy} replaces outdated pods itself; change the strategy to OnDelete, or use force."


@dataclass(slots=True)
class _Targets:
    """Pods to delete, and the outcomes of those that need no request to the cluster."""

    pods: list[Pod] = field(default_factory=list)
    outcomes: list[PodOutcome] = field(default_factory=list)

    def add(self, pod: PodRef | Pod, result: DeletionResult, message: str) -> None:
        """Add a pod that needs no request."""
        self.outcomes.append(make_outcome(pod, result, message))


def _choose_targets(
    layout: Layout, pods: Iterable[Pod], chosen: Sequence[PodRef] | Selection, *, force: bool
) -> _Targets:
    if isinstance(chosen, Selection):
        _require_known_component(layout, chosen)
        return _Targets(choose_candidates(layout, pods, chosen, force=force))
    placed = _locate_pods(layout, pods)
    choice = _Targets()
    for one in {one.name: one for one in chosen}.values():
        pod, position = placed.get(one.name, (None, None))
        if pod is None or position is None:
            choice.add(one, DeletionResult.NOT_THERE, "The workload has no pod with this name.")
        elif one.uid not in ("", pod.uid):
            choice.add(one, DeletionResult.GONE, "That pod is gone; another pod has its name.")
        elif pod.leaving:
            choice.add(pod, DeletionResult.LEAVING, "It is terminating already.")
        elif not force and not _is_outdated(layout, pod, position):
            sentence = "It runs the current template; use force to delete it anyway."
            choice.add(pod, DeletionResult.NOT_OUTDATED, sentence)
        else:
            choice.pods.append(pod)
    return choice


def choose_candidates(layout: Layout, pods: Iterable[Pod], selection: Selection, *, force: bool) -> list[Pod]:
    """Return the pods that a command would delete, in the order of their positions."""
    placed = _locate_pods(layout, pods)
    found = [pod for pod, position in placed.values() if selection.matches(pod, position) and not pod.leaving]
    ordered = sorted(found, key=lambda pod: (placed[pod.name][1].replica, pod.clique, pod.index))
    return [pod for pod in ordered if force or _is_outdated(layout, pod, placed[pod.name][1])]


def _locate_pods(layout: Layout, pods: Iterable[Pod]) -> dict[str, tuple[Pod, PodCliquePosition]]:
    return {pod.name: (pod, position) for pod in pods if (position := layout.find_position(pod.clique)) is not None}


def _choose_terminating(layout: Layout, pods: Iterable[Pod], chosen: Sequence[PodRef]) -> _Targets:
    placed = _locate_pods(layout, pods)
    choice = _Targets()
    for one in {one.name: one for one in chosen}.values():
        pod, _ = placed.get(one.name, (None, None))
        if pod is None or one.uid not in ("", pod.uid):
            choice.add(one, DeletionResult.GONE, "It was gone already.")
        elif not pod.leaving:
            choice.add(
                pod, DeletionResult.REFUSED, "It is not terminating; only terminating pods are removed like this."
            )
        else:
            choice.pods.append(pod)
    return choice


def _is_outdated(layout: Layout, pod: Pod, position: PodCliquePosition) -> bool:
    return pod.template_hash != layout.hashes[position.clique]


def _require_known_component(layout: Layout, selection: Selection) -> None:
    name = selection.component
    if name and name not in layout.cliques and name not in layout.groups and layout.find_position(name) is None:
        raise invalid_command([make_unknown_component("selection.clique")])
