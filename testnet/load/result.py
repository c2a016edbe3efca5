"""What the demonstration found, as its JSON has it."""

from __future__ import annotations

from msgspec import Struct, field


class Step(Struct, frozen=True):
    """One step of the papers' demonstration, at its end.

    Attributes:
        acceptable: nobody above capacity, or in overload nobody below.
        due: whether it can be acceptable at all: a peer that has just joined has taken nothing.
        overload: whether all loads were more than all capacities.
        loads, capacities: by participant, in units of 1 % of a core; before: loads at its
            beginning. seconds: how long it took.
    """

    name: str
    acceptable: bool
    loads: dict[str, float]
    capacities: dict[str, float]
    due: bool = True
    overload: bool = False
    before: dict[str, float] = {}
    seconds: float = 0.0


class Moved(Struct, frozen=True, order=True):
    """A task that moved.

    Attributes:
        at: seconds of the run. origin, to: participants; the JSON says `from`.
        price: micros per unit and second. stall_ms: what its consumers saw.
        carry_bytes: state and input that were taken over.
    """

    at: float
    task: str
    origin: str = field(name="from")
    to: str
    price: int
    stall_ms: float
    carry_bytes: int


class LoadResult(Struct, frozen=True):
    """
    Attributes:
        answers: standing questions. answers_exact: whether every answer is the batch run's.
        different: the answers that are not. rows: connections posted.
        speed: seconds of trace per second that made a task as large as it was meant to be.
    """

    steps: tuple[Step, ...]
    moves: tuple[Moved, ...]
    answers_exact: bool
    answers: int = 0
    different: tuple[str, ...] = ()
    rows: int = 0
    speed: float = 0.0
    seconds: float = 0.0
    plot: str | None = None
    folder: str | None = None

    @property
    def good(self) -> bool:
        """Exact answers, and acceptable wherever it can be."""
        return self.answers_exact and all(step.acceptable for step in self.steps if step.due)
