"""The detector's events (inputs) and effects (outputs)."""

from __future__ import annotations

from enum import StrEnum
from typing import TypeAlias

from msgspec import Struct

from medusa.overlay.gossip.messages import Packet, State
from medusa.overlay.names import PeerId


class Health(StrEnum):
    """The health of another peer, as this peer believes it."""

    ALIVE = "alive"
    SUSPECT = "suspect"
    """The peer did not answer another one; it can still refute the suspicion."""
    DEAD = "dead"
    LEFT = "left"
    """The peer has announced that it leaves."""

    @property
    def gone(self) -> bool:
        """Dead or left: nobody waits for it."""
        return self in {Health.DEAD, Health.LEFT}


class Received(Struct, frozen=True):
    """A datagram from a peer in good standing; the driver has verified its sender."""

    sender: PeerId
    packet: Packet


class Tick(Struct, frozen=True):
    """The time is `next_due()` or later; lateness counts as slowness of this process."""


class Doubt(Struct, frozen=True):
    """Evidence that a peer does not forward: a connection to it broke, or its writes stall.

    Attributes:
        gone: its machine refuses connections to the peer's port.
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
    """The roster no longer has this peer: it was revoked, or its certificate ended."""

    peer: PeerId


class Leave(Struct, frozen=True):
    """This peer leaves in good order."""


class PublishDigest(Struct, frozen=True):
    """Replace this peer's digest."""

    content: bytes


class Synced(Struct, frozen=True):
    """The other half of a push-pull."""

    peer: PeerId
    state: State


Event: TypeAlias = (
    Received | Tick | Doubt | Reached | Joined | Removed | Leave | PublishDigest | Synced
)


class Persist(Struct, frozen=True):
    """Reserve incarnations up to this one on disk, before the next effects are carried out."""

    incarnation: int


class Send(Struct, frozen=True):
    """A datagram; it may get lost."""

    peer: PeerId
    packet: Packet


class Changed(Struct, frozen=True):
    """The believed health of a peer has changed."""

    peer: PeerId
    health: Health


class DigestChanged(Struct, frozen=True):
    """A peer published a new digest."""

    peer: PeerId
    content: bytes


class Reach(Struct, frozen=True):
    """Probe the peer over the stream: report `Reached` if it answers, `Doubt(gone=True)` if
    refused.

    The driver may ignore it: it only helps where datagrams do not pass.
    """

    peer: PeerId
    number: int


class PushPull(Struct, frozen=True):
    """Exchange `Detector.state()` with that peer; both sides get `Synced`."""

    peer: PeerId


Effect: TypeAlias = Persist | Send | Changed | DigestChanged | Reach | PushPull
