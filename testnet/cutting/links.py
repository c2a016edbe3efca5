"""Network partitions of real peers on one machine.

async with (
    open_links(netns=False) as links,
    open_federation(links=links) as federation,
):
    mit, utah = await federation.found("mit.edu"), await federation.admit("utah.edu")
    ...
    await links.split([[mit], [utah]])  # nothing gets through; no peer is notified
    await links.cut(mit, utah, both=False)  # and now also from mit to utah
    await links.heal()
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Iterable, Sequence
from contextlib import asynccontextmanager
from itertools import permutations, product

import trio

from medusa.overlay.errors import InvalidInputError
from medusa.testnet.cutting import Cut, Wires
from medusa.testnet.cutting.namespaces import open_namespaces
from medusa.testnet.cutting.switchboard import open_loopback
from medusa.testnet.kit.peers import Launch, Peer


class Links:
    """The links between the peers of one federation. All changes are in force when a call returns.

    Attributes:
        cuts: the present cuts.
    """

    def __init__(self, wires: Wires) -> None:
        self.cuts: frozenset[Cut] = frozenset()
        self._wires = wires
        self._peers: set[str] = set()
        self._turn = trio.Lock()

    async def launch(self, peer: str) -> Launch:
        """The way to start the peer of that name: `open_federation(links=...)` calls it.

        Raises:
            UnavailableError: this machine cannot run one more peer.
        """
        async with self._turn:
            self._peers.add(peer)
            return await self._wires.launch(peer)

    async def cut(self, a: Peer, b: Peer, *, both: bool = True) -> None:
        """Cut the link from a to b and, if both, the way back.

        Raises:
            InvalidInputError: a peer was not started over these links.
            UnavailableError: the cut may have failed.
        """
        new = {Cut(a.name, b.name), *([Cut(b.name, a.name)] if both else [])}
        await self._set(self.cuts | new)

    async def split(self, groups: Sequence[Collection[Peer]]) -> None:
        """Cut all links between peers of different groups; all other links are connected, and peers
        of no group reach every peer. Earlier cuts end.

        Raises:
            InvalidInputError, UnavailableError: as `cut`.
        """
        pairs = (product(*two) for two in permutations(groups, 2))
        await self._set(Cut(a.name, b.name) for two in pairs for a, b in two)

    async def heal(self) -> None:
        """End all cuts.

        Raises:
            UnavailableError: some may not have ended.
        """
        await self._set(())

    async def _set(self, cuts: Iterable[Cut]) -> None:
        wanted = frozenset(cuts)
        named = {name for cut in wanted for name in (cut.source, cut.target)}
        if unknown := named - self._peers:
            raise InvalidInputError(
                f"{', '.join(sorted(unknown))}: not started over these links; "
                "open the federation with links=links"
            )
        self.cuts = wanted  # set before the first await: a concurrent `cut` adds to it
        async with self._turn:
            await self._wires.lose(self.cuts)


@asynccontextmanager
async def open_links(*, netns: bool = False) -> AsyncIterator[Links]:
    """Links for one federation, which must be closed before they are.

    Args:
        netns: put each peer into a network namespace of its own (root only) and let the kernel drop
            the cut traffic; otherwise the peers' sockets do not read or send it.

    Raises:
        UnavailableError: this machine, or this user, cannot make links; names the missing thing and
            the mend.
    """
    async with open_namespaces() if netns else open_loopback() as wires:
        yield Links(wires)
