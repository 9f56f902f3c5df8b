"""Unary calls: retries, tokens, pages, errors, deadlines."""

from __future__ import annotations

import copy
import itertools
import pickle
import re
import socket
import time
from typing import Any

import grpc
import pytest
from google.rpc.error_details_pb2 import BadRequest, ErrorInfo, PreconditionFailure, RequestInfo

import bindery
from bindery import Fault, Reason, methods
from bindery import v1alpha2 as api
from bindery._core.retry import RetryPolicy

from .both import Callers
from .conftest import Scripts
from .server import Fail, Step, reason

Code = grpc.StatusCode
EXPORT = (api.GetExportResponse(export=api.Export()),)
RENEWED = (api.RenewKubeconfigResponse(contract="c", kubeconfig=api.Kubeconfig(kubeconfig=b"hunter2")),)


@pytest.mark.parametrize(
    ("first", "exports", "renewals"),
    [
        (reason(Code.UNAVAILABLE, "CACHE_NOT_READY", 0.01), 2, 2),
        (Fail(Code.UNAVAILABLE), 2, 2),
        (Fail(Code.DEADLINE_EXCEEDED), 2, 1),
        (reason(Code.RESOURCE_EXHAUSTED, "RATE_LIMITED", 0.01), 2, 1),
        (reason(Code.RESOURCE_EXHAUSTED, "RATE_LIMITED"), 1, 1),
        (Fail(Code.INTERNAL), 1, 1),
        (reason(Code.PERMISSION_DENIED, "CONTRACT_DENIED"), 1, 1),
    ],
)
def test_retries_by_code_and_method(caller: Callers, script: Scripts, first: Step, exports: int, renewals: int) -> None:
    for name, answer, attempts in (("get_export", EXPORT, exports), ("renew_kubeconfig", RENEWED, renewals)):
        server = script([first], answer)
        client = caller(server.address)
        if attempts == 2:
            client.do(name, "cowboys")
        else:
            with pytest.raises(bindery.StatusError):
                client.do(name, "cowboys")
        assert len(server.seen) == attempts


def test_a_call_carries_what_the_server_needs(caller: Callers, script: Scripts) -> None:
    server = script([reason(Code.UNAVAILABLE, "OVERLOADED", 0.3)], EXPORT)
    caller(server.address, token="hunter2", user_agent="ci/1").do("get_export", "cowboys")
    first, second = server.seen
    assert second.at - first.at >= 0.3
    assert first.request.name == "cowboys"
    assert re.fullmatch("[0-9a-f]{32}", str(first.headers["x-request-id"]))
    assert first.headers["x-request-id"] == second.headers["x-request-id"]
    assert first.headers["authorization"] == "Bearer hunter2"
    assert str(first.headers["user-agent"]).startswith("ci/1 bindery-sdk-python/")
    assert first.time_left is not None and 9 < first.time_left < 11


def test_attempts_end(caller: Callers, script: Scripts) -> None:
    server = script(*[[Fail(Code.UNAVAILABLE)]] * 9)
    with pytest.raises(bindery.UnavailableError):
        caller(server.address).do("get_export", "cowboys")
    assert len(server.seen) == 5


def test_the_deadline_holds_over_all_attempts(caller: Callers, script: Scripts) -> None:
    server = script(*[[10.0]] * 9)
    start = time.monotonic()
    with pytest.raises(bindery.DeadlineExceededError) as raised:
        caller(server.address, timeout=0.5, attempt_timeout=0.2).do("get_export", "cowboys")
    assert 0.4 < time.monotonic() - start < 2
    assert raised.value.reason == Reason.DEADLINE
    assert len(server.seen) >= 2


def test_a_retry_that_would_come_too_late_is_not_made(caller: Callers, script: Scripts) -> None:
    server = script([reason(Code.UNAVAILABLE, "OVERLOADED", 300)], EXPORT)
    start = time.monotonic()
    with pytest.raises(bindery.UnavailableError) as raised:
        caller(server.address).do("get_export", "cowboys")
    assert raised.value.reason == Reason.OVERLOADED
    assert raised.value.retry_after == 300
    assert time.monotonic() - start < 2


def test_calls_that_wait_have_longer(caller: Callers, script: Scripts) -> None:
    server = script((api.DeleteExportResponse(),), (api.DeleteExportResponse(),), (api.UnbindContractResponse(),))
    client = caller(server.address)
    client.do("delete_export", "cowboys", "uid", wait=60)
    client.do("delete_export", "cowboys", "uid")
    client.do("unbind_contract", "c", wait=0.2)
    assert [round(seen.time_left or 0) for seen in server.seen] == [70, 40, 10]


@pytest.mark.parametrize("rejected", ["TOKEN_EXPIRED", "TOKEN_INVALID"])
def test_a_rejected_token_is_replaced_once(caller: Callers, script: Scripts, rejected: str) -> None:
    def numbered() -> Any:
        numbers = itertools.count()
        return lambda: f"token-{next(numbers)}"

    expired = (reason(Code.UNAUTHENTICATED, rejected),)
    server = script(expired, EXPORT)
    caller(server.address, token=numbered()).do("get_export", "cowboys")
    assert [seen.headers["authorization"] for seen in server.seen] == ["Bearer token-0", "Bearer token-1"]

    for token, attempts in ((numbered(), 2), ("always-the-same", 1)):
        server = script(expired, expired, EXPORT)
        with pytest.raises(bindery.UnauthenticatedError) as raised:
            caller(server.address, token=token).do("get_export", "cowboys")
        assert (raised.value.reason, len(server.seen)) == (rejected, attempts)

    server = script([reason(Code.UNAUTHENTICATED, "CREDENTIAL_REVOKED")], EXPORT)
    with pytest.raises(bindery.UnauthenticatedError):
        caller(server.address, token=numbered()).do("get_export", "cowboys")
    assert len(server.seen) == 1


def test_asking_how_to_log_in_sends_no_token(caller: Callers, script: Scripts) -> None:
    server = script((api.GetProviderResponse(provider=api.Provider(pretty_name="MangoDB")),))
    assert caller(server.address, token="hunter2").do("get_provider").pretty_name == "MangoDB"
    assert "authorization" not in server.seen[0].headers


@pytest.mark.parametrize(
    ("token", "expect"),
    [("two words", "TokenMalformed"), ("", "TokenEmpty"), ("tök", "TokenMalformed"), ("x" * 15361, "TokenTooLong")],
)
def test_a_token_that_cannot_be_sent_fails_here(caller: Callers, script: Scripts, token: str, expect: str) -> None:
    server = script(EXPORT)
    client = caller(server.address, token=token)
    with pytest.raises(bindery.TokenError) as raised:
        client.do("get_export", "cowboys")
    assert (raised.value.reason, server.seen) == (expect, [])
    assert not token or token not in f"{raised.value} {raised.value!r} {client.client!r}"


def test_lists_go_on_over_empty_pages(caller: Callers, script: Scripts) -> None:
    def page(names: list[str], following: str) -> list[Step]:
        templates = [api.Template(metadata=api.ObjectMeta(name=name)) for name in names]
        return [api.ListTemplatesResponse(templates=templates, next_page_token=following)]

    server = script(page(["a"], "1"), page([], "2"), page(["b", "c"], ""))
    templates = caller(server.address).do("list_templates", collection="wild")
    assert [template.metadata.name for template in templates] == ["a", "b", "c"]
    assert [(seen.request.collection, seen.request.page_token) for seen in server.seen] == [
        ("wild", ""),
        ("wild", "1"),
        ("wild", "2"),
    ]


def test_a_list_that_names_itself_is_an_error(caller: Callers, script: Scripts) -> None:
    server = script(*[[api.ListTemplatesResponse(next_page_token="1")]] * 3)
    with pytest.raises(bindery.ProtocolError, match="names itself"):
        caller(server.address).do("list_templates")


def test_details_of_an_error_arrive(caller: Callers, script: Scripts) -> None:
    fail = Fail(
        Code.INVALID_ARGUMENT,
        "wrong \x1b[2J",
        details=[
            ErrorInfo(reason="FIELD_INVALID", domain="kube-bind.io", metadata={"field": "name"}),
            BadRequest(field_violations=[BadRequest.FieldViolation(field="name", description="must not be empty")]),
            PreconditionFailure(
                violations=[PreconditionFailure.Violation(type="TEMPLATE", subject="cowboys", description="is not ready")]
            ),
            RequestInfo(request_id="of-server"),
        ],
    )
    server = script([fail])
    with pytest.raises(bindery.InvalidArgumentError) as raised:
        caller(server.address).do("get_export", "")
    error = raised.value
    assert error.reason is Reason.FIELD_INVALID
    assert dict(error.metadata) == {"field": "name"}
    assert error.field_violations == (bindery.FieldViolation("name", "must not be empty"),)
    assert error.precondition_violations == (bindery.PreconditionViolation("TEMPLATE", "cowboys", "is not ready"),)
    assert str(error) == ("wrong  [2J; name: must not be empty; cowboys: is not ready (FIELD_INVALID, request of-server)")


def test_newer_reasons_are_kept_and_those_of_others_are_not(caller: Callers, script: Scripts) -> None:
    server = script(
        [reason(Code.UNAUTHENTICATED, "SOMETHING_NEWER")],
        [reason(Code.UNAUTHENTICATED, "TOKEN_EXPIRED", domain="example.com")],
        [Fail(Code.NOT_FOUND, raw=b"\xff\xff garbage")],
    )
    client = caller(server.address, token="t")
    for expect in ("SOMETHING_NEWER", None, None):
        with pytest.raises(bindery.StatusError) as raised:
            client.do("get_export", "x")
        assert raised.value.reason == expect
        assert raised.value.request_id == server.seen[-1].headers["x-request-id"]


def test_answers_that_lack_what_they_are_for_are_errors(caller: Callers, script: Scripts) -> None:
    unchanged = (api.GetBoundSchemaResponse(unchanged=True),)
    server = script((api.GetExportResponse(),), unchanged, unchanged, [b"\xff\xff\xff"])
    client = caller(server.address)
    with pytest.raises(bindery.ProtocolError, match="no export"):
        client.do("get_export", "cowboys")
    assert client.do("get_bound_schema", "cowboys.wildwest.dev", known_hash="h") is None
    with pytest.raises(bindery.ProtocolError, match="no bound schema"):
        client.do("get_bound_schema", "cowboys.wildwest.dev")
    with pytest.raises(bindery.ProtocolError, match="cannot be decoded"):
        client.do("get_export", "cowboys")


def test_messages_are_limited_both_ways(caller: Callers, script: Scripts) -> None:
    big = api.Export(metadata=api.ObjectMeta(name="x" * (5 << 20)))
    server = script((api.GetExportResponse(export=big),), EXPORT)
    client = caller(server.address)
    for name in ("cowboys", "x" * (300 << 10)):
        with pytest.raises(bindery.ResourceExhaustedError) as raised:
            client.do("get_export", name)
        assert raised.value.reason == Reason.MESSAGE_TOO_LARGE
    assert len(server.seen) == 1


def bind_answer(phase: api.Phase.ValueType, response: api.BindingResourceResponse | None = None) -> list[Step]:
    condition = api.Condition(type="Ready", status="False", reason="SchemaUnsupported", message="CRD has no schema")
    request = api.BindableResourcesRequest(
        metadata=api.ObjectMeta(name="cowboys"),
        spec=api.BindableResourcesRequestSpec(template_ref=api.NameRef(name="cowboys")),
        status=api.BindableResourcesRequestStatus(phase=phase, conditions=[condition]),
    )
    return [api.CreateBindableResourcesRequestResponse(bindable_resources_request=request, response=response)]


def test_binding_goes_on_while_it_is_pending(caller: Callers, script: Scripts) -> None:
    done = api.BindingResourceResponse(binding_name="cowboys", kubeconfig=api.Kubeconfig(kubeconfig=b"hunter2"))
    server = script(bind_answer(api.PHASE_PENDING), bind_answer(api.PHASE_SUCCEEDED, done))
    told: list[str] = []
    bound = caller(server.address).do("bind", "cowboys", "uid", wait=5, progress=lambda request: told.append(request.metadata.name))
    assert (bound.kubeconfig, told) == (b"hunter2", ["cowboys"])
    assert "hunter2" not in repr(bound)
    first, second = server.seen
    assert first.request == second.request
    assert first.request.bindable_resources_request.spec.cluster_identity.identity == "uid"
    assert second.at - first.at >= 0.9, "a server that answers at once is not asked in a loop"
    assert round(first.time_left or 0) == 15


def test_binding_ends_with_its_patience(caller: Callers, script: Scripts) -> None:
    server = script(bind_answer(api.PHASE_PENDING))
    with pytest.raises(bindery.PendingError) as raised:
        caller(server.address).do("bind", "cowboys", "uid", patience=0)
    assert raised.value.request.metadata.name == "cowboys"


def test_a_failed_request_is_an_error_that_says_why(caller: Callers, script: Scripts) -> None:
    server = script(bind_answer(api.PHASE_FAILED), bind_answer(api.PHASE_SUCCEEDED))
    client = caller(server.address)
    with pytest.raises(bindery.RequestFailedError) as raised:
        client.do("bind", "cowboys", "uid")
    assert raised.value.reason_text == "SchemaUnsupported"
    assert str(raised.value) == "request cowboys failed: CRD has no schema (SchemaUnsupported)"
    with pytest.raises(bindery.ProtocolError, match="no response"):
        client.do("bind", "cowboys", "uid")


def test_a_server_that_is_not_there_is_dialled_once_per_attempt(caller: Callers) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    client = caller(f"http://127.0.0.1:{port}")
    with pytest.raises(bindery.TransportError) as raised:
        client.do("renew_kubeconfig")
    error = raised.value
    assert (error.fault, error.connecting) == (Fault.REFUSED, True)
    assert f"http://127.0.0.1:{port}" in str(error)
    # A server that comes up is found by the next attempt: no delay of gRPC stands in between.
    with socket.create_server(("127.0.0.1", port)) as listener:
        listener.settimeout(5)
        with pytest.raises(bindery.BinderyError):
            client.do("get_provider", timeout=0.3)
        listener.accept()[0].close()


def test_a_name_without_an_address_is_told(caller: Callers) -> None:
    client = caller("https://no-such-host.invalid", retry=RetryPolicy(attempts=1))
    with pytest.raises(bindery.TransportError) as raised:
        client.do("get_provider")
    assert raised.value.fault is Fault.NAME_UNKNOWN


def test_any_method_can_be_called_by_its_message(caller: Callers, script: Scripts) -> None:
    server = script(EXPORT)
    answer = caller(server.address).do("call", methods.GET_EXPORT, api.GetExportRequest(name="cowboys"))
    assert answer == EXPORT[0]
    with pytest.raises(ValueError, match="a watch"):
        caller(server.address).do("call", methods.WATCH_EXPORTS, api.WatchExportsRequest())


def test_all_errors_survive_pickling() -> None:
    request = api.BindableResourcesRequest(metadata=api.ObjectMeta(name="cowboys"))
    for error in (
        bindery.AddressError("x y", "it has a space"),
        bindery.ConfigurationError("CaInvalid", "no CA"),
        bindery.TransportError("https://bind.example.com", Fault.REFUSED, "detail"),
        bindery.TokenError(bindery.TokenError.EMPTY, "empty"),
        bindery.RequestFailedError(request),
        bindery.PendingError(request, 3.0),
        bindery.ProtocolError("https://bind.example.com", "garbage"),
        bindery.CallCancelledError(),
        bindery.ManifestRefusedError("Empty", "it exports no API"),
        bindery.NotFoundError(Code.NOT_FOUND, "gone", reason="EXPORT_NOT_FOUND", retry_after=2.0),
    ):
        again = pickle.loads(pickle.dumps(error))
        assert (type(again), str(again), again.reason_text) == (type(error), str(error), error.reason_text)


def test_errors_are_copied_whole(caller: Callers, script: Scripts) -> None:
    server = script([reason(Code.NOT_FOUND, "EXPORT_NOT_FOUND", 2.0)])
    with pytest.raises(bindery.NotFoundError) as raised:
        caller(server.address).do("get_export", "x")
    again = copy.copy(raised.value)
    assert (type(again), str(again), again.retry_after) == (bindery.NotFoundError, str(raised.value), 2.0)
