"""A watch across its streams: opens them, reads them, and decides after each whether to open another one."""

from __future__ import annotations

import random
from typing import Any, Final, Generic, TypeVar, cast

import grpc

from ..errors import BinderyError, CallCancelledError, Fault, ProtocolError, StatusError, TokenError, TransportError
from ..events import Connected, Disconnected, WatchEvent
from ..methods import Method
from ..reasons import Reason
from .engine import Engine, TokenMemory, logger, new_request_id
from .io import Stream
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

    def __init__(self, engine: Engine, method: Method[Any, Any], request: Any) -> None:
        self._engine: Final = engine
        self._method: Final = method
        self._request: Final = type(request)()
        self._request.CopyFrom(request)
        self._memory: Final = TokenMemory()
        self.resume_token: str = self._request.resume_token
        """Resume token of the last event that was processed."""
        self._handed: str | None = None
        self._tracker: Final = Tracker(self.resume_token)
        self._failures = 0
        self._delay = 0.0
        self._pause: Final = engine.io.waiter()
        self._stream: Stream | None = None
        self._is_open = False
        self._since = 0.0
        self._request_id = ""
        self._ended = False
        self._stopped = False
        engine.watches.add(self)

    async def next(self) -> WatchEvent[T] | None:
        """The next event; None after :meth:`stop`. Raises the error that ends the watch.

        An event counts as processed when the next one is asked for.
        """
        if self._handed is not None:
            self.resume_token, self._handed = self._handed, None
        if self._ended or self._stopped:
            return None
        try:
            event = await self._next()
        except BinderyError:
            self._close_stream()
            if self._stopped:
                return None
            self._ended = True
            raise
        self._handed = self._tracker.token
        return event

    def stop(self) -> None:
        """Ends the watch. A reader that waits for an event is woken, and gets None."""
        self._stopped = True
        self._pause.end()
        stream = self._stream
        if stream is not None:
            stream.cancel()

    async def _next(self) -> WatchEvent[T]:
        while True:
            stream = self._stream
            try:
                if stream is None or not self._is_open:
                    if await self._pause.wait(self._delay):
                        raise CallCancelledError
                    return Connected(await self._open())
                event = await self._read(stream)
            except CallCancelledError:
                raise
            except BinderyError as error:
                return self._fail(error)
            if event is not None:
                return event

    async def _open(self) -> bool:
        """Opens a stream; returns whether it resumes."""
        engine, io = self._engine, self._engine.io
        resumes = self._tracker.connect()
        self._request.resume_token = self._tracker.token
        body = self._request.SerializeToString()
        self._request_id = request_id = new_request_id()
        engine.check_size(body, request_id)
        limit = engine.settings.watch.open_timeout
        start = io.now()
        try:
            headers = await engine.headers(self._method, request_id, self._memory, start + limit)
            self._stream = stream = io.stream(engine.path(self._method), body, headers)
            if self._stopped:
                raise CallCancelledError
            await stream.opened(max(0.0, start + limit - io.now()))
        except CallFailed as failed:
            raise error_of(failed.failure, engine.address, request_id, io.now() - start) from None
        except TimeoutError:
            raise deadline(engine.address, limit, request_id) from None
        self._is_open = True
        self._since = io.now()
        self._memory.accepted()
        return resumes

    async def _read(self, stream: Stream) -> WatchEvent[T] | None:
        engine = self._engine
        try:
            answer = await stream.read(engine.settings.watch.silence)
        except CallFailed as failed:
            lasted = engine.io.now() - self._since
            raise error_of(failed.failure, engine.address, self._request_id, lasted) from None
        except TimeoutError:
            raise TransportError(str(engine.address), Fault.SILENT) from None
        if answer is None:
            return self._disconnect(None)
        message = engine.decode(self._method, answer)
        try:
            return self._tracker.step(message.WhichOneof("event"), cast(WatchResponse, message))
        except RuleBroken as broken:
            raise ProtocolError(str(engine.address), str(broken)) from None

    def _fail(self, error: BinderyError) -> WatchEvent[T]:
        """Decides after a failed stream whether to open another one or to end the watch."""
        if isinstance(error, StatusError) and error.reason == Reason.RESUME_TOKEN_INVALID and self._tracker.token:
            self._tracker.forget()
            return self._disconnect(error)
        if self._engine.has_tokens and self._memory.refreshes(error):
            self._engine.io.token_expired()
            return self._disconnect(None)
        if _is_final(error):
            raise error
        return self._disconnect(error)

    def _disconnect(self, error: BinderyError | None) -> Disconnected:
        times = self._engine.settings.watch
        good = self._is_open and self._engine.io.now() - self._since >= times.good_after
        self._close_stream()
        self._failures = 1 if good else self._failures + 1
        asked = error.retry_after if isinstance(error, StatusError) else None
        least = min(asked or 0.0, times.retry_after_max)
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
