"""The windowing table functions of FROM: a stream's rows in windows, which wait for a GROUP BY."""

from __future__ import annotations

from dataclasses import replace

from sqlglot import exp

from medusa.engine.expressions.intervals import interval_us
from medusa.engine.language.sql.errors import Source
from medusa.engine.language.sql.relation import (
    TIMES_OF_WINDOWS,
    Column,
    Relation,
    RowWindow,
    Window,
    check_time,
)
from medusa.engine.language.sql.window_grammar import RowsTable, WindowTable
from medusa.engine.language.sql.within import Within
from medusa.engine.objects.query import (
    WINDOW_END,
    WINDOW_START,
    WINDOW_TIME,
    longest_session,
)
from medusa.engine.operators.tuple_windows import check_sizes


def in_windows(relation: Relation, node: WindowTable, source: Source, within: Within) -> Relation:
    """The rows of a stream in windows of time.

    Args:
        within: how long a session may last.

    Raises:
        PointedError: the time is not the time of the stream, or a length is invalid.
    """
    time = exp.column(node.args["time"].name)
    time.meta.update(node.args["time"].meta)
    check_time(relation, time, source)
    lengths = [interval_us(each, source) for each in node.args["intervals"]]
    kind = str(node.this)
    window = Window(kind, lengths[-1], lengths[0], _partition(node))
    if kind != "SESSION" and window.partition:
        reason = "PARTITION BY is for SESSION, and for windows of rows: say GROUP BY"
        raise source.refusal(reason, node)
    if kind == "SESSION":
        longest = within.take() or unsaid_longest(relation.stream, lengths[0], source)
        window = replace(window, size_us=longest)
    relation = _aliased(relation, node)
    tables = relation.columns[0].tables
    virtual = tuple(
        Column(name, tables, _of_row(name, window), offset, time=True, shown=False)
        for name, offset in (
            (WINDOW_START, 1 - window.size_us),
            (WINDOW_END, 1),
            (WINDOW_TIME, 0),
        )
    )
    own = tuple(
        replace(each, qualified=True) if each.name in TIMES_OF_WINDOWS else each
        for each in relation.columns
        if each.name not in TIMES_OF_WINDOWS or each.shown
    )
    # s.window_start is the stream's column, not the window's
    if any(each.qualified for each in own):
        shared = {each.name for each in own if each.qualified}
        virtual = tuple(
            replace(each, tables=()) if each.name in shared else each for each in virtual
        )
    return replace(relation, columns=(*own, *virtual), window=window)


def unsaid_longest(stream: str, gap_us: int, source: Source) -> int:
    """How long a session of a stream may last by default, microseconds; notes the default."""
    longest = longest_session(gap_us)
    source.unsaid.sessions(stream, longest)
    return longest


def in_row_windows(relation: Relation, node: RowsTable, source: Source) -> Relation:
    """The rows of a stream in windows of a number of rows. Raises: PointedError: a window has too
    few or too many rows, or a row is in too many windows.
    """
    numbers = node.args["rows"]
    size, advance = int(numbers[-1].name), int(numbers[0].name)
    with source.pointing(numbers[-1]):
        check_sizes(size, advance)
    window = RowWindow(size, advance, bool(node.args.get("partial")), _partition(node))
    return replace(_aliased(relation, node), window=window)


def with_window(relation: Relation, node: exp.Select, source: Source) -> Relation:
    """Rows with the window that each is in, without a GROUP BY.

    Raises:
        PointedError: a row is in no window, in several, or its window is known only after later
            rows.
    """
    window = relation.window
    assert window is not None, "of a table function"
    at = next(node.find_all(WindowTable, RowsTable), node)
    if isinstance(window, RowWindow):
        raise source.refusal(
            "windows of rows are aggregated: say which aggregates, like count(*), and GROUP BY",
            at,
        )
    if window.kind == "SESSION":
        raise source.refusal("sessions are grouped: GROUP BY window_start", at)
    if not window.is_tumbling:
        raise source.refusal("a tuple is in several of these windows: group by window_start", at)
    size = window.size_us
    spans = _spans(size)
    columns = tuple(
        replace(
            each,
            offset=None,
            shown=True,
            pane=(size, spans[each.name] - size + 1),
        )
        if each.name in spans and not each.shown
        else each
        for each in relation.columns
    )
    return Relation(relation.schema, columns)


def _of_row(name: str, window: Window) -> str:
    """The expression, over a row, for a time of its window; if the row may be in several windows,
    the name of the time."""
    size = window.size_us
    if not window.is_tumbling:
        return name
    start = f"cast(stime as long) - (cast(stime as long) % {size} + {size}) % {size}"
    return f"cast({start} + {_spans(size)[name]} as timestamp)"


def _spans(size_us: int) -> dict[str, int]:
    """Return how much later than its start the times of a window are."""
    return {WINDOW_START: 0, WINDOW_END: size_us, WINDOW_TIME: size_us - 1}


def _partition(node: exp.Expr) -> tuple[exp.Expr, ...]:
    return tuple(node.args.get("partition") or ())


def _aliased(relation: Relation, node: exp.Expr) -> Relation:
    """The relation under the alias that follows the table function."""
    alias = node.args.get("alias")
    return relation if alias is None else relation.named(alias.name)
