"""What the core needs of the world. The sync and the async client each provide it.

The core is written in coroutines. Those of the async client wait in the event loop. Those of the sync client never suspend: each
of them blocks until it has its result, so that :func:`finish` runs a whole call by one step.
"""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any, Protocol, TypeVar

T = TypeVar("T")

Headers = tuple[tuple[str, str], ...]


class Stream(Protocol):
    """A stream of responses."""

    async def opened(self, timeout: float) -> None:
        """Returns when the server has begun to answer. Raises as :meth:`read` does."""

    async def read(self, timeout: float) -> bytes | None:
        """The next message; None at the end of a stream that ended well.

        :raises TimeoutError: No message came in time. The stream is useless then.
        :raises CallFailed: The stream failed.
        :raises CallCancelledError: The stream was cancelled.
        """

    def cancel(self) -> None:
        """Ends the stream. A read that is under way ends. May be called from any thread of a sync client."""


class Waiter(Protocol):
    """A pause that can be ended."""

    async def wait(self, seconds: float) -> bool:
        """Waits; returns True, and at once, if the pause was ended."""

    def end(self) -> None:
        """Ends the pause, and all later ones. May be called from any thread of a sync client."""


class IO(Protocol):
    """Time, tokens, and the connection."""

    def now(self) -> float:
        """Seconds of a clock that never goes back."""

    def waiter(self) -> Waiter:
        """A new pause."""

    async def sleep(self, seconds: float) -> None:
        """Waits. Raises CallCancelledError if the client is closed meanwhile."""

    async def token(self, timeout: float) -> str:
        """The token of the source. Raises TokenError, or TimeoutError."""

    def token_expired(self) -> None:
        """Makes the source forget its token."""

    async def unary(self, path: str, request: bytes, headers: Headers, timeout: float) -> bytes | None:
        """Makes one attempt of a call. The answer is None if the server sent no message, or one that is not framed as such.

        Raises CallFailed, or CallCancelledError.
        """

    def stream(self, path: str, request: bytes, headers: Headers) -> Stream:
        """Begins a stream, without waiting. Raises CallCancelledError."""


def finish(coroutine: Coroutine[Any, Any, T]) -> T:
    """Runs a coroutine that never suspends."""
    try:
        coroutine.send(None)
    except StopIteration as stop:
        result: T = stop.value
        return result
    coroutine.close()
    raise RuntimeError("a coroutine of the sync client waits for an event loop")
