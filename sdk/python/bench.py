#!/usr/bin/env python3
"""Compares this SDK with gRPC's bare stubs: calls per second, and memory of open watches. It needs Linux.

    python bench.py ADDRESS CA_FILE TOKEN

ADDRESS is that of a backend, CA_FILE its CA (`-` for http:// on loopback), and TOKEN one that the backend accepts. It prints one
line of JSON:

    {"calls": {"sdk": 0.0, "raw": 0.0}, "watches": {"count": 1000, "sdk": 0, "raw": 0}, "serial": {…}, "parallel": {…}}

`calls` has GetCaller per second of 2,000 calls one after the other (`serial`) and 2,000 by 32 threads (`parallel`): the best of
three runs, the SDK and the stub in alternation, with the sync client. `watches` has the bytes by which the resident memory of a
fresh process grows by 1,000 streams of WatchContracts that are past their snapshot, each read by a task of asyncio.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

import grpc
import grpc.aio

import bindery
from bindery import aio, methods
from bindery import v1alpha2 as api
from bindery._core.address import parse
from bindery._core.settings import STREAMS_PER_CONNECTION
from bindery._gen.kubebind.v1alpha2.contract_pb2_grpc import ContractServiceStub
from bindery._gen.kubebind.v1alpha2.provider_pb2_grpc import ProviderServiceStub

CALLS: Final = 200
SLICES: Final = 10
WARM_UP: Final = 200
THREADS: Final = 32
RUNS: Final = 3
WATCHES: Final = 1_000

Call = Callable[[], object]


class Backend:
    """The server that is measured, and how it is dialled."""

    def __init__(self, address: str, ca_file: str, token: str) -> None:
        self.arguments = [address, ca_file, token]
        self._address = parse(address)
        self._ca = None if ca_file == "-" else Path(ca_file).read_bytes()
        self.metadata = (("authorization", f"Bearer {token}"),)
        self.settings: dict[str, Any] = {
            "address": address,
            "ca_pem": self._ca,
            "token": token,
            "allow_plaintext": not self._address.is_tls,
        }

    def channel(self, module: Any) -> Any:
        """A channel of `grpc` or `grpc.aio` that shares its connection with no other one."""
        options = [("grpc.use_local_subchannel_pool", 1), ("grpc.enable_http_proxy", 0)]
        if not self._address.is_tls:
            return module.insecure_channel(self._address.target, options)
        return module.secure_channel(self._address.target, grpc.ssl_channel_credentials(self._ca), options)


# === Calls ===


@contextlib.contextmanager
def callers(backend: Backend) -> Iterator[dict[str, Call]]:
    """One call of each kind."""
    with bindery.Client(**backend.settings) as client, backend.channel(grpc) as channel:
        stub: Any = ProviderServiceStub(channel)
        request = api.GetCallerRequest()
        yield {
            "sdk": lambda: client.call(methods.GET_CALLER, request, timeout=10),
            "raw": lambda: stub.GetCaller(request, timeout=10, metadata=backend.metadata),
        }


def serial(call: Call) -> float:
    """The seconds of all calls, one after the other."""
    start = time.perf_counter()
    for _ in range(CALLS):
        call()
    return time.perf_counter() - start


def parallel(call: Call) -> float:
    """The seconds of all calls, by threads that share them."""
    barrier = threading.Barrier(THREADS + 1)
    left: list[int | None] = [None] * THREADS + list(range(CALLS))

    def work() -> None:
        barrier.wait()
        for _ in iter(left.pop, None):
            call()

    with ThreadPoolExecutor(THREADS) as pool:
        done = [pool.submit(work) for _ in range(THREADS)]
        barrier.wait()
        start = time.perf_counter()
        for one in done:
            one.result()
        return time.perf_counter() - start


def rates(calls: dict[str, Call]) -> dict[str, dict[str, float]]:
    """The calls per second of each kind: the best of several runs.

    Within a run the kinds alternate, so that other programs disturb both alike.
    """
    best: dict[str, dict[str, float]] = {name: dict.fromkeys(calls, 0.0) for name in ("calls", "serial", "parallel")}
    for _ in range(RUNS):
        seconds = {kind: [0.0, 0.0] for kind in calls}
        for _ in range(SLICES):
            for kind, call in calls.items():
                seconds[kind][0] += serial(call)
                seconds[kind][1] += parallel(call)
        count = SLICES * CALLS
        for kind, (one, many) in seconds.items():
            for name, rate in (("calls", 2 * count / (one + many)), ("serial", count / one), ("parallel", count / many)):
                best[name][kind] = max(best[name][kind], round(rate, 1))
    return best


# === Watches ===


async def hold_sdk(backend: Backend, is_complete: Callable[[], None]) -> None:
    """Opens the watches of the SDK, and reads them until it is cancelled."""

    async def read() -> None:
        async with client.watch_contracts() as watch:
            async for event in watch:
                if isinstance(event, bindery.SnapshotComplete):
                    is_complete()

    async with aio.Client(**backend.settings) as client:
        await asyncio.gather(*(read() for _ in range(WATCHES)))


async def hold_raw(backend: Backend, is_complete: Callable[[], None]) -> None:
    """Opens the streams of the stub, and reads them until it is cancelled."""

    async def read(stub: Any) -> None:
        async for response in stub.WatchContracts(api.WatchContractsRequest(), metadata=backend.metadata):
            if response.WhichOneof("event") == "snapshot_complete":
                is_complete()

    async with contextlib.AsyncExitStack() as stack:
        channels = [
            await stack.enter_async_context(backend.channel(grpc.aio)) for _ in range(-(-WATCHES // STREAMS_PER_CONNECTION))
        ]
        stubs: list[Any] = [ContractServiceStub(channel) for channel in channels]
        await asyncio.gather(*(read(stubs[index // STREAMS_PER_CONNECTION]) for index in range(WATCHES)))


async def growth(backend: Backend, kind: str) -> int:
    """The bytes by which this process grows by the watches."""
    complete = 0
    all_complete = asyncio.Event()

    def is_complete() -> None:
        nonlocal complete
        complete += 1
        if complete == WATCHES:
            all_complete.set()

    before = resident()
    holding = asyncio.create_task({"sdk": hold_sdk, "raw": hold_raw}[kind](backend, is_complete))
    waiting = asyncio.create_task(all_complete.wait())
    # A stream that fails ends `holding` with its error.
    await asyncio.wait({holding, waiting}, timeout=120, return_when=asyncio.FIRST_COMPLETED)
    if not waiting.done():
        holding.cancel()
        await holding
        raise SystemExit(f"only {complete} of {WATCHES} watches have a complete snapshot")
    after = resident()
    holding.cancel()
    await asyncio.gather(holding, return_exceptions=True)
    return after - before


def resident() -> int:
    """The resident memory of this process in bytes."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def in_fresh_process(backend: Backend, kind: str) -> int:
    """Runs this program once more, for the watches alone."""
    command = [sys.executable, __file__, "--watches", kind, *backend.arguments]
    return int(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout)


def main() -> None:
    """Runs the benchmark."""
    parser = argparse.ArgumentParser(description="Compares this SDK with gRPC's bare stubs.")
    parser.add_argument("address", help="address of the backend")
    parser.add_argument("ca_file", help="its CA, or - for http://")
    parser.add_argument("token", help="a token that it accepts")
    parser.add_argument("--watches", choices=["sdk", "raw"], help=argparse.SUPPRESS)
    args = parser.parse_args()
    backend = Backend(args.address, args.ca_file, args.token)
    if args.watches:
        print(asyncio.run(growth(backend, args.watches)))
        return
    with callers(backend) as calls:
        for call in calls.values():
            for _ in range(WARM_UP):
                call()
        found = rates(calls)
    watches = {"count": WATCHES, **{kind: in_fresh_process(backend, kind) for kind in calls}}
    print(json.dumps({**found, "watches": watches}))


if __name__ == "__main__":
    main()
