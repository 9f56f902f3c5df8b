"""The settings of a client, checked when it is made."""

from __future__ import annotations

import contextlib
import os
import re
import ssl
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from .._version import VERSION
from ..errors import ConfigurationError
from . import address as addresses
from .address import Address
from .retry import RetryPolicy

MESSAGE_SEND_MAX: Final = 256 * 1024
"""Size limit of a request, in bytes; servers refuse larger ones."""
MESSAGE_RECEIVE_MAX: Final = 4 * 1024 * 1024
"""Size limit of a response, in bytes."""

USER_AGENT: Final = f"bindery-sdk-python/{VERSION}"
_TOTAL: Final = 30.0
_ATTEMPT: Final = 10.0
_KEEPALIVE_TIME_MS: Final = 30_000
_KEEPALIVE_TIMEOUT_MS: Final = 20_000
_HEADER_TEXT: Final = re.compile(r"[ -~]*")
_CERTIFICATE: Final = re.compile(rb"-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----", re.DOTALL)

ClientCertificate = tuple[bytes, bytes]
"""The chain and the private key, both PEM."""


@dataclass(frozen=True, slots=True)
class WatchSettings:
    """Times of watches. They are settings for the tests of this package alone."""

    silence: float = 90.0
    """A stream without a message for this long is closed; servers send one every 30 s."""
    open_timeout: float = 30.0
    """Time limit on opening a stream."""
    good_after: float = 10.0
    """After a stream that lasted this long, the delay before the next one is the shortest."""
    retry_after_max: float = 300.0
    """Limit on the delay that a server may ask for."""
    reconnect: RetryPolicy = RetryPolicy(attempts=2**31, base=1.0, cap=30.0)  # noqa: RUF009
    """Random delays between streams: when a server ends, all its clients reconnect."""


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings of a client."""

    address: Address
    roots: bytes | None
    """CA certificates (PEM); None trusts those that gRPC ships. Not used without TLS."""
    certificate: ClientCertificate | None
    server_name: str | None
    timeout: float | None
    attempt_timeout: float | None
    connect_timeout: float
    retry: RetryPolicy
    user_agent: str
    watch: WatchSettings = WatchSettings()

    def times(self, wait: float, timeout: float | None) -> tuple[float, float]:
        """The time limits of a call and of one attempt, for a call for which the server may wait."""
        total = timeout if timeout is not None else self.timeout
        if total is None:
            total = _TOTAL + wait
        attempt = self.attempt_timeout if self.attempt_timeout is not None else _ATTEMPT + wait
        return total, min(attempt, total)

    def channel_options(self) -> list[tuple[str, str | int]]:
        """Options of a gRPC channel. What gRPC would retry or configure by itself is off: this package decides that."""
        options: list[tuple[str, str | int]] = [
            ("grpc.enable_retries", 0),
            ("grpc.service_config_disable_resolution", 1),
            # Else channels of one process would share connections, and the delays between attempts to connect.
            ("grpc.use_local_subchannel_pool", 1),
            ("grpc.min_reconnect_backoff_ms", max(1, round(self.connect_timeout * 1000))),
            ("grpc.keepalive_time_ms", _KEEPALIVE_TIME_MS),
            ("grpc.keepalive_timeout_ms", _KEEPALIVE_TIMEOUT_MS),
            ("grpc.http2.max_pings_without_data", 0),
            ("grpc.max_send_message_length", -1),
            ("grpc.max_receive_message_length", MESSAGE_RECEIVE_MAX),
            ("grpc.primary_user_agent", self.user_agent),
        ]
        if not self.address.is_tls:
            # A proxy of the environment must not read what is for loopback.
            options.append(("grpc.enable_http_proxy", 0))
        elif self.server_name is not None:
            options.append(("grpc.ssl_target_name_override", self.server_name))
        return options


def check(
    address: str,
    *,
    ca_file: str | os.PathLike[str] | None,
    ca_pem: bytes | str | None,
    client_certificate: tuple[bytes | str, bytes | str] | None,
    server_name: str | None,
    allow_plaintext: bool,
    timeout: float | None,
    attempt_timeout: float | None,
    connect_timeout: float,
    retry: RetryPolicy | None,
    user_agent: str | None,
) -> Settings:
    """Checks the settings of a client. Raises ConfigurationError."""
    where = addresses.parse(address)
    if not where.is_tls:
        _check_plaintext(where, allow_plaintext)
    for seconds in (timeout, attempt_timeout, connect_timeout):
        if seconds is not None and not seconds > 0:
            raise ConfigurationError("TimeoutInvalid", f"a time limit of {seconds} s is over before it begins")
    agent = USER_AGENT if user_agent is None else f"{user_agent} {USER_AGENT}"
    if not _HEADER_TEXT.fullmatch(agent):
        raise ConfigurationError("UserAgentInvalid", f"the user agent {user_agent!r} cannot stand in a header")
    if server_name is not None and not addresses.is_host(server_name):
        raise ConfigurationError("TlsSetupFailed", f"{server_name!r} is no name that a certificate can be for")
    pem = _read_ca(where, ca_file, ca_pem)
    certificate = None
    if client_certificate is not None:
        chain, key = (_bytes(part) for part in client_certificate)
        _check_client_certificate(where, chain, key)
        certificate = chain, key
    return Settings(
        address=where,
        roots=_system_roots() if pem is None and where.is_tls else pem,
        certificate=certificate,
        server_name=server_name,
        timeout=timeout,
        attempt_timeout=attempt_timeout,
        connect_timeout=connect_timeout,
        retry=retry or RetryPolicy(),
        user_agent=agent,
    )


def _check_plaintext(address: Address, allowed: bool) -> None:
    if not address.is_loopback:
        mend = "dial https://, plaintext is for loopback addresses alone"
    elif not allowed:
        mend = "dial https://, or allow plaintext explicitly"
    else:
        return
    raise ConfigurationError("PlaintextRefused", f"{address} is plaintext, over which tokens could be read; {mend}")


def _read_ca(address: Address, file: str | os.PathLike[str] | None, pem: bytes | str | None) -> bytes | None:
    if file is not None and pem is not None:
        raise ConfigurationError("CaInvalid", "give the CA certificates as a file or as PEM, not both")
    if file is not None:
        try:
            data = Path(file).read_bytes()
        except OSError as error:
            raise _ca_error(address, f"{os.fspath(file)}: {error.strerror or error}") from None
    elif pem is not None:
        data = _bytes(pem)
    else:
        return None
    blocks = _CERTIFICATE.findall(data)
    if not blocks:
        raise _ca_error(address, "there is none")
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(cadata=b"\n".join(blocks).decode("ascii"))
    except (ssl.SSLError, ValueError) as error:
        raise _ca_error(address, getattr(error, "reason", None) or "they are no certificates") from None
    return data


def _ca_error(address: Address, fault: str) -> ConfigurationError:
    return ConfigurationError(
        "CaInvalid",
        f"the CA certificates for {address} cannot be used: {fault}; give one or more PEM blocks of type CERTIFICATE",
    )


def _check_client_certificate(address: Address, chain: bytes, key: bytes) -> None:
    """Lets OpenSSL check that certificate and key belong together, which reads them from files alone."""
    try:
        with tempfile.TemporaryDirectory(prefix="bindery-") as folder:
            files = Path(folder, "chain.pem"), Path(folder, "key.pem")
            for path, data in zip(files, (chain, key), strict=True):
                path.touch(mode=0o600)
                path.write_bytes(data)
            ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_cert_chain(*files, password=lambda: "")
    except (ssl.SSLError, OSError, ValueError) as error:
        fault = getattr(error, "reason", None) or "they are not valid"
        raise ConfigurationError(
            "ClientCertificateInvalid",
            f"the client certificate for {address} cannot be used: {fault}; give its chain and its private key, both PEM",
        ) from None


def _system_roots() -> bytes | None:
    """The CA certificates of the system, which gRPC does not look for. None if the system has none."""
    context = ssl.create_default_context()
    found = context.get_ca_certs(binary_form=True)
    if found:
        return "".join(map(ssl.DER_cert_to_PEM_cert, found)).encode()
    # OpenSSL reads the certificates of a folder only when it looks for one of them.
    folder = Path(ssl.get_default_verify_paths().capath or "/nonexistent")
    paths = sorted(folder.iterdir()) if folder.is_dir() else []
    blocks: set[bytes] = set()
    for path in paths:
        # Folders, broken links, and what this user may not read.
        with contextlib.suppress(OSError):
            blocks.update(_CERTIFICATE.findall(path.read_bytes()))
    return b"\n".join(sorted(blocks)) or None


def _bytes(text: bytes | str) -> bytes:
    return text.encode() if isinstance(text, str) else text
