"""The methods of the API, each with its messages, for :meth:`bindery.Client.call`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Generic, TypeVar

from google.protobuf.descriptor_pb2 import MethodOptions
from google.protobuf.message import Message

from . import v1alpha2 as api
from ._gen.kubebind.v1alpha2 import binding_pb2, catalog_pb2, contract_pb2, credential_pb2, export_pb2, provider_pb2

__all__ = ["ALL", "Method"]

Q = TypeVar("Q", bound=Message)
A = TypeVar("A", bound=Message)

_SERVICES: Final = {
    name: service
    for file in (binding_pb2, catalog_pb2, contract_pb2, credential_pb2, export_pb2, provider_pb2)
    for name, service in file.DESCRIPTOR.services_by_name.items()
}


class Method(Generic[Q, A]):
    """A method with requests ``Q`` and responses ``A``."""

    __slots__ = ("idempotent", "is_open", "name", "path", "request", "response", "streams", "waits")

    def __init__(self, service: str, name: str, request: type[Q], response: type[A]) -> None:
        descriptor = _SERVICES[service].methods_by_name[name]
        level = descriptor.GetOptions().idempotency_level
        self.name: Final = name
        self.path: Final = f"/{_SERVICES[service].full_name}/{name}"
        """Path of the method, such as ``/kubebind.v1alpha2.ExportService/GetExport``."""
        self.request: Final = request
        self.response: Final = response
        self.idempotent: Final = level != MethodOptions.IDEMPOTENCY_UNKNOWN
        """Whether a call may be repeated when it is unknown whether the server executed it."""
        self.is_open: Final = name == "GetProvider"
        """Whether the method is called without a token: who asks how to log in has none, or an expired one."""
        self.streams: Final = descriptor.server_streaming
        """Whether the method is a watch."""
        self.waits: Final = "wait" in request.DESCRIPTOR.fields_by_name
        """Whether the server may wait for a controller before it responds."""

    def __repr__(self) -> str:
        return f"Method({self.path})"


GET_PROVIDER: Final = Method("ProviderService", "GetProvider", api.GetProviderRequest, api.GetProviderResponse)
GET_CALLER: Final = Method("ProviderService", "GetCaller", api.GetCallerRequest, api.GetCallerResponse)
LIST_TEMPLATES: Final = Method("CatalogService", "ListTemplates", api.ListTemplatesRequest, api.ListTemplatesResponse)
GET_TEMPLATE: Final = Method("CatalogService", "GetTemplate", api.GetTemplateRequest, api.GetTemplateResponse)
LIST_COLLECTIONS: Final = Method(
    "CatalogService",
    "ListCollections",
    api.ListCollectionsRequest,
    api.ListCollectionsResponse,
)
GET_COLLECTION: Final = Method("CatalogService", "GetCollection", api.GetCollectionRequest, api.GetCollectionResponse)
CREATE_BINDABLE_RESOURCES_REQUEST: Final = Method(
    "BindingService",
    "CreateBindableResourcesRequest",
    api.CreateBindableResourcesRequestRequest,
    api.CreateBindableResourcesRequestResponse,
)
GET_BINDABLE_RESOURCES_REQUEST: Final = Method(
    "BindingService",
    "GetBindableResourcesRequest",
    api.GetBindableResourcesRequestRequest,
    api.GetBindableResourcesRequestResponse,
)
LIST_BINDABLE_RESOURCES_REQUESTS: Final = Method(
    "BindingService",
    "ListBindableResourcesRequests",
    api.ListBindableResourcesRequestsRequest,
    api.ListBindableResourcesRequestsResponse,
)
WATCH_BINDABLE_RESOURCES_REQUESTS: Final = Method(
    "BindingService",
    "WatchBindableResourcesRequests",
    api.WatchBindableResourcesRequestsRequest,
    api.WatchBindableResourcesRequestsResponse,
)
DELETE_BINDABLE_RESOURCES_REQUEST: Final = Method(
    "BindingService",
    "DeleteBindableResourcesRequest",
    api.DeleteBindableResourcesRequestRequest,
    api.DeleteBindableResourcesRequestResponse,
)
LIST_EXPORTS: Final = Method("ExportService", "ListExports", api.ListExportsRequest, api.ListExportsResponse)
GET_EXPORT: Final = Method("ExportService", "GetExport", api.GetExportRequest, api.GetExportResponse)
WATCH_EXPORTS: Final = Method("ExportService", "WatchExports", api.WatchExportsRequest, api.WatchExportsResponse)
GET_BOUND_SCHEMA: Final = Method(
    "ExportService",
    "GetBoundSchema",
    api.GetBoundSchemaRequest,
    api.GetBoundSchemaResponse,
)
DELETE_EXPORT: Final = Method("ExportService", "DeleteExport", api.DeleteExportRequest, api.DeleteExportResponse)
RENEW_KUBECONFIG: Final = Method(
    "CredentialService",
    "RenewKubeconfig",
    api.RenewKubeconfigRequest,
    api.RenewKubeconfigResponse,
)
REVOKE_CREDENTIALS: Final = Method(
    "CredentialService",
    "RevokeCredentials",
    api.RevokeCredentialsRequest,
    api.RevokeCredentialsResponse,
)
LIST_CONTRACTS: Final = Method("ContractService", "ListContracts", api.ListContractsRequest, api.ListContractsResponse)
GET_CONTRACT: Final = Method("ContractService", "GetContract", api.GetContractRequest, api.GetContractResponse)
WATCH_CONTRACTS: Final = Method(
    "ContractService",
    "WatchContracts",
    api.WatchContractsRequest,
    api.WatchContractsResponse,
)
SHARE_CONTRACT: Final = Method("ContractService", "ShareContract", api.ShareContractRequest, api.ShareContractResponse)
REVOKE_CONTRACT: Final = Method(
    "ContractService",
    "RevokeContract",
    api.RevokeContractRequest,
    api.RevokeContractResponse,
)
UNBIND_CONTRACT: Final = Method(
    "ContractService",
    "UnbindContract",
    api.UnbindContractRequest,
    api.UnbindContractResponse,
)

ALL: Final[Mapping[str, Method[Message, Message]]] = {
    value.name: value for value in dict(globals()).values() if isinstance(value, Method)
}
"""All methods by their names, such as ``GetExport``."""
