"""Names of objects. That of a binding is a DNS label, so all names that are made of it fit."""

from __future__ import annotations

import re
from typing import Final

_LABEL: Final = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")


def is_label(name: str) -> bool:
    """Whether a name is a DNS label (RFC 1123)."""
    return _LABEL.fullmatch(name) is not None


def konnector_cluster_role(binding: str) -> str:
    """ClusterRole and ClusterRoleBinding of one binding on the consumer."""
    return f"kube-bind-konnector-{binding}"


def provider_kubeconfig_secret(binding: str) -> str:
    """The consumer's Secret for the provider's kubeconfig of a binding."""
    return f"kubeconfig-{binding}"


def owner_of_group(group: str) -> str | None:
    """The owner of an API group that no provider may offer, Kubernetes or kube-bind; None for other groups."""

    def is_under(*domains: str) -> bool:
        return any(group == domain or group.endswith(f".{domain}") for domain in domains)

    # Groups without a dot are Kubernetes' own, such as apps, and the core group is empty.
    if "." not in group or is_under("k8s.io", "kubernetes.io"):
        return "Kubernetes itself"
    return "kube-bind itself" if is_under("kube-bind.io", "kubebind.io") else None
