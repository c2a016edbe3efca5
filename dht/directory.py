"""The protocols between the catalog, the distributed hash table, and its node.

Keep them small, so that the table can be replaced.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Protocol

from medusa.dht.wire import Stored
from medusa.overlay.names import PeerId

Address = tuple[str, int]


class Directory(Protocol):
    """Values by key, on the nodes nearest to the key."""

    async def put(self, key: bytes, value: bytes) -> int:
        """Store the value on the nodes nearest to the key, possibly including this one.

        Returns:
            number of nodes that hold it now; alone in the federation, this node is enough.

        Raises:
            ConflictError: a node holds a newer value.
            UnavailableError: there are other nodes, and none of them answered; a copy is here.
            MedusaError: there are other nodes, and all that answered refused, for this reason.
            ClosedError: the directory is closed.
        """
        ...

    async def get(self, key: bytes) -> list[bytes]:
        """All different values found under the key, unverified, including this node's own.

        Returns:
            []: the nodes that should have a value say that there is none.

        Raises:
            UnavailableError: nothing found, and too few nodes answered to say that there is
                nothing.
            ClosedError: the directory is closed.
        """
        ...

    async def joined(self, count: int) -> None:
        """Wait until there are that many neighbours."""
        ...

    def neighbours(self) -> list[PeerId]:
        """Ids of the nodes that answered lately."""
        ...


@dataclass(frozen=True, slots=True)
class Collected:
    """The result of a search: values, unverified; numbers of nodes asked, and of nodes that
    answered."""

    values: frozenset[bytes]
    asked: int
    answered: int


@dataclass(frozen=True, slots=True)
class Placed:
    """The result of a store: this node's answer, if it is among the nearest; the other nodes'
    answers; the number of nodes asked."""

    own: list[Stored]
    others: list[Stored]
    asked: int


class Replicas(Protocol):
    """The records that this node stores for the federation. It judges them; the table only carries
    them."""

    def accept(self, key: bytes, value: bytes) -> None:
        """Store a value that a node sent.

        Raises:
            MedusaError: refused, with the reason.
        """
        ...

    def held(self, key: bytes) -> list[bytes]:
        """The stored values to answer with."""
        ...

    def everything(self) -> Iterable[tuple[bytes, bytes]]:
        """All (key, value) pairs, which are sent to new nodes; each is read when the caller needs
        it."""
        ...


class Contacts(Protocol):
    """The peers of the federation and their addresses, from the peer table. So each peer signed its
    addresses; none comes from another node's answer."""

    def known(self) -> Iterable[PeerId]:
        """Peer ids of all other peers: dead ones too, and those whose saved records lie in the
        future."""
        ...

    def address_of(self, peer_id: PeerId) -> Address | None: ...

    def participant_of(self, peer_id: PeerId) -> str:
        """The participant of a peer, by its certificate; "" if the peer is unknown, or its
        certificate has expired."""
        ...

    def are_expected(self) -> bool:
        """Whether other peers probably exist, even if this peer does not know them yet."""
        ...


Handler = Callable[[PeerId, Address, bytes], None]
"""(the sender's peer id, verified; the address it came from; payload)"""


class Wire(Protocol):
    """The overlay's datagrams of one channel: signed, verified, unreliable."""

    def on(self, handler: Handler) -> None: ...

    def send(self, address: Address, payload: bytes) -> None: ...
