"""The runner of this SDK for the contract suite: does the actions of the cases, and writes their results.

One JSON document per line of standard input is one case; its result is one line of standard output, in the order in which the cases
end. Each case has a client of its own, sync unless the flag ``--aio`` is given.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import contextvars
import copy
import json
import sys
import threading
import traceback
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import replace
from typing import Any, Final

from google.protobuf.json_format import MessageToDict, ParseDict
from google.protobuf.message import Message

import bindery
from bindery import aio, methods, v1alpha2
from bindery._core.retry import RetryPolicy
from bindery._core.settings import WatchSettings

Json = dict[str, Any]

LISTS: Final = {
    "ListTemplates": "list_templates",
    "ListCollections": "list_collections",
    "ListBindableResourcesRequests": "list_bindable_resources_requests",
    "ListExports": "list_exports",
    "ListContracts": "list_contracts",
}
WATCHES: Final = {
    "WatchExports": "watch_exports",
    "WatchContracts": "watch_contracts",
    "WatchBindableResourcesRequests": "watch_bindable_resources_requests",
}
TYPED: Final = {
    **LISTS,
    "GetProvider": "get_provider",
    "GetCaller": "get_caller",
    "GetTemplate": "get_template",
    "GetCollection": "get_collection",
    "CreateBindableResourcesRequest": "create_bindable_resources_request",
    "GetBindableResourcesRequest": "get_bindable_resources_request",
    "DeleteBindableResourcesRequest": "delete_bindable_resources_request",
    "GetExport": "get_export",
    "GetBoundSchema": "get_bound_schema",
    "DeleteExport": "delete_export",
    "RenewKubeconfig": "renew_kubeconfig",
    "RevokeCredentials": "revoke_credentials",
    "GetContract": "get_contract",
    "ShareContract": "share_contract",
    "RevokeContract": "revoke_contract",
    "UnbindContract": "unbind_contract",
}


# === Cases ===


class Case:
    """One case: its settings, its action, and its result."""

    def __init__(self, line: str, *, is_async: bool) -> None:
        document = json.loads(line)
        self.is_async: Final = is_async
        self.settings: Json = document["client"]
        self.action: Json = document["action"]
        self.concurrent: int | None = document.get("concurrent")
        self.cancel_after: float | None = seconds(document.get("cancelAfterMs"))
        self.shown: list[str] = []
        self.result: Json = {"id": document["id"], "shown": self.shown}

    def again(self) -> Case:
        """The same case with a result of its own."""
        again = copy.copy(self)
        again.result = {}
        return again

    def client_settings(self) -> Json:
        """The arguments of a client."""
        settings = self.settings
        found: Json = {
            "address": settings["address"],
            "token": self.token_source(settings.get("token")),
            "ca_pem": settings.get("caPem"),
            "ca_file": settings.get("caFile"),
            "server_name": settings.get("serverName"),
            "allow_plaintext": settings.get("allowPlaintext", False),
            "timeout": seconds(settings.get("timeoutMs")),
            "attempt_timeout": seconds(settings.get("attemptTimeoutMs")),
            "user_agent": settings.get("userAgent"),
            "_watch": watch_settings(settings),
        }
        retry = settings.get("retry")
        if retry is not None:
            found["retry"] = RetryPolicy(retry["attempts"], retry["baseMs"] / 1000, retry["capMs"] / 1000)
        return found

    def token_source(self, token: Json | None) -> Any:
        match token:
            case None:
                return None
            case {"static": text}:
                source: Any = bindery.StaticToken(text)
            case {"file": path}:
                source = bindery.FileToken(path)
            case {"exec": command, "timeoutMs": limit}:
                source = bindery.ExecToken(command, _timeout=limit / 1000)
            case {"exec": command}:
                source = bindery.ExecToken(command)
            case {"function": name}:
                return async_function(name) if self.is_async else function(name)
            case _:
                raise ValueError("no source of a token")
        self.show(source)
        return source

    def request(self, method: str) -> Message:
        """The request of the action."""
        message: Message = methods.ALL[method].request()
        return ParseDict(self.action.get("request") or {}, message)

    def set_fields(self, method: str) -> Json:
        """The fields of the request that are set, as keywords of a typed method."""
        request = self.request(method)
        return {field.name: getattr(request, field.name) for field, _ in request.ListFields()}

    def arguments(self, method: str) -> Json:
        """The request as keywords of a typed method."""
        request = self.request(method)
        if method == "CreateBindableResourcesRequest":
            return {"request": request}
        found: Json = {field.name: getattr(request, field.name) for field in request.DESCRIPTOR.fields}
        # Only a konnector knows the holder of a contract.
        found.pop("holder", None)
        if "wait" in found:
            wait = found["wait"]
            found["wait"] = wait.seconds + wait.nanos / 1e9 if request.HasField("wait") else None
        return found

    def bind_arguments(self) -> Json:
        """The arguments of a bind."""
        asked = self.action["bind"]
        self.result["progress"] = 0
        found: Json = {
            "template": asked["template"],
            "identity": asked["identity"],
            "name": asked.get("name"),
            "wait": seconds(asked.get("waitMs")),
            "validate_only": asked.get("validateOnly", False),
            "progress": self.progress,
        }
        if asked.get("patienceMs") is not None:
            found["patience"] = asked["patienceMs"] / 1000
        return found

    def progress(self, request: v1alpha2.BindableResourcesRequest) -> None:
        self.result["progress"] += 1

    def add_event(self, event: Any) -> None:
        """Notes an event of the watch."""
        self.events().append(event_json(event))
        if isinstance(event, bindery.Disconnected):
            self.show(event)
            if event.error is not None:
                self.show_error(event.error)

    def events(self) -> list[Json]:
        """The events of the watch so far."""
        events: list[Json] = self.result.setdefault("events", [])
        return events

    @property
    def is_full(self) -> bool:
        """Whether the watch has had as many events as the action says."""
        return len(self.events()) >= int(self.action.get("events", sys.maxsize))

    def show(self, value: object) -> None:
        """Notes the texts that Python makes of a value for people who debug."""
        self.shown.append(f"{value} {value!r} {json.dumps(value, default=repr)}")

    def show_error(self, error: BaseException) -> None:
        self.show(error)
        self.shown.append(f"{error.args!r} {vars(error)!r}")
        # The cause of an error of the token is an exception of the user's own function.
        if not isinstance(error, bindery.TokenError):
            self.shown.append("".join(traceback.format_exception(error)))

    def failed(self, error: Exception) -> Json:
        """Notes an error, and returns it as the contract suite reads it."""
        self.show_error(error)
        return error_json(error)

    def bound_json(self, bound: bindery.Bound) -> Json:
        """Notes the texts of a bound and of its manifests, and returns what the contract suite reads."""
        for value in (bound, bound.request, bound.response, bound.kubeconfig):
            self.show(value)
        try:
            self.show_manifests(bound.manifests())
        except bindery.ManifestRefusedError as error:
            self.show_error(error)
        return {"request": message_json(bound.request), "response": message_json(with_kubeconfig(bound))}

    def show_manifests(self, manifests: bindery.Manifests) -> None:
        for value in (manifests, *manifests, list(manifests)):
            self.show(value)

    def typed_json(self, method: str, result: Any) -> Any:
        """What a typed method returned, as the contract suite reads it."""
        self.show(result)
        match result:
            case None:
                return {"unchanged": True} if method == "GetBoundSchema" else {}
            case Message():
                return message_json(result)
            case bindery.TemplateDetails(template, schemas):
                return message_json(v1alpha2.GetTemplateResponse(template=template, schemas=schemas))
            case bindery.Renewed(contract, kubeconfig, details):
                self.show(kubeconfig)
                whole = v1alpha2.RenewKubeconfigResponse(contract=contract, kubeconfig=details)
                if kubeconfig.reveal():
                    whole.kubeconfig.kubeconfig = kubeconfig.reveal()
                return message_json(whole)
            case bindery.BindResult(request, bound):
                found: Json = {"bindableResourcesRequest": message_json(request)}
                if bound is not None:
                    found["response"] = self.bound_json(bound)["response"]
                return found
            case _:
                return [message_json(item) for item in result]


def with_kubeconfig(bound: bindery.Bound) -> v1alpha2.BindingResourceResponse:
    """The response as the server sent it."""
    whole = v1alpha2.BindingResourceResponse()
    whole.CopyFrom(bound.response)
    if bound.kubeconfig.reveal():
        whole.kubeconfig.kubeconfig = bound.kubeconfig.reveal()
    return whole


def seconds(milliseconds: float | None) -> float | None:
    return None if milliseconds is None else milliseconds / 1000


def function(name: str) -> Callable[[], str]:
    """A function as a source of tokens, by its name in the case."""

    def token() -> str:
        match name:
            case "slow":
                threading.Event().wait()
            case "throws":
                raise TimeoutError("hunter2")
        return name

    return token


def async_function(name: str) -> Callable[[], Coroutine[Any, Any, str]]:
    """An async function as a source of tokens, by its name in the case."""

    async def token() -> str:
        match name:
            case "slow":
                await asyncio.Event().wait()
            case "throws":
                raise TimeoutError("hunter2")
        return name

    return token


def watch_settings(settings: Json) -> WatchSettings:
    found = WatchSettings()
    if settings.get("silenceMs") is not None:
        found = replace(found, silence=settings["silenceMs"] / 1000)
    reconnect = settings.get("reconnect")
    if reconnect is not None:
        policy = RetryPolicy(found.reconnect.attempts, reconnect["baseMs"] / 1000, reconnect["capMs"] / 1000)
        found = replace(found, reconnect=policy)
    return found


# === Results ===


def message_json(message: Message) -> Json:
    return MessageToDict(message)


def error_json(error: Exception) -> Json:
    """The error as the contract suite reads it. Fields that are not set are absent."""
    found: Json = {"kind": getattr(error, "kind", "runner"), "message": str(error) or repr(error)}
    match error:
        case bindery.StatusError():
            found |= {
                "code": error.code.name,
                "reason": error.unknown_reason or (error.reason and error.reason.value),
                "metadata": dict(error.metadata),
                "fieldViolations": [{"field": found.field, "description": found.description} for found in error.field_violations],
                "preconditionViolations": [
                    {"kind": found.type, "subject": found.subject, "description": found.description}
                    for found in error.precondition_violations
                ],
                "retryAfterMs": None if error.retry_after is None else round(error.retry_after * 1000),
                "requestId": error.request_id,
            }
        case bindery.TransportError():
            found["fault"] = error.fault.value
        case bindery.BinderyError():
            found["reason"] = error.reason_text
    return {key: value for key, value in found.items() if value not in (None, {}, [], "")}


def event_json(event: Any) -> Json:
    match event:
        case bindery.Connected(resumed):
            return {"connected": {"resumed": resumed}}
        case bindery.SnapshotBegin(refused):
            return {"snapshotBegin": {} if refused is None else {"refused": refused}}
        case bindery.Applied(applied):
            return {"applied": message_json(applied)}
        case bindery.Removed(namespace, name, uid):
            return {"removed": message_json(v1alpha2.Removed(namespace=namespace, name=name, uid=uid))}
        case bindery.SnapshotComplete():
            return {"snapshotComplete": {}}
        case bindery.Disconnected(error):
            return {"disconnected": {} if error is None else {"error": error_json(error)}}
        case _:
            raise ValueError(f"no event: {event!r}")


def render(document: Json) -> bindery.Manifests:
    """The manifests for the input of a golden file."""
    options: Any
    renamed = {"serviceAccount": "service_account", "withNamespace": "with_namespace"}
    options = {renamed.get(key, key): value for key, value in document.get("options", {}).items()}
    response = ParseDict(document["response"], v1alpha2.BindingResourceResponse())
    return bindery.manifests(response, **options)


def rendered(case: Case, document: Json) -> str:
    made = render(document)
    case.show_manifests(made)
    return made.canonical()


# === Sync ===


def act(case: Case, client: bindery.Client) -> Any:
    """Does the action of a case, and returns what the client returned."""
    match case.action:
        case {"call": name}:
            return message_json(client.call(methods.ALL[name], case.request(name)))
        case {"typed": name}:
            result = getattr(client, TYPED[name])(**case.arguments(name))
            return case.typed_json(name, list(result) if name in LISTS else result)
        case {"list": name}:
            return [message_json(item) for item in getattr(client, LISTS[name])(**case.set_fields(name))]
        case {"bind": _}:
            return case.bound_json(client.bind(**case.bind_arguments()))
        case {"watch": name}:
            with getattr(client, WATCHES[name])(**case.set_fields(name)) as watch:
                try:
                    while not case.is_full:
                        event = next(watch, None)
                        if event is None:
                            break
                        case.add_event(event)
                finally:
                    case.show(watch)
                    case.result["resumeToken"] = watch.resume_token
            return None
        case {"manifests": document}:
            return rendered(case, document)
        case _:
            raise ValueError("no action of this runner")


def act_at_once(case: Case, client: bindery.Client, count: int) -> list[Json]:
    """Does the action of a case several times at the same moment."""
    results: list[Json] = [{}] * count
    barrier = threading.Barrier(count)

    def one(index: int) -> None:
        again = case.again()
        results[index] = again.result
        barrier.wait()
        try:
            again.result["ok"] = act(again, client)
        except Exception as error:
            again.result["error"] = again.failed(error)

    threads = [threading.Thread(target=contextvars.copy_context().run, args=(one, index)) for index in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


def run(case: Case) -> Any:
    """Runs a case, and returns its result."""
    with bindery.Client(**case.client_settings()) as client, contextlib.ExitStack() as stack:
        case.show(client)
        if case.cancel_after is not None:
            scope = stack.enter_context(bindery.CancelScope())
            timer = threading.Timer(case.cancel_after, scope.cancel)
            timer.start()
            stack.callback(timer.cancel)
        return act(case, client) if case.concurrent is None else act_at_once(case, client, case.concurrent)


def main_sync() -> None:
    lock = threading.Lock()

    def respond(line: str) -> None:
        case = Case(line, is_async=False)
        try:
            case.result["ok"] = run(case)
        except Exception as error:
            case.result["error"] = case.failed(error)
        with lock:
            write(case)

    threads = []
    for line in sys.stdin:
        threads.append(threading.Thread(target=respond, args=(line,)))
        threads[-1].start()
    for thread in threads:
        thread.join()


# === Async ===


async def act_async(case: Case, client: aio.Client) -> Any:
    """Does the action of a case, and returns what the client returned."""
    match case.action:
        case {"call": name}:
            return message_json(await client.call(methods.ALL[name], case.request(name)))
        case {"typed": name}:
            result = getattr(client, TYPED[name])(**case.arguments(name))
            return case.typed_json(name, [item async for item in result] if name in LISTS else await result)
        case {"list": name}:
            return [message_json(item) async for item in getattr(client, LISTS[name])(**case.set_fields(name))]
        case {"bind": _}:
            return case.bound_json(await client.bind(**case.bind_arguments()))
        case {"watch": name}:
            async with getattr(client, WATCHES[name])(**case.set_fields(name)) as watch:
                try:
                    while not case.is_full:
                        event = await anext(watch, None)
                        if event is None:
                            break
                        case.add_event(event)
                finally:
                    case.show(watch)
                    case.result["resumeToken"] = watch.resume_token
            return None
        case {"manifests": document}:
            return rendered(case, document)
        case _:
            raise ValueError("no action of this runner")


async def act_at_once_async(case: Case, client: aio.Client, count: int) -> list[Json]:
    """Does the action of a case several times at the same moment."""

    async def one() -> Json:
        again = case.again()
        try:
            again.result["ok"] = await act_async(again, client)
        except Exception as error:
            again.result["error"] = again.failed(error)
        return again.result

    return await asyncio.gather(*(one() for _ in range(count)))


async def run_async(case: Case) -> Any:
    """Runs a case, and returns its result. A call of an async client is cancelled by cancelling its task."""
    async with aio.Client(**case.client_settings()) as client:
        case.show(client)
        action = act_async(case, client) if case.concurrent is None else act_at_once_async(case, client, case.concurrent)
        task = asyncio.create_task(action)
        if case.cancel_after is not None:
            asyncio.get_running_loop().call_later(case.cancel_after, task.cancel)
        try:
            return await task
        except asyncio.CancelledError:
            raise bindery.CallCancelledError("the task was cancelled") from None


async def main_async() -> None:
    async def respond(line: str) -> None:
        case = Case(line, is_async=True)
        try:
            case.result["ok"] = await run_async(case)
        except Exception as error:
            case.result["error"] = case.failed(error)
        write(case)

    loop = asyncio.get_running_loop()
    tasks = set()
    # Standard input may be a pipe or a file; a thread reads either.
    while line := await loop.run_in_executor(None, sys.stdin.readline):
        task = loop.create_task(respond(line))
        tasks.add(task)
        task.add_done_callback(tasks.discard)
    await asyncio.gather(*tasks)


# === Both ===


def write(case: Case) -> None:
    if case.result.get("ok") is None:
        case.result.pop("ok", None)
    sys.stdout.write(json.dumps(case.result) + "\n")
    sys.stdout.flush()


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(description="Runs the cases of the contract suite.")
    parser.add_argument("--aio", action="store_true", help="use the async client")
    # Many cases run at the same time, and each of them is about milliseconds.
    sys.setswitchinterval(0.0005)
    if parser.parse_args(arguments).aio:
        asyncio.run(main_async())
    else:
        main_sync()


if __name__ == "__main__":
    main(sys.argv[1:])
