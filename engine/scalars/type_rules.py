"""The rules of functions: the operands of each, the type of its result, and the cases that give
null."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import Enum
from typing import Final, NamedTuple, TypeAlias

from medusa.engine.objects.schema import FieldType

NUMBERS: Final = (
    FieldType.BYTE,
    FieldType.SHORT,
    FieldType.INT,
    FieldType.LONG,
    FieldType.SINGLE,
    FieldType.DOUBLE,
)
"""The numeric types; each can be widened to the later ones."""

INTEGERS: Final = NUMBERS[:4]
FLOATS: Final = NUMBERS[4:]
ORDERED: Final = frozenset({*NUMBERS, FieldType.STRING, FieldType.TIMESTAMP})

INTEGER_RANGE: Final = {
    FieldType.BYTE: range(-(2**7), 2**7),
    FieldType.SHORT: range(-(2**15), 2**15),
    FieldType.INT: range(-(2**31), 2**31),
    FieldType.LONG: range(-(2**63), 2**63),
}

Types: TypeAlias = Sequence[FieldType]

Literal: TypeAlias = bool | int | float | str | None
"""The value of a constant."""

Literals: TypeAlias = Sequence[Literal]


class Nulls(Enum):
    """When an operation may return null."""

    NEVER = "never"
    IF_ANY = "if any operand is null"
    IF_ALL = "if all operands are null"
    POSSIBLE = "whatever the operands are"


class Resolution(NamedTuple):
    """The types the operands are widened to, and the type of the result."""

    operands: tuple[FieldType, ...]
    result: FieldType


def common_type(types: Types) -> FieldType | None:
    """The narrowest type that all of `types` widen to; None if there is none."""
    first = types[0]
    if all(each is first for each in types):
        return first
    if all(each in NUMBERS for each in types):
        return max(types, key=NUMBERS.index)
    return None


def _same(types: Types, allowed: frozenset[FieldType]) -> FieldType | None:
    """The common type, if it is an allowed one."""
    common = common_type(types)
    return common if common in allowed else None


SOME_NUMBER: Final = frozenset(NUMBERS)
SOME_BOOL: Final = frozenset({FieldType.BOOL})
SOME_STRING: Final = frozenset({FieldType.STRING})
ANY: Final = frozenset(FieldType)


def uniform(
    allowed: frozenset[FieldType], result: FieldType | None = None, least: int = 2, most: int = 2
) -> Callable[[Types], Resolution | None]:
    """Operands of one allowed type; the result is of that type too, or of `result`."""

    def resolve(types: Types) -> Resolution | None:
        if not least <= len(types) <= most:
            return None
        common = _same(types, allowed)
        return None if common is None else Resolution((common,) * len(types), result or common)

    return resolve


def fixed(
    operands: tuple[FieldType, ...], result: FieldType
) -> Callable[[Types], Resolution | None]:
    """The rule of an operation whose operands have exactly these types; numbers of narrower types
    are widened to them."""

    def resolve(types: Types) -> Resolution | None:
        if len(types) != len(operands):
            return None
        fits = all(
            common_type((given, wanted)) is wanted
            for given, wanted in zip(types, operands, strict=True)
        )
        return Resolution(operands, result) if fits else None

    return resolve


def either(
    *rules: Callable[[Types], Resolution | None],
) -> Callable[[Types], Resolution | None]:
    """A rule that tries these rules in order; the first that fits counts."""

    def resolve(types: Types) -> Resolution | None:
        found = (rule(types) for rule in rules)
        return next((each for each in found if each is not None), None)

    return resolve
