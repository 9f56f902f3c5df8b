"""Sources of bearer tokens.

A client takes a text (a static token), one of the sources here, or a function that returns a token; :class:`bindery.aio.Client`
also takes an async function. The token must be for :attr:`Client.audience <bindery.Client.audience>`. It is sent to the dialled
address alone, and no ``repr``, error or log line shows it.

A source is asked before each attempt of a call, and the time that it takes counts against the deadline of the call. A source
without a token by then is a :class:`bindery.TokenError`, which is never retried.
"""

from __future__ import annotations

import abc
import json
import os
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from datetime import UTC, datetime
from typing import IO, Any, Final, NamedTuple

from ._core.secret import TOKEN_LENGTH_MAX, Hidden, token_fault
from .errors import TokenError

__all__ = ["ExecToken", "FileToken", "FunctionToken", "StaticToken", "TokenSource"]

_LOOK_AFTER: Final = 0.5
"""Seconds after which the metadata of a token file is read again."""
_REREAD_AFTER: Final = 60.0
"""Seconds after which a file is read again even if its metadata is the same: not every file system updates it."""
_FILE_LENGTH_MAX: Final = 4 * TOKEN_LENGTH_MAX
_EXPIRES_EARLY: Final = 30.0
"""Seconds before its expiry from which on a token is fetched anew."""
_KEPT: Final = 60.0
"""Seconds for which a token without an expiry is used."""
_PROGRAM_TIMEOUT: Final = 60.0
"""Seconds after which a program is killed."""
_OUTPUT_LENGTH_MAX: Final = 256 * 1024


class TokenSource(abc.ABC):
    """Provides the token of each attempt of a call. Its methods may be called from several threads at a time."""

    @abc.abstractmethod
    def token(self, timeout: float | None = None) -> str:
        """Returns the token to send now, without "Bearer". Clients call it on a thread of its own, with the context variables of
        the caller.

        :param timeout: Seconds that the call can wait, if it has a limit. A client stops waiting after that.
        :raises TokenError: There is no token. Other exceptions become the cause of one with the reason ``TokenSourceFailed``.
        """

    def cached(self) -> str | None:
        """Returns the token if that needs neither waiting nor IO."""
        return None

    def forget(self, token: str) -> None:  # noqa: B027
        """Drops this token if it is the current one: the server said that it has expired, or is not valid."""

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
    """Tokens of a function, which is called before each attempt of a call."""

    def __init__(self, function: Callable[[], str]) -> None:
        self._function: Final = function

    def token(self, timeout: float | None = None) -> str:
        return self._function()


# === Files ===


class _FileReading(NamedTuple):
    token: Hidden
    metadata: tuple[int, int, int, int]
    read_at: float
    looked_at: float


class FileToken(TokenSource):
    """The token in a file which another program keeps fresh, such as a projected ServiceAccount token.

    The metadata of the file is read once in half a second at most. Its content is read again when the metadata has changed, every
    minute, and when the server refused the token. White space around the token is dropped.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path: Final = os.fspath(path)
        # Held for moments, never while the file is read.
        self._lock: Final = threading.Lock()
        self._last: _FileReading | None = None
        self._forgotten: str | None = None
        """The token that was forgotten last. A reading that began before that does not bring it back."""

    def token(self, timeout: float | None = None) -> str:
        token = self.cached()
        if token is not None:
            return token
        with self._lock:
            last, forgotten = self._last, self._forgotten
        try:
            reading = self._read(last)
        except OSError as error:
            raise TokenError(
                TokenError.FILE_UNREADABLE, f"cannot read the token file {self.path}: {error.strerror or error}"
            ) from error
        with self._lock:
            is_refused = reading.token == self._forgotten != forgotten
            if not is_refused and (self._last is None or self._last.looked_at <= reading.looked_at):
                self._last = reading
        return reading.token

    def cached(self) -> str | None:
        last = self._last
        if last is None or time.monotonic() - last.looked_at >= _LOOK_AFTER:
            return None
        return last.token

    def forget(self, token: str) -> None:
        with self._lock:
            self._forgotten = Hidden(token)
            if self._last is not None and self._last.token == token:
                self._last = None

    def _read(self, last: _FileReading | None) -> _FileReading:
        now = time.monotonic()
        found = os.stat(self.path)
        metadata = (found.st_mtime_ns, found.st_size, found.st_ino, found.st_dev)
        if last is not None and last.metadata == metadata and now - last.read_at < _REREAD_AFTER:
            return last._replace(looked_at=now)
        with open(self.path, "rb") as file:
            data = file.read(_FILE_LENGTH_MAX)
        return _FileReading(Hidden(data.decode("utf-8", "replace").strip()), metadata, now, now)

    def __repr__(self) -> str:
        return f"FileToken({self.path!r})"


# === Programs ===


class _IssuedToken(NamedTuple):
    token: Hidden
    until: float
    """Moment by time.time() at which the token is fetched anew."""


_Listener = Callable[[Hidden | TokenError], object]
"""A callback that gets the token that a program printed, or the error for what went wrong."""


class ExecToken(TokenSource):
    """The token that a program prints: the token alone, or an ExecCredential of ``client.authentication.k8s.io``, as
    ``kubectl bind token --exec-credential`` does.

    An ExecCredential with an expiry is used until 30 s before it, any other token for 60 s. At most one program runs at a time. All
    callers share it, it goes on when a caller has stopped waiting, and it is killed after 60 s. It gets no input; its standard
    error is that of this process, so that a prompt is seen. It gets the variable ``KUBERNETES_EXEC_INFO``, as plug-ins of kubectl
    do.
    """

    def __init__(self, command: Sequence[str], *, env: Mapping[str, str] | None = None, _timeout: float = _PROGRAM_TIMEOUT) -> None:
        """
        :param command: Program and arguments. No shell is involved.
        :param env: Variables to set beside those of this process.
        """
        if isinstance(command, (str, bytes)) or not command:
            raise ValueError("the command is a list: the program and its arguments")
        self.command: Final = tuple(command)
        self._env: Final = dict(env or {})
        self._timeout: Final = _timeout
        self._lock: Final = threading.Lock()
        self._issued: _IssuedToken | None = None
        self._forgotten: str | None = None
        """The token that was forgotten last. A run that began before that does not bring it back."""
        self._listeners: list[_Listener] | None = None
        """The callers that wait for the program that runs; None if none runs."""

    def token(self, timeout: float | None = None) -> str:
        future: Future[Hidden | TokenError] = Future()
        self._notify(future.set_result)
        try:
            result = future.result(timeout)
        except FutureTimeoutError:
            raise self._failed(f"does not end within {timeout or 0.0:.1f} s") from None
        if isinstance(result, TokenError):
            raise result
        return result

    def cached(self) -> str | None:
        issued = self._issued
        return issued.token if issued is not None and time.time() < issued.until else None

    def forget(self, token: str) -> None:
        with self._lock:
            self._forgotten = Hidden(token)
            if self._issued is not None and self._issued.token == token:
                self._issued = None

    def _notify(self, listener: _Listener) -> None:
        """Calls the listener: at once if the token is known, else when the program has ended."""
        with self._lock:
            token = self.cached()
            if token is None:
                if self._listeners is None:
                    threading.Thread(target=self._work, name="bindery-token-program", daemon=True).start()
                    self._listeners = []
                self._listeners.append(listener)
        if token is not None:
            listener(Hidden(token))

    def _work(self) -> None:
        """Runs the program, and calls all listeners with its result."""
        while True:
            with self._lock:
                forgotten = self._forgotten
            result = self._issue()
            with self._lock:
                if isinstance(result, _IssuedToken) and result.token == self._forgotten != forgotten:
                    # The server refused this very token while the program ran.
                    continue
                is_token = isinstance(result, _IssuedToken) and token_fault(result.token) is None
                self._issued = result if is_token and isinstance(result, _IssuedToken) else None
                listeners, self._listeners = self._listeners or [], None
            for listener in listeners:
                listener(result.token if isinstance(result, _IssuedToken) else self._failed(result))
            return

    def _issue(self) -> _IssuedToken | str:
        """Runs the program once. Returns the token, or what is wrong."""
        try:
            outcome = _run(self.command, {**os.environ, **self._env, "KUBERNETES_EXEC_INFO": _EXEC_INFO}, self._timeout)
            return outcome if isinstance(outcome, str) else _parse(outcome.decode("utf-8", "replace").strip())
        except Exception as error:
            # Callers wait for a result, so no exception may end the thread.
            return f"cannot be run: {type(error).__name__}"

    def _failed(self, fault: str) -> TokenError:
        return TokenError(TokenError.SOURCE_FAILED, f"cannot get a token: the program {self.command[0]} {fault}")

    def __repr__(self) -> str:
        # An argument may be a secret.
        return f"ExecToken([{self.command[0]!r}, …])"


_EXEC_INFO: Final = json.dumps(
    {"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "spec": {"interactive": False}}
)
"""Content of the variable ``KUBERNETES_EXEC_INFO``, by which kubectl asks its plug-ins for a credential."""


def _run(command: Sequence[str], env: Mapping[str, str], limit: float) -> bytes | str:
    """Runs a program to its end. Returns what it printed, or what is wrong."""
    end = time.monotonic() + limit
    try:
        program = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, env=env)
    except (OSError, ValueError) as error:
        return f"cannot be run: {getattr(error, 'strerror', None) or error}"
    assert program.stdout is not None
    # A child of the program may hold the pipe for longer than the program lives, so a thread reads it, which can be left alone.
    output: list[bytes] = []
    reader = threading.Thread(target=_read, args=(program.stdout, output), name="bindery-token-output", daemon=True)
    reader.start()
    try:
        reader.join(limit)
        if output and len(output[0]) > _OUTPUT_LENGTH_MAX:
            return "prints too much for a token"
        status = program.wait(max(0.0, end - time.monotonic()))
    except subprocess.TimeoutExpired:
        return f"does not end within {limit:.1f} s"
    finally:
        if program.poll() is None:
            program.kill()
            program.wait()
    if status != 0:
        return f"ends with status {status}; run it by hand to see why"
    return output[0] if output else f"does not close its output within {limit:.1f} s"


def _read(pipe: IO[bytes], output: list[bytes]) -> None:
    with pipe:
        output.append(pipe.read(_OUTPUT_LENGTH_MAX + 1))


def _parse(text: str) -> _IssuedToken | str:
    """Reads what a program printed. Returns the token, or what is wrong."""
    if not text.startswith("{"):
        return _IssuedToken(Hidden(text), time.time() + _KEPT)
    try:
        credential = json.loads(text)
        status: Any = credential["status"]
        token, expiry = status["token"], status.get("expirationTimestamp")
        if credential.get("kind") != "ExecCredential" or not isinstance(token, str):
            raise ValueError
        until = time.time() + _KEPT if expiry is None else _moment(expiry) - _EXPIRES_EARLY
    except (ValueError, KeyError, TypeError, AttributeError):
        return "prints JSON that is no ExecCredential with a token"
    return _IssuedToken(Hidden(token), until)


def _moment(text: str) -> float:
    """Reads a time of RFC 3339 into seconds as time.time() counts them."""
    moment = datetime.fromisoformat(text)
    return (moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)).timestamp()
