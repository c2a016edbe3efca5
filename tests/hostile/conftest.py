"""One besieged federation for all attacks: traces of one attack count in the next."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from queue import SimpleQueue

import pytest
import trio
from deadline import DEADLINE_S
from hostile_siege import Siege, open_siege


@pytest.fixture(scope="session")
def siege() -> Iterator[Siege]:
    """Give a siege; its peers are processes, and a thread drives it."""
    opened: SimpleQueue[tuple[Siege, trio.lowlevel.TrioToken, trio.Event] | BaseException]
    opened = SimpleQueue()

    async def keep() -> None:
        async with open_siege() as besieged:
            over = trio.Event()
            opened.put((besieged, trio.lowlevel.current_trio_token(), over))
            await over.wait()

    def run() -> None:
        try:
            trio.run(keep)
        except BaseException as error:  # noqa: BLE001 - raised by the fixture
            opened.put(error)

    thread = threading.Thread(target=run, name="siege")
    thread.start()
    found = opened.get(timeout=DEADLINE_S)
    if isinstance(found, BaseException):
        raise found
    besieged, token, over = found
    yield besieged
    token.run_sync_soon(over.set)
    thread.join()


@pytest.fixture(params=[1.0, pytest.param(30.0, marks=pytest.mark.soak)], ids=["short", "long"])
def seconds(request: pytest.FixtureRequest) -> float:
    """Return the duration of an attack in seconds."""
    return float(request.param)
