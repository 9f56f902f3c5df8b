"""The sync client, its lists and its watches."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from types import TracebackType
from typing import Final, Generic, TypeVar

from google.protobuf.message import Message

from . import v1alpha2 as api
from ._cancel import CancelScope, current_scope, guard_by
from ._core.binding import BindResult, Bound, Renewed, TemplateDetails
from ._core.calls import PATIENCE, UnaryMethods
from ._core.engine import CallEngine
from ._core.io import finish
from ._core.lists import ListMethods
from ._core.pages import Pager
from ._core.retry import RetryPolicy
from ._core.settings import WatchSettings, check
from ._core.sources import Token, source_of
from ._core.watching import WatchRun
from ._sync import SyncIO
from .errors import CallCancelledError
from .events import WatchEvent
from .methods import Method

__all__ = ["CancelScope", "Client", "Pages", "Progress", "Token", "Watch"]

T = TypeVar("T")
Q = TypeVar("Q", bound=Message)
A = TypeVar("A", bound=Message)

Progress = Callable[[api.BindableResourcesRequest], None]
"""A callback that gets a request which is still pending."""


class Pages(Iterator[T], Generic[T]):
    """Iterates over the items of a list, and fetches its pages as it goes. Used by one thread at a time."""

    def __init__(self, pager: Pager[T]) -> None:
        self._pager: Final = pager
        self._items: Final[deque[T]] = deque()

    def __next__(self) -> T:
        while not self._items:
            page = finish(self._pager.next_page())
            if page is None:
                raise StopIteration
            self._items.extend(page)
        return self._items.popleft()


class Watch(Iterator[WatchEvent[T]], Generic[T]):
    """Iterates over the events of a watch that reconnects and resumes by itself after random delays. See :mod:`bindery.events`.

    It raises an error, and ends, only where a retry cannot help: the token is refused, a right is missing, or the contract does not
    exist. An event counts as processed when the next one is asked for; :attr:`resume_token` and reconnects rely on that.

    One thread iterates; any thread may call :meth:`close`, which ends the iteration. If the client is closed instead, the iteration
    raises CallCancelledError. It is a context manager that closes itself.
    """

    def __init__(self, run: WatchRun[T]) -> None:
        self._run: Final = run

    @property
    def resume_token(self) -> str:
        """The token with which another watch with the same filter can resume, also with other credentials. Empty until a snapshot
        is complete.
        """
        return self._run.resume_token

    def close(self) -> None:
        """Ends the watch."""
        self._run.stop()

    def __next__(self) -> WatchEvent[T]:
        scope = current_scope()
        if scope is not None and scope.is_cancelled:
            self._run.stop()
        with guard_by(scope, self._run.stop):
            event = finish(self._run.next())
        if event is not None:
            return event
        if scope is not None and scope.is_cancelled:
            raise CallCancelledError("the watch was cancelled")
        raise StopIteration

    def __enter__(self) -> Watch[T]:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Watch(resume_token={self.resume_token!r})"


class Client:
    """A client of one backend. All methods block, and may be called from any number of threads, which share a connection.

    :class:`bindery.CancelScope` cancels calls without closing the client. A client must not be used across ``fork``: make it in the
    child. It is a context manager that closes itself.
    """

    def __init__(
        self,
        address: str,
        *,
        token: Token | None = None,
        ca_file: str | os.PathLike[str] | None = None,
        ca_pem: bytes | str | None = None,
        client_certificate: tuple[bytes | str, bytes | str] | None = None,
        server_name: str | None = None,
        allow_plaintext: bool = False,
        timeout: float | None = None,
        attempt_timeout: float | None = None,
        connect_timeout: float = 10.0,
        retry: RetryPolicy | None = None,
        user_agent: str | None = None,
        _watch: WatchSettings | None = None,
    ) -> None:
        """The settings are checked at once; the client connects with its first call.

        :param address: ``https://host:port``, or with a path prefix under which a proxy serves the backend.
        :param token: A token, a source of :mod:`bindery.tokens`, or a function that returns a token.
            It must be for :attr:`audience`. None sends no token.
        :param ca_file: File with the CA certificates (PEM) to trust instead of those of the system.
        :param ca_pem: The CA certificates themselves.
        :param client_certificate: A certificate with its intermediates, and its private key, both PEM, for a server that asks
            for one. A token is needed all the same.
        :param server_name: The name that the server's certificate must be for, instead of the host of the address.
        :param allow_plaintext: Allow ``http://`` to a loopback address. It is never allowed to other hosts.
        :param timeout: Time limit of a call with all its attempts in seconds: 30 unless set, and longer for calls that wait for a
            controller. Limits above 24 hours are 24 hours.
        :param attempt_timeout: Time limit of one attempt: 10 s unless set, and longer for calls that wait for a controller.
        :param connect_timeout: Time limit on connecting, TLS included.
        :param retry: How often and how soon failed calls are retried.
        :param user_agent: Name of the program, which precedes the SDK's own in the server's log.
        :raises ConfigurationError: The settings cannot work.
        """
        self._settings: Final = replace(
            check(
                address,
                ca_file=ca_file,
                ca_pem=ca_pem,
                client_certificate=client_certificate,
                server_name=server_name,
                allow_plaintext=allow_plaintext,
                timeout=timeout,
                attempt_timeout=attempt_timeout,
                connect_timeout=connect_timeout,
                retry=retry,
                user_agent=user_agent,
            ),
            watch=_watch or WatchSettings(),
        )
        source = source_of(token)
        self._io: Final = SyncIO(self._settings, source)
        self._engine: Final = CallEngine(self._io, self._settings, has_tokens=source is not None)
        self._calls: Final = UnaryMethods(self._engine)
        self._lists: Final = ListMethods(self._engine)

    @property
    def audience(self) -> str:
        """The audience that tokens must have. It follows from the address alone, never from a response."""
        return str(self._settings.address)

    def close(self) -> None:
        """Closes all connections. Calls and watches that are under way raise CallCancelledError."""
        try:
            self._engine.end_watches()
        finally:
            self._io.close()

    def __enter__(self) -> Client:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Client({self.audience!r})"

    def call(self, method: Method[Q, A], request: Q, *, timeout: float | None = None) -> A:
        """Makes any unary call, with token, request id, deadline and retries. All typed methods use this one.

        :param method: One of :mod:`bindery.methods`.
        """
        return finish(self._calls.call(method, request, timeout=timeout))

    def bind(
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
        return finish(
            self._calls.bind(
                template,
                identity,
                name=name,
                pretty_name=pretty_name,
                wait=wait,
                patience=patience,
                progress=progress,
                validate_only=validate_only,
                ttl_after_finished=ttl_after_finished,
                timeout=timeout,
            )
        )

    def bind_request(
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
        return finish(self._calls.bind_request(request, patience=patience, progress=progress, timeout=timeout))

    def get_provider(self, *, timeout: float | None = None) -> api.Provider:
        """Returns the provider and how to log in. The call needs no token."""
        return finish(self._calls.get_provider(timeout=timeout))

    def get_caller(self, *, timeout: float | None = None) -> api.Caller:
        """Returns who the caller is to the provider: its user, its groups, and how long its token is valid."""
        return finish(self._calls.get_caller(timeout=timeout))

    def get_template(self, name: str, *, timeout: float | None = None) -> TemplateDetails:
        """Returns one template with the APIs that it installs."""
        return finish(self._calls.get_template(name, timeout=timeout))

    def get_collection(self, name: str, *, timeout: float | None = None) -> api.Collection:
        """Returns one collection."""
        return finish(self._calls.get_collection(name, timeout=timeout))

    def create_bindable_resources_request(
        self, request: api.CreateBindableResourcesRequestRequest, *, timeout: float | None = None
    ) -> BindResult:
        """Binds a template, with one call that may take as long as the request's ``wait`` says.

        Phase PENDING is returned as it is: the same call again goes on waiting.

        :raises RequestFailedError: The request is in phase FAILED.
        """
        return finish(self._calls.create_bindable_resources_request(request, timeout=timeout))

    def get_bindable_resources_request(
        self, name: str, cluster_identity: str, *, timeout: float | None = None
    ) -> api.BindableResourcesRequest:
        """Returns one of the caller's requests, without a kubeconfig."""
        return finish(self._calls.get_bindable_resources_request(name, cluster_identity, timeout=timeout))

    def delete_bindable_resources_request(
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
        finish(
            self._calls.delete_bindable_resources_request(
                name,
                cluster_identity,
                uid=uid,
                resource_version=resource_version,
                allow_missing=allow_missing,
                timeout=timeout,
            )
        )

    def get_export(self, contract: str, name: str, *, timeout: float | None = None) -> api.Export:
        """Returns one export.

        :param contract: The contract namespace; may be empty if the caller has only one contract.
        :param name: Name of the export.
        """
        return finish(self._calls.get_export(contract, name, timeout=timeout))

    def get_bound_schema(
        self, contract: str, name: str, *, known_hash: str | None = None, timeout: float | None = None
    ) -> api.BoundSchema | None:
        """Returns one schema; None if ``known_hash`` is current.

        :param contract: The contract namespace; may be empty if the caller has only one contract.
        :param name: ``<plural>.<group>``.
        :param known_hash: Hash of the schema that the caller has.
        """
        return finish(self._calls.get_bound_schema(contract, name, known_hash=known_hash, timeout=timeout))

    def delete_export(
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
        return finish(
            self._calls.delete_export(
                contract,
                name,
                uid,
                allow_missing=allow_missing,
                validate_only=validate_only,
                force=force,
                wait=wait,
                timeout=timeout,
            )
        )

    def renew_kubeconfig(self, contract: str = "", *, timeout: float | None = None) -> Renewed:
        """Returns a new kubeconfig for a contract. The old one stays valid until it expires.

        Each call mints a credential, so it is not repeated unless the first one certainly had no effect.

        :param contract: The contract namespace; may be empty if the caller has only one contract.
        """
        return finish(self._calls.renew_kubeconfig(contract, timeout=timeout))

    def revoke_credentials(self, contract: str, *, reason: str = "", timeout: float | None = None) -> api.RevokeCredentialsResponse:
        """Revokes all credentials of a contract, and stops their renewal until an owner binds again."""
        return finish(self._calls.revoke_credentials(contract, reason=reason, timeout=timeout))

    def get_contract(self, contract: str, *, timeout: float | None = None) -> api.Contract:
        """Returns one contract, by the name of its namespace."""
        return finish(self._calls.get_contract(contract, timeout=timeout))

    def share_contract(
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
        return finish(
            self._calls.share_contract(
                contract,
                uid=uid,
                add_groups=add_groups,
                remove_groups=remove_groups,
                validate_only=validate_only,
                timeout=timeout,
            )
        )

    def revoke_contract(
        self, contract: str, *, uid: str = "", reason: str = "", timeout: float | None = None
    ) -> api.RevokeContractResponse:
        """Revokes all credentials of a contract, and stops their renewal until an owner binds again.

        :param uid: Only if the contract has this UID.
        :param reason: Why, for people.
        """
        return finish(self._calls.revoke_contract(contract, uid=uid, reason=reason, timeout=timeout))

    def unbind_contract(
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
        return finish(
            self._calls.unbind_contract(
                contract,
                uid=uid,
                exports=exports,
                force=force,
                validate_only=validate_only,
                wait=wait,
                timeout=timeout,
            )
        )

    def list_templates(
        self,
        *,
        label_selector: str = "",
        collection: str = "",
        page_size: int = 0,
        page_token: str = "",
        timeout: float | None = None,
    ) -> Pages[api.Template]:
        """Iterates over the templates that the caller may bind.

        :param label_selector: Only templates with these labels, in the syntax of kubectl's ``-l``.
        :param collection: Only templates of this collection.
        :param page_size: Number of items that one call fetches; 0 leaves it to the server.
        :param page_token: Where to begin: the ``next_page_token`` of an earlier list with the same filter.
        :param timeout: Time limit of each call in seconds.
        """
        return Pages(
            self._lists.list_templates(
                label_selector=label_selector,
                collection=collection,
                page_size=page_size,
                page_token=page_token,
                timeout=timeout,
            )
        )

    def list_collections(
        self, *, label_selector: str = "", page_size: int = 0, page_token: str = "", timeout: float | None = None
    ) -> Pages[api.Collection]:
        """Iterates over the collections that hold a template which the caller may bind.

        :param label_selector: Only collections with these labels, in the syntax of kubectl's ``-l``.
        :param page_size: Number of items that one call fetches; 0 leaves it to the server.
        :param page_token: Where to begin: the ``next_page_token`` of an earlier list with the same filter.
        :param timeout: Time limit of each call in seconds.
        """
        return Pages(
            self._lists.list_collections(
                label_selector=label_selector,
                page_size=page_size,
                page_token=page_token,
                timeout=timeout,
            )
        )

    def list_bindable_resources_requests(
        self, *, cluster_identity: str = "", page_size: int = 0, page_token: str = "", timeout: float | None = None
    ) -> Pages[api.BindableResourcesRequest]:
        """Iterates over the caller's requests.

        :param cluster_identity: Only requests for this cluster.
        :param page_size: Number of items that one call fetches; 0 leaves it to the server.
        :param page_token: Where to begin: the ``next_page_token`` of an earlier list with the same filter.
        :param timeout: Time limit of each call in seconds.
        """
        return Pages(
            self._lists.list_bindable_resources_requests(
                cluster_identity=cluster_identity,
                page_size=page_size,
                page_token=page_token,
                timeout=timeout,
            )
        )

    def list_exports(
        self,
        *,
        contract: str = "",
        label_selector: str = "",
        page_size: int = 0,
        page_token: str = "",
        timeout: float | None = None,
    ) -> Pages[api.Export]:
        """Iterates over the exports of one contract, or of all of the caller's.

        :param contract: Only exports of this contract.
        :param label_selector: Only exports with these labels, in the syntax of kubectl's ``-l``.
        :param page_size: Number of items that one call fetches; 0 leaves it to the server.
        :param page_token: Where to begin: the ``next_page_token`` of an earlier list with the same filter.
        :param timeout: Time limit of each call in seconds.
        """
        return Pages(
            self._lists.list_exports(
                contract=contract,
                label_selector=label_selector,
                page_size=page_size,
                page_token=page_token,
                timeout=timeout,
            )
        )

    def list_contracts(
        self,
        *,
        owned: bool = False,
        cluster_identity: str = "",
        page_size: int = 0,
        page_token: str = "",
        timeout: float | None = None,
    ) -> Pages[api.Contract]:
        """Iterates over the contracts that the caller may list.

        :param owned: Only contracts that the caller or one of its groups owns.
        :param cluster_identity: Only the contract of the cluster with this identity.
        :param page_size: Number of items that one call fetches; 0 leaves it to the server.
        :param page_token: Where to begin: the ``next_page_token`` of an earlier list with the same filter.
        :param timeout: Time limit of each call in seconds.
        """
        return Pages(
            self._lists.list_contracts(
                owned=owned,
                cluster_identity=cluster_identity,
                page_size=page_size,
                page_token=page_token,
                timeout=timeout,
            )
        )

    def watch_exports(self, *, contract: str = "", label_selector: str = "", resume_token: str = "") -> Watch[api.Export]:
        """Watches exports across disconnects.

        :param contract: The contract namespace; may be empty if the caller has only one contract.
        :param label_selector: Only exports with these labels, in the syntax of kubectl's ``-l``.
        :param resume_token: Where to resume: the ``resume_token`` of an earlier watch with the same filter.
        """
        return Watch(self._lists.watch_exports(contract=contract, label_selector=label_selector, resume_token=resume_token))

    def watch_bindable_resources_requests(
        self, *, cluster_identity: str = "", names: Iterable[str] = (), resume_token: str = ""
    ) -> Watch[api.BindableResourcesRequest]:
        """Watches the caller's requests across disconnects.

        :param cluster_identity: Only requests for this cluster.
        :param names: Only requests of these names.
        :param resume_token: Where to resume: the ``resume_token`` of an earlier watch with the same filter.
        """
        return Watch(
            self._lists.watch_bindable_resources_requests(
                cluster_identity=cluster_identity,
                names=names,
                resume_token=resume_token,
            )
        )

    def watch_contracts(self, *, owned: bool = False, resume_token: str = "") -> Watch[api.Contract]:
        """Watches the contracts that the caller may see across disconnects.

        :param owned: Only contracts that the caller or one of its groups owns.
        :param resume_token: Where to resume: the ``resume_token`` of an earlier watch with the same filter.
        """
        return Watch(self._lists.watch_contracts(owned=owned, resume_token=resume_token))
