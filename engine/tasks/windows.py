"""The part of its inputs that a task must read to produce a part of its output.

All intervals are (lo, hi] of stime, microseconds UTC, like epochs.
"""

from __future__ import annotations

from medusa.engine.objects.schema import BEGINNING, END
from medusa.engine.operators.shared.step import Interval, Windows
from medusa.engine.tasks.plan import Task


def needs(task: Task, after: int, upto: int, first: int | None = None) -> Interval | None:
    """The input interval from which the output over (after, upto] is made.

    For a stateless task: (after, upto] itself. For a join, a pattern, sessions or growing windows:
    also the tuples before `after` that a result may need. For an aggregate or a rank: from the
    start of the first to the end of the last window whose last microsecond is in (after, upto];
    with upto == END, to END, since then every window closes.

    Args:
        upto: no further than the task's edition at `after` goes.
        first: the least stime in the inputs, if known; the interval does not begin before it.

    Returns:
        None if the output has no tuples there: only the boundary advances.
    """
    if upto <= after or (first is not None and first > upto):
        return None
    lo, hi = after, upto
    edition = task.at(after)
    window = edition.windows
    if edition.near is not None and after != BEGINNING:
        lo = max(BEGINNING, after - edition.near.horizon_us())
    if window is not None:
        # Python's integers round towards minus infinity, which is right for negative stimes, and do
        # not overflow at BEGINNING and END
        opening = (after + 1 - window.size_us) // window.advance_us + 1
        closing = (upto + 1 - window.size_us) // window.advance_us
        if first is not None:
            opening = max(opening, _first_window(window, first))
        if upto < END and closing < opening:
            return None
        lo = opening * window.advance_us - 1
        hi = END if upto == END else closing * window.advance_us + window.size_us - 1
    if first is not None:
        lo = max(lo, first - 1)
    lo = max(lo, BEGINNING)
    return Interval(lo, hi) if lo < hi else None


def horizon_us(task: Task, stream: str | None = None) -> int:
    """How far behind its output's boundary a task, in its present edition, may read an input,
    microseconds.

    With the output at boundary T the task never reads a tuple with stime <= T - horizon again.

    Args:
        stream: the input; None: any.
    """
    if task.of is not None:
        return task.history_us + task.of.span_us if task.of.has_state else 0
    reach = task.near or task.windows
    return 0 if reach is None else reach.horizon_us(stream)


def needed_after(task: Task, boundary: int, stream: str | None = None) -> int:
    """The boundary after which a task whose output is at `boundary` may still read an input.

    Args:
        stream: the input; None: any.
    """
    if boundary in {BEGINNING, END}:  # an output that has not begun may need everything
        return boundary
    needs_after, at = END, boundary
    while at < END:
        needs_after = min(needs_after, at - horizon_us(task.at(at), stream))
        at = task.edition_until(at)
    return max(BEGINNING, needs_after)


def read_after(task: Task, stream: str, boundary: int) -> int:
    """The boundary after which a task whose output is at `boundary` may read an input: in a table
    it may read even the oldest tuple."""
    return BEGINNING if stream in task.tables else needed_after(task, boundary, stream)


def read_from(task: Task, stream: str, after: int, interval: Interval) -> int:
    """The boundary after which a job reads an input.

    Args: after: the job computes the output after this boundary, from the tuples of the interval.
    """
    if stream in task.tables:
        return BEGINNING
    edition = task.at(after)
    if not edition.sided or after == BEGINNING:
        return interval.lo
    return max(interval.lo, after - horizon_us(edition, stream))


def whole_after(task: Task, boundary: int) -> int:
    """The least boundary after which the output is right, if the inputs are known only after
    `boundary`: every window that ends later is complete."""
    if boundary in {BEGINNING, END}:
        return boundary
    begins = [BEGINNING, *(each.upto for each in task.editions)]
    for at in reversed(begins):
        whole = boundary + horizon_us(task.at(at))
        if at < whole or at == BEGINNING:
            return min(whole, task.edition_until(at))
    raise AssertionError("the first edition begins before everything")


def first_whole(window: Windows, boundary: int) -> int:
    """The last microsecond of the last window that is incomplete in an input after `boundary`."""
    begins = boundary + 1 - window.grain_us
    number = -(-(begins + 1) // window.advance_us)
    return (number - 1) * window.advance_us + window.size_us - 1


def _first_window(window: Windows, stime: int) -> int:
    """The number k of the first window [k * advance, k * advance + size) that holds `stime`."""
    return (stime - window.size_us) // window.advance_us + 1
