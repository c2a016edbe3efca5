"""Real peers are cut off from each other and healed, by themselves and by the kernel."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest
import trio
from deadline import DEADLINE_S
from namespaces_here import skip_without_namespaces

from medusa.engine.replication.records.status import PeerStatus
from medusa.testnet.cutting.links import Links, open_links
from medusa.testnet.kit.peers import Federation, Peer, open_federation
from medusa.tools.client.async_client import AsyncMedusaClient, open_medusa

pytestmark = pytest.mark.process

LOOK_S = 0.05


@pytest.fixture(params=["inside", "netns"])
def netns(request: pytest.FixtureRequest) -> bool:
    if request.param == "netns":
        skip_without_namespaces()
    return bool(request.param == "netns")


@asynccontextmanager
async def peers_on(netns: bool, *names: str) -> AsyncIterator[tuple[Links, list[Peer]]]:
    async with open_links(netns=netns) as links, open_federation(links=links) as federation:
        yield links, await _start(federation, names)


async def _start(federation: Federation, names: tuple[str, ...]) -> list[Peer]:
    await federation.found(names[0])
    for name in names[1:]:
        await federation.admit(name)
    for peer in federation.peers:
        await peer.ready()
    return federation.peers


async def sees(client: AsyncMedusaClient) -> dict[str, PeerStatus]:
    """Return the view of a client's peer on all peers, by participant."""
    return {peer.participant: peer for peer in (await client.status()).peers}


async def until(client: AsyncMedusaClient, holds: Callable[[dict[str, PeerStatus]], bool]) -> None:
    with trio.fail_after(DEADLINE_S):
        while not holds(await sees(client)):  # noqa: ASYNC110 - only asking tells
            await trio.sleep(LOOK_S)


def all_run(seen: dict[str, PeerStatus]) -> bool:
    return len(seen) == 3 and all(
        (peer.state, peer.health) == ("running", "alive") for peer in seen.values()
    )


async def test_three_peers(netns: bool) -> None:
    async with peers_on(netns, "mit.edu", "utah.edu", "brown.edu") as (links, peers):
        mit, utah, brown = peers
        async with open_medusa(mit.home.folder) as at_mit, open_medusa(utah.home.folder) as at_utah:
            await until(at_mit, all_run)
            await until(at_utah, all_run)

            connected = await links_of(at_mit)
            for _ in range(10):
                await links.cut(mit, utah)
                await links.heal()
            await until(at_mit, all_run)
            assert await links_of(at_mit) == connected

            await check_split(links, peers, at_mit, at_utah)

            # A peer that dies and returns during a split is still on its side of the split.
            await brown.restart()
            await until(at_utah, lambda seen: seen["brown.edu"].state == "running")
            await until(at_mit, lambda seen: unreachable(seen) == {"utah.edu", "brown.edu"})

            await links.heal()
            await until(at_mit, all_run)
            await until(at_utah, all_run)

            # Neither peer gets an answer: the network loses the questions of one, and the answers
            # of the other.
            await links.cut(mit, utah, both=False)
            await until(at_mit, lambda seen: unreachable(seen) == {"utah.edu"})
            await until(at_utah, lambda seen: unreachable(seen) == {"mit.edu"})
            await links.heal()
            await until(at_mit, all_run)
            await until(at_utah, all_run)


async def check_split(
    links: Links, peers: list[Peer], at_mit: AsyncMedusaClient, at_utah: AsyncMedusaClient
) -> None:
    connected = await links_of(at_mit)
    await links.split([peers[:1], peers[1:]])
    # No peer is notified: connections stay open, and questions get no answer.
    assert await links_of(at_mit) == connected
    await until(at_mit, lambda seen: unreachable(seen) == {"utah.edu", "brown.edu"})
    await until(at_mit, lambda seen: seen["utah.edu"].health == "dead")
    await until(
        at_utah,
        lambda seen: seen["mit.edu"].health == "dead" and seen["brown.edu"].health == "alive",
    )
    await until(at_utah, lambda seen: unreachable(seen) == {"mit.edu"})


async def links_of(client: AsyncMedusaClient) -> set[str]:
    """Return the peers to which the client's peer is connected."""
    return set((await client.status(federation=False)).peers[0].links)


def unreachable(seen: dict[str, PeerStatus]) -> set[str]:
    """Return the peers that do not answer."""
    return {name for name, peer in seen.items() if peer.state == "unreachable"}
