"""The harness of the kill tests: it kills at the call asked for, and says where it cannot."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType

import pytest
from crashing_peer import Crasher, Order, When, arm, disarm, is_armed


class Killed(BaseException):
    """What stands for SIGKILL here."""


def kill() -> None:
    raise Killed


class Ledger:
    def __init__(self) -> None:
        self.done: list[int] = []

    def write(self, number: int) -> int:
        self.done.append(number)
        return number

    async def send(self, number: int) -> int:
        return self.write(number)

    @property
    def size(self) -> int:
        return len(self.done)


@pytest.fixture
def ledger(monkeypatch: pytest.MonkeyPatch) -> type[Ledger]:
    module = ModuleType("a_module_of_the_test")
    copy = type("Ledger", (Ledger,), dict(vars(Ledger)))
    module.Ledger = copy  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, module.__name__, module)
    return copy


WRITE = "a_module_of_the_test:Ledger.write"
SEND = "a_module_of_the_test:Ledger.send"


@pytest.mark.parametrize(("when", "left"), [("before", [1, 2]), ("after", [1, 2, 3])])
def test_the_call_asked_for_and_no_other(
    ledger: type[Ledger], tmp_path: Path, when: When, left: list[int]
) -> None:
    Crasher(tmp_path, kill).wrap(WRITE)
    book = ledger()
    assert book.write(1) == 1
    arm(tmp_path, Order(WRITE, when, call=2))
    assert book.write(2) == 2
    with pytest.raises(Killed):
        book.write(3)
    assert book.done == left
    assert not is_armed(tmp_path), "started again, it lives"
    assert book.write(4) == 4


async def test_coroutines_and_other_steps(ledger: type[Ledger], tmp_path: Path) -> None:
    crasher = Crasher(tmp_path, kill)
    crasher.wrap(WRITE)
    crasher.wrap(SEND)
    book = ledger()
    arm(tmp_path, Order(SEND, "after"))
    assert book.write(1) == 1, "another step"
    with pytest.raises(Killed):
        await book.send(2)
    assert book.done == [1, 2], "after it, it was done"
    arm(tmp_path, Order(SEND))
    with pytest.raises(Killed):
        await book.send(3)
    assert book.done == [1, 2]


def test_calls_are_counted_from_each_order_on(ledger: type[Ledger], tmp_path: Path) -> None:
    Crasher(tmp_path, kill).wrap(WRITE)
    book = ledger()
    arm(tmp_path, Order(WRITE, call=2))
    book.write(1)
    disarm(tmp_path)
    book.write(2)
    arm(tmp_path, Order(WRITE, call=2))
    book.write(3)
    with pytest.raises(Killed):
        book.write(4)


@pytest.mark.parametrize(
    ("step", "error"),
    [
        ("no_module_of_ours:f", ImportError),
        ("a_module_of_the_test:Ledger.erase", AttributeError),
        ("a_module_of_the_test:Ledger.size", TypeError),
    ],
)
@pytest.mark.usefixtures("ledger")
def test_a_step_that_is_none_is_refused(tmp_path: Path, step: str, error: type[Exception]) -> None:
    with pytest.raises(error):
        Crasher(tmp_path, kill).wrap(step)
