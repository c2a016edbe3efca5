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

import pytest
from hypothesis import settings

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
    items.sort(key=lambda item: first[group_of(item)])


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
    return PEERS if inspect.iscoroutinefunction(getattr(item, "obj", None)) else COMPUTES
