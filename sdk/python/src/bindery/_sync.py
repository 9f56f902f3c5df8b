"""What the sync client makes its calls with: threads, and gRPC's blocking stubs."""

from __future__ import annotations

import contextlib
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from typing import Any, Final

import grpc

from ._cancel import Cancellation, current_scope, guard_by
from ._core.io import Headers
from ._core.pool import ConnectionPool
from ._core.secret import Hidden
from ._core.settings import STREAMS_PER_CONNECTION, Settings
from ._core.sources import ask, checked, out_of_time, settle, source_error
from ._core.status import Failure
from .errors import CallCancelledError
from .tokens import TokenSource

_SETTLES: Final = 0.05
"""Seconds within which a server that refuses a stream has also said why."""


class SyncConnection:
    """A gRPC channel with the count of calls that use it, so that it is closed after the last of them."""

    def __init__(self, channel: grpc.Channel) -> None:
        self.channel: Final = channel
        self.uses = 0
        self.responded = False
        self._unary: Final[dict[str, Any]] = {}

    def unary(self, path: str) -> Any:
        """Returns gRPC's callable of a method that takes bytes, and returns bytes."""
        call = self._unary.get(path)
        if call is None:
            call = self._unary[path] = self.channel.unary_unary(path)
        return call

    def stream(self, path: str) -> Callable[..., Any]:
        """Returns gRPC's callable of a streaming method that takes bytes, and returns an iterator of bytes."""
        call: Callable[..., Any] = self.channel.unary_stream(path)
        return call


class SyncWaiter:
    """A pause of a thread."""

    def __init__(self) -> None:
        self._event: Final = threading.Event()

    async def wait(self, seconds: float) -> bool:
        return self._event.wait(seconds) if seconds > 0 else self._event.is_set()

    def end(self) -> None:
        self._event.set()


class SyncIO:
    """Time, tokens, and the connections of a sync client."""

    def __init__(self, settings: Settings, source: TokenSource | None) -> None:
        def dial() -> SyncConnection:
            return SyncConnection(_dial(settings))

        self._source: Final = source
        self._connections: Final = ConnectionPool(dial)
        self._watch_connections: Final = ConnectionPool(dial, calls_max=STREAMS_PER_CONNECTION)
        self._closing: Final = Cancellation("the client was closed")
        self._watchdog: Final = StreamWatchdog()

    now: Final = staticmethod(time.monotonic)

    def waiter(self) -> SyncWaiter:
        return SyncWaiter()

    async def sleep(self, seconds: float) -> None:
        waiter = SyncWaiter()
        with self._cancellable(waiter.end):
            if await waiter.wait(seconds):
                raise self._cancelled()

    async def token(self, timeout: float) -> Hidden:
        source = self._source
        if source is None:
            raise RuntimeError("a client without a token source asks for a token")
        try:
            token = source.cached()
        except Exception as error:
            raise source_error(error) from error
        if token is not None:
            return checked(token)
        future = ask(source, timeout)
        with self._cancellable(lambda: settle(future, self._cancelled())):
            try:
                result = future.result(max(0.0, timeout))
            except TimeoutError:
                raise out_of_time(source, timeout) from None
        return checked(result)

    def forget_token(self, token: str) -> None:
        if self._source is not None:
            self._source.forget(token)

    async def unary(self, path: str, request: bytes, headers: Headers, timeout: float) -> bytes | None:
        connection = self._connections.take()
        try:
            response = self._call(connection.unary(path), request, headers, timeout)
            connection.responded = True
            return response
        except grpc.RpcError as error:
            raise self._connections.failed(connection, failure_of(error)) from None
        except grpc.FutureCancelledError:
            raise self._cancelled() from None
        except ValueError as error:
            raise self._unusable(error) from None
        finally:
            _give_back(self._connections, connection)

    def _call(self, method: Any, request: bytes, headers: Headers, timeout: float) -> bytes | None:
        """Calls a method of gRPC, and waits for the response."""
        scope = current_scope()
        response: bytes | None
        if scope is None:
            response = method(request, timeout=timeout, metadata=headers)
        else:
            if scope.is_cancelled:
                raise self._cancelled()
            # A call that can be cancelled is slower.
            call = method.future(request, timeout=timeout, metadata=headers)
            try:
                with guard_by(scope, call.cancel):
                    response = call.result()
            except CallCancelledError:
                call.cancel()
                raise
        return response

    def stream(self, path: str, request: bytes, headers: Headers) -> SyncStream:
        pool = self._watch_connections
        connection = pool.take()
        try:
            call = connection.stream(path)(request, metadata=headers)
        except ValueError as error:
            _give_back(pool, connection)
            raise self._unusable(error) from None
        stream = SyncStream(call, self._watchdog, lambda failure: pool.failed(connection, failure))
        weakref.finalize(stream, _end_stream, pool, connection, call).atexit = False
        return stream

    def close(self) -> None:
        """Ends all calls, and refuses new ones."""
        self._closing.end()
        for connection in (*self._connections.close(), *self._watch_connections.close()):
            connection.channel.close()

    @contextlib.contextmanager
    def _cancellable(self, action: Callable[[], object]) -> Iterator[None]:
        """Has the action run if the client is closed or the scope of this thread is cancelled meanwhile."""
        with self._closing.guard(action), guard_by(current_scope(), action):
            yield

    def _cancelled(self) -> CallCancelledError:
        return CallCancelledError(self._closing.message if self._closing.is_ended else "the call was cancelled")

    def _unusable(self, error: ValueError) -> Exception:
        """Returns the error for gRPC's ValueError, which it raises for a channel that is closed."""
        return CallCancelledError() if self._connections.is_closed else error


def _end_stream(pool: ConnectionPool[SyncConnection], connection: SyncConnection, call: Any) -> None:
    """Ends a stream that has become garbage."""
    call.cancel()
    _give_back(pool, connection)


def _give_back(pool: ConnectionPool[SyncConnection], connection: SyncConnection) -> None:
    unused = pool.release(connection)
    if unused is not None:
        unused.channel.close()


class SyncStream:
    """A stream that is read by one thread at a time."""

    def __init__(self, call: Any, watchdog: StreamWatchdog, failed: Callable[[Failure], Exception]) -> None:
        self._call: Final = call
        self._watchdog: Final = watchdog
        self._failed: Final = failed
        self._first: Future[bytes | None] | None = None
        self._cancelled = False
        self._timed_out = False
        self.due = _NEVER
        """When the watchdog ends the stream. Only the watchdog writes it, under its lock."""

    async def opened(self, timeout: float) -> None:
        with self._watchdog.guard(self, timeout):
            # A server that accepts a stream sends headers. One that refuses it sends its status alone, which looks like headers
            # without content until the status is there.
            if self._call.initial_metadata():
                return
            if self._cancelled:
                raise CallCancelledError
            self._first = first = _read_ahead(self._call)
            try:
                first.result(_SETTLES)
            except TimeoutError:
                return
            except grpc.RpcError:
                pass
            else:
                return
        raise self._error()

    async def read(self, timeout: float) -> bytes | None:
        with self._watchdog.guard(self, timeout):
            try:
                first, self._first = self._first, None
                return _next_message(self._call) if first is None else first.result()
            except grpc.RpcError:
                pass
        raise self._error()

    def cancel(self) -> None:
        self._cancelled = True
        self._call.cancel()

    def time_out(self) -> None:
        """Ends the stream because nothing came in time."""
        self._timed_out = True
        self._call.cancel()

    def _error(self) -> Exception:
        if self._cancelled:
            return CallCancelledError()
        if self._timed_out:
            return TimeoutError()
        return self._failed(failure_of(self._call))


def _next_message(call: Any) -> bytes | None:
    """Returns the next message; None at the end."""
    message: bytes | None = next(call, None)
    return message


def _read_ahead(call: Any) -> Future[bytes | None]:
    """Reads a message on a thread of its own, which ends with the call at the latest."""
    future: Future[bytes | None] = Future()

    def run() -> None:
        try:
            future.set_result(_next_message(call))
        except BaseException as error:
            future.set_exception(error)

    threading.Thread(target=run, name="bindery-first-message", daemon=True).start()
    return future


_NEVER: Final = float("inf")
_LOOK_AGAIN: Final = 30.0
"""Seconds after which the watchdog looks whether streams have become garbage."""


class StreamWatchdog:
    """Ends streams from which nothing comes in time. It has one thread, which lives as long as there are streams."""

    def __init__(self) -> None:
        self._streams: Final[weakref.WeakSet[SyncStream]] = weakref.WeakSet()
        # Garbage collection may run a finalizer that cancels a stream while this thread holds the lock.
        self._condition: Final = threading.Condition(threading.RLock())
        self._wakes_at = _NEVER
        self._thread: threading.Thread | None = None

    @contextlib.contextmanager
    def guard(self, stream: SyncStream, timeout: float) -> Iterator[None]:
        """Ends the stream if the work on it takes longer."""
        due = time.monotonic() + timeout
        with self._condition:
            stream.due = due
            self._streams.add(stream)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="bindery-watchdog", daemon=True)
                self._thread.start()
            # The thread looks at all streams when it wakes, so it is woken only for one that is due before that.
            if due < self._wakes_at:
                self._wakes_at = due
                self._condition.notify()
        try:
            yield
        finally:
            with self._condition:
                stream.due = _NEVER

    def _run(self) -> None:
        with self._condition:
            while self._end_late():
                self._condition.wait(self._wakes_at - time.monotonic())
            self._thread = None
            self._wakes_at = _NEVER

    def _end_late(self) -> bool:
        """Ends the streams that are due, and decides when to look again. Returns False if there is no stream."""
        now = time.monotonic()
        streams = list(self._streams)
        self._wakes_at = now + _LOOK_AGAIN
        for stream in streams:
            if stream.due <= now:
                stream.due = _NEVER
                stream.time_out()
            self._wakes_at = min(self._wakes_at, stream.due)
        return bool(streams)


def failure_of(call: Any) -> Failure:
    """Returns what gRPC says of a call that failed."""
    return Failure(call.code(), call.details() or "", tuple(call.initial_metadata() or ()), tuple(call.trailing_metadata() or ()))


def credentials(settings: Settings) -> grpc.ChannelCredentials:
    """Returns TLS by the settings."""
    chain, key = settings.certificate or (None, None)
    return grpc.ssl_channel_credentials(settings.roots, private_key=key, certificate_chain=chain)


def _dial(settings: Settings) -> grpc.Channel:
    target, options = settings.address.target, settings.channel_options()
    if settings.address.is_tls:
        return grpc.secure_channel(target, credentials(settings), options)
    return grpc.insecure_channel(target, options)
