"""Errors of the client.

All of them are :class:`BinderyError`::

    BinderyError
    ├── ConfigurationError      the settings of a client cannot work
    │   └── AddressError        the address is not one
    ├── StatusError             the server answered with an error, or did not answer before the deadline
    │   ├── InvalidArgumentError, NotFoundError, PermissionDeniedError, … one per code
    ├── TransportError          the server could not be reached, or the connection broke
    ├── TokenError              the token source has no token
    ├── RequestFailedError      the server accepted a request to bind and could not fulfill it
    ├── PendingError            a request to bind is still pending after the client has waited
    ├── ProtocolError           the server broke the rules of its API
    └── CallCancelledError      the client was closed while a call was under way

:class:`bindery.ManifestRefusedError` is one, too. No message, ``repr`` or argument of an error holds a token.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from types import MappingProxyType
from typing import TYPE_CHECKING, ClassVar, Final

import grpc

if TYPE_CHECKING:
    from .v1alpha2 import BindableResourcesRequest, Condition

__all__ = [
    "AbortedError",
    "AddressError",
    "AlreadyExistsError",
    "BinderyError",
    "CallCancelledError",
    "ConfigurationError",
    "DeadlineExceededError",
    "FailedPreconditionError",
    "Fault",
    "FieldViolation",
    "InternalError",
    "InvalidArgumentError",
    "NotFoundError",
    "PendingError",
    "PermissionDeniedError",
    "PreconditionViolation",
    "ProtocolError",
    "RequestFailedError",
    "ResourceExhaustedError",
    "StatusError",
    "TokenError",
    "TransportError",
    "UnauthenticatedError",
    "UnavailableError",
    "UnimplementedError",
]


class BinderyError(Exception):
    """What this package raises."""

    kind: ClassVar[str] = "error"
    """The kind of the error in one word, the same in all SDKs."""

    @property
    def reason_text(self) -> str:
        """The reason for conditions and metrics, in UpperCamelCase or UPPER_SNAKE_CASE, which never changes."""
        return type(self).__name__


class ConfigurationError(BinderyError, ValueError):
    """The settings of a client cannot work."""

    kind = "configuration"

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(reason, message)
        self.reason: Final = reason
        self.message: Final = message

    @property
    def reason_text(self) -> str:
        return self.reason

    def __str__(self) -> str:
        return self.message


class AddressError(ConfigurationError):
    """The address is not one."""

    def __init__(self, address: str, fault: str) -> None:
        super().__init__(
            "AddressInvalid",
            f"{address!r} is no address of a backend: {fault}; write https://host or https://host:port",
        )
        self.args = (address, fault)


# === What the server answered ===


@dataclass(frozen=True, slots=True)
class FieldViolation:
    """A field of a request with an invalid value."""

    field: str
    """Path of the field, such as ``bindable_resources_request.metadata.name``."""
    description: str
    """What is wrong with it."""


@dataclass(frozen=True, slots=True)
class PreconditionViolation:
    """A precondition of a call that does not hold."""

    type: str
    """Kind of the precondition."""
    subject: str
    """The object that it is about."""
    description: str
    """What is wrong with it."""


class StatusError(BinderyError):
    """An error response of the server, or none before the deadline. There is a subclass per code that the API uses."""

    kind = "status"

    def __init__(
        self,
        code: grpc.StatusCode,
        message: str,
        *,
        reason: str | None = None,
        metadata: Mapping[str, str] | None = None,
        field_violations: Sequence[FieldViolation] = (),
        precondition_violations: Sequence[PreconditionViolation] = (),
        retry_after: float | None = None,
        request_id: str = "",
    ) -> None:
        super().__init__(code, message)
        self.code: Final = code
        """The canonical code."""
        self.message: Final = message
        """Explanation for people, of the server."""
        self.reason: Final = reason
        """The reason, which compares equal to a member of :class:`bindery.Reason`; None if the server gave none. A reason that
        this version does not know is kept as it is."""
        self.metadata: Final[Mapping[str, str]] = MappingProxyType(dict(metadata or {}))
        """The variable parts of the message, under lowerCamelCase keys."""
        self.field_violations: Final = tuple(field_violations)
        """The fields that are wrong."""
        self.precondition_violations: Final = tuple(precondition_violations)
        """What must be changed before the call can succeed."""
        self.retry_after: Final = retry_after
        """Seconds after which the server asks for a retry; None if it does not."""
        self.request_id: Final = request_id
        """Id of the call in the server's log."""

    @property
    def code_name(self) -> str:
        """The code as gRPC spells it, such as ``NOT_FOUND``."""
        return self.code.name

    @property
    def reason_text(self) -> str:
        return self.reason or self.code.name

    def __str__(self) -> str:
        parts = [self.message or f"the server answered {self.code.name}"]
        parts += [f"{violation.field}: {violation.description}" for violation in self.field_violations]
        parts += [f"{violation.subject}: {violation.description}" for violation in self.precondition_violations]
        request = f", request {self.request_id}" if self.request_id else ""
        return f"{'; '.join(parts)} ({self.reason_text}{request})"

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}(code={self.code.name}, reason={self.reason!r}, message={self.message!r}, "
            f"request_id={self.request_id!r})"
        )

    def __reduce__(self) -> tuple[object, ...]:
        details = {
            "reason": self.reason,
            "metadata": dict(self.metadata),
            "field_violations": self.field_violations,
            "precondition_violations": self.precondition_violations,
            "retry_after": self.retry_after,
            "request_id": self.request_id,
        }
        return (_restore_status, (self.code, self.message, details))


class InvalidArgumentError(StatusError):
    """INVALID_ARGUMENT: :attr:`~StatusError.field_violations` names the fields."""


class DeadlineExceededError(StatusError):
    """DEADLINE_EXCEEDED: no answer in time. The server may still work on the call."""


class NotFoundError(StatusError):
    """NOT_FOUND: the object does not exist."""


class AlreadyExistsError(StatusError):
    """ALREADY_EXISTS: the name is taken by other content."""


class PermissionDeniedError(StatusError):
    """PERMISSION_DENIED: the caller may not do that."""


class ResourceExhaustedError(StatusError):
    """RESOURCE_EXHAUSTED: too many calls or streams, or too large a message."""


class FailedPreconditionError(StatusError):
    """FAILED_PRECONDITION: something must be changed on the provider first."""


class AbortedError(StatusError):
    """ABORTED: the object has changed; read it again."""


class UnimplementedError(StatusError):
    """UNIMPLEMENTED: the server does not know the method, or the feature is off."""


class InternalError(StatusError):
    """INTERNAL: the server failed; its log has the cause under the request id."""


class UnavailableError(StatusError):
    """UNAVAILABLE: the server cannot answer now; a later call may succeed."""


class UnauthenticatedError(StatusError):
    """UNAUTHENTICATED: the server does not accept the token."""


_BY_CODE: Final[Mapping[grpc.StatusCode, type[StatusError]]] = {
    grpc.StatusCode.INVALID_ARGUMENT: InvalidArgumentError,
    grpc.StatusCode.DEADLINE_EXCEEDED: DeadlineExceededError,
    grpc.StatusCode.NOT_FOUND: NotFoundError,
    grpc.StatusCode.ALREADY_EXISTS: AlreadyExistsError,
    grpc.StatusCode.PERMISSION_DENIED: PermissionDeniedError,
    grpc.StatusCode.RESOURCE_EXHAUSTED: ResourceExhaustedError,
    grpc.StatusCode.FAILED_PRECONDITION: FailedPreconditionError,
    grpc.StatusCode.ABORTED: AbortedError,
    grpc.StatusCode.UNIMPLEMENTED: UnimplementedError,
    grpc.StatusCode.INTERNAL: InternalError,
    grpc.StatusCode.UNAVAILABLE: UnavailableError,
    grpc.StatusCode.UNAUTHENTICATED: UnauthenticatedError,
}


def status_class(code: grpc.StatusCode) -> type[StatusError]:
    """The class of errors with this code."""
    return _BY_CODE.get(code, StatusError)


def _restore_status(code: grpc.StatusCode, message: str, details: dict[str, object]) -> StatusError:
    return status_class(code)(code, message, **details)  # type: ignore[arg-type]


# === The connection ===


class Fault(Enum):
    """Kind of a failed connection. The value is the reason for conditions and metrics."""

    REFUSED = "ConnectionRefused"
    """The connection was refused."""
    NAME_UNKNOWN = "NameUnknown"
    """The host name cannot be resolved."""
    CONNECT_TIMEOUT = "ConnectTimeout"
    """The attempt to connect was not answered in time."""
    CERTIFICATE_UNTRUSTED = "CertificateUntrusted"
    """The server's certificate is signed by a CA that is not trusted."""
    CERTIFICATE_NAME = "CertificateNameMismatch"
    """The server's certificate is for another name."""
    CERTIFICATE_EXPIRED = "CertificateExpired"
    """The server's certificate has expired, or is not valid yet."""
    CLIENT_CERTIFICATE = "ClientCertificateRefused"
    """The server requires a client certificate and got none, or does not accept the one that it got."""
    TLS = "TlsFailed"
    """The TLS handshake failed for another reason."""
    SERVER_IS_PLAINTEXT = "ServerIsPlaintext"
    """The server does not speak TLS."""
    NO_HTTP2 = "NoHttp2"
    """The server speaks TLS, but not HTTP/2."""
    BROKEN = "ConnectionBroken"
    """The connection broke."""
    SILENT = "StreamSilent"
    """The stream had no message, not even a heartbeat, for 90 s."""

    @property
    def needs_mending(self) -> bool:
        """Whether a retry cannot succeed until somebody has changed the configuration of client or server."""
        return self in _NEEDS_MENDING


_NEEDS_MENDING: Final = frozenset(
    {
        Fault.CERTIFICATE_UNTRUSTED,
        Fault.CERTIFICATE_NAME,
        Fault.CERTIFICATE_EXPIRED,
        Fault.CLIENT_CERTIFICATE,
        Fault.TLS,
        Fault.SERVER_IS_PLAINTEXT,
        Fault.NO_HTTP2,
    }
)

_MEND: Final[Mapping[Fault, str]] = {
    Fault.REFUSED: "nobody listens there; check host and port, and that the server runs",
    Fault.NAME_UNKNOWN: "the name has no address; check its spelling and the DNS",
    Fault.CONNECT_TIMEOUT: "no answer; check host and port, and firewalls and network policies on the way",
    Fault.CERTIFICATE_UNTRUSTED: ("its certificate is signed by a CA that is not trusted here; give that CA's certificate"),
    Fault.CERTIFICATE_NAME: ("its certificate is for another name; dial that name, or give it as the server's name"),
    Fault.CERTIFICATE_EXPIRED: "its certificate is not valid at this time; renew it, and check the clocks",
    Fault.CLIENT_CERTIFICATE: ("it accepts only clients with a certificate that its CAs signed; present a valid one"),
    Fault.TLS: "TLS failed",
    Fault.SERVER_IS_PLAINTEXT: ("it speaks no TLS; check the port (plaintext is allowed on loopback alone, as http://)"),
    Fault.NO_HTTP2: "it speaks TLS but not HTTP/2; a proxy in front of it must pass gRPC through",
    Fault.BROKEN: "the connection broke",
    Fault.SILENT: "it has been silent for longer than a live stream is",
}


class TransportError(BinderyError):
    """The server could not be reached, or the connection broke."""

    kind = "transport"

    def __init__(self, address: str, fault: Fault, detail: str = "", *, connecting: bool = False) -> None:
        super().__init__(address, fault, detail)
        self.address: Final = address
        """Address of the server."""
        self.fault: Final = fault
        """Kind of the failure."""
        self.detail: Final = detail
        """Message of the failure, for people."""
        self.connecting: Final = connecting
        """Whether the call was certainly not sent, so that the server did nothing."""

    @property
    def reason_text(self) -> str:
        return self.fault.value

    def __str__(self) -> str:
        mend = _MEND[self.fault]
        if self.fault is Fault.BROKEN and self.address.startswith("http://"):
            mend += "; if the server speaks TLS, dial https://"
        detail = f" ({self.detail})" if self.detail else ""
        return f"cannot reach the server at {self.address}: {mend}{detail}"


# === The rest ===


class TokenError(BinderyError):
    """The token source has no token. A custom source raises it with one of the reasons, or another exception."""

    kind = "token"

    FILE_UNREADABLE: ClassVar[str] = "TokenFileUnreadable"
    EMPTY: ClassVar[str] = "TokenEmpty"
    MALFORMED: ClassVar[str] = "TokenMalformed"
    TOO_LONG: ClassVar[str] = "TokenTooLong"
    SOURCE_FAILED: ClassVar[str] = "TokenSourceFailed"
    """A source failed, and may succeed later."""
    LOGGED_OUT: ClassVar[str] = "LoggedOut"
    """A source has no token until somebody logs in again. A watch ends."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(reason, message)
        self.reason: Final = reason
        self.message: Final = message

    @property
    def reason_text(self) -> str:
        return self.reason

    def __str__(self) -> str:
        return self.message


class RequestFailedError(BinderyError):
    """The server accepted a request to bind and could not fulfill it; its conditions say why."""

    kind = "requestFailed"

    def __init__(self, request: BindableResourcesRequest) -> None:
        super().__init__(request)
        self.request: Final = request
        """The request in phase FAILED."""

    @property
    def condition(self) -> Condition | None:
        """The condition that says why: the first one that is false."""
        return next((found for found in self.request.status.conditions if found.status == "False"), None)

    @property
    def reason_text(self) -> str:
        return self.condition.reason if self.condition is not None else "RequestFailed"

    def __str__(self) -> str:
        name = printable(self.request.metadata.name)
        condition = self.condition
        if condition is None:
            return f"request {name} failed and has no condition that says why"
        return f"request {name} failed: {printable(condition.message)} ({printable(condition.reason)})"

    def __repr__(self) -> str:
        return f"{type(self).__name__}({str(self)!r})"


class PendingError(BinderyError):
    """A request to bind is still pending after the client has waited. Bind again to go on waiting."""

    kind = "pending"

    def __init__(self, request: BindableResourcesRequest, waited: float) -> None:
        super().__init__(request, waited)
        self.request: Final = request
        """The request in phase PENDING."""
        self.waited: Final = waited
        """Seconds that the client has waited."""

    @property
    def reason_text(self) -> str:
        return "RequestPending"

    def __str__(self) -> str:
        name = printable(self.request.metadata.name)
        return f"request {name} is still pending after {int(self.waited)} s; bind again to go on waiting"

    def __repr__(self) -> str:
        return f"{type(self).__name__}({str(self)!r})"


class ProtocolError(BinderyError):
    """The server broke the rules of its API."""

    kind = "protocol"

    def __init__(self, address: str, fault: str) -> None:
        super().__init__(address, fault)
        self.address: Final = address
        self.fault: Final = fault

    @property
    def reason_text(self) -> str:
        return "ProtocolViolation"

    def __str__(self) -> str:
        return f"the server at {self.address} broke the rules of its API: {self.fault}"


class CallCancelledError(BinderyError):
    """The client was closed while a call was under way, or before it. A cancelled asyncio task gets
    :class:`asyncio.CancelledError` instead.
    """

    kind = "cancelled"

    def __init__(self, message: str = "the client was closed") -> None:
        super().__init__(message)

    @property
    def reason_text(self) -> str:
        return "Cancelled"


def printable(text: str) -> str:
    """Replaces control characters in a text of the server, which could rewrite a terminal."""
    return "".join(" " if _is_control(char) and char != "\n" else char for char in text)


def _is_control(char: str) -> bool:
    return char < " " or "\x7f" <= char <= "\x9f"
