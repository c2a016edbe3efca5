"""Rules and fixtures for every test of a run.

Property tests try the same examples in every run, so that a change is judged by what it changed;
`make soak` looks for new ones (`--hypothesis-profile=soak`).

`make test` runs the tests in more processes than there are cores (pytest-xdist): most tests wait.
The tests of one file run in one process. All tests that share a Spark are one group as well, and
all that share the besieged federation. Files whose tests stop the shared Spark, or start their own,
stay out of its group: a JVM that goes on has its code compiled, and a new one has not. At most two
tests with processes of their own run at a time: real peers that start all at once keep two cores so
busy that they take each other for dead. So three of the workers begin with the longest groups (the
shared Spark, and two with such tests), and the others with the rest.

Temporary files lie in memory, where the machine has room for them: peers sync what they write, and
a disk would make the tests wait.
"""

from __future__ import annotations

import fcntl
import gc
import inspect
import itertools
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import pytest
import trio
from hypothesis import HealthCheck, settings
from spark_of_tests import make_archive, stop_shared
from trio.abc import Clock, Instrument
from trio.testing import MockClock
from xdist import is_xdist_worker
from xdist.remote import Producer
from xdist.scheduler import LoadFileScheduling
from xdist.workermanage import WorkerController

if TYPE_CHECKING:
    from engine_peers import Cluster
    from tools_xmlrpc import OpenStock

# A process that compiles all our modules takes twice the CPU time to start of one that reads them
# compiled, and tests start hundreds.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

MEMORY = Path("/dev/shm")
ROOM_BYTES = 2 * 2**30
"""The least free memory: the temporary files of a run take a tenth of it."""
has_room = (
    MEMORY.is_dir()
    and min(shutil.disk_usage(MEMORY).free, psutil.virtual_memory().available) > ROOM_BYTES
)
if has_room and "TMPDIR" not in os.environ:
    os.environ["TMPDIR"] = tempfile.tempdir = str(MEMORY)

# A shell lets programs that it runs in the background ignore Ctrl-C, and so would everything that
# tests start.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# No deadline: the time that an example takes, or its drawing, depends on how busy the machine is.
PATIENT = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("ci", PATIENT, derandomize=True)
settings.register_profile("dev", settings.get_profile("ci"), max_examples=20)
settings.register_profile("soak", PATIENT)
settings.load_profile("ci")

SHARED = {"siege": "siege", "shared_spark": "spark"}
"""Fixtures of a whole run, and the group of the tests that use one."""
SPARK = ("_spark", "_load_measured.py", "_api_queries.py")
"""Parts of the names of files whose tests share the Spark."""
OWN_SPARK = (
    "_spark_archive.py",
    "_spark_cluster.py",
    "_spark_cluster_settings.py",
    "_spark_connect.py",
    "_spark_java.py",
    "_spark_session.py",
    "_spark_trouble.py",
    "_spark_workforce.py",
)
"""Files with such names whose tests stop the shared Spark, start a Spark of their own, or need
none."""
ALONE = ("_failover.py", "_frozen.py", "_secrets.py")
"""Files of attacks that start separate federations."""

LONGEST = (
    "spark",
    "_docs_commands.py",
    "siege",
    "_testnet_",
    "_revisions_",
    "_printing",
    "_kills",
    "_failover",
)
"""The groups, and parts of the names of the files, that take longest."""

LARGE = {"docs", "testnet"}
"""Folders whose tests count as large, also those that only compute."""

AT_ONCE = 2
"""The most tests with processes that run at once."""
FIRST = 3
"""Workers that begin with the groups that take longest: one with the shared Spark, two with groups
that start processes."""
LOOK_S = 0.1

GARBAGE = 20_000
"""Objects that are made and kept before garbage is looked for; Python's own number is 700."""

MOST = 8
"""Processes of a run, each of half a gigabyte."""
LOOK_AT_CORES_S = 1.0


class Groups(LoadFileScheduling):  # type: ignore[misc]
    """Gives the tests of a group to one process. The groups that start processes come first in the
    queue: `FIRST` of the workers begin there, the others at its end."""

    def _split_scope(self, nodeid: str) -> str:
        return group_of(nodeid)

    def _assign_work_unit(self, node: WorkerController) -> None:
        if self.nodes.index(node) >= FIRST:
            self.workqueue.move_to_end(next(reversed(self.workqueue)), last=False)
        super()._assign_work_unit(node)


def pytest_xdist_auto_num_workers() -> int:
    """How many processes `-n auto` means: `FIRST`, of which most wait, and one for each core, at
    most `MOST`; one less for each core that other programs use, because a peer that gets no time
    is taken for dead."""
    cores = os.cpu_count() or 1
    used = round(psutil.cpu_percent(LOOK_AT_CORES_S) / 100 * cores)
    return max(min(FIRST + cores - used, MOST), AT_ONCE)


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> Groups | None:
    return Groups(config, log) if config.getvalue("dist") == "loadfile" else None


def group_of(nodeid: str) -> str:
    """Return the group of a test: the tests of a group run in one process, one after the other."""
    file = nodeid.partition("::")[0]
    folder, _, name = file.rpartition("/")
    if name.endswith("_docs_commands.py"):
        return nodeid  # each takes minutes
    if folder.endswith("hostile") and not name.endswith(ALONE):
        return "siege"
    shares = any(part in name for part in SPARK) and not name.endswith(OWN_SPARK)
    return "spark" if shares else file


def pytest_sessionstart(session: pytest.Session) -> None:
    """Prepare the JVMs of a run in several processes, before these start."""
    option = session.config.option
    if not is_xdist_worker(session) and option.numprocesses and option.markexpr != "quick":
        make_archive()


@pytest.hookimpl(tryfirst=True)  # pytest reads the marks
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    turns: dict[str, int] = {}
    for item in items:
        turn, group = turn_of(item), group_of(item.nodeid)
        for fixture in SHARED.keys() & getattr(item, "fixturenames", ()):
            if item.path.name.endswith(OWN_SPARK):
                continue
            assert group == SHARED[fixture], f"{item.nodeid} shares the {SHARED[fixture]}"
        if turn == COMPUTES and item.path.parent.name not in LARGE:
            item.add_marker(pytest.mark.quick)
        if is_async(item) and "autojump_clock" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.trio(run=on_virtual_time))
        turns[group] = min(turns.get(group, COMPUTES), turn)
    places = {group: place for place, group in enumerate(in_order(turns))}
    items.sort(key=lambda item: places[group_of(item.nodeid)])


def pytest_collection_finish() -> None:
    """Freeze all imported objects: no later collection of garbage looks through them. Collect less
    often than Python would: where many objects are made, that took up to a sixth of the time."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(GARBAGE)


def in_order(turns: dict[str, int]) -> list[str]:
    """Return the queue of `Groups`: groups that start processes, then groups that only compute,
    then groups of peers. Of the groups with processes the longest come first. The other groups are
    taken from the end of the queue, so the longest of them come last."""

    def place(group: str) -> tuple[int, int]:
        turn, rank = turns[group], next(rank_of(group), len(LONGEST))
        return QUEUE.index(turn), rank if turn == PROCESSES else -rank

    def rank_of(group: str) -> Iterator[int]:
        for rank, part in enumerate(LONGEST):
            if group == part or (part.startswith("_") and part in group):
                yield rank

    return sorted(turns, key=place)


def on_virtual_time(
    test: Callable[[], Awaitable[None]], clock: Clock | None, instruments: Sequence[Instrument]
) -> None:
    """Run the test on virtual time, as pytest-trio does for a test that names `autojump_clock`."""
    clock = clock or MockClock(autojump_threshold=0)
    trio.run(test, clock=clock, instruments=instruments)


PROCESSES, PEERS, COMPUTES = range(3)
QUEUE = PROCESSES, COMPUTES, PEERS


def turn_of(item: pytest.Item) -> int:
    """Say when a test has its turn: it starts processes, runs or simulates peers, or only
    computes."""
    if SHARED.keys() & getattr(item, "fixturenames", ()):
        return PROCESSES
    if any(item.get_closest_marker(name) for name in ("process", "spark")):
        return PROCESSES
    return PEERS if is_async(item) else COMPUTES


def is_async(item: pytest.Item) -> bool:
    return inspect.iscoroutinefunction(getattr(item, "obj", None))


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Let at most `AT_ONCE` tests with processes run at a time, those of other runs included. A
    test waits before its fixtures start and before the timer of pytest-timeout does: for how long
    depends on the tests that run."""
    if item.get_closest_marker("process") is None or item.config.cache is None:
        return (yield)
    folder = item.config.cache.mkdir("processes")  # that all processes of a run share
    with one_of([folder / str(number) for number in range(AT_ONCE)]):
        return (yield)


@contextmanager
def one_of(files: list[Path]) -> Iterator[None]:
    """Hold the lock of one of these files, as soon as one is free."""
    for path in itertools.cycle(files):
        with path.open("w") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                time.sleep(LOOK_S / len(files))
                continue
            yield
            return


@pytest.fixture
def own_spark() -> None:
    """End the shared Spark before a test whose peer starts one in this process: see
    `spark_of_tests`."""
    stop_shared()


@pytest.fixture
def interpreted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the reference interpreter compute tasks: see `engine_interpreted`."""
    from engine_interpreted import interpret

    interpret(monkeypatch)


@pytest.fixture
def stock() -> Iterator[OpenStock]:
    """Make stock clients of XML-RPC, which are closed after the test."""
    from tools_xmlrpc import stock_clients

    with stock_clients() as make:
        yield make


@pytest.fixture
async def cluster(tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[Cluster]:
    """Give a test its peers. The marks `cluster` of the test and of its module have arguments of
    `open_cluster`; those of the test have precedence."""
    from engine_peers import open_cluster

    settings: dict[str, object] = {}
    for mark in request.node.iter_markers("cluster"):
        settings = mark.kwargs | settings
    folder = tmp_path / "cluster"
    folder.mkdir()
    async with open_cluster(folder, **settings) as cluster:
        yield cluster
