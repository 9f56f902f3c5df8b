"""What comes of a bind, and the requests for it."""

from __future__ import annotations

import datetime
from dataclasses import dataclass
from typing import Unpack

from google.protobuf.duration_pb2 import Duration

from ..objects import ManifestOptions, Manifests, manifests
from ..v1alpha2 import (
    BindableResourcesRequest,
    BindableResourcesRequestSpec,
    BindingResourceResponse,
    ClusterIdentity,
    CreateBindableResourcesRequestRequest,
    Kubeconfig,
    NameRef,
    ObjectMeta,
    Template,
    TemplateSchema,
)


@dataclass(frozen=True, slots=True, repr=False)
class Bound:
    """A fulfilled request, and what to install for it. It holds a credential, which ``repr`` does not show."""

    request: BindableResourcesRequest
    """The request in phase SUCCEEDED."""
    response: BindingResourceResponse
    """What to install on the consumer."""

    @property
    def kubeconfig(self) -> bytes:
        """The kubeconfig file (YAML); empty after a bind with ``validate_only``."""
        return self.response.kubeconfig.kubeconfig

    def manifests(self, **options: Unpack[ManifestOptions]) -> Manifests:
        """The objects that the consumer applies; the options are those of :func:`bindery.manifests`.

        The name and the template are those of the request unless they are given.
        """
        options.setdefault("name", self.request.metadata.name or self.response.binding_name)
        options.setdefault("template", self.request.spec.template_ref.name or None)
        return manifests(self.response, **options)

    def __repr__(self) -> str:
        return f"Bound(name={self.response.binding_name!r}, contract={self.response.provider_namespace!r})"


@dataclass(frozen=True, slots=True)
class TemplateDetails:
    """A template with the APIs that it installs on a consumer."""

    template: Template
    """The template."""
    schemas: tuple[TemplateSchema, ...]
    """The APIs that it installs."""


@dataclass(frozen=True, slots=True, repr=False)
class Renewed:
    """A renewed credential, which ``repr`` does not show."""

    contract: str
    """The contract namespace that the credential is for."""
    kubeconfig: Kubeconfig
    """The new kubeconfig."""

    def __repr__(self) -> str:
        return f"Renewed(contract={self.contract!r}, credential_id={self.kubeconfig.credential_id!r})"


def bind_request(
    template: str,
    identity: str,
    *,
    name: str | None,
    pretty_name: str,
    wait: float | None,
    validate_only: bool,
    ttl_after_finished: float | None,
) -> CreateBindableResourcesRequestRequest:
    """The request to bind a template for a cluster. The binding has the name of the template unless another is given."""
    spec = BindableResourcesRequestSpec(
        template_ref=NameRef(name=template),
        cluster_identity=ClusterIdentity(identity=identity, pretty_name=pretty_name),
    )
    if ttl_after_finished is not None:
        spec.ttl_after_finished.CopyFrom(duration(ttl_after_finished))
    request = CreateBindableResourcesRequestRequest(
        bindable_resources_request=BindableResourcesRequest(
            metadata=ObjectMeta(name=template if name is None else name), spec=spec
        ),
        validate_only=validate_only,
    )
    if wait is not None:
        request.wait.CopyFrom(duration(wait))
    return request


def duration(seconds: float) -> Duration:
    """Seconds as a message."""
    message = Duration()
    message.FromTimedelta(datetime.timedelta(seconds=seconds))
    return message
