"""The kill tests' own means: a peer dies at the ordered call, and the tests reach every kill
point."""

from __future__ import annotations

import importlib
import pkgutil
import subprocess
import sys
from functools import partial
from pathlib import Path

import msgspec
import pytest
from crashing_peer import FILE, Crasher, Order, When, arm, disarm, is_armed
from kill_sweeps import SWEEPS

import medusa.engine
from medusa.overlay import failpoints
from medusa.overlay.failpoints import Failpoint, failpoint, watched


class Killed(BaseException):
    """Stands for SIGKILL here."""


def kill() -> None:
    raise Killed


WRITE, SEND = Failpoint.LOG_COMMIT, Failpoint.PRIMARY_NOTIFY


class Ledger:
    """A class of two steps, one of them a coroutine."""

    def __init__(self, home: Path) -> None:
        self.done: list[int] = []
        reached = Crasher(home, kill).reach
        self.write = watched(WRITE, self._write, reached)
        self.send = watched(SEND, self._send, reached)

    def _write(self, number: int) -> int:
        self.done.append(number)
        return number

    async def _send(self, number: int) -> int:
        return self.write(number)


@pytest.mark.parametrize(("when", "left"), [("before", [1, 2]), ("after", [1, 2, 3])])
def test_the_call_asked_for_and_no_other(tmp_path: Path, when: When, left: list[int]) -> None:
    book = Ledger(tmp_path)
    assert book.write(1) == 1
    arm(tmp_path, Order(WRITE, when, call=2))
    assert book.write(2) == 2
    with pytest.raises(Killed):
        book.write(3)
    assert book.done == left
    assert not is_armed(tmp_path), "started again, it lives"
    assert book.write(4) == 4


async def test_coroutines_and_other_steps(tmp_path: Path) -> None:
    book = Ledger(tmp_path)
    arm(tmp_path, Order(SEND, "after"))
    assert book.write(1) == 1, "another step"
    with pytest.raises(Killed):
        await book.send(2)
    assert book.done == [1, 2], "after it, it was done"
    arm(tmp_path, Order(SEND))
    with pytest.raises(Killed):
        await book.send(3)
    assert book.done == [1, 2]


def test_calls_are_counted_from_each_order_on(tmp_path: Path) -> None:
    book = Ledger(tmp_path)
    arm(tmp_path, Order(WRITE, call=2))
    book.write(1)
    disarm(tmp_path)
    book.write(2)
    arm(tmp_path, Order(WRITE, call=2))
    book.write(3)
    with pytest.raises(Killed):
        book.write(4)


def test_an_order_for_no_failpoint_is_refused(tmp_path: Path) -> None:
    (tmp_path / FILE).write_text('{"point": "log.comit"}')
    with pytest.raises(msgspec.ValidationError, match=r"log\.comit"):
        Crasher(tmp_path, kill).reach(WRITE, "before")


def test_only_functions_are_failpoints_and_each_is_one() -> None:
    def other() -> None: ...

    with pytest.raises(TypeError, match="no plain function"):
        failpoint(WRITE)(partial(other))
    importlib.import_module("medusa.engine.streams.log.stream_log")
    with pytest.raises(RuntimeError, match=r"log\.commit stands at medusa\.engine\..*stream_log:"):
        failpoint(WRITE)(other)


def test_every_failpoint_stands_in_the_engine_and_is_reached_by_a_sweep() -> None:
    for module in pkgutil.walk_packages(medusa.engine.__path__, "medusa.engine."):
        importlib.import_module(module.name)
    assert set(failpoints.placed()) == set(Failpoint)
    assert {order.point for orders in SWEEPS.values() for order in orders} == set(Failpoint)


def test_a_peer_has_failpoints_only_if_it_asked_before_the_import() -> None:
    importlib.import_module("medusa.engine.streams.log.stream_log")
    with pytest.raises(RuntimeError, match="before the modules"):
        failpoints.arm(lambda point, when: None)


@pytest.mark.parametrize("armed", [False, True])
def test_unarmed_a_step_is_the_function_itself(armed: bool) -> None:
    program = f"""
from medusa.overlay import failpoints
if {armed}:
    failpoints.arm(lambda point, when: print(point, when))
from medusa.engine.streams.log.stream_log import StreamLog
print(hasattr(StreamLog.commit, "__wrapped__"), flush=True)
"""
    ended = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True)
    assert ended.stdout.decode().strip() == str(armed)
