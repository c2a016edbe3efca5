"""Admits participants to a federation and revokes them, at a home and at its running daemon."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from cryptography import x509

from medusa.overlay.admission_policy import AdmissionPolicy
from medusa.overlay.certificates import check_root, short_fingerprint
from medusa.overlay.clock import shown
from medusa.overlay.errors import (
    ConflictError,
    InvalidInputError,
    MedusaError,
    NotFoundError,
)
from medusa.overlay.identity import Identity, Root, parse_peer_id, read_root_certificate
from medusa.overlay.invite import encode_invite
from medusa.overlay.membership import Membership
from medusa.overlay.membership_file import save_membership
from medusa.overlay.names import NO_PEER
from medusa.overlay.roll import Roll, roll_of
from medusa.tools.client.at_prompt import absences_of, ask_daemon
from medusa.tools.commands.command_line import warn
from medusa.tools.home.addresses import Address
from medusa.tools.home.federation import load_federation
from medusa.tools.home.folder import Home
from medusa.tools.home.reaching import addresses_of
from medusa.tools.home.root_key import SAY_WHERE, load_root

Agreed = Callable[[], None]
"""A function that is called before an action takes effect, once it is known to be possible; raises
an error if the user declines."""


def _nobody_asked() -> None:
    """Agree without asking, because the user has agreed already."""


OUR_ROOT: Final = "say where it is with --our-root HOME"
"""The option for our root, because --root of an invitation is the invited participant's
certificate."""

INVITED_S: Final = 7 * 86_400.0
"""Default duration of an invitation, seconds: the invited may have a week of holiday."""


@dataclass(frozen=True)
class Invited:
    """A signed invitation.

    Attributes:
        root: the beginning of its root's fingerprint, hex.
        token: the token to join with; None: more sponsors must sign.
        signed: the sponsors that have signed.
        who: the sponsors of the policy, for people.
        member_since: when it was admitted, seconds since the epoch, if it is a member already.
    """

    participant: str
    root: str
    token: str | None
    signed: tuple[str, ...]
    who: str
    member_since: float | None = None


def invite(
    home: Home,
    name: str,
    certificate: Path | None,
    addresses: tuple[Address, ...] = (),
    expires_s: float = INVITED_S,
    *,
    root_home: Home | None = None,
    agreed: Agreed = _nobody_asked,
) -> Invited:
    """Admit a participant, or sign the admission that another sponsor began. A repeated invitation
    gives a token again.

    Args:
        certificate: its root; None: the one that other sponsors have signed.
        expires_s: seconds until the end of the invitation, before which it must have met a member.
        root_home: the home with our root's key; None: `home`.
        agreed: see `Agreed`.

    Raises:
        InvalidInputError: the file is no certificate, or the certificate of another participant.
        ConflictError: the name is taken, by another root or a revoked one; or it needs no more
            sponsors.
        NotAuthorisedError: the admission policy does not name us.
        NotFoundError: there is no root key, or this home is in no federation; or no other sponsor
            has signed an admission.
    """
    now = time.time()
    home.require()
    root = _root(home, root_home, OUR_ROOT)
    membership = load_federation(home)
    theirs = _begun(membership, name) if certificate is None else read_root_certificate(certificate)
    if (certified := check_root(theirs)) != name:
        raise InvalidInputError(f"{certificate}: the root certificate of {certified}, not {name}")
    with _reporting(home, membership, now, agreed):
        membership.admit(root, theirs, now, now + expires_s)
        token = None
        if membership.root_of(name) is not None:
            token = encode_invite(membership, name, addresses or addresses_of(home))
    policy = membership.tally.policy.policy
    root_shown = short_fingerprint(theirs)
    rows = [
        row
        for row in roll_of(membership, now).members
        if (row.participant, row.root) == (name, root_shown)
    ]
    signed = rows[0].sponsors if rows else ()
    since = next((row.since for row in rows if row.standing in {"founder", "member"}), None)
    return Invited(name, root_shown, token, signed, policy.who, since)


def begun_root(home: Home, name: str) -> str:
    """The fingerprint of the root that other sponsors began to admit under that name.

    Raises:
        NotFoundError: no sponsor has begun. InvalidInputError: the sponsors signed different roots.
    """
    return short_fingerprint(_begun(load_federation(home), name))


def withdraw(home: Home, name: str, root_home: Home | None = None) -> None:
    """Withdraw the invitation of a participant that has not entered.

    Args:
        root_home: the home with our root's key; None: `home`.

    Raises:
        NotFoundError: the participant is not invited, or there is no root key. ConflictError: the
            participant has entered. UntrustedError: we may not withdraw the invitation.
    """
    now = time.time()
    root, membership = _root(home, root_home, OUR_ROOT), load_federation(home)
    with _reporting(home, membership, now):
        membership.withdraw(root, name, now)


def change_policy(
    home: Home, policy: str, root_home: Home | None = None, agreed: Agreed = _nobody_asked
) -> Roll:
    """Change the admission policy, or sign the change that another sponsor began; returns the list
    of members after that. Choosing the policy in force again ends the changes that wait for
    sponsors.

    Args:
        root_home: the home with our root's key; None: `home`. agreed: see `Agreed`.

    Raises:
        InvalidInputError: that is no policy. ConflictError: the policy is in force, or signed,
            already.
        NotAuthorisedError: the policy in force does not name us.
        NotFoundError: there is no root key.
    """
    now = time.time()
    root, membership = _root(home, root_home), load_federation(home)
    with _reporting(home, membership, now, agreed):
        membership.change_policy(root, policy, now)
    return roll_of(membership, now)


def written_policy(home: Home, policy: str) -> str:
    """An admission policy in its canonical text: without blanks, its sponsors sorted.

    Raises:
        InvalidInputError: that is no policy. NotFoundError: this home is in no federation.
    """
    return str(AdmissionPolicy.parse(policy, load_federation(home).founder))


def members(home: Home) -> Roll:
    """The members of the federation, as far as this home knows.

    Raises:
        NotFoundError: this home is in no federation.
    """
    return roll_of(load_federation(home), time.time())


def warnings(home: Home) -> tuple[str, ...]:
    """The troubles that make others look absent, as the running peer of this home reports them; ()
    if it does not run. A member that refuses this peer does not send it the statement of its
    revocation, so the roll in this home may be out of date."""
    if not home.is_locked():
        return ()
    try:
        return ask_daemon(home, absences_of)
    except MedusaError:
        return ()


def revoke(
    home: Home,
    name: str,
    peer: str | None,
    root_home: Home | None = None,
    agreed: Agreed = _nobody_asked,
) -> str:
    """Revoke a participant, or one of its peers (id in hex). Returns why the participant stays a
    member all the same, or "" if it does not.

    Args:
        root_home: the home with our root's key; None: `home`. agreed: see `Agreed`.

    Raises:
        NotFoundError: no such member, or there is no root key.
        UntrustedError: we may not revoke it.
    """
    now = time.time()
    membership = load_federation(home)
    root = _root(home, root_home)
    peer_id = NO_PEER if peer is None else parse_peer_id(peer)
    with _reporting(home, membership, now, agreed):
        membership.revoke(root, name, peer_id, now=now)
    if peer is not None or membership.root_of(name) is None:
        return ""
    return f"{root.participant} takes back its word, and enough other sponsors stand by theirs"


def member_named(home: Home, name: str) -> str:
    """Describe the member of that name, for a person who is about to end its membership.

    Raises:
        NotFoundError: nobody has that name.
    """
    roll = members(home)
    for row in roll.members:
        if row.participant == name and row.standing != "waiting":
            by = ", ".join(row.sponsors) or "the charter"
            return f"{row.standing}, root {row.root}, admitted by {by} on {shown(row.since)[:10]}"
    raise NotFoundError(f"{name} is no member of federation {roll.name}")


def _begun(membership: Membership, name: str) -> x509.Certificate:
    """The root that other sponsors began to admit under that name."""
    rows = roll_of(membership, time.time()).members
    for row in rows:
        if row.participant == name and row.standing in {"invited", "member"}:
            raise ConflictError(
                f"{name} needs no more sponsors: {', '.join(row.sponsors)} signed its admission"
                + (
                    f"; `medusa-peer invite {name} --root CERT` prints its token again"
                    if row.standing == "invited"
                    else f", and it is a member since {shown(row.since)[:10]}"
                )
            )
    begun = {row.root for row in rows if (row.participant, row.standing) == (name, "waiting")}
    for member in membership.words.members.values():
        if begun == {short_fingerprint(member.certificate)} and member.participant == name:
            return member.certificate
    if begun:
        raise InvalidInputError(
            f"sponsors have signed different roots of {name} ({', '.join(sorted(begun))}): say "
            "which with --root CERT"
        )
    raise NotFoundError(
        f"this peer has heard of no sponsor that has begun to admit {name}: give its root with "
        "--root CERT or, if another sponsor has begun, say it again in some seconds "
        f"(`medusa-peer members` then shows {name} as waiting)"
    )


def _root(home: Home, root_home: Home | None, mend: str = SAY_WHERE) -> Root:
    return load_root(root_home or home, of=Identity.load(home.folder), mend=mend)


@contextmanager
def _reporting(
    home: Home, membership: Membership, now: float, agreed: Agreed = _nobody_asked
) -> Iterator[None]:
    """Save the block's statements, unless it fails or the user declines, and pass them to the
    running daemon."""
    before = frozenset(membership.statements())
    yield
    agreed()
    said = tuple(each for each in membership.statements() if each not in before)
    save_membership(home.folder, membership, now)
    if said:
        _hand_over(home, said)


def _hand_over(home: Home, statements: tuple[bytes, ...]) -> None:
    """Pass statements to the running daemon; a stopped one reads its file when it starts."""
    if not home.is_locked():
        return

    try:
        ask_daemon(home, lambda client: client.admit(statements))
    except MedusaError as error:
        warn(f"stored, but the running peer could not be told ({error}); restart it")
