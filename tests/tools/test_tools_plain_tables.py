"""Tables of objects at any width of a terminal have whole names."""

from __future__ import annotations

import io

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.console import Console, RenderableType

from medusa.engine.objects.definitions import QueryEntry, StreamDefinition, StreamEntry
from medusa.engine.objects.query import Filter, Query, QueryStatus
from medusa.engine.objects.schema import Schema
from medusa.engine.replication.records.status import PeerStatus, Snapshot
from medusa.tools.commands.medusa.listing import QueryLine, StreamLine
from medusa.tools.commands.medusa.listing_screen import peers_table, queries_table, streams_table
from medusa.tools.commands.plain_tables import NamesTable

CONNS, BUSY = "medusa://mit.edu/conns", "medusa://mit.edu/busy_sources"
ADDRESS = "127.0.0.1:42339"

WORDS = st.text("abcd./:", min_size=1, max_size=12)


def drawn(table: RenderableType, width: int) -> list[str]:
    console = Console(width=width, file=io.StringIO(), record=True, color_system=None)
    console.print(table, crop=False)
    return [line.rstrip() for line in console.export_text().splitlines()]


def _streams() -> NamesTable:
    schema = "medusa://mit.edu/schema"
    stream = StreamDefinition(BUSY, schema, query=f"{CONNS}_query", readers=("utah.edu",))
    return streams_table([StreamLine(BUSY, "mit.edu", StreamEntry(stream, Schema(schema, ())))])


def _queries() -> NamesTable:
    query = Query(f"{BUSY}_query", (Filter("few", CONNS, (BUSY,), ("id < 10",)),))
    entry = QueryEntry(query, QueryStatus.RUNNING, "cd" * 20, (BUSY,))
    reason = "Spark does not start: no Java is found on this machine"
    return queries_table([QueryLine(query.name, "mit.edu", entry, failing=reason)])


def _peers() -> NamesTable:
    peer = PeerStatus("mit.edu", "cd" * 20, ADDRESS, "unreachable", health="dead")
    return peers_table(Snapshot(0.0, "", "f", (peer,)))


@pytest.mark.parametrize("width", [80, 120])
@pytest.mark.parametrize(
    ("table", "names"),
    [
        (_streams(), ["stream", BUSY, "who may read", "mit.edu, utah.edu"]),
        (_queries(), ["query", f"{BUSY}_query", CONNS, "status", "running"]),
        (_peers(), ["participant", "cdcdcdcd", ADDRESS, "state", "unreachable"]),
    ],
    ids=["streams", "queries", "peers"],
)
def test_the_main_columns_are_whole_on_the_usual_terminals(
    table: NamesTable, names: list[str], width: int
) -> None:
    lines = drawn(table, width)
    assert all(cell_len(line) <= width for line in lines)
    for name in names:
        assert any(name in line for line in lines), (name, lines)


def test_a_narrow_table_names_the_left_out_columns_and_a_command() -> None:
    assert drawn(_streams(), 80)[-1] == (
        "too narrow for: owner, made by (medusa stream show STREAM)"
    )
    assert "too narrow" not in "".join(drawn(_streams(), 200))


@given(
    st.lists(st.tuples(WORDS, WORDS, st.lists(WORDS, min_size=1, max_size=6)), max_size=4),
    st.integers(12, 80),  # narrower columns break even the last line
)
def test_no_word_is_broken_at_any_width(rows: list[tuple[str, str, list[str]]], width: int) -> None:
    """A column is whole or left out, and then named; a table that can fit is not wider than the
    terminal."""
    table = NamesTable("name", "owner", "said", gives_way=("owner",), wraps=("said",))
    for name, owner, said in rows:
        table.add(name, owner, " ".join(said))
    lines = drawn(table, width)
    cells = [line.split() for line in lines]
    shown = [word for words in cells for word in words]
    has_owner = "owner" in cells[0]
    for name, owner, said in rows:
        assert {name, *said, *([owner] if has_owner else [])} <= set(shown)
    assert has_owner or "narrow" in shown
    words = ["said", *(word for *_, said in rows for word in said)]
    needed = max(map(len, ["name", *(row[0] for row in rows)])) + 2 + max(map(len, words))
    assert all(len(line) <= max(width, needed) for line in lines)
