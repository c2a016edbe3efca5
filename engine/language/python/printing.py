"""Queries as Python programs that make the same by `medusa.engine.language.python.building`."""

from __future__ import annotations

import keyword
import re
from typing import Final

import msgspec

from medusa.engine.language.check import ordered_boxes
from medusa.engine.language.document import Document
from medusa.engine.objects.availability import Mode
from medusa.engine.objects.query import Box, Query, streams_read, streams_written
from medusa.engine.objects.schema import BEGINNING, END
from medusa.engine.operators.registry import operator_of
from medusa.engine.operators.shared.python import call, constant, span
from medusa.overlay.names import ObjectName

_MODULE: Final = "medusa"


def query_as_python(query: Query) -> str:
    """The program; it leaves the query, without its panes, in the variable `query`.

    Raises:
        InvalidInputError: the query is invalid, or one of its names is no object name.
    """
    return f"import {_MODULE}\n\n{_Printer(query).text()}"


def document_as_python(document: Document) -> str:
    """The program of a document's definitions: `schemas`, `streams`, `queries` and `views` are
    lists; a list without members is left out.

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
            return f"{_MODULE}.{type(value).__name__}({constant(value)})"
        case str():
            return constant(value)
        case _:
            return repr(value)


class _Printer:
    """Prints one query; each stream gets a variable."""

    def __init__(self, query: Query) -> None:
        self._query = query
        self._read = streams_read(query)
        self._readers = dict(query.readers)
        self._variables: dict[str, str] = {}
        self._taken = {_MODULE, "query", "queries", "schemas", "streams", "views"}

    def text(self) -> str:
        written = streams_written(self._query)
        lines = [
            f"{self._variable(name)} = {_MODULE}.stream({constant(name)})"
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
        arguments = [constant(self._query.name), *(self._variables[each] for each in shown)]
        lines.append(f"query = {call(f'{_MODULE}.query', [*arguments, *self._options()])}")
        return "\n".join([*lines, ""])

    def _variable(self, stream: str) -> str:
        """A new variable for a stream, named after the last part of the stream's name."""
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
        made = operator_of(box).python(given)
        if len(streams) == 1:
            made = f"{made}.{self._named(box, streams[0])}"
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
        arguments = [constant(stream)]
        if box.name != box.outputs[0].rpartition("/")[2] and stream == box.outputs[0]:
            arguments.append(f"box={constant(box.name)}")
        if stream in self._readers:
            told = ", ".join(map(constant, self._readers[stream]))
            arguments.append(f"readers=[{told}]")
        return call("named", arguments)

    def _options(self) -> list[str]:
        query, asked, found = self._query, self._query.availability, []
        if asked.mode is not Mode.NONE:
            found += [
                f"ha={constant(asked.mode.value)}",
                f"recovery={constant(asked.recovery.value)}",
            ]
        if asked.bound_s:
            found.append(f"bound={span(round(asked.bound_s * 1e6))}")
        if asked.mode is Mode.PASSIVE_STANDBY:
            found.append(f"checkpoint={span(round(asked.checkpoint_s * 1e6))}")
        if asked.secondary:
            found.append(f"secondary={constant(asked.secondary)}")
        numbers = (
            ("after", query.after, BEGINNING),
            ("until", query.until, END),
            ("version", query.version, 0),
        )
        return [*found, *(f"{name}={value}" for name, value, usual in numbers if value != usual)]
