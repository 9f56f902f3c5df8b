"""A server that answers by script: whatever is called next gets the next answer."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import grpc
from google.protobuf import any_pb2
from google.protobuf.message import Message
from google.rpc.error_details_pb2 import ErrorInfo, RetryInfo
from google.rpc.status_pb2 import Status

from bindery.methods import ALL, Method

Step = Message | bytes | float | Exception
"""A message to send, a pause in seconds, or a failure. After the last one the call ends with OK."""


class Fail(Exception):
    """Ends a call with a status and details."""

    def __init__(
        self,
        code: grpc.StatusCode,
        text: str = "by script",
        details: Sequence[Message] = (),
        raw: bytes | None = None,
        trailers: Sequence[tuple[str, str]] = (("date", "today"),),
    ) -> None:
        super().__init__(text)
        self.code = code
        self.text = text
        self.trailers: list[tuple[str, Any]] = list(trailers)
        status = Status(code=code.value[0], message=text)
        for detail in details:
            packed = any_pb2.Any()
            packed.Pack(detail)
            status.details.append(packed)
        if details or raw is not None:
            self.trailers.append(("grpc-status-details-bin", status.SerializeToString() if raw is None else raw))


def reason(code: grpc.StatusCode, name: str, retry_after: float | None = None, domain: str = "kube-bind.io") -> Fail:
    """Fails with this reason, as a server of ours does."""
    details: list[Message] = [ErrorInfo(reason=name, domain=domain)]
    if retry_after is not None:
        retry = RetryInfo()
        retry.retry_delay.FromNanoseconds(round(retry_after * 1e9))
        details.append(retry)
    return Fail(code, details=details)


@dataclass
class Seen:
    """A call as the server saw it."""

    method: str
    request: Any
    headers: dict[str, str | bytes]
    time_left: float | None
    at: float = field(default_factory=time.monotonic)


class Script(grpc.GenericRpcHandler):
    """A server that listens on loopback, and its script."""

    def __init__(self, *answers: Sequence[Step], credentials: grpc.ServerCredentials | None = None, port: int = 0) -> None:
        self._answers = deque(answers)
        self._lock = threading.Lock()
        self.seen: list[Seen] = []
        self.headers: tuple[tuple[str, str], ...] = (("date", "today"),)
        self.cancelled = threading.Event()
        self._pool = ThreadPoolExecutor(64)
        self._server = grpc.server(self._pool, handlers=[self], options=[("grpc.so_reuseport", 0)])
        if credentials is None:
            self.port = self._server.add_insecure_port(f"127.0.0.1:{port}")
        else:
            self.port = self._server.add_secure_port(f"127.0.0.1:{port}", credentials)
        self._server.start()
        self.address = f"{'http' if credentials is None else 'https'}://127.0.0.1:{self.port}"

    def close(self) -> None:
        self._server.stop(None).wait()
        self._pool.shutdown(wait=False, cancel_futures=True)

    def service(self, handler_call_details: Any) -> grpc.RpcMethodHandler[Any, Any] | None:
        name = handler_call_details.method.rpartition("/")[2]
        method = ALL.get(name)
        if method is None:
            return None

        def answer(request: bytes, context: grpc.ServicerContext) -> Iterator[bytes]:
            return self._answer(method, request, context)

        if name.startswith("Watch"):
            return grpc.unary_stream_rpc_method_handler(answer)

        def single(request: bytes, context: grpc.ServicerContext) -> bytes:
            return next(answer(request, context), b"")

        return grpc.unary_unary_rpc_method_handler(single)

    def _answer(self, method: Method[Any, Any], data: bytes, context: grpc.ServicerContext) -> Iterator[bytes]:
        request = method.request.FromString(data)
        headers = dict(context.invocation_metadata())
        with self._lock:
            self.seen.append(Seen(method.name, request, headers, context.time_remaining()))
            steps = self._answers.popleft() if self._answers else (Fail(grpc.StatusCode.INTERNAL, "the script is over"),)
        context.add_callback(lambda: self.cancelled.set() if not context.is_active() else None)
        if method.name.startswith("Watch") and not (steps and isinstance(steps[0], Fail)):
            context.send_initial_metadata(self.headers)
        for step in steps:
            match step:
                case Message():
                    yield step.SerializeToString()
                case bytes():
                    yield step
                case float() | int():
                    pause(step, context)
                case Fail():
                    context.set_trailing_metadata(tuple(step.trailers))
                    context.abort(step.code, step.text)
                case _:
                    raise AssertionError(step)


def pause(seconds: float, context: grpc.ServicerContext) -> None:
    """Sleeps, and ends early if the call does."""
    end = time.monotonic() + seconds
    while context.is_active() and time.monotonic() < end:
        time.sleep(0.01)


def eventually(condition: Callable[[], object], seconds: float = 5.0) -> None:
    """Waits until something holds."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it never holds"
        time.sleep(0.01)
