"""Texts and bytes that must not be shown."""

from __future__ import annotations

import hmac
from typing import Final

from ..errors import TokenError

TOKEN_LENGTH_MAX: Final = 15 * 1024
"""Length limit of a token in bytes, so that it fits the headers that a server accepts."""
_HIDDEN: Final = "<hidden>"


class Hidden(str):
    """A text that ``repr``, ``str`` and ``format`` hide, so that no traceback with local variables, no log line and no debugger
    shows it by chance. gRPC encodes it as it is, which is why it is a ``str``: ``json.dumps`` and methods of ``str`` give its
    content.
    """

    __slots__ = ()

    def __new__(cls, text: str) -> Hidden:
        # The constructor of str would take what `__str__` returns.
        return text if isinstance(text, Hidden) else super().__new__(cls, text)

    def __repr__(self) -> str:
        return _HIDDEN

    __str__ = __repr__

    def __format__(self, spec: str) -> str:
        return _HIDDEN

    def __reduce__(self) -> tuple[object, ...]:
        raise TypeError("a token is not pickled")


class Secret:
    """Bytes that are shown by :meth:`reveal` alone: ``repr``, ``str`` and ``format`` hide them, and they are neither pickled nor
    written as JSON.
    """

    __slots__ = ("_content",)

    def __init__(self, content: bytes) -> None:
        self._content: Final = content

    def reveal(self) -> bytes:
        """Returns the content."""
        return self._content

    def __len__(self) -> int:
        return len(self._content)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and hmac.compare_digest(self._content, other._content)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"Secret({_HIDDEN})"

    def __copy__(self) -> Secret:
        return self

    def __deepcopy__(self, memo: object) -> Secret:
        return self

    def __reduce__(self) -> tuple[object, ...]:
        raise TypeError("a secret is not pickled")


def token_fault(token: str) -> tuple[str, str] | None:
    """Returns why a text cannot be sent as a token: a reason of TokenError, and a message. None if it can."""
    if not token:
        return TokenError.EMPTY, "the token is empty; give one that is for the audience of the backend"
    # Tokens are ASCII, so the number of characters is the number of bytes.
    if len(token) > TOKEN_LENGTH_MAX:
        return TokenError.TOO_LONG, f"the token has {len(token)} bytes, which is more than {TOKEN_LENGTH_MAX}"
    if not (token.isascii() and token.isprintable() and " " not in token):
        return TokenError.MALFORMED, "the token holds spaces, line breaks or other characters that no token has"
    return None


def bearer(token: str) -> Hidden:
    """Returns the value of the header ``authorization``. Raises TokenError for a text that cannot be a token."""
    fault = token_fault(token)
    if fault is not None:
        raise TokenError(*fault)
    return Hidden("Bearer " + token)
