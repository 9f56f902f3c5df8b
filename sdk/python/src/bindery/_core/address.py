"""The address of a backend, and the audience that goes with it.

A token for a backend is for the audience that the client derives from the address it dials, and the server derives the one it
demands from its own external address by the same rules. So there is one spelling: scheme and host in lower case, the port only
where it is not the scheme's default, no trailing slash.
"""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass
from typing import Final

from ..errors import AddressError

_HOST_LENGTH_MAX: Final = 253
_LABEL: Final = re.compile(r"[A-Za-z0-9_-]{1,63}")
_SEGMENT: Final = re.compile(r"[A-Za-z0-9._~-]+")
_DIGITS: Final = re.compile(r"[0-9]*")
_DEFAULT_PORTS: Final = {"https": 443, "http": 80}

_IP = ipaddress.IPv4Address | ipaddress.IPv6Address


@dataclass(frozen=True, slots=True)
class Address:
    """Where a backend is: scheme, host, port, and the path prefix under which a proxy serves it."""

    scheme: str
    """``https``, or ``http`` for plaintext."""
    host: str
    """A name or an IP address, without the brackets of an IPv6 address."""
    port: int
    """The port, also where it is the scheme's default."""
    prefix: str = ""
    """Empty, or a path such as ``/bind``."""

    @property
    def authority(self) -> str:
        """Host and port, as HTTP names them."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == _DEFAULT_PORTS[self.scheme] else f"{host}:{self.port}"

    @property
    def target(self) -> str:
        """Host and port, as gRPC dials them."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"dns:///{host}:{self.port}"

    @property
    def is_tls(self) -> bool:
        """Whether the backend is dialled by TLS."""
        return self.scheme == "https"

    @property
    def is_loopback(self) -> bool:
        """Whether nothing leaves this machine: a loopback IP address, or ``localhost``."""
        ip = _parse_ip(self.host)
        if ip is None:
            return self.host == "localhost"
        # An IPv4 address in IPv6 clothes is not one of those that only IPv6 calls loopback.
        return ip == ipaddress.IPv6Address("::1") if ip.version == 6 else ip.is_loopback

    def __str__(self) -> str:
        return f"{self.scheme}://{self.authority}{self.prefix}"


def parse(text: str) -> Address:
    """Takes an address apart. A missing scheme is https. Raises AddressError."""
    scheme, separator, rest = text.partition("://")
    if not separator:
        scheme, rest = "https", text
    scheme = scheme.lower()
    if scheme not in _DEFAULT_PORTS:
        raise AddressError(text, "its scheme is neither https nor http")
    if any(mark in rest for mark in "?#"):
        raise AddressError(text, "it has a query or a fragment")
    authority, slash, path = rest.partition("/")
    if "@" in authority:
        raise AddressError(text, "it names a user")
    host, digits = _split_port(text, authority)
    port = _DEFAULT_PORTS[scheme] if digits is None else _parse_port(text, digits)
    return Address(scheme, host, port, _parse_prefix(text, slash + path))


def _split_port(text: str, authority: str) -> tuple[str, str | None]:
    if authority.startswith("["):
        inner, bracket, rest = authority[1:].partition("]")
        if not bracket:
            raise AddressError(text, "its bracket is not closed")
        ip = _parse_ip(inner)
        if ip is None or ip.version != 6:
            raise AddressError(text, "what stands in brackets is no IPv6 address")
        if rest and not rest.startswith(":"):
            raise AddressError(text, "something other than a port follows the IPv6 address")
        return _ip_text(ip), rest[1:] if rest else None
    host, colon, port = authority.partition(":")
    return _parse_host(text, host), port if colon else None


def _parse_host(text: str, host: str) -> str:
    ip = _parse_ip(host)
    if ip is not None:
        return _ip_text(ip)
    if not host:
        raise AddressError(text, "it has no host")
    if len(host) > _HOST_LENGTH_MAX or not all(_LABEL.fullmatch(label) for label in host.split(".")):
        raise AddressError(text, "its host is no DNS name")
    return host.lower()


def _parse_ip(text: str) -> _IP | None:
    # A zone such as %eth0 has a meaning on one machine alone.
    if "%" in text or not text.isascii():
        return None
    try:
        return ipaddress.ip_address(text)
    except ValueError:
        return None


def _ip_text(ip: _IP) -> str:
    if isinstance(ip, ipaddress.IPv6Address) and ip.ipv4_mapped is not None:
        return f"::ffff:{ip.ipv4_mapped}"
    return ip.compressed


def _parse_port(text: str, digits: str) -> int:
    if not _DIGITS.fullmatch(digits):
        raise AddressError(text, "its port is no number")
    significant = digits.lstrip("0")
    if not significant or len(significant) > 5 or int(significant) > 65535:
        raise AddressError(text, "its port is not between 1 and 65535")
    return int(significant)


def _parse_prefix(text: str, path: str) -> str:
    path = path.removesuffix("/")
    if not path:
        return ""
    segments = path[1:].split("/")
    if not all(_SEGMENT.fullmatch(segment) and segment.strip(".") for segment in segments):
        raise AddressError(text, "its path is not made of plain segments such as /bind")
    return path


def is_host(text: str) -> bool:
    """Whether a text is a DNS name or an IP address."""
    try:
        _parse_host(text, text)
    except AddressError:
        return False
    return True
