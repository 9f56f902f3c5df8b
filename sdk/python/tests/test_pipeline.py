"""The example for pipelines."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import grpc
import pytest

from bindery import v1alpha2 as api

from .conftest import Scripts
from .server import Fail, Step, reason
from .test_manifests import answer

EXAMPLE = Path(__file__).resolve().parents[1] / "examples" / "pipeline.py"
Code = grpc.StatusCode


def run(arguments: Sequence[str], **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {key: value for key, value in os.environ.items() if not key.startswith("BIND_")}
    return subprocess.run(
        [sys.executable, str(EXAMPLE), "cowboys", "--identity", "uid", "--allow-plaintext", *arguments],
        env={**environment, **variables},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def response(phase: api.Phase.ValueType, result: api.BindingResourceResponse | None = None) -> list[Step]:
    waiting = api.Condition(type="Ready", status="False", reason="Waiting", message="the CRD is not served yet")
    request = api.BindableResourcesRequest(
        metadata=api.ObjectMeta(name="west"),
        status=api.BindableResourcesRequestStatus(phase=phase, conditions=[waiting]),
    )
    return [api.CreateBindableResourcesRequestResponse(bindable_resources_request=request, response=result)]


BOUND = response(api.PHASE_SUCCEEDED, answer())


def test_it_waits_and_writes_to_standard_output(script: Scripts) -> None:
    server = script(response(api.PHASE_PENDING), BOUND)
    done = run(["--server", server.address, "--name", "west", "--reject", "secrets"], BIND_TOKEN="hunter2")
    assert done.returncode == 0, done.stderr
    documents = [json.loads(line) for line in done.stdout.splitlines()]
    assert [document["kind"] for document in documents] == ["ClusterRole", "ClusterRoleBinding", "Secret", "APIServiceBinding"]
    assert documents[3]["spec"]["rejectedPermissionClaims"] == [{"resource": "secrets"}]
    assert "waiting for the provider: the CRD is not served yet" in done.stderr
    assert "hunter2" not in done.stderr
    assert server.seen[0].headers["authorization"] == "Bearer hunter2"
    assert str(server.seen[0].headers["user-agent"]).startswith("bindery-pipeline/1 ")


def test_it_writes_files_for_their_owner_alone(script: Scripts, tmp_path: Path) -> None:
    server = script(BOUND, BOUND)
    token = tmp_path / "token"
    token.write_text("of-file\n")
    folder = tmp_path / "manifests"
    arguments = ["--server", server.address, "--name", "west", "--output", str(folder), "--with-namespace"]
    for _ in range(2):
        done = run(arguments, BIND_TOKEN_FILE=str(token))
        assert done.returncode == 0, done.stderr
    assert sorted(path.name for path in folder.iterdir()) == [
        "0-namespace-kube-bind.json",
        "1-clusterrole-kube-bind-konnector-west.json",
        "2-clusterrolebinding-kube-bind-konnector-west.json",
        "3-secret-kubeconfig-west.json",
        "4-apiservicebinding-west.json",
    ]
    assert {path.stat().st_mode & 0o777 for path in folder.iterdir()} == {0o600}
    assert server.seen[0].headers["authorization"] == "Bearer of-file"
    file = tmp_path / "file"
    file.write_text("")
    assert run([*arguments[:-3], "--output", str(file)], BIND_TOKEN_FILE=str(token)).returncode in (5, 9)


def test_it_takes_the_token_of_a_command(script: Scripts) -> None:
    server = script(response(api.PHASE_SUCCEEDED, api.BindingResourceResponse(binding_name="west")))
    done = run(["--server", server.address, "--name", "west", "--token-command", "echo of-command", "--dry-run"])
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
    assert server.seen[0].headers["authorization"] == "Bearer of-command"
    assert server.seen[0].request.validate_only


@pytest.mark.parametrize(
    ("steps", "expect"),
    [
        ([reason(Code.INVALID_ARGUMENT, "FIELD_INVALID")], 2),
        ([reason(Code.UNAUTHENTICATED, "TOKEN_AUDIENCE_WRONG")], 3),
        ([reason(Code.PERMISSION_DENIED, "TEMPLATE_BIND_DENIED")], 3),
        ([reason(Code.NOT_FOUND, "TEMPLATE_NOT_FOUND")], 4),
        ([reason(Code.FAILED_PRECONDITION, "TEMPLATE_NOT_READY")], 5),
        (response(api.PHASE_FAILED), 5),
        (response(api.PHASE_PENDING), 6),
        ([reason(Code.UNAVAILABLE, "OVERLOADED", 600)], 7),
        (response(api.PHASE_SUCCEEDED), 8),
        (response(api.PHASE_SUCCEEDED, api.BindingResourceResponse(binding_name="east")), 8),
    ],
)
def test_exit_codes_tell_what_to_do(script: Scripts, steps: list[Step], expect: int) -> None:
    server = script(steps)
    done = run(["--server", server.address, "--name", "west", "--patience", "0"], BIND_TOKEN="hunter2")
    assert done.returncode == expect, done.stderr
    assert done.stderr.splitlines()[-1].startswith("error: ")
    assert done.stdout == ""


def test_settings_that_cannot_work(script: Scripts) -> None:
    assert run(["--server", "http://bind.example.com"]).returncode == 2
    assert run([]).returncode == 2
    assert run(["--server", "http://127.0.0.1:1"], BIND_TOKEN="two words").returncode == 3
    assert run(["--server", script([Fail(Code.UNAUTHENTICATED)]).address]).returncode == 3
