"""Runs one case with the sync and with the async client.

A case is a function that gets a :class:`Caller`, whose methods block. For the async client they run in an event loop of their own
thread, so that a case is written once.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

import bindery
from bindery import aio
from bindery._core.retry import RetryPolicy
from bindery._core.settings import WatchSettings

T = TypeVar("T")

FAST = RetryPolicy(base=0.001, cap=0.002)
FAST_WATCH = WatchSettings(silence=0.5, open_timeout=2.0, reconnect=RetryPolicy(attempts=2**31, base=0.001, cap=0.002))


class Caller:
    """A client whose methods block, of either kind."""

    def __init__(self, address: str, **settings: Any) -> None:
        settings.setdefault("retry", FAST)
        settings.setdefault("_watch", FAST_WATCH)
        settings.setdefault("allow_plaintext", address.startswith("http://"))
        self._address, self._settings = address, settings

    def do(self, name: str, *arguments: Any, **keywords: Any) -> Any:
        """Calls a method of the client. Lists are read to their end."""
        raise NotImplementedError

    def watch(self, name: str, **keywords: Any) -> Reader:
        """Begins a watch."""
        raise NotImplementedError

    def close(self) -> None:
        raise NotImplementedError

    @property
    def client(self) -> Any:
        raise NotImplementedError


class Reader:
    """A watch whose events are read by blocking."""

    def __init__(self, watch: Any, run: Callable[[Any], Any] | None) -> None:
        self.watch, self._run = watch, run

    def next(self) -> Any:
        """The next event; None at the end."""
        if self._run is None:
            return next(self.watch, None)
        return self._run(anext(self.watch, None))

    def take(self, count: int) -> list[Any]:
        return [self.next() for _ in range(count)]

    def close(self) -> None:
        if self._run is None:
            self.watch.close()
        else:
            self._run(self.watch.close())

    @property
    def resume_token(self) -> str:
        return str(self.watch.resume_token)


class SyncCaller(Caller):
    def __init__(self, address: str, **settings: Any) -> None:
        super().__init__(address, **settings)
        self._client = bindery.Client(self._address, **self._settings)

    def do(self, name: str, *arguments: Any, **keywords: Any) -> Any:
        result = getattr(self._client, name)(*arguments, **keywords)
        return list(result) if isinstance(result, bindery.Pages) else result

    def watch(self, name: str, **keywords: Any) -> Reader:
        return Reader(getattr(self._client, name)(**keywords), None)

    def close(self) -> None:
        self._client.close()

    @property
    def client(self) -> bindery.Client:
        return self._client


class AsyncCaller(Caller):
    def __init__(self, address: str, **settings: Any) -> None:
        super().__init__(address, **settings)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()

        async def make() -> aio.Client:
            return aio.Client(self._address, **self._settings)

        try:
            self._client = self.run(make())
        except BaseException:
            self._end()
            raise

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(60)

    def do(self, name: str, *arguments: Any, **keywords: Any) -> Any:
        async def go() -> Any:
            result = getattr(self._client, name)(*arguments, **keywords)
            if isinstance(result, aio.Pages):
                return [item async for item in result]
            return await result

        return self.run(go())

    def watch(self, name: str, **keywords: Any) -> Reader:
        async def begin() -> Any:
            return getattr(self._client, name)(**keywords)

        return Reader(self.run(begin()), self._read)

    def _read(self, awaitable: Any) -> Any:
        async def go() -> Any:
            return await awaitable

        return self.run(go())

    def close(self) -> None:
        if self._loop.is_closed():
            return
        self.run(self._client.close())
        self._end()

    def _end(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    @property
    def client(self) -> aio.Client:
        return self._client


KINDS: dict[str, type[Caller]] = {"sync": SyncCaller, "aio": AsyncCaller}


class Callers:
    """Makes clients of one kind, and closes them."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self._made: list[Caller] = []

    def __call__(self, address: str, **settings: Any) -> Caller:
        caller = KINDS[self.kind](address, **settings)
        self._made.append(caller)
        return caller

    def close(self) -> None:
        for caller in self._made:
            caller.close()
