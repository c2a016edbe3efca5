"""Draws patterns, each with the same pattern for `reference_matches`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

import pyarrow as pa
from reference_matches import Condition, Part, Reference, Row, Taken, measure, ordered

from medusa.engine.objects.query import Contiguity, Match, Measure, PatternStep
from medusa.engine.objects.schema import STIME, Field, FieldType, Schema

F = FieldType
NUMBERS = (F.BYTE, F.INT, F.LONG, F.SINGLE, F.DOUBLE)
QUANTIFIERS = [(1, 1), (1, 1), (1, 1), (0, 1), (1, None), (0, None), (2, 2), (1, 3), (2, None)]


@dataclass(frozen=True)
class Computed:
    """A stream that plain Python derives from another one."""

    source: str
    rows: Callable[[list[Row]], list[dict[str, Any]]]

    def table(self, given: pa.Table, schema: Schema) -> pa.Table:
        """Return the rows as a table. given: the source's tuples."""
        times = [each.name for each in given.schema if pa.types.is_timestamp(each.type)]
        plain = given.cast(
            pa.schema(
                [pa.field(f.name, pa.int64()) if f.name in times else f for f in given.schema]
            )
        )
        rows = [
            {k: v + 0.0 if isinstance(v, float) else v for k, v in row.items()}
            for row in plain.to_pylist()
        ]
        made = schema.derived
        shape = [pa.field(f.name, pa.int64()) if pa.types.is_timestamp(f.type) else f for f in made]
        return pa.Table.from_pylist(self.rows(rows), schema=pa.schema(shape)).cast(made)


def conditions(field: Field, *, alone: bool) -> list[tuple[str, Condition]]:
    """Draw conditions. alone: over the tuple itself only; else also over the first tuple of the
    match, A, and the last."""
    f = field.name
    found: list[tuple[str, Condition]] = [
        ("true", lambda row, last, first: True),
        (f"{f} is not null", lambda row, last, first: row[f] is not None),
    ]
    if field.type in (F.BYTE, F.INT, F.LONG):
        found += [
            (f"{f} > 0", lambda row, last, first: _over(row[f], 0)),
            (f"{f} <= 2", lambda row, last, first: row[f] is not None and row[f] <= 2),
        ]
        if not alone:
            found += [
                (f"{f} > prev.{f}", lambda row, last, first: _over(row[f], last and last[f])),
                (f"prev.{f} >= {f}", lambda row, last, first: _least(last and last[f], row[f])),
            ]
    if field.type is F.STRING:
        found.append((f"{f} < 'x'", lambda row, last, first: row[f] is not None and row[f] < "x"))
    if field.type is F.BOOL:
        found.append((f, lambda row, last, first: row[f]))
    return found


def against_first(field: Field) -> list[tuple[str, Condition]]:
    """Draw a condition over the tuple and the first tuple of the match."""
    f = field.name
    found: list[tuple[str, Condition]] = [
        (
            "cast(stime as long) - cast(A.stime as long) < 5",
            lambda row, last, first: row[STIME] - first[STIME] < 5,
        )
    ]
    if field.type in (F.BYTE, F.INT, F.LONG):
        found.append((f"{f} > A.{f}", lambda row, last, first: _over(row[f], first[f])))
    return found


def _over(one: Any, other: Any) -> bool:
    return one is not None and other is not None and one > other


def _least(one: Any, other: Any) -> bool:
    return one is not None and other is not None and one >= other


def matches(
    rng: Random, name: str, out: str, schema: Schema, *, arrival: bool
) -> tuple[Match, Computed]:
    """Draw a pattern over a stream, with its expected matches. arrival: the stream's tuples have
    `seq`."""
    skips = rng.choice((False, True))
    steps, parts = _pattern(rng, schema, skips=skips)
    free = [each.name for each in schema.fields if not each.name.startswith("p")]
    partition = rng.sample(free, rng.randint(0, min(2, len(free))))
    within = rng.choice([1, 7, 20])
    measures, results = _measures(rng, schema, [each for each in steps if not each.negated])
    contiguity = Contiguity.SKIP_TILL_NEXT_MATCH if skips else Contiguity.STRICT
    box = Match(
        name, schema.name, out, tuple(partition), steps, within, tuple(measures), contiguity
    )

    def order(row: Row) -> Any:
        if arrival:
            return (row[STIME], row["seq"])
        return (row[STIME], *(ordered(row[each.name]) for each in schema.fields))

    reference = Reference(parts, skips, within, partition, order, results)
    return box, Computed(schema.name, reference.matches)


def _pattern(
    rng: Random, schema: Schema, *, skips: bool
) -> tuple[tuple[PatternStep, ...], list[Part]]:
    steps: list[PatternStep] = []
    parts: list[Part] = []
    for name in "ABCD"[: rng.randint(1, 4)]:
        least, most = (1, 1) if name == "A" else rng.choice(QUANTIFIERS)
        reluctant = name != "A" and rng.choice((False, True))
        field = rng.choice(schema.fields)
        # two ways that reach one state have different last tuples, if tuples lie between them
        pairs = conditions(field, alone=name == "A" or skips)
        pairs += [] if name == "A" else against_first(field)
        text, condition = rng.choice(pairs)
        steps.append(PatternStep(name, text, least, most, reluctant))
        parts.append(Part(least, most, reluctant, condition))
        if skips and least and rng.randint(0, 2) == 0:
            text, condition = rng.choice(conditions(field, alone=True))
            steps.append(PatternStep(f"not{name}", text, negated=True))
            parts[-1] = Part(least, most, reluctant, parts[-1].condition, condition)
    return tuple(steps), parts


def _measures(
    rng: Random, schema: Schema, steps: Sequence[PatternStep]
) -> tuple[list[Measure], Callable[[Taken], Mapping[str, Any]]]:
    found = [Measure("firstval", "A", STIME, "p0"), Measure("count", "", "", "p1")]
    for number in range(2, 2 + rng.randint(0, 3)):
        field = rng.choice(schema.fields)
        allowed = ["firstval", "lastval", "count"]
        if field.type is not F.BOOL:
            allowed += ["min", "max"]
        if field.type in NUMBERS:
            allowed += ["sum", "avg"]
        variable = rng.choice(["", *(each.variable for each in steps)])
        function = rng.choice(allowed)
        found.append(Measure(function, variable, field.name, f"p{number}"))
    places = {each.variable: place for place, each in enumerate(steps)}

    def results(taken: Taken) -> Mapping[str, Any]:
        made = {}
        for each in found:
            place = places.get(each.variable)
            rows = [row for number, row in taken if place in {None, number}]
            made[each.output] = (
                measure(each.function, [row[each.field] for row in rows])
                if each.field
                else len(rows)
            )
        return made

    return found, results
