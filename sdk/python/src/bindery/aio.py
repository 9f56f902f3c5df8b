"""The async client, for asyncio. It has the methods of :class:`bindery.Client`, as coroutines."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import AsyncIterator, Iterable
from dataclasses import replace
from types import TracebackType
from typing import Final, Generic, TypeAlias, TypeVar

from . import v1alpha2 as api
from ._async import AsyncIO, AsyncToken, async_source_of
from ._core.calls import Calls, Progress
from ._core.engine import Engine
from ._core.lists import Lists
from ._core.pages import Pager
from ._core.retry import RetryPolicy
from ._core.settings import WatchSettings, check
from ._core.sources import Token as SyncToken
from ._core.watching import WatchRun
from .events import WatchEvent

__all__ = ["Client", "Pages", "Progress", "Token", "Watch"]

T = TypeVar("T")

Token: TypeAlias = SyncToken | AsyncToken
"""A token, a source of tokens, or a function, async or not, that returns one."""


class Pages(AsyncIterator[T], Generic[T]):
    """Iterates over the items of a list, and fetches its pages as it goes. Used by one task at a time."""

    def __init__(self, pager: Pager[T]) -> None:
        self._pager: Final = pager
        self._items: Final[deque[T]] = deque()

    async def __anext__(self) -> T:
        while not self._items:
            page = await self._pager.next_page()
            if page is None:
                raise StopAsyncIteration
            self._items.extend(page)
        return self._items.popleft()


class Watch(AsyncIterator[WatchEvent[T]], Generic[T]):
    """Iterates over the events of a watch that reconnects and resumes by itself after random delays. See :mod:`bindery.events`.

    It raises an error, and ends, only where a retry cannot help: the token is refused, a right is missing, or the contract does not
    exist. An event counts as processed when the next one is asked for; :attr:`resume_token` and reconnects rely on that.

    One task iterates; any task of its event loop may call :meth:`close`, which ends the iteration. It is an async context manager
    that closes itself.
    """

    def __init__(self, run: WatchRun[T]) -> None:
        self._run: Final = run

    @property
    def resume_token(self) -> str:
        """The token with which another watch with the same filter can resume, also with other credentials. Empty until a snapshot
        is complete.
        """
        return self._run.resume_token

    async def close(self) -> None:
        """Ends the watch."""
        self._run.stop()

    async def __anext__(self) -> WatchEvent[T]:
        event = await self._run.next()
        if event is None:
            raise StopAsyncIteration
        return event

    async def __aenter__(self) -> Watch[T]:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self.close()

    def __repr__(self) -> str:
        return f"Watch(resume_token={self.resume_token!r})"


class Client(Calls):
    """A client of one backend, for the tasks of one event loop, which share a connection.

    Cancelling a task cancels its call, also on the server. The client is an async context manager that closes itself.
    """

    def __init__(
        self,
        address: str,
        *,
        token: Token | None = None,
        ca_file: str | os.PathLike[str] | None = None,
        ca_pem: bytes | str | None = None,
        client_certificate: tuple[bytes | str, bytes | str] | None = None,
        server_name: str | None = None,
        allow_plaintext: bool = False,
        timeout: float | None = None,
        attempt_timeout: float | None = None,
        connect_timeout: float = 10.0,
        retry: RetryPolicy | None = None,
        user_agent: str | None = None,
        _watch: WatchSettings | None = None,
    ) -> None:
        """The settings are checked at once; the client connects with its first call.

        :param address: ``https://host:port``, or with a path prefix under which a proxy serves the backend.
        :param token: A token, a source of :mod:`bindery.tokens`, or a function, async or not, that returns a token.
            It must be for :attr:`audience`. None sends no token.
        :param ca_file: File with the CA certificates (PEM) to trust instead of those of the system.
        :param ca_pem: The CA certificates themselves.
        :param client_certificate: A certificate with its intermediates, and its private key, both PEM, for a server that asks
            for one. A token is needed all the same.
        :param server_name: The name that the server's certificate must be for, instead of the host of the address.
        :param allow_plaintext: Allow ``http://`` to a loopback address. It is never allowed to other hosts.
        :param timeout: Time limit of a call with all its attempts in seconds: 30 unless set, and longer for calls that wait for a
            controller.
        :param attempt_timeout: Time limit of one attempt: 10 s unless set, and longer for calls that wait for a controller.
        :param connect_timeout: Time limit on connecting, TLS included.
        :param retry: How often and how soon failed calls are retried.
        :param user_agent: Name of the program, which precedes the SDK's own in the server's log.
        :raises ConfigurationError: The settings cannot work.
        """
        self._settings: Final = replace(
            check(
                address,
                ca_file=ca_file,
                ca_pem=ca_pem,
                client_certificate=client_certificate,
                server_name=server_name,
                allow_plaintext=allow_plaintext,
                timeout=timeout,
                attempt_timeout=attempt_timeout,
                connect_timeout=connect_timeout,
                retry=retry,
                user_agent=user_agent,
            ),
            watch=_watch or WatchSettings(),
        )
        source = async_source_of(token)
        self._io: Final = AsyncIO(self._settings, source)
        super().__init__(Engine(self._io, self._settings, has_tokens=source is not None))
        self._lists: Final = Lists(self._engine)

    @property
    def audience(self) -> str:
        """The audience that tokens must have. It follows from the address alone, never from a response."""
        return str(self._settings.address)

    async def close(self) -> None:
        """Closes the connection. Calls that are under way raise CallCancelledError, and watches end."""
        self._engine.stop_watches()
        await self._io.close()

    async def __aenter__(self) -> Client:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self.close()

    def __repr__(self) -> str:
        return f"Client({self.audience!r})"

    def list_templates(
        self,
        *,
        label_selector: str = "",
        collection: str = "",
        page_size: int = 0,
        page_token: str = "",
        timeout: float | None = None,
    ) -> Pages[api.Template]:
        """Iterates over the templates that the caller may bind.

        :param label_selector: Only templates with these labels, in the syntax of kubectl's ``-l``.
        :param collection: Only templates of this collection.
        :param page_size: Number of items that one call fetches; 0 leaves it to the server.
        :param page_token: Where to begin: the ``next_page_token`` of an earlier list with the same filter.
        :param timeout: Time limit of each call in seconds.
        """
        return Pages(
            self._lists.list_templates(
                label_selector=label_selector,
                collection=collection,
                page_size=page_size,
                page_token=page_token,
                timeout=timeout,
            )
        )

    def list_collections(
        self, *, label_selector: str = "", page_size: int = 0, page_token: str = "", timeout: float | None = None
    ) -> Pages[api.Collection]:
        """Iterates over the collections that hold a template which the caller may bind.

        :param label_selector: Only collections with these labels, in the syntax of kubectl's ``-l``.
        :param page_size: Number of items that one call fetches; 0 leaves it to the server.
        :param page_token: Where to begin: the ``next_page_token`` of an earlier list with the same filter.
        :param timeout: Time limit of each call in seconds.
        """
        return Pages(
            self._lists.list_collections(
                label_selector=label_selector,
                page_size=page_size,
                page_token=page_token,
                timeout=timeout,
            )
        )

    def list_bindable_resources_requests(
        self, *, cluster_identity: str = "", page_size: int = 0, page_token: str = "", timeout: float | None = None
    ) -> Pages[api.BindableResourcesRequest]:
        """Iterates over the caller's requests.

        :param cluster_identity: Only requests for this cluster.
        :param page_size: Number of items that one call fetches; 0 leaves it to the server.
        :param page_token: Where to begin: the ``next_page_token`` of an earlier list with the same filter.
        :param timeout: Time limit of each call in seconds.
        """
        return Pages(
            self._lists.list_bindable_resources_requests(
                cluster_identity=cluster_identity,
                page_size=page_size,
                page_token=page_token,
                timeout=timeout,
            )
        )

    def list_exports(
        self,
        *,
        contract: str = "",
        label_selector: str = "",
        page_size: int = 0,
        page_token: str = "",
        timeout: float | None = None,
    ) -> Pages[api.Export]:
        """Iterates over the exports of one contract, or of all of the caller's.

        :param contract: Only exports of this contract.
        :param label_selector: Only exports with these labels, in the syntax of kubectl's ``-l``.
        :param page_size: Number of items that one call fetches; 0 leaves it to the server.
        :param page_token: Where to begin: the ``next_page_token`` of an earlier list with the same filter.
        :param timeout: Time limit of each call in seconds.
        """
        return Pages(
            self._lists.list_exports(
                contract=contract,
                label_selector=label_selector,
                page_size=page_size,
                page_token=page_token,
                timeout=timeout,
            )
        )

    def list_contracts(
        self,
        *,
        owned: bool = False,
        cluster_identity: str = "",
        page_size: int = 0,
        page_token: str = "",
        timeout: float | None = None,
    ) -> Pages[api.Contract]:
        """Iterates over the contracts that the caller may list.

        :param owned: Only contracts that the caller or one of its groups owns.
        :param cluster_identity: Only the contract of the cluster with this identity.
        :param page_size: Number of items that one call fetches; 0 leaves it to the server.
        :param page_token: Where to begin: the ``next_page_token`` of an earlier list with the same filter.
        :param timeout: Time limit of each call in seconds.
        """
        return Pages(
            self._lists.list_contracts(
                owned=owned,
                cluster_identity=cluster_identity,
                page_size=page_size,
                page_token=page_token,
                timeout=timeout,
            )
        )

    def watch_exports(self, *, contract: str = "", label_selector: str = "", resume_token: str = "") -> Watch[api.Export]:
        """Watches exports across disconnects.

        :param contract: The contract namespace; may be empty if the caller has only one contract.
        :param label_selector: Only exports with these labels, in the syntax of kubectl's ``-l``.
        :param resume_token: Where to resume: the ``resume_token`` of an earlier watch with the same filter.
        """
        return Watch(self._lists.watch_exports(contract=contract, label_selector=label_selector, resume_token=resume_token))

    def watch_bindable_resources_requests(
        self, *, cluster_identity: str = "", names: Iterable[str] = (), resume_token: str = ""
    ) -> Watch[api.BindableResourcesRequest]:
        """Watches the caller's requests across disconnects.

        :param cluster_identity: Only requests for this cluster.
        :param names: Only requests of these names.
        :param resume_token: Where to resume: the ``resume_token`` of an earlier watch with the same filter.
        """
        return Watch(
            self._lists.watch_bindable_resources_requests(
                cluster_identity=cluster_identity,
                names=names,
                resume_token=resume_token,
            )
        )

    def watch_contracts(self, *, owned: bool = False, resume_token: str = "") -> Watch[api.Contract]:
        """Watches the contracts that the caller may see across disconnects.

        :param owned: Only contracts that the caller or one of its groups owns.
        :param resume_token: Where to resume: the ``resume_token`` of an earlier watch with the same filter.
        """
        return Watch(self._lists.watch_contracts(owned=owned, resume_token=resume_token))
