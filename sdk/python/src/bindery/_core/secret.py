"""Texts that must not be shown."""

from __future__ import annotations

from typing import Final

from ..errors import TokenError

TOKEN_LENGTH_MAX: Final = 15 * 1024
"""Length limit of a token in bytes, so that it fits the headers that a server accepts."""
_HIDDEN: Final = "<hidden>"


class Hidden(str):
    """A text that ``repr``, ``str`` and ``format`` hide, so that no traceback with local variables, no log line and no debugger
    shows it by chance. gRPC encodes it as it is.
    """

    __slots__ = ()

    def __repr__(self) -> str:
        return _HIDDEN

    __str__ = __repr__

    def __format__(self, spec: str) -> str:
        return _HIDDEN

    def __reduce__(self) -> tuple[object, ...]:
        raise TypeError("a token is not pickled")


def bearer(token: str) -> Hidden:
    """The value of the header ``authorization``. Raises TokenError for a text that no token is."""
    if not token:
        raise TokenError(TokenError.EMPTY, "the token is empty; give one that is for the audience of the backend")
    # A character of more than one byte is no character of a token, so both limits are those of bytes.
    if len(token) > TOKEN_LENGTH_MAX:
        raise TokenError(TokenError.TOO_LONG, f"the token has {len(token)} bytes, which is more than {TOKEN_LENGTH_MAX}")
    if not (token.isascii() and token.isprintable() and " " not in token):
        raise TokenError(TokenError.MALFORMED, "the token holds spaces, line breaks or other characters that no token has")
    return Hidden("Bearer " + token)
