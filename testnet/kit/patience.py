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

from overlay.concurrency import one_error
from overlay.errors import DeadlineError

STILL_S: Final = 120.0
"""Nothing moved for so long: nothing will, seconds of the machine's time."""
LOOK_S: Final = 1.0
"""Between two looks at how things stand, seconds."""
MIN_SHARE: Final = 0.1
"""A second counts for so much at least, however busy others keep the machine."""


class Patience:
    """Sans-IO: whether it is worth to wait on.

    Args:
        still_s: how long things may stand still, seconds.
    """

    def __init__(self, still_s: float = STILL_S) -> None:
        self._still_s = still_s
        self._stood_s = 0.0
        self._stands: object = None

    def look(self, stands: object, seconds: float) -> bool:
        """
        Args:
            stands: how things stand now; any change is a move.
            seconds: of the machine's time since the last look.
        """
        if stands != self._stands:
            self._stands, self._stood_s = stands, 0.0
        else:
            self._stood_s += seconds
        return self._stood_s < self._still_s


class MachineTime:
    """The share of this machine's cores that was ours, or nobody's: what others take, we and the
    processes that we started cannot have moved in. Blocking, some milliseconds a look."""

    def __init__(self) -> None:
        self._ours = self._our_times()
        self._idle, self._all = _core_times()

    def share(self) -> float:
        """Since the last look; 1.0 where none has passed."""
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
    """Of all cores since the machine started, seconds: idle, and in all."""
    times = psutil.cpu_times()
    idle = times.idle + getattr(times, "iowait", 0.0)
    # guests' time is in user and nice already
    busy = sum(getattr(times, name, 0.0) for name in ("user", "nice", "system", "irq", "softirq"))
    return idle, idle + busy + getattr(times, "steal", 0.0)


@asynccontextmanager
async def while_moving(
    what: str, stands: Callable[[], str] = lambda: "", still_s: float = STILL_S
) -> AsyncIterator[None]:
    """The body, for as long as something moves.

    Args:
        what: the body waits for, for the error's text.
        stands: how far that is, in words.
        still_s: see `Patience`.

    Raises:
        DeadlineError: nothing moved any more.
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
    """Until it holds: of another process, or of many things, so that nobody tells.

    Args:
        look_s: between two looks, seconds.
    """
    while not condition():  # noqa: ASYNC110
        await trio.sleep(look_s)
