"""Reads lists page by page."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any, Final, Generic, TypeVar

from ..errors import ProtocolError
from ..methods import Method
from .engine import CallEngine

T = TypeVar("T")

PAGES_MAX: Final = 10_000
"""Limit on the pages of one list: half a million objects at the default page size."""
_TOKENS_REMEMBERED: Final = 16
"""Number of page tokens that are remembered: a page that names one of them as the next one ends the list."""


class Pager(Generic[T]):
    """Reads pages until one has no token for a next page. An empty page with a token is not the last one."""

    def __init__(self, engine: CallEngine, method: Method[Any, Any], request: Any, field: str, timeout: float | None) -> None:
        """
        :param field: The field of the response that holds the items.
        :param timeout: Time limit of each page.
        """
        self._engine: Final = engine
        self._method: Final = method
        self._request: Final = request
        self._field: Final = field
        self._timeout: Final = timeout
        self._tokens: Final[deque[str]] = deque([self._request.page_token], _TOKENS_REMEMBERED)
        self._count = 0
        self._is_done = False

    async def next_page(self) -> Sequence[T] | None:
        """Returns the items of the next page; None after the last one."""
        if self._is_done:
            return None
        response: Any = await self._engine.call(self._method, self._request, self._timeout)
        self._count += 1
        following = response.next_page_token
        if not following:
            self._is_done = True
        elif following in self._tokens:
            raise self._broken("a page names itself or an earlier one as the next one")
        elif self._count >= PAGES_MAX:
            raise self._broken(f"a list has more than {PAGES_MAX} pages")
        self._tokens.append(following)
        self._request.page_token = following
        items: Sequence[T] = getattr(response, self._field)
        return items

    def _broken(self, fault: str) -> ProtocolError:
        self._is_done = True
        return ProtocolError(str(self._engine.address), fault)
