"""The events of a watch.

A stream begins with :class:`Connected`. If it did not resume, a snapshot follows: :class:`SnapshotBegin`, an :class:`Applied` for
each object, and :class:`SnapshotComplete`; objects that a complete snapshot lacks are gone. Then come changes: :class:`Applied` and
:class:`Removed`. After :class:`Disconnected` the watch opens another stream by itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeAlias, TypeVar

from .errors import BinderyError

__all__ = ["Applied", "Connected", "Disconnected", "Removed", "SnapshotBegin", "SnapshotComplete", "WatchEvent"]

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Connected:
    """The stream is open. If it resumed, changes follow, otherwise a snapshot."""

    resumed: bool
    """Whether the stream goes on where the last one ended."""


@dataclass(frozen=True, slots=True)
class SnapshotBegin:
    """A snapshot begins. The objects of an unfinished snapshot before it exist, but objects that it lacks may exist too."""

    refused: str | None = None
    """Why the server refused to resume; None if it was not asked to, or did not refuse."""


@dataclass(frozen=True, slots=True)
class Applied(Generic[T]):
    """An object exists or has changed. A new UID under the same name means that the former object is gone."""

    object: T
    """The whole object."""
    snapshot: bool
    """Whether the object is part of a snapshot, which says nothing about a change."""


@dataclass(frozen=True, slots=True)
class Removed:
    """An object is gone."""

    namespace: str
    """Namespace that the object had on the provider."""
    name: str
    """Name that the object had."""
    uid: str
    """UID that the object had; an object with another UID under the same name still exists."""


@dataclass(frozen=True, slots=True)
class SnapshotComplete:
    """The snapshot is complete, and its count agrees: objects that it lacks are gone."""


@dataclass(frozen=True, slots=True)
class Disconnected:
    """The stream ended; the watch will open another one."""

    error: BinderyError | None
    """Why the stream ended; None if the server ended it in good order."""
    retry_in: float
    """Seconds until the next attempt."""


WatchEvent: TypeAlias = Connected | SnapshotBegin | Applied[T] | Removed | SnapshotComplete | Disconnected
"""An event of a watch over objects ``T``."""
