"""Addresses, settings and token sources."""

from __future__ import annotations

import inspect
import logging
import pickle
import socket
from pathlib import Path
from typing import Any

import grpc
import pytest

import bindery
from bindery import aio
from bindery import v1alpha2 as api
from bindery._core import settings
from bindery._core.retry import RetryPolicy
from bindery._core.secret import Hidden, bearer
from bindery._core.status import Failure
from bindery.methods import ALL

from .both import Callers
from .conftest import Scripts
from .pki import Authority
from .server import Fail
from .test_tokens import local_variables

# === Addresses ===


@pytest.mark.parametrize(
    ("spelling", "expect"),
    [
        ("https://bind.example.com", "https://bind.example.com"),
        ("https://bind.example.com/", "https://bind.example.com"),
        ("https://bind.example.com:443", "https://bind.example.com"),
        ("HTTPS://BIND.Example.com:0443/", "https://bind.example.com"),
        ("bind.example.com", "https://bind.example.com"),
        ("bind.example.com:443", "https://bind.example.com"),
        ("https://bind.example.com:8443/", "https://bind.example.com:8443"),
        ("https://bind.example.com:80", "https://bind.example.com:80"),
        ("http://127.0.0.1:80", "http://127.0.0.1"),
        ("https://[2001:DB8:0:0::1]:443", "https://[2001:db8::1]"),
        ("[::1]:6443", "https://[::1]:6443"),
        ("https://[::ffff:10.0.0.1]", "https://[::ffff:10.0.0.1]"),
        ("https://proxy.example.com/team-a/bind/", "https://proxy.example.com/team-a/bind"),
    ],
)
def test_one_address_has_one_audience(spelling: str, expect: str) -> None:
    assert bindery.audience(spelling) == expect
    assert bindery.audience(expect) == expect


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("", "no host"),
        ("https://", "no host"),
        ("https://:443", "no host"),
        ("ftp://bind.example.com", "neither https nor http"),
        ("https://bind.example.com//", "plain segments"),
        ("https://bind.example.com/a/../b", "plain segments"),
        ("https://bind.example.com/%2e", "plain segments"),
        ("https://bind.example.com?x", "a query"),
        ("https://me@bind.example.com", "a user"),
        ("https://bind.example.com:0", "between 1 and 65535"),
        ("https://bind.example.com:65536", "between 1 and 65535"),
        ("https://bind.example.com:+443", "no number"),
        ("https://bind.example.com:", "between 1 and 65535"),
        ("https://bind.example.com:٤٤٣", "no number"),
        ("https://bind..example.com", "no DNS name"),
        ("https://bücher.example", "no DNS name"),
        ("https://[::1", "not closed"),
        ("https://[::1]x", "other than a port"),
        ("https://[host]", "no IPv6"),
        ("https://[fe80::1%eth0]", "no IPv6"),
    ],
)
def test_what_is_no_address_is_refused(text: str, fault: str) -> None:
    with pytest.raises(bindery.AddressError, match=fault):
        bindery.audience(text)


def test_a_password_in_an_address_is_not_shown() -> None:
    for address in (
        "https://me:hunter2@bind.example.com",
        "me:hunter2@bind.example.com",
        "ftp://hunter2@@h",
        "https://a/hunter2@b",
    ):
        with pytest.raises(bindery.AddressError) as raised:
            bindery.audience(address)
        assert "hunter2" not in f"{raised.value} {raised.value!r} {raised.value.args}"


# === Settings ===


def refused(address: str, **settings: Any) -> str:
    reasons = []
    for kind in (bindery.Client, aio.Client):
        with pytest.raises(bindery.ConfigurationError) as raised:
            kind(address, **settings)
        reasons.append(raised.value.reason)
    assert reasons[0] == reasons[1]
    return reasons[0]


def test_plaintext_is_for_loopback_by_request() -> None:
    for address in ("http://127.0.0.1:8080", "http://127.9.9.9:8080", "http://[::1]:8080", "http://localhost:8080"):
        bindery.Client(address, allow_plaintext=True).close()
        assert refused(address) == "PlaintextRefused"
    for address in ("http://10.0.0.1:8080", "http://bind.example.com", "http://localhost.example.com"):
        assert refused(address, allow_plaintext=True) == "PlaintextRefused"


def test_settings_that_cannot_work_are_refused_at_once(tmp_path: Path) -> None:
    address = "https://bind.example.com"
    garbage = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"
    assert refused(address, ca_pem="no certificate") == "CaInvalid"
    assert refused(address, ca_pem=garbage) == "CaInvalid"
    assert refused(address, ca_file=tmp_path / "missing") == "CaInvalid"
    assert refused(address, server_name="not a name") == "TlsSetupFailed"
    assert refused(address, user_agent="line\nbreak") == "UserAgentInvalid"
    for name in ("timeout", "attempt_timeout", "connect_timeout"):
        for seconds in (0, -1.0, float("nan")):
            assert refused(address, **{name: seconds}) == "TimeoutInvalid"
        bindery.Client(address, **{name: 1e300}).close()  # type: ignore[arg-type]
    assert refused(address, client_certificate=("no certificate", "no key")) == "ClientCertificateInvalid"
    with pytest.raises(TypeError):
        bindery.Client(address, token=7)  # type: ignore[arg-type]


def test_both_clients_have_the_same_methods_with_the_same_words() -> None:
    def public(kind: type) -> dict[str, Any]:
        return {name: value for name, value in inspect.getmembers(kind) if not name.startswith("_")}

    sync, asynchronous = public(bindery.Client), public(aio.Client)
    assert sync.keys() == asynchronous.keys()
    assert len([name for name in sync if name not in ("audience", "bind", "bind_request", "call", "close")]) == len(ALL)
    for name, value in sync.items():
        assert inspect.getdoc(value) == inspect.getdoc(asynchronous[name]), name
        if inspect.isfunction(value):
            assert list(inspect.signature(value).parameters) == list(inspect.signature(asynchronous[name]).parameters), name


def test_only_renewal_counts_each_call() -> None:
    assert len(ALL) == 24
    assert [name for name, method in ALL.items() if not method.idempotent] == ["RenewKubeconfig"]
    assert [name for name, method in ALL.items() if method.is_open] == ["GetProvider"]
    assert {name for name, method in ALL.items() if method.waits} == {
        "CreateBindableResourcesRequest",
        "DeleteExport",
        "UnbindContract",
    }


# === Retries ===


def test_delays_are_bounded_and_never_shorter_than_asked() -> None:
    policy = RetryPolicy()
    assert [policy.delay(failures, 0.0, 1.0) for failures in (0, 1, 2, 3, 6, 1000)] == [0.2, 0.2, 0.4, 0.8, 5.0, 5.0]
    assert policy.delay(1, 7.0, 0.0) == 7.0
    assert policy.delay(2**31, 7.0, 1.0) == 12.0


# === What is shown ===


def test_no_token_is_shown(caller: Callers, script: Scripts, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    header = bearer("hunter2")
    assert header == "Bearer hunter2"
    assert "hunter2" not in f"{header} {header!r} {header:>20} {[header]} {(header,)} %s" % header
    assert Hidden(Hidden("hunter2")) == "hunter2"
    with pytest.raises(TypeError):
        pickle.dumps(Hidden("hunter2"))
    server = script([Fail(grpc.StatusCode.UNAVAILABLE)], [Fail(grpc.StatusCode.INTERNAL)])
    client = caller(server.address, token="hunter2")
    with pytest.raises(bindery.InternalError) as raised:
        client.do("get_export", "", "x")
    assert server.seen[0].headers["authorization"] == "Bearer hunter2"
    shown = [repr(client.client), repr(bindery.StaticToken("hunter2")), repr(raised.value), caplog.text]
    assert "hunter2" not in f"{shown} {local_variables(raised.value)}"
    assert "is tried again" in caplog.text


def test_texts_of_the_library_are_told_from_those_of_a_server() -> None:
    text = "failed to connect to all addresses; last error: x"
    assert Failure(grpc.StatusCode.UNAVAILABLE, text).ends_connection
    assert not Failure(grpc.StatusCode.UNAVAILABLE, text, trailing=(("date", "today"),)).ends_connection
    assert not Failure(grpc.StatusCode.INTERNAL, text).ends_connection
    assert Failure(grpc.StatusCode.UNAVAILABLE, "Stream removed (Socket closed)").ends_connection
    assert not Failure(grpc.StatusCode.INTERNAL, "Socket closed").ends_connection
    assert not Failure(grpc.StatusCode.INTERNAL, "Stream removed (RST_STREAM (Received RST_STREAM …))").ends_connection
    assert not Failure(grpc.StatusCode.DEADLINE_EXCEEDED, "Stream removed (Deadline Exceeded)").ends_connection


def test_the_certificates_of_the_system_are_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = settings._system_roots()
    assert settings._system_roots() is first
    file = tmp_path / "roots.pem"
    ca = Authority().pem
    file.write_bytes(ca)
    monkeypatch.setenv("SSL_CERT_FILE", str(file))
    monkeypatch.setenv("SSL_CERT_DIR", str(tmp_path / "none"))
    found = settings._system_roots()
    assert found is not None and found.split() == ca.split()


def test_no_proxy_of_the_environment_is_used(caller: Callers, script: Scripts, monkeypatch: pytest.MonkeyPatch) -> None:
    ca = Authority()
    chain, key = ca.issue()
    response = api.GetProviderResponse(provider=api.Provider(pretty_name="MangoDB"))
    server = script((response,), credentials=grpc.ssl_server_credentials([(key, chain)]))
    with socket.create_server(("127.0.0.1", 0)) as proxy:
        proxy.settimeout(0.1)
        for name in ("https_proxy", "http_proxy", "grpc_proxy"):
            monkeypatch.setenv(name, f"http://127.0.0.1:{proxy.getsockname()[1]}")
        monkeypatch.delenv("no_proxy", raising=False)
        assert caller(server.address, ca_pem=ca.pem).do("get_provider").pretty_name == "MangoDB"
        with pytest.raises(TimeoutError):
            proxy.accept()
