"""Peers of one participant for streams with replicas: the tests ask for the leader and for the
state at each peer."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import trio
from engine_peers import Place, rows, until

from medusa.engine.replication.leaders.voter_driver import VoterDriver
from medusa.engine.streams.store.stream_state import Role, StreamState
from medusa.overlay.errors import MedusaError, UnavailableError
from medusa.tools.client.async_client import AsyncMedusaClient

QUIET_S = 0.4


def voter(place: Place, stream: str) -> VoterDriver:
    found = place.up.engine.leaders.get(stream)
    assert found is not None
    return found


def state_at(place: Place, stream: str) -> StreamState:
    """Return the state of the stream that the peer keeps as a voter of the stream."""
    state = voter(place, stream).logs.state
    assert state is not None, "a witness has no journal"
    return state


def replicas_of(places: list[Place], stream: str, home: Place) -> list[Place]:
    """Return the other members of the term, as the leader knows them."""
    term = voter(home, stream).election.ballot.term
    assert term is not None
    return [place for place in places if place.peer is not None and place.id in term.replicas]


def serves_as_leader(place: Place, stream: str) -> bool:
    """Whether the leader is confirmed and its logs are open to readers, after one turn of the event
    loop."""
    its = voter(place, stream)
    return its.is_leader and its.logs.state is not None and its.logs.state.role is Role.SOURCE


def home_of(places: list[Place], stream: str) -> Place | None:
    at_home = [p for p in places if p.peer is not None and serves_as_leader(p, stream)]
    return max(at_home, key=lambda p: voter(p, stream).election.number) if at_home else None


async def new_leader(places: list[Place], stream: str, besides: Place | None = None) -> Place:
    await until(lambda: (home := home_of(places, stream)) is not None and home is not besides)
    found = home_of(places, stream)
    assert found is not None
    return found


async def once_confirmed(
    call: Callable[[str], Awaitable[None]], stream: str, *also: type[MedusaError]
) -> None:
    """Repeat the call until the leader, whose voters have not answered lately, carries it out.
    also: further errors after which the call is repeated."""

    async def is_done() -> bool:
        try:
            await call(stream)
        except (UnavailableError, *also):
            return False
        return True

    await until(is_done)


async def take_over(place: Place, stream: str, without: str = "") -> None:
    """Let the peer be a candidate although the leader lives, and win. without: a peer to which it
    ships no entries."""
    candidate = voter(place, stream)
    async with candidate._lock:
        effects = candidate.election._stand(trio.current_time())
        candidate.election.commitment.replicas._avoided[without] = float("inf")
        await candidate._carry_out(effects, None)
    await until(lambda: serves_as_leader(place, stream), "it is leader")


async def post(client: AsyncMedusaClient, stream: str, numbers: range) -> list[tuple[int, int]]:
    for number in numbers:
        await client.post_event(stream, rows([(number, number)]), boundary=number)
    await client.flush()
    # otherwise tuples of others wait for the idle timeout of its producer
    await (await client.poster(stream)).leave()
    return [(number, number) for number in numbers]
