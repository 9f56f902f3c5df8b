"""Tracks one watch across its streams: the resume token, and whether a snapshot is complete."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum, auto
from typing import Any, Final, Protocol

from .. import v1alpha2 as api
from ..errors import printable
from ..events import Applied, Removed, SnapshotBegin, SnapshotComplete, WatchEvent


class RuleBroken(Exception):
    """How the server broke the rules of a watch; the stream must be closed."""


class WatchResponse(Protocol):
    """A message of a watch method."""

    @property
    def resume_token(self) -> str: ...
    @property
    def snapshot_begin(self) -> api.SnapshotBegin: ...
    @property
    def applied(self) -> Any: ...
    @property
    def removed(self) -> api.Removed: ...
    @property
    def snapshot_complete(self) -> api.SnapshotComplete: ...


class _Stage(Enum):
    EXPECTING = auto()
    """The stream has to begin with a snapshot."""
    SNAPSHOT = auto()
    """A snapshot has begun."""
    CHANGES = auto()
    """Changes follow."""


class Tracker:
    """The resume token and the stage of a watch."""

    __slots__ = ("_objects", "_stage", "token")

    def __init__(self, token: str) -> None:
        self.token = token
        """Resume token; empty if a snapshot is needed."""
        self._stage = _Stage.EXPECTING
        self._objects = 0

    def connect(self) -> bool:
        """Prepares for a new stream, and discards an unfinished snapshot. Returns whether the stream resumes."""
        resumes = bool(self.token)
        self._stage = _Stage.CHANGES if resumes else _Stage.EXPECTING
        return resumes

    def forget(self) -> None:
        """Drops the token that the server refused."""
        self.token = ""

    def step(self, kind: str | None, response: WatchResponse) -> WatchEvent[Any] | None:
        """Takes the next response. Raises RuleBroken if the server broke the rules.

        :param kind: Name of the field of the event that is set; None for an event that this version does not know.
        """
        take = _TAKE.get(kind or "")
        event: WatchEvent[Any] | None = None
        if take is not None:
            try:
                event = take(self, response)
            except RuleBroken:
                self.token = ""
                self._stage = _Stage.EXPECTING
                raise
        if self._stage is _Stage.CHANGES and response.resume_token:
            self.token = response.resume_token
        return event

    def _begin(self, response: WatchResponse) -> SnapshotBegin:
        self.token = ""
        self._stage = _Stage.SNAPSHOT
        self._objects = 0
        begin = response.snapshot_begin
        return SnapshotBegin(printable(begin.reason) if begin.resume_refused else None)

    def _applied(self, response: WatchResponse) -> Applied[Any]:
        if self._stage is _Stage.EXPECTING:
            raise RuleBroken("changes came before a snapshot")
        in_snapshot = self._stage is _Stage.SNAPSHOT
        if in_snapshot:
            self._objects += 1
        return Applied(response.applied, in_snapshot)

    def _removed(self, response: WatchResponse) -> Removed:
        if self._stage is _Stage.EXPECTING:
            raise RuleBroken("changes came before a snapshot")
        if self._stage is _Stage.SNAPSHOT:
            raise RuleBroken("a snapshot holds a removal")
        removed = response.removed
        return Removed(removed.namespace, removed.name, removed.uid)

    def _complete(self, response: WatchResponse) -> SnapshotComplete:
        if self._stage is not _Stage.SNAPSHOT:
            raise RuleBroken("a snapshot ended that had not begun")
        count = response.snapshot_complete.object_count
        if count != self._objects:
            raise RuleBroken(f"a snapshot counts {count} objects and brought {self._objects}")
        self._stage = _Stage.CHANGES
        return SnapshotComplete()


_TAKE: Final[Mapping[str, Callable[[Tracker, WatchResponse], WatchEvent[Any]]]] = {
    "snapshot_begin": Tracker._begin,
    "applied": Tracker._applied,
    "removed": Tracker._removed,
    "snapshot_complete": Tracker._complete,
}
