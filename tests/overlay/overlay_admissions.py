"""For tests: memberships with members, sponsors and peers to admit."""

from __future__ import annotations

from medusa.overlay.errors import MedusaError
from medusa.overlay.identity import Identity, Root
from medusa.overlay.membership import Membership
from medusa.overlay.statements import Statement, seal_statement

NOW = 1_700_000_000.0
DAY = 86_400.0
NAMES = ("mit.edu", "utah.edu", "brown.edu", "oregon.edu", "cmu.edu", "evil.org")
MIT, UTAH, BROWN, OREGON, CMU, EVIL = (Root.create(name, NOW) for name in NAMES)
PEERS = {
    root.participant: Identity.issue(root, NOW) for root in (MIT, UTAH, BROWN, OREGON, CMU, EVIL)
}
TWO_OF_THREE = "2 of mit.edu,utah.edu,brown.edu"


def founded(policy: str) -> Membership:
    return Membership.found(MIT, NOW, "demo", policy)


def sponsored() -> Membership:
    """Return three members, of which two must sign an admission."""
    membership = founded(TWO_OF_THREE)
    for root in (UTAH, BROWN):
        membership.admit(MIT, root.certificate, NOW)
    return membership


def copy(membership: Membership) -> Membership:
    return Membership(membership.charter, membership.statements())


def refusal(membership: Membership, root: Root, body: Statement) -> MedusaError | None:
    (change,) = membership.merge([seal_statement(root.private_key, body)], NOW)
    return change.error


def digest(membership: Membership, name: str) -> bytes:
    holder = membership.holder(name)
    assert holder is not None
    return holder.digest
