"""The reference of sessions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from itertools import groupby

from medusa.engine.evaluation.expressions import Row
from medusa.engine.evaluation.job import Job
from medusa.engine.objects.schema import END, STIME
from medusa.engine.operators.sessions import SessionsStep
from medusa.engine.operators.shared.reference_spans import Span, spans


def sessions(step: SessionsStep, rows: Sequence[Row], job: Job) -> list[Row]:
    """Return the results over these rows."""
    return spans(step.group_by, step.functions, rows, partial(_sessions, step))


def _sessions(step: SessionsStep, rows: Sequence[Row]) -> Iterator[Span]:
    """(stime, start, end, rows) of each session of a group, or of each part of a cut session."""
    sessions: list[list[Row]] = []
    for row in rows:
        if sessions and row[STIME] - sessions[-1][-1][STIME] <= step.gap_us:
            sessions[-1].append(row)
        else:
            sessions.append([row])
    for session in sessions:
        first, last = session[0][STIME], session[-1][STIME]
        over = min(END, last + step.gap_us)
        if last - first <= step.longest_us:
            yield over, first, over, session
            continue
        known = next(row[STIME] for row in session if row[STIME] - first > step.longest_us)
        parts = [list(p) for _, p in groupby(session, lambda row: row[STIME] // step.longest_us)]
        for number, part in enumerate(parts):
            start = part[0][STIME]
            if number == len(parts) - 1:
                yield over, start, over, part
                continue
            cut = (start // step.longest_us + 1) * step.longest_us
            yield known if number == 0 else parts[number + 1][0][STIME], start, cut, part
