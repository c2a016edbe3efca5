"""Only its owner may read a new stream, however it is created."""

from __future__ import annotations

import msgspec
import pytest
from engine_peers import Cluster, make_stream, received, schema_of, send_rows

from medusa.engine.language.document import Document
from medusa.engine.language.sql.printing import stream_as_sql
from medusa.engine.language.xml.writing import document_as_xml
from medusa.engine.objects.alteration import Alteration
from medusa.engine.objects.definitions import ANY, StreamDefinition
from medusa.engine.objects.readers import readers_in_words
from medusa.engine.reading import read_draft
from medusa.overlay.errors import ConflictError, NotAuthorisedError

pytestmark = pytest.mark.usefixtures("interpreted")

SQL = """
CREATE SCHEMA event (t TIMESTAMP, value LONG, WATERMARK FOR t AS t);
CREATE STREAM s USING event;
CREATE TABLE owners (id LONG, name STRING, PRIMARY KEY (id));
CREATE QUERY q AS BEGIN
  CREATE STREAM made AS SELECT * FROM s WHERE value > 0;
END;
"""
XML = """<medusa>
  <schema name="medusa://mit.edu/event" time="t">
    <field name="t" type="timestamp"/><field name="value" type="long"/></schema>
  <stream name="medusa://mit.edu/s" schema="medusa://mit.edu/event"/>
  <query name="medusa://mit.edu/q"><box name="high" type="filter">
    <input port="1" stream="medusa://mit.edu/s"/>
    <output port="1" stream="medusa://mit.edu/made"/>
    <param name="expression.0" value="value > 0"/></box></query>
  <connection_point_view name="medusa://mit.edu/seen" stream="medusa://mit.edu/s">
    <size value="5"/></connection_point_view>
</medusa>"""
BOREALIS = """<borealis>
  <schema name="event"><field name="t" type="timestamp"/><field name="value" type="long"/></schema>
  <input stream="s" schema="event"/>
  <output stream="made" schema="event"/>
  <query name="q"><box name="high" type="filter">
    <in stream="s"/><out stream="made"/>
    <parameter name="expression.0" value="value &gt; 0"/></box></query>
</borealis>"""


@pytest.mark.parametrize("text", [SQL, XML, BOREALIS], ids=["sql", "xml", "borealis"])
async def test_objects_of_a_document_are_for_its_owner_alone(cluster: Cluster, text: str) -> None:
    mit, utah = await cluster.settle_all("mit.edu", "utah.edu")
    owner, guest = await cluster.clients(mit, utah)
    names = await owner.create_query_xml(text)
    streams = [name for name in names if name in owner.readers]
    assert {mit.name("s"), mit.name("made")} <= set(streams)
    for name in streams:
        assert owner.readers[name] == "mit.edu alone"
        with pytest.raises(NotAuthorisedError):
            await guest.stream_entry(name)
        with pytest.raises(NotAuthorisedError):
            await anext(guest.subscribe(name))
        await owner.stream_entry(name)


async def test_a_program_creates_a_stream_for_its_owner_alone_and_opens_it(
    cluster: Cluster,
) -> None:
    mit, utah = await cluster.settle_all("mit.edu", "utah.edu")
    owner, guest = await cluster.clients(mit, utah)
    schema = schema_of("mit.edu")
    await owner.create_schema(schema)
    assert owner.readers == {}
    stream = mit.name("s")
    await owner.create_stream(StreamDefinition(stream, schema.name))
    assert owner.readers == {stream: "mit.edu alone"}
    await send_rows(owner, stream, [(1, 1)], boundary=1)
    with pytest.raises(NotAuthorisedError, match="does not let you read it"):
        await anext(guest.subscribe(stream))
    await owner.alter_stream(stream, Alteration(readers=("utah.edu",)))
    assert await received(guest.subscribe(stream), 1) == [(1, 1)]
    # the definition does not name readers: no change
    await owner.create_stream(StreamDefinition(stream, schema.name))
    assert owner.readers == {stream: "mit.edu, utah.edu"}
    with pytest.raises(ConflictError, match=r"readers is utah\.edu, not nobody"):
        await owner.create_stream(StreamDefinition(stream, schema.name, readers=()))


async def test_a_sibling_that_leads_the_stream_names_its_readers(cluster: Cluster) -> None:
    one, other = await cluster.settle_all("mit.edu", "mit.edu")
    client = await cluster.client(one)
    stream = await make_stream(client, one, "s", leader=other.id, readers=("utah.edu",))
    assert client.readers == {stream: "mit.edu, utah.edu"}
    assert other.state("s").entry.stream.readers == ("utah.edu",)


def test_readers_are_written_as_they_are_defined() -> None:
    """Both forms distinguish a document without readers from one with an empty list."""
    for readers in (msgspec.UNSET, (), ("utah.edu",), (ANY,)):
        stream = StreamDefinition("medusa://mit.edu/s", "medusa://mit.edu/event", readers=readers)
        xml = document_as_xml(Document(streams=(stream,)))
        assert read_draft(xml, "medusa://mit.edu/").complete({}, {}, frozenset()).streams == (
            stream,
        )
        stream_as_sql(stream)  # `stream_as_sql` reads its output again, and compares
        if readers is msgspec.UNSET:
            assert readers_in_words(stream) == "mit.edu alone"
