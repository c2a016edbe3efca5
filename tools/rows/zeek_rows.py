r"""Parses Zeek's logs of separated values into Arrow, each column as text.

Lines that begin with `#` describe the others: the separator, the text of a missing value, names and
types of the fields. A concatenation of several logs has such lines in the middle too. Characters
that would break a line are written as `\xHH`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from medusa.overlay.errors import InvalidInputError
from medusa.tools.rows.csv_rows import Choose, Dialect, Lines, check_columns, names_alone

_ESCAPED: Final = re.compile(r"\\x([0-9a-fA-F]{2})")
_SHOWN: Final = 60
"""Characters of a line in a message."""


class _Header:
    """The contents of the `#` lines."""

    def __init__(self) -> None:
        self.separator = "\t"
        self.empty = "(empty)"
        self.unset = "-"
        self.fields: list[str] = []
        self.types: list[str] = []

    def take(self, line: bytes) -> None:
        text = line.decode("utf-8", "replace").rstrip("\r\n")
        name, _, value = text.partition(" " if text.startswith("#separator") else self.separator)
        match name:
            case "#separator":
                self.separator = _separator(value)
            case "#empty_field":
                self.empty = value
            case "#unset_field":
                self.unset = value
            case "#fields":
                self.fields = value.split(self.separator)
                check_columns(len(self.fields))
            case "#types":
                self.types = value.split(self.separator)
            case _:
                pass  # origin and time of the log

    def lines(self, rows: int, choose: Choose) -> Lines:
        dialect = Dialect(self.separator, quoted=False, null=self.unset, what="#fields")
        return Lines(self.fields, dialect, list(choose(self.fields)), rows)

    def type_of(self, field: str) -> str:
        kinds = dict(zip(self.fields, self.types, strict=False))
        return kinds.get(field, "string")


def _separator(value: str) -> str:
    try:
        separator = value.encode("ascii").decode("unicode_escape")
    except UnicodeError:
        separator = ""
    if len(separator) != 1 or not ("\t" <= separator <= "~"):
        raise InvalidInputError(f"#separator {value[:_SHOWN]!r} is not one ASCII character")
    return separator


def zeek_tables(blocks: Iterator[bytes], choose: Choose) -> Iterator[pa.Table]:
    """The log's rows: columns by field, as text. Before the rows of each `#fields` line comes an
    empty table with all its names.

    Raises:
        InvalidInputError: names the row; or no line names the fields.
    """
    header, rows = _Header(), 0
    lines: Lines | None = None
    for block in blocks:
        for run, comment in _runs(block):
            if comment:
                header.take(run)
                if run.startswith(b"#fields"):
                    lines = None
                    yield names_alone(header.fields)
                continue
            if not run.strip():
                continue
            if not header.fields:
                raise InvalidInputError(
                    "no line `#fields` says what its fields are: a log is read from its beginning "
                    "(tail -n +1 -F)"
                )
            lines = lines or header.lines(rows, choose)
            table = lines.table(run)
            rows = lines.rows
            yield _plain(table, header)


def _runs(block: bytes) -> Iterator[tuple[bytes, bool]]:
    """Cut the block into runs of lines; says of each run whether it is a comment. A comment is one
    line."""
    if block[:1] != b"#" and b"\n#" not in block:
        yield block, False
        return
    start = at = 0
    while at < len(block):
        end = block.find(b"\n", at) + 1 or len(block)
        if block[at : at + 1] == b"#":
            if start < at:
                yield block[start:at], False
            yield block[at:end], True
            start = end
            at = end
        else:
            following = block.find(b"\n#", at)
            at = len(block) if following < 0 else following + 1
    if start < len(block):
        yield block[start:], False


def _plain(table: pa.Table, header: _Header) -> pa.Table:
    """The table with decoded values, where Zeek encodes them."""
    for index, name in enumerate(table.column_names):
        column = table.column(index)
        if header.type_of(name) == "bool":
            column = pc.if_else(pc.equal(column, "T"), "true", column)
            column = pc.if_else(pc.equal(column, "F"), "false", column)
        else:
            empty = pc.equal(column, header.empty)
            if pc.any(empty).as_py():
                column = pc.if_else(pc.fill_null(empty, False), "", column)
            if pc.any(pc.match_substring(column, "\\x")).as_py():
                plain = [_unescaped(text) for text in column.to_pylist()]
                column = pa.chunked_array([pa.array(plain, pa.string())])
        table = table.set_column(index, name, column)
    return table


def _unescaped(text: str | None) -> str | None:
    if text is None or "\\x" not in text:
        return text
    raw = _ESCAPED.sub(lambda match: chr(int(match[1], 16)), text)
    try:  # the bytes of one character
        return raw.encode("latin-1").decode("utf-8")
    except UnicodeError:
        return raw
