"""Schemas, streams and queries are defined at complete peers (`engine_peers`): by the right
participants, once, or refused."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest
import trio
from borealis_documents import INTRUSION, MONITORING_DEPLOYED
from engine_interpreted import interpret
from engine_peers import (
    Cluster,
    Place,
    files,
    known,
    make_stream,
    open_cluster,
    passing,
    schema_of,
    send_rows,
    until,
)

import medusa
from medusa.engine.api import documents
from medusa.engine.api.messages import (
    Created,
    CreateDocument,
    CreateQuery,
    CreateSchema,
    CreateStream,
    SetQueryStatus,
)
from medusa.engine.language.xml.writing import query_as_xml
from medusa.engine.objects import catalog_records
from medusa.engine.objects.alteration import Alteration
from medusa.engine.objects.availability import Mode
from medusa.engine.objects.catalog_records import QUERY, STREAM
from medusa.engine.objects.definitions import StreamDefinition
from medusa.engine.objects.query import Box, Filter, Map, Query, QueryStatus
from medusa.engine.objects.readers import readers_in_words
from medusa.engine.objects.schema import Field, FieldType
from medusa.engine.operators import typing
from medusa.engine.replication.queries import creation
from medusa.engine.replication.records.placements import Deal
from medusa.engine.streams.messages import Done, PostEvent, Subscribe, Tuples
from medusa.engine.tasks.network import Network
from medusa.overlay.errors import (
    ConflictError,
    InvalidInputError,
    MedusaError,
    NotAuthorisedError,
    NotFoundError,
    StoppedError,
)
from medusa.overlay.names import ObjectName
from medusa.tools.client.async_client import AsyncMedusaClient


async def test_a_document_of_borealis_is_created_with_what_its_author_should_know(
    cluster: Cluster,
) -> None:
    mit, _ = await cluster.settle_all("mit.edu", "mit.edu")
    client = await cluster.client(mit)
    names = await client.create_query_xml(INTRUSION)
    assert set(map(mit.name, ("Connection", "forward", "A", "B", "Clusters"))) <= set(names)
    assert sum("`medusa move` moves its tasks" in remark for remark in client.remarks) == 1
    assert sum("not by the timeout of 12 s" in remark for remark in client.remarks) == 2
    assert (await client.list_objects()).availability[mit.name("A")].mode is Mode.ACTIVE_STANDBY
    assert await client.create_query_xml(MONITORING_DEPLOYED) == ()
    assert "nodes, which are no peers" in client.remarks[0]


async def test_defining_twice_is_no_error_and_differing_is(cluster: Cluster) -> None:
    mit, client = await cluster.founder()
    schema = schema_of("mit.edu")
    stream = StreamDefinition(mit.name("s"), schema.name, slack_us=5)
    query = passing(mit, "q", stream.name, mit.name("out"))
    for _ in range(2):
        await client.create_schema(schema)
        await client.create_stream(stream)
        assert await client.create_query(query) == (query.name, mit.name("out"))
    wider = msgspec.structs.replace(schema, fields=(*schema.fields, Field("more", FieldType.INT)))
    with pytest.raises(ConflictError, match=r"event exists .*\(it has no field more\)"):
        await client.create_schema(wider)
    await client.alter_stream(stream.name, Alteration(readers=("utah.edu",)))
    with pytest.raises(
        ConflictError,
        match=r"mit\.edu/s exists with another definition \(slack is 5e-06 s, not 6e-06 s; "
        r"readers is utah\.edu, not \*\): `medusa stream alter` changes",
    ):
        await client.create_stream(msgspec.structs.replace(stream, slack_us=6, readers=("*",)))
    with pytest.raises(
        ConflictError, match=r"mit\.edu/q exists and differs \(box \w+ is another\): "
    ):
        await client.create_query(passing(mit, "q", stream.name, mit.name("out2")))
    with pytest.raises(ConflictError, match=r"mit\.edu/q produces it"):
        await client.create_stream(StreamDefinition(mit.name("out"), schema.name))


async def test_ten_callers_at_once_define_an_object_once(cluster: Cluster) -> None:
    """Ten callers create one object at once; all receive the same answer."""
    mit, client, source = await cluster.founder_with_stream()
    query = passing(mit, "q", source, mit.name("out"))
    differing: list[MedusaError] = []

    async def define(number: int) -> None:
        await client.create_query(query)
        history = 10**9 + number % 2
        stream = StreamDefinition(mit.name("t"), schema_of("mit.edu").name, 0, history)
        try:
            await client.create_stream(stream)
        except ConflictError as error:
            differing.append(error)

    async with trio.open_nursery() as nursery:
        for number in range(10):
            nursery.start_soon(define, number)
    assert len(differing) == 5
    snapshot = await client.status()
    assert [task.query for task in snapshot.peers[0].tasks] == [query.name]


async def test_only_a_participants_own_clients_define_its_names(cluster: Cluster) -> None:
    mit, utah, client, stranger, source = await cluster.owner_and_guest()
    query = passing(mit, "q", source, mit.name("out"))
    await client.create_query(query)
    schema = schema_of("mit.edu", "other")
    stream = StreamDefinition(mit.name("t"), schema_of("mit.edu").name)
    administered = r"administered by mit\.edu, not by utah\.edu"
    with pytest.raises(NotAuthorisedError, match=administered):
        await stranger.create_schema(schema)
    with pytest.raises(NotAuthorisedError, match=administered):
        await stranger.create_stream(stream)
    with pytest.raises(NotAuthorisedError, match=administered):
        await stranger.create_query(query)
    with pytest.raises(NotAuthorisedError, match=administered):
        await stranger.delete_query(query.name)
    # utah.edu's peer itself sends the request to our peer
    connection = await utah.up.engine.overlay.connect(bytes.fromhex(mit.id))
    document = f'<schema name="{mit.name("x")}"><field name="a" type="int"/></schema>'
    may_not = r"is for this peer's own participant, not for utah\.edu"
    for method, request in (
        ("create_schema", CreateSchema(schema)),
        ("create_stream", CreateStream(stream)),
        ("create_query", CreateQuery(query)),
        ("create_document", CreateDocument(document)),
        ("create_document", CreateDocument("what is this")),  # the document is not even read
    ):
        with pytest.raises(NotAuthorisedError, match=may_not):
            await connection.call(method, request, Created)
    status = SetQueryStatus(query.name, QueryStatus.DELETED)
    with pytest.raises(NotAuthorisedError, match=may_not):
        await connection.call("set_query_status", status, Done)
    with pytest.raises(NotFoundError):
        await client.lookup_object(stream.name)


async def test_a_sibling_carries_the_call_out(cluster: Cluster) -> None:
    """Any of two peers of one participant takes the call, and the one that keeps the object carries
    it out."""
    one, two = await cluster.settle_all("mit.edu", "mit.edu")
    client, other = await cluster.clients(one, two)
    source = await make_stream(client, one, "s", leader=two.id)
    assert two.state("s").leader is not None
    assert one.up.engine.store.get(source) is None
    # the stream is created again, with the leader named and with no leader named, at either peer
    await make_stream(client, one, "s", leader=two.id)
    await make_stream(other, one, "s")
    await make_stream(client, one, "s")
    assert one.up.engine.store.get(source) is None
    query = passing(one, "q", source, one.name("out"))
    await other.create_query(query)
    await client.create_query(query)
    assert one.up.engine.queries.task_status() == ()
    await client.stop_query(query.name)
    (entry,) = two.up.engine.catalog.own(QUERY)
    assert entry.value.status is QueryStatus.STOPPED
    await client.delete_query(query.name)
    assert two.up.engine.queries.task_status() == ()
    with pytest.raises(NotFoundError, match=r"mit\.edu/q"):
        await other.start_query(query.name)
    with pytest.raises(NotFoundError, match="nothing is known"):
        await client.lookup_object(query.name)


async def test_streams_that_cannot_be(cluster: Cluster) -> None:
    mit, utah = await cluster.settle_all("mit.edu", "utah.edu")
    client = await cluster.client(mit)
    schema = schema_of("mit.edu")
    await client.create_schema(schema)
    refused: list[tuple[StreamDefinition, type[MedusaError], str]] = [
        (StreamDefinition(mit.name("s"), mit.name("none")), NotFoundError, "edu/none"),
        (StreamDefinition(mit.name("s"), "none"), InvalidInputError, "'none'"),
        (StreamDefinition(mit.name("s"), schema.name, -1), InvalidInputError, "slack"),
        (StreamDefinition(mit.name("a/late"), schema.name), InvalidInputError, "late"),
        (
            StreamDefinition(mit.name("s"), schema.name, query=mit.name("q")),
            InvalidInputError,
            "created with the query",
        ),
        (StreamDefinition(mit.name("s"), schema.name, leader="ab"), InvalidInputError, "peer"),
        (
            StreamDefinition(mit.name("s"), schema.name, leader=utah.id),
            InvalidInputError,
            r"its leader must be a peer of mit\.edu; .* is one of utah\.edu",
        ),
    ]
    for stream, kind, text in refused:
        with pytest.raises(kind, match=text):
            await client.create_stream(stream)
    assert mit.up.engine.store.all() == ()
    assert mit.up.engine.catalog.own(STREAM) == []


async def test_queries_that_cannot_be(cluster: Cluster) -> None:
    """The message names the object, and no trace remains."""
    mit, utah, client, other, source = await cluster.owner_and_guest()
    closed = await make_stream(other, utah, "closed", readers=())
    await client.create_query(passing(mit, "first", source, mit.name("taken")))
    before = await known(client), files(mit)
    out = mit.name("out")

    def box(expression: str) -> tuple[Box, ...]:
        return (Map("m", source, out, (("a", expression),)),)

    loop = (
        Filter("one", mit.name("b"), (mit.name("a"),), ("value > 1",)),
        Filter("two", mit.name("a"), (mit.name("b"),), ("value > 1",)),
    )
    refused: list[tuple[tuple[Box, ...], type[MedusaError], str]] = [
        ((Map("m", mit.name("no"), out, (("a", "value"),)),), NotFoundError, r"edu/no\b"),
        (box("nothing + 1"), InvalidInputError, "nothing"),
        (box("value + name"), InvalidInputError, r"name|string"),
        (box("java_method('java.lang.Runtime', 'exit', 1)"), InvalidInputError, "java_met"),
        (loop, InvalidInputError, r"loop|cycle|circle"),
        (
            (Filter("f", source, (utah.name("out"),), ("value > 1",)),),
            NotAuthorisedError,
            r"utah\.edu/out",
        ),
        (
            (Filter("f", source, (mit.name("taken"),), ("value > 1",)),),
            ConflictError,
            r"edu/taken is already produced by medusa://mit\.edu/first",
        ),
        (
            (Filter("f", source, (mit.name("o/late"),), ("value > 1",)),),
            InvalidInputError,
            "o/late",
        ),
        (
            (Filter("f", closed, (out,), ("value > 1",)),),
            NotAuthorisedError,
            r"mit\.edu may not read medusa://utah\.edu/closed",
        ),
    ]
    for boxes, kind, text in refused:
        with pytest.raises(kind, match=text):
            await client.create_query(Query(mit.name("q"), boxes))
        assert (await known(client), files(mit)) == before, text
    # and then a valid query of that name works
    await client.create_query(Query(mit.name("q"), box("value + 1")))


async def test_a_declared_stream_becomes_the_output(cluster: Cluster) -> None:
    mit, client, source = await cluster.founder_with_stream()
    declared = await make_stream(client, mit, "declared")
    posted = await make_stream(client, mit, "posted")
    await send_rows(client, posted, [(1, 1)])
    two_outputs = Query(
        mit.name("q"),
        (
            Filter("a", source, (declared,), ("value > 1",)),
            Filter("b", source, (posted,), ("value > 1",)),
        ),
    )
    with pytest.raises(ConflictError, match=r"posted has been posted to"):
        await client.create_query(two_outputs)
    assert mit.state("declared").leader is not None, "the refusal has not cost the other one"
    await client.create_query(passing(mit, "q", source, declared))
    assert mit.state("declared").leader is None
    other = StreamDefinition(mit.name("narrow"), mit.name("narrow"))
    narrow = msgspec.structs.replace(
        schema_of("mit.edu", "narrow"), fields=(Field("v", FieldType.INT),), time=None
    )
    await client.create_schema(narrow)
    await client.create_stream(other)
    with pytest.raises(ConflictError, match="narrow was created with other fields"):
        await client.create_query(passing(mit, "q2", source, other.name))


async def test_a_query_output_takes_no_posts(cluster: Cluster) -> None:
    mit, _utah, client, other, source = await cluster.owner_and_guest(writers=("utah.edu",))
    query = passing(mit, "q", source, mit.name("out"))
    await client.create_query(query)
    await client.stop_query(query.name)
    for poster in (client, other):
        with pytest.raises(StoppedError, match=r"by medusa://mit\.edu/q"):
            await send_rows(poster, mit.name("out"), [(1, 1)])


async def test_stale_producers_do_not_send_a_call_in_circles(cluster: Cluster) -> None:
    """A peer that another peer asks for something that it lacks says so, and asks no further
    peer."""
    mit, utah = await cluster.settle_all("mit.edu", "utah.edu")
    async with mit.client() as client:
        source = await make_stream(client, mit, "s", writers=("*",))
    connection = await mit.up.engine.overlay.connect(bytes.fromhex(utah.id))
    for method, request in (
        ("subscribe", Subscribe(source)),
        ("post_event", PostEvent(source, "p")),
    ):
        async with connection.open(method, request) as duplex:
            with pytest.raises(NotFoundError, match="not produced by this peer"):
                await duplex.receive(Tuples)


async def test_documents_are_read_and_planned_beside_the_event_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client's definition, a sibling's query to stand by for, and a task to run are all read in
    threads."""
    interpret(monkeypatch)
    beside: list[tuple[str, bool]] = []

    def noted(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **named: Any) -> Any:
            thread = threading.current_thread()
            beside.append((name, thread is not threading.main_thread()))
            return function(*args, **named)

        return call

    monkeypatch.setattr(
        "medusa.engine.api.documents.read_draft", noted("read", documents.read_draft)
    )
    monkeypatch.setattr(Network, "tasks", noted("plan", Network.tasks))
    async with open_cluster(tmp_path) as cluster:
        one, two = await cluster.settle_all("mit.edu", "mit.edu")
        async with one.client() as client:
            source = await make_stream(client, one, "s")
            query = passing(one, "q", source, one.name("out"))
            await client.create_query_xml(query_as_xml(query))
            await client.start_query(query.name)
            await one.up.engine.mover.move(one.name("out"), two.peer_id, Deal(giver=one.id))
            await cluster.restart(one)
    assert {name for name, _ in beside} == {"read", "plan"}
    assert all(aside for _, aside in beside), beside


SCRIPT = """CREATE QUERY q AS BEGIN
  CREATE TEMPORARY STREAM large WITH (box = 'large') AS SELECT * FROM s WHERE value > 5;
  CREATE TEMPORARY STREAM doubled WITH (box = 'doubled') AS SELECT value * 2 AS twice FROM large;
  CREATE STREAM told WITH (box = 'told') AS SELECT * FROM doubled WHERE twice > 20;
END"""


def create_by(
    language: str, client: AsyncMedusaClient, mit: Place
) -> Callable[[], Awaitable[object]]:
    """Return the creation of the query of `SCRIPT`, in a language."""
    source, large, doubled, told = map(mit.name, ("s", "large", "doubled", "told"))
    if language == "Python":
        made = medusa.stream(source).filter("value > 5").named(large)
        made = made.map(twice="value * 2").named(doubled).filter("twice > 20").named(told)
        return partial(client.create_query, medusa.query(mit.name("q"), made))
    if language == "SQL":
        return partial(client.create_query_xml, SCRIPT)
    boxes: tuple[Box, ...] = (
        Filter("large", source, (large,), ("value > 5",)),
        Map("doubled", large, doubled, (("twice", "value * 2"),)),
        Filter("told", doubled, (told,), ("twice > 20",)),
    )
    return partial(client.create_query_xml, query_as_xml(Query(mit.name("q"), boxes)))


@pytest.mark.parametrize("language", ["SQL", "XML", "Python"])
async def test_a_box_is_typed_once_for_a_creation_and_an_input_is_found_once(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, language: str
) -> None:
    (mit,) = await cluster.settle_all("mit.edu")
    client = await cluster.client(mit)
    source = await make_stream(client, mit, "s")
    counted: Counter[str] = Counter()

    def count_type(operator: Any, inputs: Any) -> Any:
        counted["boxes"] += 1
        return type_operator(operator, inputs)

    async def count_find(catalog: Any, kind: Any, name: ObjectName) -> Any:
        counted[str(name)] += 1
        return await find_entry(catalog, kind, name)

    type_operator, find_entry = typing.typed, catalog_records.find
    monkeypatch.setattr(typing, "typed", count_type)
    for module in (creation, documents):
        monkeypatch.setattr(module, "find", count_find)
    await create_by(language, client, mit)()
    assert counted["boxes"] == 3
    assert counted[source] == 1


@pytest.mark.parametrize("language", ["SQL", "XML", "Python"])
async def test_an_input_that_is_altered_while_its_query_is_created_makes_its_label(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, language: str
) -> None:
    """The query is created with the entry that was found first, and relabelled by the newer one."""
    (mit,) = await cluster.settle_all("mit.edu")
    client = await cluster.client(mit)
    source = await make_stream(client, mit, "s")
    found: list[str] = []

    async def find_and_alter(catalog: Any, kind: Any, name: ObjectName) -> Any:
        entry = await find_entry(catalog, kind, name)
        if str(name) == source:
            found.append(str(name))
            await client.alter_stream(source, Alteration(readers=("utah.edu",)))
        return entry

    find_entry = catalog_records.find
    for module in (creation, documents):
        monkeypatch.setattr(module, "find", find_and_alter)
    await create_by(language, client, mit)()
    assert found == [source]
    told = mit.up.engine.store.get(mit.name("told"))
    assert told is not None
    await until(lambda: "utah.edu" in readers_in_words(told.entry.stream))
