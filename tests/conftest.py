"""What holds for every test of a run.

Property tests try the same examples in every run, so that a change is judged by what it changed;
`make soak` looks for new ones (`--hypothesis-profile=soak`).

`make test` runs the tests in several processes (pytest-xdist). All tests that share a Spark run in
one of them, and so do those that share the besieged federation; of others, those of a file. What
takes longest begins first, so that no process has much left when the others have ended.
"""

from __future__ import annotations

import inspect
import os
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import trio
from hypothesis import settings
from trio.abc import Clock, Instrument
from trio.testing import MockClock

if TYPE_CHECKING:
    from engine_peers import Town

# A process that compiles all our modules takes twice the CPU time to start of one that reads them
# compiled, and tests start hundreds.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# A shell has what it runs in the background ignore Ctrl-C, and so would all that tests start.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# No deadline: how long an example takes says how busy the machine is.
settings.register_profile("ci", derandomize=True, deadline=None)
settings.register_profile("dev", settings.get_profile("ci"), max_examples=20)
settings.register_profile("soak", deadline=None)
settings.load_profile("ci")

SHARED = {"siege": "siege", "shared_spark": "spark"}
"""Fixtures of a whole run, and the group of the tests that use one."""


LARGE = {"docs", "testnet"}
"""Folders of tests that are large even where they only compute."""


@pytest.hookimpl(tryfirst=True)  # pytest-xdist reads the groups, pytest the marks
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    first: dict[str, int] = {}
    for item in items:
        turn, group = turn_of(item), group_of(item)
        item.add_marker(pytest.mark.xdist_group(group))
        if turn == COMPUTES and item.path.parent.name not in LARGE:
            item.add_marker(pytest.mark.quick)
        first[group] = min(first.get(group, COMPUTES), turn)
        if is_async(item) and "autojump_clock" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.trio(run=on_virtual_time))
    items.sort(key=lambda item: first[group_of(item)])


def on_virtual_time(
    test: Callable[[], Awaitable[None]], clock: Clock | None, instruments: Sequence[Instrument]
) -> None:
    """As pytest-trio runs a test that names `autojump_clock`; here a mark or a fixture may."""
    clock = clock or MockClock(autojump_threshold=0)
    trio.run(test, clock=clock, instruments=instruments)


def group_of(item: pytest.Item) -> str:
    """The tests of a group run in one process, one after the other."""
    shared = SHARED.keys() & getattr(item, "fixturenames", ())
    return SHARED[min(shared)] if shared else item.nodeid.partition("::")[0]


PROCESSES, PEERS, COMPUTES = range(3)


def turn_of(item: pytest.Item) -> int:
    """Whether a test starts processes, or runs peers or simulates them, or only computes."""
    if SHARED.keys() & getattr(item, "fixturenames", ()):
        return PROCESSES
    if any(item.get_closest_marker(name) for name in ("process", "spark")):
        return PROCESSES
    return PEERS if is_async(item) else COMPUTES


def is_async(item: pytest.Item) -> bool:
    return inspect.iscoroutinefunction(getattr(item, "obj", None))


@pytest.fixture
async def town(tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[Town]:
    """Peers that a test settles. The marks `town` of the test and of its module say what else
    `open_town` is given; the test's go first."""
    from engine_peers import open_town

    settings: dict[str, object] = {}
    for mark in request.node.iter_markers("town"):
        settings = mark.kwargs | settings
    folder = tmp_path / "town"
    folder.mkdir()
    async with open_town(folder, **settings) as town:
        yield town
