"""Connections that fail: TLS, and what real sockets do. It shows that texts of gRPC are still told apart."""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import grpc
import pytest

import bindery
from bindery import Fault
from bindery import v1alpha2 as api
from bindery._core.retry import RetryPolicy

from .both import Caller, Callers
from .conftest import Scripts
from .pki import Authority

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
    assert raised.value.connecting
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
    """Answers a request by these frames of HTTP/2."""

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


@pytest.mark.parametrize(
    ("frames", "connections"),
    [
        ([], 2),
        ([reset(2)], 1),
        ([reset(7)], 1),
        ([reset(8)], 1),
        ([reset(11)], 1),
        ([b"\x00\x00\x08\x07\x00\x00\x00\x00\x00" + bytes(8)], 2),
        ([b"x" * 100], 2),
    ],
    ids=["closed", "internal", "refused", "cancel", "calm", "goaway", "garbage"],
)
def test_a_connection_that_breaks_is_told_and_retried_where_harmless(
    caller: Callers, sockets: Sockets, frames: Sequence[bytes], connections: int
) -> None:
    requests = 0
    serve = after_request(*frames)

    def count(connection: socket.socket) -> None:
        nonlocal requests
        serve(connection)
        requests += 1

    client = caller(f"http://127.0.0.1:{sockets(count)}", timeout=5, retry=RetryPolicy(2, 0.4, 0.4))
    with pytest.raises(bindery.TransportError) as raised:
        client.do("renew_kubeconfig")
    assert (raised.value.fault, raised.value.connecting) == (Fault.BROKEN, False)


def test_a_server_of_http1_is_a_broken_connection(caller: Callers, sockets: Sockets) -> None:
    port = sockets(lambda connection: connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n"))
    assert fault_of(caller(f"http://127.0.0.1:{port}", retry=ONCE)) is Fault.BROKEN


def test_a_server_that_never_answers_is_a_connect_timeout(caller: Callers, sockets: Sockets) -> None:
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
            client.do("get_export", "x")
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


def test_a_connection_is_shared_by_threads(caller: Callers, script: Scripts) -> None:
    server = script(*[PROVIDER] * 40)
    client = caller(server.address)
    answers: list[str] = []
    threads = [threading.Thread(target=lambda: answers.append(client.do("get_provider").pretty_name)) for _ in range(40)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert answers == ["MangoDB"] * 40
