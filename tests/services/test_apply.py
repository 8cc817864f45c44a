"""Manifests applied: fields of ours and of others, what was hidden, what is new, and lost races."""

import copy
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

import pytest
from django.db import connections
from redis import Redis

from rollouts.accounts import errors
from rollouts.accounts.commands import WorkloadRef
from rollouts.cluster import NotFound, Obj
from rollouts.cluster.resources import PODCLIQUESETS
from rollouts.engine.manifest.edits import ImageEdit
from rollouts.engine.manifest.findings import FindingCode
from rollouts.engine.manifest.parsing import ParseFailure, parse_workload
from rollouts.engine.model.hashing import compute_generation_hash
from rollouts.manifests.masking import HIDDEN, MARK, make_workload_reader, mask_manifest
from rollouts.models import AuditEntry
from rollouts.services import apply
from rollouts.services.apply import workload_apply
from rollouts.services.audit import Caller
from rollouts.services.changes import execute
from rollouts.services.workloads import set_images
from tests.deploy.manifests import edited
from tests.engine.manifests import small
from tests.services.conftest import ONE_REPLICA
from tests.services.stage import Stage

pytestmark = [pytest.mark.django_db(transaction=True)]

ENV = "spec.template.cliques.0.spec.podSpec.containers.0.env"
IMAGE = "spec.template.cliques.0.spec.podSpec.containers.0.image"


def manifest(edits: dict[str, Any] | None = None) -> Obj:
    """Return a manifest without a namespace, as people keep it in a file."""
    return small({**ONE_REPLICA, **(edits or {})})


@pytest.fixture
def place(stage: Stage) -> WorkloadRef:
    """The place of a workload that is not there yet."""
    return WorkloadRef(stage.cluster_name, stage.namespace, "fresh")


@pytest.fixture
def applied(stage: Stage, caller: Caller, place: WorkloadRef) -> Obj:
    """A workload that was applied, with a secret in it."""
    secret = [{"name": "API_TOKEN", "value": "s3cret-of-ours"}, {"name": "NCCL_DEBUG", "value": "INFO"}]
    workload_apply(caller, place, manifest({"metadata.name": "fresh", ENV: secret}))
    return stored(stage)


def stored(stage: Stage, name: str = "fresh") -> Obj:
    """Return what the cluster has."""
    return stage.cluster.get(PODCLIQUESETS, name, namespace=stage.namespace)


def test_a_manifest_of_something_new_creates_it(stage: Stage, caller: Caller, place: WorkloadRef) -> None:
    changed = workload_apply(caller, place, manifest({"metadata.name": "fresh"}))
    assert changed.is_new
    obj = stored(stage)
    assert changed.version == f"{obj['metadata']['uid']}.{obj['metadata']['generation']}"
    assert [entry.result for entry in AuditEntry.objects.order_by("id")] == ["Begun", "Done"]


def test_what_was_applied_before_and_is_left_out_is_removed(
    stage: Stage, caller: Caller, place: WorkloadRef, applied: Obj
) -> None:
    changed = workload_apply(caller, place, manifest({"metadata.name": "fresh", "spec.replicas": 2}))
    assert not changed.is_new
    assert {one.field for one in changed.changes} == {
        "spec.replicas",
        "spec.template.cliques[0].spec.podSpec.containers[0].env",
    }
    obj = stored(stage)
    assert obj["spec"]["replicas"] == 2
    assert "env" not in obj["spec"]["template"]["cliques"][0]["spec"]["podSpec"]["containers"][0]
    assert "s3cret" not in str([(entry.before, entry.after, entry.detail) for entry in AuditEntry.objects.all()])


def test_applying_the_same_again_changes_nothing(
    stage: Stage, caller: Caller, place: WorkloadRef, applied: Obj
) -> None:
    env = applied["spec"]["template"]["cliques"][0]["spec"]["podSpec"]["containers"][0]["env"]
    changed = workload_apply(caller, place, manifest({"metadata.name": "fresh", ENV: env}))
    assert changed.changes == ()
    assert stored(stage)["metadata"]["generation"] == applied["metadata"]["generation"]


def test_a_dry_run_tells_the_difference_and_changes_nothing(
    stage: Stage, caller: Caller, place: WorkloadRef, applied: Obj
) -> None:
    entries = AuditEntry.objects.count()
    changed = workload_apply(caller, place, manifest({"metadata.name": "fresh", IMAGE: "app:v9"}), dry_run=True)
    told = {one.field: one.after for one in changed.changes}
    assert told["spec.template.cliques[0].spec.podSpec.containers[0].image"] == "app:v9"
    assert "s3cret" not in repr(changed)
    assert stored(stage) == applied
    assert AuditEntry.objects.count() == entries


def test_a_dry_run_of_something_new_creates_nothing(stage: Stage, caller: Caller, place: WorkloadRef) -> None:
    changed = workload_apply(caller, place, manifest({"metadata.name": "fresh"}), dry_run=True)
    assert changed.is_new
    with pytest.raises(NotFound):
        stored(stage)


# Annotations in which tools keep a copy of a manifest: nobody is shown what they hold.
COPIES: Final = ("example.com/applied", "example.com/last-applied", "kubectl.kubernetes.io/last-applied-configuration")
ANNOTATIONS: Final = {
    "metadata.annotations": "metadata.annotations",
    "spec.template.cliques.0.annotations": "spec.template.cliques[0].annotations",
}


@pytest.mark.parametrize("key", COPIES)
@pytest.mark.parametrize("where", ANNOTATIONS)
def test_an_annotation_that_nobody_is_shown_is_a_change_like_any_other(
    stage: Stage, caller: Caller, place: WorkloadRef, where: str, key: str
) -> None:
    hashes = []
    for text in ("a", "b", "c"):
        annotations = {where: {"example.com/owner": "ana", key: f"{{{text}: s3cret-of-ours}}"}}
        changed = workload_apply(caller, place, manifest({"metadata.name": "fresh", **annotations}))
        hashes.append(generation_hash(stored(stage)))
    field = f"{ANNOTATIONS[where]}[{key}]"
    (change,) = changed.changes
    assert (change.field, change.before != change.after) == (field, True)
    assert len({*hashes}) == (1 if where == "metadata.annotations" else 3)
    before, after = AuditEntry.objects.order_by("id").values_list("before__fields", "after__fields")[5]
    assert (before, after) == ({field: HIDDEN}, {field: HIDDEN})
    shown = changed.manifest["metadata"], changed.manifest["spec"]["template"]["cliques"][0]
    assert all(key not in (one.get("annotations") or {}) for one in shown)
    assert "s3cret" not in str([changed, *AuditEntry.objects.values_list("before", "after")])


def generation_hash(obj: Obj) -> str:
    """Return the hash whose change updates every pod."""
    workload = parse_workload(obj)
    assert not isinstance(workload, ParseFailure)
    return compute_generation_hash(workload)


def test_no_padding_hides_in_the_audit_what_was_changed(
    stage: Stage, caller: Caller, place: WorkloadRef, applied: Obj
) -> None:
    padding: dict[str, Any] = {
        "spec.template.cliques.0.spec.podSpec.containers.0.args": ["x" * 300_000],
        "metadata.annotations": {f"example.com/{number}": "x" for number in range(1000)},
    }
    workload_apply(caller, place, manifest({"metadata.name": "fresh", IMAGE: "app:v9", **padding}))
    done = AuditEntry.objects.latest("id")
    assert done.after is not None
    assert done.after["version"]
    after, container = done.after["fields"], "spec.template.cliques[0].spec.podSpec.containers[0]"
    assert after[f"{container}.image"] == "app:v9"
    assert after[f"{container}.args"] == ["omitted: 300002 bytes"]
    assert after["metadata.annotations"] == "omitted: 1000 fields"


# ---- what was hidden


def test_a_manifest_as_it_was_shown_can_be_sent_back(
    stage: Stage, caller: Caller, place: WorkloadRef, applied: Obj
) -> None:
    shown = mask_manifest(applied, make_workload_reader(place.key))
    assert MARK.search(str(shown))
    shown["spec"]["template"]["cliques"][0]["spec"]["podSpec"]["containers"][0]["image"] = "app:v7"
    changed = workload_apply(caller, place, shown)
    assert [one.field for one in changed.changes] == ["spec.template.cliques[0].spec.podSpec.containers[0].image"]
    container = stored(stage)["spec"]["template"]["cliques"][0]["spec"]["podSpec"]["containers"][0]
    assert container["env"][0]["value"] == "s3cret-of-ours"


def test_a_mark_that_stands_for_nothing_there_is_refused(
    stage: Stage, caller: Caller, place: WorkloadRef, applied: Obj
) -> None:
    shown = mask_manifest(applied, make_workload_reader(place.key))
    env = shown["spec"]["template"]["cliques"][0]["spec"]["podSpec"]["containers"][0]["env"]
    env[1] = {"name": "NCCL_DEBUG", "value": env[0]["value"]}  # to where it would be shown
    with pytest.raises(errors.ValidationFailed) as refusal:
        workload_apply(caller, place, shown)
    assert [one.field for one in refusal.value.findings] == [
        "spec.template.cliques[0].spec.podSpec.containers[0].env[1].value"
    ]
    assert stored(stage) == applied


def test_what_was_read_and_sent_back_is_meant_for_the_state_it_was_read_in(
    stage: Stage, caller: Caller, place: WorkloadRef, applied: Obj
) -> None:
    shown = mask_manifest(applied, make_workload_reader(place.key))
    execute(caller, place, set_images([ImageEdit("frontend", "app:v5")]))
    before = stored(stage)
    with pytest.raises(errors.VersionConflict):
        workload_apply(caller, place, shown)
    assert stored(stage) == before


# ---- fields of others


def test_what_others_hold_is_refused_with_who_it_is_and_taken_by_force(
    stage: Stage, caller: Caller, place: WorkloadRef, applied: Obj
) -> None:
    theirs = {"metadata": {"name": "fresh", "namespace": stage.namespace}, "spec": {"replicas": 4}}
    theirs["spec"] = {**applied["spec"], "replicas": 4}
    stage.cluster.apply(PODCLIQUESETS, theirs, field_manager="somebody", force=True)
    before = stored(stage)
    with pytest.raises(errors.InvalidState) as refusal:
        workload_apply(caller, place, manifest({"metadata.name": "fresh", "spec.replicas": 2}))
    (finding,) = refusal.value.findings
    assert (finding.field, finding.code) == ("spec.replicas", FindingCode.FIELD_HELD)
    assert "somebody" in finding.message
    assert stored(stage) == before
    workload_apply(caller, place, manifest({"metadata.name": "fresh", "spec.replicas": 2}), force=True)
    assert stored(stage)["spec"]["replicas"] == 2


def test_what_our_own_commands_wrote_is_no_conflict(
    stage: Stage, caller: Caller, place: WorkloadRef, applied: Obj
) -> None:
    execute(caller, place, set_images([ImageEdit("frontend", "app:v5")]))
    workload_apply(caller, place, manifest({"metadata.name": "fresh"}))
    clique = stored(stage)["spec"]["template"]["cliques"][0]
    assert clique["spec"]["podSpec"]["containers"][0]["image"] == "ghcr.io/example/app:v1"


# ---- what decides when a workload goes

NOBODY: Final = {"apiVersion": "v1", "kind": "ConfigMap", "name": "nope", "uid": "00000000-0000-0000-0000-000000000001"}
OF_OTHERS: Final[dict[str, Any]] = {"ownerReferences": [NOBODY], "finalizers": ["evil.io/never"]}
KEEPER: Final = "example.com/keeper"


@pytest.mark.parametrize("dry_run", [True, False])
@pytest.mark.parametrize("name", OF_OTHERS)
def test_nobody_deletes_a_workload_by_applying_it(
    stage: Stage, caller: Caller, place: WorkloadRef, applied: Obj, name: str, *, dry_run: bool
) -> None:
    wanted = manifest({"metadata.name": "fresh", f"metadata.{name}": OF_OTHERS[name]})
    with pytest.raises(errors.ValidationFailed) as refusal:
        workload_apply(caller, place, wanted, force=True, dry_run=dry_run)
    assert [(one.field, one.code) for one in refusal.value.findings] == [
        (f"metadata.{name}", FindingCode.FIELD_NOT_APPLIED)
    ]
    assert "leave them out" in refusal.value.sentence
    assert stored(stage) == applied


@pytest.mark.parametrize("name", OF_OTHERS)
def test_a_new_workload_has_neither_owners_nor_finalizers(
    stage: Stage, caller: Caller, place: WorkloadRef, name: str
) -> None:
    with pytest.raises(errors.ValidationFailed) as refusal:
        workload_apply(caller, place, manifest({"metadata.name": "fresh", f"metadata.{name}": OF_OTHERS[name]}))
    assert [one.field for one in refusal.value.findings] == [f"metadata.{name}"]
    with pytest.raises(NotFound):
        stored(stage)


def test_what_others_wrote_there_can_be_sent_back_and_stays_theirs(
    stage: Stage, caller: Caller, place: WorkloadRef, applied: Obj
) -> None:
    stage.cluster.patch_merge(PODCLIQUESETS, "fresh", {"metadata": {"finalizers": [KEEPER]}}, namespace=stage.namespace)
    shown = mask_manifest(stored(stage), make_workload_reader(place.key))
    shown["spec"]["template"]["cliques"][0]["spec"]["podSpec"]["containers"][0]["image"] = "app:v7"
    changed = workload_apply(caller, place, shown)
    assert [one.field for one in changed.changes] == ["spec.template.cliques[0].spec.podSpec.containers[0].image"]
    ours = [one for one in stored(stage)["metadata"]["managedFields"] if one["operation"] == "Apply"]
    assert ours
    assert "f:finalizers" not in str(ours)
    workload_apply(caller, place, manifest({"metadata.name": "fresh"}))
    assert stored(stage)["metadata"]["finalizers"] == [KEEPER]
    stage.cluster.patch_merge(PODCLIQUESETS, "fresh", {"metadata": {"finalizers": None}}, namespace=stage.namespace)


# ---- races


@pytest.mark.parametrize("must_be_new", [True, False])
def test_of_many_who_create_it_at_once_one_does(
    stage: Stage, caller: Caller, place: WorkloadRef, must_be_new: bool, redis: Redis
) -> None:
    def create(number: int) -> bool | None:
        wanted = manifest({"metadata.name": "fresh", "metadata.annotations": {"example.com/by": str(number)}})
        try:
            return workload_apply(caller, place, wanted, must_be_new=must_be_new).is_new
        except errors.VersionConflict:
            return None
        finally:
            connections.close_all()

    with ThreadPoolExecutor(4) as people:
        outcomes = [*people.map(create, range(4))]
    assert sorted(outcomes, key=str) == ([None] * 3 if must_be_new else [False] * 3) + [True]


def test_who_finds_it_held_is_told_so(
    stage: Stage, caller: Caller, place: WorkloadRef, redis: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(apply, "_LOCK_WAIT_SECONDS", 0.1)
    with redis.lock(f"grove:apply:{place.key}", timeout=60), pytest.raises(errors.InvalidState, match="being applied"):
        workload_apply(caller, place, manifest({"metadata.name": "fresh"}))


def test_it_must_be_new_when_the_caller_says_so(stage: Stage, caller: Caller, place: WorkloadRef) -> None:
    workload_apply(caller, place, manifest({"metadata.name": "fresh"}), must_be_new=True)
    before = stored(stage)
    with pytest.raises(errors.VersionConflict, match="already"):
        workload_apply(caller, place, manifest({"metadata.name": "fresh", "spec.replicas": 2}), must_be_new=True)
    assert stored(stage) == before


def test_what_is_gone_is_not_made_anew_for_who_saw_it(stage: Stage, caller: Caller, place: WorkloadRef) -> None:
    with pytest.raises(errors.VersionConflict, match="no longer exists"):
        workload_apply(caller, place, manifest({"metadata.name": "fresh"}), expected='"some.1"')
    with pytest.raises(NotFound):
        stored(stage)


def test_an_old_state_loses_and_statuses_do_not_matter(
    stage: Stage, caller: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = stage.version()
    interrupt(monkeypatch, stage.write_status, times=3)
    wanted = manifest({"spec.replicas": 2})
    workload_apply(caller, stage.place, wanted, expected=seen, force=True)
    assert stage.spec()["replicas"] == 2
    with pytest.raises(errors.VersionConflict):
        workload_apply(caller, stage.place, wanted, expected=seen, force=True)


def test_an_edit_in_between_is_not_overwritten(stage: Stage, caller: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = stage.version()
    interrupt(monkeypatch, lambda: stage.edit_elsewhere(replicas=7), times=1)
    with pytest.raises(errors.VersionConflict) as lost:
        workload_apply(caller, stage.place, manifest({"spec.replicas": 2}), expected=seen, force=True)
    assert "spec.replicas" in lost.value.changed
    assert stage.spec()["replicas"] == 7


def interrupt(monkeypatch: pytest.MonkeyPatch, act: Any, times: int) -> None:
    """Have something happen before each of the first times that something is sent in earnest."""
    send, acts = apply._ServerSideApply._apply_if_unchanged, [act] * times

    def late(self: Any, live: Any, *, dry_run: bool) -> Any:
        if acts and not dry_run:
            acts.pop()()
        return send(self, live, dry_run=dry_run)

    monkeypatch.setattr(apply._ServerSideApply, "_apply_if_unchanged", late)


# ---- what is refused


REFUSED: dict[str, tuple[Any, str]] = {
    "no object": ([], ""),
    "a text": ("x", ""),
    "metadata of the wrong kind": ({"metadata": 7}, "metadata"),
    "another kind": ({"kind": "Deployment"}, "kind"),
    "another version": ({"apiVersion": "v1"}, "apiVersion"),
    "another name": ({"metadata.name": "other"}, "metadata.name"),
    "another namespace": ({"metadata.namespace": "other"}, "metadata.namespace"),
    "a field that nobody knows": ({"spec.replica": 1}, "spec.replica"),
    "a number in quotes": ({"spec.replicas": "2"}, "spec.replicas"),
    "a negative number": ({"spec.replicas": -2}, "spec.replicas"),
    "a template of the wrong kind": ({"spec.template": 7}, "spec.template"),
    "a budget of nothing": (
        {"spec.template.cliques.0.updateStrategy": {"maxUnavailable": 0}},
        "spec.template.cliques[0].updateStrategy",
    ),
    "what may not change": ({"spec.template.cliques.0.name": "web"}, "spec.template.cliques"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_breaks_a_rule_changes_nothing_and_names_the_field(name: str, stage: Stage, caller: Caller) -> None:
    change, field = REFUSED[name]
    before = copy.deepcopy(stage.stored())
    wanted = manifest(change) if isinstance(change, dict) else change
    with pytest.raises(errors.ValidationFailed) as refusal:
        workload_apply(caller, stage.place, wanted, force=True)
    assert any(one.field.startswith(field) for one in refusal.value.findings), refusal.value.findings
    assert stage.stored() == before
    assert [entry.result for entry in AuditEntry.objects.all()] == ["Refused"]


def test_a_new_workload_is_told_everything_that_is_wrong_with_it(caller: Caller, place: WorkloadRef) -> None:
    wrong = {"spec.replicas": -1, "spec.template.cliques.0.spec.replicas": 0, "metadata.name": "fresh"}
    with pytest.raises(errors.ValidationFailed) as refusal:
        workload_apply(caller, place, manifest(wrong))
    assert {one.field for one in refusal.value.findings} >= {
        "spec.replicas",
        "spec.template.cliques[0].spec.replicas",
    }


def test_a_namespace_that_is_not_there_is_named(stage: Stage, caller: Caller) -> None:
    place = WorkloadRef(stage.cluster_name, "nowhere", "chat")
    with pytest.raises(errors.NotFound, match="nowhere"):
        workload_apply(caller, place, edited(manifest(), {"metadata.name": "chat"}))


def test_the_clusters_own_words_hide_what_is_secret(stage: Stage, caller: Caller) -> None:
    env = [{"name": "API_TOKEN", "value": "s3cret-of-ours"}]
    # Servers quote the value of a label that they refuse.
    labels = {"metadata.labels": {"a": "-s3cret-of-ours-"}}
    with pytest.raises(errors.ValidationFailed) as refusal:
        workload_apply(caller, stage.place, manifest({ENV: env, **labels}), force=True)
    told = refusal.value.sentence + str(refusal.value.findings)
    assert "s3cret" not in told
    assert "hidden" in told
    assert "s3cret" not in AuditEntry.objects.get().detail
