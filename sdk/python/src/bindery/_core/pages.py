"""The pages of a list."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, Generic, TypeVar

from google.protobuf.message import Message

from ..errors import ProtocolError
from ..methods import Method
from .engine import Engine

T = TypeVar("T")

PAGES_MAX: Final = 10_000
"""Limit on the pages of one list: half a million objects at the default page size."""


class Pager(Generic[T]):
    """Reads pages until one has no token for a next page. An empty page with a token is not the last one."""

    def __init__(self, engine: Engine, method: Method[Any, Any], request: Message, field: str, timeout: float | None) -> None:
        """
        :param field: The field of the response that holds the items.
        :param timeout: Time limit of each page.
        """
        self._engine: Final = engine
        self._method: Final = method
        self._request: Final[Any] = request
        self._field: Final = field
        self._timeout: Final = timeout
        self._count = 0
        self._is_done = False

    async def next_page(self) -> Sequence[T] | None:
        """The items of the next page; None after the last one."""
        if self._is_done:
            return None
        token = self._request.page_token
        response: Any = await self._engine.call(self._method, self._request, self._timeout)
        self._count += 1
        following = response.next_page_token
        if not following:
            self._is_done = True
        elif following == token:
            raise self._broken("a page names itself as the next one")
        elif self._count >= PAGES_MAX:
            raise self._broken(f"a list has more than {PAGES_MAX} pages")
        self._request.page_token = following
        items: Sequence[T] = getattr(response, self._field)
        return items

    def _broken(self, fault: str) -> ProtocolError:
        self._is_done = True
        return ProtocolError(str(self._engine.address), fault)
