"""A scalar function is one row; types, Spark, the reference, documentation and completion come from
the rows. Signs, like `+`, are rows too.

All are total: on any data they give a value or null and never fail. Operands already have the types
that `Scalar.types` asks for: the parser puts an explicit `cast` where a number is widened, so no
engine coerces by rules of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from medusa.engine.scalars.examples import Example
from medusa.engine.scalars.late import Column
from medusa.engine.scalars.type_rules import Literal, Literals, Nulls, Resolution, Types


@dataclass(frozen=True, slots=True, eq=False)
class Scalar:
    """A function or an operator over the values of one tuple.

    Attributes:
        call: the call as the documentation writes it.
        takes: the operands, in words for an error message.
        types: operand types to their resolution; None if they do not fit.
        spark: makes its column from those of the operands.
        value: computes it in Python; the result is then fitted to its type.
        gives: the result in words, for a sentence of the documentation; an operator has none.
        constants: positions of operands that must be constants; the last ones may be left out.
            `spark` and `value` get their values.
        check: takes these constants; returns the fault in words, or None.
        left_out: (count, default): a call with only `count` operands gets `default` as one more.
        repeats: how often Spark's expression contains each operand, by position; an operand beyond
            the end of this tuple occurs once.
        own: the cost of Spark's expression without its operands, as a number of nodes: where it was
            measured, the number that Spark plans in the same time.
        by_types: whether `spark` and `value` get the types of the operands and the result first.
        of_nulls: whether `value` also gets nulls; else one null makes the result null.
    """

    name: str
    call: str
    takes: str
    types: Callable[[Types], Resolution | None]
    nulls: Nulls
    spark: Callable[..., Column]
    value: Callable[..., Any]
    gives: str = ""
    examples: tuple[Example, ...] = ()
    other_names: tuple[str, ...] = ()
    constants: tuple[int, ...] = ()
    check: Callable[[Literals], str | None] = lambda _: None
    left_out: tuple[int, Literal] | None = None
    repeats: tuple[int, ...] = ()
    own: int = 1
    by_types: bool = False
    of_nulls: bool = False


class Make(Protocol):
    """Makes the operation of the function with a name (`Scalar`). An operand that is a plain value
    becomes a constant."""

    def __call__(self, name: str, operands: Sequence[Any], /) -> Any: ...  # noqa: ANN401


@dataclass(frozen=True, slots=True, eq=False)
class ShortForm:
    """A function that is replaced by other operations. Attributes: count: the number of operands.
    takes: the operands, in words for an error message. build: makes the operations; raises
    ValueError, with the reason, for operands that it refuses.
    """

    name: str
    call: str
    takes: str
    count: int
    build: Callable[[Make, Sequence[Any]], Any]
    gives: str
    examples: tuple[Example, ...]
    other_names: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Family:
    """The functions of one subject, under its title in the documentation."""

    title: str
    rows: tuple[Scalar | ShortForm, ...]
