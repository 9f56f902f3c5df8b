"""Names of objects. A name that fits is kept; a longer one is shortened by a hash."""

from __future__ import annotations

import hashlib
import re
from typing import Final

NAME_LENGTH_MAX: Final = 253
_LABEL: Final = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
_DIGITS: Final = "0123456789abcdefghijklmnopqrstuvwxyz"


def is_label(name: str) -> bool:
    """Whether a name is a DNS label (RFC 1123)."""
    return _LABEL.fullmatch(name) is not None


def konnector_cluster_role(binding: str) -> str:
    """ClusterRole and ClusterRoleBinding of one binding on the consumer."""
    return fit(f"kube-bind-konnector-{binding}")


def provider_kubeconfig_secret(binding: str) -> str:
    """The consumer's Secret for the provider's kubeconfig of a binding."""
    return fit(f"kubeconfig-{binding}")


def owner_of_group(group: str) -> str | None:
    """The owner of an API group that no provider may offer, Kubernetes or kube-bind; None for other groups."""

    def is_under(*domains: str) -> bool:
        return any(group == domain or group.endswith(f".{domain}") for domain in domains)

    # Groups without a dot are Kubernetes' own, such as apps, and the core group is empty.
    if "." not in group or is_under("k8s.io", "kubernetes.io"):
        return "Kubernetes itself"
    return "kube-bind itself" if is_under("kube-bind.io", "kubebind.io") else None


def fit(name: str) -> str:
    """A name if it fits, or else its beginning and a hash of the whole name."""
    if len(name) <= NAME_LENGTH_MAX:
        return name
    short = _base36(hashlib.sha224(name.encode()).digest()[:8])
    kept = name[: NAME_LENGTH_MAX - len(short) - 1]
    return f"{kept.rstrip('-.')}-{short}"


def _base36(data: bytes) -> str:
    """Formats a number in base 36; each leading zero byte gives one leading zero."""
    number = int.from_bytes(data, "big")
    digits = ""
    while number:
        number, digit = divmod(number, 36)
        digits = _DIGITS[digit] + digits
    return "0" * (len(data) - len(data.lstrip(b"\0"))) + digits
