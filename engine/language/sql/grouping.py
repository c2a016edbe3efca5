"""GROUP BY, HAVING and the aggregate functions of a SELECT: one aggregate box, and the boxes that
prepare its input."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from sqlglot import exp

from medusa.engine.aggregates.counts import COUNT
from medusa.engine.aggregates.function import AggregateFunction
from medusa.engine.expressions.intervals import interval_us
from medusa.engine.expressions.printing import Substitute, expression_text, name_text
from medusa.engine.language.sql.aggregate_calls import (
    Argument,
    Values,
    argument_of,
    function_of,
    substitute_of,
    time_of_window,
)
from medusa.engine.language.sql.dialect import Medusa
from medusa.engine.language.sql.errors import Source
from medusa.engine.language.sql.network import Boxes
from medusa.engine.language.sql.relation import (
    TIMES_OF_WINDOWS,
    Column,
    Relation,
    RowWindow,
    Window,
    check_time,
    grouped_by_growing_window,
    grouped_by_session,
    grouped_by_window,
    hidden_columns,
    of_stream,
    shifted,
)
from medusa.engine.language.sql.windowing import unsaid_longest
from medusa.engine.language.sql.within import Within
from medusa.engine.objects.query import (
    WINDOW_END,
    WINDOW_START,
    WINDOW_TIME,
    Aggregate,
    AggregateCall,
    Cumulate,
    Map,
    Sessions,
    Totals,
    TupleWindows,
)
from medusa.engine.objects.schema import DELETED, STIME

_WINDOW_OF_SPARK: Final = "window"

_GROUP_WINDOWS: Final = {"TUMBLE": 1, "HOP": 2, "SESSION": 1}
"""The functions of GROUP BY that are windows, as in `GROUP BY SESSION(ts, INTERVAL ...)`, and how
many intervals each takes."""

Called = tuple[AggregateFunction, exp.Expr | None, str]
"""A function, its call (None: no call asks for it, but a window needs one function), and its
output's name."""

Arguments = dict[exp.Expr | None, Argument]
"""The arguments of calls, by call."""

INSTANT: Final = Window("TUMBLE", 1, 1)
"""A window of the tuples of one stime. All results of another window have one stime: its end."""


@dataclass(slots=True)
class Grouped:
    """A SELECT's tuples after its GROUP BY.

    Attributes:
        relation: the groups; its columns are the grouped ones. before: the tuples before the
            grouping. values: the texts that replace nodes of the SELECT. natural: the fields of the
            aggregate's output, in order.
    """

    relation: Relation
    before: Relation
    values: Values = field(default_factory=Values)
    natural: tuple[str, ...] = ()

    def substitute(self, source: Source) -> Substitute:
        """Substitute in expressions over the grouped tuples: see `Substitute`."""

        def found(node: exp.Expr) -> str | None:
            value = self.values.of(node)
            if value is not None:
                return value
            if isinstance(node, exp.Column):
                matches = [each for each in self.relation.columns if each.name == node.name]
                if not matches:
                    self.before.find(node, source)
                    raise source.refusal(
                        f"{node.sql(dialect=Medusa)[:80]} is neither grouped nor aggregated: add "
                        f"it to GROUP BY, or say firstval({node.name[:40]})",
                        node,
                    )
                return self.relation.find(node, source).text
            return None

        return found


_LAST_NUMBER: Final = exp.Anonymous(this="ROW_NUMBER", expressions=[])


class Grouping:
    """Plans one GROUP BY.

    Args:
        relation: the tuples that FROM and WHERE leave.
        names: the output names of the calls that are SELECT items, in order, by call.
        within: how long a session may last.
    """

    def __init__(
        self,
        boxes: Boxes,
        source: Source,
        relation: Relation,
        names: dict[exp.Expr, list[str]],
        within: Within,
    ) -> None:
        self._boxes = boxes
        self._source = source
        self._relation = relation
        self._names = names
        self._within = within
        self._function_window: exp.Expr | None = None
        self._window: Window | RowWindow | None = relation.window
        self._is_sparks = False
        self._times: list[tuple[exp.Expr, Column]] = []
        self._groups: list[tuple[exp.Expr, str, str]] = []  # (node, name, text)
        self._number = ""

    def plan(
        self,
        select: exp.Expr,
        groups: Sequence[exp.Expr],
        calls: Sequence[exp.Expr],
        numbers: Sequence[exp.Expr] = (),
    ) -> Grouped:
        """The aggregate of these groups and calls. numbers: the nodes that `last_numbers` has
        found."""
        for node in groups:
            self._group(node)
        for node in numbers:
            self._note_number(node)
        window = self._window or (INSTANT if self._times else None)
        if window is None:
            self._check_groups(select)
        elif self._is_table:
            raise self._source.refusal(
                "the rows of a table change, and are in no window: GROUP BY without one", select
            )
        else:
            self._check_partition(window, select)
        functions = self._functions(calls)
        stream, arguments = self._prepared(select, functions)
        called = tuple(arguments[key].of(function, name) for function, key, name in functions)
        if window is None:
            names = tuple(name for _, name, _ in self._groups)
            totals = Totals("totals", stream, "", names, called, self._is_table)
            schema = self._boxes.add(totals, select)
            return self._grouped(schema.name, window, calls, functions)
        box = self._box(stream, window, called)
        schema = self._boxes.add(box, select)
        return self._grouped(schema.name, window, calls, functions)

    def _box(
        self, stream: str, window: Window | RowWindow, functions: tuple[AggregateCall, ...]
    ) -> Aggregate | Sessions | Cumulate | TupleWindows:
        names = tuple(name for _, name, _ in self._groups)
        if isinstance(window, RowWindow):
            sizes = (window.size, window.advance)
            parts = (*sizes, names, functions, window.partial, self._number)
            return TupleWindows("group", stream, "", *parts)
        size, advance = window.size_us, window.advance_us
        match window.kind:
            case "SESSION":
                return Sessions("group", stream, "", advance, size, names, functions)
            case "CUMULATE":
                return Cumulate("group", stream, "", advance, size, names, functions)
            case _:
                return Aggregate("group", stream, "", size, advance, names, functions)

    def _group(self, node: exp.Expr) -> None:
        if isinstance(node, exp.Anonymous) and node.name.lower() == _WINDOW_OF_SPARK:
            self._take(self._sparks(node), node)
            self._is_sparks = True
            return
        if isinstance(node, exp.Anonymous) and node.name.upper() in _GROUP_WINDOWS:
            self._take(self._window_of(node), node)
            self._function_window = node
            return
        if isinstance(node, exp.Column):
            column = self._relation.find(node, self._source)
            of_rows = isinstance(self._relation.window, RowWindow)
            if of_rows or (self._relation.window is not None and column.shown):
                # a time of the row, not of the window
                self._groups.append((node, column.name, column.text))
                return
            if column.pane is not None:
                size, offset = column.pane
                self._take(Window("TUMBLE", size, size), node)
                column = replace(column, offset=offset)
            of_table = self._relation.window is not None
            if column.offset is not None and (not of_table or column.name in TIMES_OF_WINDOWS):
                self._times.append((node, column))
                return
            self._groups.append((node, column.name, column.text))
            return
        if isinstance(node, exp.Paren) and isinstance(node.this, exp.Column):
            column = self._relation.find(node.this, self._source)
            # a name in parentheses means a field, even if the name is that of a time
            self._groups.append((node.this, column.name, column.text))
            return
        if isinstance(node, exp.Literal):
            raise self._source.refusal("GROUP BY takes expressions, not numbers of columns", node)
        text = expression_text(node, self._source, substitute_of(self._relation, self._source))
        self._groups.append((node, f"group_{len(self._groups)}", text))

    def _note_number(self, node: exp.Expr) -> None:
        if not isinstance(self._relation.window, RowWindow) or node.expressions:
            raise self._source.refusal(
                "ROW_NUMBER() is the number of the last row of a window of rows, like TUMBLE(TABLE "
                "s, 10 ROWS); say ROW_NUMBER() OVER (...) for others",
                node,
            )
        taken = {name.lower() for names in self._names.values() for name in names}
        taken |= {each.name.lower() for each in self._relation.columns}
        free = "row_number"
        while free in taken:
            free += "_"
        self._number = self._number or next(iter(self._names.get(node, [])), free)

    def _take(self, window: Window, node: exp.Expr) -> None:
        if self._window is not None and self._window != window:
            raise self._source.refusal("the windows are declared twice", node)
        self._window = window

    def _sparks(self, node: exp.Anonymous) -> Window:
        """The window of Spark's `window(ts, '1 minute' [, '10 seconds'])`."""
        time, *spans = node.expressions or [None]
        if not isinstance(time, exp.Column) or not 1 <= len(spans) <= 2:
            raise self._source.refusal("window takes (time field, '1 minute', '10 seconds')", node)
        check_time(self._relation, time, self._source)
        lengths = [interval_us(_interval(each), self._source) for each in spans]
        return Window("HOP", lengths[0], lengths[-1])

    def _window_of(self, node: exp.Anonymous) -> Window:
        """The window of `TUMBLE(ts, size)`, `HOP(ts, advance, size)` or `SESSION(ts, gap)`."""
        kind = node.name.upper()
        time, *spans = node.expressions or [None]
        if not isinstance(time, exp.Column) or len(spans) != _GROUP_WINDOWS[kind]:
            many = "two intervals" if kind == "HOP" else "an interval"
            raise self._source.refusal(f"{kind} takes the time field and {many}", node)
        check_time(self._relation, time, self._source)
        lengths = [interval_us(each, self._source) for each in spans]
        if kind == "SESSION":
            gap = lengths[0]
            longest = self._within.take() or unsaid_longest(
                self._relation.stream, gap, self._source
            )
            return Window(kind, longest, gap)
        return Window(kind, lengths[-1], lengths[0])

    def _check_partition(self, window: Window | RowWindow, select: exp.Expr) -> None:
        """Check that sessions, and windows of rows, are grouped by the fields of their PARTITION
        BY."""
        of_rows = isinstance(window, RowWindow)
        if isinstance(window, RowWindow):
            checked = bool(window.partition)
        else:
            checked = window.kind == "SESSION" and self._function_window is None
        if not checked:
            return
        substitute = substitute_of(self._relation, self._source)
        asked = {expression_text(each, self._source, substitute) for each in window.partition}
        if asked != {text for _, _, text in self._groups}:
            listed = ", ".join(sorted(asked))[:200] or "none; it stands behind TABLE name"
            what = "rows by" if of_rows else "sessions by window_start, window_end and"
            raise self._source.refusal(
                f"group {what} the fields of their PARTITION BY: {listed}",
                self._groups[0][0] if self._groups else select,
            )

    @property
    def _is_table(self) -> bool:
        return self._relation.stream in self._boxes.tables

    def _check_groups(self, select: exp.Expr) -> None:
        """Refuse totals of everything: they would be one row, with no key."""
        if not self._groups:
            raise self._source.refusal(
                "an endless stream has no last row to aggregate up to: group by a window, like "
                "FROM TUMBLE(TABLE s, DESCRIPTOR(ts), INTERVAL '1' MINUTE) GROUP BY window_start; "
                "or by a column, for a table of the totals so far",
                select,
            )

    def _functions(self, calls: Sequence[exp.Expr]) -> list[Called]:
        """The calls to compute: each one as often as the SELECT names it."""
        found: list[Called] = []
        times: Counter[exp.Expr] = Counter()
        for node in calls:
            if time_of_window(node, self._relation, self._source) is not None:
                continue  # the window's result has this time
            names = self._names.get(node) or [f"agg_{len(found)}"]
            if times[node] < len(names):
                self._source.makes(node, names[times[node]])
                found.append((function_of(node, self._source), node, names[times[node]]))
            times[node] += 1
        return found or [(COUNT, None, "agg_0")]

    def _prepared(self, select: exp.Expr, functions: Sequence[Called]) -> tuple[str, Arguments]:
        """The aggregate's input stream, and the arguments by call."""
        arguments: Arguments = {None: Argument(None)}
        for function, node, _ in functions:
            if node is not None:
                arguments[node] = argument_of(node, function, self._relation, self._source)
        plain = all(text == name_text(name) for _, name, text in self._groups)
        if plain and not any(self._boxes.calls(node) for _, node, _ in functions if node):
            return self._relation.stream, arguments
        return self._mapped(select, arguments)

    def _mapped(self, select: exp.Expr, arguments: Arguments) -> tuple[str, Arguments]:
        """A map that computes the groups and the arguments."""
        outputs = [(name, text) for _, name, text in self._groups]
        fields: Arguments = {}
        for node, argument in arguments.items():
            fields[node] = argument
            if argument.text is not None:
                name = f"argument_{len(fields)}"
                outputs.append((name, argument.text))
                fields[node] = replace(argument, text=name)
        if self._is_table:
            outputs += hidden_columns(self._relation, outputs)
        schema = self._boxes.add(Map("prepare", self._relation.stream, "", tuple(outputs)), select)
        return schema.name, fields

    def _made(self, stream: str, window: Window | RowWindow | None) -> Relation:
        """Return the results of a window as a relation. window: None: of totals."""
        schema = self._boxes.schemas[stream]
        if window is None:
            return _without_deletions(of_stream(schema, ""), self._is_table)
        if window is INSTANT:
            relation = of_stream(schema, "")
            columns = tuple(each for each in relation.columns if each.name != WINDOW_START)
            times = tuple(
                replace(column, text=shifted(column.offset or 0), shown=True)
                for _, column in self._times
                if column.name != STIME
            )
            return replace(relation, columns=(*columns, *times))
        if isinstance(window, RowWindow):
            return of_stream(schema, "")
        if window.kind == "SESSION":
            return grouped_by_session(schema, "")
        if window.kind == "CUMULATE":
            return grouped_by_growing_window(schema, "")
        return grouped_by_window(schema, "", window.size_us)

    def _grouped(
        self,
        stream: str,
        window: Window | RowWindow | None,
        calls: Sequence[exp.Expr],
        functions: Sequence[Called],
    ) -> Grouped:
        relation = self._made(stream, window)
        found = Grouped(relation, self._relation)
        made = {each.name: each.text for each in relation.columns if each.name in TIMES_OF_WINDOWS}
        for node, column in self._times:
            found.values[node] = shifted(column.offset or 0)
            if window is not INSTANT and column.name in made:
                found.values[node] = made[column.name]
        if isinstance(self._function_window, exp.Anonymous):
            for call, text in _auxiliary(self._function_window, made).items():
                found.values[call] = text
        if self._is_sparks:
            found.values[exp.column("start", table=_WINDOW_OF_SPARK)] = WINDOW_START
            found.values[exp.column("end", table=_WINDOW_OF_SPARK)] = shifted(1)
        for node, name, _ in self._groups:
            found.values[node] = name_text(name)
        if self._number:
            found.values[_LAST_NUMBER] = name_text(self._number)
        names = {node: name for _, node, name in functions}
        for node in calls:
            time = time_of_window(node, self._relation, self._source)
            found.values[node] = name_text(names[node]) if time is None else made[time]
        fields = self._boxes.schemas[stream].fields
        said = window is not None or not self._is_table
        found.natural = tuple(each.name for each in fields if said or each.name != DELETED)
        return found


def _without_deletions(relation: Relation, is_table: bool) -> Relation:
    """The totals of a table, without the column that says whether a row is deleted, which no SELECT
    asks for."""
    columns = tuple(
        replace(each, shown=each.shown and not (is_table and each.name == DELETED))
        for each in relation.columns
    )
    return replace(relation, columns=columns)


def _auxiliary(node: exp.Anonymous, times: dict[str, str]) -> dict[exp.Expr, str]:
    """Return the text that replaces `SESSION_START(...)` and similar calls. times: the SQL of the
    window's times, by their names."""
    named = {"START": WINDOW_START, "END": WINDOW_END, "ROWTIME": WINDOW_TIME}
    found: dict[exp.Expr, str] = {}
    for word, column in named.items():
        arguments = [each.copy() for each in node.expressions]
        call = exp.Anonymous(this=f"{node.name}_{word}", expressions=arguments)
        found[call] = times[column]
    return found


def _interval(node: exp.Expr) -> exp.Expr:
    """The interval in a string like '1 minute'."""
    if isinstance(node, exp.Literal) and node.args.get("is_string"):
        number, _, unit = node.name.strip().partition(" ")
        made = exp.Interval(this=exp.Literal.string(number), unit=exp.var(unit.strip().upper()))
        made.meta.update(node.meta)
        return made
    return node


def refuse_groupings(clause: exp.Group, source: Source) -> None:
    """Refuse GROUPING SETS, ROLLUP and CUBE, among the groups or behind them. Raises: PointedError:
    the clause has one.
    """
    several = [each for each in clause.expressions if type(each) in _GROUPINGS]
    several += [each for name in ("rollup", "cube") for each in clause.args.get(name) or ()]
    said = [(_GROUPINGS[type(each)], each) for each in several]
    if clause.args.get("totals"):
        said.append(("WITH TOTALS", clause))
    for name, at in said:
        raise source.refusal(
            f"`{name}` is not part of the language: make a query for each grouping", at
        )


_GROUPINGS: Final = {
    exp.Rollup: "ROLLUP",
    exp.Cube: "CUBE",
    exp.GroupingSets: "GROUPING SETS",
}
