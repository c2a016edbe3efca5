"""Makes the home of a new peer: keys, certificates, settings, and a federation if asked.

All is written in a folder within the home first, the settings last, and then moved into the home,
the settings last. So the next call after one that was killed finds either all files or none: it
completes the home, with the same keys, or begins anew.
"""

from __future__ import annotations

import secrets
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from medusa.overlay.admission_policy import FOUNDER, AdmissionPolicy
from medusa.overlay.errors import ConflictError, NotFoundError
from medusa.overlay.files import write_atomically, write_secret
from medusa.overlay.identity import Identity, Root
from medusa.overlay.membership import Membership
from medusa.overlay.membership_file import load_membership, save_membership
from medusa.overlay.names import check_participant
from medusa.tools.home.addresses import Address
from medusa.tools.home.config import TEMPLATE, write_bootstrap
from medusa.tools.home.folder import TOKEN_BYTES, Home
from medusa.tools.home.reaching import addresses_of
from medusa.tools.home.root_key import load_root

FOLDER_MODE: Final = 0o700

MAKING: Final = ".making"
"""The folder within a home in which its files are written."""


@dataclass(frozen=True)
class Made:
    """A home that was made.

    Attributes:
        peer: its id, hex.
        federation: its name; None: it has not joined one yet.
    """

    participant: str
    peer: str
    federation: str | None


def make_peer(home: Home, participant: str, found: str | None, admission: str = FOUNDER) -> Made:
    """Make a participant's first peer, with the participant's root key.

    Args:
        found: the name of a federation to start. admission: its admission policy.

    Raises:
        ConflictError: the home has a peer already.
        InvalidInputError: a bad name, or no admission policy.
    """
    now = time.time()
    check_participant(participant)
    if _complete(home):
        return _made(home, participant, found)
    root = Root.create(participant, now)
    membership = None if found is None else Membership.found(root, now, found, admission)
    with _making(home) as place:
        root.save(place.folder)
        _furnish(place, root, membership, (), now)
    return _made(home, participant, found)


def make_sibling(home: Home, other: Home) -> Made:
    """Make another peer of the participant whose root key is in `other`, in the same federation.

    Raises:
        ConflictError: `home` has a peer already.
        NotFoundError: `other` is no home, or has no root key.
    """
    now = time.time()
    other.require()
    root = load_root(other)
    try:
        membership = load_membership(other.folder)
    except NotFoundError:
        membership = None
    federation = None if membership is None else membership.name
    if not _complete(home):
        addresses = addresses_of(other) if membership is not None else ()
        with _making(home) as place:
            _furnish(place, root, membership, addresses, now)
    return _made(home, root.participant, federation)


def next_steps(home: Home, made: Made) -> str:
    """Directions for the user after `medusa-peer init`."""
    lines = [f"peer {made.peer[:8]} of {made.participant} lives in {home.folder}"]
    run = f"medusa-peer run --home {home.folder}"
    if made.federation is None:
        lines += [
            "next, have a member of a federation admit you, with your root certificate:",
            f"    medusa-peer invite {made.participant} --root {home.root_certificate}",
            "then enter with the token it prints, and start the peer:",
            f"    medusa-peer join TOKEN --home {home.folder}",
            f"    {run}",
        ]
    else:
        lines += [f"it belongs to federation {made.federation}; start it:", f"    {run}"]
    if home.root_key.exists():
        lines.append(f"keep {home.root_key} safe: it signs your peers and whom you admit")
    return "\n".join(lines)


def first_admissions(policy: AdmissionPolicy) -> str:
    """How to admit the other sponsors, if the founder cannot admit participants alone; else "". The
    founder is the only member at the start."""
    others = [name for name in policy.sponsors if name != policy.founder]
    if not others:
        return ""
    if policy.needed == 1 and policy.founder in policy.sponsors:
        return ""
    needed = f"{policy.needed} of {', '.join(policy.sponsors)}"
    none = "" if policy.founder in policy.sponsors else f"; {policy.founder} is none of these"
    return (
        f"{policy.founder} alone admits the sponsors {', '.join(others)}; nobody else can be "
        f"admitted before {needed} are members and sign{none}"
    )


@contextmanager
def _making(home: Home) -> Iterator[Home]:
    """Make a home in the block, which writes its files into the yielded folder.

    Raises:
        ConflictError: there is a home already.
    """
    if home.exists or home.root_key.exists():
        raise ConflictError(
            f"{home.folder} is a peer's home already; choose another --home, or remove it first"
        )
    place = Home(home.folder / MAKING)
    home.folder.mkdir(mode=FOLDER_MODE, parents=True, exist_ok=True)
    shutil.rmtree(place.folder, ignore_errors=True)
    place.folder.mkdir(mode=FOLDER_MODE)
    yield place
    write_atomically(place.config, TEMPLATE.read_bytes())
    _complete(home)


def _complete(home: Home) -> bool:
    """Move the files of a home that is wholly written into their places; returns whether there were
    any."""
    place = Home(home.folder / MAKING)
    if not place.config.exists() and not (place.folder.exists() and home.config.exists()):
        return False
    home.data.mkdir(exist_ok=True)
    home.logs.mkdir(mode=FOLDER_MODE, exist_ok=True)
    last = (place.peer_certificate, place.config)
    for path in [*(path for path in place.folder.iterdir() if path not in last), *last]:
        if path.exists():
            path.rename(home.folder / path.name)
    place.folder.rmdir()
    return True


def _made(home: Home, participant: str, federation: str | None) -> Made:
    """The home that this call, or an earlier one that was killed, has made. Raises: ConflictError:
    the earlier call made another home.
    """
    identity = Identity.load(home.folder)
    try:
        name = load_membership(home.folder).name
    except NotFoundError:
        name = None
    if (identity.participant, name) != (participant, federation):
        raise ConflictError(
            f"{home.folder} is a peer's home already, of {identity.participant} in "
            f"{name or 'no federation yet'}: choose another --home, or remove it first"
        )
    return Made(identity.participant, identity.peer_id.hex(), name)


def _furnish(
    home: Home, root: Root, membership: Membership | None, join_by: tuple[Address, ...], now: float
) -> None:
    identity = Identity.issue(root, now)
    write_secret(home.token, secrets.token_hex(TOKEN_BYTES).encode())
    if membership is not None:
        save_membership(home.folder, membership, now)
    if join_by:
        write_bootstrap(home, join_by)
    identity.save(home.folder)
