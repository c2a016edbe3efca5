"""`medusa-peer` that kills itself where a test wants it to: SIGKILL, in the middle of what it does.

Its failpoints are armed before it imports anything else. A test gives an `Order` for one of them
with `arm`: a file in the peer's home, looked for at every failpoint, and removed before the peer
dies, so that the peer lives when it is started again. The peer's intervals come from the
environment: see `peer_intervals`.
"""

from __future__ import annotations

import os
import signal
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, NoReturn

import msgspec
import peer_intervals

from medusa.overlay import failpoints
from medusa.overlay.failpoints import Failpoint, When

FILE: Final = "crash.json"


class Order(msgspec.Struct, frozen=True):
    """An order to die at a failpoint.

    Attributes:
        when: before the step runs, or after it has returned.
        call: the number of the call since the order was written, 1 for the next call.
    """

    point: Failpoint
    when: When = "before"
    call: int = 1

    def __str__(self) -> str:
        return f"{self.when} {self.point} ({self.call})"


def both(point: Failpoint, call: int = 1) -> list[Order]:
    """Orders to die before the step, and after it."""
    return [Order(point, "before", call), Order(point, "after", call)]


def arm(home: Path, order: Order) -> None:
    """Order the peer that runs in `home` to die at that failpoint."""
    file = home / FILE
    file.with_suffix(".new").write_bytes(msgspec.json.encode(order))
    file.with_suffix(".new").rename(file)


def is_armed(home: Path) -> bool:
    """Whether the peer has not died of the order yet."""
    return (home / FILE).exists()


def disarm(home: Path) -> None:
    """Withdraw the order, if the peer still lives."""
    (home / FILE).unlink(missing_ok=True)


class Crasher:
    """Ends the process according to the order in a peer's home. kill: ends the process; in a real
    peer it never returns."""

    def __init__(self, home: Path, kill: Callable[[], Any]) -> None:
        self._file = home / FILE
        self._kill = kill
        self._calls: Counter[tuple[Order, int]] = Counter()

    def reach(self, point: Failpoint, when: When) -> None:
        """Kill the process here, if the order says so."""
        try:
            given = self._file.stat().st_mtime_ns
            order = msgspec.json.decode(self._file.read_bytes(), type=Order)
        except FileNotFoundError:
            return
        if (order.point, order.when) != (point, when):
            return
        self._calls[order, given] += 1
        if self._calls[order, given] == order.call:
            self._file.unlink()
            self._kill()


def die() -> NoReturn:
    """Kill the process as a signal from outside does, without a chance to clean up."""
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError("SIGKILL was survived")


def main() -> None:
    arguments = sys.argv[1:]
    if arguments[:1] == ["run"]:
        home = Path(arguments[arguments.index("--home") + 1])
        failpoints.arm(Crasher(home, die).reach)
    peer_intervals.set_intervals()
    from medusa.tools.commands.peer.peer_command import main as medusa_peer

    medusa_peer()


if __name__ == "__main__":
    main()
