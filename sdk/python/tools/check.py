#!/usr/bin/env python3
"""Checks this package on a machine with Python 3.11 or later and an index of Python packages, and nothing else.

    python3 sdk/python/tools/check.py              # everything
    python3 sdk/python/tools/check.py --only types # one of: generated, types, lint, tests, package

It installs the development requirements, by their hashes, once into the cache (`$XDG_CACHE_HOME/bindery` or `~/.cache/bindery`),
and downloads the wheels that an installation of this package needs into the same place. Nothing is written into the checkout.

- generated: the code in `src/bindery/_gen` is that of the .proto files.
- types: mypy, strict.
- lint: ruff, rules and format.
- tests: pytest, with the example's tests, and all but the next.
- package: wheel and source are built, installed with hashes and without an index into empty environments, and run the program of
  the README there.

It fails if one of them fails; none is ever skipped.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CHECKS: Mapping[str, Sequence[Sequence[str]]] = {
    "generated": [["tools/generate.py", "--check"]],
    "types": [["-m", "mypy"]],
    "lint": [["-m", "ruff", "check", "."], ["-m", "ruff", "format", "--check", "."]],
    "tests": [["-m", "pytest", "-q", "-m", "not package"]],
    "package": [["-m", "pytest", "-q", "-m", "package"]],
}


def main() -> int:
    parser = argparse.ArgumentParser(description="Checks this package.")
    parser.add_argument("--only", choices=CHECKS, action="append", help="run this check alone; may be repeated")
    args = parser.parse_args()
    python = environment()
    variables = {
        **os.environ,
        "BINDERY_WHEELS": str(wheels(python)),
        "PYTHONPATH": str(ROOT / "src"),
        "PYTHONDONTWRITEBYTECODE": "1",
        "MYPY_CACHE_DIR": str(cache("mypy")),
        "RUFF_CACHE_DIR": str(cache("ruff")),
        "PYTEST_ADDOPTS": f"-o cache_dir={cache('pytest')}",
    }
    failed = []
    for name in args.only or CHECKS:
        start = time.monotonic()
        for command in CHECKS[name]:
            if subprocess.run([str(python), *command], cwd=ROOT, env=variables, check=False).returncode != 0:
                failed.append(name)
                break
        print(f"==> {name}: {'FAILED' if name in failed else 'ok'} in {time.monotonic() - start:.0f} s", flush=True)
    return 1 if failed else 0


def cache(name: str) -> Path:
    """A folder of the cache."""
    variable = os.environ.get("XDG_CACHE_HOME", "")
    caches = Path(variable) if os.path.isabs(variable) else Path.home() / ".cache"
    folder = caches / "bindery" / "python-sdk-check" / name
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def keyed(name: str, *files: str) -> tuple[Path, Path]:
    """A folder of the cache for the content of these files, and the file that says that it is complete."""
    content = b"".join((ROOT / file).read_bytes() for file in files) + sys.version.encode()
    folder = cache(f"{name}-{hashlib.sha256(content).hexdigest()[:12]}")
    return folder, folder / "complete"


def environment() -> Path:
    """Returns the Python of an environment with the development requirements."""
    folder, complete = keyed("venv", "requirements-dev.txt")
    python = folder / "bin" / "python"
    if not complete.exists():
        start = time.monotonic()
        shutil.rmtree(folder)
        run(sys.executable, "-m", "venv", folder)
        run(python, *PIP, "install", *FROM_WHEELS, "-r", ROOT / "requirements-dev.txt")
        complete.touch()
        print(f"==> installed the development requirements in {time.monotonic() - start:.0f} s", flush=True)
    return python


def wheels(python: Path) -> Path:
    """Returns a folder with the wheels that an installation of this package needs, and those that build it from source."""
    folder, complete = keyed("wheels", "requirements.txt", "requirements-build.txt")
    if not complete.exists():
        start = time.monotonic()
        for file in ("requirements.txt", "requirements-build.txt"):
            run(python, *PIP, "download", *FROM_WHEELS, "--no-deps", "-d", folder, "-r", ROOT / file)
        complete.touch()
        print(f"==> downloaded the wheels of an installation in {time.monotonic() - start:.0f} s", flush=True)
    return folder


PIP = ("-m", "pip", "--quiet", "--disable-pip-version-check")
FROM_WHEELS = ("--require-hashes", "--only-binary=:all:")


def run(*command: str | Path) -> None:
    """Runs a command, and ends this program if it fails."""
    done = subprocess.run([str(part) for part in command], check=False)
    if done.returncode != 0:
        raise SystemExit(f"`{' '.join(map(str, command))}` failed with {done.returncode}")


if __name__ == "__main__":
    sys.exit(main())
