"""Streams for participants with a content contract: it makes readers, and their rights end with
it."""

from __future__ import annotations

import pytest
import trio
from engine_peers import DEADLINE_S, Cluster, Place, make_stream, received, send_rows, until
from tools_market_cluster import SHORT, revoked, set_up, settle, trader
from tools_market_streams import agreed, arrived, paid, post, reading, terms

from medusa.engine.streams.messages import Subscribe, Tuples
from medusa.overlay.errors import NotAuthorisedError
from medusa.tools.client.async_client import Subscription

pytestmark = pytest.mark.cluster(timing=SHORT)


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    set_up(monkeypatch)


async def three_places(cluster: Cluster) -> tuple[Place, Place, Place]:
    places = [await settle(cluster, each, 100) for each in ("mit.edu", "utah.edu", "evil.org")]
    await cluster.acquainted(*places)
    mit, utah, evil = places
    return mit, utah, evil


async def ends(subscription: Subscription) -> str:
    """Return the reason for which the subscription ends."""
    with trio.fail_after(DEADLINE_S), pytest.raises(NotAuthorisedError) as refusal:
        await all_of(subscription)
    return str(refusal.value)


async def all_of(subscription: Subscription) -> None:
    async for _ in subscription:
        pass


async def test_a_contract_makes_a_reader_until_it_is_revoked(cluster: Cluster) -> None:
    mit, utah, evil = await three_places(cluster)
    sends, reads = await cluster.clients(mit, utah)
    other = await cluster.client(evil)
    stream = await make_stream(sends, mit, "s", readers=("contract",))
    await post(sends, stream, range(10))
    for client in (reads, other):
        with pytest.raises(NotAuthorisedError, match="contract"):
            await client.receive_events(stream)
    contract = await agreed(mit, utah, terms(stream))
    await reading(reads, utah, stream)
    await arrived(utah, 9)
    own = reads.subscribe(stream, 9)
    made = reads.subscribe(utah.name("all"), 9)
    await post(sends, stream, range(10, 20))
    for each in (own, made):
        assert await received(each, 10) == [(at, at) for at in range(10, 20)]
    await paid(utah, mit, contract, 20)
    for name in (stream, utah.name("all")):  # no other peer has any of its outputs
        with pytest.raises(NotAuthorisedError):
            await anext(other.subscribe(name))
    await revoked(mit, contract)
    assert "contract" in await ends(own)
    await post(sends, stream, range(20, 30))

    def why() -> str:
        (task,) = utah.up.engine.queries.task_status()
        return task.reason

    await until(lambda: "contract" in why())
    assert utah.state("all").log.boundary == 19


async def test_a_contract_that_expires_ends_what_it_made(cluster: Cluster) -> None:
    mit, utah, evil = await three_places(cluster)
    sends, reads = await cluster.clients(mit, utah)
    listed = await cluster.client(evil)
    stream = await make_stream(sends, mit, "s", readers=("contract", "evil.org"))
    await post(sends, stream, range(10))
    await agreed(mit, utah, terms(stream), valid_s=3.0)
    own, beside = reads.subscribe(stream), listed.subscribe(stream)
    for each in (own, beside):
        assert len(await received(each, 10)) == 10
    assert "contract" in await ends(own)
    # a reader that the new definition names goes on reading
    await post(sends, stream, range(10, 20))
    assert len(await received(beside, 10)) == 10


async def test_contracts_that_make_no_reader(cluster: Cluster) -> None:
    """The contract is for another stream, or not with the stream's owner."""
    mit, utah, evil = await three_places(cluster)
    sends = await cluster.client(mit)
    stream = await make_stream(sends, mit, "s", readers=("contract",))
    other = await make_stream(sends, mit, "other", readers=("contract",))
    await send_rows(sends, stream, [(1, 1)], boundary=1)
    await agreed(mit, evil, terms(other))
    await agreed(mit, evil, terms(stream, sender="evil.org"))
    await agreed(utah, evil, terms(stream, sender="utah.edu"))
    assert len(trader(evil)._contracts.in_force()) == 3
    there = await evil.up.engine.overlay.connect(bytes.fromhex(mit.id))
    for name, allowed in ((stream, False), (other, True)):
        assert mit.up.engine.readers.pays("evil.org", name) is allowed
    async with there.open("subscribe", Subscribe(stream)) as duplex:
        with pytest.raises(NotAuthorisedError):
            await duplex.receive(Tuples)
