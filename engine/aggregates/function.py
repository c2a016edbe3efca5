"""An aggregate function is one row; types, panes, Spark, the reference, documentation and
completion come from the rows.

Each is a function of the window's values alone, as a bag: a value and how often it occurs. So the
result has the same bits in any order, cut, panes and place. In order, `false` is before `true`, NaN
behind all numbers, and strings are by code point; nulls do not count.

A function is one of three classes:

    Folded   one tuple of a pane and group has its partial result: `count`, sums, variances...
    End      of the first or the last tuple; nulls count
    Counted  each different value (or register, bucket, bin: its `Kind`) makes a tuple of a pane
             and group: `count_distinct`, percentiles, texts
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar, Final, TypeAlias

from medusa.engine.aggregates.constants import ConstantKind
from medusa.engine.objects.schema import FieldType
from medusa.engine.scalars.examples import Example
from medusa.engine.scalars.late import Column, F
from medusa.engine.scalars.type_rules import ANY, FLOATS
from medusa.engine.scalars.values import Value

Constant: TypeAlias = int | float | str | None

EXACT: Final = ANY - {*FLOATS}


class Fold(StrEnum):
    """How the partial results of panes are combined in one field: Spark's function of that name,
    or, pane after pane, the aggregate function itself."""

    SUM = "sum"
    MIN = "min"
    MAX = "max"
    IN_ORDER = "in order"


@dataclass(frozen=True, slots=True)
class State:
    """A field of the partial result of a pane and group.

    Attributes:
        name: the end of the field's name; the beginning names the function of the window.
    """

    name: str
    type: FieldType
    fold: Fold = Fold.SUM


@dataclass(frozen=True, kw_only=True, eq=False)
class AggregateFunction(ABC):
    """An aggregate function: one row of the table of functions.

    Attributes:
        other_names: SQL's other names of the function; they are read, and never written.
        takes: the types of its argument. argument: these types in words.
        result: the type of its result; None: the argument's type.
        constant: the constant that follows its argument.
        gives: the function in words, for a sentence of the documentation.
    """

    name: str
    argument: str
    gives: str
    example: Example
    takes: frozenset[FieldType]
    result: FieldType | None = None
    other_names: tuple[str, ...] = ()
    constant: ConstantKind | None = None

    never_null: ClassVar[bool] = False
    chosen: ClassVar[bool] = False
    """The result is one of the values."""
    skips_nulls: ClassVar[bool] = True
    alone: ClassVar[bool] = False
    """Whether the function may have no argument: then it counts tuples."""
    ordered: ClassVar[bool] = False
    """Whether the function may take its values in descending order."""
    within_group: ClassVar[bool] = False
    """SQL may have its argument in WITHIN GROUP."""
    repeats: ClassVar[int] = 5
    """How often Spark's expression contains the argument, at most."""

    @property
    def most_fields(self) -> int:
        """The most fields of its partial result, over all types of argument."""
        return 3

    def type_of(self, argument: FieldType | None) -> FieldType | None:
        """The type of the result; None: it does not take such an argument."""
        if argument is None:
            return self.result if self.alone else None
        return (self.result or argument) if argument in self.takes else None

    @property
    def call(self) -> str:
        """The call as the documentation writes it."""
        constant = "" if self.constant is None else f", {self.constant.example}"
        return f"{self.name}(x{constant})"


class Folded(AggregateFunction):
    """A function whose partial result is one tuple of a pane and group.

    Spark and the reference compute it in three steps: a partial result from the values of each
    pane, one partial result from those of all panes, and the result from this one. The reference
    passes it no null values.
    """

    named: ClassVar[bool] = False
    """Spark's expression of the result uses an aggregate more than twice: then each becomes a
    column of its own, so that Spark does not write it out everywhere."""

    @property
    def most_fields(self) -> int:
        return max(len(self.states(each)) for each in self.takes)

    @abstractmethod
    def states(self, type_: FieldType) -> Sequence[State]:
        """The fields of partial results. type_: the type of the argument."""

    def needs_order(self, type_: FieldType) -> bool:
        """Whether the function needs all tuples of a pane and group in one place."""
        return any(each.fold is Fold.IN_ORDER for each in self.states(type_))

    @abstractmethod
    def spark_partial(self, x: Column, type_: FieldType) -> Sequence[Column]:
        """The aggregates that Spark computes from tuples."""

    def spark_merged(
        self, states: Sequence[Column], at: Column, type_: FieldType
    ) -> Sequence[Column]:
        """The aggregates that Spark computes from panes, given their states. at: the stime of a
        pane."""
        folds = [each.fold for each in self.states(type_)]
        return [getattr(F, fold)(state) for fold, state in zip(folds, states, strict=True)]

    def spark_states(self, found: Sequence[Column], _type: FieldType) -> Sequence[Column]:
        """The states, computed from Spark's aggregates."""
        return found

    def spark_result(self, found: Sequence[Column], _type: FieldType) -> Column:
        """The result, computed from Spark's aggregates."""
        return found[0]

    @abstractmethod
    def partial(self, values: Sequence[Value], type_: FieldType) -> Sequence[Value]:
        """The partial result of these values: a state for each field."""

    def merged(self, panes: Sequence[Sequence[Value]], type_: FieldType) -> Sequence[Value]:
        """The states of one partial result, from those of panes in their order."""
        known = ([v for v in column if v is not None] for column in zip(*panes, strict=True))
        return [
            FOLDS[each.fold](values) if values else None
            for each, values in zip(self.states(type_), known, strict=True)
        ]

    def of(self, states: Sequence[Value], _type: FieldType) -> Value:
        """The result, computed from the states."""
        return states[0]


def nan_last(value: Value) -> tuple[bool, Value]:
    """A sort key for values: NaN is the greatest."""
    return value != value, value  # noqa: PLR0124


FOLDS: Final[Mapping[Fold, Callable[[Sequence[Value]], Value]]] = {
    Fold.SUM: sum,
    Fold.MIN: lambda values: min(values, key=nan_last),
    Fold.MAX: lambda values: max(values, key=nan_last),
}
"""The folds in Python; each takes at least one value."""


@dataclass(frozen=True, slots=True)
class Bag:
    """Values and how often they occur, in Spark.

    Attributes:
        entries: an array of structs of `key` and `number`, in ascending order of the keys.
        total: the sum of the numbers, null if there are none. type: the type of the keys.
    """

    entries: Column
    total: Column
    type: FieldType


Entries: TypeAlias = Sequence[tuple[Value, int]]
"""Values in ascending order, and how often each occurs."""


class Kind:
    """How a function groups values under keys: each key makes a tuple of a pane and group.

    Attributes:
        state: the field beside the key: how often the key occurs (folded by SUM), or the greatest
            `mark` of the key's values (folded by MAX), e.g. the rank in a register of a sketch;
            None: there is no such field.
    """

    state: ClassVar[State | None] = State("r", FieldType.LONG)

    @property
    def counts(self) -> bool:
        """Whether its state counts the occurrences of a key."""
        return self.state is not None and self.state.fold is Fold.SUM

    by_constant: ClassVar[bool] = False
    """Whether the key of a value depends on the function's constant."""

    def key_type(self, argument: FieldType) -> FieldType:
        """The type of the field that has the key."""
        return argument

    def spark_key(self, x: Column, type_: FieldType, _constant: Constant) -> Column:
        """The key of a value; null: the function skips the value."""
        return x

    def spark_mark(self, _x: Column, _type: FieldType) -> Column:
        """The aggregate that Spark computes over the values of a key: the state."""
        return F.lit(1)

    def key(self, value: Value, _constant: Constant) -> Value:
        """The key of a value that is not null; None: the function skips the value."""
        return value

    def mark(self, _value: Value) -> int:
        return 1


class Numbers(Kind):
    """The key is the value, the state how often it occurs."""


NUMBERS_OF: Final = Numbers()


@dataclass(frozen=True, kw_only=True, eq=False)
class Counted(AggregateFunction):
    """A function whose partial result is a tuple for each key of its kind."""

    kind: Kind


class OfSet(Counted):
    """A function of the set of keys; their order does not matter."""

    @abstractmethod
    def spark_whole(self, x: Column, type_: FieldType) -> Column:
        """The aggregates that Spark computes from tuples."""

    @abstractmethod
    def spark_combined(self, fields: Sequence[Column]) -> Column:
        """The aggregates that Spark computes from the tuples of keys."""

    @abstractmethod
    def of(self, entries: Entries) -> Value:
        """The result, computed from the keys and their states."""


class OfBag(Counted):
    """A function of the keys and of how often each occurs."""

    @abstractmethod
    def spark_of(self, bag: Bag, constant: Constant, *, descending: bool) -> Column: ...

    @abstractmethod
    def of(self, entries: Entries, constant: Constant, *, descending: bool) -> Value:
        """The result, computed from at least one value."""


@dataclass(frozen=True, kw_only=True, eq=False)
class End(AggregateFunction):
    """The value of the window's first or last tuple, even if it is null.

    Attributes:
        spark: Spark's function of a value and an order.
        place: the value's index in a list of the values in order.
    """

    spark: str
    place: int
    skips_nulls: ClassVar[bool] = False
    chosen: ClassVar[bool] = True

    def spark_end(self, x: Column, order: Column) -> Column:
        """The aggregate that Spark computes: the first or last value in that order."""
        made: Column = getattr(F, self.spark)(x, order)
        return made
