"""`medusa-peer` that kills itself where a test wants it to: SIGKILL, in the middle of what it does.

Steps are functions, named module:qualname in $MEDUSA_CRASH_STEPS (separated by commas); each of
them is wrapped before the peer imports anything else. A test arms one of them with `arm`: a file in
the peer's home, looked for at every call of a step, and removed before the peer dies, so that it
lives when it is started again.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import os
import signal
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, Literal, NoReturn

import msgspec

STEPS: Final = "MEDUSA_CRASH_STEPS"
FILE: Final = "crash.json"

When = Literal["before", "after"]


class Order(msgspec.Struct, frozen=True):
    """Die at a call of a step.

    Attributes:
        step: module:qualname. when: before its body runs, or after it has returned.
        call: which one since this order was given, 1 for the next.
    """

    step: str
    when: When = "before"
    call: int = 1


def arm(home: Path, order: Order) -> None:
    """Have the peer that runs in `home` die there."""
    file = home / FILE
    file.with_suffix(".new").write_bytes(msgspec.json.encode(order))
    file.with_suffix(".new").rename(file)


def is_armed(home: Path) -> bool:
    """Whether it has not died of the order yet."""
    return (home / FILE).exists()


def disarm(home: Path) -> None:
    """It may live, if it still does."""
    (home / FILE).unlink(missing_ok=True)


class Crasher:
    """Wraps steps. kill: never returns, in a real peer."""

    def __init__(self, home: Path, kill: Callable[[], Any]) -> None:
        self._file = home / FILE
        self._kill = kill
        self._calls: Counter[tuple[Order, int]] = Counter()

    def wrap(self, step: str) -> None:
        """Replace the function by one that may kill.

        Raises:
            ImportError, AttributeError: there is no such step: a test that arms it tests nothing.
            TypeError: it is neither a function nor a coroutine function.
        """
        module, _, path = step.partition(":")
        *outer, name = path.split(".")
        place: Any = importlib.import_module(module)
        for part in outer:
            place = getattr(place, part)
        function = inspect.getattr_static(place, name)
        if not inspect.isfunction(function) or inspect.isasyncgenfunction(function):
            raise TypeError(f"{step} is no plain function")
        setattr(place, name, self._wrapped(step, function))

    def _wrapped(self, step: str, function: Callable[..., Any]) -> Callable[..., Any]:
        if inspect.iscoroutinefunction(function):

            @functools.wraps(function)
            async def run(*args: Any, **kwargs: Any) -> Any:
                self.reach(step, "before")
                result = await function(*args, **kwargs)
                self.reach(step, "after")
                return result

            return run

        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            self.reach(step, "before")
            result = function(*args, **kwargs)
            self.reach(step, "after")
            return result

        return call

    def reach(self, step: str, when: When) -> None:
        """Die, if that was the order."""
        try:
            given = self._file.stat().st_mtime_ns
            order = msgspec.json.decode(self._file.read_bytes(), type=Order)
        except FileNotFoundError:
            return
        if (order.step, order.when) != (step, when):
            return
        self._calls[order, given] += 1
        if self._calls[order, given] == order.call:
            self._file.unlink()
            self._kill()


def die() -> NoReturn:
    """As from outside, with no chance to tidy up."""
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError("SIGKILL was survived")


def main() -> None:
    arguments = sys.argv[1:]
    if arguments[:1] == ["run"]:
        home = Path(arguments[arguments.index("--home") + 1])
        crasher = Crasher(home, die)
        for step in os.environ[STEPS].split(","):
            crasher.wrap(step)
    from tools.commands.peer.peer_command import main as medusa_peer

    medusa_peer()


if __name__ == "__main__":
    main()
