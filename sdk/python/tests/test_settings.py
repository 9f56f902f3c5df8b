"""Addresses, settings and token sources."""

from __future__ import annotations

import asyncio
import inspect
import json
import logging
import os
import pickle
import time
import traceback
from pathlib import Path
from typing import Any

import grpc
import pytest

import bindery
from bindery import ExecToken, FileToken, aio
from bindery._core.retry import RetryPolicy
from bindery._core.secret import Hidden, bearer
from bindery._core.status import Failure
from bindery.methods import ALL

from .both import Callers
from .conftest import Scripts
from .server import Fail

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
    assert refused(address, timeout=0) == "TimeoutInvalid"
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


# === Tokens ===


def write_unseen(path: Path, text: str) -> None:
    """Writes without a change that the file's metadata would show."""
    found = path.stat()
    path.write_text(text)
    os.utime(path, ns=(found.st_atime_ns, found.st_mtime_ns))


def test_a_file_is_read_again_when_it_changes_or_expires(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1000.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    path = tmp_path / "token"
    path.write_text("one\n")
    source = FileToken(path)
    assert source.token() == "one"
    write_unseen(path, "two\n")
    now += 1
    assert source.token() == "one", "remembered while nothing says otherwise"
    source.expired()
    assert source.token() == "two"
    write_unseen(path, "six\n")
    now += 60
    assert source.token() == "six"
    path.write_text("longer\n")
    assert source.token() == "six"
    now += 1
    assert source.token() == "longer"
    path.unlink()
    now += 1
    with pytest.raises(bindery.TokenError, match=str(path)) as raised:
        source.token()
    assert raised.value.reason == "TokenFileUnreadable"


def local_variables(error: BaseException) -> list[object]:
    """The local variables of this package's frames, as tools show them that print them with a traceback."""
    trace = traceback.TracebackException.from_exception(error, capture_locals=True)
    frames = [frame.locals for frame in trace.stack if "/bindery/" in frame.filename]
    assert frames
    return list(frames)


def program(tmp_path: Path, *lines: str) -> list[str]:
    script = tmp_path / "program.sh"
    script.write_text("\n".join(["#!/bin/sh", f"echo x >> {tmp_path}/runs", *lines]))
    script.chmod(0o700)
    return [str(script), "secret-argument"]


def runs(tmp_path: Path) -> int:
    return len((tmp_path / "runs").read_text().splitlines())


def credential(**status: str) -> str:
    document = {"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": status}
    return f"echo '{json.dumps(document)}'"


def test_a_command_prints_a_token_or_a_credential(tmp_path: Path) -> None:
    source = ExecToken(program(tmp_path, "echo plain"))
    assert [source.token(), source.token()] == ["plain", "plain"]
    assert runs(tmp_path) == 1
    source.expired()
    source.token()
    assert runs(tmp_path) == 2
    source = ExecToken(program(tmp_path, credential(token="long", expirationTimestamp="2999-01-01T00:00:00Z")))
    assert [source.token(), source.cached()] == ["long", "long"]
    source = ExecToken(program(tmp_path, credential(token="short", expirationTimestamp="2001-01-01T00:00:00Z")))
    assert [source.token(), source.cached()] == ["short", None]
    assert "secret-argument" not in repr(source)


@pytest.mark.parametrize(
    ("line", "fault"),
    [
        ("echo hunter2; exit 3", "status 3"),
        ('echo \'{"status": {"token": "hunter2"}}\'', "no ExecCredential"),
        (credential(hunter2="hunter2"), "no ExecCredential"),
        (credential(token="hunter2", expirationTimestamp="hunter2"), "no ExecCredential"),
        ("sleep 60", "does not end"),
        ("yes hunter2 | head -c 300000", "too much"),
    ],
)
def test_a_command_that_fails_shows_nothing_of_its_output(tmp_path: Path, line: str, fault: str) -> None:
    with pytest.raises(bindery.TokenError, match=fault) as raised:
        ExecToken(program(tmp_path, line)).token(0.5)
    assert raised.value.reason == "TokenSourceFailed"
    assert "hunter2" not in f"{raised.value!r} {local_variables(raised.value)}"


def test_a_command_that_does_not_exist_is_named() -> None:
    with pytest.raises(bindery.TokenError, match="/nonexistent/program"):
        ExecToken(["/nonexistent/program"]).token()
    with pytest.raises(ValueError, match="list"):
        ExecToken("kubectl bind token")


def test_functions_of_all_kinds_give_tokens(script: Scripts) -> None:
    async def asynchronous() -> str:
        await asyncio.sleep(0)
        return "of-async"

    class Source:
        async def __call__(self) -> str:
            return "of-object"

    def returns_a_coroutine() -> Any:
        return asynchronous()

    async def ask(token: Any) -> str:
        server = script([Fail(grpc.StatusCode.NOT_FOUND)])
        async with aio.Client(server.address, token=token, allow_plaintext=True) as client:
            with pytest.raises(bindery.NotFoundError):
                await client.get_export("x")
        return str(server.seen[0].headers["authorization"])

    for token, expect in (
        (asynchronous, "of-async"),
        (Source(), "of-object"),
        (returns_a_coroutine, "of-async"),
        (lambda: "of-sync", "of-sync"),
        ("static", "static"),
    ):
        assert asyncio.run(ask(token)) == f"Bearer {expect}"


def test_a_source_that_fails_is_an_error_of_the_token(caller: Callers) -> None:
    def broken() -> str:
        raise RuntimeError("hunter2 is not valid")

    def logged_out() -> str:
        raise bindery.TokenError(bindery.TokenError.LOGGED_OUT, "log in again")

    def nothing() -> Any:
        return None

    for source, expect in ((broken, "TokenSourceFailed"), (logged_out, "LoggedOut"), (nothing, "TokenSourceFailed")):
        client = caller("http://127.0.0.1:1", token=source)
        with pytest.raises(bindery.TokenError) as raised:
            client.do("get_export", "x")
        assert raised.value.reason == expect
        assert "hunter2" not in "".join(traceback.format_exception(raised.value))


def test_a_watch_waits_for_a_source_and_ends_when_logged_out(caller: Callers) -> None:
    reasons = iter([bindery.TokenError.SOURCE_FAILED, bindery.TokenError.LOGGED_OUT])

    def source() -> str:
        raise bindery.TokenError(next(reasons), "no token")

    watch = caller("http://127.0.0.1:1", token=source).watch("watch_exports")
    event = watch.next()
    assert isinstance(event, bindery.Disconnected) and isinstance(event.error, bindery.TokenError)
    with pytest.raises(bindery.TokenError):
        watch.next()
    assert watch.next() is None


# === What is shown ===


def test_no_token_is_shown(caller: Callers, script: Scripts, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    header = bearer("hunter2")
    assert header == "Bearer hunter2"
    assert "hunter2" not in f"{header} {header!r} {header:>20} {[header]} {(header,)} %s" % header
    with pytest.raises(TypeError):
        pickle.dumps(Hidden("hunter2"))
    server = script([Fail(grpc.StatusCode.UNAVAILABLE)], [Fail(grpc.StatusCode.INTERNAL)])
    client = caller(server.address, token="hunter2")
    with pytest.raises(bindery.InternalError) as raised:
        client.do("get_export", "x")
    assert server.seen[0].headers["authorization"] == "Bearer hunter2"
    shown = [repr(client.client), repr(bindery.StaticToken("hunter2")), repr(raised.value), caplog.text]
    assert "hunter2" not in f"{shown} {local_variables(raised.value)}"
    assert "is tried again" in caplog.text


def test_texts_of_the_library_are_told_from_those_of_a_server() -> None:
    text = "failed to connect to all addresses; last error: x"
    assert Failure(grpc.StatusCode.UNAVAILABLE, text).ends_connection
    assert not Failure(grpc.StatusCode.UNAVAILABLE, text, trailing=(("date", "today"),)).ends_connection
    assert Failure(grpc.StatusCode.UNAVAILABLE, "Stream removed (Socket closed)").ends_connection
    assert not Failure(grpc.StatusCode.INTERNAL, "Stream removed (RST_STREAM (Received RST_STREAM …))").ends_connection
    assert not Failure(grpc.StatusCode.DEADLINE_EXCEEDED, "Stream removed (Deadline Exceeded)").ends_connection
