"""The cast of the demonstration: who there is, what each has to do, and what was agreed.

All sizes are in tasks, since the speed of the traffic is chosen so that a task is `TASK_UNITS` on
the machine at hand: what happens is the same on a fast one and on a slow one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from engine.objects.definitions import StreamDefinition
from testnet.load.watches import WINDOW_S, Watch, watches_of
from testnet.network import HISTORY_US, source_schema
from testnet.peers import CONFIG

TASK_UNITS: Final = 2.5
"""Load of a task before any rises: four peers full of them, and all that is not a task's, leave
some of two cores free."""
SENSORS: Final = 2
"""Streams of connections of each participant. A task works when a window closes; those of one
stream all at once. So the windows of the streams close in turn, or load would come in waves."""


@dataclass(frozen=True, slots=True)
class Place:
    """One peer.

    Attributes:
        letter: its name in the papers. tasks: how many are its own.
        room: how many tasks of `TASK_UNITS` its declared capacity is.
    """

    letter: str
    participant: str
    tasks: int
    room: float

    @property
    def watches(self) -> tuple[Watch, ...]:
        return watches_of(self.participant, self.tasks, SENSORS)

    def stream(self, sensor: int) -> StreamDefinition:
        """What a sensor posts to, from 0; every member may read it."""
        return StreamDefinition(
            name=f"medusa://{self.participant}/sensor{sensor + 1}",
            schema=source_schema(self.participant),
            history_us=HISTORY_US,
            max_ahead_us=None,
        )

    @property
    def capacity(self) -> float:
        """Units of 1 % of a core."""
        return self.room * TASK_UNITS

    @property
    def config(self) -> str:
        """Its medusa.toml."""
        return f"{CONFIG}\n[engine]\ncapacity_cores = {self.capacity / 100:.4f}\n"


A: Final = Place("A", "mit.edu", tasks=16, room=10.0)
B: Final = Place("B", "utah.edu", tasks=6, room=10.0)
C: Final = Place("C", "brown.edu", tasks=5, room=10.0)
D: Final = Place("D", "brandeis.edu", tasks=1, room=12.0)
"""A has 6 tasks too many, B room for 4 and C for 5: either alone is not enough for A."""

AHEAD_S: Final = WINDOW_S / SENSORS
"""How far the traffic of a sensor is ahead of the one before it, seconds of trace."""

FOUNDERS: Final = (A, B, C)
EVERYBODY: Final = (A, B, C, D)

RAISE: Final = 1.5
"""How much faster B's traffic becomes at once."""
RAISES: Final = 4
"""How often at most: beyond some windows an epoch, more speed is hardly more load."""
OVERLOAD: Final = 1.12
"""It rises until all loads together are this many times all capacities. D brings room for more."""

PRICE: Final = 1.0
"""Money per unit of load and second in the contracts of A, B and C."""
CHEAPER: Final = 0.8
"""D's price as a share of that, as on the papers' poster."""
RANGE_TASKS: Final = 2
"""Width of the price range, in tasks: at one fixed price load cannot flow through a full peer."""


@dataclass(frozen=True, slots=True)
class Agreement:
    """A contract: load may move either way at up to that price."""

    one: Place
    other: Place
    price: float


AMONG_FOUNDERS: Final = (
    Agreement(A, B, PRICE),
    Agreement(A, C, PRICE),
    Agreement(B, C, PRICE),
)
WITH_D: Final = Agreement(C, D, PRICE * CHEAPER)


@dataclass(frozen=True, slots=True)
class Script:
    """What is played.

    Attributes:
        founders: are there from the beginning, with these agreements.
        whole: all four steps; else the first alone.
        warm_s: after the first tasks have worked, seconds: a JVM that has just started is slower
            than it will be.
        rounds: how often the traffic's speed is corrected at most.
    """

    founders: tuple[Place, ...]
    agreements: tuple[Agreement, ...]
    whole: bool
    warm_s: float
    rounds: int


FULL: Final = Script(FOUNDERS, AMONG_FOUNDERS, whole=True, warm_s=20.0, rounds=4)

_SHORT_A: Final = Place("A", "mit.edu", tasks=8, room=5.0)
_SHORT_B: Final = Place("B", "utah.edu", tasks=1, room=8.0)
SHORT: Final = Script(
    (_SHORT_A, _SHORT_B),
    (Agreement(_SHORT_A, _SHORT_B, PRICE),),
    whole=False,
    warm_s=10.0,
    rounds=2,
)
"""A has 3 tasks too many, and B room for 7."""
