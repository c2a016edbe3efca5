"""Queries as Python programs that make the same by `medusa.engine.language.python.building`."""

from __future__ import annotations

import keyword
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import msgspec

from medusa.engine.language.aggregates import call_of
from medusa.engine.language.box_texts import measure_text, order_text
from medusa.engine.language.check import ordered_boxes
from medusa.engine.language.document import Document
from medusa.engine.language.spans import span_text
from medusa.engine.objects.availability import Mode
from medusa.engine.objects.query import (
    Aggregate,
    Box,
    Contiguity,
    Cumulate,
    Filter,
    Join,
    JoinKind,
    Map,
    Match,
    PatternStep,
    Query,
    Rank,
    Sessions,
    Top,
    Totals,
    TupleWindows,
    Union,
    longest_session,
    streams_read,
    streams_written,
)
from medusa.engine.objects.schema import BEGINNING, END
from medusa.engine.operators.join.sides import AS_OF
from medusa.engine.operators.match.pattern import pattern_text
from medusa.overlay.names import ObjectName

LINE: Final = 100
"""Characters of a line, if the arguments of a call can be on several."""

_MODULE: Final = "medusa"

_ANY_CONDITION: Final = PatternStep("").condition


def query_as_python(query: Query) -> str:
    """The program; it leaves the query, without its panes, in the variable `query`.

    Raises:
        InvalidInputError: it is no query, or one of its names is no object name.
    """
    return f"import {_MODULE}\n\n{_Printer(query).text()}"


def document_as_python(document: Document) -> str:
    """The program of a document's definitions: `schemas`, `streams`, `queries` and `views` are the
    lists of them, each there if there are some.

    Raises:
        InvalidInputError: see `query_as_python`.
    """
    parts = [f"import {_MODULE}\n"]
    for name, values in (
        ("schemas", document.schemas),
        ("streams", document.streams),
        ("views", document.views),
    ):
        if values:
            told = "".join(f"    {_value(each)},\n" for each in values)
            parts.append(f"{name} = [\n{told}]\n")
    if document.queries:
        parts.append("queries = []\n")
    parts += [f"{_Printer(each).text()}queries.append(query)\n" for each in document.queries]
    return "\n".join(parts)


def _value(value: object) -> str:
    """Write a definition as the call that makes it, without defaults."""
    match value:
        case msgspec.Struct():
            kind = type(value)
            told = [
                f"{each.name}={_value(getattr(value, each.name))}"
                for each in msgspec.structs.fields(kind)
                if each.required or getattr(value, each.name) != each.default
            ]
            return f"{_MODULE}.{kind.__name__}({', '.join(told)})"
        case tuple():
            inside = "".join(f"{_value(each)}, " for each in value)
            return f"({inside.rstrip() if len(value) == 1 else inside.removesuffix(', ')})"
        case str() if type(value) is not str:
            return f"{_MODULE}.{type(value).__name__}({_text(value)})"
        case str():
            return _text(value)
        case _:
            return repr(value)


class _Printer:
    """Prints one query; each stream has a variable."""

    def __init__(self, query: Query) -> None:
        self._query = query
        self._read = streams_read(query)
        self._readers = dict(query.readers)
        self._variables: dict[str, str] = {}
        self._taken = {_MODULE, "query", "queries", "schemas", "streams", "views"}

    def text(self) -> str:
        written = streams_written(self._query)
        lines = [
            f"{self._variable(name)} = {_MODULE}.stream({_text(name)})"
            for name in sorted(self._read - written)
        ]
        for box in ordered_boxes(self._query):
            lines += self._box(box)
        shown = [
            *self._query.outputs,
            *(
                stream
                for box in ordered_boxes(self._query)
                for stream in box.outputs
                if stream not in self._read and stream not in self._query.outputs
            ),
        ]
        arguments = [_text(self._query.name), *(self._variables[each] for each in shown)]
        lines.append(f"query = {_call(f'{_MODULE}.query', [*arguments, *self._options()])}")
        return "\n".join([*lines, ""])

    def _variable(self, stream: str) -> str:
        """A new variable for a stream, called like the last part of its name."""
        last = ObjectName.parse(stream).path.rpartition("/")[2]
        base = re.sub(r"\W+", "_", last, flags=re.ASCII).strip("_").lower() or "stream"
        base = f"stream_{base}" if base[0].isdigit() or keyword.iskeyword(base) else base
        name, number = base, 2
        while name in self._taken:
            name, number = f"{base}_{number}", number + 1
        self._taken.add(name)
        self._variables[stream] = name
        return name

    def _box(self, box: Box) -> list[str]:
        given = [self._variables[each] for each in box.inputs]
        streams = box.outputs
        made = _made(box, given)
        if len(streams) == 1:
            made = f"{made}{'[0]' if _splits(box) else ''}.{self._named(box, streams[0])}"
            return [f"{self._variable(streams[0])} = {made}"]
        names = [self._variable(each) for each in streams]
        return [
            f"{', '.join(names)} = {made}",
            *(
                f"{name} = {name}.{self._named(box, stream)}"
                for name, stream in zip(names, streams, strict=True)
            ),
        ]

    def _named(self, box: Box, stream: str) -> str:
        arguments = [_text(stream)]
        if box.name != box.outputs[0].rpartition("/")[2] and stream == box.outputs[0]:
            arguments.append(f"box={_text(box.name)}")
        if stream in self._readers:
            told = ", ".join(map(_text, self._readers[stream]))
            arguments.append(f"readers=[{told}]")
        return _call("named", arguments)

    def _options(self) -> list[str]:
        query, asked, found = self._query, self._query.availability, []
        if asked.mode is not Mode.NONE:
            found += [f"ha={_text(asked.mode.value)}", f"recovery={_text(asked.recovery.value)}"]
        if asked.bound_s:
            found.append(f"bound={_seconds(asked.bound_s)}")
        if asked.mode is Mode.PASSIVE_STANDBY:
            found.append(f"checkpoint={_seconds(asked.checkpoint_s)}")
        if asked.secondary:
            found.append(f"secondary={_text(asked.secondary)}")
        numbers = (
            ("after", query.after, BEGINNING),
            ("until", query.until, END),
            ("version", query.version, 0),
        )
        return [*found, *(f"{name}={value}" for name, value, usual in numbers if value != usual)]


def _splits(box: Box) -> bool:
    """Whether a box has the form of `split`."""
    return isinstance(box, Filter) and (len(box.predicates) != 1 or box.pass_on_false)


def _made(box: Box, given: Sequence[str]) -> str:
    """The expression of a box over the variables that it reads."""
    first = given[0]
    match box:
        case Filter():
            word = "split" if _splits(box) else "filter"
            rest = ["rest=True"] if box.pass_on_false else []
            return _call(f"{first}.{word}", [*map(_text, box.predicates), *rest])
        case Map():
            return _call(f"{first}.map", _named_arguments(dict(box.expressions)))
        case Union():
            return _call(f"{first}.union", given[1:])
        case Aggregate() | Sessions() | Cumulate() | TupleWindows() | Totals():
            return _aggregated(box, first)
        case Rank() | Top():
            return _first(box, first)
        case Match():
            return _matched(box, first)
        case Join():
            return _joined(box, first, given[-1])


def _aggregated(box: Aggregate | Sessions | Cumulate | TupleWindows | Totals, stream: str) -> str:
    functions = _named_arguments({each.output: call_of(each) for each in box.functions})
    fields = [*map(_text, box.group_by)]
    if isinstance(box, Totals):
        table = ["table=True"] if box.changes else []
        groups = _call(f"{stream}.group_by", [*fields, *table])
        return _call(f"{groups}.totals", functions)
    windows = _grouped(_windows(box, stream), fields)
    if isinstance(box, TupleWindows) and box.number:
        windows = _call(f"{windows}.numbered", [_text(box.number)])
    return _call(f"{windows}.aggregate", functions)


def _windows(box: Aggregate | Sessions | Cumulate | TupleWindows, stream: str) -> str:
    match box:
        case TupleWindows():
            sizes = [str(box.size), *([str(box.advance)] if box.size != box.advance else [])]
            partial = ["partial=True"] if box.partial else []
            return _call(f"{stream}.tuple_windows", [*sizes, *partial])
        case Aggregate(size_us=size, advance_us=advance):
            word, spans = "window", (size,) if size == advance else (size, advance)
        case Sessions(gap_us=gap, longest_us=longest):
            word, spans = "sessions", (gap,) if longest == longest_session(gap) else (gap, longest)
        case Cumulate(step_us=step, size_us=size):
            word, spans = "cumulate", (step, size)
    return _call(f"{stream}.{word}", [_text(span_text(each)) for each in spans])


def _grouped(windows: str, fields: Sequence[str]) -> str:
    return _call(f"{windows}.group_by", fields) if fields else windows


def _first(box: Rank | Top, stream: str) -> str:
    windows = stream
    if isinstance(box, Rank):
        length = _text(span_text(box.size_us))
        windows += ".instants()" if box.size_us == 1 else f".window({length})"
    groups = _grouped(windows, [*map(_text, box.partition_by)])
    order = [_text(order_text(each)) for each in box.order_by]
    arguments = [str(box.most), *([f"order=[{', '.join(order)}]"] if order else [])]
    arguments += [f"place={_text(box.place)}"] if box.place else []
    return _call(f"{groups}.first", arguments)


def _matched(box: Match, stream: str) -> str:
    where = {
        each.variable: each.condition for each in box.steps if each.condition != _ANY_CONDITION
    }
    measures = {each.output: measure_text(each) for each in box.measures}
    arguments = [_text(pattern_text(box.steps)), f"within={_text(span_text(box.within_us))}"]
    if box.partition_by:
        arguments.append(f"partition_by=[{', '.join(map(_text, box.partition_by))}]")
    arguments += [
        f"{name}={_dictionary(texts)}"
        for name, texts in (("where", where), ("measures", measures))
        if texts
    ]
    if box.contiguity is not Contiguity.STRICT:
        arguments.append(f"contiguity={_text(box.contiguity.value)}")
    return _call(f"{stream}.match", arguments)


def _joined(box: Join, left: str, right: str) -> str:
    select = f"select={_dictionary(dict(box.expressions))}"
    on = [] if box.predicate == "true" else [f"on={_text(box.predicate)}"]
    if box.table:
        kind = [] if box.kind is JoinKind.INNER else [f"kind={_text(box.kind.value)}"]
        on = [f"on={_text(box.predicate)}"]
        return _call(f"{left}.table_join", [right, *on, *kind, select])
    if box.kind in AS_OF and 0 in {box.before_us, box.after_us}:
        within, call = _text(span_text(max(box.before_us, box.after_us))), "asof_join"
        kind = [] if box.kind is JoinKind.ASOF else [f"kind={_text(box.kind.value)}"]
        kind += ['direction="forward"'] if box.after_us > 0 else []
    else:
        least, most = (_text(span_text(each)) for each in (-box.before_us, box.after_us))
        within, call = f"({least}, {most})", "join"
        kind = [] if box.kind is JoinKind.INNER else [f"kind={_text(box.kind.value)}"]
    return _call(f"{left}.{call}", [right, *on, f"within={within}", *kind, select])


def _dictionary(texts: Mapping[str, str]) -> str:
    inside = ", ".join(f"{_text(name)}: {_text(text)}" for name, text in texts.items())
    return f"{{{inside}}}"


def _named_arguments(texts: Mapping[str, str]) -> list[str]:
    """`name='text'`, and what cannot be the name of an argument in a dictionary."""
    return [
        f"**{{{_text(name)}: {_text(text)}}}"
        if keyword.iskeyword(name)
        else f"{name}={_text(text)}"
        for name, text in texts.items()
    ]


def _text(text: str) -> str:
    """A constant, with the quotes that formatters of Python prefer."""
    told = repr(str(text))
    return f'"{told[1:-1]}"' if told[0] == "'" and '"' not in told else told


def _seconds(seconds: float) -> str:
    return _text(span_text(round(seconds * 1e6)))


def _call(function: str, arguments: Iterable[str]) -> str:
    """A call; on several lines if it would be a long one."""
    told = list(arguments)
    line = f"{function}({', '.join(told)})"
    if len(line.rpartition("\n")[2]) <= LINE - 20 or len(told) < 2:
        return line
    inside = "".join(f"    {each},\n" for each in told)
    return f"{function}(\n{inside})"
