"""What the catalog needs of a distributed hash table, and what the table needs of its node.

Keep it this small: the table behind it can be replaced by another.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Protocol

from dht.wire import Stored
from overlay.names import PeerId

Address = tuple[str, int]


class Directory(Protocol):
    """Values by key, on the nodes nearest to the key."""

    async def put(self, key: bytes, value: bytes) -> int:
        """Store the value on the nodes nearest to the key (this one too, if it is one of them).

        Returns:
            how many nodes hold it now; alone in the federation, this node is enough.

        Raises:
            ConflictError: a node holds a newer value.
            UnavailableError: there are other nodes, and none of them answered; a copy is here.
            MedusaError: there are other nodes, and all that answered refused, for this reason.
            ClosedError: the directory is closed.
        """
        ...

    async def get(self, key: bytes) -> list[bytes]:
        """All different values found under the key, unverified, this node's own among them.

        Returns:
            []: no value, said by the nodes that should have it.

        Raises:
            UnavailableError: nothing found, and too few nodes answered to say there is nothing.
            ClosedError: the directory is closed.
        """
        ...

    async def joined(self, count: int) -> None:
        """Returns once there are that many neighbours."""
        ...

    def neighbours(self) -> list[PeerId]:
        """Ids of the nodes that answered lately."""
        ...


@dataclass(frozen=True, slots=True)
class Collected:
    """What a search found: values, unverified; how many nodes it asked, and how many answered."""

    values: frozenset[bytes]
    asked: int
    answered: int


@dataclass(frozen=True, slots=True)
class Placed:
    """What storing came to: this node's answer, if it is among the nearest; the answers of the
    other nodes; how many of those were asked."""

    own: list[Stored]
    others: list[Stored]
    asked: int


class Replicas(Protocol):
    """What this node keeps for the federation; it judges, the table only carries."""

    def accept(self, key: bytes, value: bytes) -> None:
        """Keep a value that somebody wants stored.

        Raises:
            MedusaError: refused, and why.
        """
        ...

    def held(self, key: bytes) -> list[bytes]:
        """The values to answer with."""
        ...

    def everything(self) -> Iterable[tuple[bytes, bytes]]:
        """All (key, value), for handing over to new nodes; read as far as it is iterated."""
        ...


class Contacts(Protocol):
    """Who is in the federation and where: from the peer table, so addresses are signed by their
    peer and none is ever taken from another node's answer."""

    def known(self) -> Iterable[PeerId]:
        """Peer ids of all other peers, dead ones too."""
        ...

    def address_of(self, peer_id: PeerId) -> Address | None: ...

    def participant_of(self, peer_id: PeerId) -> str:
        """Whose peer it is, by its certificate; "" where it is not known."""
        ...

    def are_expected(self) -> bool:
        """Whether there are other peers, as far as one can tell before they are known."""
        ...


Handler = Callable[[PeerId, Address, bytes], None]
"""(the sender's peer id, verified; the address it came from; payload)"""


class Wire(Protocol):
    """The overlay's datagrams of one channel: signed, verified, unreliable."""

    def on(self, handler: Handler) -> None: ...

    def send(self, address: Address, payload: bytes) -> None: ...
