"""What the async client does its calls with: an event loop, and gRPC's asyncio stubs."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import time
import weakref
from collections.abc import Awaitable, Callable
from typing import Any, Final, cast

import grpc
import grpc.aio

from ._core.io import Headers
from ._core.settings import Settings
from ._core.sources import Token, checked, source_error, source_of
from ._core.status import CallFailed, Failure
from ._sync import Connections, credentials
from .errors import CallCancelledError
from .tokens import TokenSource

_SETTLES: Final = 0.05
"""Seconds within which a server that refuses a stream has also said why."""

AsyncToken = Callable[[], Awaitable[str]]


class Connection:
    """A gRPC channel with the count of calls that use it, so that it is closed after the last of them."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self.channel: Final = channel
        self.uses = 0
        self.answered = False
        """Whether a server has ever answered."""
        self._unary: Final[dict[str, Any]] = {}

    def unary(self, path: str) -> Any:
        """The function that calls a method with bytes, and returns bytes."""
        call = self._unary.get(path)
        if call is None:
            call = self._unary[path] = self.channel.unary_unary(path)
        return call

    def stream(self, path: str) -> Callable[..., Any]:
        """The function that calls a streaming method with bytes, and returns a call that is read for bytes."""
        call: Callable[..., Any] = self.channel.unary_stream(path)
        return call


class AsyncWaiter:
    """A pause of a task."""

    def __init__(self) -> None:
        self._event: Final = asyncio.Event()

    async def wait(self, seconds: float) -> bool:
        if seconds > 0 and not self._event.is_set():
            try:
                async with asyncio.timeout(seconds):
                    await self._event.wait()
            except TimeoutError:
                pass
        return self._event.is_set()

    def end(self) -> None:
        self._event.set()


class AsyncIO:
    """Time, tokens, and the connection of an async client."""

    def __init__(self, settings: Settings, source: TokenSource | AsyncToken | None) -> None:
        self._source: Final = source
        self._connections: Final = Connections(lambda: Connection(_dial(settings)))
        self._closed: Final = AsyncWaiter()
        self._closing: Final[set[asyncio.Task[None]]] = set()

    now: Final = staticmethod(time.monotonic)

    def waiter(self) -> AsyncWaiter:
        return AsyncWaiter()

    async def sleep(self, seconds: float) -> None:
        if await self._closed.wait(seconds):
            raise CallCancelledError

    async def token(self, timeout: float) -> str:
        source = self._source
        try:
            if isinstance(source, TokenSource):
                token = source.cached()
                if token is not None:
                    return token
                async with asyncio.timeout(timeout):
                    answer: object = await asyncio.to_thread(source.token, timeout)
                    # A function that is not async may return the coroutine of one that is.
                    return checked(await answer if inspect.isawaitable(answer) else answer)
            if source is None:
                raise RuntimeError("a client without a token source asks for a token")
            async with asyncio.timeout(timeout):
                return checked(await source())
        except Exception as error:
            raise source_error(error) from None

    def token_expired(self) -> None:
        if isinstance(self._source, TokenSource):
            self._source.expired()

    async def unary(self, path: str, request: bytes, headers: Headers, timeout: float) -> bytes | None:
        connection: Connection = self._connections.take()
        try:
            answer: bytes | None = await connection.unary(path)(request, timeout=timeout, metadata=headers)
            connection.answered = True
            return answer
        except grpc.aio.AioRpcError as error:
            raise self._failed(connection, _failure(error)) from None
        except asyncio.CancelledError:
            if self._connections.is_closed and not _is_task_cancelled():
                raise CallCancelledError from None
            raise
        except grpc.aio.UsageError:
            raise CallCancelledError from None
        finally:
            self._give_back(connection)

    def stream(self, path: str, request: bytes, headers: Headers) -> AsyncStream:
        connection: Connection = self._connections.take()
        try:
            call = connection.stream(path)(request, metadata=headers)
        except grpc.aio.UsageError:
            self._give_back(connection)
            raise CallCancelledError from None
        stream = AsyncStream(call, lambda failure: self._failed(connection, failure))
        # Garbage may be collected on any thread.
        loop = asyncio.get_running_loop()
        weakref.finalize(stream, self._end, loop, call, connection).atexit = False
        return stream

    def _end(self, loop: asyncio.AbstractEventLoop, call: Any, connection: Connection) -> None:
        """Ends a stream that nobody has any more."""

        def end() -> None:
            call.cancel()
            self._give_back(connection)

        # A loop that is closed has ended its streams.
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(end)

    async def close(self) -> None:
        """Ends all calls, and refuses new ones."""
        self._closed.end()
        for connection in self._connections.close():
            await connection.channel.close()
        await asyncio.gather(*self._closing)

    def _failed(self, connection: Connection, failure: Failure) -> Exception:
        if self._connections.is_closed and failure.code is grpc.StatusCode.CANCELLED:
            return CallCancelledError()
        self._connections.judge(connection, failure)
        return CallFailed(failure)

    def _give_back(self, connection: Connection) -> None:
        unused = self._connections.release(connection)
        if unused is None:
            return
        try:
            task = asyncio.get_running_loop().create_task(unused.channel.close())
        except RuntimeError:
            return  # The loop has ended, and the channel ends with it.
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)


class AsyncStream:
    """A stream that is read by one task at a time."""

    def __init__(self, call: Any, failed: Callable[[Failure], Exception]) -> None:
        self._call: Final = call
        self._failed: Final = failed
        self._cancelled = False
        self._first: asyncio.Task[Any] | None = None

    async def opened(self, timeout: float) -> None:
        # A server that accepts a stream sends headers. One that refuses it sends its status alone, which looks like headers without
        # content until the status is there.
        if await self._do(self._call.initial_metadata, timeout):
            return
        self._first = first = asyncio.ensure_future(self._call.read())
        done, _ = await asyncio.wait({first}, timeout=_SETTLES)
        if done and await self._is_failed(first):
            raise await self._error()

    async def read(self, timeout: float) -> bytes | None:
        first, self._first = self._first, None
        message = await self._do(self._call.read if first is None else lambda: first, timeout)
        if message is not grpc.aio.EOF:
            data: bytes = message
            return data
        # gRPC tells the end of a stream that was reset as it tells a good one.
        if await self._call.code() is not grpc.StatusCode.OK:
            raise await self._error()
        return None

    async def _is_failed(self, first: asyncio.Task[Any]) -> bool:
        """Whether the call failed before its first message."""
        if first.cancelled() or first.exception() is not None:
            return True
        return first.result() is grpc.aio.EOF and await self._call.code() is not grpc.StatusCode.OK

    def cancel(self) -> None:
        self._cancelled = True
        self._call.cancel()

    async def _do(self, function: Callable[[], Awaitable[Any]], timeout: float) -> Any:
        try:
            async with asyncio.timeout(timeout):
                return await function()
        except grpc.aio.AioRpcError:
            raise await self._error() from None
        except asyncio.CancelledError:
            if self._call.done() and not _is_task_cancelled():
                raise await self._error() from None
            raise

    async def _error(self) -> Exception:
        call = self._call
        if self._cancelled:
            return CallCancelledError()
        return self._failed(
            Failure(
                await call.code(),
                await call.details() or "",
                _pairs(await call.initial_metadata()),
                _pairs(await call.trailing_metadata()),
            )
        )


def async_source_of(token: Token | AsyncToken | None) -> TokenSource | AsyncToken | None:
    """The source that a caller means. An async function, or an object that is called like one, is its own source."""
    if inspect.iscoroutinefunction(token) or inspect.iscoroutinefunction(getattr(token, "__call__", None)):  # noqa: B004
        return cast(AsyncToken, token)
    # Of other functions it turns out when they are called.
    return source_of(cast("Token | None", token))


def _is_task_cancelled() -> bool:
    """Whether somebody cancels the running task. gRPC raises CancelledError also for a call that was cancelled."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def _failure(error: grpc.aio.AioRpcError) -> Failure:
    return Failure(error.code(), error.details() or "", _pairs(error.initial_metadata()), _pairs(error.trailing_metadata()))


def _pairs(metadata: Any) -> tuple[tuple[str, str | bytes], ...]:
    return tuple(metadata or ())


def _dial(settings: Settings) -> grpc.aio.Channel:
    target, options = settings.address.target, settings.channel_options()
    if settings.address.is_tls:
        return grpc.aio.secure_channel(target, credentials(settings), options)
    return grpc.aio.insecure_channel(target, options)
