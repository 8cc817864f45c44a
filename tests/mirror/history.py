"""The past of a small cluster: pods that are created, changed, deleted and gone, as a watch and as lists report it."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from rollouts.cluster import Obj
from tests.mirror import objects

NAMES = ("p-0", "p-1", "p-2")

# What can happen to a name; what cannot happen just then does not.
CREATE, TOUCH, FLIP, LEAVE, DELETE, HIDE, SHOW = "create", "touch", "flip", "leave", "delete", "hide", "show"
CHANGES = (CREATE, TOUCH, FLIP, LEAVE, DELETE, HIDE, SHOW)


@dataclass(frozen=True, slots=True)
class Event:
    """An event of a watch."""

    obj: Obj
    is_end: bool  # DELETED: gone, or no longer in the view of the selector
    is_death: bool  # gone for good


@dataclass(frozen=True, slots=True)
class _State:
    uid: str
    version: int
    ready: bool = False
    leaving: bool = False
    hidden: bool = False


class History:
    """Everything that happened; a time is the number of an event."""

    def __init__(self, changes: Sequence[tuple[str, str]]) -> None:
        self.events: list[Event] = []
        self._now: dict[str, _State] = {}
        self._states: list[dict[str, _State]] = [{}]
        for version, (name, change) in enumerate(changes, start=1):
            event = self._do(name, change, version)
            if event is not None:
                self.events.append(event)
                self._states.append(dict(self._now))

    def listed(self, moment: int) -> tuple[list[Obj], int]:
        """Return what a list contains after so many events, and its resourceVersion."""
        states = self._states[moment]
        found = [_pod(name, state) for name, state in states.items() if not state.hidden]
        version = int(self.events[moment - 1].obj["metadata"]["resourceVersion"]) if moment else 0
        return found, version

    def end(self) -> dict[str, tuple[str, int, bool, bool]]:
        """Return what exists in the end: uid, version, ready, leaving."""
        return {
            name: (state.uid, state.version, state.ready, state.leaving)
            for name, state in self._now.items()
            if not state.hidden
        }

    def _do(self, name: str, change: str, version: int) -> Event | None:
        state = self._now.get(name)
        if state is None:
            return self._put(name, _State(f"{name}-{version}", version)) if change == CREATE else None
        if change == DELETE:
            del self._now[name]
            # No watch reports the end of a hidden object.
            return None if state.hidden else Event(_pod(name, _moved(state, version)), is_end=True, is_death=True)
        if change == CREATE or state.hidden != (change == SHOW):
            return None
        return self._put(
            name,
            _moved(
                state,
                version,
                ready=state.ready != (change == FLIP),
                leaving=state.leaving or change == LEAVE,
                hidden=change == HIDE,
            ),
        )

    def _put(self, name: str, state: _State) -> Event:
        self._now[name] = state
        return Event(_pod(name, state), is_end=state.hidden, is_death=False)


def _moved(state: _State, version: int, **changes: Any) -> _State:
    return replace(state, version=version, **changes)


def _pod(name: str, state: _State) -> Obj:
    return objects.pod(name, version=state.version, uid=state.uid, ready=state.ready, leaving=state.leaving)
