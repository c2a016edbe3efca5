"""Machines and the processes on them: which process is running, and what its clock shows.

A context variable has the process of a task. It is set in the process's first task, and the tasks
that this starts inherit it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Final, Protocol

EPOCH_S: Final = 1_767_225_600.0
"""The true wall clocks' reading when a simulation starts: 2026-01-01, UTC."""


class HostClock:
    """A machine's wall clock and steady clock, each with its error. True times are seconds since
    the simulation started."""

    def __init__(self) -> None:
        self._since = 0.0
        self._wall = EPOCH_S
        self._steady = 1_000.0  # seconds since boot, another clock than the wall clock and trio's
        self._rate = 1.0

    def wall(self, true: float) -> float:
        """The wall clock's reading, seconds since 1970."""
        return self._wall + (true - self._since) * self._rate

    def steady(self, true: float) -> float:
        """The steady clock's reading, seconds since boot: it has the drift, but no steps."""
        return self._steady + (true - self._since) * self._rate

    def set(self, true: float, *, offset_s: float, drift: float) -> None:
        """Set the present offset, and the drift in seconds a second from now on."""
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
    """An open resource of a process, lost when it is killed."""

    def die(self, *, power: bool) -> None:
        """End the process as a kill does. power: its machine also loses power."""


@dataclass(eq=False)
class Process:
    """One run of a program on a machine. A dead process has no sockets and gets no new ones.

    Attributes:
        sockets: the open ones, in order of their creation.
        disk_s: mean duration of a worker thread's job, seconds of virtual time.
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
    """Run the block, and the tasks that it starts, as that process."""
    token = _running.set(process)
    try:
        yield
    finally:
        _running.reset(token)
