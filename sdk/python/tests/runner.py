"""The runner of this SDK for the contract suite: does what the cases ask, and tells what comes of it.

One JSON document per line of standard input is one case; the answer is one line of standard output, in the order in which the cases
end. Each case has a client of its own, sync unless the flag ``--aio`` is given.
"""

from __future__ import annotations

import argparse
import asyncio
import functools
import json
import sys
import threading
from collections.abc import Callable, Sequence
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


# === What is in a line ===


class Case:
    """One case: its settings, its action, and what has come of it so far."""

    def __init__(self, line: str) -> None:
        document = json.loads(line)
        self.settings: Json = document["client"]
        self.action: Json = document["action"]
        self.cancel_after: float | None = seconds(document.get("cancelAfterMs"))
        self.cancelled = False
        self.shown: list[str] = []
        self.answer: Json = {"id": document["id"], "shown": self.shown}

    def client_settings(self) -> Json:
        """The arguments of a client."""
        settings = self.settings
        found: Json = {
            "address": settings["address"],
            "token": token_source(settings.get("token")),
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
        self.shown.append(repr(found["token"]))
        return found

    def request(self, method: str) -> Message:
        """The request of the action."""
        message: Message = methods.ALL[method].request()
        return ParseDict(self.action.get("request") or {}, message)

    def fields(self, method: str) -> Json:
        """The request as keywords of a typed method."""
        request = self.request(method)
        return {field.name: getattr(request, field.name) for field, _ in request.ListFields()}

    def bind_arguments(self) -> Json:
        """The arguments of a bind."""
        wish = self.action["bind"]
        self.answer["progress"] = 0
        found: Json = {
            "template": wish["template"],
            "identity": wish["identity"],
            "name": wish.get("name"),
            "wait": seconds(wish.get("waitMs")),
            "validate_only": wish.get("validateOnly", False),
            "progress": self.told,
        }
        if wish.get("patienceMs") is not None:
            found["patience"] = wish["patienceMs"] / 1000
        return found

    def told(self, request: v1alpha2.BindableResourcesRequest) -> None:
        self.answer["progress"] += 1

    def events(self) -> list[Json]:
        """The events of the watch so far."""
        events: list[Json] = self.answer.setdefault("events", [])
        return events

    @property
    def is_full(self) -> bool:
        """Whether the watch has had as many events as the action asks for."""
        return len(self.events()) >= int(self.action.get("events", sys.maxsize))

    def failed(self, error: Exception) -> None:
        """Notes the error that ended the action."""
        self.shown.append(f"{error} {error!r} {error.args!r}")
        self.answer["error"] = error_json(error)


def seconds(milliseconds: float | None) -> float | None:
    return None if milliseconds is None else milliseconds / 1000


def token_source(token: Json | None) -> bindery.TokenSource | None:
    match token:
        case None:
            return None
        case {"static": text}:
            return bindery.StaticToken(text)
        case {"file": path}:
            return bindery.FileToken(path)
        case {"exec": command}:
            return bindery.ExecToken(command)
        case _:
            raise ValueError("no source of a token")


def watch_settings(settings: Json) -> WatchSettings:
    found = WatchSettings()
    if settings.get("silenceMs") is not None:
        found = replace(found, silence=settings["silenceMs"] / 1000)
    reconnect = settings.get("reconnect")
    if reconnect is not None:
        policy = RetryPolicy(found.reconnect.attempts, reconnect["baseMs"] / 1000, reconnect["capMs"] / 1000)
        found = replace(found, reconnect=policy)
    return found


# === What is in an answer ===


def message_json(message: Message) -> Json:
    return MessageToDict(message)


def error_json(error: Exception) -> Json:
    """The error as the contract suite reads it. Fields that are not set are absent."""
    found: Json = {"kind": getattr(error, "kind", "runner"), "message": str(error) or repr(error)}
    match error:
        case bindery.StatusError():
            found |= {
                "code": error.code.name,
                "reason": error.reason,
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


def bound_json(bound: bindery.Bound) -> Json:
    return {"request": message_json(bound.request), "response": message_json(bound.response)}


def rendered(document: Json) -> str:
    """The manifests for the input of a golden file."""
    options: Any
    renamed = {"serviceAccount": "service_account", "withNamespace": "with_namespace"}
    options = {renamed.get(key, key): value for key, value in document.get("options", {}).items()}
    response = ParseDict(document["response"], v1alpha2.BindingResourceResponse())
    return bindery.manifests(response, **options).canonical()


# === Sync ===


def act(case: Case, client: bindery.Client) -> Any:
    """Does what a case asks, and returns what the client returned."""
    match case.action:
        case {"call": name}:
            return message_json(client.call(methods.ALL[name], case.request(name)))
        case {"list": name}:
            return [message_json(item) for item in getattr(client, LISTS[name])(**case.fields(name))]
        case {"bind": _}:
            return bound_json(client.bind(**case.bind_arguments()))
        case {"watch": name}:
            with getattr(client, WATCHES[name])(**case.fields(name)) as watch:
                try:
                    while not case.is_full:
                        event = next(watch, None)
                        if event is None:
                            break
                        case.events().append(event_json(event))
                finally:
                    case.answer["resumeToken"] = watch.resume_token
            return None
        case {"manifests": document}:
            return rendered(document)
        case _:
            raise ValueError("no action of this runner")


def run(case: Case) -> None:
    """Runs a case. A sync client is cancelled by closing it from another thread."""
    with bindery.Client(**case.client_settings()) as client:
        case.shown.append(repr(client))
        timer = None
        if case.cancel_after is not None:

            def cancel() -> None:
                case.cancelled = True
                client.close()

            timer = threading.Timer(case.cancel_after, cancel)
            timer.start()
        try:
            case.answer["ok"] = act(case, client)
        finally:
            if timer is not None:
                timer.cancel()
        if case.cancelled:
            # A watch that is closed ends without an error.
            raise bindery.CallCancelledError


def main_sync() -> None:
    lock = threading.Lock()

    def answer(line: str) -> None:
        case = Case(line)
        guarded(case, functools.partial(run, case))
        with lock:
            write(case)

    threads = []
    for line in sys.stdin:
        threads.append(threading.Thread(target=answer, args=(line,)))
        threads[-1].start()
    for thread in threads:
        thread.join()


# === Async ===


async def act_async(case: Case, client: aio.Client) -> Any:
    """Does what a case asks, and returns what the client returned."""
    match case.action:
        case {"call": name}:
            return message_json(await client.call(methods.ALL[name], case.request(name)))
        case {"list": name}:
            return [message_json(item) async for item in getattr(client, LISTS[name])(**case.fields(name))]
        case {"bind": _}:
            return bound_json(await client.bind(**case.bind_arguments()))
        case {"watch": name}:
            async with getattr(client, WATCHES[name])(**case.fields(name)) as watch:
                try:
                    while not case.is_full:
                        event = await anext(watch, None)
                        if event is None:
                            break
                        case.events().append(event_json(event))
                finally:
                    case.answer["resumeToken"] = watch.resume_token
            return None
        case {"manifests": document}:
            return rendered(document)
        case _:
            raise ValueError("no action of this runner")


async def run_async(case: Case) -> None:
    """Runs a case. A call of an async client is cancelled by cancelling its task."""
    async with aio.Client(**case.client_settings()) as client:
        case.shown.append(repr(client))
        task = asyncio.create_task(act_async(case, client))
        if case.cancel_after is not None:
            asyncio.get_running_loop().call_later(case.cancel_after, task.cancel)
        try:
            case.answer["ok"] = await task
        except asyncio.CancelledError:
            raise bindery.CallCancelledError("the task was cancelled") from None


async def main_async() -> None:
    async def answer(line: str) -> None:
        case = Case(line)
        try:
            await run_async(case)
        except Exception as error:
            case.failed(error)
        write(case)

    loop = asyncio.get_running_loop()
    tasks = set()
    # Standard input may be a pipe or a file; a thread reads either.
    while line := await loop.run_in_executor(None, sys.stdin.readline):
        task = loop.create_task(answer(line))
        tasks.add(task)
        task.add_done_callback(tasks.discard)
    await asyncio.gather(*tasks)


# === Both ===


def guarded(case: Case, run: Callable[[], None]) -> None:
    try:
        run()
    except Exception as error:
        case.failed(error)


def write(case: Case) -> None:
    if case.answer.get("ok") is None or "error" in case.answer:
        case.answer.pop("ok", None)
    sys.stdout.write(json.dumps(case.answer) + "\n")
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
