"""Finds the function that evaluates each step over rows, in the package of the step's operator."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from medusa.engine.evaluation.expressions import Row
from medusa.engine.evaluation.job import Job
from medusa.engine.evaluation.values import plain_floats
from medusa.engine.operators.aggregate.reference import aggregated
from medusa.engine.operators.aggregate.step import AggregateStep
from medusa.engine.operators.cumulate import CumulateStep
from medusa.engine.operators.cumulate.reference import cumulate
from medusa.engine.operators.filter import FilterStep
from medusa.engine.operators.filter.reference import filtered
from medusa.engine.operators.join.reference import joined
from medusa.engine.operators.join.step import JoinStep
from medusa.engine.operators.map import MapStep
from medusa.engine.operators.map.reference import mapped
from medusa.engine.operators.match.reference import matched
from medusa.engine.operators.match.step import MatchStep
from medusa.engine.operators.rank import RankStep
from medusa.engine.operators.rank.reference import ranked
from medusa.engine.operators.registry import AnyStep
from medusa.engine.operators.sessions import SessionsStep
from medusa.engine.operators.sessions.reference import sessions
from medusa.engine.operators.shared.step import Step
from medusa.engine.operators.top import TopStep
from medusa.engine.operators.top.reference import top
from medusa.engine.operators.totals.reference import totals
from medusa.engine.operators.totals.step import TotalsStep
from medusa.engine.operators.tuple_windows.reference import tuple_windows
from medusa.engine.operators.tuple_windows.step import TupleWindowsStep


def computed(step: Step, rows: Sequence[Row], job: Job) -> list[Row]:
    """Return the results of a step over rows that are in the order of their stream, whose floats
    are plain.
    """
    return plain_floats(_computed(step, rows, job))


def _computed(step: Step, rows: Sequence[Row], job: Job) -> list[Row]:
    match cast("AnyStep", step):
        case FilterStep() as step:
            return filtered(step, rows, job)
        case MapStep() as step:
            return mapped(step, rows, job)
        case AggregateStep() as step:
            return aggregated(step, rows, job)
        case SessionsStep() as step:
            return sessions(step, rows, job)
        case CumulateStep() as step:
            return cumulate(step, rows, job)
        case TupleWindowsStep() as step:
            return tuple_windows(step, rows, job)
        case RankStep() as step:
            return ranked(step, rows, job)
        case JoinStep() as step:
            return joined(step, rows, job)
        case MatchStep() as step:
            return matched(step, rows, job)
        case TotalsStep() as step:
            return totals(step, rows, job)
        case TopStep() as step:
            return top(step, rows, job)
