"""The reference of totals."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

from medusa.engine.aggregates.extremes import MIN
from medusa.engine.aggregates.function import FOLDS, Fold, Folded
from medusa.engine.evaluation.expressions import Row, evaluate
from medusa.engine.evaluation.job import Job
from medusa.engine.evaluation.values import plain_float
from medusa.engine.objects.schema import DELETED, STIME
from medusa.engine.operators.shared.aggregation import TypedAggregate
from medusa.engine.operators.totals.step import State, TotalsStep, layout_of

_MASK = 2**32 - 1


def totals(step: TotalsStep, rows: Sequence[Row], job: Job) -> list[Row]:
    """Return the tuples of `OUT/panes` after a boundary.

    Args:
        rows: the input's tuples in order; those after the boundary, or all if it is a table.
    """
    layout = layout_of(step)
    groups = [field.name for field in step.group_by]
    known: dict[tuple[Any, ...], Row] = {}
    seen: set[tuple[Any, ...]] = set()
    for row in sorted(job.own, key=lambda row: row[STIME]):
        key = tuple(row[name] for name in groups)
        if row[layout.part] == 0:
            known[key] = row
        else:
            state = layout.states[row[layout.part] - 1]
            seen.add((key, row[layout.part], row[state.value]))
    made: list[Row] = []
    blank = _blank(step)
    for stime, key, signed in _by_group(step, rows, groups, job.after):
        total = {**blank, **known.get(key, {}), STIME: stime}
        total |= dict(zip(groups, key, strict=True))
        if layout.rows:
            total[layout.rows] = (total[layout.rows] or 0) + sum(sign for sign, _ in signed)
        for number, (each, state) in enumerate(zip(step.functions, layout.states, strict=True)):
            if state.value:
                values = {v for _, row in signed if (v := _value(each, row)) is not None}
                new = [v for v in values if (key, number + 1, v) not in seen]
                seen |= {(key, number + 1, v) for v in new}
                total[state.number] = (total[state.number] or 0) + len(new)
                made += [
                    {
                        **blank,
                        STIME: stime,
                        **dict(zip(groups, key, strict=True)),
                        layout.part: number + 1,
                        state.value: v,
                    }
                    for v in new
                ]
            else:
                _add(total, each, state, signed)
            total[each.output] = _result(total, each, state)
        total[layout.part] = 0
        if step.changes:
            total[DELETED] = True if total[layout.rows] == 0 else None
        known[key] = total
        made.append(total)
    return made


def _blank(step: TotalsStep) -> Row:
    layout = layout_of(step)
    names = [layout.part, layout.rows, *(each.output for each in step.functions)]
    for state in layout.states:
        names += [state.number, state.high, state.low, state.total, state.best, state.value]
    if step.changes:
        names.append(DELETED)
    return dict.fromkeys(name for name in names if name)


def _by_group(
    step: TotalsStep, rows: Sequence[Row], groups: Sequence[str], after: int
) -> list[tuple[int, tuple[Any, ...], list[tuple[int, Row]]]]:
    """(stime, group, [(sign, tuple)]), in order of stime."""
    found: dict[tuple[int, tuple[Any, ...]], list[tuple[int, Row]]] = {}
    last: dict[tuple[Any, ...], Row] = {}
    for row in rows:
        pairs = [(1, row)]
        if step.changes:
            key = tuple(row[name] for name in step.changes)
            old = last.get(key)
            last[key] = row
            pairs = [(1, row), *([(-1, old)] if old is not None else [])]
            if step.deleted:
                pairs = [(sign, each) for sign, each in pairs if not each[step.deleted]]
        if row[STIME] <= after:
            continue
        for sign, each in pairs:
            group = tuple(each[name] for name in groups)
            found.setdefault((row[STIME], group), []).append((sign, each))
    ordered = sorted(found, key=lambda each: each[0])
    return [(stime, group, found[stime, group]) for stime, group in ordered]


def _value(each: TypedAggregate, row: Row) -> Any:  # noqa: ANN401 - of any type of field
    value = 1 if each.argument is None else evaluate(each.argument, row)
    return plain_float(value) if isinstance(value, float) else value


def _add(total: Row, each: TypedAggregate, state: State, signed: Sequence[tuple[int, Row]]) -> None:
    pairs = [(sign, value) for sign, row in signed if (value := _value(each, row)) is not None]
    total[state.number] = (total[state.number] or 0) + sum(sign for sign, _ in pairs)
    if state.high:
        whole = ((total[state.high] or 0) << 32) + (total[state.low] or 0)
        whole += sum(sign * value for sign, value in pairs)
        total[state.high], total[state.low] = whole >> 32, whole & _MASK
    if state.total and pairs:
        own = functools.reduce(lambda one, two: one + two, sorted(s * v for s, v in pairs), 0.0)
        total[state.total] = own if total[state.total] is None else total[state.total] + own
    if state.best and pairs:
        best = FOLDS[Fold.MIN if each.function is MIN else Fold.MAX]
        before = [] if total[state.best] is None else [total[state.best]]
        total[state.best] = best([*before, *(value for _, value in pairs)])


def _result(total: Row, each: TypedAggregate, state: State) -> Any:  # noqa: ANN401 - as above
    function, type_ = each.function, each.argument_type
    if not isinstance(function, Folded):
        return total[state.number]
    if not function.never_null and not total[state.number]:
        return None
    return function.of([total[name] for name in state.of(function.states(type_))], type_)
