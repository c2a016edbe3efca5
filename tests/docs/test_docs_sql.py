"""Every example of docs/reference in SQL compiles, is the query of the XML beside it, and is
refused if the pages say so."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

import pytest

from medusa.engine.language.document import Document
from medusa.engine.language.folding import with_panes
from medusa.engine.language.same_query import is_same
from medusa.engine.objects.definitions import StreamDefinition, StreamEntry
from medusa.engine.objects.query import streams_read, streams_written
from medusa.engine.objects.schema import Schema
from medusa.engine.operators.join.spark import MAX_PAIRS
from medusa.engine.reading import read_document, read_draft
from medusa.engine.tasks.network import Network
from medusa.overlay.errors import InvalidInputError
from medusa.tools.commands.in_text import InTextError, in_file

REPOSITORY: Final = Path(__file__).parents[2]
NAMES: Final = ("queries", "streams", "windows", "joins", "functions", "history", "availability")
"""The streams' names in the order in which a reader takes them: an example may read the streams of
earlier examples."""

PAGE: Final = "\n".join((REPOSITORY / f"docs/reference/{name}.md").read_text() for name in NAMES)
BASE: Final = "medusa://mit.edu"
BLOCK: Final = re.compile(
    r"^```sql( refused)?\n(.*?)^```$(?:\n\n^```xml\n(<medusa>.*?)^```$)?", re.MULTILINE | re.DOTALL
)
BLOCKS: Final = BLOCK.findall(PAGE)
EXAMPLES: Final = [text for refused, text, _ in BLOCKS if not refused]
REFUSED: Final = [text for refused, text, _ in BLOCKS if refused]
TABLE: Final = PAGE.partition("| refused | write |\n|---|---|\n")[2].partition("\n\n")[0]
ROWS: Final = [re.match(r"\| (`+) ?(.*?) ?\1 \|", row) for row in TABLE.splitlines()]


class Reader:
    """Reads the blocks of the pages in order: each block may read the streams of the earlier
    blocks."""

    def __init__(self) -> None:
        self.streams: dict[str, Schema] = {}
        self.schemas: dict[str, Schema] = {}
        self.tables: set[str] = set()

    def read(self, text: str) -> Document:
        draft = read_draft(text, f"{BASE}/")
        known = {name: self.streams[name] for name in draft.reads}
        document = draft.complete(known, self.schemas, self.tables & draft.reads)
        self.schemas |= {each.name: each for each in document.schemas}
        for stream in document.streams:
            self.streams[stream.name] = self.schemas[stream.schema]
            if stream.table:
                self.tables.add(stream.name)
        for query in document.queries:
            inputs = {
                name: StreamEntry(StreamDefinition(name, name), self.streams[name])
                for name in streams_read(query) - streams_written(query)
            }
            self.streams |= Network(with_panes(query, 256), inputs).schemas()
        return document


def test_every_example_compiles_after_the_earlier_examples() -> None:
    reader = Reader()
    for text in EXAMPLES:
        document = reader.read(text)
        assert document.queries or document.streams
    assert len(EXAMPLES) >= 20


def test_an_example_in_xml_is_the_one_in_sql_before_it() -> None:
    reader = Reader()
    compared = 0
    for refused, text, xml in BLOCKS:
        if refused:
            continue
        document = reader.read(text)
        if xml:
            other = read_document(xml, BASE)
            assert other.streams == document.streams
            for one, twin in zip(document.queries, other.queries, strict=True):
                read = streams_read(one) - streams_written(one)
                assert is_same(one, twin, {name: reader.streams[name] for name in read}), xml
                compared += 1
    assert compared >= 8


@pytest.fixture(scope="module")
def reader() -> Reader:
    made = Reader()
    for text in EXAMPLES:
        made.read(text)
    return made


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[2][:40] if row else "no row")
def test_documented_refusals_hold(row: re.Match[str] | None, reader: Reader) -> None:
    assert row is not None
    with pytest.raises(InvalidInputError, match=r"at line 1, column \d+$"):
        reader.read(row[2])


def test_the_error_is_as_printed(reader: Reader) -> None:
    (text,) = REFUSED
    with pytest.raises(InvalidInputError) as raised:
        reader.read(text)
    shown = in_file(raised.value, "q.sql", text)
    assert isinstance(shown, InTextError)
    assert "\n".join([f"medusa: {shown}", *shown.excerpt]) in PAGE


def test_the_number_of_pairs() -> None:
    assert f"{MAX_PAIRS:,} pairs" in PAGE


def test_the_first_example_is_busy_sql() -> None:
    assert EXAMPLES[0] == (REPOSITORY / "examples/busy.sql").read_text()
