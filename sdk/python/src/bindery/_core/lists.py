"""The lists and watches of the API."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from .. import methods
from .. import v1alpha2 as api
from .engine import Engine
from .pages import Pager
from .watching import WatchRun


class Lists:
    """Begins lists and watches, which each client wraps into iterators of its own."""

    def __init__(self, engine: Engine) -> None:
        self._engine: Final = engine

    def list_templates(
        self,
        *,
        label_selector: str = "",
        collection: str = "",
        page_size: int = 0,
        page_token: str = "",
        timeout: float | None = None,
    ) -> Pager[api.Template]:
        """Reads the templates that the caller may bind."""
        request = api.ListTemplatesRequest(
            label_selector=label_selector, collection=collection, page_size=page_size, page_token=page_token
        )
        return Pager(self._engine, methods.LIST_TEMPLATES, request, "templates", timeout)

    def list_collections(
        self, *, label_selector: str = "", page_size: int = 0, page_token: str = "", timeout: float | None = None
    ) -> Pager[api.Collection]:
        """Reads the collections that hold a template which the caller may bind."""
        request = api.ListCollectionsRequest(label_selector=label_selector, page_size=page_size, page_token=page_token)
        return Pager(self._engine, methods.LIST_COLLECTIONS, request, "collections", timeout)

    def list_bindable_resources_requests(
        self, *, cluster_identity: str = "", page_size: int = 0, page_token: str = "", timeout: float | None = None
    ) -> Pager[api.BindableResourcesRequest]:
        """Reads the caller's requests."""
        request = api.ListBindableResourcesRequestsRequest(
            cluster_identity=cluster_identity, page_size=page_size, page_token=page_token
        )
        return Pager(self._engine, methods.LIST_BINDABLE_RESOURCES_REQUESTS, request, "bindable_resources_requests", timeout)

    def list_exports(
        self,
        *,
        contract: str = "",
        label_selector: str = "",
        page_size: int = 0,
        page_token: str = "",
        timeout: float | None = None,
    ) -> Pager[api.Export]:
        """Reads the exports of one contract, or of all of the caller's."""
        request = api.ListExportsRequest(
            contract=contract, label_selector=label_selector, page_size=page_size, page_token=page_token
        )
        return Pager(self._engine, methods.LIST_EXPORTS, request, "exports", timeout)

    def list_contracts(
        self,
        *,
        owned: bool = False,
        cluster_identity: str = "",
        page_size: int = 0,
        page_token: str = "",
        timeout: float | None = None,
    ) -> Pager[api.Contract]:
        """Reads the contracts that the caller may list."""
        request = api.ListContractsRequest(
            owned=owned, cluster_identity=cluster_identity, page_size=page_size, page_token=page_token
        )
        return Pager(self._engine, methods.LIST_CONTRACTS, request, "contracts", timeout)

    def watch_exports(self, *, contract: str = "", label_selector: str = "", resume_token: str = "") -> WatchRun[api.Export]:
        """Watches exports across disconnects."""
        request = api.WatchExportsRequest(contract=contract, label_selector=label_selector, resume_token=resume_token)
        return WatchRun(self._engine, methods.WATCH_EXPORTS, request)

    def watch_bindable_resources_requests(
        self, *, cluster_identity: str = "", names: Iterable[str] = (), resume_token: str = ""
    ) -> WatchRun[api.BindableResourcesRequest]:
        """Watches the caller's requests across disconnects."""
        request = api.WatchBindableResourcesRequestsRequest(
            cluster_identity=cluster_identity, names=names, resume_token=resume_token
        )
        return WatchRun(self._engine, methods.WATCH_BINDABLE_RESOURCES_REQUESTS, request)

    def watch_contracts(self, *, owned: bool = False, resume_token: str = "") -> WatchRun[api.Contract]:
        """Watches the contracts that the caller may see across disconnects."""
        request = api.WatchContractsRequest(owned=owned, resume_token=resume_token)
        return WatchRun(self._engine, methods.WATCH_CONTRACTS, request)
