"""Which failed calls are retried, and when."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import grpc

from ..errors import BinderyError, StatusError, TransportError

_DOUBLINGS_MAX: Final = 31


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How often and how soon a failed call is retried.

    Retried are UNAVAILABLE, after the delay that the server asks for, and connections that could not be made. For idempotent
    methods, connections that broke, DEADLINE_EXCEEDED of an attempt, and RESOURCE_EXHAUSTED with a RetryInfo are retried too. A
    failure of TLS never is. No retry is sent after the deadline of the call.
    """

    attempts: int = 5
    """Number of attempts at most, the first included; 1 means no retry."""
    base: float = 0.2
    """Upper limit of the first random delay in seconds; it doubles with each attempt."""
    cap: float = 5.0
    """Upper limit of a random delay in seconds, to which the delay that the server asks for is added."""

    def __post_init__(self) -> None:
        if self.attempts < 1 or self.base < 0 or self.cap < 0:
            raise ValueError("a retry policy has at least one attempt, and no negative delay")

    def delay(self, failures: int, least: float, random: float) -> float:
        """The delay after this many failures: ``least``, plus a random part (``random`` in 0..1) of a time that doubles."""
        window = min(self.cap, self.base * 2 ** min(max(failures - 1, 0), _DOUBLINGS_MAX))
        return float(least + window * random)

    def next_delay(self, error: BinderyError, *, idempotent: bool, attempts: int, time_left: float, random: float) -> float | None:
        """The delay before the next attempt; None if there is none."""
        if attempts >= self.attempts:
            return None
        least = _retryable(error, idempotent)
        if least is None:
            return None
        delay = self.delay(attempts, least, random)
        return delay if delay < time_left else None


def _retryable(error: BinderyError, idempotent: bool) -> float | None:
    """The shortest delay before a retry can help; None if it cannot."""
    if isinstance(error, StatusError):
        if error.code is grpc.StatusCode.UNAVAILABLE:
            return error.retry_after or 0.0
        if error.code is grpc.StatusCode.DEADLINE_EXCEEDED and idempotent:
            return error.retry_after or 0.0
        if error.code is grpc.StatusCode.RESOURCE_EXHAUSTED and idempotent:
            return error.retry_after
        return None
    if isinstance(error, TransportError) and not error.fault.needs_mending and (idempotent or error.connecting):
        return 0.0
    return None
