"""What the sync client does its calls with: threads, and gRPC's blocking stubs."""

from __future__ import annotations

import contextlib
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from typing import Any, Final

import grpc

from ._core.io import Headers
from ._core.settings import Settings
from ._core.sources import checked, source_error
from ._core.status import CallFailed, Failure
from .errors import CallCancelledError
from .tokens import TokenSource

_SETTLES: Final = 0.05
"""Seconds within which a server that refuses a stream has also said why."""

UnaryCall = Callable[..., bytes | None]


class Connection:
    """A gRPC channel with the count of calls that use it, so that it is closed after the last of them."""

    def __init__(self, channel: grpc.Channel) -> None:
        self.channel: Final = channel
        self.uses = 0
        self.answered = False
        """Whether a server has ever answered."""
        self._unary: Final[dict[str, UnaryCall]] = {}

    def unary(self, path: str) -> UnaryCall:
        """The function that calls a method with bytes, and returns bytes."""
        call = self._unary.get(path)
        if call is None:
            call = self._unary[path] = self.channel.unary_unary(path)
        return call

    def stream(self, path: str) -> Callable[..., Any]:
        """The function that calls a streaming method with bytes, and returns an iterator of bytes."""
        call: Callable[..., Any] = self.channel.unary_stream(path)
        return call


class Connections:
    """The present connection of a client, and those that are not to be used for new calls.

    gRPC goes on dialling a server that it cannot reach, at growing intervals, and fails calls in between without trying. For a
    moment it also begins calls on a connection that has just broken. Here such a connection is given up, so that each attempt of a
    call dials once, and nobody dials without a call.
    """

    def __init__(self, dial: Callable[[], Any]) -> None:
        self._dial: Final = dial
        # Garbage collection gives connections back, also while this thread holds the lock.
        self._lock: Final = threading.RLock()
        self._present: Any = None
        self._retired: Final[list[Any]] = []
        self._closed = False

    def take(self) -> Any:
        """A connection for one call, to be given back by :meth:`release`."""
        with self._lock:
            if self._closed:
                raise CallCancelledError
            connection = self._present
            if connection is None:
                connection = self._present = self._dial()
            connection.uses += 1
            return connection

    def release(self, connection: Any) -> Any:
        """Gives a connection back. Returns it if it is to be closed now."""
        with self._lock:
            connection.uses -= 1
            if connection.uses == 0 and connection in self._retired:
                self._retired.remove(connection)
                return connection
            return None

    def judge(self, connection: Any, failure: Failure) -> None:
        """Decides after a failed call whether the connection is used for new ones. The caller still holds it."""
        if not failure.ends_connection and (connection.answered or failure.code is not grpc.StatusCode.DEADLINE_EXCEEDED):
            connection.answered = True
            return
        with self._lock:
            if self._present is connection:
                self._present = None
                self._retired.append(connection)

    def close(self) -> list[Any]:
        """Refuses new calls. Returns all connections, which are to be closed now."""
        with self._lock:
            self._closed = True
            present, self._present = self._present, None
            retired = list(self._retired)
            self._retired.clear()
            return retired if present is None else [*retired, present]

    @property
    def is_closed(self) -> bool:
        return self._closed


class SyncWaiter:
    """A pause of a thread."""

    def __init__(self) -> None:
        self._event: Final = threading.Event()

    async def wait(self, seconds: float) -> bool:
        return self._event.wait(seconds) if seconds > 0 else self._event.is_set()

    def end(self) -> None:
        self._event.set()


class SyncIO:
    """Time, tokens, and the connection of a sync client."""

    def __init__(self, settings: Settings, source: TokenSource | None) -> None:
        self._source: Final = source
        self._connections: Final = Connections(lambda: Connection(_dial(settings)))
        self._closed: Final = SyncWaiter()
        self._watchdog: Final = Watchdog()

    now: Final = staticmethod(time.monotonic)

    def waiter(self) -> SyncWaiter:
        return SyncWaiter()

    async def sleep(self, seconds: float) -> None:
        if await self._closed.wait(seconds):
            raise CallCancelledError

    async def token(self, timeout: float) -> str:
        source = self._source
        if source is None:
            raise RuntimeError("a client without a token source asks for a token")
        try:
            return checked(source.token(timeout))
        except Exception as error:
            raise source_error(error) from None

    def token_expired(self) -> None:
        if self._source is not None:
            self._source.expired()

    async def unary(self, path: str, request: bytes, headers: Headers, timeout: float) -> bytes | None:
        connection: Connection = self._connections.take()
        try:
            answer = connection.unary(path)(request, timeout=timeout, metadata=headers)
            connection.answered = True
            return answer
        except grpc.RpcError as error:
            raise self._failed(connection, failure_of(error)) from None
        except ValueError as error:
            raise self._unusable(error) from None
        finally:
            self._give_back(connection)

    def stream(self, path: str, request: bytes, headers: Headers) -> SyncStream:
        connection: Connection = self._connections.take()
        try:
            call = connection.stream(path)(request, metadata=headers)
        except ValueError as error:
            self._give_back(connection)
            raise self._unusable(error) from None
        stream = SyncStream(call, self._watchdog, lambda failure: self._failed(connection, failure))
        weakref.finalize(stream, self._end, call, connection).atexit = False
        return stream

    def _end(self, call: Any, connection: Connection) -> None:
        """Ends a stream that nobody has any more."""
        call.cancel()
        self._give_back(connection)

    def close(self) -> None:
        """Ends all calls, and refuses new ones."""
        self._closed.end()
        for connection in self._connections.close():
            connection.channel.close()

    def _failed(self, connection: Connection, failure: Failure) -> Exception:
        if self._connections.is_closed and failure.code is grpc.StatusCode.CANCELLED:
            return CallCancelledError()
        self._connections.judge(connection, failure)
        return CallFailed(failure)

    def _unusable(self, error: ValueError) -> Exception:
        """GRPC raises ValueError for a channel that is closed."""
        return CallCancelledError() if self._connections.is_closed else error

    def _give_back(self, connection: Connection) -> None:
        unused = self._connections.release(connection)
        if unused is not None:
            unused.channel.close()


class SyncStream:
    """A stream that is read by one thread at a time."""

    def __init__(self, call: Any, watchdog: Watchdog, failed: Callable[[Failure], Exception]) -> None:
        self._call: Final = call
        self._watchdog: Final = watchdog
        self._failed: Final = failed
        self._first: Future[bytes | None] | None = None
        self._cancelled = False
        self._timed_out = False
        self.due = _NEVER
        """When the watchdog has to end the stream."""

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
                return _next(self._call) if first is None else first.result()
            except grpc.RpcError:
                pass
        raise self._error()

    def cancel(self) -> None:
        self._cancelled = True
        self._call.cancel()

    def bark(self) -> None:
        """Ends the stream because nothing came in time."""
        self._timed_out = True
        self._call.cancel()

    def _error(self) -> Exception:
        if self._cancelled:
            return CallCancelledError()
        if self._timed_out:
            return TimeoutError()
        return self._failed(failure_of(self._call))


def _next(call: Any) -> bytes | None:
    """The next message; None at the end."""
    message: bytes | None = next(call, None)
    return message


def _read_ahead(call: Any) -> Future[bytes | None]:
    """Reads a message on a thread of its own, which ends with the call at the latest."""
    future: Future[bytes | None] = Future()

    def run() -> None:
        try:
            future.set_result(_next(call))
        except BaseException as error:
            future.set_exception(error)

    threading.Thread(target=run, name="bindery-first-message", daemon=True).start()
    return future


_NEVER: Final = float("inf")


class Watchdog:
    """Ends streams from which nothing comes in time. It has one thread, which lives as long as there are streams."""

    def __init__(self) -> None:
        self._streams: Final[weakref.WeakSet[SyncStream]] = weakref.WeakSet()
        self._condition: Final = threading.Condition()
        self._next = _NEVER
        self._thread: threading.Thread | None = None

    @contextlib.contextmanager
    def guard(self, stream: SyncStream, timeout: float) -> Iterator[None]:
        """Ends the stream if the work on it takes longer."""
        self._arm(stream, time.monotonic() + timeout)
        try:
            yield
        finally:
            stream.due = _NEVER

    def _arm(self, stream: SyncStream, due: float) -> None:
        stream.due = due
        # The thread looks at all streams when it wakes, so it is woken only for one that is due before that.
        if due >= self._next and stream in self._streams:
            return
        with self._condition:
            self._streams.add(stream)
            self._next = min(self._next, due)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="bindery-watchdog", daemon=True)
                self._thread.start()
            self._condition.notify()

    def _run(self) -> None:
        while True:
            with self._condition:
                now = time.monotonic()
                streams = list(self._streams)
                late = [stream for stream in streams if stream.due <= now]
                if not streams:
                    self._thread = None
                    self._next = _NEVER
                    return
                if not late:
                    # Streams that nobody reads now are looked at again soon, for they may have become garbage.
                    self._next = min(now + _LOOK_AGAIN, *(stream.due for stream in streams))
                    del streams
                    self._condition.wait(self._next - now)
                    continue
            for stream in late:
                stream.due = _NEVER
                stream.bark()
            del late, streams


_LOOK_AGAIN: Final = 30.0


def failure_of(call: Any) -> Failure:
    """What gRPC says of a call that failed."""
    return Failure(call.code(), call.details() or "", tuple(call.initial_metadata() or ()), tuple(call.trailing_metadata() or ()))


def credentials(settings: Settings) -> grpc.ChannelCredentials:
    """TLS by the settings."""
    chain, key = settings.certificate or (None, None)
    return grpc.ssl_channel_credentials(settings.roots, private_key=key, certificate_chain=chain)


def _dial(settings: Settings) -> grpc.Channel:
    target, options = settings.address.target, settings.channel_options()
    if settings.address.is_tls:
        return grpc.secure_channel(target, credentials(settings), options)
    return grpc.insecure_channel(target, options)
