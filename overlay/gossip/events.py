"""The detector's boundary: what can happen to it, and what it wants done."""

from __future__ import annotations

from enum import StrEnum
from typing import TypeAlias

from msgspec import Struct

from overlay.gossip.messages import Packet, State
from overlay.names import PeerId


class Health(StrEnum):
    """What this peer believes of another."""

    ALIVE = "alive"
    SUSPECT = "suspect"
    """It did not answer somebody; it may yet refute that."""
    DEAD = "dead"
    LEFT = "left"
    """It said that it stops."""

    @property
    def gone(self) -> bool:
        """Nobody waits for it any more."""
        return self in {Health.DEAD, Health.LEFT}


class Received(Struct, frozen=True):
    """A datagram of a peer in good standing; the driver has verified who sent it."""

    sender: PeerId
    packet: Packet


class Tick(Struct, frozen=True):
    """It is `next_due()` or later; how much later counts as slowness of our own."""


class Doubt(Struct, frozen=True):
    """Evidence that a peer does not forward: a connection to it broke, or its writes stall.

    Attributes:
        gone: its machine says that nobody listens on the peer's port.
    """

    peer: PeerId
    gone: bool = False


class Reached(Struct, frozen=True):
    """A probe was answered over the stream."""

    peer: PeerId
    number: int


class Joined(Struct, frozen=True):
    """The roster has this peer, or a newer incarnation of it."""

    peer: PeerId


class Removed(Struct, frozen=True):
    """The roster has this peer no more: it was revoked, or its certificate ended."""

    peer: PeerId


class Leave(Struct, frozen=True):
    """We stop, in good order."""


class PublishDigest(Struct, frozen=True):
    """From now on this is what we say of ourselves."""

    content: bytes


class Synced(Struct, frozen=True):
    """The other half of a push-pull."""

    peer: PeerId
    state: State


Event: TypeAlias = (
    Received | Tick | Doubt | Reached | Joined | Removed | Leave | PublishDigest | Synced
)


class Persist(Struct, frozen=True):
    """Write down that incarnations up to this one may have been used, before what follows."""

    incarnation: int


class Send(Struct, frozen=True):
    """A datagram; it may get lost."""

    peer: PeerId
    packet: Packet


class Changed(Struct, frozen=True):
    """What we believe of a peer has changed."""

    peer: PeerId
    health: Health


class Said(Struct, frozen=True):
    """A peer says something new of itself: its newest digest."""

    peer: PeerId
    content: bytes


class Reach(Struct, frozen=True):
    """Try the peer over the stream: `Reached` if it answers, `Doubt(gone=True)` if refused.

    May be ignored: it only helps where datagrams do not pass.
    """

    peer: PeerId
    number: int


class PushPull(Struct, frozen=True):
    """Exchange `Detector.state()` with that peer; both sides get `Synced`."""

    peer: PeerId


Effect: TypeAlias = Persist | Send | Changed | Said | Reach | PushPull
