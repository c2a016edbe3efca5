"""Finds the evaluation over DataFrames for each step: the package of its operator has it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

from medusa.engine.dataframes.stage import Stage
from medusa.engine.objects.schema import Field
from medusa.engine.operators.aggregate.spark import Windows
from medusa.engine.operators.aggregate.step import AggregateStep
from medusa.engine.operators.cumulate import CumulateStep
from medusa.engine.operators.cumulate.spark import GrowingSpans
from medusa.engine.operators.filter import FilterStep
from medusa.engine.operators.filter.spark import Filtered
from medusa.engine.operators.join.step import JoinStep
from medusa.engine.operators.map import MapStep
from medusa.engine.operators.map.spark import Mapped
from medusa.engine.operators.match.spark import Matches
from medusa.engine.operators.match.step import MatchStep
from medusa.engine.operators.rank import RankStep
from medusa.engine.operators.rank.spark import Ranks
from medusa.engine.operators.registry import AnyStep
from medusa.engine.operators.sessions import SessionsStep
from medusa.engine.operators.sessions.spark import SessionSpans
from medusa.engine.operators.shared.step import Step
from medusa.engine.operators.top import TopStep
from medusa.engine.operators.top.spark import TopOf
from medusa.engine.operators.totals.spark import TotalsOf
from medusa.engine.operators.totals.step import TotalsStep
from medusa.engine.operators.tuple_windows.spark import TupleWindowsOf
from medusa.engine.operators.tuple_windows.step import TupleWindowsStep


@dataclass(frozen=True, slots=True)
class StepInput:
    """The rows that a step reads. Attributes: by_arrival: whether they have SEQ, which orders
    tuples of one stime. last: whether the step is its task's last one.
    """

    fields: Sequence[Field]
    by_arrival: bool
    last: bool = False


def stage_of(step: Step, rows: StepInput) -> Stage:
    """Return a step's columns. rows: its input."""
    fields, by_arrival = rows.fields, rows.by_arrival
    match cast("AnyStep", step):
        case FilterStep() as step:
            return Filtered(step)
        case MapStep() as step:
            return Mapped(step)
        case AggregateStep() as step:
            return Windows(step, fields, by_arrival=by_arrival, last=rows.last)
        case SessionsStep() as step:
            return SessionSpans(step, fields, by_arrival=by_arrival)
        case CumulateStep() as step:
            return GrowingSpans(step, fields, by_arrival=by_arrival)
        case TupleWindowsStep() as step:
            return TupleWindowsOf(step, fields, by_arrival=by_arrival)
        case RankStep() as step:
            return Ranks(step, fields, by_arrival=by_arrival)
        case MatchStep() as step:
            return Matches(step, fields, by_arrival=by_arrival)
        case TotalsStep() as step:
            return TotalsOf(step, fields)
        case TopStep() as step:
            return TopOf(step, by_arrival=by_arrival)
        case JoinStep():
            raise AssertionError("a join reads the files itself")
