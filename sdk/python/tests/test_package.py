"""The wheel and the source, as they are published: built, and installed into empty environments from a folder of files."""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
import sys
import tarfile
import venv
import zipfile
from pathlib import Path

import pytest

from bindery import __version__

from .conftest import Scripts
from .test_readme import ROOT, run_ten_lines

pytestmark = pytest.mark.package

NAME = f"bindery_sdk-{__version__}"
WHEEL, SOURCE = f"{NAME}-py3-none-any.whl", f"{NAME}.tar.gz"
PIP = ("-m", "pip", "--quiet", "--disable-pip-version-check")


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the source, and the wheel that is built of it."""
    folder = tmp_path_factory.mktemp("built")
    call(sys.executable, "-m", "build", "--no-isolation", "--outdir", folder, ROOT)
    return folder


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the wheels that an installation needs: that of BINDERY_WHEELS, or one that is filled from an index."""
    given = os.environ.get("BINDERY_WHEELS")
    if given:
        return Path(given)
    folder = tmp_path_factory.mktemp("wheels")
    for name in ("requirements.txt", "requirements-build.txt"):
        hashed = ("--require-hashes", "--only-binary=:all:", "--no-deps", "-r", ROOT / name)
        call(sys.executable, *PIP, "download", *hashed, "-d", folder)
    return folder


def test_the_wheel_has_what_it_needs_and_nothing_else(built: Path) -> None:
    with zipfile.ZipFile(built / WHEEL) as wheel:
        names = wheel.namelist()
        metadata = wheel.read(f"{NAME}.dist-info/METADATA").decode()
    assert "bindery/py.typed" in names
    assert "bindery/_gen/kubebind/v1alpha2/export_pb2.pyi" in names
    assert f"{NAME}.dist-info/licenses/LICENSE" in names
    assert {name.split("/")[0] for name in names} == {"bindery", f"{NAME}.dist-info"}
    for field in ("Author: ", "Project-URL: Homepage, ", "Project-URL: Documentation, ", "License-Expression: Apache-2.0"):
        assert f"\n{field}" in metadata
    assert "## Ten lines" in metadata


def test_the_source_has_what_tests_it(built: Path) -> None:
    with tarfile.open(built / SOURCE) as source:
        names = {name.removeprefix(f"{NAME}/") for name in source.getnames()}
    assert {"pyproject.toml", "LICENSE", "README.md", "requirements.txt", "tests/runner.py", "tools/check.py", "bench.py"} <= names


@pytest.mark.parametrize("file", [WHEEL, SOURCE])
def test_it_is_installed_with_hashes_from_files(file: str, built: Path, files: Path, script: Scripts, tmp_path: Path) -> None:
    venv.create(tmp_path / "venv", with_pip=True)
    python = str(tmp_path / "venv" / "bin" / "python")
    digest = hashlib.sha256((built / file).read_bytes()).hexdigest()
    requirements = tmp_path / "requirements.txt"
    own = f"bindery-sdk=={__version__} --hash=sha256:{digest}\n"
    requirements.write_text((ROOT / "requirements.txt").read_text() + own)
    kind = "--only-binary=:all:" if file == WHEEL else "--no-binary=bindery-sdk"
    folders = (f"--find-links={files}", f"--find-links={built}")
    call(python, *PIP, "install", "--require-hashes", "--no-index", *folders, kind, "-r", requirements)
    call(python, *PIP, "check")
    listed = call(python, "-m", "pip", "--disable-pip-version-check", "list", "--format=freeze")
    assert set(re.findall(r"^(\S+)==", listed, re.MULTILINE)) - {"pip", "setuptools"} == {
        "bindery-sdk",
        "googleapis-common-protos",
        "grpcio",
        "protobuf",
        "typing_extensions",
    }
    run_ten_lines(python, script, tmp_path)


def call(*command: str | Path) -> str:
    """Runs a command without the variables of Python, and returns what it prints."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
    done = subprocess.run([str(part) for part in command], env=kept, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
    return done.stdout
