"""What a client accepts as a source of tokens."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from ..errors import BinderyError, TokenError
from ..tokens import FunctionToken, StaticToken, TokenSource
from .secret import Hidden

Token: TypeAlias = str | TokenSource | Callable[[], str]
"""A token, a source of tokens, or a function that returns one."""


def source_of(token: Token | None) -> TokenSource | None:
    """The source that a caller means."""
    if token is None or isinstance(token, TokenSource):
        return token
    if isinstance(token, str):
        return StaticToken(token)
    if callable(token):
        return FunctionToken(token)
    raise TypeError(f"a token is a text, a TokenSource or a function, not {type(token).__name__}")


def checked(token: object) -> Hidden:
    """The token that a source returned."""
    if isinstance(token, Hidden):
        return token
    if isinstance(token, str):
        return Hidden(token)
    raise TokenError(TokenError.SOURCE_FAILED, f"cannot get a token: the source returned {type(token).__name__}, not a text")


def source_error(error: Exception) -> Exception:
    """The error for an exception of a source. The text of a stranger may hold the token, so only its type is told."""
    if isinstance(error, (BinderyError, TimeoutError)):
        return error
    return TokenError(TokenError.SOURCE_FAILED, f"cannot get a token: the source failed with {type(error).__name__}")
