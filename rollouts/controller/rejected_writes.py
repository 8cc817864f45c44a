"""Writes that the cluster rejects again and again: counted for each workload, and backed off for growing delays.

Before it: `executor`, whose answers say what was rejected. After it: `rounds`, which does not send what is backed off,
and the reconciler, which stores the record on the workload's row and shows it as the condition `WriteDenied`.

A write is identified by verb, kind and name. It is sent as usual until the cluster has rejected it three times in a row
for the same reason, or six times for any reasons (otherwise two alternating reasons would never lead to a back-off).
From then on it is backed off, however often the workload is enqueued, for a delay that doubles up to a minute.
After a delay one write of each group (verb, kind and reason) is sent: the one that was rejected least often, so that
every object has its turn. Example, 80 PodGangs that exist already and cannot be used: 240 rejected creates in three
passes, then one after 1 s, 2 s, 4 s, ... 60 s, and one a minute from then on.

The invariants: a write that the cluster accepts releases its whole group; a write that the plan no longer contains is
forgotten; a write of an object that was not rejected before is sent at once, so a lost pod is replaced although others
are rejected; a change of the workload's spec releases everything.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from rollouts.cluster import AlreadyExists, Forbidden, Invalid
from rollouts.controller.executor import ExecutionResult, WriteRecord, WriteResult, kind_of, name_of, write_key_of
from rollouts.engine.model.actions import Create

MAX_SAME_REJECTIONS: Final = 3  # rejections in a row for one reason, before a write is backed off
MAX_REJECTIONS: Final = 6  # the same, for any reasons
FIRST_BACKOFF_SECONDS: Final = 1.0
MAX_BACKOFF_SECONDS: Final = 60.0
_MAX_LABELS_SHOWN: Final = 3
_MAX_MESSAGE_LENGTH: Final = 600

RejectionGroup = str
"""Verb, kind and reason: rejections that are likely to end together."""


@dataclass(frozen=True, slots=True)
class RejectedWrite:
    """A write that the cluster has rejected."""

    reason: str  # the API's CamelCase reason
    same_reason: int  # in a row, for this reason
    total: int  # in a row, for any reasons

    @property
    def is_backed_off(self) -> bool:
        """Whether it is sent only after a delay."""
        return self.same_reason >= MAX_SAME_REJECTIONS or self.total >= MAX_REJECTIONS


@dataclass(frozen=True, slots=True)
class RejectedWrites:
    """The rejected writes of one workload."""

    version: str = ""  # uid and generation of the workload at that time
    backoffs: int = 0  # that have begun since the first write was backed off
    backoff_until: float = 0.0  # the end of the delay, in seconds since the epoch
    writes: Mapping[str, RejectedWrite] = field(default_factory=dict)  # by verb, kind and name
    messages: Mapping[RejectionGroup, str] = field(default_factory=dict)  # of the first rejection of each group

    @property
    def has_backed_off(self) -> bool:
        """Whether any write is backed off, during a delay or between two attempts."""
        return any(one.is_backed_off for one in self.writes.values())

    @property
    def problem(self) -> tuple[str, str] | None:
        """The reason and the message of `WriteDenied`; None if nothing is rejected."""
        if not self.messages:
            return None
        reason = next(iter(self.messages)).rpartition(" ")[2]
        return reason, " ".join(self._render_message(group, message) for group, message in self.messages.items())

    def compute_backed_off(self, now: float) -> frozenset[str]:
        """Return the writes that must not be sent now."""
        backed_off = {key: one for key, one in self.writes.items() if one.is_backed_off}
        if now < self.backoff_until:
            return frozenset(backed_off)
        probes: dict[RejectionGroup, tuple[int, str]] = {}
        for key, one in backed_off.items():
            group = _group_of(key, one.reason)
            probes[group] = min(probes.get(group, (one.total, key)), (one.total, key))
        return frozenset(backed_off) - {key for _, key in probes.values()}

    def after_pass(self, result: ExecutionResult, now: float, *, is_whole: bool) -> "RejectedWrites":
        """Return the record after a pass, or after a part of it.

        Unless the pass `is_whole`, a write without an answer may only not have been sent yet.
        """
        answers, accepted, skipped = _partition_writes(result)
        rejected = {key: _reason_of(answer) for key, answer in answers.items()}
        if result.failure is None:
            rejected = {**self._infer_rejected(rejected, skipped), **rejected}
        released = {_group_of(key, self.writes[key].reason) for key in accepted & self.writes.keys()}
        writes = {
            key: one
            for key, one in self.writes.items()
            if key not in accepted and (key in skipped or not is_whole) and _group_of(key, one.reason) not in released
        }
        for key, reason in rejected.items():
            writes[key] = _count_rejection(self.writes.get(key), reason)
        counted = replace(self, writes=writes, messages=self._merge_messages(writes, answers))
        return counted._schedule_backoff(rejected, now)  # noqa: SLF001 (of this class)

    def _infer_rejected(self, rejected: Mapping[str, str], skipped: Iterable[str]) -> dict[str, str]:
        """Return what the executor skipped because others of its verb and kind were rejected: it would be, too."""
        reasons = {_verb_and_kind(key): reason for key, reason in rejected.items()}
        backed_off = {key for key, one in self.writes.items() if one.is_backed_off}
        return {
            key: reasons[_verb_and_kind(key)]
            for key in skipped
            if key not in backed_off and _verb_and_kind(key) in reasons
        }

    def _merge_messages(
        self, writes: Mapping[str, RejectedWrite], rejected: Mapping[str, WriteRecord]
    ) -> dict[RejectionGroup, str]:
        """Return the messages: of a rejection at once, of a conflict if it repeats; unchanged while the group lasts."""
        groups = {_group_of(key, one.reason) for key, one in writes.items()}
        messages = {group: message for group, message in self.messages.items() if group in groups}
        for key, answer in rejected.items():
            if answer.result is WriteResult.REJECTED or writes[key].is_backed_off:
                messages.setdefault(_group_of(key, writes[key].reason), _render_rejection(answer))
        return messages

    def _schedule_backoff(self, rejected: Iterable[str], now: float) -> "RejectedWrites":
        if any(self.writes[key].is_backed_off for key in rejected):
            delay = min(MAX_BACKOFF_SECONDS, FIRST_BACKOFF_SECONDS * 2 ** min(self.backoffs, 16))
            return replace(self, backoffs=self.backoffs + 1, backoff_until=now + delay)
        return self if self.has_backed_off else replace(self, backoffs=0, backoff_until=0.0)

    def _render_message(self, group: RejectionGroup, message: str) -> str:
        others = sum(_group_of(key, one.reason) == group for key, one in self.writes.items()) - 1
        return f"{message} The same applies to {others} more." if others else message


def parse_rejected_writes(stored: Mapping[str, Any], version: str) -> RejectedWrites:
    """Return a stored record; an empty one if it is of another version of the workload."""
    if stored.get("version") != version:
        return RejectedWrites(version)
    # An earlier version did not store the last number.
    writes = {
        key: RejectedWrite(reason, count, *(more or [count]))
        for key, (reason, count, *more) in stored["writes"].items()
    }
    return RejectedWrites(version, stored["pauses"], stored["until"], writes, stored["messages"])


def render_rejected_writes(record: RejectedWrites) -> dict[str, Any]:
    """Return a record as JSON; an empty object if nothing is rejected."""
    if not record.writes:
        return {}
    return {
        "version": record.version,
        "pauses": record.backoffs,
        "until": record.backoff_until,
        "writes": {key: [one.reason, one.same_reason, one.total] for key, one in record.writes.items()},
        "messages": {**record.messages},
    }


def _count_rejection(former: RejectedWrite | None, reason: str) -> RejectedWrite:
    if former is None:
        return RejectedWrite(reason, 1, 1)
    return RejectedWrite(reason, former.same_reason + 1 if former.reason == reason else 1, former.total + 1)


def _partition_writes(applied: ExecutionResult) -> tuple[dict[str, WriteRecord], frozenset[str], frozenset[str]]:
    """Return the writes that were rejected, those that were accepted, and those that were planned and not sent."""
    rejected: dict[str, WriteRecord] = {}
    accepted: set[str] = set()
    skipped: set[str] = set()
    for answer in applied.writes:
        key = write_key_of(answer.action)
        if answer.result is WriteResult.APPLIED:
            accepted.add(key)
        elif answer.result is WriteResult.SKIPPED:
            skipped.add(key)
        elif answer.result is not WriteResult.UNKNOWN and answer.error is not None:
            rejected[key] = answer
    return rejected, frozenset(accepted - rejected.keys()), frozenset(skipped)


def _verb_and_kind(key: str) -> str:
    """Return verb and kind of the key of a write."""
    return key.rpartition(" ")[0]


def _group_of(key: str, reason: str) -> RejectionGroup:
    return f"{_verb_and_kind(key)} {reason}"


def _reason_of(answer: WriteRecord) -> str:
    error = answer.error
    return (error.reason or type(error).__name__) if error is not None else ""


def _render_rejection(answer: WriteRecord) -> str:
    """Return what was rejected, why, and how to end it."""
    why = _render_conflict(answer) if answer.result is WriteResult.CONFLICT else str(answer.error)
    advice = "Grove UI tries again after growing delays."
    match answer.error:
        case AlreadyExists():
            advice = f"Delete or rename the existing object. {advice}"
        case Forbidden():
            advice = f"Grant the permission, or raise the quota. {advice}"
        case Invalid():
            advice = f"Correct the workload. {advice}"
    why = why if len(why) <= _MAX_MESSAGE_LENGTH else f"{why[: _MAX_MESSAGE_LENGTH - 1]}…"
    return f"{why.removesuffix('.')}. {advice}"


def _render_conflict(answer: WriteRecord) -> str:
    """Return what is wrong with an object that has our owner and still cannot be used."""
    action, found = answer.action, answer.current
    what = f"{kind_of(action)} {name_of(action)}"
    if not isinstance(answer.error, AlreadyExists) or not isinstance(action, Create) or found is None:
        return f"Other clients changed {what} each time Grove UI wrote to it: {answer.error}"
    if found["metadata"].get("deletionTimestamp"):
        return f"{what} exists already and is being deleted, but has finalizers"
    labels = found["metadata"].get("labels") or {}
    wanted = action.manifest["metadata"].get("labels") or {}
    missing = [f"{name}={value}" for name, value in wanted.items() if labels.get(name) != value]
    if not missing:
        return f"{what} exists already, and belongs to another object with the name of its owner"
    return (
        f"{what} exists already, and Grove UI cannot use it: it lacks {', '.join(missing[:_MAX_LABELS_SHOWN])}. "
        "If Grove's own operator made it, take the workload over; otherwise set the labels"
    )
