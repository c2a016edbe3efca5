"""Suggested contracts: our queries read a stream from the peer in an accepted suggestion.

A suggestion counts if it was made to us, we have signed it, and it is in force. That peer is only
preferred: if reading there fails, our queries read from the stream's producer as usual, and try the
suggested peer again after a while.
"""

from __future__ import annotations

from collections.abc import Iterator

import trio

from medusa.contracts.config import MarketTiming
from medusa.contracts.delivery import Contracts
from medusa.contracts.terms import SuggestedTerms
from medusa.engine.objects.schema import END
from medusa.engine.replication.directory.directory import Directory
from medusa.engine.replication.following.book import Followers
from medusa.engine.replication.following.origin import Place
from medusa.engine.streams.store.store import StreamStore
from medusa.engine.streams.store.stream_state import StreamState
from medusa.overlay.concurrency import Bell, next_beat
from medusa.overlay.errors import InvalidInputError, MedusaError, NotFoundError
from medusa.overlay.identity import parse_peer_id
from medusa.overlay.names import NO_PEER
from medusa.overlay.node.node import Overlay


class Suggestions:
    """Chooses, for each stream that is read here, the place in an accepted suggestion."""

    def __init__(
        self,
        *,
        overlay: Overlay,
        store: StreamStore,
        directory: Directory,
        followers: Followers,
        contracts: Contracts,
        timing: MarketTiming,
    ) -> None:
        self._overlay = overlay
        self._store = store
        self._directory = directory
        self._followers = followers
        self._contracts = contracts
        self._timing = timing
        self._participant = overlay.identity.participant
        self._own = overlay.identity.peer_id
        self._aside: dict[tuple[str, Place], float] = {}
        self._chosen: dict[str, tuple[Place | None, float]] = {}
        self._changed = Bell()

    def register(self) -> None:
        """Listen to changes of contracts."""
        self._contracts.changed.add(self._wake)

    def _wake(self) -> None:
        self._changed.ring()

    async def run(self) -> None:
        """Move readers between places as suggestions come and go, for ever."""
        while True:
            self._changed.clear()
            self.look()
            with trio.move_on_at(next_beat(self._timing.suggestions_look_s)):
                await self._changed.wait()

    def look(self) -> None:
        """Restart the reading of streams that are not read from their best place."""
        now = trio.current_time()
        followed = self._followers.followed()
        for state in followed:
            place, since = self._chosen.get(state.name, (None, now))
            if place is not None and self._stands_still(state, since, now):
                self._put_aside(state.name, place, "it stands still")
            if next(self._places(state.name), None) != place:
                self._followers.read_anew(state.name)
        for name in self._chosen.keys() - {state.name for state in followed}:
            del self._chosen[name]

    async def choose(self, stream: str) -> Place | None:
        """The place from which to read a stream; None: the catalog's."""
        for place in tuple(self._places(stream)):
            try:
                await self._check(stream, place)
            except MedusaError as error:
                self.failed(stream, place, error)
            else:
                self._note_chosen(stream, place)
                return place
        self._note_chosen(stream, None)
        return None

    def failed(self, stream: str, place: Place, error: MedusaError) -> None:
        """Avoid a place for a while, because reading there failed."""
        self._put_aside(stream, place, str(error))

    def _put_aside(self, stream: str, place: Place, why: str) -> None:
        self._aside[stream, place] = trio.current_time() + self._timing.aside_s
        if place in self._suggested(stream):
            text = f"does not read {stream} as suggested for {self._timing.aside_s:.0f} s: {why}"
            self._overlay.events.note("warning", text)

    def _note_chosen(self, stream: str, place: Place | None) -> None:
        before, _ = self._chosen.get(stream, (None, 0.0))
        self._chosen[stream] = place, trio.current_time()
        if place == before:
            return
        where = "where its producer is"
        if place is not None:
            peer = self._overlay.peers.get(place.peer)
            where = f"at {peer.name}" if peer is not None else f"as {place.stream}"
        self._overlay.events.note("info", f"reads {stream} {where} from now on")

    def _stands_still(self, state: StreamState, since: float, now: float) -> bool:
        return state.log.boundary < END and now - max(since, state.moved_at) > self._timing.still_s

    async def _check(self, stream: str, place: Place) -> None:
        """
        Raises:
            InvalidInputError: the alternative has other fields, or some readers of the stream may
                not read it; they could read outputs made from it.
            NotFoundError: it cannot be looked up.
        """
        if place.stream == stream:
            return
        state = self._store.get(stream)
        entry = await self._directory.published(place.stream)
        if entry is None:
            raise NotFoundError(f"{place.stream} is not in the catalog, or not for us")
        schema = entry.schema.derived if entry.stream.query else entry.schema.source
        if state is not None and state.log.schema != schema:
            raise InvalidInputError(f"{place.stream} has other fields, or is no source as it is")
        if state is not None and not set(entry.stream.policies) <= set(state.entry.stream.policies):
            raise InvalidInputError(f"{place.stream} is not for all who may read {stream}")

    def _places(self, stream: str) -> Iterator[Place]:
        """The suggested places, without those that failed a short time ago."""
        now = trio.current_time()
        for place in self._suggested(stream):
            if self._aside.get((stream, place), 0.0) <= now:
                yield place

    def _suggested(self, stream: str) -> list[Place]:
        """The suggested places, the latest suggestion first."""
        places = []
        for contract in reversed(self._contracts.in_force()):
            terms = contract.proposal.terms
            to_us = contract.proposal.accepter == self._participant
            if not to_us or not isinstance(terms, SuggestedTerms) or terms.stream != stream:
                continue
            peer = parse_peer_id(terms.peer) if terms.peer else NO_PEER
            if peer != self._own:
                places.append(Place(peer, terms.alternative or stream))
        return places
