"""A new peer calls members before it runs: each accepts or refuses it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

import trio

from medusa.overlay.addresses import Address
from medusa.overlay.errors import MedusaError, RefusedError
from medusa.overlay.events import Events, wall_clock
from medusa.overlay.exchange import Clocks, Exchange, Exchanger
from medusa.overlay.identity import Identity
from medusa.overlay.membership import Membership
from medusa.overlay.peers import PeerTable
from medusa.overlay.rpc import Service
from medusa.overlay.transport import open_transport

MEET_S: Final = 5.0
"""Seconds for all addresses of an invitation together: a person waits, and one answer is enough."""


@dataclass
class Meeting:
    """The result of calling the members.

    Attributes:
        met: participants that accepted this peer as a member.
        refused: the reasons of the others that answered.
        silent: addresses where nobody answered, and why.
    """

    met: set[str] = field(default_factory=set)
    refused: list[str] = field(default_factory=list)
    silent: dict[Address, str] = field(default_factory=dict)


async def meet(
    identity: Identity,
    membership: Membership,
    addresses: Sequence[Address],
    *,
    clock: Callable[[], float] = wall_clock,
) -> Meeting:
    """Call the members at these addresses, and exchange news with those that answer. `membership`
    then has their statements."""
    meeting = Meeting(silent=dict.fromkeys(addresses, f"no answer within {MEET_S:g} s"))
    events, peers = Events(clock), PeerTable(identity, membership)
    exchanger = Exchanger(
        Exchange(membership, peers),
        peers,
        events=events,
        learned=lambda: None,
        clocks=Clocks(clock),
    )
    local = ("127.0.0.1", 0)
    async with open_transport(
        identity, membership, Service(), local, peers.addresses_of, events, clock=clock
    ) as transport:

        async def call(address: Address) -> None:
            try:
                connection = await transport.dial(address)
                await exchanger.exchange(connection)
            except RefusedError as error:
                meeting.refused.append(str(error))
                del meeting.silent[address]
            except MedusaError as error:
                meeting.silent[address] = str(error)
            else:
                meeting.met.add(connection.remote.participant)
                del meeting.silent[address]

        with trio.move_on_after(MEET_S):
            async with trio.open_nursery() as nursery:
                for address in addresses:
                    nursery.start_soon(call, address)
    return meeting
