"""Suggested contracts between complete peers (`engine_peers`) change where our queries read, and
lose no tuple."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import pytest
import trio
from engine_peers import DEADLINE_S, Cluster, Place, Row, begin, make_stream, pairs_of, rows, until
from msgspec.structs import replace
from tools_market_cluster import (
    SHORT,
    SHORT_WAITS,
    balances,
    deliver,
    notes,
    proposed,
    revoked,
    set_up,
    settle,
    settler,
    stays,
    trader,
)
from tools_market_streams import copy_of

from medusa.contracts.balances import Balance
from medusa.contracts.config import MarketTiming
from medusa.contracts.documents import contract_id
from medusa.contracts.terms import ContentTerms, SuggestedTerms, Terms
from medusa.engine.objects.query import Map, Query
from medusa.engine.replication.records.placements import Deal
from medusa.tools.client.async_client import AsyncMedusaClient

pytestmark = pytest.mark.cluster(timing=SHORT)


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    set_up(monkeypatch)


async def run(client: AsyncMedusaClient, query: Query) -> None:
    await begin(client, query)


@dataclass
class Scene:
    """mit.edu produces `out` from its source, and brown.edu produces `same`, an equal stream; a
    query of utah.edu reads mit.edu's stream."""

    cluster: Cluster
    mit: Place
    utah: Place
    brown: Place
    sends: AsyncMedusaClient
    reads: AsyncMedusaClient
    source: str

    @property
    def out(self) -> str:
        return self.mit.name("out")

    @property
    def same(self) -> str:
        return self.brown.name("same")

    async def post(self, stimes: range) -> None:
        """Post, and return once the reader has the tuples."""
        await self.sends.post_event(
            self.source, rows((at, at) for at in stimes), boundary=stimes[-1]
        )
        await self.sends.flush()
        log = self.utah.state("all").log
        await until(lambda: log.boundary >= stimes[-1], f"the reader is at {stimes[-1]}")

    async def check(self, count: int) -> None:
        """Check that the answer of utah.edu's query is the one without a suggestion."""
        subscription, got = self.reads.subscribe(self.utah.name("all")), list[Row]()
        with trio.fail_after(DEADLINE_S):
            while subscription.boundary < count - 1:
                got += pairs_of((await anext(subscription)).table)
        assert got == [(at, at) for at in range(count)]

    def read_at(self, place: Place, stream: str) -> bool:
        """Whether utah.edu's peer is subscribed at that peer."""
        kept = place.up.engine.store.serving(stream)
        return kept is not None and kept.subscribers > 0

    async def suggest(self, terms: Terms, by: Place | None = None) -> str:
        proposal, acceptance = proposed(by or self.brown, self.utah, terms)  # type: ignore[arg-type]
        await deliver(self.utah, acceptance)
        contract = contract_id(proposal)
        held = trader(self.utah)._contracts
        await until(lambda: contract in {c.id for c in held.in_force()}, "in force")
        return contract


async def make_scene(cluster: Cluster, timing: MarketTiming = SHORT_WAITS) -> Scene:
    mit, utah, brown = [
        await settle(cluster, name, 100, timing=timing)
        for name in ("mit.edu", "utah.edu", "brown.edu")
    ]
    await cluster.acquainted(mit, utah, brown)
    sends, reads, copies = await cluster.clients(mit, utah, brown)
    source = await make_stream(sends, mit, "s")
    await run(sends, copy_of(mit, source, "out"))
    await run(copies, copy_of(brown, source, "same"))
    await run(reads, copy_of(utah, mit.name("out"), "all"))
    scene = Scene(cluster, mit, utah, brown, sends, reads, source)
    await scene.post(range(100))
    await until(lambda: scene.read_at(mit, scene.out), "it is read")
    return scene


@pytest.fixture
async def scene(cluster: Cluster) -> Scene:
    return await make_scene(cluster)


async def test_an_accepted_suggestion_is_followed_until_it_is_revoked(scene: Scene) -> None:
    mit, brown = scene.mit, scene.brown
    contract = await scene.suggest(SuggestedTerms(scene.out, alternative=scene.same))
    await until(lambda: scene.read_at(brown, scene.same), "the alternative is read")
    await until(lambda: not scene.read_at(mit, scene.out), "and the producer is not")
    await scene.post(range(100, 250))
    assert f"as {scene.same} from now on" in notes(scene.utah)
    await revoked(scene.utah, contract)
    await until(lambda: scene.read_at(mit, scene.out), "back to the producer")
    await until(lambda: not scene.read_at(brown, scene.same), "and not the alternative")
    await scene.post(range(250, 400))
    await scene.check(400)


async def test_a_suggestion_that_is_not_accepted_or_not_to_us_changes_nothing(scene: Scene) -> None:
    terms = SuggestedTerms(scene.out, alternative=scene.same)
    proposal, _ = proposed(scene.brown, scene.utah, terms)  # type: ignore[arg-type]
    await deliver(scene.utah, proposal)
    _, ours = proposed(scene.utah, scene.brown, terms)  # type: ignore[arg-type]
    await deliver(scene.utah, ours)  # we suggested the stream to them
    await stays(lambda: scene.read_at(scene.mit, scene.out))
    assert not scene.read_at(scene.brown, scene.same)


async def test_a_reader_asks_the_producer_when_the_suggested_place_fails(cluster: Cluster) -> None:
    trying = dataclasses.replace(SHORT_WAITS, aside_s=1.0)
    scene = await make_scene(cluster, trying)
    await scene.suggest(SuggestedTerms(scene.out, alternative=scene.same))
    await until(lambda: scene.read_at(scene.brown, scene.same), "the alternative is read")
    await scene.cluster.stop(scene.brown)
    await scene.post(range(100, 250))
    await until(lambda: scene.read_at(scene.mit, scene.out), "the producer is read")
    assert "as suggested for" in notes(scene.utah)
    # the peer tries again after a while
    await scene.cluster.start(scene.brown)
    await until(lambda: scene.read_at(scene.brown, scene.same), "the alternative again")
    await scene.post(range(250, 400))
    await scene.check(400)


async def test_each_sender_is_paid_for_what_it_sent(scene: Scene) -> None:
    """Both streams have content contracts: the peer that is read is the one that is paid."""
    ids = []
    for sender, stream in ((scene.mit, scene.out), (scene.brown, scene.same)):
        content = ContentTerms(stream, sender.participant, per_message=1)
        ids.append(await scene.suggest(content, by=sender))
    of_mit, of_brown = ids
    await until(lambda: len(settler(scene.mit).ledger.deals()) == 1, "mit's deal")
    await scene.post(range(100, 150))
    suggested = await scene.suggest(SuggestedTerms(scene.out, alternative=scene.same))
    await until(lambda: scene.read_at(scene.brown, scene.same), "the alternative is read")
    await scene.post(range(150, 250))
    await revoked(scene.utah, suggested)
    await until(lambda: scene.read_at(scene.mit, scene.out), "back to the producer")
    await scene.post(range(250, 400))
    for sender, contract, tuples in ((scene.mit, of_mit, 200), (scene.brown, of_brown, 100)):
        earned = Balance(contract)
        with trio.move_on_after(DEADLINE_S):
            while earned.tuples != tuples:
                await trio.sleep(0.05)
                earned = await balances(sender, contract)
        assert (earned.earned, earned.disputes) == (tuples, 0), notes(sender)
        assert (await balances(scene.utah, contract)).spent == tuples
    await scene.check(400)


async def test_a_place_that_stands_still_is_left(cluster: Cluster) -> None:
    watching = dataclasses.replace(SHORT_WAITS, still_s=0.3)
    scene = await make_scene(cluster, watching)
    await scene.suggest(SuggestedTerms(scene.out, alternative=scene.same))
    await until(lambda: scene.read_at(scene.brown, scene.same), "the alternative is read")
    async with scene.brown.client() as client:
        await client.stop_query(scene.brown.name("q/same"))
    await scene.post(range(100, 250))
    assert "it stands still" in notes(scene.utah)
    await scene.check(250)


async def test_an_unsuitable_alternative_is_refused(scene: Scene) -> None:
    async with scene.brown.client() as client:
        box = Map("less", scene.source, scene.brown.name("less"), (("v", "value"),))
        await run(client, Query(scene.brown.name("q/less"), (box,)))
        shy = scene.brown.name("shy")
        query = copy_of(scene.brown, scene.source, "shy")
        await run(client, replace(query, readers=((shy, ("utah.edu",)),)))
    for terms, why in (
        (SuggestedTerms(scene.out, alternative=shy), "not for all who may read"),
        (SuggestedTerms(scene.out, alternative=scene.brown.name("less")), "other fields"),
        (SuggestedTerms(scene.out, alternative=scene.brown.name("none")), "none"),
        (SuggestedTerms(scene.out, peer=scene.brown.id), "not produced by this peer"),
        (SuggestedTerms(scene.out, peer="f" * 40), "ffffffff"),
    ):
        await scene.suggest(terms)
        await until(lambda w=why: refused(scene.utah, w), why)
    await scene.post(range(100, 250))
    assert scene.read_at(scene.mit, scene.out)
    await scene.check(250)


def refused(place: Place, why: str) -> bool:
    return any("as suggested for" in n and why in n for n in notes(place).splitlines())


async def test_a_peer_may_be_suggested_and_a_restarted_reader_keeps_the_suggestion(
    scene: Scene,
) -> None:
    two = await settle(scene.cluster, "mit.edu", 100, sibling=True)
    await scene.cluster.acquainted(scene.mit, scene.utah, two)
    await scene.mit.up.engine.mover.move(scene.out, two.peer_id, Deal(giver=scene.mit.id))
    await scene.post(range(100, 150))
    await until(lambda: not scene.read_at(scene.mit, scene.out), "the worker is read")
    await scene.suggest(SuggestedTerms(scene.out, peer=scene.mit.id), by=scene.mit)
    await until(lambda: scene.read_at(scene.mit, scene.out), "the owner is read")
    await scene.post(range(150, 250))
    await scene.cluster.restart(scene.utah)
    await until(lambda: scene.read_at(scene.mit, scene.out), "the owner is read again")
    await scene.post(range(250, 400))
    # the earlier client has lost its peer: look into the log
    assert scene.utah.state("all").log.reader.count(-1, 399) == 400
