"""A client for the Bindery backend: TLS, tokens, retries by code, typed errors, and watches that resume.

::

    import bindery

    with bindery.Client("https://bind.example.com", token=bindery.FileToken("/var/run/secrets/backend/token")) as client:
        bound = client.bind("cowboys", cluster_uid)
        print(bound.manifests().canonical(), end="")

:class:`Client` blocks; :class:`bindery.aio.Client` is for asyncio. The messages of the API are in :mod:`bindery.v1alpha2`, its
methods in :mod:`bindery.methods`, the reasons of its errors in :class:`Reason`.

Each call asks the token source for a token, tells its deadline to the server, and retries failures that may be retried (see
:class:`RetryPolicy`) until that deadline. A token never appears in a ``repr``, an error or a log line. Retries are logged by the
logger ``bindery`` at level DEBUG.
"""

from __future__ import annotations

from . import aio, events, methods, v1alpha2
from ._core.address import parse as _parse
from ._core.binding import Bound, Renewed, TemplateDetails
from ._core.retry import RetryPolicy
from ._core.settings import MESSAGE_RECEIVE_MAX, MESSAGE_SEND_MAX
from ._version import VERSION as __version__
from .client import Client, Pages, Watch
from .errors import (
    AbortedError,
    AddressError,
    AlreadyExistsError,
    BinderyError,
    CallCancelledError,
    ConfigurationError,
    DeadlineExceededError,
    FailedPreconditionError,
    Fault,
    FieldViolation,
    InternalError,
    InvalidArgumentError,
    NotFoundError,
    PendingError,
    PermissionDeniedError,
    PreconditionViolation,
    ProtocolError,
    RequestFailedError,
    ResourceExhaustedError,
    StatusError,
    TokenError,
    TransportError,
    UnauthenticatedError,
    UnavailableError,
    UnimplementedError,
)
from .events import Applied, Connected, Disconnected, Removed, SnapshotBegin, SnapshotComplete, WatchEvent
from .objects import ManifestOptions, ManifestRefusedError, Manifests, manifests
from .reasons import Reason
from .tokens import ExecToken, FileToken, FunctionToken, StaticToken, TokenSource

__all__ = [
    "MESSAGE_RECEIVE_MAX",
    "MESSAGE_SEND_MAX",
    "AbortedError",
    "AddressError",
    "AlreadyExistsError",
    "Applied",
    "BinderyError",
    "Bound",
    "CallCancelledError",
    "Client",
    "ConfigurationError",
    "Connected",
    "DeadlineExceededError",
    "Disconnected",
    "ExecToken",
    "FailedPreconditionError",
    "Fault",
    "FieldViolation",
    "FileToken",
    "FunctionToken",
    "InternalError",
    "InvalidArgumentError",
    "ManifestOptions",
    "ManifestRefusedError",
    "Manifests",
    "NotFoundError",
    "Pages",
    "PendingError",
    "PermissionDeniedError",
    "PreconditionViolation",
    "ProtocolError",
    "Reason",
    "Removed",
    "Renewed",
    "RequestFailedError",
    "ResourceExhaustedError",
    "RetryPolicy",
    "SnapshotBegin",
    "SnapshotComplete",
    "StaticToken",
    "StatusError",
    "TemplateDetails",
    "TokenError",
    "TokenSource",
    "TransportError",
    "UnauthenticatedError",
    "UnavailableError",
    "UnimplementedError",
    "Watch",
    "WatchEvent",
    "__version__",
    "aio",
    "audience",
    "events",
    "manifests",
    "methods",
    "v1alpha2",
]


def audience(address: str) -> str:
    """Returns the audience of tokens for the backend at this address. Raises AddressError."""
    return str(_parse(address))
