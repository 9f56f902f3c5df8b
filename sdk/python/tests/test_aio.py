"""What only the async client has: tasks that are cancelled, and sources that wait."""

from __future__ import annotations

import asyncio
import time

import pytest

import bindery
from bindery import aio
from bindery import v1alpha2 as api

from .conftest import Scripts
from .server import eventually

EXPORT = (api.GetExportResponse(export=api.Export()),)


def test_cancelling_a_task_cancels_its_call(script: Scripts) -> None:
    server = script([60.0], EXPORT)

    async def run() -> None:
        async with aio.Client(server.address, allow_plaintext=True) as client:
            task = asyncio.create_task(client.get_export("x"))
            await asyncio.to_thread(eventually, lambda: server.seen)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            await asyncio.to_thread(eventually, server.cancelled.is_set)
            await client.get_export("x")

    asyncio.run(run())


def test_cancelling_a_reader_leaves_no_stream(script: Scripts) -> None:
    server = script([api.WatchExportsResponse(snapshot_begin=api.SnapshotBegin()), 60.0])

    async def run() -> None:
        async with aio.Client(server.address, allow_plaintext=True) as client:

            async def read() -> None:
                async with client.watch_exports() as watch:
                    async for _ in watch:
                        pass

            task = asyncio.create_task(read())
            await asyncio.to_thread(eventually, lambda: server.seen)
            await asyncio.sleep(0.1)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            await asyncio.to_thread(eventually, server.cancelled.is_set)

    asyncio.run(run())


def test_a_source_that_waits_is_limited_by_the_call(script: Scripts) -> None:
    server = script(EXPORT)

    async def never() -> str:
        await asyncio.Event().wait()
        return ""

    async def run() -> None:
        async with aio.Client(server.address, token=never, timeout=0.2, allow_plaintext=True) as client:
            start = time.monotonic()
            with pytest.raises(bindery.DeadlineExceededError):
                await client.get_export("x")
            assert time.monotonic() - start < 2

    asyncio.run(run())


def test_a_source_that_blocks_does_not_hold_the_loop(script: Scripts) -> None:
    server = script(EXPORT)

    def slow() -> str:
        time.sleep(0.3)
        return "hunter2"

    async def run() -> None:
        async with aio.Client(server.address, token=slow, allow_plaintext=True) as client:
            task = asyncio.create_task(client.get_export("x"))
            ticks = 0
            while not task.done():
                await asyncio.sleep(0.01)
                ticks += 1
            await task
            assert ticks > 10

    asyncio.run(run())


def test_progress_may_be_async(script: Scripts) -> None:
    request = api.BindableResourcesRequest(metadata=api.ObjectMeta(name="cowboys"))
    pending = (api.CreateBindableResourcesRequestResponse(bindable_resources_request=request),)
    done = api.CreateBindableResourcesRequestResponse(
        bindable_resources_request=request, response=api.BindingResourceResponse(binding_name="cowboys")
    )
    server = script(pending, (done,))
    told: list[str] = []

    async def progress(request: api.BindableResourcesRequest) -> None:
        await asyncio.sleep(0)
        told.append(request.metadata.name)

    async def run() -> None:
        async with aio.Client(server.address, allow_plaintext=True) as client:
            await client.bind("cowboys", "uid", progress=progress)

    asyncio.run(run())
    assert told == ["cowboys"]
