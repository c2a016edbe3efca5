"""The rooms by kind: the only place that asks which kind a box or a step is.

Each function covers its union: mypy names a kind that one of them forgets.
"""

from __future__ import annotations

from typing import Any, Final

from medusa.engine.objects.query import (
    Aggregate,
    Box,
    Cumulate,
    Filter,
    Join,
    Map,
    Match,
    Rank,
    Sessions,
    Top,
    Totals,
    TupleWindows,
    Union,
)
from medusa.engine.operators.aggregate import AggregateOperator
from medusa.engine.operators.aggregate.step import AggregateStep
from medusa.engine.operators.cumulate import CumulateOperator, CumulateStep
from medusa.engine.operators.filter import FilterOperator, FilterStep
from medusa.engine.operators.join import JoinOperator
from medusa.engine.operators.join.step import JoinStep
from medusa.engine.operators.map import MapOperator, MapStep
from medusa.engine.operators.match import MatchOperator
from medusa.engine.operators.match.step import MatchStep
from medusa.engine.operators.rank import RankOperator, RankStep
from medusa.engine.operators.sessions import SessionsOperator, SessionsStep
from medusa.engine.operators.shared.operator import Operator
from medusa.engine.operators.top import TopOperator, TopStep
from medusa.engine.operators.totals import TotalsOperator
from medusa.engine.operators.totals.step import TotalsStep
from medusa.engine.operators.tuple_windows import TupleWindowsOperator
from medusa.engine.operators.tuple_windows.step import TupleWindowsStep
from medusa.engine.operators.union import UnionOperator

AnyStep = (
    FilterStep
    | MapStep
    | AggregateStep
    | SessionsStep
    | CumulateStep
    | TupleWindowsStep
    | RankStep
    | JoinStep
    | MatchStep
    | TotalsStep
    | TopStep
)


def operator_of(box: Box) -> Operator[Any, AnyStep]:
    """Return the operator of a box's kind."""
    match box:
        case Filter():
            return FilterOperator(box)
        case Map():
            return MapOperator(box)
        case Union():
            return UnionOperator(box)
        case Aggregate():
            return AggregateOperator(box)
        case Sessions():
            return SessionsOperator(box)
        case Cumulate():
            return CumulateOperator(box)
        case TupleWindows():
            return TupleWindowsOperator(box)
        case Rank():
            return RankOperator(box)
        case Join():
            return JoinOperator(box)
        case Match():
            return MatchOperator(box)
        case Totals():
            return TotalsOperator(box)
        case Top():
            return TopOperator(box)


KINDS: Final[tuple[type[Operator[Any, Any]], ...]] = tuple(Operator.__subclasses__())
"""All operators, by the kind of box: `operator_of` finds only imported ones."""

WORDS: Final = tuple(sorted({kind.word for kind in KINDS}))
"""The names of the kinds in documents and contracts."""
