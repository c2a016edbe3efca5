"""The boundary at which a modification of a query can take effect. Sans IO.

Results that are out stay true, and every window that ends later is wholly of the new edition. So
the boundary is not behind any result that others may know, nor behind the start of such a window.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import lcm

from engine.objects.schema import BEGINNING, END
from engine.tasks.plan import Task
from engine.tasks.query_editions import affected
from engine.tasks.windows import first_whole
from overlay.errors import ConflictError, InvalidInputError


@dataclass(frozen=True, slots=True)
class Footing:
    """One peer's boundaries of a query, microseconds; a name that is not in a mapping has none.

    Attributes:
        given: by task: up to there others may know its output.
        usable: by stream: after that the stream is here, as the query makes it now.
    """

    given: Mapping[str, int]
    usable: Mapping[str, int]

    def joined(self, usable: Mapping[str, int]) -> Footing:
        """The same, with each stream usable from the later of both boundaries on."""
        both = {
            name: max(self.usable.get(name, BEGINNING), usable.get(name, BEGINNING))
            for name in self.usable.keys() | usable.keys()
        }
        return Footing(self.given, both)


def earliest(tasks: Sequence[Task], names: frozenset[str], footing: Footing, least: int) -> int:
    """The earliest boundary, from `least` on, after which the new edition can count.

    Args:
        tasks: of the new edition, each after those whose output it reads.
        names: the tasks whose steps change.

    Raises:
        InvalidInputError: there is none: overlapping windows read a stream that changes.
        ConflictError: an output has ended, or the boundary would be beyond all time.
    """
    at = max([least, *(footing.given.get(name, BEGINNING) for name in names)])
    if at == BEGINNING:
        return at  # nothing has been made yet
    changes = affected(tasks, names)
    period = 1
    for task in tasks:
        window = task.window
        if window is None:
            continue
        if not changes.isdisjoint(task.inputs):
            # its windows must not hold tuples of both editions
            if window.advance_us != window.size_us:
                raise InvalidInputError(
                    f"{task.name} is made of overlapping windows over "
                    f"{min(changes.intersection(task.inputs))}: there is no boundary at which none "
                    "of them is open, and they would mix old tuples and new ones; make another "
                    "query, or let those windows not overlap"
                )
            period = lcm(period, window.size_us)
        elif task.name in names:
            known = max(footing.usable.get(stream, BEGINNING) for stream in task.inputs)
            if known > BEGINNING:
                at = max(at, first_whole(window, known))
    at = -(-(at + 1) // period) * period - 1
    if at >= END:
        ended = [name for name in names if footing.given.get(name) == END]
        why = f"{min(ended)} has ended" if ended else "the boundary would be beyond all time"
        raise ConflictError(f"{why}: there is nothing to come that could be made otherwise")
    return at
