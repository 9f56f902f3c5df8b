"""A watch across its streams: opens them, reads them, and decides after each whether to open another one."""

from __future__ import annotations

import random
from typing import Any, Final, Generic, TypeVar, cast

import grpc

from ..errors import BinderyError, CallCancelledError, Fault, ProtocolError, StatusError, TokenError, TransportError
from ..events import Connected, Disconnected, WatchEvent
from ..methods import Method
from ..reasons import Reason
from .engine import CallEngine, TokenMemory, logger, new_request_id
from .io import ResponseStream
from .status import CallFailed, deadline, error_of
from .tracker import RuleBroken, Tracker, WatchResponse

T = TypeVar("T")

_FINAL: Final = frozenset(
    {
        grpc.StatusCode.UNAUTHENTICATED,
        grpc.StatusCode.PERMISSION_DENIED,
        grpc.StatusCode.NOT_FOUND,
        grpc.StatusCode.INVALID_ARGUMENT,
        grpc.StatusCode.FAILED_PRECONDITION,
        grpc.StatusCode.UNIMPLEMENTED,
    }
)


class WatchRun(Generic[T]):
    """A running watch over objects ``T``."""

    def __init__(self, engine: CallEngine, method: Method[Any, Any], request: Any) -> None:
        self._engine: Final = engine
        self._method: Final = method
        self._request: Final = type(request)()
        self._request.CopyFrom(request)
        self._memory: Final = TokenMemory()
        self.resume_token: str = self._request.resume_token
        """Resume token of the last event that was processed."""
        self._returned: str | None = None
        """Resume token of the event that was returned last, which counts as processed when the next one is asked for."""
        self._tracker: Final = Tracker(self.resume_token)
        self._failures = 0
        self._delay = 0.0
        self._pause: Final = engine.io.waiter()
        self._stream: ResponseStream | None = None
        self._is_open = False
        self._opened_at = 0.0
        self._request_id = ""
        self._has_ended = False
        self._is_stopped = False
        self._ends_with_client = False
        engine.add_watch(self)

    async def next(self) -> WatchEvent[T] | None:
        """Returns the next event; None after :meth:`stop`. Raises the error that ends the watch.

        An event counts as processed when the next one is asked for.
        """
        if self._returned is not None:
            self.resume_token, self._returned = self._returned, None
        if self._has_ended:
            return None
        event: WatchEvent[T] | None = None
        try:
            if not self._is_stopped:
                event = await self._next()
        except BinderyError:
            self._close_stream()
            if not self._is_stopped:
                self._has_ended = True
                raise
        if event is not None:
            self._returned = self._tracker.token
            return event
        self._has_ended = True
        if self._ends_with_client:
            raise CallCancelledError
        return None

    def stop(self) -> None:
        """Ends the watch. A reader that waits for an event is woken, and gets None."""
        self._is_stopped = True
        self._pause.end()
        # The reader may hold the stream until it is woken; its connection is given back after that.
        stream, self._stream = self._stream, None
        if stream is not None:
            stream.cancel()

    def end_with_client(self) -> None:
        """Ends the watch because the client is closed. A reader that waits for an event is woken, and gets CallCancelledError."""
        self._ends_with_client = not self._is_stopped
        self.stop()

    async def _next(self) -> WatchEvent[T]:
        while True:
            stream = self._stream
            if stream is None or not self._is_open:
                if await self._pause.wait(self._delay):
                    raise CallCancelledError
                resumes, body = self._next_request()
                try:
                    await self._open(body)
                    return Connected(resumes)
                except CallCancelledError:
                    raise
                except BinderyError as error:
                    return self._fail(error)
            try:
                event = await self._read(stream)
            except CallCancelledError:
                raise
            except BinderyError as error:
                return self._fail(error)
            if event is not None:
                return event

    def _next_request(self) -> tuple[bool, bytes]:
        """Prepares the next stream. Returns whether it resumes, and its request. Raises StatusError if that is too large."""
        resumes = self._tracker.connect()
        self._request.resume_token = self._tracker.token
        self._request_id = new_request_id()
        return resumes, self._engine.encode(self._request, self._request_id)

    async def _open(self, body: bytes) -> None:
        """Opens a stream."""
        engine, io, request_id = self._engine, self._engine.io, self._request_id
        limit = engine.settings.watch.open_timeout
        start = io.now()
        headers = await engine.headers(self._method, request_id, self._memory, start + limit)
        try:
            self._stream = stream = io.stream(engine.path(self._method), body, headers)
            if self._is_stopped:
                raise CallCancelledError
            await stream.opened(max(0.0, start + limit - io.now()))
        except CallFailed as failed:
            raise error_of(failed.failure, engine.address, request_id, io.now() - start) from None
        except TimeoutError:
            raise deadline(engine.address, limit, request_id) from None
        self._is_open = True
        self._opened_at = io.now()
        self._memory.accepted()

    async def _read(self, stream: ResponseStream) -> WatchEvent[T] | None:
        engine = self._engine
        try:
            body = await stream.read(engine.settings.watch.silence)
        except CallFailed as failed:
            lasted = engine.io.now() - self._opened_at
            raise error_of(failed.failure, engine.address, self._request_id, lasted) from None
        except TimeoutError:
            raise TransportError(str(engine.address), Fault.SILENT) from None
        if body is None:
            return self._disconnect(None)
        message = engine.decode(self._method, body)
        try:
            return self._tracker.step(message.WhichOneof("event"), cast(WatchResponse, message))
        except RuleBroken as broken:
            raise ProtocolError(str(engine.address), str(broken)) from None

    def _fail(self, error: BinderyError) -> WatchEvent[T]:
        """Decides after a failed stream whether to open another one or to end the watch."""
        if isinstance(error, StatusError) and error.reason == Reason.RESUME_TOKEN_INVALID and self._tracker.token:
            self._tracker.forget()
            return self._disconnect(error)
        if self._engine.refresh_token(self._memory, error):
            return self._disconnect(None)
        if _is_final(error):
            raise error
        return self._disconnect(error)

    def _disconnect(self, error: BinderyError | None) -> Disconnected:
        times = self._engine.settings.watch
        good = self._is_open and self._engine.io.now() - self._opened_at >= times.good_after
        self._close_stream()
        self._failures = 1 if good else self._failures + 1
        retry_after = error.retry_after if isinstance(error, StatusError) else None
        least = min(retry_after or 0.0, times.retry_after_max)
        self._delay = times.reconnect.delay(self._failures, least, random.random())
        reason = error.reason_text if error is not None else "Ended"
        logger.debug("%s ended by %s and is opened again in %.2f s", self._method.name, reason, self._delay)
        return Disconnected(error, self._delay)

    def _close_stream(self) -> None:
        stream, self._stream = self._stream, None
        self._is_open = False
        if stream is not None:
            stream.cancel()


def _is_final(error: BinderyError) -> bool:
    """Whether a retry cannot help."""
    if isinstance(error, TokenError):
        return error.reason == TokenError.LOGGED_OUT
    return isinstance(error, StatusError) and error.code in _FINAL
