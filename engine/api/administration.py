"""Routes a call about an object of our participant to the peer that keeps the object.

Objects are administered under their participant's name. Any peer of that participant takes the
call, and hands it on if another one keeps the object.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import TypeVar

import msgspec
from msgspec import UNSET

from medusa.dht.catalog import Catalog
from medusa.engine.objects.alteration import Alteration, listed
from medusa.engine.objects.catalog_records import QUERY, STREAM, find, lookup
from medusa.engine.objects.definitions import ANY, CONTRACT, QueryEntry, StreamDefinition
from medusa.engine.objects.readers import readers_in_words
from medusa.engine.replication.leaders.leaders import Leaders
from medusa.engine.replication.queries.host import QueryHost
from medusa.engine.streams.store.store import StreamStore
from medusa.overlay.errors import (
    InvalidInputError,
    NotAuthorisedError,
    NotFoundError,
    UnavailableError,
)
from medusa.overlay.identity import parse_peer_id
from medusa.overlay.names import ObjectName, PeerId
from medusa.overlay.node.node import Overlay
from medusa.overlay.rpc import Caller

T = TypeVar("T", bound=msgspec.Struct)

ROUTED_CALL_S = 20.0
"""The longest that another peer of ours may take to carry a call out, seconds."""

LISTED = 16
"""Most participants that a remark names; the others are counted."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Administration:
    """The objects under our participant's name, and the peers that keep them.

    Attributes:
        overlay, catalog: find those peers and objects.
    """

    overlay: Overlay
    catalog: Catalog
    store: StreamStore
    leaders: Leaders
    queries: QueryHost

    def own_name(self, text: str) -> ObjectName:
        name = ObjectName.parse(text)
        own = self.overlay.identity.participant
        if name.participant != own:
            raise NotAuthorisedError(f"{name} is administered by {name.participant}, not by {own}")
        return name

    def check_sibling(self, what: str, peer: PeerId) -> None:
        """Refuse a peer of another participant. Raises: InvalidInputError."""
        own = self.overlay.identity.participant
        known = self.overlay.peers.get(peer)
        if known is not None and known.participant != own:
            raise InvalidInputError(
                f"{what} must be a peer of {own}; {peer.hex()[:8]} is one of {known.participant}"
            )

    def strangers(self, name: str, said: StreamDefinition | Alteration) -> tuple[str, ...]:
        """Remarks on named participants that are no members: a misspelt name shows nowhere else."""
        membership = self.overlay.membership
        members = membership.participants()
        remarks = []
        for attribute in ("readers", "writers", "declassify"):
            named = getattr(said, attribute)
            strangers = set() if named is UNSET else {*named} - {ANY, CONTRACT, *members}
            if strangers:
                remarks.append(
                    f"{name}: {attribute} names {listed(sorted(strangers), most=LISTED)}, no "
                    f"member of federation {membership.name}; its members are "
                    f"{listed(sorted(members), most=LISTED)}"
                )
        return tuple(remarks)

    async def readers(self, names: Iterable[str]) -> dict[str, str]:
        """Say who may read the streams among the names, in words: their author should see it before
        the first tuple."""
        found = {}
        for name in names:
            entry = await find(self.catalog, STREAM, ObjectName.parse(name))
            if entry is not None:
                found[name] = readers_in_words(entry.value.stream)
        return found

    async def at_its_leader(
        self,
        caller: Caller,
        name: ObjectName,
        method: str,
        request: msgspec.Struct,
        here: Callable[[], Awaitable[T]],
        *,
        response: type[T],
    ) -> T:
        """Carry out a call about a stream: by `here` if this peer is its leader, else at the
        leader. A call of another peer is never passed on again: outdated records would make a
        circle."""
        stream = str(name)
        voter, state = self.leaders.get(stream), self.store.get(stream)
        at_leader = (
            voter.is_leader if voter is not None else state is not None and state.is_at_leader
        )
        if at_leader or caller.peer_id is not None:
            return await here()
        entry = (await lookup(self.catalog, STREAM, name)).value
        if entry.stream.k_safety:
            connection = await self.leaders.connect(stream)
        else:
            leader = parse_peer_id(entry.stream.leader)
            if leader == self.overlay.identity.peer_id:
                return await here()
            try:
                connection = await self.overlay.connect(leader)
            except UnavailableError as error:
                raise UnavailableError(
                    f"{stream}: its leader, peer {leader.hex()[:8]}, cannot be reached, nothing "
                    f"has changed: {error}"
                ) from None
        return await connection.call(method, request, response, timeout_s=ROUTED_CALL_S)

    async def at_its_peer(
        self,
        name: ObjectName,
        method: str,
        request: msgspec.Struct,
        response: type[T],
        here: Callable[[], Awaitable[T]],
    ) -> T:
        """Carry out a call about a query: by `here` if this peer keeps it, else at its peer."""
        entry: QueryEntry = (await lookup(self.catalog, QUERY, name)).value
        try:
            peer = parse_peer_id(entry.peer)
            if peer == self.overlay.identity.peer_id or self.queries.occupied(str(name)):
                return await here()
            return await self.route(peer, method, request, response)
        except NotFoundError as error:  # the query's new peer may not have published it yet
            raise UnavailableError(f"{name} is changing hands: {error}") from None

    async def route(
        self, peer: PeerId, method: str, request: msgspec.Struct, response: type[T]
    ) -> T:
        connection = await self.overlay.connect(peer)
        return await connection.call(method, request, response, timeout_s=ROUTED_CALL_S)
