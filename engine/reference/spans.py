"""The interpreter's sessions and cumulating windows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any

from medusa.engine.objects.query import WINDOW_END, WINDOW_START
from medusa.engine.objects.schema import END, STIME
from medusa.engine.operators.cumulate import CumulateStep
from medusa.engine.operators.sessions import SessionsStep
from medusa.engine.reference.expressions import Row
from medusa.engine.reference.windows import folded


def spans(step: SessionsStep | CumulateStep, rows: Sequence[Row]) -> list[Row]:
    """The results over these rows, which are in the order of their stream."""
    groups: dict[tuple[Any, ...], list[Row]] = {}
    names = [field.name for field in step.group_by]
    for row in rows:
        groups.setdefault(tuple(row[name] for name in names), []).append(row)
    found: list[Row] = []
    for group, members in groups.items():
        match step:
            case SessionsStep():
                placed = _sessions(step, members)
            case CumulateStep():
                placed = _growing(step, members)
        for at, start, end, part in placed:
            made = {STIME: at, WINDOW_START: start, WINDOW_END: end}
            made |= zip(names, group, strict=True)
            found.append({**made, **{each.output: folded(each, part) for each in step.functions}})
    return found


def _sessions(step: SessionsStep, rows: Sequence[Row]) -> Iterator[tuple[int, int, int, list[Row]]]:
    """(stime, start, end, rows) of each session of a group, or of each part of one."""
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


def _growing(step: CumulateStep, rows: Sequence[Row]) -> Iterator[tuple[int, int, int, list[Row]]]:
    """(stime, start, end, rows) of each window of a group."""
    for number, members in groupby(rows, lambda row: row[STIME] // step.size_us):
        window, start = list(members), number * step.size_us
        for end in range(start + step.step_us, start + step.size_us + 1, step.step_us):
            part = [row for row in window if row[STIME] < end]
            if part:
                yield end - 1, start, end, part
