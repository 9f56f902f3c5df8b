"""Cancelling calls of a sync client."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from contextvars import ContextVar, Token
from types import TracebackType
from typing import Final

from .errors import CallCancelledError

__all__ = ["CancelScope"]

_SCOPE: Final[ContextVar[CancelScope | None]] = ContextVar("bindery-cancel-scope", default=None)


class Cancellation:
    """Ends what is under way, and refuses what begins later."""

    def __init__(self, message: str) -> None:
        """Takes the message of the CallCancelledError for what begins later."""
        self.message: Final = message
        self._lock: Final = threading.Lock()
        self._actions: Final[dict[object, Callable[[], object]]] = {}
        self._ended = False

    @property
    def is_ended(self) -> bool:
        return self._ended

    def end(self) -> None:
        """Runs the action of all that is under way."""
        with self._lock:
            self._ended = True
            actions = list(self._actions.values())
            self._actions.clear()
        for action in actions:
            action()

    @contextlib.contextmanager
    def guard(self, action: Callable[[], object]) -> Iterator[None]:
        """Has the action run if :meth:`end` is called meanwhile. Raises CallCancelledError if it was called before."""
        key = object()
        with self._lock:
            if self._ended:
                raise CallCancelledError(self.message)
            self._actions[key] = action
        try:
            yield
        finally:
            with self._lock:
                self._actions.pop(key, None)


class CancelScope:
    """Cancels calls of sync clients without closing the client.

    ::

        with bindery.CancelScope() as scope:
            threading.Timer(5, scope.cancel).start()
            client.get_export("", "cowboys")

    It covers the calls, lists and watches that the thread uses inside of ``with``; those raise :class:`bindery.CallCancelledError`
    after :meth:`cancel`. A watch that was cancelled has ended. Tasks of asyncio are cancelled by asyncio instead.
    """

    def __init__(self) -> None:
        self._cancellation: Final = Cancellation("the call was cancelled")
        self._parent: CancelScope | None = None
        self._token: Token[CancelScope | None] | None = None

    def cancel(self) -> None:
        """Cancels the calls that are under way and all later ones. May be called from any thread, and more than once."""
        self._cancellation.end()

    @property
    def is_cancelled(self) -> bool:
        """Whether :meth:`cancel` was called here or on a scope around this one."""
        return self._cancellation.is_ended or (self._parent is not None and self._parent.is_cancelled)

    def __enter__(self) -> CancelScope:
        if self._token is not None:
            raise RuntimeError("a CancelScope is entered once")
        self._parent = _SCOPE.get()
        self._token = _SCOPE.set(self)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._token is not None:
            _SCOPE.reset(self._token)

    def __repr__(self) -> str:
        return f"CancelScope(is_cancelled={self.is_cancelled})"


def current_scope() -> CancelScope | None:
    """Returns the innermost scope that this thread has entered."""
    return _SCOPE.get()


@contextlib.contextmanager
def guard_by(scope: CancelScope | None, action: Callable[[], object]) -> Iterator[None]:
    """Has the action run if this scope or one around it is cancelled meanwhile."""
    with contextlib.ExitStack() as stack:
        while scope is not None:
            stack.enter_context(scope._cancellation.guard(action))
            scope = scope._parent
        yield
