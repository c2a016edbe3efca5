"""Finds matches of a pattern by trying every way in the order of preference, in plain Python,
without automata. For each number of known tuples it decides anew which match is certain: the first
in the order of preference must be a match, not a way that may still become one."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Row = Mapping[str, Any]
Condition = Callable[[Row, Row | None, Row], bool | None]
"""A condition over a tuple, the last tuple of the match, and the match's first tuple."""

Taken = tuple[tuple[int, Row], ...]
"""Each tuple of a match with the number of its variable."""


@dataclass(frozen=True)
class Part:
    """A variable. forbidden: no tuple of this condition may come between its last tuple and the
    next variable's first."""

    least: int
    most: int | None
    reluctant: bool
    condition: Condition
    forbidden: Condition | None = None


@dataclass(frozen=True)
class Reference:
    """A pattern. results: a function from a match's tuples to its fields."""

    parts: Sequence[Part]
    skips: bool
    within: int
    partition: Sequence[str]
    order: Callable[[Row], Any]
    results: Callable[[Taken], Mapping[str, Any]]

    def matches(self, rows: Sequence[Row]) -> list[dict[str, Any]]:
        """Return each match with its stime and its partition's fields, in no order."""
        found = []
        partitions: dict[str, list[Row]] = {}
        for row in sorted(rows, key=self.order):
            partitions.setdefault(repr([row[name] for name in self.partition]), []).append(row)
        for partition in partitions.values():
            for number, first in enumerate(partition):
                limit = first["stime"] + self.within
                near = [row for row in partition[number:] if row["stime"] <= limit]
                made = self._certain(near, limit)
                if made is not None:
                    stime, taken = made
                    keys = {name: first[name] for name in self.partition}
                    found.append({"stime": stime, **keys, **self.results(taken)})
        return found

    def _certain(self, rows: Sequence[Row], limit: int) -> tuple[int, Taken] | None:
        for known in range(1, len(rows) + 1):
            made = next(self._ways(rows[:known], final=False), None)
            if made is None:
                return None
            if made[0]:
                return rows[known - 1]["stime"], made[1]
        made = next((each for each in self._ways(rows, final=True) if each[0]), None)
        return None if made is None else (limit, made[1])

    def _ways(self, rows: Sequence[Row], *, final: bool) -> Iterator[tuple[bool, Taken]]:
        """Yield matches (True), and ways that later tuples could complete (False)."""
        for target in self._entering(0):
            if target is not None and self._takes(target, rows[0], ()):
                yield from self._from(target, 1, rows, 1, ((target, rows[0]),), final=final)

    def _from(
        self, at: int, count: int, rows: Sequence[Row], place: int, taken: Taken, *, final: bool
    ) -> Iterator[tuple[bool, Taken]]:
        part = self.parts[at]
        choices = self._choices(at, count)
        waits = part.forbidden is not None and not (final and place == len(rows))
        if place == len(rows):
            for target in choices:
                if target is None and not waits:
                    yield True, taken
                elif not final:
                    yield False, taken
            return
        if self.skips and choices[:1] == [None] and not waits:
            yield True, taken
            return
        row = rows[place]
        fits = [n for n in choices if n is not None and self._takes(n, row, taken)]
        if self.skips and not fits:
            met = part.forbidden is not None and count >= part.least
            if not (met and part.forbidden(row, taken[-1][1], taken[0][1])):
                yield from self._from(at, count, rows, place + 1, taken, final=final)
            return
        for target in choices:
            if target is None:
                if not waits:
                    yield True, taken
            elif target in fits:
                number = count + 1 if target == at else 1
                more = (*taken, (target, row))
                yield from self._from(target, number, rows, place + 1, more, final=final)

    def _choices(self, at: int, count: int) -> list[int | None]:
        part = self.parts[at]
        again = [at] if part.most is None or count < part.most else []
        on = list(self._entering(at + 1)) if count >= part.least else []
        return [*on, *again] if part.reluctant else [*again, *on]

    def _entering(self, at: int) -> Iterator[int | None]:
        if at == len(self.parts):
            yield None
        elif self.parts[at].least:
            yield at
        elif self.parts[at].reluctant:
            yield from self._entering(at + 1)
            yield at
        else:
            yield at
            yield from self._entering(at + 1)

    def _takes(self, at: int, row: Row, taken: Taken) -> bool:
        last = taken[-1][1] if taken else None
        return self.parts[at].condition(row, last, taken[0][1] if taken else row) is True


def ordered(value: Any) -> tuple[bool, bool, Any]:
    """Return a key that orders the values of a field: NaN after numbers, nulls last."""
    if value is None:
        return (True, False, 0)
    if isinstance(value, float) and math.isnan(value):
        return (False, True, 0)
    return (False, False, value)


def measure(function: str, values: list[Any]) -> Any:
    """Return a function over the values of a variable, in order."""
    if function == "firstval":
        return values[0] if values else None
    if function == "lastval":
        return values[-1] if values else None
    values = [value for value in values if value is not None]
    if function == "count":
        return len(values)
    if not values:
        return None
    if function in {"min", "max"}:
        return (min if function == "min" else max)(values, key=ordered)
    total = values[0]
    for value in values[1:]:
        total = total + value
    if function == "avg":
        return float(total) / len(values)
    if isinstance(total, float):
        return total
    return total if -(2**63) <= total < 2**63 else None
