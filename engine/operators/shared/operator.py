"""One kind of box: all its properties, except its computation in Spark and in the reference.

Each kind has a subclass in its room. Mypy names the omissions of a new kind: the abstract methods,
and its place in `medusa.engine.operators.registry`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum, StrEnum
from typing import ClassVar, Final, Generic, TypeVar

import msgspec
from msgspec import Struct

from medusa.engine.expressions.typed import Expression, FieldRef, nullable
from medusa.engine.expressions.user_functions import Declared
from medusa.engine.objects.query import Box
from medusa.engine.objects.schema import Field, FieldType, Schema
from medusa.engine.operators.shared.parameters import Parameters, Written
from medusa.engine.operators.shared.step import Step
from medusa.overlay.errors import InvalidInputError

MAX_WINDOW_US: Final = 366 * 86_400 * 1_000_000
"""The longest window, a year: its input is kept for as long as the window lasts."""


class BoxClass(StrEnum):
    """Which tuples a box emits after a restart; each class contains the classes before it."""

    REPEATABLE = "repeatable"
    """A box that restarts empty at any earlier point of its input emits the same tuples."""
    CONVERGENT = "convergent"
    """Convergent-capable: a box that restarts so emits the same tuples after a while."""
    DETERMINISTIC = "deterministic"
    """From the same state and the same sequence of input tuples the box emits the same tuples."""
    ARBITRARY = "arbitrary"
    """The box's tuples depend on the order or the time in which tuples of several streams arrive,
    or on other things that a user's function reads."""


class State(Enum):
    """The data on which a result of a box depends."""

    NONE = "one tuple"
    INPUT = "the tuples of its inputs that are near it in time"
    OUTPUT = "what the box has made before, which it reads as a table"


B = TypeVar("B", bound=Box)
S_co = TypeVar("S_co", bound=Step, covariant=True)


@dataclass(frozen=True, slots=True)
class TypedBox(Generic[S_co]):
    """A box that type-checks.

    Attributes:
        schemas: the schemas, by output stream.
        steps: the steps, by output stream; a union has none.
    """

    schemas: Mapping[str, Schema]
    steps: Mapping[str, S_co]


@dataclass(frozen=True, slots=True)
class Inputs:
    """The inputs by which a box is typed.

    Attributes:
        schemas: the schemas of its input streams at least. nodes: `FieldRef.nodes` of the input
            fields that an earlier step of the task makes. functions: the functions of users that
            its expressions may call.
    """

    schemas: Mapping[str, Schema]
    nodes: Mapping[str, int] | None = None
    functions: Declared | None = None

    def of(self, stream: str) -> FieldScope:
        """The fields of an input stream, for expressions over them."""
        return FieldScope(self.schemas[stream], self.nodes, self.functions)

    def fields(self, schema: Schema) -> FieldScope:
        """The fields of a schema, none of which an earlier step of the task makes."""
        return FieldScope(schema, None, self.functions)


class FieldScope:
    """The fields that expressions of a box may use.

    The parser is imported with the first expression: clients and idle peers start without sqlglot.
    """

    def __init__(
        self,
        schema: Schema,
        nodes: Mapping[str, int] | None = None,
        functions: Declared | None = None,
    ) -> None:
        self.schema = schema
        self.fields = {field.name: field for field in schema.fields}
        self._types = {field.name: field.type for field in schema.fields}
        self._nodes = nodes
        self._functions = functions

    def expression(self, text: str) -> Expression:
        from medusa.engine.expressions.typer import parse_expression  # see above

        return parse_expression(text, self._types, self._nodes, self._functions)

    def predicate(self, text: str) -> Expression:
        from medusa.engine.expressions.typer import parse_predicate  # see above

        return parse_predicate(text, self._types, self._nodes, self._functions)

    def may_be_null(self, name: str) -> bool:
        """Whether the field is nullable; `stime` is not."""
        return name in self.fields and self.fields[name].nullable

    def named(self, name: str, expression: Expression) -> Field:
        """The output field with that name and expression over this input."""
        if isinstance(expression, FieldRef) and expression.name in self.fields:
            return msgspec.structs.replace(self.fields[expression.name], name=name)
        return Field(name, expression.type, None, nullable(expression, self.may_be_null))


class ExplainedWindow(Struct, frozen=True):
    """One aggregate.

    Attributes:
        size_s, advance_s: the size and the advance of its windows, seconds. pane_s: the width of
            the panes that they are folded from, seconds; None: they are computed from their tuples.
            why: the reason for this.
    """

    box: str
    size_s: float
    advance_s: float
    pane_s: float | None
    why: str


class Operator(ABC, Generic[B, S_co]):
    """One box, with the properties of its kind.

    Attributes:
        word: the kind, as documents and contracts name it.
        state: the data on which its results depend. box_class: its class, unless it calls a
            function of a user that is not deterministic.
        most_inputs, most_outputs: streams that it may have.
        has_step: whether it does more than merge its inputs into one order. made_of_table: whether
            its output is made from a table, which is its second output.
    """

    word: ClassVar[str]
    most_inputs: ClassVar[int] = 1
    most_outputs: ClassVar[int] = 1
    has_step: ClassVar[bool] = True
    made_of_table: ClassVar[bool] = False

    def __init__(self, box: B) -> None:
        self.box = box

    @property
    @abstractmethod
    def state(self) -> State: ...

    @property
    @abstractmethod
    def box_class(self) -> BoxClass: ...

    @abstractmethod
    def check(self) -> None:
        """Check the box's parameters, as far as the check needs no schema.

        Raises:
            InvalidInputError: names the mistake.
        """

    @abstractmethod
    def typed(self, inputs: Inputs) -> TypedBox[S_co]:
        """The box with typed expressions; its parameters are checked.

        Raises:
            InvalidInputError: it does not type-check; names the field and the reason.
        """

    @abstractmethod
    def in_words(self, stream: str, width_us: int | None) -> str:
        """How the box makes a stream, in words for people: one of its outputs, or an intermediate
        stream. Args: width_us: the width of the panes from which its output is folded,
        microseconds; None: it is not folded.
        """

    @classmethod
    @abstractmethod
    def read(
        cls, name: str, inputs: tuple[str, ...], outputs: tuple[str, ...], parameters: Parameters
    ) -> B:
        """The box of an element of XML.

        Raises:
            InvalidInputError: a parameter is missing or invalid.
        """

    @abstractmethod
    def parameters(self) -> Written:
        """The parameters of the box in XML, in the form that `read` takes."""

    @abstractmethod
    def select_sql(self, schemas: Mapping[str, Schema]) -> str:
        """The SELECT that is read as the same box: CREATE STREAM has this text behind AS. It
        imports sqlglot. Args: schemas: the schemas of the streams that it reads. Raises:
        InvalidInputError: an expression of the box is invalid.
        """

    @abstractmethod
    def python(self, streams: Sequence[str]) -> str:
        """The Python expression that makes its output stream, or streams.

        Args:
            streams: the variables of the streams that it reads.
        """

    @classmethod
    def is_meant(cls, parameters: Parameters) -> bool:
        """Whether an element of that word means this kind."""
        del parameters
        return True

    @property
    def options_sql(self) -> list[tuple[str, str]]:
        """The options of the box in the WITH of a CREATE STREAM."""
        return []

    def kept_parameters(self, given: Collection[str]) -> Written:
        """The parameters of the box that stay when a modification sets other ones."""
        del given
        return self.parameters()

    def check_modified(self, given: Collection[str]) -> None:
        """Check the box after a modification that set some of its parameters. Raises:
        InvalidInputError: the others no longer fit, so that the box would do what the author did
        not mean.
        """
        del given

    def needs_log(self, *, after_state: bool) -> bool:
        """Whether a stream that it alone reads must be a log.

        Args:
            after_state: the task that makes the stream has a box with state already.
        """
        return after_state and self.state is not State.NONE

    @property
    def tables_read(self) -> tuple[str, ...]:
        """The streams that the box reads as tables."""
        return ()

    @property
    def changes_read(self) -> tuple[str, ...]:
        """The inputs that the box reads tuple by tuple, also if they are tables."""
        return tuple(each for each in self.box.inputs if each not in self.tables_read)

    def makes_table(self, tables: Collection[str]) -> bool:
        """Whether the box's output is a table: only the newest tuple of each key counts. tables:
        the tables among the streams before the box."""
        del tables
        return False

    def unchanged(self, field: str) -> str | None:
        """The field of the box's output that has the values of this input field; None: no field has
        them."""
        del field
        return None

    @property
    def fields_made(self) -> int:
        """Return how many expressions make the fields of the box's output."""
        return 0

    @property
    def gap(self) -> str:
        """Return the length of the box's windows and their distance, if tuples fall between
        them."""
        return ""

    @property
    def panes_us(self) -> int | None:
        """The best width of panes for the box's output, microseconds; None: the output is better
        computed from tuples."""
        return None

    def check_panes(self, width_us: int) -> None:
        """Check that the box's output can be folded from panes of a width.

        Raises: InvalidInputError: the output cannot be folded so; the message has the reason.
        """
        del width_us
        raise InvalidInputError(f"panes of {self.box.name[:64]!a}, no aggregate")

    def explained(self, width_us: int | None) -> ExplainedWindow | None:
        """Whether the box's windows are folded from panes, and why. width_us: the panes' width."""
        del width_us
        return None


@contextmanager
def about(what: str) -> Iterator[None]:
    """Put `what` before the text of an InvalidInputError of the block."""
    try:
        yield
    except InvalidInputError as error:
        raise InvalidInputError(f"{what}: {error}") from None


def refuse_repeated(what: str, names: Sequence[str]) -> None:
    for name, times in Counter(names).items():
        if times > 1:
            raise InvalidInputError(f"{what} {name[:80]!a} occurs {times} times")


def listed(fields: Sequence[tuple[str, FieldType]]) -> str:
    """Fields with their types, for people."""
    text = ", ".join(f"{name} {type_}" for name, type_ in fields)
    return text if len(text) <= 200 else text[:197] + "..."


def renamed(schema: Schema, name: str) -> Schema:
    return Schema(name, schema.fields, schema.time, schema.key)


def seconds(microseconds: int) -> str:
    """A length of time in an explanation."""
    return f"{microseconds / 1e6:g} s"
