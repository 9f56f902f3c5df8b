"""The ten lines of the README, as they stand there."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import venv
from pathlib import Path

import grpc
import pytest

from bindery import v1alpha2 as api

from .conftest import Scripts
from .pki import Authority
from .test_manifests import answer

ROOT = Path(__file__).resolve().parents[1]


def ten_lines() -> str:
    found = re.search(r"## Ten lines.*?```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    assert found is not None
    lines = found[1]
    assert len([line for line in lines.splitlines() if line]) <= 10
    return lines


def run(python: str, script: Scripts, folder: Path) -> None:
    """Runs the ten lines with an interpreter, against a server."""
    ca = Authority()
    (folder / "ca.crt").write_bytes(ca.pem)
    (folder / "token").write_text("hunter2\n")
    chain, key = ca.issue()
    request = api.BindableResourcesRequest(metadata=api.ObjectMeta(name="west"))
    server = script(
        [api.ListTemplatesResponse(templates=[api.Template(metadata=api.ObjectMeta(name="cowboys"))])],
        [api.CreateBindableResourcesRequestResponse(bindable_resources_request=request)],
        [api.CreateBindableResourcesRequestResponse(bindable_resources_request=request, response=answer())],
        credentials=grpc.ssl_server_credentials([(key, chain)]),
    )
    variables = {
        "BIND_SERVER": server.address,
        "BIND_CA_FILE": str(folder / "ca.crt"),
        "BIND_TOKEN_FILE": str(folder / "token"),
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
    run(sys.executable, script, tmp_path)


@pytest.mark.skipif("BINDERY_WHEELS" not in os.environ, reason="BINDERY_WHEELS names no folder of wheels to install")
def test_ten_lines_in_an_empty_environment(script: Scripts, tmp_path: Path) -> None:
    venv.create(tmp_path / "venv", with_pip=True)
    python = str(tmp_path / "venv" / "bin" / "python")
    wheels = os.environ["BINDERY_WHEELS"]
    install = [python, "-m", "pip", "install", "--quiet", "--no-index", f"--find-links={wheels}", "bindery-sdk"]
    subprocess.run(install, check=True)
    subprocess.run([python, "-m", "pip", "check"], check=True)
    run(python, script, tmp_path)
