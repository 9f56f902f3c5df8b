"""What the core needs of threads or an event loop. The sync and the async client each provide it.

The core is written in coroutines. Those of the async client wait in the event loop. Those of the sync client never suspend: each
of them blocks until it has its result, so that :func:`finish` runs a whole call by one step.
"""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any, Protocol, TypeVar

from .secret import Hidden

T = TypeVar("T")

Headers = tuple[tuple[str, str], ...]


class ResponseStream(Protocol):
    """A stream of responses."""

    async def opened(self, timeout: float) -> None:
        """Returns when the server has begun to respond. Raises as :meth:`read` does."""

    async def read(self, timeout: float) -> bytes | None:
        """Returns the next message; None at the end of a stream that ended well.

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


class ClientIO(Protocol):
    """Time, tokens, and connections."""

    def now(self) -> float:
        """Returns the seconds of a clock that never goes back."""

    def waiter(self) -> Waiter:
        """Returns a new pause."""

    async def sleep(self, seconds: float) -> None:
        """Waits. Raises CallCancelledError if the client is closed or the call is cancelled meanwhile."""

    async def token(self, timeout: float) -> Hidden:
        """Returns the token of the source. Raises TokenError, also if there is none in time, or CallCancelledError."""

    def forget_token(self, token: str) -> None:
        """Makes the source forget this token, if that is still its current one."""

    async def unary(self, path: str, request: bytes, headers: Headers, timeout: float) -> bytes | None:
        """Makes one attempt of a call. Returns None if the server sent no message, or one that is not framed as such.

        Raises CallFailed, or CallCancelledError.
        """

    def stream(self, path: str, request: bytes, headers: Headers) -> ResponseStream:
        """Begins a stream, without waiting, on a connection that unary calls do not use. Raises CallCancelledError."""


def finish(coroutine: Coroutine[Any, Any, T]) -> T:
    """Runs a coroutine that never suspends."""
    try:
        coroutine.send(None)
    except StopIteration as stop:
        result: T = stop.value
        return result
    coroutine.close()
    raise RuntimeError("a coroutine of the sync client waits for an event loop")
