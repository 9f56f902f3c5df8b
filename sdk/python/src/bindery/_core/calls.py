"""The methods of the API as both clients have them: typed, with keywords in place of requests."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Final, TypeVar

from google.protobuf.message import Message

from .. import methods
from .. import v1alpha2 as api
from ..errors import PendingError, RequestFailedError
from ..methods import Method
from .binding import BindResult, Bound, Renewed, TemplateDetails, bind_request, duration, wait_duration
from .engine import CallEngine, server_wait

Q = TypeVar("Q", bound=Message)
A = TypeVar("A", bound=Message)

Progress = Callable[[api.BindableResourcesRequest], Awaitable[None] | None]
"""A callback that gets a request which is still pending."""

PATIENCE: Final = 300.0
"""Seconds that a bind waits if the caller does not say."""
_PENDING_PAUSE: Final = 1.0
"""Seconds between two calls if the server responds PENDING at once."""


class UnaryMethods:
    """The methods of the API. Coroutines of a sync client never suspend; see :mod:`bindery._core.io`."""

    def __init__(self, engine: CallEngine) -> None:
        self._engine: Final = engine

    async def call(self, method: Method[Q, A], request: Q, *, timeout: float | None = None) -> A:
        """Makes any unary call, with token, request id, deadline and retries. All typed methods use this one.

        :param method: One of :mod:`bindery.methods`.
        """
        if method.streams:
            raise ValueError(f"{method.name} is a watch, which has a method of its own")
        return await self._engine.call(method, request, timeout)

    async def bind(
        self,
        template: str,
        identity: str,
        *,
        name: str | None = None,
        pretty_name: str = "",
        wait: float | None = None,
        patience: float = PATIENCE,
        progress: Progress | None = None,
        validate_only: bool = False,
        ttl_after_finished: float | None = None,
        timeout: float | None = None,
    ) -> Bound:
        """Binds a template for a cluster, and waits for the result.

        It is idempotent: the same bind again goes on waiting, or returns what is there with a fresh kubeconfig.

        :param template: Name of the template.
        :param identity: Unique identity of the consumer cluster: the UID of its namespace ``kube-system``.
        :param name: Name of the binding; that of the template unless it is given.
        :param pretty_name: Name of the cluster for people.
        :param wait: Seconds that the server may wait in one call, within the patience. None means 30.
        :param patience: Seconds that the client waits in all. With 0 there is one call, which does not wait.
        :param progress: Called with the request each time that it is still pending.
        :param validate_only: Check everything and return at once what would be the result, but write nothing.
        :param ttl_after_finished: Seconds for which the record of the request is kept; None keeps it for ever.
        :param timeout: Time limit of each call in seconds.
        :raises RequestFailedError: The request failed; its conditions say why.
        :raises PendingError: The request is still pending. Bind again to go on waiting.
        """
        request = bind_request(
            template,
            identity,
            name=name,
            pretty_name=pretty_name,
            wait=wait,
            validate_only=validate_only,
            ttl_after_finished=ttl_after_finished,
        )
        return await self.bind_request(request, patience=patience, progress=progress, timeout=timeout)

    async def bind_request(
        self,
        request: api.CreateBindableResourcesRequestRequest,
        *,
        patience: float = PATIENCE,
        progress: Progress | None = None,
        timeout: float | None = None,
    ) -> Bound:
        """Binds by a request that the caller has made, and waits for the result, as :meth:`bind` does.

        :param patience: Seconds that the client waits in all. With 0 there is one call, which does not wait.
        :param progress: Called with the request each time that it is still pending.
        :param timeout: Time limit of each call in seconds.
        """
        io = self._engine.io
        start = before = io.now()
        while True:
            attempt = _within(request, patience - (before - start))
            result = await self.create_bindable_resources_request(attempt, timeout=timeout)
            if result.bound is not None:
                # The server may name another request than the one that was made.
                return result.bound._of(request.bindable_resources_request)
            pending = result.request
            if pending.status.phase == api.PHASE_SUCCEEDED or request.validate_only:
                raise self._engine.missing("response")
            if progress is not None:
                reported = progress(pending)
                if inspect.isawaitable(reported):
                    await reported
            waited = io.now() - start
            if waited >= patience:
                raise PendingError(pending, waited)
            await io.sleep(min(before + _PENDING_PAUSE, start + patience) - io.now())
            before = io.now()

    async def get_provider(self, *, timeout: float | None = None) -> api.Provider:
        """Returns the provider and how to log in. The call needs no token."""
        response = await self._engine.call(methods.GET_PROVIDER, api.GetProviderRequest(), timeout)
        if not response.HasField("provider"):
            raise self._engine.missing("provider")
        return response.provider

    async def get_caller(self, *, timeout: float | None = None) -> api.Caller:
        """Returns who the caller is to the provider: its user, its groups, and how long its token is valid."""
        response = await self._engine.call(methods.GET_CALLER, api.GetCallerRequest(), timeout)
        if not response.HasField("caller"):
            raise self._engine.missing("caller")
        return response.caller

    async def get_template(self, name: str, *, timeout: float | None = None) -> TemplateDetails:
        """Returns one template with the APIs that it installs."""
        response = await self._engine.call(methods.GET_TEMPLATE, api.GetTemplateRequest(name=name), timeout)
        if not response.HasField("template"):
            raise self._engine.missing("template")
        return TemplateDetails(response.template, tuple(response.schemas))

    async def get_collection(self, name: str, *, timeout: float | None = None) -> api.Collection:
        """Returns one collection."""
        response = await self._engine.call(methods.GET_COLLECTION, api.GetCollectionRequest(name=name), timeout)
        if not response.HasField("collection"):
            raise self._engine.missing("collection")
        return response.collection

    async def create_bindable_resources_request(
        self, request: api.CreateBindableResourcesRequestRequest, *, timeout: float | None = None
    ) -> BindResult:
        """Binds a template, with one call that may take as long as the request's ``wait`` says.

        Phase PENDING is returned as it is: the same call again goes on waiting.

        :raises RequestFailedError: The request is in phase FAILED.
        """
        response = await self._engine.call(methods.CREATE_BINDABLE_RESOURCES_REQUEST, request, timeout)
        if not response.HasField("bindable_resources_request"):
            raise self._engine.missing("request")
        if response.bindable_resources_request.status.phase == api.PHASE_FAILED:
            raise RequestFailedError(response.bindable_resources_request)
        made = response.bindable_resources_request
        return BindResult(made, Bound(made, response.response) if response.HasField("response") else None)

    async def get_bindable_resources_request(
        self, name: str, cluster_identity: str, *, timeout: float | None = None
    ) -> api.BindableResourcesRequest:
        """Returns one of the caller's requests, without a kubeconfig."""
        request = api.GetBindableResourcesRequestRequest(name=name, cluster_identity=cluster_identity)
        response = await self._engine.call(methods.GET_BINDABLE_RESOURCES_REQUEST, request, timeout)
        if not response.HasField("bindable_resources_request"):
            raise self._engine.missing("request")
        return response.bindable_resources_request

    async def delete_bindable_resources_request(
        self,
        name: str,
        cluster_identity: str,
        *,
        uid: str = "",
        resource_version: str = "",
        allow_missing: bool = False,
        timeout: float | None = None,
    ) -> None:
        """Removes the record of a request. The export stays bound.

        :param uid: Only if the request still has this UID.
        :param resource_version: Only if the request still has this version.
        :param allow_missing: Succeed if there is no such request.
        """
        request = api.DeleteBindableResourcesRequestRequest(
            name=name,
            cluster_identity=cluster_identity,
            uid=uid,
            resource_version=resource_version,
            allow_missing=allow_missing,
        )
        await self._engine.call(methods.DELETE_BINDABLE_RESOURCES_REQUEST, request, timeout)

    async def get_export(self, contract: str, name: str, *, timeout: float | None = None) -> api.Export:
        """Returns one export.

        :param contract: The contract namespace; may be empty if the caller has only one contract.
        :param name: Name of the export.
        """
        request = api.GetExportRequest(contract=contract, name=name)
        response = await self._engine.call(methods.GET_EXPORT, request, timeout)
        if not response.HasField("export"):
            raise self._engine.missing("export")
        return response.export

    async def get_bound_schema(
        self, contract: str, name: str, *, known_hash: str | None = None, timeout: float | None = None
    ) -> api.BoundSchema | None:
        """Returns one schema; None if ``known_hash`` is current.

        :param contract: The contract namespace; may be empty if the caller has only one contract.
        :param name: ``<plural>.<group>``.
        :param known_hash: Hash of the schema that the caller has.
        """
        request = api.GetBoundSchemaRequest(contract=contract, name=name, known_hash=known_hash or "")
        response = await self._engine.call(methods.GET_BOUND_SCHEMA, request, timeout)
        if response.HasField("bound_schema"):
            return response.bound_schema
        if response.unchanged and known_hash:
            return None
        raise self._engine.missing("bound schema")

    async def delete_export(
        self,
        contract: str,
        name: str,
        uid: str,
        *,
        allow_missing: bool = False,
        validate_only: bool = False,
        force: bool = False,
        wait: float | None = None,
        timeout: float | None = None,
    ) -> api.DeleteExportResponse:
        """Unbinds an export, and returns the number of leftovers.

        :param contract: The contract namespace; may be empty if the caller has only one contract.
        :param name: Name of the export.
        :param uid: UID of the export: one that was bound anew under the same name is not unbound by a late call.
        :param allow_missing: Succeed if there is no such export.
        :param validate_only: Check everything and count the leftovers, but write nothing.
        :param force: Unbind although objects are left on the provider; they stay there, marked as released.
        :param wait: Seconds that the server may wait until the export is gone. None means 30.
        """
        request = api.DeleteExportRequest(
            contract=contract,
            name=name,
            uid=uid,
            allow_missing=allow_missing,
            validate_only=validate_only,
            force=force,
            wait=wait_duration(wait),
        )
        return await self._engine.call(methods.DELETE_EXPORT, request, timeout)

    async def renew_kubeconfig(self, contract: str = "", *, timeout: float | None = None) -> Renewed:
        """Returns a new kubeconfig for a contract. The old one stays valid until it expires.

        Each call mints a credential, so it is not repeated unless the first one certainly had no effect.

        :param contract: The contract namespace; may be empty if the caller has only one contract.
        """
        response = await self._engine.call(methods.RENEW_KUBECONFIG, api.RenewKubeconfigRequest(contract=contract), timeout)
        if not response.HasField("kubeconfig"):
            raise self._engine.missing("kubeconfig")
        return Renewed.of(response)

    async def revoke_credentials(
        self, contract: str, *, reason: str = "", timeout: float | None = None
    ) -> api.RevokeCredentialsResponse:
        """Revokes all credentials of a contract, and stops their renewal until an owner binds again."""
        request = api.RevokeCredentialsRequest(contract=contract, reason=reason)
        return await self._engine.call(methods.REVOKE_CREDENTIALS, request, timeout)

    async def get_contract(self, contract: str, *, timeout: float | None = None) -> api.Contract:
        """Returns one contract, by the name of its namespace."""
        response = await self._engine.call(methods.GET_CONTRACT, api.GetContractRequest(contract=contract), timeout)
        if not response.HasField("contract"):
            raise self._engine.missing("contract")
        return response.contract

    async def share_contract(
        self,
        contract: str,
        *,
        uid: str = "",
        add_groups: Iterable[str] = (),
        remove_groups: Iterable[str] = (),
        validate_only: bool = False,
        timeout: float | None = None,
    ) -> api.Contract:
        """Changes the owner groups of a contract, and returns the contract as it is then.

        :param uid: Only if the contract has this UID.
        :param add_groups: Groups that become owners.
        :param remove_groups: Groups that are owners no longer.
        :param validate_only: Check everything and return what would be the result, but write nothing.
        """
        request = api.ShareContractRequest(
            contract=contract,
            uid=uid,
            add_groups=add_groups,
            remove_groups=remove_groups,
            validate_only=validate_only,
        )
        response = await self._engine.call(methods.SHARE_CONTRACT, request, timeout)
        if not response.HasField("contract"):
            raise self._engine.missing("contract")
        return response.contract

    async def revoke_contract(
        self, contract: str, *, uid: str = "", reason: str = "", timeout: float | None = None
    ) -> api.RevokeContractResponse:
        """Revokes all credentials of a contract, and stops their renewal until an owner binds again.

        :param uid: Only if the contract has this UID.
        :param reason: Why, for people.
        """
        request = api.RevokeContractRequest(contract=contract, uid=uid, reason=reason)
        return await self._engine.call(methods.REVOKE_CONTRACT, request, timeout)

    async def unbind_contract(
        self,
        contract: str,
        *,
        uid: str = "",
        exports: Iterable[str] = (),
        force: bool = False,
        validate_only: bool = False,
        wait: float | None = None,
        timeout: float | None = None,
    ) -> Sequence[api.UnboundExport]:
        """Unbinds exports of a contract, and returns those that are still there.

        :param uid: Only if the contract has this UID.
        :param exports: Names of the exports; empty means all.
        :param force: Unbind although objects are left on the provider; they stay there, marked as released.
        :param validate_only: Check everything and count the leftovers, but write nothing.
        :param wait: Seconds that the server may wait until the exports are gone. None means 30.
        """
        request = api.UnbindContractRequest(
            contract=contract,
            uid=uid,
            exports=exports,
            force=force,
            validate_only=validate_only,
            wait=wait_duration(wait),
        )
        response = await self._engine.call(methods.UNBIND_CONTRACT, request, timeout)
        return response.exports


def _within(request: api.CreateBindableResourcesRequestRequest, patience: float) -> api.CreateBindableResourcesRequestRequest:
    """Returns the request with a wait that does not exceed the patience that is left."""
    left = max(0.0, patience)
    if request.validate_only or left >= server_wait(request):
        return request
    shorter = api.CreateBindableResourcesRequestRequest()
    shorter.CopyFrom(request)
    shorter.wait.CopyFrom(duration(left))
    return shorter
