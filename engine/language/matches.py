"""Patterns of sequences: their text, the fields that their conditions see, and their automaton.

A pattern is a list of variables, each with a quantifier. Its automaton has a state for each
variable and the number of tuples that the variable has taken. Two ways of a match to one state,
over the same tuples, are one from then on: the preferred one. So a match that begins with a tuple
is looked for in at most as many ways as there are states (Thompson, Regular Expression Search
Algorithm, CACM 1968; with preferences: Pike's VM, as in Cox, Regular Expression Matching: the
Virtual Machine Approach, 2009). After Wu, Diao, Rizvi, High-Performance Complex Event Processing
over Streams (SIGMOD 2006), and MATCH_RECOGNIZE of SQL:2016. ADR 34 has what differs from both.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import pairwise
from typing import Final

import msgspec

from medusa.engine.language.aggregate_types import aggregate_type
from medusa.engine.language.steps import MatchStep, TypedMeasure, Variable
from medusa.engine.language.typed import Expression, FieldRef
from medusa.engine.objects.query import (
    Contiguity,
    Function,
    Match,
    Measure,
    PatternStep,
)
from medusa.engine.objects.schema import STIME, Field, FieldType, Schema, check_schema
from medusa.overlay.errors import InvalidInputError

MAX_VARIABLES: Final = 32
"""Variables of a pattern: the condition of each may stand after each one before it."""

MAX_STATES: Final = 256
"""States of a pattern's automaton: so many ways of a match may be looked at for one tuple."""

MAX_TUPLES: Final = 1_024
"""Tuples of its partition, from its first one on, among which a match is looked for. So many are
held in memory for each tuple."""

PREVIOUS: Final = "prev"
"""Before the names of fields of the last tuple of the match, in conditions."""

FUNCTIONS: Final = frozenset(
    {
        Function.COUNT,
        Function.SUM,
        Function.MIN,
        Function.MAX,
        Function.AVG,
        Function.FIRSTVAL,
        Function.LASTVAL,
    }
)
"""Those of measures."""

_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}")

_ITEM: Final = re.compile(
    r"\s*(?P<not>!\s*)?(?P<name>[A-Za-z_][A-Za-z0-9_]{0,63})\s*"
    r"(?P<count>[?*+]|\{\s*(?P<least>\d{0,4})\s*(?P<comma>,)?\s*(?P<most>\d{0,4})\s*\})?"
    r"\s*(?P<reluctant>\?)?\s*"
)

_SIGNS: Final[dict[str, tuple[int, int | None]]] = {"?": (0, 1), "*": (0, None), "+": (1, None)}


# -- text ------------------------------------------------------------------------------------------


def read_pattern(text: str) -> tuple[PatternStep, ...]:
    """The steps of a pattern like `A B{2,5} !N C+?`, without conditions.

    Raises:
        InvalidInputError: it is none; names the place.
    """
    steps: list[PatternStep] = []
    place = 0
    while place < len(text) or not steps:
        found = _ITEM.match(text, place)
        if found is None or len(steps) == MAX_VARIABLES:
            rest = text[place : place + 20].strip()
            if len(steps) == MAX_VARIABLES:
                raise InvalidInputError(f"a pattern has at most {MAX_VARIABLES} variables")
            raise InvalidInputError(
                f"the pattern is wrong at {rest!a}: it is variables in a row, each with ?, *, +, "
                "{n}, {n,} or {n,m} behind it, like A B+ C{2,5}"
            )
        least, most = _quantifier(found)
        steps.append(
            PatternStep(
                found["name"],
                least=least,
                most=most,
                reluctant=found["reluctant"] is not None,
                negated=found["not"] is not None,
            )
        )
        place = found.end()
    return tuple(steps)


def _quantifier(found: re.Match[str]) -> tuple[int, int | None]:
    sign = found["count"]
    if sign is None:
        return 1, 1
    if sign in _SIGNS:
        return _SIGNS[sign]
    least, most = found["least"], found["most"]
    if not least and not most:
        raise InvalidInputError(f"{sign} says no number of tuples: say {{n}}, {{n,}} or {{n,m}}")
    if found["comma"] is None:
        return int(least + most), int(least + most)
    return int(least or 0), int(most) if most else None


def pattern_text(steps: Sequence[PatternStep]) -> str:
    """What `read_pattern` reads."""
    return " ".join(map(_step_text, steps))


def _step_text(step: PatternStep) -> str:
    count = {(1, 1): "", (0, 1): "?", (0, None): "*", (1, None): "+"}.get((step.least, step.most))
    if count is None:
        most = "" if step.most is None else step.most
        count = f"{{{step.least}}}" if step.least == most else f"{{{step.least},{most}}}"
    if step.reluctant and not count:
        count = "{1}"
    return f"{'!' * step.negated}{step.variable}{count}{'?' * step.reluctant}"


def conditioned(
    steps: Sequence[PatternStep], variables: Sequence[str], conditions: Sequence[str]
) -> tuple[PatternStep, ...]:
    """The steps with the conditions of their variables; one without a condition takes any tuple.

    Raises:
        InvalidInputError: a variable is not in the pattern, or named twice.
    """
    if len(variables) != len(conditions):
        raise InvalidInputError(
            f"it has {len(variables)} variables and {len(conditions)} conditions"
        )
    known = {step.variable for step in steps}
    for number, name in enumerate(variables):
        if name not in known or name in variables[:number]:
            reason = "twice among the variables" if name in known else "not in the pattern"
            raise InvalidInputError(f"{name[:64]!a} is {reason}")
    of = dict(zip(variables, conditions, strict=True))
    return tuple(
        msgspec.structs.replace(step, condition=of[step.variable]) if step.variable in of else step
        for step in steps
    )


# -- checks ----------------------------------------------------------------------------------------


def check_pattern(box: Match) -> None:
    """Check what needs no schema. Raises: InvalidInputError: names the variable and the reason."""
    if not box.partition_by and not box.measures:
        raise InvalidInputError("a match needs at least one measure, or a field to partition by")
    if not 0 < len(box.steps) <= MAX_VARIABLES:
        raise InvalidInputError(f"a pattern has 1 to {MAX_VARIABLES} variables")
    seen: set[str] = set()
    for step in box.steps:
        _check_step(step, box.contiguity)
        if step.variable in seen:
            raise InvalidInputError(
                f"variable {step.variable} is twice in the pattern: give one another name"
            )
        seen.add(step.variable)
    _check_places(box.steps)
    for measure in box.measures:
        if measure.function not in FUNCTIONS:
            known = ", ".join(sorted(FUNCTIONS))
            raise InvalidInputError(f"{measure.function} is no measure; there are {known}")
        if measure.variable and measure.variable not in seen:
            raise InvalidInputError(f"{measure.variable[:64]!a} is not in the pattern")


def _check_places(steps: Sequence[PatternStep]) -> None:
    """Check which steps follow which, and how many states that makes."""
    if all(step.negated or step.least == 0 for step in steps):
        raise InvalidInputError("the pattern fits no tuples at all: one variable must take one")
    if steps[0].negated:
        raise InvalidInputError(
            f"nothing comes before !{steps[0].variable}: a pattern begins with a tuple"
        )
    for step, following in pairwise(steps):
        if following.negated and step.least == 0 and not step.negated:
            raise InvalidInputError(
                f"!{following.variable} stands behind {step.variable}, which may take no tuple: "
                "put it behind a variable that takes one"
            )
    states = sum(_counted(step) for step in steps if not step.negated)
    if states > MAX_STATES:
        raise InvalidInputError(
            f"the quantifiers of the pattern count to {states:,} together, at most {MAX_STATES} "
            "allowed"
        )


def _counted(step: PatternStep) -> int:
    return max(step.least, 1) if step.most is None else step.most


def _check_step(step: PatternStep, contiguity: Contiguity) -> None:
    name = step.variable
    if not _NAME.fullmatch(name) or name.lower() in {PREVIOUS, STIME}:
        raise InvalidInputError(
            f"{name[:64]!a} is not the name of a variable: it has letters, digits and _, and is "
            f"neither {PREVIOUS} nor {STIME}"
        )
    if step.least < 0 or (step.most is not None and not max(step.least, 1) <= step.most):
        raise InvalidInputError(f"{name} takes from {step.least} to {step.most} tuples: none can")
    if step.negated and (step.least, step.most, step.reluctant) != (1, 1, False):
        raise InvalidInputError(f"!{name} takes no tuples, so it has no quantifier")
    if step.negated and contiguity is Contiguity.STRICT:
        raise InvalidInputError(
            f"between tuples that follow each other is nothing that !{name} could be: ask for "
            f"contiguity {Contiguity.SKIP_TILL_NEXT_MATCH}"
        )


# -- types -----------------------------------------------------------------------------------------


def type_match(
    box: Match, schema: Schema, predicate: Callable[[str, Schema], Expression]
) -> tuple[Schema, MatchStep]:
    """The schema of its output, and the step.

    Args:
        schema: of the input. predicate: types a condition over the fields of a schema.

    Raises:
        InvalidInputError: it does not type-check; names the variable or the measure.
    """
    fields = {each.name: each for each in schema.fields}
    for name in box.partition_by:
        if name not in fields:
            raise InvalidInputError(
                f"it is partitioned by {name[:64]!a}, which is no field; there are "
                f"{', '.join(fields)[:200]}"
            )
    partition = tuple(fields[name] for name in box.partition_by)
    variables = _variables(box, schema, predicate)
    measures = tuple(_measure(each, variables, fields) for each in box.measures)
    made = Schema(
        box.output, (*partition, *(_measured(each, fields, variables) for each in measures))
    )
    check_schema(made)
    return made, MatchStep(partition, variables, box.within_us, box.contiguity, measures)


def _variables(
    box: Match, schema: Schema, predicate: Callable[[str, Schema], Expression]
) -> tuple[Variable, ...]:
    found: list[Variable] = []
    seen = [*schema.fields, *_fields_of(PREVIOUS, schema)]
    for step in box.steps:
        if not step.negated:
            seen += _fields_of(step.variable, schema)
        try:
            condition = predicate(step.condition, Schema(box.output, tuple(seen)))
        except InvalidInputError as error:
            raise InvalidInputError(f"condition of {step.variable}: {error}") from None
        if step.negated:
            last = found[-1]
            forbidden = (*last.forbidden, condition)
            found[-1] = Variable(
                last.name, last.condition, last.least, last.most, last.reluctant, forbidden
            )
        else:
            found.append(Variable(step.variable, condition, step.least, step.most, step.reluctant))
    return tuple(found)


def _fields_of(variable: str, schema: Schema) -> list[Field]:
    """The fields of the last tuple of a variable, which there may not be."""
    return [
        msgspec.structs.replace(each, name=f"{variable}.{each.name}", nullable=True)
        for each in (*schema.fields, Field(STIME, FieldType.TIMESTAMP))
    ]


def _measure(
    measure: Measure, variables: Sequence[Variable], fields: dict[str, Field]
) -> TypedMeasure:
    names = [each.name for each in variables]
    if measure.variable and measure.variable not in names:
        raise InvalidInputError(f"!{measure.variable} takes no tuples that could be measured")
    place = names.index(measure.variable) if measure.variable else None
    argument = None
    if measure.field:
        types = {STIME: FieldType.TIMESTAMP} | {name: each.type for name, each in fields.items()}
        if measure.field not in types:
            raise InvalidInputError(
                f"measure {measure.output[:64]!a}: there is no field {measure.field[:64]!a}; "
                f"there are {', '.join(types)[:200]}"
            )
        argument = FieldRef(measure.field, types[measure.field])
    type_ = aggregate_type(measure.function, None if argument is None else argument.type)
    if type_ is None:
        given = "nothing" if argument is None else argument.type
        raise InvalidInputError(
            f"measure {measure.output[:64]!a}: {measure.function} does not take {given}"
        )
    return TypedMeasure(measure.function, place, argument, measure.output, type_)


def _measured(
    measure: TypedMeasure, fields: dict[str, Field], variables: Sequence[Variable]
) -> Field:
    """The output field of a measure."""
    if measure.function is Function.COUNT:
        return Field(measure.output, measure.type)
    given = fields.get(measure.argument.name) if measure.argument is not None else None
    size = None
    if measure.function not in {Function.SUM, Function.AVG} and given is not None:
        size = given.size
    taken = measure.variable is None or variables[measure.variable].least > 0
    nullable = not taken or (given is not None and given.nullable)
    may_not_fit = measure.function is Function.SUM and measure.type is FieldType.LONG
    return Field(measure.output, measure.type, size, nullable or may_not_fit)


# -- automaton -------------------------------------------------------------------------------------

START: Final = -1
"""The place of a way before its first tuple."""


@dataclass(frozen=True, slots=True)
class Move:
    """What a way may do with the next tuple.

    Attributes:
        target: the place of the variable that takes it; None: nothing takes it, the match is made.
        after_least: only a way whose variable has taken its least number may do so; else only one
            whose variable has not taken its greatest number.
    """

    target: int | None
    after_least: bool


def moves(variables: Sequence[Variable], place: int) -> tuple[Move, ...]:
    """What a way at a variable, or at START, may do, the preferred first."""
    go = tuple(Move(target, after_least=True) for target in _entered(variables, place + 1))
    if place == START:
        return go
    again = Move(place, after_least=False)
    return (*go, again) if variables[place].reluctant else (again, *go)


def _entered(variables: Sequence[Variable], place: int) -> Iterator[int | None]:
    """The variables that may take the next tuple, those that take none being left out."""
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
    """Whether all variables after it may take nothing."""
    return all(each.least == 0 for each in variables[place + 1 :])


def ends_at_most(variables: Sequence[Variable], place: int) -> int | None:
    """The number of tuples of a variable with which a match is made at once, whatever comes next.
    None: with none."""
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
    """Among how many tuples, from the first on, a match is looked for."""
    if step.contiguity is Contiguity.STRICT:
        counts = [each.most for each in step.variables]
        if None not in counts:
            return min(MAX_TUPLES, sum(each or 0 for each in counts))
    return MAX_TUPLES


class Kept(Enum):
    """What a register keeps of the values of a field."""

    FIRST = "first"
    LAST = "last"
    COUNT = "count"
    SUM = "sum"
    MIN = "min"
    MAX = "max"


@dataclass(frozen=True, slots=True)
class Register:
    """What a way remembers of the tuples that a variable has taken.

    Attributes:
        variable: its place; None: of all tuples of the match.
        field: None: the tuples themselves are counted.
    """

    kept: Kept
    variable: int | None
    field: FieldRef | None


_KEPT: Final = {
    Function.COUNT: (Kept.COUNT,),
    Function.SUM: (Kept.SUM,),
    Function.MIN: (Kept.MIN,),
    Function.MAX: (Kept.MAX,),
    Function.AVG: (Kept.SUM, Kept.COUNT),
    Function.FIRSTVAL: (Kept.FIRST,),
    Function.LASTVAL: (Kept.LAST,),
}


def registers_of(measure: TypedMeasure) -> tuple[Register, ...]:
    """What must be remembered for a measure."""
    return tuple(
        Register(kept, measure.variable, measure.argument) for kept in _KEPT[measure.function]
    )


def remembered(step: MatchStep, field: FieldRef) -> Register | None:
    """What a field of a condition means; None: the tuple's own field."""
    variable, dot, name = field.name.partition(".")
    if not dot:
        return None
    names = [each.name for each in step.variables]
    place = None if variable == PREVIOUS else names.index(variable)
    return Register(Kept.LAST, place, FieldRef(name, field.type))


def all_registers(step: MatchStep) -> tuple[Register, ...]:
    """All that a way remembers, each once."""
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
