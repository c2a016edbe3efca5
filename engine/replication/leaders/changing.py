"""Requests to a stream with replicas, at its leader: posts, and changes by its owner."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Final

import trio
from msgspec.structs import replace

from medusa.engine.objects.alteration import Alteration, altered
from medusa.engine.objects.schema import END
from medusa.engine.replication.leaders.events import Effect
from medusa.engine.replication.leaders.news import LAPSE
from medusa.engine.replication.leaders.reopening import Refused
from medusa.engine.replication.leaders.voter import Role
from medusa.engine.replication.leaders.voter_driver import VoterDriver
from medusa.engine.streams.journal.journal import Position
from medusa.engine.streams.messages import Post, Posted
from medusa.engine.streams.source.acceptance import Writer
from medusa.engine.streams.source.post_request import PostRequest
from medusa.engine.streams.store.store import REPLICATED, StreamStore
from medusa.engine.streams.store.stream_state import LogKey, entries_of
from medusa.overlay.concurrency import until_one_ends
from medusa.overlay.errors import BrokenError, StorageError, UnavailableError
from medusa.overlay.rpc import Duplex, EndOfCall

UNANSWERED: Final = 64
"""Posts of one call that wait for the replicas: four windows of a poster."""


async def take_posts(
    voter: VoterDriver, store: StreamStore, writer: Writer, duplex: Duplex
) -> None:
    """Take the posts of one call, at the leader, and answer each once all replicas have it. It does
    not wait for the answer to one post before it takes the next: a client's whole window is under
    way at a time. Raises: UnavailableError: this peer is no longer the leader, or its replicas do
    not answer. MedusaError: see `Source.post`.
    """
    state = await voter.open()
    accepted, to_answer = trio.open_memory_channel[tuple[Posted, Position]](UNANSWERED)

    async def take() -> None:
        async with accepted:
            while True:
                try:
                    post, body = await duplex.receive(Post)
                except EndOfCall:
                    break
                posted = await store.intake.post(state, PostRequest(writer, post, body))
                # A duplicate, too, waits for everything before it.
                await accepted.send((posted, voter.logs.leader.source.journal.position))
        await trio.sleep_forever()  # the answers are still sent

    async def answer() -> None:
        async for posted, upto in to_answer:
            await voter.news.acknowledged(upto)
            await duplex.send(posted)

    await until_one_ends(take, answer, voter.news.suspended)


async def alter(voter: VoterDriver, alteration: Alteration) -> None:
    """Change the definition of the stream; on return all replicas have it. A repeated alteration
    changes nothing, but waits for the replicas, too.

    Raises:
        InvalidInputError: the definition would be invalid.
        NotFoundError: the stream was deleted meanwhile.
        UnavailableError: this peer is not the leader, or its replicas do not answer: the change may
            take effect or not; a repeated call makes it take effect.
    """
    leader = voter.logs.leader
    before = leader.source.state.config.definition or voter.entry.stream
    definition = altered(before, alteration)
    if definition != before:
        await leader.alter(definition)
    await voter.news.acknowledged(leader.source.journal.position)
    await voter.announcing.announce_altered(entries_of(replace(voter.entry, stream=definition)))
    await voter.be_altered()


async def reopen(voter: VoterDriver) -> Refused | None:
    """Let an ended stream continue; on return all replicas have this. Returns the reason if it
    stays ended.

    Raises:
        UnavailableError: this peer is no longer the leader, or its replicas do not answer: the
            stream may continue or not; a repeated call makes it continue.
    """
    await voter.step(partial(_reopen, voter))
    with trio.move_on_after(LAPSE * voter.around.quiet_s):
        return await _reopened(voter)
    raise UnavailableError(
        f"{voter.name}: its replicas have not answered: it may come to go on, or not; ask again"
    )


def _reopen(voter: VoterDriver, now: float) -> list[Effect]:
    if not voter.is_leader or not voter.logs.leader.logs.have_end:
        raise UnavailableError(f"{voter.name}: its end is not settled yet: ask again")
    return voter.election.reopen(now)


async def _reopened(voter: VoterDriver) -> Refused | None:
    while not (voter.is_leader and voter.logs.leader.boundary < END):
        if voter.election.reopening.refused is not None:
            return voter.election.reopening.refused
        if voter.election.role is Role.FOLLOWER:
            raise UnavailableError(
                f"{voter.name}: its leader is changing: it may come to go on, or not; ask again"
            )
        await voter.news.changed()
    return None


async def note_end_reader(voter: VoterDriver, reader: str) -> None:
    """Store that a reader, in words for people, is about to get the stream's end. Raises:
    BrokenError: this peer must not send the end, or not any more. StorageError: the note could not
    be stored: then the reader must not get the end either.
    """

    def note(_: float) -> list[Effect]:
        ended = voter.logs.state is not None and voter.logs.leader.logs.have_end
        effects = voter.election.note_end_reader(reader) if ended else None
        if effects is None:
            raise BrokenError(f"{voter.name}: its leader, or its end, is changing: ask again")
        return effects

    await voter.step(note)


def _delete(voter: VoterDriver, now: float) -> list[Effect]:
    if voter.election.is_confirmed(now):
        return voter.election.delete(now)
    away = peers_in_words(voter.election.mandate.unconfirmed(now))
    raise UnavailableError(
        f"{voter.name} is not deleted, nothing has changed: that takes a majority of its voters,"
        f" and {away} did not answer lately: start what is down, and ask again"
    )


async def delete(voter: VoterDriver) -> None:
    """Delete the stream: here on return, at other voters as soon as they learn of it.

    Raises:
        UnavailableError: this peer is not the leader, or no majority of its voters answers: nothing
            has changed, or the message says that the stream may still be deleted later.
            StorageError: the stream is deleted, but some of its files stay here until the peer
                restarts.
    """
    folder = voter.around.store.folders.of(LogKey(voter.name, REPLICATED))
    await voter.step(partial(_delete, voter))
    with trio.move_on_after(LAPSE * voter.around.quiet_s) as waiting:
        await voter.deleted.wait()
    if waiting.cancelled_caught:
        away = peers_in_words(voter.election.mandate.awaited)
        raise UnavailableError(
            f"{voter.name} is not deleted yet, and may come to be, or not: that takes a majority "
            f"of its voters, and {away} did not answer: start what is down, and ask again"
        )
    await voter.cleared.wait()
    if folder.exists():
        raise StorageError(f"{voter.name}: its files stay, see the events: start the peer")


def why_no_leader(voter: VoterDriver) -> str:
    """Why the stream has no known leader, in words for people."""
    election = voter.election
    if election.role is Role.INSTALLING and election.mandate.asks_for_deletion:
        return (
            f"{voter.name} is being deleted, which takes a majority of its voters, and "
            f"{peers_in_words(election.mandate.awaited)} did not answer: start what is down"
        )
    text = f"{voter.name}: nobody is its leader at the moment"
    if not election.down:
        return f"{text}; try again"
    down = peers_in_words(election.down)
    return f"{text}, and {down} of its voters seem to be down: start them, or ask again"


def peers_in_words(peers: Iterable[str]) -> str:
    """The names of voters, for people."""
    return ", ".join(f"peer {peer[:8]}" for peer in sorted(peers))
