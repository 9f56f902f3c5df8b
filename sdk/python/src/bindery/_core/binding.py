"""Results of binds and renewals, and the requests for binds."""

from __future__ import annotations

import datetime
from dataclasses import dataclass
from typing import Final, Unpack, overload

from google.protobuf.duration_pb2 import Duration

from ..objects import ManifestOptions, Manifests, make_manifests
from ..v1alpha2 import (
    BindableResourcesRequest,
    BindableResourcesRequestSpec,
    BindingResourceResponse,
    ClusterIdentity,
    CreateBindableResourcesRequestRequest,
    Kubeconfig,
    NameRef,
    ObjectMeta,
    RenewKubeconfigResponse,
    Template,
    TemplateSchema,
)
from .secret import Secret
from .settings import TIME_LIMIT_MAX


class Bound:
    """A fulfilled request, and what to install for it.

    The kubeconfig is a :class:`bindery.Secret` apart from the messages, so that printing or logging any of them does not show it.
    """

    __slots__ = ("_asked", "kubeconfig", "request", "response")

    def __init__(self, request: BindableResourcesRequest, response: BindingResourceResponse) -> None:
        """
        :param request: The request as the server has it.
        :param response: What to install on the consumer, with the kubeconfig.
        """
        stripped = BindingResourceResponse()
        stripped.CopyFrom(response)
        self.kubeconfig: Final = _take_content(stripped.kubeconfig) if response.HasField("kubeconfig") else Secret(b"")
        """The kubeconfig file (YAML); empty after a bind with ``validate_only``."""
        self.request: Final = request
        """The request in phase SUCCEEDED."""
        self.response: Final = stripped
        """What to install on the consumer, without the content of the kubeconfig."""
        self._asked = request

    def _of(self, asked: BindableResourcesRequest) -> Bound:
        """Notes the request that the caller made."""
        self._asked = asked
        return self

    def manifests(self, **options: Unpack[ManifestOptions]) -> Manifests:
        """Returns the objects that the consumer applies; the options are those of :func:`bindery.manifests`.

        The name and the template are those of the request unless they are given, so a response for another binding is refused.
        """
        if options.get("name") is None:
            options["name"] = self._asked.metadata.name or self.response.binding_name
        if options.get("template") is None:
            options["template"] = self._asked.spec.template_ref.name
        return make_manifests(self.response, self.kubeconfig.reveal(), options)

    def __repr__(self) -> str:
        return f"Bound(name={self.response.binding_name!r}, contract={self.response.provider_namespace!r})"


@dataclass(frozen=True, slots=True)
class BindResult:
    """The result of one call that binds a template."""

    request: BindableResourcesRequest
    """The request in phase PENDING or SUCCEEDED."""
    bound: Bound | None
    """What to install on the consumer; None while the request is pending."""


@dataclass(frozen=True, slots=True)
class TemplateDetails:
    """A template with the APIs that it installs on a consumer."""

    template: Template
    """What the provider's admin declared, and its state."""
    schemas: tuple[TemplateSchema, ...]
    """The APIs that it installs."""


@dataclass(frozen=True, slots=True)
class Renewed:
    """A renewed credential. Its kubeconfig is a :class:`bindery.Secret`, which printing or logging does not show."""

    contract: str
    """The contract namespace that the credential is for."""
    kubeconfig: Secret
    """The new kubeconfig file (YAML)."""
    details: Kubeconfig
    """The id of the credential and how long it is valid, without the content of the kubeconfig."""

    @property
    def expire_time(self) -> datetime.datetime | None:
        """When the credential expires by the provider's clock; None if the server did not say."""
        return self.details.expire_time.ToDatetime(datetime.UTC) if self.details.HasField("expire_time") else None

    @staticmethod
    def of(response: RenewKubeconfigResponse) -> Renewed:
        """Takes the content of the kubeconfig out of a response."""
        details = Kubeconfig()
        details.CopyFrom(response.kubeconfig)
        return Renewed(response.contract, _take_content(details), details)


def _take_content(kubeconfig: Kubeconfig) -> Secret:
    """Removes the content from a message, and returns it."""
    content = Secret(kubeconfig.kubeconfig)
    kubeconfig.ClearField("kubeconfig")
    return content


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
    """Returns the request to bind a template for a cluster. The binding has the name of the template unless another is given."""
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
        request.wait.CopyFrom(wait_duration(wait))
    return request


def duration(seconds: float) -> Duration:
    """Returns seconds as a message. Raises OverflowError or ValueError for seconds that it cannot hold."""
    message = Duration()
    message.FromNanoseconds(round(seconds * 1e9))
    return message


@overload
def wait_duration(seconds: None) -> None: ...
@overload
def wait_duration(seconds: float) -> Duration: ...
def wait_duration(seconds: float | None) -> Duration | None:
    """Returns how long the server may wait, which is cut to the limit of all times; None leaves it to the server."""
    return None if seconds is None else duration(min(seconds, TIME_LIMIT_MAX))
