"""The ten lines of the README, as they stand there."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import grpc
import pytest

import bindery
from bindery import v1alpha2 as api

from .conftest import Scripts
from .pki import Authority
from .server import Fail
from .test_manifests import bind_response

ROOT = Path(__file__).resolve().parents[1]


def sample(heading: str) -> str:
    """The first program below a heading of the README."""
    found = re.search(rf"## {heading}.*?```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    assert found is not None
    return found[1]


def ten_lines() -> str:
    lines = sample("Ten lines")
    assert len([line for line in lines.splitlines() if line and not line.startswith("import ")]) <= 10
    return lines


def run_ten_lines(python: str, script: Scripts, folder: Path) -> None:
    """Runs the ten lines with an interpreter, against a server."""
    ca = Authority()
    (folder / "ca.crt").write_bytes(ca.pem)
    (folder / "token").write_text("hunter2\n")
    chain, key = ca.issue()
    request = api.BindableResourcesRequest(metadata=api.ObjectMeta(name="west"))
    server = script(
        [api.ListTemplatesResponse(templates=[api.Template(metadata=api.ObjectMeta(name="cowboys"))])],
        [api.CreateBindableResourcesRequestResponse(bindable_resources_request=request)],
        [api.CreateBindableResourcesRequestResponse(bindable_resources_request=request, response=bind_response())],
        credentials=grpc.ssl_server_credentials([(key, chain)]),
    )
    variables = {
        "BIND_SERVER": server.address,
        "BIND_CA_FILE": str(folder / "ca.crt"),
        "BIND_TOKEN_FILE": str(folder / "token"),
        "BIND_TEMPLATE": "west",
        "BIND_CLUSTER_IDENTITY": "uid",
    }
    kept = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
    if python == sys.executable:
        kept["PYTHONPATH"] = str(ROOT / "src")
    done = subprocess.run(
        [python, "-c", ten_lines()], env={**kept, **variables}, cwd=folder, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "may bind: cowboys\nwaiting\n" in done.stderr
    assert done.stdout.count("\n") == 4
    assert server.seen[1].headers["authorization"] == "Bearer hunter2"


def test_ten_lines(script: Scripts, tmp_path: Path) -> None:
    run_ten_lines(sys.executable, script, tmp_path)


def test_the_watch_knows_what_there_is(script: Scripts) -> None:
    """The sample for watches, from a snapshot and from a stored token."""

    def message(**fields: Any) -> api.WatchExportsResponse:
        return api.WatchExportsResponse(**fields)

    def applied(name: str) -> api.WatchExportsResponse:
        return message(applied=api.Export(metadata=api.ObjectMeta(name=name)), resume_token=name)

    begin, complete = message(snapshot_begin=api.SnapshotBegin()), message(snapshot_complete=api.SnapshotComplete(object_count=1))
    removed = message(removed=api.Removed(name="old"), resume_token="r")
    end = Fail(grpc.StatusCode.NOT_FOUND)
    for token, steps, expect in (
        ("", [begin, applied("a"), complete, applied("b"), end], {"a", "b"}),
        ("t", [applied("b"), removed, end], {"kept", "b"}),
        ("t", [begin, applied("a"), end], {"old", "kept"}),
    ):
        server = script(steps)
        stored: list[set[str]] = []
        with bindery.Client(server.address, allow_plaintext=True) as client, pytest.raises(bindery.NotFoundError):
            exec(
                sample("Watches"),
                {
                    "bindery": bindery,
                    "client": client,
                    "load_exports": lambda: dict.fromkeys(("old", "kept")),
                    "load_token": lambda token=token: token,
                    "store": lambda exports, token, stored=stored: stored.append(set(exports)),
                },
            )
        assert stored[-1] == expect
        assert server.seen[0].request.resume_token == token
