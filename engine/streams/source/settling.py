"""The settled part of a journal, which all replicas have. Sans IO.

A stream with replicas cuts no epoch, and forwards no late row, before all replicas have stored its
rows. So the journal of every later leader has all tuples that a subscriber saw.
"""

from __future__ import annotations

from collections import deque

from medusa.engine.streams.journal.journal import START, Position


class Settling:
    """The state of one replica of a source stream.

    Attributes:
        leading: whether this peer is the leader, and accepts posts. settled: the position of the
            journal before which all replicas have everything.
        gate: the boundary up to which epochs may be cut, microseconds.
    """

    def __init__(self, gate: int) -> None:
        self.leading = False
        self.settled: Position = START
        self.gate = gate
        self._boundaries: deque[tuple[Position, int]] = deque()
        self._term_numbers: dict[int, int] = {}

    def term_number_of(self, segment: int) -> int:
        """The term of the leader that began that segment; 0: it is not known."""
        return self._term_numbers.get(segment, 0)

    def note_segment(self, segment: int, term_number: int) -> None:
        """Note that the leader of that term began that segment."""
        self._term_numbers[segment] = term_number

    def note_entry(self, end: Position, boundary: int) -> None:
        """Note the stream's boundary after the entry that ends at that position."""
        self._boundaries.append((end, boundary))

    def settle(self, upto: Position) -> None:
        """Note that all replicas have everything before `upto`."""
        self.settled = max(self.settled, upto)
        while self._boundaries and self._boundaries[0][0] <= self.settled:
            self.gate = max(self.gate, self._boundaries.popleft()[1])

    def forget_end(self, boundary: int, committed: int) -> None:
        """Forget the end of a stream that is reopened at `boundary`; no reader may see that end.

        Args:
            committed: the boundary of the log, microseconds.
        """
        self._boundaries = deque((at, min(each, boundary)) for at, each in self._boundaries)
        self.gate = max(committed, min(self.gate, boundary))
