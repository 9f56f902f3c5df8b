"""Connections that fail: TLS, and what real sockets do. It shows that texts of gRPC are still told apart."""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import grpc
import pytest

import bindery
from bindery import Fault
from bindery import v1alpha2 as api
from bindery._core.retry import RetryPolicy

from .both import Caller, Callers
from .conftest import Scripts
from .pki import Authority
from .server import eventually, reason

ONCE = RetryPolicy(attempts=1)
PROVIDER = (api.GetProviderResponse(provider=api.Provider(pretty_name="MangoDB")),)
SETTINGS_FRAME = b"\x00\x00\x00\x04\x00\x00\x00\x00\x00"


@pytest.fixture(scope="module")
def ca() -> Authority:
    return Authority()


def secured(ca: Authority, clients: bytes | None = None, **leaf: object) -> grpc.ServerCredentials:
    chain, key = ca.issue(**leaf)  # type: ignore[arg-type]
    return grpc.ssl_server_credentials([(key, chain)], clients, require_client_auth=clients is not None)


def fault_of(client: Caller) -> Fault:
    with pytest.raises(bindery.TransportError) as raised:
        client.do("get_provider")
    assert raised.value.unprocessed
    return raised.value.fault


# === TLS ===


def test_tls_with_a_given_ca(caller: Callers, script: Scripts, ca: Authority, tmp_path: Path) -> None:
    file = tmp_path / "ca.crt"
    file.write_bytes(ca.pem)
    server = script(PROVIDER, PROVIDER, credentials=secured(ca))
    assert caller(server.address, ca_pem=ca.pem).do("get_provider").pretty_name == "MangoDB"
    assert caller(server.address, ca_file=file).do("get_provider").pretty_name == "MangoDB"


def test_a_server_of_an_unknown_ca_is_refused_without_a_retry(caller: Callers, script: Scripts, ca: Authority) -> None:
    server = script(PROVIDER, credentials=secured(Authority("other")))
    assert fault_of(caller(server.address, ca_pem=ca.pem)) is Fault.CERTIFICATE_UNTRUSTED
    assert fault_of(caller(server.address)) is Fault.CERTIFICATE_UNTRUSTED, "a CA of the system signed it"
    assert server.seen == []


def test_a_certificate_for_another_name_is_refused_unless_named(caller: Callers, script: Scripts, ca: Authority) -> None:
    server = script(PROVIDER, credentials=secured(ca, names=("bind.example.com",), ips=()))
    assert fault_of(caller(server.address, ca_pem=ca.pem)) is Fault.CERTIFICATE_NAME
    named = caller(server.address, ca_pem=ca.pem, server_name="bind.example.com")
    assert named.do("get_provider").pretty_name == "MangoDB"


def test_an_expired_certificate_is_refused(caller: Callers, script: Scripts, ca: Authority) -> None:
    server = script(PROVIDER, credentials=secured(ca, days=-1))
    assert fault_of(caller(server.address, ca_pem=ca.pem)) is Fault.CERTIFICATE_EXPIRED


def test_a_client_certificate_is_presented(caller: Callers, script: Scripts, ca: Authority) -> None:
    server = script(PROVIDER, credentials=secured(ca, clients=ca.pem))
    client = caller(server.address, ca_pem=ca.pem, client_certificate=ca.issue())
    assert client.do("get_provider").pretty_name == "MangoDB"
    # In TLS 1.3 the refusal comes when the client's end of the handshake is over, and gRPC tells only that the connection ended.
    assert fault_of(caller(server.address, ca_pem=ca.pem, retry=ONCE)) in (Fault.CLIENT_CERTIFICATE, Fault.BROKEN)
    with pytest.raises(bindery.ConfigurationError) as raised:
        caller(server.address, client_certificate=(ca.issue()[0], ca.issue()[1]))
    assert raised.value.reason == "ClientCertificateInvalid"


def test_servers_without_tls_or_http2_are_told(caller: Callers, sockets: Sockets, ca: Authority, tmp_path: Path) -> None:
    port = sockets(lambda connection: connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n"))
    assert fault_of(caller(f"https://127.0.0.1:{port}")) is Fault.SERVER_IS_PLAINTEXT
    file = tmp_path / "server.pem"
    file.write_bytes(b"".join(ca.issue()))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(file)
    context.set_alpn_protocols(["http/1.1"])

    def serve(connection: socket.socket) -> None:
        with context.wrap_socket(connection, server_side=True) as secure:
            secure.recv(1000)

    assert fault_of(caller(f"https://127.0.0.1:{sockets(serve)}", ca_pem=ca.pem)) is Fault.NO_HTTP2


# === Sockets ===

Sockets = Callable[[Callable[[socket.socket], object]], int]


@pytest.fixture
def sockets() -> Iterator[Sockets]:
    """Listens on loopback, and gives each connection to a function, after which it is closed."""
    listeners: list[socket.socket] = []

    def listen(serve: Callable[[socket.socket], object]) -> int:
        listener = socket.create_server(("127.0.0.1", 0))
        listeners.append(listener)

        def run() -> None:
            while True:
                try:
                    connection, _ = listener.accept()
                except OSError:
                    return
                threading.Thread(target=one, args=(connection,), daemon=True).start()

        def one(connection: socket.socket) -> None:
            # The client may have gone.
            with connection, contextlib.suppress(OSError):
                serve(connection)

        threading.Thread(target=run, daemon=True).start()
        return int(listener.getsockname()[1])

    yield listen
    for listener in listeners:
        listener.close()


def after_request(*frames: bytes) -> Callable[[socket.socket], None]:
    """Responds to a request by these frames of HTTP/2."""

    def serve(connection: socket.socket) -> None:
        connection.sendall(SETTINGS_FRAME)
        data = b""
        # The request has headers and one message; all of it fits these bytes in any encoding.
        while len(data) < 150:
            data += connection.recv(4096)
        for frame in frames:
            connection.sendall(frame)
        if frames:
            time.sleep(0.3)

    return serve


def reset(code: int) -> bytes:
    return b"\x00\x00\x04\x03\x00\x00\x00\x00\x01" + code.to_bytes(4, "big")


def goaway(last: int) -> bytes:
    return b"\x00\x00\x08\x07\x00\x00\x00\x00\x00" + last.to_bytes(4, "big") + bytes(4)


@pytest.mark.parametrize(
    ("frames", "unprocessed"),
    [
        ([], False),
        ([reset(2)], False),
        ([reset(7)], True),
        ([reset(8)], False),
        ([reset(11)], False),
        ([goaway(0)], True),
        ([goaway(1)], False),
        ([b"x" * 100], False),
    ],
    ids=["closed", "internal", "refused", "cancel", "calm", "goaway-before", "goaway-after", "garbage"],
)
def test_a_call_that_breaks_is_told_and_not_retried_unless_it_was_not_processed(
    caller: Callers, sockets: Sockets, frames: Sequence[bytes], unprocessed: bool
) -> None:
    client = caller(f"http://127.0.0.1:{sockets(after_request(*frames))}", timeout=5, retry=ONCE)
    with pytest.raises(bindery.TransportError) as raised:
        client.do("renew_kubeconfig")
    assert (raised.value.fault, raised.value.unprocessed) == (Fault.BROKEN, unprocessed)


def refuse_streams(connection: socket.socket, streams: list[int]) -> None:
    """Refuses each stream of a connection, and notes its id."""
    file = connection.makefile("rb")
    file.read(len(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"))
    connection.sendall(SETTINGS_FRAME)
    while len(head := file.read(9)) == 9:
        file.read(int.from_bytes(head[:3], "big"))
        if head[3] == 1:
            stream = int.from_bytes(head[5:], "big")
            streams.append(stream)
            connection.sendall(b"\x00\x00\x04\x03\x00" + stream.to_bytes(4, "big") + (7).to_bytes(4, "big"))


def test_a_stream_that_the_server_refused_is_tried_again_for_every_method(caller: Callers, sockets: Sockets) -> None:
    streams: list[int] = []
    port = sockets(lambda connection: refuse_streams(connection, streams))
    with pytest.raises(bindery.TransportError) as raised:
        caller(f"http://127.0.0.1:{port}", retry=RetryPolicy(3, 0.01, 0.01)).do("renew_kubeconfig")
    assert raised.value.unprocessed
    assert streams == [1, 3, 5]


def test_a_server_of_http1_is_a_broken_connection(caller: Callers, sockets: Sockets) -> None:
    port = sockets(lambda connection: connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n"))
    assert fault_of(caller(f"http://127.0.0.1:{port}", retry=ONCE)) is Fault.BROKEN


def test_a_server_that_never_responds_is_a_connect_timeout(caller: Callers, sockets: Sockets) -> None:
    port = sockets(lambda _: time.sleep(3))
    client = caller(f"http://127.0.0.1:{port}", connect_timeout=0.3, timeout=5, retry=ONCE)
    assert fault_of(client) is Fault.CONNECT_TIMEOUT


def test_an_attempt_after_a_silent_one_dials_anew(caller: Callers, sockets: Sockets) -> None:
    accepted = 0

    def count(_: socket.socket) -> None:
        nonlocal accepted
        accepted += 1
        time.sleep(1)

    client = caller(f"http://127.0.0.1:{sockets(count)}", timeout=0.2, retry=ONCE)
    for _ in range(3):
        with pytest.raises(bindery.DeadlineExceededError):
            client.do("get_provider")
    assert accepted == 3


# === Cancelling ===


def test_closing_the_client_ends_its_calls(caller: Callers, script: Scripts) -> None:
    server = script([60.0])
    client = caller(server.address)
    ended: list[Exception] = []

    def call() -> None:
        try:
            client.do("get_export", "", "x")
        except Exception as error:
            ended.append(error)

    thread = threading.Thread(target=call)
    thread.start()
    while not server.seen:
        time.sleep(0.01)
    start = time.monotonic()
    client.do("close") if caller.kind == "aio" else client.close()
    thread.join(5)
    assert time.monotonic() - start < 3
    assert [type(error) for error in ended] == [bindery.CallCancelledError]
    assert server.cancelled.wait(5)


def cancel_when(condition: Callable[[], object], scope: bindery.CancelScope) -> None:
    eventually(condition)
    scope.cancel()


def test_a_scope_cancels_its_calls_and_leaves_the_client(script: Scripts) -> None:
    server = script([60.0], PROVIDER, PROVIDER, [api.WatchExportsResponse(snapshot_begin=api.SnapshotBegin()), 60.0])
    with bindery.Client(server.address, allow_plaintext=True) as client:
        start = time.monotonic()
        with bindery.CancelScope() as outer, bindery.CancelScope() as scope:
            threading.Thread(target=cancel_when, args=(lambda: server.seen, outer)).start()
            with pytest.raises(bindery.CallCancelledError, match="the call was cancelled"):
                client.get_provider()
            assert time.monotonic() - start < 10
            assert scope.is_cancelled
            with pytest.raises(bindery.CallCancelledError):
                client.get_provider()
        assert server.cancelled.wait(5)
        assert client.get_provider().pretty_name == "MangoDB"
        with bindery.CancelScope():
            assert client.get_provider().pretty_name == "MangoDB"
        with bindery.CancelScope() as scope, client.watch_exports() as watch:
            next(watch)
            next(watch)
            threading.Timer(0.2, scope.cancel).start()
            with pytest.raises(bindery.CallCancelledError):
                next(watch)
        assert next(watch, None) is None
    assert len(server.seen) == 4


def test_a_scope_cancels_a_call_that_connects(sockets: Sockets, ca: Authority) -> None:
    port = sockets(lambda _: time.sleep(5))
    with bindery.Client(f"https://127.0.0.1:{port}", ca_pem=ca.pem) as client, bindery.CancelScope() as scope:
        start = time.monotonic()
        threading.Timer(0.3, scope.cancel).start()
        with pytest.raises(bindery.CallCancelledError):
            client.get_provider()
        assert time.monotonic() - start < 3


def test_a_scope_cancels_pauses_and_waits_for_tokens() -> None:
    def never() -> str:
        threading.Event().wait(20)
        return "hunter2"

    settings: list[dict[str, Any]] = [{"retry": RetryPolicy(5, 60, 60)}, {"token": never}]
    for more in settings:
        with bindery.Client("http://127.0.0.1:1", allow_plaintext=True, timeout=600, **more) as client:
            start = time.monotonic()
            with bindery.CancelScope() as scope:
                threading.Timer(0.3, scope.cancel).start()
                with pytest.raises(bindery.CallCancelledError):
                    client.get_caller()
            assert time.monotonic() - start < 3


def test_errors_of_calls_in_a_scope_are_the_same(script: Scripts) -> None:
    failing = reason(grpc.StatusCode.NOT_FOUND, "EXPORT_NOT_FOUND")
    server = script([failing], [failing], [0.5], [0.5])
    with bindery.Client(server.address, allow_plaintext=True) as client:
        for timeout, kind in ((5.0, bindery.NotFoundError), (0.1, bindery.DeadlineExceededError)):
            shown = []
            for scope in (contextlib.nullcontext(), bindery.CancelScope()):
                with scope, pytest.raises(kind) as raised:
                    client.get_export("", "x", timeout=timeout)
                shown.append((raised.value.reason, raised.value.message[:20]))
            assert shown[0] == shown[1]


def test_a_connection_is_shared_by_threads(caller: Callers, script: Scripts) -> None:
    server = script(*[PROVIDER] * 40)
    client = caller(server.address)
    names: list[str] = []
    threads = [threading.Thread(target=lambda: names.append(client.do("get_provider").pretty_name)) for _ in range(40)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert names == ["MangoDB"] * 40
