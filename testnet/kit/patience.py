"""Waiting for a state of a federation, for as long as the federation makes progress.

The time depends on the machine, and on its other processes. So no wait here has a fixed time. The
waiting code describes the present state. It gives up once the description has been the same for
long, in seconds of the time that the machine had for us.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Final

import psutil
import trio

from medusa.overlay.concurrency import one_error
from medusa.overlay.errors import DeadlineError

STILL_S: Final = 120.0
"""Seconds that the state may stay unchanged before the wait is given up. Each second counts by the
share of it that our processes used or could have used: see `MachineTime`."""
LOOK_S: Final = 1.0
"""Seconds between two looks at the state."""
MIN_SHARE: Final = 0.1
"""Least share of a second that counts, however busy other processes keep the machine."""


class Patience:
    """Decides whether to continue to wait. Sans-IO.

    Args:
        still_s: how long the state may be unchanged, seconds.
    """

    def __init__(self, still_s: float = STILL_S) -> None:
        self._still_s = still_s
        self._stood_s = 0.0
        self._stands: object = None

    def look(self, stands: object, seconds: float) -> bool:
        """
        Args:
            stands: the present state; any change is progress.
            seconds: seconds of the machine's time since the last look.
        """
        if stands != self._stands:
            self._stands, self._stood_s = stands, 0.0
        else:
            self._stood_s += seconds
        return self._stood_s < self._still_s


class MachineTime:
    """The share of this machine's cores that our processes used or could have used: time of other
    processes cannot be our progress. Blocking, some milliseconds a look."""

    def __init__(self) -> None:
        self._ours = self._our_times()
        self._idle, self._all = _core_times()

    def share(self) -> float:
        """The share since the last look; 1.0 if no time has passed."""
        ours, (idle, total) = self._our_times(), _core_times()
        used = sum(max(seconds - self._ours.get(pid, 0.0), 0.0) for pid, seconds in ours.items())
        free, passed = used + idle - self._idle, total - self._all
        self._ours, self._idle, self._all = ours, idle, total
        return min(max(free / passed, MIN_SHARE), 1.0) if passed > 0 else 1.0

    @staticmethod
    def _our_times() -> dict[int, float]:
        """CPU seconds by process."""
        found: dict[int, float] = {}
        me = psutil.Process()
        for process in (me, *me.children(recursive=True)):
            with suppress(psutil.Error):
                times = process.cpu_times()
                found[process.pid] = times.user + times.system
        return found


def _core_times() -> tuple[float, float]:
    """CPU time of all cores since the machine started, seconds: idle, and in all."""
    times = psutil.cpu_times()
    idle = times.idle + getattr(times, "iowait", 0.0)
    # guests' time is already included in user and nice
    busy = sum(getattr(times, name, 0.0) for name in ("user", "nice", "system", "irq", "softirq"))
    return idle, idle + busy + getattr(times, "steal", 0.0)


@asynccontextmanager
async def while_moving(
    what: str, stands: Callable[[], str] = lambda: "", still_s: float = STILL_S
) -> AsyncIterator[None]:
    """Run the block as long as there is progress.

    Args:
        what: the awaited state, for the error's text.
        stands: returns the present state, in words.
        still_s: see `Patience`.

    Raises:
        DeadlineError: there was no progress any more.
    """
    given_up = ended = False
    with one_error():
        async with trio.open_nursery() as nursery:

            async def watch() -> None:
                nonlocal given_up
                patience, machine = Patience(still_s), MachineTime()
                latest = trio.current_time()
                while not given_up:
                    await trio.sleep(min(LOOK_S, still_s))
                    share = await trio.to_thread.run_sync(machine.share, abandon_on_cancel=True)
                    now = trio.current_time()
                    given_up = not patience.look(stands(), (now - latest) * share)
                    latest = now
                nursery.cancel_scope.cancel()

            nursery.start_soon(watch)
            yield
            ended = True
            nursery.cancel_scope.cancel()
    if given_up and not ended:
        so_far = f"; {said}" if (said := stands()) else ""
        raise DeadlineError(f"{what}: nothing moved for {still_s:.0f} s{so_far}")


async def until(condition: Callable[[], bool], look_s: float) -> None:
    """Wait until a condition holds of which nothing notifies this process, such as the state of
    another process.

    Args:
        look_s: the time between two looks, seconds.
    """
    while not condition():  # noqa: ASYNC110
        await trio.sleep(look_s)
