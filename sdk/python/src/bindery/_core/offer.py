"""Judges what a provider wants installed. Refused is anything beyond the resources of the export and its claims."""

from __future__ import annotations

import re
from collections.abc import Iterable, Set
from dataclasses import dataclass
from typing import Final, NamedTuple

from ..errors import BinderyError, printable
from ..v1alpha2 import BindingResourceResponse, ConsumerRule, PermissionClaim
from . import names

OBJECT_VERBS: Final = ("get", "list", "watch", "create", "update", "patch", "delete")
"""The verbs that a konnector needs on exported and claimed objects."""
CLAIMABLE_CORE: Final = frozenset({"configmaps", "secrets", "serviceaccounts"})
"""The resources of the core group that can be claimed."""
_NAME: Final = re.compile(r"[a-z0-9.-]+")


class GroupResource(NamedTuple):
    """A resource by group and plural name; the group is empty for the core group."""

    group: str
    resource: str

    @classmethod
    def parse(cls, text: str) -> GroupResource:
        """Reads ``secrets`` or ``certificates.example.com``: up to the first dot the plural, then the group."""
        resource, _, group = text.partition(".")
        return cls(group, resource)

    @property
    def is_claimable_core(self) -> bool:
        """Whether it is a resource of the core group that can be claimed."""
        return not self.group and self.resource in CLAIMABLE_CORE

    def __str__(self) -> str:
        return f"{self.resource}.{self.group}" if self.group else self.resource


class ManifestRefusedError(BinderyError):
    """Why no objects are made of an answer."""

    kind = "refusal"

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(reason, message)
        self.reason: Final = reason
        """One of ``Name``, ``OtherBinding``, ``NoContract``, ``Empty``, ``ForeignApi``, ``Unclaimable``, ``Wildcard``,
        ``Beyond``, ``Verb``, ``NotClaimed``, ``EverySecret`` and ``NoKubeconfig``."""
        self.message: Final = printable(message)

    @property
    def reason_text(self) -> str:
        return self.reason

    def __str__(self) -> str:
        return f"the answer of the provider is refused: {self.message}"


@dataclass(frozen=True, slots=True)
class Offer:
    """What a provider wants installed, after it was judged."""

    resources: tuple[GroupResource, ...]
    """The resources of the export, in order."""
    claims: dict[GroupResource, PermissionClaim]
    """The provider's claims on other resources of the consumer, in the order of the resources."""


def judge(answer: BindingResourceResponse, binding: str) -> Offer:
    """Judges the answer to a bind under this name. The first fault is raised."""
    for got in (answer.binding_name, *(request.name for request in answer.requests)):
        if got != binding:
            raise ManifestRefusedError("OtherBinding", f"it answers for {got!r} instead of {binding!r}")
    if not answer.provider_namespace:
        raise ManifestRefusedError("NoContract", "it names no contract namespace")
    resources = {GroupResource(resource.group, resource.resource) for request in answer.requests for resource in request.resources}
    if not resources:
        raise ManifestRefusedError("Empty", "it exports no API")
    for resource in sorted(resources):
        _judge_resource(resource)
    claims = [claim for request in answer.requests for claim in request.permission_claims]
    claimed: dict[GroupResource, PermissionClaim] = {}
    for claim in sorted(claims, key=resource_of):
        resource = resource_of(claim)
        _judge_claim(resource, resources)
        if resource in claimed:
            raise _unclaimable(resource, "it claims twice")
        claimed[resource] = claim
    for rule in answer.consumer_rules:
        _judge_rule(rule, resources, claimed.keys())
    return Offer(tuple(sorted(resources)), claimed)


def resource_of(claim: PermissionClaim) -> GroupResource:
    """The resource that a claim is about."""
    return GroupResource(claim.group, claim.resource)


def _judge_resource(resource: GroupResource) -> None:
    """Refuses resources of Kubernetes and of kube-bind, because an export becomes a role on this cluster."""
    owner = names.owner_of_group(resource.group)
    if owner is None and not _are_names(resource):
        owner = "nobody: no API can have this name"
    if owner is not None:
        raise ManifestRefusedError("ForeignApi", f"it exports {resource}, which belongs to {owner}")


def _judge_claim(claim: GroupResource, resources: Set[GroupResource]) -> None:
    """Refuses claims on resources that could rule the cluster: of the core group all but three, and all other groups of
    Kubernetes. Claims on other groups are allowed by the provider's admin and decided by the user.
    """
    if claim in resources:
        raise _unclaimable(claim, "it exports itself")
    if not claim.group:
        if not claim.is_claimable_core:
            raise _unclaimable(claim, "nobody can claim: of the core group, only configmaps, secrets and serviceaccounts can be")
        return
    if not _are_names(claim):
        raise _unclaimable(claim, "no API can be named")
    if names.owner_of_group(claim.group) is not None:
        raise _unclaimable(
            claim,
            "belongs to Kubernetes or kube-bind, of which only configmaps, secrets and serviceaccounts can be claimed",
        )


def _unclaimable(resource: GroupResource, why: str) -> ManifestRefusedError:
    return ManifestRefusedError("Unclaimable", f"it claims {resource}, which {why}")


def _judge_rule(rule: ConsumerRule, resources: Set[GroupResource], claims: Set[GroupResource]) -> None:
    if any("*" in item for part in _parts(rule) for item in part):
        raise ManifestRefusedError("Wildcard", f'it asks for a right on "*" ({_shown(rule)})')
    for group in rule.api_groups:
        for resource in rule.resources:
            base = GroupResource(group, resource.removesuffix("/status"))
            asked = GroupResource(group, resource)
            if base not in resources and asked not in claims:
                raise ManifestRefusedError(
                    "Beyond",
                    f"it asks for rights on {asked}, which is neither exported nor claimed ({_shown(rule)})",
                )
    for verb in rule.verbs:
        if verb not in OBJECT_VERBS:
            raise ManifestRefusedError("Verb", f"it asks for the right to {verb!r} ({_shown(rule)})")


def _parts(rule: ConsumerRule) -> tuple[Iterable[str], ...]:
    return rule.api_groups, rule.resources, rule.verbs, rule.resource_names


def _shown(rule: ConsumerRule) -> str:
    return f"{','.join(rule.verbs)} of {','.join(rule.resources)} in {','.join(rule.api_groups)!r}"


def _are_names(resource: GroupResource) -> bool:
    return all(_NAME.fullmatch(part) for part in resource)
