"""The connections of a client: which one a call takes, and when one is given up."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Final, Generic, Protocol, TypeVar

import grpc

from ..errors import CallCancelledError
from .status import CallFailed, Failure


class PooledConnection(Protocol):
    """A gRPC channel of a pool."""

    uses: int
    """Number of calls that use it."""
    responded: bool
    """Whether a server has ever responded."""


C = TypeVar("C", bound=PooledConnection)


class ConnectionPool(Generic[C]):
    """The connections of a client that take new calls, and those that are closed after their last call.

    gRPC goes on dialling a server that it cannot reach, at growing intervals, and fails calls in between without trying. For a
    moment it also begins calls on a connection that has just broken. A pool gives up such a connection, so that each attempt of a
    call dials once, and no connection is dialled without a call.
    """

    def __init__(self, dial: Callable[[], C], *, calls_max: int | None = None) -> None:
        """
        :param calls_max: Number of calls on one connection, after which another one is dialled. Connections without a call are
            closed then. None keeps one connection for all calls.
        """
        self._dial: Final = dial
        self._calls_max: Final = calls_max
        # Garbage collection gives connections back, also while this thread holds the lock.
        self._lock: Final = threading.RLock()
        self._present: Final[list[C]] = []
        self._retired: Final[list[C]] = []
        self._closed = False

    def take(self) -> C:
        """Returns a connection for one call, to be given back by :meth:`release`."""
        with self._lock:
            if self._closed:
                raise CallCancelledError
            limit = self._calls_max
            connection = next((found for found in self._present if limit is None or found.uses < limit), None)
            if connection is None:
                connection = self._dial()
                self._present.append(connection)
            connection.uses += 1
            return connection

    def release(self, connection: C) -> C | None:
        """Gives a connection back. Returns it if it must be closed now."""
        with self._lock:
            connection.uses -= 1
            if connection.uses > 0:
                return None
            for connections in (self._retired, *([] if self._calls_max is None else [self._present])):
                if connection in connections:
                    connections.remove(connection)
                    return connection
            return None

    def failed(self, connection: C, failure: Failure) -> Exception:
        """Decides after a failed call whether its connection takes new ones, and returns the error of the call. The caller has not
        given the connection back yet.
        """
        if self._closed and failure.code is grpc.StatusCode.CANCELLED:
            return CallCancelledError()
        if not failure.ends_connection and (connection.responded or failure.code is not grpc.StatusCode.DEADLINE_EXCEEDED):
            connection.responded = True
            return CallFailed(failure)
        with self._lock:
            if connection in self._present:
                self._present.remove(connection)
                self._retired.append(connection)
        return CallFailed(failure)

    def close(self) -> list[C]:
        """Refuses new calls. Returns all connections, which must be closed now."""
        with self._lock:
            self._closed = True
            connections = [*self._retired, *self._present]
            self._retired.clear()
            self._present.clear()
            return connections

    @property
    def is_closed(self) -> bool:
        return self._closed
