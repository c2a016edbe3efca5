"""Every example of docs/sql.md compiles, and what the page says is refused is refused."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from medusa.engine.language.document import Document
from medusa.engine.language.panes import with_panes
from medusa.engine.objects.definitions import StreamDefinition, StreamEntry
from medusa.engine.objects.query import streams_read, streams_written
from medusa.engine.objects.schema import Schema
from medusa.engine.reading import read_draft
from medusa.engine.spark.joins import MAX_PAIRS
from medusa.engine.tasks.network import Network
from medusa.overlay.errors import InvalidInputError
from medusa.tools.commands.in_text import InTextError, in_file

REPOSITORY = Path(__file__).parents[2]
PAGE = (REPOSITORY / "docs/sql.md").read_text()
BASE = "medusa://you/"
BLOCKS = re.findall(r"^```sql( refused)?\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
EXAMPLES = [text for refused, text in BLOCKS if not refused]
REFUSED = [text for refused, text in BLOCKS if refused]
TABLE = PAGE.partition("| refused | write |\n|---|---|\n")[2].partition("\n\n")[0]
ROWS = [re.match(r"\| (`+) ?(.*?) ?\1 \|", row) for row in TABLE.splitlines()]


class Reader:
    """Reads the blocks of the page in order: each may read the streams of those before."""

    def __init__(self) -> None:
        self.streams: dict[str, Schema] = {}
        self.schemas: dict[str, Schema] = {}

    def read(self, text: str) -> Document:
        draft = read_draft(text, BASE)
        known = {name: self.streams[name] for name in draft.reads}
        document = draft.complete(known, self.schemas)
        self.schemas |= {each.name: each for each in document.schemas}
        for stream in document.streams:
            self.streams[stream.name] = self.schemas[stream.schema]
        for query in document.queries:
            inputs = {
                name: StreamEntry(StreamDefinition(name, name), self.streams[name])
                for name in streams_read(query) - streams_written(query)
            }
            self.streams |= Network(with_panes(query, 256), inputs).schemas()
        return document


def test_every_example_compiles_on_those_before_it() -> None:
    reader = Reader()
    for text in EXAMPLES:
        document = reader.read(text)
        assert document.queries or document.streams
    assert len(EXAMPLES) >= 7


@pytest.fixture(scope="module")
def reader() -> Reader:
    made = Reader()
    for text in EXAMPLES:
        made.read(text)
    return made


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[2][:40] if row else "no row")
def test_what_is_refused_is_refused(row: re.Match[str] | None, reader: Reader) -> None:
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


def test_busy_sql_is_the_twin_of_busy_xml() -> None:
    sql, xml = (
        read_draft((REPOSITORY / "examples" / name).read_text(), "medusa://mit.edu/").complete(
            {}, {}
        )
        for name in ("busy.sql", "busy.xml")
    )
    assert sql == xml
