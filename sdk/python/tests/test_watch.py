"""Watches: events, resuming, and when they end."""

from __future__ import annotations

import threading
import time
from typing import Any

import grpc
import pytest

import bindery
from bindery import Applied, Connected, Disconnected, Fault, Reason, Removed, SnapshotBegin, SnapshotComplete
from bindery import v1alpha2 as api

from .both import FAST_WATCH, Callers
from .conftest import Scripts
from .server import Fail, Step, eventually, reason

Code = grpc.StatusCode


def begin(**fields: Any) -> Step:
    return api.WatchExportsResponse(snapshot_begin=api.SnapshotBegin(**fields))


def applied(name: str = "cowboys", token: str = "") -> Step:
    return api.WatchExportsResponse(applied=export(name), resume_token=token)


def complete(count: int, token: str = "") -> Step:
    return api.WatchExportsResponse(snapshot_complete=api.SnapshotComplete(object_count=count), resume_token=token)


def removed(token: str = "") -> Step:
    return api.WatchExportsResponse(removed=api.Removed(namespace="c", name="cowboys", uid="u"), resume_token=token)


def heartbeat(token: str = "") -> Step:
    return api.WatchExportsResponse(heartbeat=api.Heartbeat(), resume_token=token)


def export(name: str) -> api.Export:
    return api.Export(metadata=api.ObjectMeta(name=name))


def test_a_snapshot_is_told_from_changes(caller: Callers, script: Scripts) -> None:
    server = script(
        [begin(), applied("a"), applied("b", "early"), complete(2, "t1"), heartbeat("t2"), applied("a", "t3"), removed("t4")],
        [applied("b", "t5"), 60.0],
    )
    watch = caller(server.address, token="hunter2").watch("watch_exports", contract="c", label_selector="x=y")
    assert watch.take(7) == [
        Connected(False),
        SnapshotBegin(None),
        Applied(export("a"), True),
        Applied(export("b"), True),
        SnapshotComplete(),
        Applied(export("a"), False),
        Removed("c", "cowboys", "u"),
    ]
    assert watch.resume_token == "t3", "the last event is not processed before the next one is asked for"
    assert isinstance(watch.next(), Disconnected)
    assert watch.resume_token == "t4"
    assert watch.take(2) == [Connected(True), Applied(export("b"), False)]
    assert [(seen.request.resume_token, seen.request.contract) for seen in server.seen] == [("", "c"), ("t4", "c")]
    assert server.seen[0].headers["authorization"] == "Bearer hunter2"
    assert server.seen[0].time_left is None or server.seen[0].time_left > 1e6, "a stream has no deadline"


def test_headers_without_content_are_headers(caller: Callers, script: Scripts) -> None:
    fail = Fail(Code.INTERNAL, trailers=())
    server = script([begin(), applied(), fail], [0.2, begin(), fail], [fail], [], [60.0])
    server.headers = ()
    watch = caller(server.address).watch("watch_exports")
    kinds = [type(event) for event in watch.take(10)]
    streams = [Connected, SnapshotBegin, Applied, Disconnected, Connected, SnapshotBegin, Disconnected]
    assert kinds == [*streams, Disconnected, Connected, Disconnected]
    assert watch.next() == Connected(False)


def test_an_unfinished_snapshot_is_void(caller: Callers, script: Scripts) -> None:
    server = script([begin(), applied(token="early")], [begin(), complete(0, "t"), 60.0])
    watch = caller(server.address).watch("watch_exports")
    watch.take(5)
    assert watch.take(2) == [SnapshotBegin(None), SnapshotComplete()]
    assert [seen.request.resume_token for seen in server.seen] == ["", ""]


@pytest.mark.parametrize(
    ("answer", "fault"),
    [
        ([applied()], "before a snapshot"),
        ([removed()], "before a snapshot"),
        ([complete(0)], "had not begun"),
        ([begin(), applied(), complete(2)], "counts 2 objects and brought 1"),
        ([begin(), removed()], "holds a removal"),
        ([b"\xff\xff\xff"], "cannot be decoded"),
    ],
)
def test_breaches_of_the_rules_begin_anew(caller: Callers, script: Scripts, answer: list[Step], fault: str) -> None:
    server = script([*answer, 60.0], [begin(), 60.0])
    watch = caller(server.address).watch("watch_exports")
    while not isinstance(event := watch.next(), Disconnected):
        pass
    assert isinstance(event.error, bindery.ProtocolError)
    assert fault in str(event.error)
    assert watch.take(2) == [Connected(False), SnapshotBegin(None)]


def test_a_refused_resume_token_is_dropped(caller: Callers, script: Scripts) -> None:
    server = script(
        [reason(Code.INVALID_ARGUMENT, "RESUME_TOKEN_INVALID")],
        [begin(resume_refused=True, reason="too\x07 old"), complete(0, "t"), 60.0],
    )
    watch = caller(server.address).watch("watch_exports", resume_token="old")
    first = watch.next()
    assert isinstance(first, Disconnected) and first.error is not None
    assert first.error.reason_text == Reason.RESUME_TOKEN_INVALID
    assert watch.take(3) == [Connected(False), SnapshotBegin("too  old"), SnapshotComplete()]
    assert [seen.request.resume_token for seen in server.seen] == ["old", ""]


def test_a_watch_survives_what_passes(caller: Callers, script: Scripts) -> None:
    server = script(
        [reason(Code.UNAVAILABLE, "SHUTTING_DOWN", 0.2)],
        [begin(), complete(0, "t"), Fail(Code.RESOURCE_EXHAUSTED)],
        [60.0],
    )
    watch = caller(server.address).watch("watch_exports")
    first = watch.next()
    assert isinstance(first, Disconnected) and isinstance(first.error, bindery.UnavailableError)
    assert first.retry_in >= 0.2
    assert watch.take(3) == [Connected(False), SnapshotBegin(None), SnapshotComplete()]
    assert isinstance(watch.next(), Disconnected)
    assert watch.next() == Connected(True)
    assert server.seen[1].at - server.seen[0].at >= 0.2


@pytest.mark.parametrize("code", [Code.UNAUTHENTICATED, Code.PERMISSION_DENIED, Code.NOT_FOUND, Code.UNIMPLEMENTED])
def test_a_watch_ends_where_a_retry_cannot_help(caller: Callers, script: Scripts, code: grpc.StatusCode) -> None:
    server = script([Fail(code)])
    watch = caller(server.address).watch("watch_exports")
    with pytest.raises(bindery.StatusError) as raised:
        watch.next()
    assert raised.value.code is code
    assert watch.next() is None
    assert len(server.seen) == 1


def test_an_expired_token_is_replaced_once_per_stream(caller: Callers, script: Scripts) -> None:
    expired = reason(Code.UNAUTHENTICATED, "TOKEN_EXPIRED")
    numbers = iter(range(9))
    server = script([expired], [begin(), complete(0, "t"), expired], [expired], [60.0])
    watch = caller(server.address, token=lambda: f"t-{next(numbers)}").watch("watch_exports")
    assert isinstance(watch.next(), Disconnected)
    watch.take(3)
    assert isinstance(watch.next(), Disconnected), "the server accepted the token before"
    with pytest.raises(bindery.UnauthenticatedError):
        watch.next()


def test_a_silent_stream_is_given_up(caller: Callers, script: Scripts) -> None:
    server = script([begin(), 60.0], [begin(), complete(0), heartbeat(), 0.3, heartbeat(), 0.3, heartbeat(), 0.3, applied(), 60.0])
    watch = caller(server.address).watch("watch_exports")
    watch.take(2)
    start = time.monotonic()
    event = watch.next()
    assert 0.4 < time.monotonic() - start < 2
    assert isinstance(event, Disconnected) and isinstance(event.error, bindery.TransportError)
    assert event.error.fault is Fault.SILENT
    assert watch.take(4)[-1] == Applied(export("cowboys"), False), "heartbeats keep a stream alive"


def test_a_server_that_restarts_is_found_again(caller: Callers, script: Scripts) -> None:
    first = script([begin(), complete(0, "t"), 60.0])
    watch = caller(first.address).watch("watch_exports")
    watch.take(3)
    first.close()
    events = [watch.next(), watch.next()]
    assert all(isinstance(event, Disconnected) for event in events)
    assert isinstance(events[1], Disconnected) and isinstance(events[1].error, bindery.TransportError)
    second = script([60.0], port=first.port)
    while isinstance(event := watch.next(), Disconnected):
        pass
    assert event == Connected(True)
    assert second.seen[0].request.resume_token == "t"


def test_closing_ends_a_watch_that_waits(caller: Callers, script: Scripts) -> None:
    server = script([begin(), 60.0])
    watch = caller(server.address, _watch=None).watch("watch_exports")
    watch.take(2)
    timer = threading.Timer(0.2, watch.close)
    timer.start()
    start = time.monotonic()
    assert watch.next() is None
    assert time.monotonic() - start < 5
    eventually(server.cancelled.is_set)
    assert watch.next() is None


def test_closing_ends_a_watch_that_pauses(caller: Callers, script: Scripts) -> None:
    server = script([reason(Code.UNAVAILABLE, "SHUTTING_DOWN", 60)])
    watch = caller(server.address).watch("watch_exports")
    assert isinstance(watch.next(), Disconnected)
    threading.Timer(0.2, watch.close).start()
    start = time.monotonic()
    assert watch.next() is None
    assert time.monotonic() - start < 5


def test_closing_the_client_ends_its_watches(caller: Callers, script: Scripts) -> None:
    server = script([begin(), 60.0], [60.0])
    client = caller(server.address)
    watch = client.watch("watch_exports")
    watch.take(2)
    client.do("close") if caller.kind == "aio" else client.close()
    assert watch.next() is None
    with pytest.raises(bindery.CallCancelledError):
        client.do("get_provider")


def test_all_watches_have_their_messages(caller: Callers, script: Scripts) -> None:
    server = script(
        [api.WatchContractsResponse(snapshot_begin=api.SnapshotBegin()), api.WatchContractsResponse(applied=api.Contract())],
        [
            api.WatchBindableResourcesRequestsResponse(snapshot_begin=api.SnapshotBegin()),
            api.WatchBindableResourcesRequestsResponse(applied=api.BindableResourcesRequest()),
        ],
    )
    client = caller(server.address, _watch=FAST_WATCH)
    for name, fields, expect in (
        ("watch_contracts", {"owned": True}, api.Contract()),
        ("watch_bindable_resources_requests", {"names": ["a"], "cluster_identity": "i"}, api.BindableResourcesRequest()),
    ):
        watch = client.watch(name, **fields)
        assert watch.take(3)[-1] == Applied(expect, True)
        watch.close()
    assert server.seen[0].request.owned
    assert list(server.seen[1].request.names) == ["a"]
