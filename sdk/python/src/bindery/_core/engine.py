"""One call from its first attempt to its result: deadline, token, retries."""

from __future__ import annotations

import logging
import random
import secrets
import threading
import weakref
from typing import Any, Final, TypeVar

from google.protobuf.message import DecodeError, Message

from ..errors import BinderyError, ProtocolError, StatusError
from ..methods import Method
from ..reasons import Reason
from .address import Address
from .io import ClientIO, Headers
from .secret import Hidden, bearer
from .settings import MESSAGE_SEND_MAX, Settings
from .status import CallFailed, deadline, error_of, too_large

A = TypeVar("A", bound=Message)

logger: Final = logging.getLogger("bindery")

_REFRESHED_BY: Final = frozenset({Reason.TOKEN_EXPIRED, Reason.TOKEN_INVALID})
SERVER_WAIT: Final = 30.0
"""How many seconds the server waits for its controller if a request does not say."""
_ROUNDED_UP: Final = 0.999
"""gRPC rounds deadlines up before it tells them to the server: 10 s become 10.1 s. This much less becomes 10 s."""


class TokenMemory:
    """The token that was last sent, and the server's error that called it expired or invalid, if any."""

    __slots__ = ("_refreshed", "_rejection", "sent")

    def __init__(self) -> None:
        self.sent: Hidden | None = None
        self._rejection: BinderyError | None = None
        self._refreshed = False

    def send(self, token: Hidden) -> None:
        """Notes the token to send. Raises the server's error if it is the one that the server just refused."""
        last, self.sent = self.sent, token
        rejection, self._rejection = self._rejection, None
        if rejection is not None and last == token:
            raise rejection

    def accepted(self) -> None:
        """Notes that the server accepted the token, so that its expiry causes another refresh."""
        self._refreshed = False

    def refreshes(self, error: BinderyError) -> bool:
        """Whether the call may succeed with another token. That is tried once."""
        if not isinstance(error, StatusError) or error.reason not in _REFRESHED_BY or self._refreshed:
            return False
        self._refreshed = True
        self._rejection = error
        return True


class CallEngine:
    """Makes calls by the rules of this package, over the threads or the event loop of a client."""

    def __init__(self, io: ClientIO, settings: Settings, *, has_tokens: bool) -> None:
        self.io: Final = io
        self.settings: Final = settings
        self.has_tokens: Final = has_tokens
        self._watches: Final[weakref.WeakSet[Any]] = weakref.WeakSet()
        self._lock: Final = threading.Lock()

    @property
    def address(self) -> Address:
        return self.settings.address

    async def call(self, method: Method[Any, A], request: Message, timeout: float | None = None) -> A:
        """Makes a unary call. Raises BinderyError."""
        wait = server_wait(request) if method.waits else 0.0
        total, attempt_time = self.settings.times(wait, timeout)
        request_id = new_request_id()
        body = self.encode(request, request_id)
        io = self.io
        start = io.now()
        end = start + total
        memory = TokenMemory()
        attempts = 0
        while True:
            attempts += 1
            # The token may take what is left of the whole call: a slow source is no failure of the server.
            headers = await self.headers(method, request_id, memory, end)
            left = min(end - io.now(), attempt_time) * _ROUNDED_UP
            error: BinderyError
            if left <= 0:
                error = deadline(self.address, io.now() - start, request_id)
            else:
                try:
                    return self.decode(method, await io.unary(self.path(method), body, headers, left))
                except CallFailed as failed:
                    error = error_of(failed.failure, self.address, request_id, io.now() - start)
            if self.refresh_token(memory, error):
                continue
            delay = self.settings.retry.next_delay(
                error,
                idempotent=method.idempotent,
                attempts=attempts,
                time_left=end - io.now(),
                random=random.random(),
            )
            if delay is None:
                raise error from None
            logger.debug(
                "%s failed by %s and is tried again in %.2f s (request %s, attempt %d)",
                method.name,
                error.reason_text,
                delay,
                request_id,
                attempts,
            )
            await io.sleep(delay)

    def add_watch(self, run: Any) -> None:
        """Has a watch end with the client, unless it has become garbage by then."""
        with self._lock:
            self._watches.add(run)

    def end_watches(self) -> None:
        """Ends all watches because the client is closed."""
        with self._lock:
            watches = list(self._watches)
        for run in watches:
            run.end_with_client()

    async def headers(self, method: Method[Any, Any], request_id: str, memory: TokenMemory, end: float) -> Headers:
        """Returns the headers of an attempt, with the token unless the method is open.

        :param end: When the source must have a token, by the clock of the client.
        """
        identified = ("x-request-id", request_id)
        if method.is_open or not self.has_tokens:
            return (identified,)
        token = await self.io.token(end - self.io.now())
        header = bearer(token)
        memory.send(token)
        return identified, ("authorization", header)

    def refresh_token(self, memory: TokenMemory, error: BinderyError) -> bool:
        """Whether an error is about the token, and another one may be tried. The source has forgotten the refused one then."""
        if memory.sent is None or not memory.refreshes(error):
            return False
        self.io.forget_token(memory.sent)
        return True

    def path(self, method: Method[Any, Any]) -> str:
        """Returns the path of a method at this address."""
        return self.address.prefix + method.path

    def encode(self, request: Message, request_id: str) -> bytes:
        """Encodes a request. Raises StatusError for one that the server would refuse for its size."""
        body = request.SerializeToString()
        if len(body) > MESSAGE_SEND_MAX:
            raise too_large(f"the request has {len(body)} bytes, more than the {MESSAGE_SEND_MAX} that a server takes", request_id)
        return body

    def decode(self, method: Method[Any, A], body: bytes | None) -> A:
        """Decodes a message of the server."""
        if body is None:
            raise ProtocolError(str(self.address), "its response has no message")
        message: A = method.response()
        try:
            message.ParseFromString(body)
        except DecodeError:
            raise ProtocolError(str(self.address), "its response cannot be decoded") from None
        return message

    def missing(self, field: str) -> ProtocolError:
        """Returns the error for a response without its main field."""
        return ProtocolError(str(self.address), f"a response has no {field}")


def new_request_id() -> str:
    """Returns the id under which the server logs a call."""
    return secrets.token_hex(16)


def server_wait(request: Any) -> float:
    """Returns the seconds that the server may wait before it responds to this request."""
    if not request.HasField("wait"):
        return SERVER_WAIT
    seconds = request.wait.seconds + request.wait.nanos / 1e9
    return float(seconds) if seconds >= 0 else SERVER_WAIT
