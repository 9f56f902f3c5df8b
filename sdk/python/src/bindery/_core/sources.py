"""What a client accepts as a source of tokens, and how it asks one.

Each question to a source has a future of its own, so that a caller can stop waiting without a trace in the source: its deadline
passes, its call is cancelled, or its client is closed.
"""

from __future__ import annotations

import contextlib
import contextvars
import threading
from collections.abc import Callable
from concurrent.futures import Future, InvalidStateError
from typing import Any, Final, TypeAlias

from ..errors import BinderyError, TokenError
from ..tokens import ExecToken, FunctionToken, StaticToken, TokenSource
from .secret import Hidden

Token: TypeAlias = str | TokenSource | Callable[[], str]
"""A token, a source of tokens, or a function that returns one."""

_THREAD: Final = "bindery-token"


def source_of(token: Token | None) -> TokenSource | None:
    """Returns the source that a caller means."""
    if token is None or isinstance(token, TokenSource):
        return token
    if isinstance(token, str):
        return StaticToken(token)
    if callable(token):
        return FunctionToken(token)
    raise TypeError(f"a token is a text, a TokenSource or a function, not {type(token).__name__}")


def ask(source: TokenSource, timeout: float) -> Future[Any]:
    """Asks a source for its token without waiting. The result is what the source returned, which :func:`checked` checks."""
    future: Future[Any] = Future()
    context = contextvars.copy_context()

    def run() -> None:
        try:
            token = context.run(source.token, timeout)
        except BaseException as error:
            settle(future, source_error(error))
        else:
            settle(future, token)

    try:
        if isinstance(source, ExecToken):
            # One run of its program serves all callers, so no thread waits for each of them.
            source._notify(lambda result: settle(future, result))
        else:
            threading.Thread(target=run, name=_THREAD, daemon=True).start()
    except RuntimeError as error:
        # The process may have no thread left.
        settle(future, source_error(error))
    return future


def settle(future: Future[Any], result: object) -> None:
    """Ends the wait for a token, unless the caller has stopped waiting."""
    with contextlib.suppress(InvalidStateError):
        if isinstance(result, BaseException):
            future.set_exception(result)
        else:
            future.set_result(result)


def checked(token: object) -> Hidden:
    """Returns the token that a source returned."""
    if isinstance(token, Hidden):
        return token
    if isinstance(token, str):
        return Hidden(token)
    raise TokenError(TokenError.SOURCE_FAILED, f"cannot get a token: the source returned {type(token).__name__}, not a text")


def source_error(error: BaseException) -> BinderyError:
    """Returns the error for an exception of a source, which becomes its cause. The message names its type alone, because its text
    may hold the token.
    """
    if isinstance(error, BinderyError):
        return error
    failed = TokenError(TokenError.SOURCE_FAILED, f"cannot get a token: the source failed with {type(error).__name__}")
    failed.__cause__ = error
    return failed


def out_of_time(source: object, timeout: float) -> TokenError:
    """Returns the error for a source that has no token before the deadline of the call."""
    name = source if isinstance(source, TokenSource) else "the function"
    return TokenError(TokenError.SOURCE_FAILED, f"cannot get a token: {name!s} has none within {max(0.0, timeout):.1f} s")
