"""The objects that a consumer cluster needs for a bind, made of the provider's answer alone.

:func:`manifests` judges the answer and makes the objects: for a binding its ClusterRole, ClusterRoleBinding, Secret and
APIServiceBinding, for a bundle its Secret and APIServiceBindingBundle. Nothing here reads, writes or connects.

The provider's answer is data. Rights on the consumer are made here, of the exported resources and the accepted claims; an answer
that asks for anything beyond them raises :class:`ManifestRefusedError`.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypedDict

from ._core import names
from ._core.offer import OBJECT_VERBS, GroupResource, ManifestRefusedError, Offer, judge
from .v1alpha2 import (
    BindingResourceResponse,
    LabelSelector,
    PermissionClaim,
    Selector,
    SelectorReference,
)

__all__ = ["MANAGER", "Document", "ManifestOptions", "ManifestRefusedError", "Manifests", "canonical", "manifests"]

Document = dict[str, Any]
"""A Kubernetes object as JSON has it."""

MANAGER: Final = "kubectl-bind"
"""The value of the label ``app.kubernetes.io/managed-by`` on all objects but the Namespace."""

_API: Final = "kube-bind.io/v1alpha2"
_RBAC: Final = "rbac.authorization.k8s.io"
_STATUS_VERBS: Final = ("get", "patch", "update")
_KUBECONFIG_KEY: Final = "kubeconfig"
_SECRETS: Final = GroupResource("", "secrets")


class ManifestOptions(TypedDict, total=False):
    """The options of :func:`manifests`, for functions that pass them on."""

    name: str | None
    bundle: str | None
    template: str | None
    namespace: str
    service_account: str
    with_namespace: bool
    accept: Iterable[str] | None
    reject: Iterable[str]


@dataclass(frozen=True, slots=True, repr=False)
class Manifests:
    """All objects of one bind. One of them is a Secret, so ``repr`` shows names alone."""

    documents: tuple[Document, ...]
    """The objects in the order in which they are applied."""

    def canonical(self) -> str:
        """The objects in the canonical form, in which all SDKs write the same bytes: one line of JSON per object, keys in the
        order of their UTF-8 bytes, no insignificant space, a line feed after each line.
        """
        return "".join(f"{canonical(document)}\n" for document in self.documents)

    def __repr__(self) -> str:
        shown = ", ".join(f"{document['kind']} {document['metadata']['name']}" for document in self.documents)
        return f"Manifests({shown})"


def manifests(
    response: BindingResourceResponse,
    *,
    name: str | None = None,
    bundle: str | None = None,
    template: str | None = None,
    namespace: str = "kube-bind",
    service_account: str = "konnector",
    with_namespace: bool = False,
    accept: Iterable[str] | None = None,
    reject: Iterable[str] = (),
) -> Manifests:
    """Judges a provider's answer, and makes the objects of the binding or, if ``bundle`` is given, of a bundle of that name.

    :param name: Name of the binding that was asked for. An answer for another one is refused. None takes the name in the answer.
    :param template: The template that was bound, for an annotation. Bundles have none.
    :param namespace: Namespace of the konnector, and so of the Secret.
    :param service_account: ServiceAccount of the konnector.
    :param with_namespace: Whether the Namespace is the first object.
    :param accept: The resources whose claims are accepted, such as ``secrets`` or ``certificates.example.com``; claims on others
        are rejected. None accepts all that are not rejected, but never a claim on every Secret.
    :param reject: The resources whose claims are rejected, also if ``accept`` names them.
    :raises ManifestRefusedError: The answer asks for more than its exports and claims need, or lacks something.
    """
    binding = response.binding_name if name is None else name
    for wanted in (binding, bundle):
        if wanted is not None and not names.is_label(wanted):
            raise ManifestRefusedError(
                "Name",
                f"{wanted!r} cannot be the name of a binding: a name has 1 to 63 lower-case letters, digits and dashes",
            )
    offer = judge(response, binding)
    accepted, rejected = _decide(offer, accept, reject)
    if not response.kubeconfig.kubeconfig:
        raise ManifestRefusedError("NoKubeconfig", "it has no kubeconfig")
    owner = binding if bundle is None else f"bundle-{bundle}"
    secret = {"name": names.provider_kubeconfig_secret(owner), "key": _KUBECONFIG_KEY, "namespace": namespace}
    documents: list[Document] = []
    if with_namespace:
        documents.append({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})
    if bundle is None:
        role = names.konnector_cluster_role(binding)
        documents.append(_cluster_role(role, offer, accepted))
        documents.append(_cluster_role_binding(role, namespace, service_account))
        last = _binding(binding, template, offer, accepted, rejected, secret)
    else:
        last = _bundle(bundle, offer, accepted, secret)
    return Manifests((*documents, _secret(secret, response.kubeconfig.kubeconfig), last))


def canonical(document: Document | Sequence[Document]) -> str:
    """JSON with keys in the order of their UTF-8 bytes and without insignificant space."""
    # Python orders text by code points, which is the order of the UTF-8 bytes.
    return json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def _decide(offer: Offer, accept: Iterable[str] | None, reject: Iterable[str]) -> tuple[list[GroupResource], list[GroupResource]]:
    """Decides which claims are accepted and which are rejected."""
    wanted = None if accept is None else sorted(map(GroupResource.parse, accept))
    unwanted = sorted(map(GroupResource.parse, reject))
    for resource in wanted or ():
        if resource not in offer.claims:
            raise _not_claimed(resource)
    for resource in unwanted:
        # Resources of the core group may be rejected in advance: "never Secrets" holds for templates that claim none today.
        if resource not in offer.claims and not resource.is_claimable_core:
            raise _not_claimed(resource)
    chosen = offer.claims.keys() if wanted is None else set(wanted)
    accepted = [resource for resource in offer.claims if resource in chosen and resource not in unwanted]
    if wanted is None and _SECRETS in accepted and _selects_all(offer.claims[_SECRETS]):
        raise ManifestRefusedError(
            "EverySecret", "it claims EVERY Secret of the cluster; accept or reject the claim on secrets by name"
        )
    rejected = sorted({*unwanted, *(resource for resource in offer.claims if resource not in accepted)})
    return accepted, rejected


def _not_claimed(resource: GroupResource) -> ManifestRefusedError:
    return ManifestRefusedError("NotClaimed", f"{resource} is not claimed, so there is nothing to accept or reject")


def _selects_all(claim: PermissionClaim) -> bool:
    """Whether a claim selects every object: a label selector without a requirement does."""
    labels = claim.selector.label_selector
    return claim.selector.HasField("label_selector") and not labels.match_labels and not labels.match_expressions


# === Objects ===


def _managed(name: str, component: str | None = None) -> Document:
    labels = {"app.kubernetes.io/managed-by": MANAGER}
    if component is not None:
        labels["kube-bind.io/component"] = component
    return {"name": name, "labels": labels}


def _cluster_role(name: str, offer: Offer, accepted: Iterable[GroupResource]) -> Document:
    groups: dict[str, list[str]] = {}
    for resource in offer.resources:
        groups.setdefault(resource.group, []).append(resource.resource)
    rules: list[Document] = []
    for group, resources in groups.items():
        rules.append(_rule(group, resources, OBJECT_VERBS))
        rules.append(_rule(group, [f"{resource}/status" for resource in resources], _STATUS_VERBS))
    rules += [_rule(claim.group, [claim.resource], OBJECT_VERBS) for claim in accepted]
    # The konnector deletes its own rights as the last step of an unbind.
    own = _rule(_RBAC, ["clusterroles", "clusterrolebindings"], ("delete",))
    rules.append({**own, "resourceNames": [name]})
    return {
        "apiVersion": f"{_RBAC}/v1",
        "kind": "ClusterRole",
        "metadata": _managed(name, "binding-role"),
        "rules": rules,
    }


def _rule(group: str, resources: Sequence[str], verbs: Sequence[str]) -> Document:
    return {"apiGroups": [group], "resources": list(resources), "verbs": list(verbs)}


def _cluster_role_binding(name: str, namespace: str, service_account: str) -> Document:
    return {
        "apiVersion": f"{_RBAC}/v1",
        "kind": "ClusterRoleBinding",
        "metadata": _managed(name, "binding-role"),
        "roleRef": {"apiGroup": _RBAC, "kind": "ClusterRole", "name": name},
        "subjects": [{"kind": "ServiceAccount", "name": service_account, "namespace": namespace}],
    }


def _secret(reference: dict[str, str], kubeconfig: bytes) -> Document:
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {**_managed(reference["name"], "provider-kubeconfig"), "namespace": reference["namespace"]},
        "data": {reference["key"]: base64.b64encode(kubeconfig).decode()},
    }


def _binding(
    name: str,
    template: str | None,
    offer: Offer,
    accepted: Iterable[GroupResource],
    rejected: Iterable[GroupResource],
    secret: dict[str, str],
) -> Document:
    spec: Document = {"kubeconfigSecretRef": secret}
    refused = [_resource(resource) for resource in rejected]
    if refused:
        spec["rejectedPermissionClaims"] = refused
    annotations = {
        "kube-bind.io/resources": ",".join(map(str, offer.resources)),
        # What the user has seen and not rejected; what the provider claims later on needs another yes.
        "kube-bind.io/accepted-claims": canonical([_claim(offer.claims[resource]) for resource in accepted]),
    }
    if template is not None:
        annotations["kube-bind.io/template"] = template
    return {
        "apiVersion": _API,
        "kind": "APIServiceBinding",
        "metadata": {**_managed(name), "annotations": annotations},
        "spec": spec,
    }


def _bundle(name: str, offer: Offer, accepted: Iterable[GroupResource], secret: dict[str, str]) -> Document:
    spec: Document = {"kubeconfigSecretRef": secret}
    claims = [_claim(offer.claims[resource]) for resource in accepted]
    if claims:
        spec["acceptedClaims"] = claims
    return {"apiVersion": _API, "kind": "APIServiceBindingBundle", "metadata": _managed(name), "spec": spec}


# === Claims as in the CRD ===


def _resource(resource: GroupResource) -> Document:
    return {**_set(group=resource.group), "resource": resource.resource}


def _claim(claim: PermissionClaim) -> Document:
    return {**_resource(GroupResource(claim.group, claim.resource)), "selector": _selector(claim.selector)}


def _selector(selector: Selector) -> Document:
    named = [{"name": named.name, **_set(namespace=named.namespace)} for named in selector.named_resources]
    found = _set(namedResources=named, references=[_reference(reference) for reference in selector.references])
    if selector.HasField("label_selector"):
        found["labelSelector"] = _labels(selector.label_selector)
    return found


def _reference(reference: SelectorReference) -> Document:
    return {
        **_resource(GroupResource(reference.group, reference.resource)),
        **_set(versions=list(reference.versions)),
        "jsonPath": _set(name=reference.json_path.name, namespace=reference.json_path.namespace),
    }


def _labels(selector: LabelSelector) -> Document:
    expressions = [
        {"key": expression.key, "operator": expression.operator, **_set(values=list(expression.values))}
        for expression in selector.match_expressions
    ]
    return _set(matchLabels=dict(selector.match_labels), matchExpressions=expressions)


def _set(**fields: Any) -> Document:
    """The fields that are not empty."""
    return {key: value for key, value in fields.items() if value}
