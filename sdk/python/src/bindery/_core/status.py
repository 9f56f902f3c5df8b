"""Turns what gRPC reports of a failed call into an error of this package.

gRPC gives one code and one text for both an error response of the server and a failure of its own. Its own failures have no
trailers, and texts such as those below; they are tested against the library with real sockets.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import grpc
from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import DecodeError
from google.rpc.error_details_pb2 import BadRequest, ErrorInfo, PreconditionFailure, RequestInfo, RetryInfo
from google.rpc.status_pb2 import Status

from ..errors import (
    BinderyError,
    CallCancelledError,
    Fault,
    FieldViolation,
    PreconditionViolation,
    ProtocolError,
    StatusError,
    TransportError,
    printable,
    status_class,
)
from ..reasons import Reason
from .address import Address

ERROR_DOMAIN: Final = "kube-bind.io"

Metadata = Sequence[tuple[str, str | bytes]]


@dataclass(frozen=True, slots=True)
class Failure:
    """A failed call as gRPC reports it."""

    code: grpc.StatusCode
    text: str
    initial: Metadata = ()
    trailing: Metadata = ()

    @property
    def ends_connection(self) -> bool:
        """Whether no connection could be made, or the whole connection broke, and not a stream alone."""
        if self.trailing or self.code in _OF_STREAMS:
            return False
        if _UNREACHED.match(self.text):
            return True
        return _BROKEN.match(self.text) is not None and "RST_STREAM" not in self.text


class CallFailed(Exception):
    """An attempt of a call failed, or a stream did."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.code.name)
        self.failure: Final = failure


def error_of(failure: Failure, address: Address, request_id: str, waited: float) -> BinderyError:
    """Tells an error response of the server from a failure of the connection or of the client.

    :param waited: Seconds since the call began, for the text of a deadline.
    """
    if not failure.trailing:
        local = _local_error(failure, address, request_id, waited)
        if local is not None:
            return local
    return _parse(failure, {**dict(failure.initial), **dict(failure.trailing)}, request_id)


def deadline(address: Address, waited: float, request_id: str) -> StatusError:
    """The error for a deadline that passed on the client; the server may still work on the call."""
    code = grpc.StatusCode.DEADLINE_EXCEEDED
    message = f"no answer from {address} within {waited:.1f} s"
    return status_class(code)(code, message, reason=Reason.DEADLINE, request_id=request_id)


def too_large(message: str, request_id: str) -> StatusError:
    """The error for a message that is too large to be sent or received."""
    code = grpc.StatusCode.RESOURCE_EXHAUSTED
    return status_class(code)(code, message, reason=Reason.MESSAGE_TOO_LARGE, request_id=request_id)


# === Failures of the client ===

_TOO_LARGE: Final = re.compile(r"CLIENT: (Received|Decompressed) message larger than max")
_UNREACHED: Final = re.compile(r"failed to connect to all addresses|errors resolving |DNS resolution failed|empty address list")
_BROKEN: Final = re.compile(
    r"Stream removed|Socket closed|Connection reset|recvmsg:|sendmsg:|GOAWAY received|Received RST_STREAM|RST_STREAM"
    r"|keepalive watchdog timeout|ping timeout|Failed parsing HTTP/2|Broken pipe|Endpoint closing|transport closed"
)
_OF_STREAMS: Final = frozenset({grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.RESOURCE_EXHAUSTED, grpc.StatusCode.CANCELLED})
_GARBLED: Final = re.compile(r"Illegal header|Error parsing|Invalid (header|base64)|illegal binary|Missing :status")

# The first that is found in the text of a connection that could not be made.
_FAULTS: Final[tuple[tuple[str, Fault], ...]] = (
    ("errors resolving ", Fault.NAME_UNKNOWN),
    ("DNS resolution failed", Fault.NAME_UNKNOWN),
    ("Connection refused", Fault.REFUSED),
    ("certificate has expired", Fault.CERTIFICATE_EXPIRED),
    ("certificate is not yet valid", Fault.CERTIFICATE_EXPIRED),
    ("Hostname Verification Check failed", Fault.CERTIFICATE_NAME),
    ("is not in peer certificate", Fault.CERTIFICATE_NAME),
    ("CERTIFICATE_VERIFY_FAILED", Fault.CERTIFICATE_UNTRUSTED),
    ("missing selected ALPN", Fault.NO_HTTP2),
    ("NO_APPLICATION_PROTOCOL", Fault.NO_HTTP2),
    ("WRONG_VERSION_NUMBER", Fault.SERVER_IS_PLAINTEXT),
    ("HTTP_REQUEST", Fault.SERVER_IS_PLAINTEXT),
    ("CERTIFICATE_REQUIRED", Fault.CLIENT_CERTIFICATE),
    ("ALERT_BAD_CERTIFICATE", Fault.CLIENT_CERTIFICATE),
    ("ALERT_UNKNOWN_CA", Fault.CLIENT_CERTIFICATE),
    ("ALERT_CERTIFICATE", Fault.CLIENT_CERTIFICATE),
    ("ALERT_ACCESS_DENIED", Fault.CLIENT_CERTIFICATE),
    ("ALERT_DECRYPT_ERROR", Fault.CLIENT_CERTIFICATE),
    ("handshake failed", Fault.TLS),
    ("security handshaker", Fault.TLS),
    ("timed out", Fault.CONNECT_TIMEOUT),
    ("Connection timed out", Fault.CONNECT_TIMEOUT),
    ("Deadline", Fault.CONNECT_TIMEOUT),
)


def _local_error(failure: Failure, address: Address, request_id: str, waited: float) -> BinderyError | None:
    code, text = failure.code, failure.text
    if _UNREACHED.match(text):
        fault = next((fault for mark, fault in _FAULTS if mark in text), Fault.BROKEN)
        # The text of a certificate may come from the other end.
        return TransportError(str(address), fault, printable(text), connecting=True)
    if code is grpc.StatusCode.DEADLINE_EXCEEDED:
        return deadline(address, waited, request_id)
    if code is grpc.StatusCode.RESOURCE_EXHAUSTED and _TOO_LARGE.search(text):
        return too_large(text, request_id)
    if code is grpc.StatusCode.CANCELLED and text in _CANCELLED_HERE:
        return CallCancelledError()
    if code in (grpc.StatusCode.INTERNAL, grpc.StatusCode.UNKNOWN) and _GARBLED.search(text):
        return ProtocolError(str(address), "its answer cannot be decoded")
    if _BROKEN.match(text):
        return TransportError(str(address), Fault.BROKEN, printable(text))
    return None


_CANCELLED_HERE: Final = frozenset({"Channel closed!", "Locally cancelled by application!", "Cancelled", "CANCELLED"})


# === Error responses of the server ===


def _parse(failure: Failure, headers: Mapping[str, str | bytes], request_id: str) -> StatusError:
    """Reads a status with its details. Malformed details are left out."""
    status = Status()
    encoded = headers.get("grpc-status-details-bin")
    if isinstance(encoded, bytes):
        try:
            status.ParseFromString(encoded)
        except DecodeError:
            status = Status()
    info, bad, precondition, retry, sent = (
        ErrorInfo(),
        BadRequest(),
        PreconditionFailure(),
        RetryInfo(),
        RequestInfo(),
    )
    for detail in status.details:
        for known in (info, bad, precondition, retry, sent):
            if detail.type_url.rpartition("/")[2] == known.DESCRIPTOR.full_name:
                try:
                    known.ParseFromString(detail.value)
                except DecodeError:
                    known.Clear()
    if info.domain != ERROR_DOMAIN:
        info.Clear()
    header_id = headers.get("x-request-id")
    code = failure.code
    return status_class(code)(
        code,
        printable(failure.text),
        reason=_reason(info.reason),
        metadata={printable(key): printable(value) for key, value in info.metadata.items()},
        field_violations=[FieldViolation(printable(found.field), printable(found.description)) for found in bad.field_violations],
        precondition_violations=[
            PreconditionViolation(printable(found.type), printable(found.subject), printable(found.description))
            for found in precondition.violations
        ],
        retry_after=_seconds(retry.retry_delay) if retry.HasField("retry_delay") else None,
        request_id=printable(sent.request_id or (header_id if isinstance(header_id, str) else "") or request_id),
    )


def _reason(text: str) -> str | None:
    if not text:
        return None
    return Reason.__members__.get(text) or printable(text)


def _seconds(duration: Duration) -> float | None:
    seconds = duration.seconds + duration.nanos / 1e9
    return seconds if seconds >= 0 else None
