"""What the tests share."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

from .both import Callers
from .server import Script, Step

Scripts = Callable[..., Script]


@pytest.fixture(params=["sync", "aio"])
def caller(request: pytest.FixtureRequest) -> Iterator[Callers]:
    """Makes clients; each test runs with both kinds."""
    callers = Callers(request.param)
    yield callers
    callers.close()


@pytest.fixture
def script() -> Iterator[Scripts]:
    """Makes servers by their answers."""
    made: list[Script] = []

    def make(*answers: Sequence[Step], **settings: Any) -> Script:
        made.append(Script(*answers, **settings))
        return made[-1]

    yield make
    for server in made:
        server.close()
