"""Machines and the processes on them: who runs the code that is running, and what its clock shows.

Which process a task belongs to is known by a context variable. It is set in the process's first
task, and every task that comes of it inherits it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Final, Protocol

EPOCH_S: Final = 1_767_225_600.0
"""What true wall clocks show when a simulation starts: 2026-01-01, UTC."""


class HostClock:
    """A machine's wall clock, and the steady one: as far off as it was set. True times are seconds
    since the simulation started."""

    def __init__(self) -> None:
        self._since = 0.0
        self._wall = EPOCH_S
        self._steady = 1_000.0  # since boot: not the wall, and not trio's
        self._rate = 1.0

    def wall(self, true: float) -> float:
        """Seconds since 1970, as it shows them."""
        return self._wall + (true - self._since) * self._rate

    def steady(self, true: float) -> float:
        """Seconds since it was booted: steps do not show, drift does."""
        return self._steady + (true - self._since) * self._rate

    def set(self, true: float, *, offset_s: float, drift: float) -> None:
        """Let it be so far off now, and gain `drift` seconds a second from now on."""
        self._wall, self._steady = EPOCH_S + true + offset_s, self.steady(true)
        self._since, self._rate = true, 1.0 + drift


@dataclass(eq=False)
class Machine:
    """A host of the network. up: False while its power is off."""

    ip: str
    up: bool = True
    clock: HostClock = field(default_factory=HostClock)
    ports: Iterator[int] = field(default_factory=lambda: iter(range(32_768, 2**31)))


class Mortal(Protocol):
    """What a process has open, and loses when it is killed."""

    def die(self, *, power: bool) -> None:
        """Its process is gone. power: and its machine's power with it."""


@dataclass(eq=False)
class Process:
    """One run of a program on a machine. Dead, it has no sockets and gets no new ones.

    Attributes:
        sockets: those that are open, in order of their making.
        disk_s: mean time that a job of a worker thread takes, seconds of virtual time.
    """

    machine: Machine
    name: str
    alive: bool = True
    disk_s: float = 0.0
    sockets: dict[int, Mortal] = field(default_factory=dict)


_running: ContextVar[Process | None] = ContextVar("process", default=None)


def running_process() -> Process | None:
    """The process whose code is running; None: the simulation itself."""
    return _running.get()


@contextmanager
def inside(process: Process) -> Iterator[None]:
    """What the block does and the tasks it starts are that process's doing."""
    token = _running.set(process)
    try:
        yield
    finally:
        _running.reset(token)
