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
from .binding import Bound, Renewed, TemplateDetails, bind_request, duration
from .engine import Engine

Q = TypeVar("Q", bound=Message)
A = TypeVar("A", bound=Message)

Progress = Callable[[api.BindableResourcesRequest], Awaitable[None] | None]
"""Told of a request that is still pending."""

PATIENCE: Final = 300.0
"""Seconds that a bind waits if the caller does not say."""
_PENDING_PAUSE: Final = 1.0
"""Seconds between two calls if the server responds PENDING at once."""


class Calls:
    """The methods of the API. Coroutines of a sync client never suspend; see :mod:`bindery._core.io`."""

    def __init__(self, engine: Engine) -> None:
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
        :param wait: Seconds that the server may wait in one call. None means 30.
        :param patience: Seconds that the client waits in all.
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

        :param patience: Seconds that the client waits in all.
        :param progress: Called with the request each time that it is still pending.
        :param timeout: Time limit of each call in seconds.
        """
        io = self._engine.io
        start = io.now()
        while True:
            asked = io.now()
            answer = await self.create_bindable_resources_request(request, timeout=timeout)
            pending = answer.bindable_resources_request
            if answer.HasField("response"):
                return Bound(pending, answer.response)
            if pending.status.phase == api.PHASE_SUCCEEDED or request.validate_only:
                raise self._engine.missing("response")
            if progress is not None:
                told = progress(pending)
                if inspect.isawaitable(told):
                    await told
            if io.now() - start >= patience:
                raise PendingError(pending, io.now() - start)
            await io.sleep(asked + _PENDING_PAUSE - io.now())

    async def get_provider(self, *, timeout: float | None = None) -> api.Provider:
        """Returns the provider and how to log in. The call needs no token."""
        answer = await self._engine.call(methods.GET_PROVIDER, api.GetProviderRequest(), timeout)
        if not answer.HasField("provider"):
            raise self._engine.missing("provider")
        return answer.provider

    async def get_caller(self, *, timeout: float | None = None) -> api.Caller:
        """Returns who the caller is to the provider: its user, its groups, and how long its token is valid."""
        answer = await self._engine.call(methods.GET_CALLER, api.GetCallerRequest(), timeout)
        if not answer.HasField("caller"):
            raise self._engine.missing("caller")
        return answer.caller

    async def get_template(self, name: str, *, timeout: float | None = None) -> TemplateDetails:
        """Returns one template with the APIs that it installs."""
        answer = await self._engine.call(methods.GET_TEMPLATE, api.GetTemplateRequest(name=name), timeout)
        if not answer.HasField("template"):
            raise self._engine.missing("template")
        return TemplateDetails(answer.template, tuple(answer.schemas))

    async def get_collection(self, name: str, *, timeout: float | None = None) -> api.Collection:
        """Returns one collection."""
        answer = await self._engine.call(methods.GET_COLLECTION, api.GetCollectionRequest(name=name), timeout)
        if not answer.HasField("collection"):
            raise self._engine.missing("collection")
        return answer.collection

    async def create_bindable_resources_request(
        self, request: api.CreateBindableResourcesRequestRequest, *, timeout: float | None = None
    ) -> api.CreateBindableResourcesRequestResponse:
        """Binds a template, with one call that may take as long as the request's ``wait`` says.

        Phase PENDING is returned as it is: the same call again goes on waiting.

        :raises RequestFailedError: The request is in phase FAILED.
        """
        answer = await self._engine.call(methods.CREATE_BINDABLE_RESOURCES_REQUEST, request, timeout)
        if not answer.HasField("bindable_resources_request"):
            raise self._engine.missing("request")
        if answer.bindable_resources_request.status.phase == api.PHASE_FAILED:
            raise RequestFailedError(answer.bindable_resources_request)
        return answer

    async def get_bindable_resources_request(
        self, name: str, cluster_identity: str, *, timeout: float | None = None
    ) -> api.BindableResourcesRequest:
        """Returns one of the caller's requests, without a kubeconfig."""
        request = api.GetBindableResourcesRequestRequest(name=name, cluster_identity=cluster_identity)
        answer = await self._engine.call(methods.GET_BINDABLE_RESOURCES_REQUEST, request, timeout)
        if not answer.HasField("bindable_resources_request"):
            raise self._engine.missing("request")
        return answer.bindable_resources_request

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

    async def get_export(self, name: str, *, contract: str = "", timeout: float | None = None) -> api.Export:
        """Returns one export.

        :param contract: The contract namespace; may be empty if the caller has only one contract.
        """
        request = api.GetExportRequest(contract=contract, name=name)
        answer = await self._engine.call(methods.GET_EXPORT, request, timeout)
        if not answer.HasField("export"):
            raise self._engine.missing("export")
        return answer.export

    async def get_bound_schema(
        self, name: str, *, contract: str = "", known_hash: str | None = None, timeout: float | None = None
    ) -> api.BoundSchema | None:
        """Returns one schema; None if ``known_hash`` is current.

        :param name: ``<plural>.<group>``.
        :param contract: The contract namespace; may be empty if the caller has only one contract.
        :param known_hash: Hash of the schema that the caller has.
        """
        request = api.GetBoundSchemaRequest(contract=contract, name=name, known_hash=known_hash or "")
        answer = await self._engine.call(methods.GET_BOUND_SCHEMA, request, timeout)
        if answer.HasField("bound_schema"):
            return answer.bound_schema
        if answer.unchanged and known_hash:
            return None
        raise self._engine.missing("bound schema")

    async def delete_export(
        self,
        name: str,
        uid: str,
        *,
        contract: str = "",
        allow_missing: bool = False,
        validate_only: bool = False,
        force: bool = False,
        wait: float | None = None,
        timeout: float | None = None,
    ) -> api.DeleteExportResponse:
        """Unbinds an export, and returns the number of leftovers.

        :param uid: UID of the export: one that was bound anew under the same name is not unbound by a late call.
        :param contract: The contract namespace; may be empty if the caller has only one contract.
        :param allow_missing: Succeed if there is no such export.
        :param validate_only: Check everything and count the leftovers, but write nothing.
        :param force: Unbind although objects are left on the provider; they stay there.
        :param wait: Seconds that the server may wait until the export is gone. None means 30.
        """
        request = api.DeleteExportRequest(
            contract=contract,
            name=name,
            uid=uid,
            allow_missing=allow_missing,
            validate_only=validate_only,
            force=force,
            wait=None if wait is None else duration(wait),
        )
        return await self._engine.call(methods.DELETE_EXPORT, request, timeout)

    async def renew_kubeconfig(self, contract: str = "", *, timeout: float | None = None) -> Renewed:
        """Returns a new kubeconfig for a contract. The old one stays valid until it expires.

        Each call mints a credential, so it is not repeated unless the first one certainly had no effect.

        :param contract: The contract namespace; may be empty if the caller has only one contract.
        """
        answer = await self._engine.call(methods.RENEW_KUBECONFIG, api.RenewKubeconfigRequest(contract=contract), timeout)
        if not answer.HasField("kubeconfig"):
            raise self._engine.missing("kubeconfig")
        return Renewed(answer.contract, answer.kubeconfig)

    async def revoke_credentials(
        self, contract: str, *, reason: str = "", timeout: float | None = None
    ) -> api.RevokeCredentialsResponse:
        """Revokes all credentials of a contract, and stops their renewal until an owner binds again."""
        request = api.RevokeCredentialsRequest(contract=contract, reason=reason)
        return await self._engine.call(methods.REVOKE_CREDENTIALS, request, timeout)

    async def get_contract(self, contract: str, *, timeout: float | None = None) -> api.Contract:
        """Returns one contract, by the name of its namespace."""
        answer = await self._engine.call(methods.GET_CONTRACT, api.GetContractRequest(contract=contract), timeout)
        if not answer.HasField("contract"):
            raise self._engine.missing("contract")
        return answer.contract

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
        answer = await self._engine.call(methods.SHARE_CONTRACT, request, timeout)
        if not answer.HasField("contract"):
            raise self._engine.missing("contract")
        return answer.contract

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
        :param force: Unbind although objects are left on the provider; they stay there.
        :param validate_only: Check everything and count the leftovers, but write nothing.
        :param wait: Seconds that the server may wait until the exports are gone. None means 30.
        """
        request = api.UnbindContractRequest(
            contract=contract,
            uid=uid,
            exports=exports,
            force=force,
            validate_only=validate_only,
            wait=None if wait is None else duration(wait),
        )
        answer = await self._engine.call(methods.UNBIND_CONTRACT, request, timeout)
        return answer.exports
