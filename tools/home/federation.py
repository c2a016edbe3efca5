"""The federation of a home: its stored members, and a new peer's first call to them."""

from __future__ import annotations

from collections.abc import Sequence

from medusa.overlay.entering import Meeting, meet
from medusa.overlay.errors import NotFoundError, RefusedError
from medusa.overlay.identity import Identity
from medusa.overlay.membership import Membership
from medusa.overlay.membership_file import load_membership
from medusa.tools.home.addresses import Address
from medusa.tools.home.folder import Home


def load_federation(home: Home) -> Membership:
    """The federation that this home is in.

    Raises:
        NotFoundError: it is in none.
    """
    home.require()
    try:
        return load_membership(home.folder)
    except NotFoundError:
        raise NotFoundError(
            f"the peer in {home.folder} is in no federation: have a member invite it, then "
            f"`medusa-peer join TOKEN --home {home.folder}`"
        ) from None


async def enter(home: Home, membership: Membership, addresses: Sequence[Address]) -> None:
    """Call the members before a new peer runs, if none has met it yet.

    Raises:
        RefusedError: all members that answer refuse the peer's participant: the peer would run
            alone.
    """
    identity = Identity.load(home.folder)
    own = membership.holder(identity.participant)
    if own is not None and own.digest not in membership.tally.entered:
        await meet_members(identity, membership, addresses)


async def meet_members(
    identity: Identity, membership: Membership, addresses: Sequence[Address]
) -> Meeting:
    """Call the members at these addresses: some accept us, refuse us, or are silent.

    Raises:
        RefusedError: all members that answered refuse this peer.
    """
    meeting = await meet(identity, membership, addresses)
    if meeting.refused and not meeting.met:
        raise RefusedError(
            f"{'; '.join(meeting.refused)}; ask the participant that invited you, whose "
            "`medusa-peer members` shows why"
        )
    return meeting
