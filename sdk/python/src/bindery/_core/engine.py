"""One call from its first attempt to its result: deadline, token, retries."""

from __future__ import annotations

import logging
import random
import secrets
import weakref
from typing import Any, Final, TypeVar

from google.protobuf.message import DecodeError, Message

from ..errors import BinderyError, ProtocolError, StatusError
from ..methods import Method
from ..reasons import Reason
from .address import Address
from .io import IO, Headers
from .secret import Hidden, bearer
from .settings import MESSAGE_SEND_MAX, Settings
from .status import CallFailed, deadline, error_of, too_large

A = TypeVar("A", bound=Message)

logger: Final = logging.getLogger("bindery")

_REFRESHED_BY: Final = frozenset({Reason.TOKEN_EXPIRED, Reason.TOKEN_INVALID})
SERVER_WAIT: Final = 30.0
"""How many seconds the server waits for its controller if a request does not say."""


class TokenMemory:
    """The header that was last sent, and the server's error that called its token expired or invalid, if any."""

    __slots__ = ("_header", "_refreshed", "_rejected")

    def __init__(self) -> None:
        self._header: Hidden | None = None
        self._rejected: BinderyError | None = None
        self._refreshed = False

    def send(self, header: Hidden) -> None:
        """Notes the header to send. Raises the server's error if its token is the one that the server just refused."""
        last, self._header = self._header, header
        rejected, self._rejected = self._rejected, None
        if rejected is not None and last == header:
            raise rejected

    def accepted(self) -> None:
        """Notes that the server accepted the token, so that its expiry causes another refresh."""
        self._refreshed = False

    def refreshes(self, error: BinderyError) -> bool:
        """Whether another token may mend the error. That is tried once."""
        if not isinstance(error, StatusError) or error.reason not in _REFRESHED_BY or self._refreshed:
            return False
        self._refreshed = True
        self._rejected = error
        return True


class Engine:
    """Makes calls by the rules of this package, over whatever the sync or the async client does them with."""

    def __init__(self, io: IO, settings: Settings, *, has_tokens: bool) -> None:
        self.io: Final = io
        self.settings: Final = settings
        self.has_tokens: Final = has_tokens
        self.watches: Final[weakref.WeakSet[Any]] = weakref.WeakSet()
        """The watches that are not garbage, which end with the client."""

    @property
    def address(self) -> Address:
        return self.settings.address

    async def call(self, method: Method[Any, A], request: Message, timeout: float | None = None) -> A:
        """Makes a unary call. Raises BinderyError."""
        body = request.SerializeToString()
        request_id = new_request_id()
        self.check_size(body, request_id)
        wait = server_wait(request) if method.waits else 0.0
        total, attempt_time = self.settings.times(wait, timeout)
        io = self.io
        start = io.now()
        end = start + total
        memory = TokenMemory()
        attempts = 0
        while True:
            attempts += 1
            until = min(end, io.now() + attempt_time)
            try:
                headers = await self.headers(method, request_id, memory, until)
                left = until - io.now()
                if left <= 0:
                    raise TimeoutError
                answer = await io.unary(self.path(method), body, headers, left)
                return self.decode(method, answer)
            except CallFailed as failed:
                error = error_of(failed.failure, self.address, request_id, io.now() - start)
            except TimeoutError:
                error = deadline(self.address, io.now() - start, request_id)
            if self.has_tokens and memory.refreshes(error):
                io.token_expired()
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

    def stop_watches(self) -> None:
        """Ends all watches."""
        for run in list(self.watches):
            run.stop()

    async def headers(self, method: Method[Any, Any], request_id: str, memory: TokenMemory, until: float) -> Headers:
        """The headers of an attempt, with the token unless the method is open."""
        identified = ("x-request-id", request_id)
        if method.is_open or not self.has_tokens:
            return (identified,)
        token = await self.io.token(until - self.io.now())
        header = bearer(token)
        memory.send(header)
        return identified, ("authorization", header)

    def path(self, method: Method[Any, Any]) -> str:
        """The path of a method at this address."""
        return self.address.prefix + method.path

    def decode(self, method: Method[Any, A], answer: bytes | None) -> A:
        """Decodes a message of the server."""
        if answer is None:
            raise ProtocolError(str(self.address), "its answer has no message")
        message: A = method.response()
        try:
            message.ParseFromString(answer)
        except DecodeError:
            raise ProtocolError(str(self.address), "its answer cannot be decoded") from None
        return message

    def check_size(self, body: bytes, request_id: str) -> None:
        """Refuses a request that the server would refuse for its size."""
        if len(body) > MESSAGE_SEND_MAX:
            raise too_large(f"the request has {len(body)} bytes, more than the {MESSAGE_SEND_MAX} that a server takes", request_id)

    def missing(self, what: str) -> ProtocolError:
        """The error for a response without its main field."""
        return ProtocolError(str(self.address), f"an answer has no {what}")


def new_request_id() -> str:
    """The id under which the server logs a call."""
    return secrets.token_hex(16)


def server_wait(request: Any) -> float:
    """For how many seconds the server may wait before it responds to this request."""
    if not request.HasField("wait"):
        return SERVER_WAIT
    seconds = request.wait.seconds + request.wait.nanos / 1e9
    return float(seconds) if seconds >= 0 else SERVER_WAIT
