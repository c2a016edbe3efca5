"""Every call of the first paper's Table 1 by the standard library's client for XML-RPC, at a whole
peer: the same answers, tokens, scopes and refusals as by the peer's own protocol."""

from __future__ import annotations

import datetime
import re
import time
from typing import Any
from xmlrpc.client import dumps

import pytest
import trio
from deadline import DEADLINE_S
from engine_interpreted import interpret
from engine_peers import Cluster, known, make_stream, received, rows, schema_of, send_rows
from tools_xmlrpc import (
    OpenStock,
    Stock,
    bearer,
    configure,
    native_and_stock,
    posted,
    settled,
    token_for,
)

from medusa.engine.objects.schema import END
from medusa.overlay.client_tokens import EVERY_SCOPE, Scope
from medusa.overlay.errors import MedusaError, NotAuthorisedError
from medusa.overlay.identity import read_certificate
from medusa.tools.client.async_client import Endpoint, open_medusa
from medusa.tools.daemon.scopes import SCOPES
from medusa.tools.home.token_file import TokenFile
from medusa.tools.home.token_text import TokenText
from medusa.tools.xmlrpc.calls import METHODS
from medusa.tools.xmlrpc.faults import NUMBERS, number_of

PERSON = {
    "name": "medusa://mit.edu/person",
    "fields": [
        {"name": "name", "type": "string", "size": 32, "nullable": True},
        {"name": "id", "type": "long"},
        {"name": "seen", "type": "timestamp"},
        {"name": "here", "type": "bool", "nullable": True},
        {"name": "height", "type": "double", "nullable": True},
    ],
    "time": "seen",
}
PEOPLE = "medusa://mit.edu/people"
NOON = 1_521_892_800_000_000


def seen(second: int) -> str:
    moment = datetime.datetime.fromtimestamp(NOON / 1e6 + second, datetime.UTC)
    return moment.strftime("%Y-%m-%dT%H:%M:%S.%fZ")


async def everything(client: Stock, stream: str, rows_wanted: int) -> list[dict[str, Any]]:
    """Pull the events of a stream, batch by batch, to the end."""
    events: list[dict[str, Any]] = []
    after: int | str | None = None
    with trio.fail_after(DEADLINE_S):
        while len(events) < rows_wanted:
            arguments = (stream, after, 5) if after is not None else (stream,)
            batch = await client.receive_events(*arguments)
            assert batch["stream"] == stream
            events += batch["events"]
            after = str(batch["upto"])
    return events


async def test_table_1(stock: OpenStock, cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    interpret(monkeypatch)
    mit = await settled(cluster)
    client = stock(mit)
    assert await client.create_schema(PERSON) == {
        "names": [PERSON["name"]],
        "remarks": [],
        "readers": {},
    }
    created = await client.create_stream({"name": PEOPLE, "schema": PERSON["name"]})
    assert created == {"names": [PEOPLE], "remarks": [], "readers": {PEOPLE: "mit.edu alone"}}
    query = {
        "name": "medusa://mit.edu/tall",
        "boxes": [
            {
                "type": "filter",
                "name": "tall",
                "input": PEOPLE,
                "outputs": ["medusa://mit.edu/tall_people"],
                "predicates": ["height > 1.8"],
            }
        ],
    }
    names = ["medusa://mit.edu/tall", "medusa://mit.edu/tall_people"]
    assert (await client.create_query(query))["names"] == names
    text = f"""<query name="medusa://mit.edu/who">
      <box name="who" type="filter"><input port="1" stream="{PEOPLE}"/>
      <output port="1" stream="medusa://mit.edu/two"/><param name="expression.0" value="id = 2"/>
      </box></query>"""
    names = ["medusa://mit.edu/who", "medusa://mit.edu/two"]
    assert (await client.create_query_xml(text))["names"] == names
    for name in ("tall", "who"):
        status = await client.set_query_status(f"medusa://mit.edu/{name}", "RUNNING")
        assert status == {"trouble": ""}
    people = [
        {"name": "X <&>é\n", "id": str(2**53 + 1), "seen": seen(1), "here": True, "height": 1.9},
        {"id": 2, "seen": seen(2), "height": 1.5},
        {"name": "Ada", "id": -3, "seen": datetime.datetime(2018, 3, 24, 12, 0, 3)},  # noqa: DTZ001
    ]
    answer = await client.post_event(PEOPLE, people, {"boundary": str(NOON + 10_000_000)})
    assert answer == {
        "sequence": 1,
        "rows": 3,
        "late": 0,
        "inserted": 0,
        "boundary": NOON + 10_000_000,
        "duplicate": False,
    }
    expected = [
        {"name": "X <&>é\n", "id": 2**53 + 1, "seen": seen(1), "here": True, "height": 1.9},
        {"name": None, "id": 2, "seen": seen(2), "here": None, "height": 1.5},
        {"name": "Ada", "id": -3, "seen": seen(3), "here": None, "height": None},
    ]
    stimes = [NOON + second * 1_000_000 for second in (1, 2, 3)]
    events = await everything(client, PEOPLE, 3)
    assert [event.pop("stime") for event in events] == stimes
    seqs = [event.pop("seq") for event in events]
    assert seqs == sorted(set(seqs))
    assert events == expected
    assert await everything(client, "medusa://mit.edu/tall_people", 1) == [
        {"stime": stimes[0], **expected[0]}
    ]
    assert await everything(client, "medusa://mit.edu/two", 1) == [
        {"stime": stimes[1], **expected[1]}
    ]
    found = await client.lookup_object(PEOPLE)
    assert found["name"] == PEOPLE
    assert found["entries"]["stream"]["schema"]["fields"][1] == {
        "name": "id",
        "type": "long",
        "size": None,
        "nullable": False,
    }
    assert (await client.set_query_status("medusa://mit.edu/who", "STOPPED")) == {"trouble": ""}
    assert (await client.set_query_status("medusa://mit.edu/who", "DELETED")) == {"trouble": ""}
    assert (await client.refused("lookup_object", "medusa://mit.edu/who"))[0] == 7


async def test_both_protocols_see_the_same(stock: OpenStock, cluster: Cluster) -> None:
    native, client, stream = await native_and_stock(cluster, stock)
    await send_rows(native, stream, [(1, 10), (2, 20)], boundary=5)
    assert [(event["stime"], event["value"]) for event in await everything(client, stream, 2)] == [
        (1, 10),
        (2, 20),
    ]
    await client.post_event(stream, [{"t": 6, "name": "x", "value": 30}], {"end": True})
    subscription = native.subscribe(stream)
    assert await received(subscription, 3) == [(1, 10), (2, 20), (6, 30)]
    assert stream in (await known(native))["stream"]


async def test_a_pull_waits_and_reports_that_there_is_nothing(
    stock: OpenStock, cluster: Cluster
) -> None:
    mit = await settled(cluster)
    native, client = await cluster.client(mit), stock(mit)
    stream = await make_stream(native, mit, "s")
    assert await client.receive_events(stream, 7) == {
        "stream": stream,
        "after": 7,
        "upto": 7,
        "events": [],
    }
    pulled: list[dict[str, Any]] = []

    async def pull() -> None:
        pulled.append(await client.receive_events(stream, 7, 30))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(pull)
        other = stock(mit)
        await other.post_event(stream, [{"t": 8, "value": 1}], {"boundary": 9})
    assert [event["value"] for event in pulled[0]["events"]] == [1]
    moment = datetime.datetime(1970, 1, 1, 0, 0, 1)  # noqa: DTZ001 - XML-RPC has no zones
    assert (await client.receive_events(stream, moment))["after"] == 1_000_000


async def test_posts_are_numbered_by_the_peer_or_by_the_client(
    stock: OpenStock, cluster: Cluster
) -> None:
    mit = await settled(cluster)
    native, client = await cluster.client(mit), stock(mit)
    stream = await make_stream(native, mit, "s", idle_timeout_us=300_000)
    for number in (1, 2):
        answer = await client.post_event(stream, [{"t": number, "value": 1}])
        assert (answer["sequence"], answer["rows"], answer["duplicate"]) == (number, 1, False)
    await cluster.restart(mit)
    client = stock(mit)
    assert (await client.post_event(stream, [{"t": 3, "value": 1}]))["sequence"] == 3
    mine = {"producer": "loader", "sequence": 1}
    for duplicate in (False, True):
        answer = await client.post_event(stream, [{"t": 4, "value": 1}], mine)
        assert answer["duplicate"] is duplicate
    leap = {"producer": "loader", "sequence": 9}
    number, text = await client.refused("post_event", stream, [{"t": 5, "value": 1}], leap)
    assert number == NUMBERS["sequence_gap"]
    for half in ({"producer": "loader"}, {"sequence": 3}):
        number, text = await client.refused("post_event", stream, [{"t": 5, "value": 1}], half)
        assert (number, "belong together" in text) == (2, True)
    await client.post_event(stream, [], {"boundary": 9})
    assert len(await everything(client, stream, 4)) == 4


async def test_concurrent_posts_are_all_stored_once(stock: OpenStock, cluster: Cluster) -> None:
    mit = await settled(cluster)
    native = await cluster.client(mit)
    stream = await make_stream(native, mit, "s")

    async def post(number: int) -> None:
        client = stock(mit)
        for each in range(5):
            await client.post_event(stream, [{"t": 1, "value": 5 * number + each}])

    async with trio.open_nursery() as nursery:
        for number in range(4):
            nursery.start_soon(post, number)
    client = stock(mit)
    await client.post_event(stream, [], {"end": True})
    events = await everything(client, stream, 20)
    assert sorted(event["value"] for event in events) == list(range(20))
    assert (await client.receive_events(stream))["upto"] == END


@pytest.mark.parametrize(
    ("method", "arguments", "number", "reason"),
    [
        ("create_schema", (), 2, r"0 arguments: expected create_schema\(schema\)"),
        ("create_schema", ("x",), 2, r"argument 1: .*create_schema\(schema\)"),
        ("create_schema", ({**PERSON, "keys": []},), 2, r"argument 1: no member 'keys'"),
        (
            "create_schema",
            ({"name": "medusa://mit.edu/a", "fields": [{"name": "a", "type": "int", "nul": 1}]},),
            2,
            r"no member 'nul'",
        ),
        ("create_schema", ({"name": "medusa://mit.edu/a", "fields": []},), 2, "field"),
        ("create_stream", ({"name": "medusa://utah.edu/s", "schema": "s"},), 4, "administered"),
        ("create_query_xml", ("<query",), 2, "line 1"),
        ("set_query_status", ("medusa://mit.edu/q", "AWAKE"), 2, "AWAKE"),
        ("set_query_status", ("medusa://mit.edu/q", "RUNNING"), 7, "medusa://mit.edu/q"),
        ("receive_events", ("medusa://mit.edu/none",), 7, "medusa://mit.edu/none"),
        ("receive_events", ("medusa://mit.edu/none", [1]), 2, "a boundary is microseconds"),
        ("post_event", ("medusa://mit.edu/none", [{"a": 1}]), 7, "medusa://mit.edu/none"),
        ("post_event", ("medusa://mit.edu/none", [1]), 2, "argument 2"),
        ("post_event", ("medusa://mit.edu/none", [], {"sequel": 1}), 2, "sequel"),
        ("lookup_object", ("nothing",), 2, "nothing"),
        ("subscribe", ("medusa://mit.edu/none", "udp", "127.0.0.1:1", "s"), 2, "tcp"),
        ("subscribe", ("medusa://mit.edu/none", "tcp", "127.0.0.1", "s"), 2, "HOST:PORT"),
        ("subscribe", ("medusa://mit.edu/none", "tcp", "127.0.0.1:1", "<s>"), 2, "sink '<s>'"),
        (
            "subscribe",
            ("medusa://mit.edu/none", "tcp", "127.0.0.1:1", "s"),
            7,
            "nothing is known under",
        ),
        ("subscribe", ("medusa://mit.edu/none", "tcp", "127.0.0.1:1", "s", "GO"), 2, "GO"),
        ("system.shutdown", (), 7, "no method 'system.shutdown' .* create_schema"),
    ],
)
async def test_a_fault_has_a_number_and_one_line(  # noqa: PLR0917 - fixtures
    stock: OpenStock,
    cluster: Cluster,
    method: str,
    arguments: tuple[Any, ...],
    number: int,
    reason: str,
) -> None:
    client = stock(await settled(cluster))
    code, text = await client.refused(method, *arguments)
    assert (code, text.count("\n")) == (number, 0)
    assert re.search(reason, text), text


async def test_a_bad_event_is_named_and_nothing_is_stored(
    stock: OpenStock, cluster: Cluster
) -> None:
    _native, client, stream = await native_and_stock(cluster, stock)
    bad = [{"t": 1, "value": 1}, {"t": 2, "value": "x"}]
    number, text = await client.refused("post_event", stream, bad)
    assert (number, "row 2" in text, "'value'" in text) == (2, True, True)
    bad = [{"t": 1, "value": 1, "valeu": 2}]
    assert "'valeu'" in (await client.refused("post_event", stream, bad))[1]
    await client.post_event(stream, [], {"end": True})
    assert (await client.receive_events(stream))["events"] == []


async def test_each_scope_allows_the_same_calls_in_both_protocols(
    stock: OpenStock, cluster: Cluster
) -> None:
    """An invalid call is refused for the token's scope first, and only then for its content."""
    mit = await settled(cluster)
    native = await cluster.client(mit)
    stream = await make_stream(native, mit, "s")
    schema = {"name": "medusa://mit.edu/other", "fields": [{"name": "a", "type": "int"}]}
    calls: dict[str, tuple[Any, ...]] = {
        "create_schema": (schema,),
        "create_stream": ({"name": "medusa://mit.edu/t", "schema": schema_of("mit.edu").name},),
        "create_query": ({"name": "medusa://mit.edu/q", "boxes": []},),
        "create_query_xml": ("<medusa/>",),
        "set_query_status": ("medusa://mit.edu/q", "RUNNING"),
        "subscribe": (stream, "tcp", "127.0.0.1:9", "sink", "ADD"),
        "receive_events": (stream,),
        "post_event": (stream, [{"t": 1, "value": 1}]),
        "lookup_object": (stream,),
    }
    assert set(calls) == set(METHODS)
    for scope in Scope:
        client = stock(mit, token_for(mit, scope))
        for method, arguments in calls.items():
            try:
                await getattr(client, method)(*arguments)
                refused = False
            except Exception as error:  # noqa: BLE001 - looked at below
                refused = bool(re.search("needs the scope|needs every scope", str(error)))
            made = "create_document" if method == "create_query_xml" else method
            assert refused is (scope not in SCOPES[made]), (scope, method)


async def test_xmlrpc_accepts_every_clients_tokens(stock: OpenStock, cluster: Cluster) -> None:
    mit = await settled(cluster)
    file = TokenFile(mit.home)
    secret = file.add("ci", EVERY_SCOPE, None, time.time())
    printed = str(
        TokenText.of("mit.edu", read_certificate(mit.home.root_certificate), secret, None)
    )
    call = dumps(("medusa://mit.edu/none",), "lookup_object").encode()
    for token in (secret.decode(), printed):
        assert (await stock(mit, token).refused("lookup_object", "medusa://mit.edu/none"))[0] == 7
        answer = await trio.to_thread.run_sync(posted, mit, call, bearer(mit, token))
        assert b"<int>7</int>" in answer[1]
    client = stock(mit, secret.decode())
    await client.refused("lookup_object", "medusa://mit.edu/none")
    async with mit.client() as native:
        (status,) = (await native.status()).peers
    assert [each.token for each in status.clients].count("ci") >= 1
    file.revoke("ci", time.time())
    number, text = await client.refused("lookup_object", "medusa://mit.edu/none")
    assert (number, "was revoked" in text) == (4, True)
    number, text = await stock(mit, "nonsense").refused("lookup_object", "a")
    endpoint = Endpoint.of(mit.home, "nonsense")
    with pytest.raises(NotAuthorisedError) as told:
        async with open_medusa(endpoint=endpoint):
            pass
    assert (number, text) == (4, str(told.value))


async def test_there_is_no_port_unless_the_settings_name_one(cluster: Cluster) -> None:
    mit = await cluster.settle("mit.edu")
    assert mit.up.running.xmlrpc is None
    configure(mit, '[xmlrpc]\nsinks = ["10.0.0.0/33"]\n')
    with pytest.raises(MedusaError, match=r"xmlrpc: .*10\.0\.0\.0/33"):
        mit.config  # noqa: B018 - reads the file


def test_every_error_has_a_number() -> None:
    assert sorted(NUMBERS.values()) == list(range(1, len(NUMBERS) + 1))
    todo = [MedusaError]
    while todo:
        kind = todo.pop()
        todo += kind.__subclasses__()
        number = number_of(Exception.__new__(kind))
        if kind.__module__ == "medusa.overlay.errors" and kind.code != "damaged":
            assert number == NUMBERS[kind.code]
        assert number in NUMBERS.values()


async def test_a_text_of_any_characters_comes_and_goes(stock: OpenStock, cluster: Cluster) -> None:
    """Characters that XML changes or cannot write are escaped, or come as base64 of their UTF-8."""
    native, client, stream = await native_and_stock(cluster, stock)
    await native.post_event(stream, rows([(1, 1)], "a\r\nb"))
    await send_rows(native, stream, rows([(2, 2)], "\x07\x00"), boundary=3)
    told = [event["name"] for event in await everything(client, stream, 2)]
    assert told == ["a\r\nb", b"\x07\x00"]
    again = [{"t": 4 + number, "name": name, "value": 0} for number, name in enumerate(told)]
    await client.post_event(stream, [dict(each) for each in again], {"end": True})
    pulled = await native.receive_events(stream, 3, 10)
    assert pulled is not None
    assert pulled.table.column("name").to_pylist() == [
        "a\nb",
        "\x07\x00",
    ]  # the client's \r is lost
