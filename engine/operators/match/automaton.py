"""The automaton of a pattern, and the values that a match keeps of its tuples."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final

from medusa.engine.expressions.typed import Expression, FieldRef
from medusa.engine.objects.query import Contiguity
from medusa.engine.operators.match.pattern import MAX_TUPLES, PREVIOUS
from medusa.engine.operators.match.step import MatchStep, TypedMeasure, Variable

START: Final = -1
"""The place of a way (a partial match) before its first tuple."""


@dataclass(frozen=True, slots=True)
class Move:
    """One transition that a way may take with the next tuple.

    Attributes:
        target: the place of the variable that takes the tuple; None: no variable takes it, and the
            match is complete. after_least: whether the way's variable must have taken its least
            number of tuples; else it must not have taken its greatest number.
    """

    target: int | None
    after_least: bool


def moves(variables: Sequence[Variable], place: int) -> tuple[Move, ...]:
    """Return the moves of a way at a variable, or at START, the preferred first."""
    go = tuple(Move(target, after_least=True) for target in _entered(variables, place + 1))
    if place == START:
        return go
    again = Move(place, after_least=False)
    return (*go, again) if variables[place].reluctant else (again, *go)


def _entered(variables: Sequence[Variable], place: int) -> Iterator[int | None]:
    """The variables that may take the next tuple: variables that may take no tuple are skipped."""
    if place == len(variables):
        yield None
        return
    variable = variables[place]
    if variable.least > 0:
        yield place
    elif variable.reluctant:
        yield from _entered(variables, place + 1)
        yield place
    else:
        yield place
        yield from _entered(variables, place + 1)


def may_end(variables: Sequence[Variable], place: int) -> bool:
    """Whether all variables after that place may take no tuple."""
    return all(each.least == 0 for each in variables[place + 1 :])


def ends_at_most(variables: Sequence[Variable], place: int) -> int | None:
    """The number of tuples of a variable with which a match is complete, whatever follows; None: no
    number is."""
    variable = variables[place]
    if variable.forbidden:
        return None
    before: list[int] = []
    for move in moves(variables, place):
        if move.target is None:
            if any(target != place for target in before):
                return None
            return variable.most if before else variable.least
        before.append(move.target)
    return None


def most_tuples(step: MatchStep) -> int:
    """The number of tuples, from the first on, among which a match is searched."""
    if step.contiguity is Contiguity.STRICT:
        counts = [each.most for each in step.variables]
        if None not in counts:
            return min(MAX_TUPLES, sum(each or 0 for each in counts))
    return MAX_TUPLES


class Kept(Enum):
    """The value that a register keeps of a field."""

    FIRST = "first"
    LAST = "last"
    COUNT = "count"
    SUM = "sum"
    MIN = "min"
    MAX = "max"


@dataclass(frozen=True, slots=True)
class Register:
    """A value that a way keeps of the tuples that a variable has taken. Attributes: variable: its
    place; None: all tuples of the match. field: None: the register counts the tuples themselves.
    """

    kept: Kept
    variable: int | None
    field: FieldRef | None


_KEPT: Final = {
    "count": (Kept.COUNT,),
    "sum": (Kept.SUM,),
    "min": (Kept.MIN,),
    "max": (Kept.MAX,),
    "avg": (Kept.SUM, Kept.COUNT),
    "firstval": (Kept.FIRST,),
    "lastval": (Kept.LAST,),
}


def registers_of(measure: TypedMeasure) -> tuple[Register, ...]:
    """Return the registers that a measure needs."""
    return tuple(
        Register(kept, measure.variable, measure.argument) for kept in _KEPT[measure.function]
    )


def remembered(step: MatchStep, field: FieldRef) -> Register | None:
    """Return the register of a condition's field; None: the tuple's own field."""
    variable, dot, name = field.name.partition(".")
    if not dot:
        return None
    names = [each.name for each in step.variables]
    place = None if variable == PREVIOUS else names.index(variable)
    return Register(Kept.LAST, place, FieldRef(name, field.type))


def all_registers(step: MatchStep) -> tuple[Register, ...]:
    """Return all registers of a way, each once."""
    found: dict[Register, None] = {}
    for variable in step.variables:
        for condition in (variable.condition, *variable.forbidden):
            for field in _references(condition):
                register = remembered(step, field)
                if register is not None:
                    found[register] = None
    for measure in step.measures:
        found |= dict.fromkeys(registers_of(measure))
    return tuple(found)


def fields_read(step: MatchStep) -> tuple[FieldRef, ...]:
    """The fields of tuples that conditions and registers read, each once."""
    found: dict[FieldRef, None] = {}
    for variable in step.variables:
        for condition in (variable.condition, *variable.forbidden):
            for field in _references(condition):
                if remembered(step, field) is None:
                    found[field] = None
    for register in all_registers(step):
        if register.field is not None:
            found[register.field] = None
    return tuple(found)


def _references(expression: Expression) -> Iterator[FieldRef]:
    if isinstance(expression, FieldRef):
        yield expression
    for each in getattr(expression, "operands", ()):
        yield from _references(each)
