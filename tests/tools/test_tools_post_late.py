"""If not one row of a file is in time, the command fails, and says what to do."""

from __future__ import annotations

from pathlib import Path

import pytest
from engine_peers import make_stream, open_cluster, rows, schema_of, send_rows, until
from msgspec import structs

from medusa.engine.objects.definitions import StreamDefinition
from medusa.engine.objects.schema import DELETED, END, Field, FieldType
from medusa.overlay.errors import InvalidInputError
from medusa.tools.client.tables import read_table
from medusa.tools.commands.medusa.post_file import Options, post_rows
from medusa.tools.commands.medusa.read_tables import PostedTable, posted_as_table


def csv(path: Path, stimes: range) -> str:
    path.write_text("t,name,value\n" + "".join(f"{at},x,{at}\n" for at in stimes))
    return str(path)


async def test_all_rows_late_is_an_error_and_some_are_not(tmp_path: Path) -> None:
    folder = tmp_path / "cluster"
    folder.mkdir()
    old, new = csv(tmp_path / "old.csv", range(3)), csv(tmp_path / "new.csv", range(8, 12))
    async with open_cluster(folder) as cluster:
        mit = await cluster.settle("mit.edu")
        async with mit.client() as client:
            stream = await make_stream(client, mit, "s")
            await send_rows(client, stream, [(9, 9)], boundary=9)
        said = r"s: not one of 3 rows is in time; .*/s/late: the stream's time has come to 1970-"
        async with mit.client(producer="a") as client:
            with pytest.raises(InvalidInputError, match=said):
                await post_rows(client, stream, old, Options())
        async with mit.client(producer="b") as client:
            done = await post_rows(client, stream, new, Options(end=True))
            assert (done.rows, done.late) == (4, 2), "its own end makes no row late"


async def test_the_rows_that_wait_are_counted_when_a_file_is_posted(tmp_path: Path) -> None:
    """This holds even if nothing is posted; no row waits where another producer went farther."""
    folder = tmp_path / "cluster"
    folder.mkdir()
    file = tmp_path / "rows.csv"
    file.write_text("t,name,value\n1,x,1\n2,x,2\n2,x,3\n")
    async with open_cluster(folder) as cluster:
        mit = await cluster.settle("mit.edu")
        async with mit.client() as client:
            stream = await make_stream(client, mit, "s")
        for rows_posted in (3, 0):
            async with mit.client(producer="a") as client:
                done = await post_rows(client, stream, str(file), Options())
                assert (done.rows, done.boundary, done.waiting) == (rows_posted, 1, 2)
                assert done.let_out_by == "a row later or the stream's end"
        async with mit.client(producer="b") as client:
            await client.post_event(stream, rows([(9, 9)]))
        file.write_text(file.read_text() + "10,x,4\n")
        async with mit.client(producer="a") as client:
            done = await post_rows(client, stream, str(file), Options(end=True))
            assert (done.late, done.boundary, done.waiting) == (0, END, 0)


async def test_late_rows_of_a_table_are_reported(tmp_path: Path) -> None:
    """If all rows are late, the command fails, as the table has none of them."""
    folder = tmp_path / "cluster"
    folder.mkdir()
    old, new = csv(tmp_path / "old.csv", range(2)), csv(tmp_path / "new.csv", range(8, 12))
    async with open_cluster(folder) as cluster:
        mit = await cluster.settle("mit.edu")
        schema = structs.replace(
            schema_of("mit.edu"), name="medusa://mit.edu/entry", key=("value",)
        )
        table = StreamDefinition("medusa://mit.edu/table", schema.name, table=True)
        async with mit.client() as client:
            await client.create_schema(schema)
            await client.create_stream(table)
            await send_rows(client, table.name, boundary=9)
        async with mit.client() as client:
            with pytest.raises(InvalidInputError, match=r"not one of 2 rows is in time; .*/late"):
                await posted_as_table(client, table.name, old, Options())
        async with mit.client() as client:
            posted = await posted_as_table(client, table.name, new, Options())
            assert posted == PostedTable(rows=4, posted=4, late=2)


async def test_a_file_deletes_rows_that_waited_for_a_later_one(tmp_path: Path) -> None:
    """The newest rows of a table wait for its time to pass them: the command compares them, too."""
    folder = tmp_path / "cluster"
    folder.mkdir()
    file = tmp_path / "rows.csv"
    async with open_cluster(folder) as cluster:
        mit = await cluster.settle("mit.edu")
        schema = structs.replace(schema_of("mit.edu"), name="medusa://mit.edu/entry", key=("name",))
        deleted = Field(DELETED, FieldType.BOOL, nullable=True)
        schema = structs.replace(schema, fields=(*schema.fields, deleted))
        table = StreamDefinition("medusa://mit.edu/table", schema.name, table=True)
        async with mit.client() as client:
            await client.create_schema(schema)
            await client.create_stream(table)
        for text, options, posted in (
            ("at,name,value\n20,a,1\n20,b,1\n", Options(names={"at": "t"}), (2, 2)),
            ("t,name,value,more\n30,a,1,2\n", Options(ignore_extra=True), (1, 1)),
            ("t,name,value\n40,c,1\n50,a,1\n", Options(), (2, 1)),
            ("t,name,value\n60,a,1\n", Options(), (1, 1)),
        ):
            file.write_text(text)
            async with mit.client() as client:
                found = await posted_as_table(client, table.name, str(file), options)
                assert (found.rows, found.posted, found.late) == (*posted, 0), text
        # all rows of the file are earlier than the waiting deletion: they are not compared, but
        # counted
        for text, expected in (
            ("t,name,value\n60,b,1\n", PostedTable(rows=1, posted=3, waiting=1)),
            ("t,name,value\n61,a,1\n", PostedTable(rows=1, posted=2)),
        ):
            file.write_text(text)
            async with mit.client() as client:
                assert await posted_as_table(client, table.name, str(file), Options()) == expected
        async with mit.client() as client:
            await send_rows(client, table.name, boundary=61)
            await until(lambda: mit.state("table").log.boundary >= 61)
            assert (await read_table(client, table.name)).column("name").to_pylist() == ["a"]


async def test_rows_within_the_lateness_are_reported(tmp_path: Path) -> None:
    folder = tmp_path / "cluster"
    folder.mkdir()
    file = csv(tmp_path / "f.csv", range(12))
    async with open_cluster(folder) as cluster:
        mit = await cluster.settle("mit.edu")
        async with mit.client() as client:
            stream = await make_stream(client, mit, "s", lateness_us=4)
            await send_rows(client, stream, [(9, 9)], boundary=9)
        async with mit.client(producer="a") as client:
            done = await post_rows(client, stream, file, Options(end=True))
            assert (done.rows, done.late, done.inserted) == (12, 6, 4)
            leader = mit.state("s").leader
            assert leader is not None
            assert (leader.source.acceptance.late_rows, leader.source.acceptance.inserted_rows) == (
                6,
                4,
            )


async def test_a_stream_that_has_ended_is_named_as_such(tmp_path: Path) -> None:
    folder = tmp_path / "cluster"
    folder.mkdir()
    file = csv(tmp_path / "f.csv", range(3))
    async with open_cluster(folder) as cluster:
        mit = await cluster.settle("mit.edu")
        async with mit.client() as client:
            stream = await make_stream(client, mit, "s")
            await send_rows(client, stream, end=True)
        for again in (False, True):
            async with mit.client(producer="a") as client:
                with pytest.raises(
                    InvalidInputError, match=r"has ended; `medusa stream reopen med"
                ):
                    await post_rows(client, stream, file, Options(again=again))
