"""Links between real peers on this machine that can be cut and healed; `links.py` is the front."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Protocol

from medusa.testnet.kit.peers import Launch


@dataclass(frozen=True)
class Cut:
    """One direction of a link that is cut: nothing gets from one peer to the other. Peers are named
    like their homes. The way back is a separate cut."""

    source: str
    target: str


class Wires(Protocol):
    """One way to connect peers so that they can be cut off from each other."""

    async def launch(self, peer: str) -> Launch:
        """The way to start the new peer of that name.

        Raises:
            UnavailableError: this machine cannot run one more peer; names the missing thing and the
                mend.
        """

    async def lose(self, cuts: Collection[Cut]) -> None:
        """Cut exactly these links; peers that start later find them cut.

        Raises:
            UnavailableError: some peer may not have been cut off, or not be connected again.
        """
