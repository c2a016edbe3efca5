"""Members send what takes long to read: documents, tasks, contracts, statements, gossip."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from contextlib import suppress

import msgspec
import pytest
import trio
from deadline import DEADLINE_S
from engine_peers import schema_of
from hostile_siege import Siege

from medusa.contracts.delivery import DELIVER, MAX_DOCUMENTS, Deliver
from medusa.engine.api.messages import CreateDocument
from medusa.engine.language.xml.writing import query_as_xml
from medusa.engine.objects.definitions import StreamDefinition, StreamEntry
from medusa.engine.objects.query import Filter, Query
from medusa.engine.objects.schema import BEGINNING
from medusa.engine.replication.moves.messages import Assignment
from medusa.overlay.exchange import EXCHANGE, MAX_SENT, PUSH, Offer, Push
from medusa.overlay.gossip.messages import MAX_STATE, SYNC_METHOD, State
from medusa.overlay.peer_records import Stamp

CONNECTIONS = 4
PREDICATE = " or ".join(f"value = {number}" for number in range(200))
Call = tuple[str, msgspec.Struct]


def long_query(boxes: int) -> Query:
    """Return a query of evil.org, which reads a stream of its own."""
    return Query(
        "medusa://evil.org/q",
        tuple(
            Filter(f"b{n}", "medusa://evil.org/s", (f"medusa://evil.org/o{n}",), (PREDICATE,))
            for n in range(boxes)
        ),
    )


def document(_siege: Siege) -> Callable[[int], Call]:
    """Send a document to a peer of another participant, where evil.org may define nothing."""
    text = query_as_xml(long_query(256))
    assert len(text) > 700_000
    return lambda _number: ("create_document", CreateDocument(text))


def task(_siege: Siege) -> Callable[[int], Call]:
    """Send a task for which there is no contract."""
    schema = schema_of("evil.org")
    entry = StreamEntry(StreamDefinition("medusa://evil.org/s", schema.name), schema)
    query, inputs = long_query(256), {entry.stream.name: entry}

    def said(number: int) -> Call:
        name = f"medusa://evil.org/o{number % 256}"
        return "task.assign", Assignment(name, number, query, inputs, (), BEGINNING)

    return said


def contracts(siege: Siege) -> Callable[[int], Call]:
    """Send as many documents as one message may have, all with wrong signatures."""
    whole = siege.evil.membership.statements()[0]

    def said(number: int) -> Call:
        tail = (number.to_bytes(4, "big") + bytes([each]) for each in range(MAX_DOCUMENTS))
        return DELIVER, Deliver(tuple(whole[:-5] + end for end in tail))

    return said


def statements(siege: Siege) -> Callable[[int], Call]:
    """Send as many statements as one message may have, all with wrong signatures."""
    whole = siege.evil.membership.statements()[0]
    count = MAX_SENT // (len(whole) + 8)

    def said(number: int) -> Call:
        tails = ((number * count + each).to_bytes(6, "big") for each in range(count))
        return PUSH, Push(tuple(whole[:-6] + tail for tail in tails), ())

    return said


def exchanges(_siege: Siege) -> Callable[[int], Call]:
    """Send lists of 25,000 peer records that the sender claims to have."""
    stamps = tuple(Stamp(number.to_bytes(20, "big"), number, 1) for number in range(25_000))
    return lambda number: (EXCHANGE, Offer((), (*stamps, Stamp(bytes(20), number, 1))))


def gossip(_siege: Siege) -> Callable[[int], Call]:
    """Send thousands of invalid claims in a message."""

    def said(number: int) -> Call:
        claims = ((number * 10_000 + each).to_bytes(100, "big") for each in range(MAX_STATE // 110))
        return SYNC_METHOD, State(tuple(claims), ())

    return said


@pytest.mark.parametrize("kind", [document, task, contracts, statements, exchanges, gossip])
async def test_messages_that_take_long_to_read_do_no_harm(
    siege: Siege, seconds: float, kind: Callable[[Siege], Callable[[int], Call]]
) -> None:
    """Four peers send on four connections, as fast as the victim reads."""
    said, numbers = kind(siege), itertools.count(1)
    each_said = trio.Event()

    async with siege.watched(seconds) as watch, trio.open_nursery() as nursery:

        async def send() -> None:
            while True:
                with suppress(OSError, trio.BrokenResourceError, trio.ClosedResourceError):
                    async with siege.evil.peer().wire(siege.address) as wire:
                        while not wire.over:
                            number = next(numbers)
                            await wire.call(*said(number))
                            if number > CONNECTIONS:
                                each_said.set()
                await trio.sleep(0.05)

        for _ in range(CONNECTIONS):
            nursery.start_soon(send)
        await trio.sleep(seconds)
        with trio.fail_after(DEADLINE_S):
            await each_said.wait()
        nursery.cancel_scope.cancel()
    print(next(numbers), "messages;", watch)
    watch.check()
