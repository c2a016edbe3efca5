"""The result of a FROM clause: a stream, and the names that the text has for its fields."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from sqlglot import exp

from medusa.engine.expressions.printing import name_text
from medusa.engine.language.sql.errors import Source
from medusa.engine.objects.query import WINDOW_END, WINDOW_START, WINDOW_TIME, OrderBy
from medusa.engine.objects.schema import DELETED, STIME, FieldType, Schema
from medusa.overlay.alternatives import alternatives

TIMES_OF_WINDOWS: Final = frozenset({WINDOW_START, WINDOW_END, WINDOW_TIME})
"""The columns that a window of time has besides those of its rows."""


@dataclass(frozen=True, slots=True)
class Column:
    """A name that expressions may use.

    Attributes:
        name: its name in the text. tables: the tables that may stand before it, with a dot. text:
            the expression that gives it, over a tuple of the stream.
        offset: it is the tuple's stime plus this, microseconds; None: another value.
        time: it is the schema's time field, whatever its type.
        pane: the size of the tumbling window that the tuple is in, and what this column adds to
            that window's last microsecond; microseconds.
        shown: whether `*` includes it. qualified: it is found only with a table before its name,
            because a column of the window has the bare name.
    """

    name: str
    tables: tuple[str, ...]
    text: str
    offset: int | None = None
    time: bool = False
    shown: bool = True
    pane: tuple[int, int] | None = None
    qualified: bool = False


@dataclass(frozen=True, slots=True)
class Window:
    """The windows of a table function. `size_us` of a SESSION is its longest, `advance_us` its gap;
    `advance_us` of a CUMULATE is its step."""

    kind: str
    size_us: int
    advance_us: int
    partition: tuple[exp.Expr, ...] = ()

    @property
    def is_tumbling(self) -> bool:
        """Whether each row is in one window, which follows from the row's time."""
        return self.kind != "SESSION" and self.size_us == self.advance_us


@dataclass(frozen=True, slots=True)
class RowWindow:
    """The windows of a table function that each have a number of rows. Such windows have no times.
    Attributes: size, advance: numbers of rows. partial: whether windows that begin before the first
    row are emitted as well.
    """

    size: int
    advance: int
    partial: bool
    partition: tuple[exp.Expr, ...] = ()


@dataclass(frozen=True, slots=True)
class Ranking:
    """Numbers of tuples: see `medusa.engine.language.sql.ranking`.

    Attributes:
        place: the name of the number.
        size_us: the size of the window; 1: the tuples of one stime; None: all tuples so far.
            partition: fields. position: where the number is among the shown columns.
    """

    place: str
    size_us: int | None
    partition: tuple[str, ...]
    order: tuple[OrderBy, ...]
    position: int


@dataclass(frozen=True, slots=True)
class Relation:
    """A stream as a SELECT sees it.

    Attributes:
        schema: the schema of the stream; it has the stream's name.
        window: the windows of the tuples, which wait for a GROUP BY. ranking: the numbers of the
            tuples, which wait for a WHERE that bounds them.
    """

    schema: Schema
    columns: tuple[Column, ...]
    window: Window | RowWindow | None = None
    ranking: Ranking | None = None

    @property
    def stream(self) -> str:
        return self.schema.name

    def named(self, table: str) -> Relation:
        """The relation under another name."""
        columns = tuple(replace(each, tables=(table,)) for each in self.columns)
        return replace(self, columns=columns)

    def find(self, node: exp.Column, source: Source) -> Column:
        """The column that a name in the text means: by its exact name, else without regard to case.
        Raises: PointedError: no column has the name, or several have it.
        """
        name, table = node.name, node.table
        candidates = [
            each for each in self.columns if (table in each.tables if table else not each.qualified)
        ]
        found = [each for each in candidates if each.name == name]
        found = found or [each for each in candidates if each.name.lower() == name.lower()]
        if len(found) > 1:
            tables = " and ".join(each.tables[0] for each in found[:3] if each.tables)
            raise source.refusal(f"{name} is in {tables}: say which, like {tables[:20]}", node)
        if not found:
            shown = f"{table}.{name}" if table else name
            if isinstance(self.window, RowWindow) and name.lower() in TIMES_OF_WINDOWS:
                raise source.refusal(
                    f"windows of rows have no {name}: say firstval(stime) or lastval(stime)", node
                )
            raise source.refusal(
                f"there is no field {shown[:80]}{_mend(node)}; {self._known(name, table)}", node
            )
        return found[0]

    def time_of_window(self, node: exp.Expr, source: Source) -> str | None:
        """Return which time of the waiting window the node is; None: it is no time of it."""
        if not isinstance(node, exp.Column) or not isinstance(self.window, Window):
            return None
        column = self.find(node, source)
        of_window = column.name in TIMES_OF_WINDOWS and not column.shown
        return column.name if of_window else None

    def shown(self, table: str = "") -> list[Column]:
        """The columns of `*`, or of `table.*`."""
        return [each for each in self.columns if each.shown and (not table or table in each.tables)]

    def _known(self, name: str, table: str) -> str:
        if table and not any(table in each.tables for each in self.columns):
            tables = sorted({each for column in self.columns for each in column.tables})
            return f"there is no {table[:80]} in FROM; {alternatives(table, tables)}"
        known = [each.name for each in self.columns if not table or table in each.tables]
        return alternatives(name, known)


def _mend(node: exp.Column) -> str:
    """How to mend a name that no field has, if the right one is easily guessed; else empty."""
    if node.this.args.get("quoted"):
        return "; a string stands in 'single quotes'"
    if not node.table and node.name.lower() in _CLOCKS:
        return "; a result never depends on the clock: the time of a row is stime"
    return ""


_CLOCKS: Final = frozenset(
    {"current_timestamp", "current_date", "current_time", "localtime", "localtimestamp"}
)


def of_stream(schema: Schema, table: str) -> Relation:
    """The relation of a whole stream."""
    tables = (table,)
    columns = []
    for field in schema.fields:
        is_time = field.name == schema.time
        exact = is_time and field.type is FieldType.TIMESTAMP
        columns.append(
            Column(field.name, tables, name_text(field.name), 0 if exact else None, is_time)
        )
    columns.append(Column(STIME, tables, STIME, 0, time=True, shown=False))
    return Relation(schema, tuple(columns))


def with_times(schema: Schema, table: str, offsets: dict[str, int]) -> Relation:
    """The relation of a stream; some of its fields are known to be the stime plus a constant."""
    relation = of_stream(schema, table)
    columns = tuple(
        replace(each, offset=offsets[each.name], time=True) if each.name in offsets else each
        for each in relation.columns
    )
    return replace(relation, columns=columns)


def shifted(offset_us: int) -> str:
    """Return the expression of the stime plus that many microseconds."""
    if offset_us == 0:
        return STIME
    sign = "+" if offset_us > 0 else "-"
    return f"cast(cast({STIME} as long) {sign} {abs(offset_us)} as timestamp)"


def window_columns(tables: tuple[str, ...], size_us: int) -> Sequence[Column]:
    """The columns for the times of a window, except its start. The tuple's stime is the window's
    last microsecond."""
    return (
        Column(WINDOW_END, tables, shifted(1), 1, time=True, shown=False),
        Column(WINDOW_TIME, tables, STIME, 0, time=True, shown=False),
    )


def grouped_by_session(schema: Schema, table: str) -> Relation:
    """The relation of the output of sessions."""
    relation = of_stream(schema, table)
    time = f"cast(cast({WINDOW_END} as long) - 1 as timestamp)"
    return _with_time(relation, Column(WINDOW_TIME, (table,), time, shown=False))


def grouped_by_growing_window(schema: Schema, table: str) -> Relation:
    """The relation of the output of growing windows."""
    relation = with_times(schema, table, {WINDOW_END: 1})
    return _with_time(relation, Column(WINDOW_TIME, (table,), STIME, 0, time=True, shown=False))


def _with_time(relation: Relation, time: Column) -> Relation:
    """The relation with a column for the last microsecond of its windows, unless a field has that
    name."""
    if any(each.name == time.name for each in relation.columns):
        return relation
    return replace(relation, columns=(*relation.columns, time))


def grouped_by_window(schema: Schema, table: str, size_us: int) -> Relation:
    """The relation of the output of an aggregate over windows of one size."""
    relation = with_times(schema, table, {WINDOW_START: 1 - size_us})
    own = {each.name for each in relation.columns}
    times = [each for each in window_columns((table,), size_us) if each.name not in own]
    return replace(relation, columns=(*relation.columns, *times))


HIDDEN: Final = "key_"
"""The prefix of columns that a SELECT leaves out and a key needs."""


def hidden_columns(relation: Relation, outputs: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
    """The (name, expression) pairs that a map of a table needs besides these outputs: the fields of
    its key, and whether the row is deleted."""
    texts, names = {text for _, text in outputs}, {name for name, _ in outputs}
    key = [name for name in relation.schema.key if name_text(name) not in texts]
    found = [(f"{HIDDEN}{name}", name_text(name)) for name in key]
    if relation.schema.deletes and DELETED not in names:
        found.append((DELETED, DELETED))
    return found


def check_time(relation: Relation, node: exp.Column, source: Source) -> Column:
    """The column that the node names, checked to be the time of the stream. Raises: PointedError:
    it is another column.
    """
    column = relation.find(node, source)
    if not column.time:
        times = ", ".join(each.name for each in relation.columns if each.time)
        raise source.refusal(
            f"windows are of the stream's time, which is {times}, not {column.name}", node
        )
    return column
