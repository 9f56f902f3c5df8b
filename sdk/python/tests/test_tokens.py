"""Token sources: what they give, share and forget, and what is shown of them."""

from __future__ import annotations

import asyncio
import json
import os
import threading
import time
import traceback
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextvars import ContextVar
from pathlib import Path
from typing import Any

import grpc
import pytest

import bindery
from bindery import ExecToken, FileToken, aio
from bindery import v1alpha2 as api

from .both import Callers
from .conftest import Scripts
from .server import Fail, eventually, reason

EXPORT = (api.GetExportResponse(export=api.Export()),)


def local_variables(error: BaseException) -> list[object]:
    """The local variables of this package's frames, as tools show them that print them with a traceback."""
    trace = traceback.TracebackException.from_exception(error, capture_locals=True)
    frames = [frame.locals for frame in trace.stack if "/bindery/" in frame.filename]
    assert frames
    return list(frames)


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
    source.forget("another")
    assert source.token() == "one", "a newer token than the refused one stays"
    source.forget("one")
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
    source.forget("another")
    assert (source.token(), runs(tmp_path)) == ("plain", 1)
    source.forget("plain")
    assert (source.token(), runs(tmp_path)) == ("plain", 2)
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
        ("exec sleep 60", "does not end"),
        ("trap '' TERM; sleep 60", "does not end"),
        ("exec >/dev/null; sleep 60", "does not end"),
        ("sleep 60 & echo hunter2", "does not close its output"),
        ("yes hunter2 | head -c 300000", "too much"),
        ("exec yes hunter2", "too much"),
    ],
)
def test_a_command_that_fails_shows_nothing_of_its_output(tmp_path: Path, line: str, fault: str) -> None:
    with pytest.raises(bindery.TokenError, match=fault) as raised:
        ExecToken(program(tmp_path, line), _timeout=0.5).token()
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
                await client.get_export("", "x")
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
    calls = 0

    def broken() -> str:
        raise RuntimeError("hunter2 is not valid")

    def times_out() -> str:
        nonlocal calls
        calls += 1
        raise TimeoutError("hunter2")

    def logged_out() -> str:
        raise bindery.TokenError(bindery.TokenError.LOGGED_OUT, "log in again")

    def nothing() -> Any:
        return None

    failed = bindery.TokenError.SOURCE_FAILED
    for source, reason_text, cause in (
        (broken, failed, RuntimeError),
        (times_out, failed, TimeoutError),
        (logged_out, bindery.TokenError.LOGGED_OUT, type(None)),
        (nothing, failed, type(None)),
    ):
        client = caller("http://127.0.0.1:1", token=source)
        with pytest.raises(bindery.TokenError) as raised:
            client.do("get_export", "", "x")
        assert (raised.value.reason, type(raised.value.__cause__)) == (reason_text, cause)
        assert "hunter2" not in f"{raised.value} {raised.value!r} {raised.value.args}"
    assert calls == 1, "a failure of the source is not retried"


def test_a_source_may_take_longer_than_an_attempt(caller: Callers, script: Scripts) -> None:
    server = script(EXPORT)

    def slow() -> str:
        time.sleep(0.4)
        return "hunter2"

    caller(server.address, token=slow, attempt_timeout=0.2, timeout=5).do("get_export", "", "x")
    left = server.seen[0].time_left
    assert left is not None and left <= 0.2


def test_a_source_that_never_ends_is_an_error_of_the_token(caller: Callers, script: Scripts, tmp_path: Path) -> None:
    calls = 0

    def never() -> str:
        nonlocal calls
        calls += 1
        threading.Event().wait(20)
        return "hunter2"

    server = script(EXPORT)
    for token in (never, ExecToken(program(tmp_path, "sleep 20"), _timeout=2)):
        start = time.monotonic()
        with pytest.raises(bindery.TokenError) as raised:
            caller(server.address, token=token, timeout=0.5, attempt_timeout=0.1).do("get_export", "", "x")
        assert 0.4 < time.monotonic() - start < 2
        assert raised.value.reason == "TokenSourceFailed"
        assert "within 0.5 s" in str(raised.value)
    assert (calls, runs(tmp_path), server.seen) == (1, 1, [])


def test_a_function_sees_the_context_of_its_caller(script: Scripts) -> None:
    user: ContextVar[str] = ContextVar("user", default="no-one")
    user.set("alice")
    server = script(EXPORT)
    with bindery.Client(server.address, token=lambda: f"of-{user.get()}", allow_plaintext=True) as client:
        client.get_export("", "x")
    assert server.seen[0].headers["authorization"] == "Bearer of-alice"


def test_closing_a_client_ends_the_wait_for_a_token(caller: Callers) -> None:
    asked = threading.Event()

    def never() -> str:
        asked.set()
        threading.Event().wait(20)
        return "hunter2"

    client = caller("http://127.0.0.1:1", token=never)
    ended: list[Exception] = []

    def call() -> None:
        try:
            client.do("get_export", "", "x")
        except Exception as error:
            ended.append(error)

    thread = threading.Thread(target=call)
    thread.start()
    assert asked.wait(5)
    client.do("close") if caller.kind == "aio" else client.close()
    thread.join(5)
    assert [type(error) for error in ended] == [bindery.CallCancelledError]


# === A program for all callers ===


def test_calls_with_an_expired_token_run_the_program_once_more(caller: Callers, tmp_path: Path) -> None:
    line = f"sleep 0.1; test $(wc -l < {tmp_path}/runs) = 1 && echo old || echo new"
    with Tokens({"Bearer new"}) as server:
        client = caller(server.address, token=ExecToken(program(tmp_path, line)))
        if caller.kind == "aio":

            async def all_at_once() -> list[Any]:
                return await asyncio.gather(*(client.client.get_caller() for _ in range(40)))

            client.run(all_at_once())  # type: ignore[attr-defined]
        else:
            with ThreadPoolExecutor(40) as pool:
                for done in [pool.submit(client.do, "get_caller") for _ in range(40)]:
                    done.result()
        assert server.count["Bearer old"] > 1
        assert server.count["Bearer new"] == 40
    assert runs(tmp_path) == 2


class Tokens(grpc.GenericRpcHandler):
    """A server that accepts some tokens, and calls all others expired."""

    def __init__(self, accepted: set[str]) -> None:
        self._accepted = accepted
        self.count: Counter[str] = Counter()
        self._server = grpc.server(ThreadPoolExecutor(64), handlers=[self])
        self.address = f"http://127.0.0.1:{self._server.add_insecure_port('127.0.0.1:0')}"
        self._server.start()

    def service(self, handler_call_details: Any) -> grpc.RpcMethodHandler[Any, Any]:
        def respond(request: bytes, context: grpc.ServicerContext) -> bytes:
            header = str(dict(context.invocation_metadata())["authorization"])
            self.count[header] += 1
            if header not in self._accepted:
                expired = reason(grpc.StatusCode.UNAUTHENTICATED, "TOKEN_EXPIRED")
                context.set_trailing_metadata(tuple(expired.trailers))
                context.abort(expired.code, expired.text)
            return api.GetCallerResponse(caller=api.Caller()).SerializeToString()

        return grpc.unary_unary_rpc_method_handler(respond)

    def __enter__(self) -> Tokens:
        return self

    def __exit__(self, *details: object) -> None:
        self._server.stop(None).wait()


def test_a_program_outlives_the_caller_that_began_it(tmp_path: Path) -> None:
    source = ExecToken(program(tmp_path, "sleep 0.6; echo late"))
    with pytest.raises(bindery.TokenError, match="does not end within 0"):
        source.token(0.1)
    assert (source.token(5), runs(tmp_path)) == ("late", 1)


def test_a_run_that_began_before_a_refusal_does_not_bring_the_token_back(tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    line = f"test $(wc -l < {tmp_path}/runs) = 1 || exec echo new; while ! test -e {gate}; do sleep 0.01; done; echo old"
    source = ExecToken(program(tmp_path, line))
    with ThreadPoolExecutor() as pool:
        waiting = pool.submit(source.token)
        eventually((tmp_path / "runs").exists)
        source.forget("old")
        late = pool.submit(source.token)
        gate.write_text("")
        assert (waiting.result(), late.result(), runs(tmp_path)) == ("new", "new", 2)
    source.forget("old")
    assert (source.cached(), runs(tmp_path)) == ("new", 2)


def test_a_file_that_was_read_before_a_refusal_does_not_bring_the_token_back(tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text("old")
    source = FileToken(path)
    read = source._read

    def slow(last: Any) -> Any:
        found = read(last)
        path.write_text("new")
        source.forget("old")
        return found

    source._read = slow  # type: ignore[method-assign]
    assert source.token() == "old"
    source._read = read  # type: ignore[method-assign]
    assert source.token() == "new"


def test_what_is_no_token_is_not_remembered(tmp_path: Path) -> None:
    source = ExecToken(program(tmp_path, f"test $(wc -l < {tmp_path}/runs) = 1 && echo two words || echo good"))
    assert [source.token(), source.token(), source.token()] == ["two words", "good", "good"]
    assert runs(tmp_path) == 2


def test_a_program_gets_what_plug_ins_of_kubectl_get(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    lines = ('printf %s "$KUBERNETES_EXEC_INFO" > info', "cat > input", "echo please log in >&2", 'echo "token-$MORE"')
    source = ExecToken([*program(tmp_path, f"cd {tmp_path}", *lines)], env={"MORE": "more"})
    assert source.token() == "token-more"
    assert json.loads((tmp_path / "info").read_text()) == {
        "apiVersion": "client.authentication.k8s.io/v1",
        "kind": "ExecCredential",
        "spec": {"interactive": False},
    }
    assert (tmp_path / "input").read_text() == ""
    assert capfd.readouterr().err == "please log in\n"


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
