"""Sources of bearer tokens.

A client takes a text (a static token), one of the sources here, or a function that returns a token; :class:`bindery.aio.Client`
also takes an async function. The token must be for :attr:`Client.audience <bindery.Client.audience>`. It is sent to the dialled
address alone, and no ``repr``, error or log line shows it.
"""

from __future__ import annotations

import abc
import json
import os
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

from ._core.secret import TOKEN_LENGTH_MAX, Hidden
from .errors import TokenError

__all__ = ["ExecToken", "FileToken", "FunctionToken", "StaticToken", "TokenSource"]

_LOOK_AFTER: Final = 0.5
"""Seconds after which a token file is looked at again."""
_REREAD_AFTER: Final = 60.0
"""Seconds after which a file is read again even if it looks the same: not every file system updates its metadata."""
_FILE_LENGTH_MAX: Final = 4 * TOKEN_LENGTH_MAX
_EXPIRES_EARLY: Final = 30.0
"""Seconds before its expiry from which on a token is fetched anew."""
_OUTPUT_LENGTH_MAX: Final = 256 * 1024


class TokenSource(abc.ABC):
    """Provides the token of each attempt of a call. Its methods may be called from several threads at a time."""

    @abc.abstractmethod
    def token(self, timeout: float | None = None) -> str:
        """Returns the token to send now, without "Bearer".

        :param timeout: Seconds that the call can wait, if it has a limit.
        :raises TokenError: There is no token. Other exceptions become one with the reason ``TokenSourceFailed``.
        """

    def cached(self) -> str | None:
        """Returns the token if that needs neither waiting nor IO. The async client asks :meth:`token` on a thread otherwise."""
        return None

    def expired(self) -> None:  # noqa: B027
        """Drops a remembered token: the server said that it has expired, or is not valid any more."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"


class StaticToken(TokenSource):
    """Always the same token."""

    def __init__(self, token: str) -> None:
        self._token: Final = Hidden(token)

    def token(self, timeout: float | None = None) -> str:
        return self._token

    def cached(self) -> str:
        return self._token


class FunctionToken(TokenSource):
    """Tokens of a function, which is called for each attempt."""

    def __init__(self, function: Callable[[], str]) -> None:
        self._function: Final = function

    def token(self, timeout: float | None = None) -> str:
        return self._function()


class _Read(NamedTuple):
    token: Hidden
    look: tuple[int, ...]
    read_at: float
    looked_at: float


class FileToken(TokenSource):
    """The token in a file which another program keeps fresh, such as a projected ServiceAccount token.

    The file is looked at once in half a second at most. It is read again when it has changed, every minute, and when the server
    says that the token has expired. White space around the token is dropped.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path: Final = os.fspath(path)
        self._lock: Final = threading.Lock()
        self._last: _Read | None = None

    def token(self, timeout: float | None = None) -> str:
        token = self.cached()
        if token is not None:
            return token
        with self._lock:
            try:
                self._last = last = self._look(self._last)
            except OSError as error:
                raise TokenError(
                    TokenError.FILE_UNREADABLE, f"cannot read the token file {self.path}: {error.strerror or error}"
                ) from None
            return last.token

    def cached(self) -> str | None:
        last = self._last
        if last is None or time.monotonic() - last.looked_at >= _LOOK_AFTER:
            return None
        return last.token

    def expired(self) -> None:
        self._last = None

    def _look(self, last: _Read | None) -> _Read:
        now = time.monotonic()
        found = os.stat(self.path)
        look = (found.st_mtime_ns, found.st_size, found.st_ino, found.st_dev)
        if last is not None and last.look == look and now - last.read_at < _REREAD_AFTER:
            return last._replace(looked_at=now)
        with open(self.path, "rb") as file:
            data = file.read(_FILE_LENGTH_MAX)
        return _Read(Hidden(data.decode("utf-8", "replace").strip()), look, now, now)

    def __repr__(self) -> str:
        return f"FileToken({self.path!r})"


class _Issued(NamedTuple):
    token: Hidden
    until: float
    """Moment by time.time() at which the token is fetched anew."""


class ExecToken(TokenSource):
    """The token that a command prints: the token alone, or an ExecCredential of ``client.authentication.k8s.io``, as
    ``kubectl bind token --exec-credential`` does.

    An ExecCredential with an expiry is remembered until 30 s before it; any other token is remembered for 10 s, so that the
    command is not run for each call. The command gets no input, and what it writes to its standard error is not read.
    """

    def __init__(
        self,
        command: Sequence[str],
        *,
        env: Mapping[str, str] | None = None,
        timeout: float = 30.0,
        remember: float = 10.0,
    ) -> None:
        """
        :param command: Program and arguments. No shell is involved.
        :param env: Variables to set beside those of this process.
        :param timeout: Seconds after which the command is killed.
        :param remember: Seconds for which a token without an expiry is used.
        """
        if isinstance(command, (str, bytes)) or not command:
            raise ValueError("the command is a list: the program and its arguments")
        self.command: Final = tuple(command)
        self._env: Final = dict(env or {})
        self._timeout: Final = timeout
        self._remember: Final = remember
        self._lock: Final = threading.Lock()
        self._issued: _Issued | None = None

    def token(self, timeout: float | None = None) -> str:
        until = self._timeout if timeout is None else min(timeout, self._timeout)
        start = time.monotonic()
        # One run of the command serves all callers.
        if not self._lock.acquire(timeout=max(0.0, until)):
            raise self._failed(f"does not end within {until:.1f} s")
        try:
            token = self.cached()
            if token is not None:
                return token
            self._issued = issued = self._run(max(0.1, until - (time.monotonic() - start)))
            return issued.token
        finally:
            self._lock.release()

    def cached(self) -> str | None:
        issued = self._issued
        return issued.token if issued is not None and time.time() < issued.until else None

    def expired(self) -> None:
        self._issued = None

    def _run(self, timeout: float) -> _Issued:
        issued = self._issue(timeout)
        # Raised here, for the frames of the error must not have what the command printed.
        if isinstance(issued, str):
            raise self._failed(issued)
        return issued

    def _issue(self, timeout: float) -> _Issued | str:
        """Runs the command. Returns the token, or what is wrong."""
        try:
            done = subprocess.run(
                self.command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env={**os.environ, **self._env},
                timeout=timeout,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return f"does not end within {timeout:.1f} s"
        except (OSError, ValueError) as error:
            return f"cannot be run: {getattr(error, 'strerror', None) or error}"
        if done.returncode != 0:
            return f"ends with status {done.returncode}; run it by hand to see why"
        if len(done.stdout) > _OUTPUT_LENGTH_MAX:
            return "prints too much for a token"
        return self._parse(done.stdout.decode("utf-8", "replace").strip())

    def _parse(self, text: str) -> _Issued | str:
        if not text.startswith("{"):
            return _Issued(Hidden(text), time.time() + self._remember)
        try:
            credential = json.loads(text)
            status: Any = credential["status"]
            token, expiry = status["token"], status.get("expirationTimestamp")
            if credential.get("kind") != "ExecCredential" or not isinstance(token, str):
                raise ValueError
            until = time.time() + self._remember if expiry is None else _moment(expiry) - _EXPIRES_EARLY
        except (ValueError, KeyError, TypeError, AttributeError):
            return "prints JSON that is no ExecCredential with a token"
        return _Issued(Hidden(token), until)

    def _failed(self, fault: str) -> TokenError:
        return TokenError(TokenError.SOURCE_FAILED, f"cannot get a token: the command {self.command[0]} {fault}")

    def __repr__(self) -> str:
        # An argument may be a secret.
        return f"ExecToken([{self.command[0]!r}, …])"


def _moment(text: str) -> float:
    """Reads a time of RFC 3339 into seconds as time.time() counts them."""
    moment = datetime.fromisoformat(text)
    return (moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)).timestamp()
