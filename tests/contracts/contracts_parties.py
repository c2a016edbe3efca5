"""Two parties of a federation, a third participant, and their documents."""

from __future__ import annotations

import itertools
from typing import Any

from medusa.contracts.documents import Proposal, propose
from medusa.contracts.terms import LoadTerms, Menu, Terms
from medusa.overlay.identity import Root
from medusa.overlay.membership import Membership

NOW = 1_700_000_000.0
DAY = 86_400.0
MIT, UTAH, BROWN, EVIL = (
    Root.create(name, NOW) for name in ("mit.edu", "utah.edu", "brown.edu", "evil.org")
)
LOAD = LoadTerms(1_000_000, 1_250_000, Menu(most_load=40), Menu(most_load=20))
_NONCES = itertools.count(1)


def federation(name: str = "demo") -> Membership:
    """Return a federation that mit.edu founded: utah.edu and brown.edu are members, evil.org is
    not."""
    membership = Membership.found(MIT, NOW, name)
    for root in (UTAH, BROWN):
        membership.admit(MIT, root.certificate, NOW)
    return membership


def proposal(membership: Membership, terms: Terms = LOAD, **changes: Any) -> Proposal:
    """Return a proposal of mit.edu to utah.edu, from NOW for thirty days, with these changes."""
    values: dict[str, Any] = {
        "federation": membership.federation,
        "proposer": "mit.edu",
        "accepter": "utah.edu",
        "terms": terms,
        "valid_from": NOW,
        "valid_until": NOW + 30 * DAY,
        "proposed_at": NOW,
        "nonce": next(_NONCES).to_bytes(16, "big"),
    }
    return Proposal(**values | changes)


def proposed(membership: Membership, root: Root = MIT, **changes: Any) -> bytes:
    """The signed bytes of a proposal of that root's participant."""
    return propose(root, proposal(membership, **{"proposer": root.participant} | changes))
