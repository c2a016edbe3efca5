"""Signed claims: a peer's statements about its own health or that of another peer, passed on
unchanged.

A claim is a fixed layout of big-endian fields and 64 bytes of signature, so each claim has one
encoding:

    alive, left      kind u8, subject (20), incarnation u64
    suspect, dead    kind u8, subject (20), incarnation u64, author (20)
"""

from __future__ import annotations

from enum import IntEnum
from struct import Struct as Layout
from typing import Final, Protocol

from msgspec import Struct

from medusa.overlay.errors import DecodeError, UntrustedError
from medusa.overlay.gossip.events import Persist
from medusa.overlay.names import PEER_ID_BYTES, PeerId
from medusa.overlay.peers import PeerTable
from medusa.overlay.signing import sign, verify

CLAIM_DOMAIN: Final = "medusa gossip claim"

SIGNATURE_BYTES: Final = 64
"""Bytes of an Ed25519 signature; a simulation's cheaper signatures have the same length."""

MAX_INCARNATION: Final = 2**62
"""The greatest incarnation that a claim can encode. Peers believe far less: see
`Members.latest`."""

_OWN: Final = Layout("!B20sQ")
_OTHERS: Final = Layout("!B20sQ20s")

OWN_BYTES: Final = _OWN.size + SIGNATURE_BYTES
OTHERS_BYTES: Final = _OTHERS.size + SIGNATURE_BYTES


class Keys(Protocol):
    """Signs for this peer and verifies for all: Ed25519, or something cheap in a simulation.

    A signature must hold for its domain only, and within this federation only.
    """

    def sign(self, domain: str, payload: bytes) -> bytes:
        """`SIGNATURE_BYTES` bytes."""
        ...

    def verify(self, author: PeerId, domain: str, payload: bytes, signature: bytes) -> bool:
        """Whether the peer `author` signed the payload and is in good standing."""
        ...


class Word(IntEnum):
    """The kinds of claim. Only the subject itself can claim that it is alive, or has left."""

    ALIVE = 1
    SUSPECT = 2
    DEAD = 3
    LEFT = 4


class Claim(Struct, frozen=True):
    """A decoded claim, whose signature is not yet verified.

    Attributes:
        incarnation: the incarnation of the subject: the claim does not concern later ones.
        author: the signer.
        data: the encoded claim.
    """

    word: Word
    subject: PeerId
    incarnation: int
    author: PeerId
    data: bytes


_OWN_WORDS: Final = {int(Word.ALIVE): Word.ALIVE, int(Word.LEFT): Word.LEFT}
_OTHERS_WORDS: Final = {int(Word.SUSPECT): Word.SUSPECT, int(Word.DEAD): Word.DEAD}


def make_claim(keys: Keys, me: PeerId, word: Word, subject: PeerId, incarnation: int) -> Claim:
    """Sign a claim of our own."""
    assert (subject == me) == (word in _OWN_WORDS.values())
    assert len(subject) == len(me) == PEER_ID_BYTES
    if subject == me:
        payload = _OWN.pack(word, subject, incarnation)
    else:
        payload = _OTHERS.pack(word, subject, incarnation, me)
    data = payload + keys.sign(CLAIM_DOMAIN, payload)
    return Claim(word, subject, incarnation, me, data)


def read_claim(data: bytes) -> Claim:
    """
    Raises:
        DecodeError: no claim. No bytes raise another error.
    """
    if len(data) == OTHERS_BYTES:
        kind, subject, incarnation, author = _OTHERS.unpack_from(data)
        word = _OTHERS_WORDS.get(kind)
    elif len(data) == OWN_BYTES:
        kind, subject, incarnation = _OWN.unpack_from(data)
        author, word = subject, _OWN_WORDS.get(kind)
    else:
        raise DecodeError(f"gossip claim: of {len(data)} bytes")
    if word is None or incarnation > MAX_INCARNATION:
        raise DecodeError("gossip claim: a field out of its bounds")
    if (author == subject) != (len(data) == OWN_BYTES):
        raise DecodeError("gossip claim: nobody accuses itself")
    return Claim(word, subject, incarnation, author, data)


def is_signed(claim: Claim, keys: Keys) -> bool:
    """Whether the claim's author signed it."""
    payload, signature = claim.data[:-SIGNATURE_BYTES], claim.data[-SIGNATURE_BYTES:]
    return keys.verify(claim.author, CLAIM_DOMAIN, payload, signature)


RESERVE: Final = 1000
"""Incarnations that are reserved on disk before their use: one write for a thousand refutations."""


class Standing:
    """This peer's own incarnation, and its signed claim about itself.

    Attributes:
        claim: the latest claim.
    """

    def __init__(self, me: PeerId, keys: Keys, incarnation: int, reserved: int) -> None:
        """reserved: the highest incarnation reserved on disk."""
        self._me = me
        self._keys = keys
        self._reserved = reserved
        self.claim = make_claim(keys, me, Word.ALIVE, me, incarnation)

    @property
    def incarnation(self) -> int:
        return self.claim.incarnation

    @property
    def left(self) -> bool:
        return self.claim.word is Word.LEFT

    def outdo(self, incarnation: int) -> list[Persist]:
        """Claim to be alive in an incarnation above that one; effects reserve it on disk first."""
        ours = min(max(incarnation, self.incarnation) + 1, MAX_INCARNATION)
        if ours > self._reserved:
            return [self.begin(ours)]
        self._say_alive(ours)
        return []

    def begin(self, incarnation: int) -> Persist:
        """Claim to be alive in that incarnation, even if it is lower than before; the effect
        reserves it on disk first."""
        self._say_alive(incarnation)
        self._reserved = min(incarnation + RESERVE, MAX_INCARNATION)
        return Persist(self._reserved)

    def _say_alive(self, incarnation: int) -> None:
        self.claim = make_claim(self._keys, self._me, Word.ALIVE, self._me, incarnation)

    def leave(self) -> None:
        """Claim that this peer leaves."""
        self.claim = make_claim(self._keys, self._me, Word.LEFT, self._me, self.incarnation)


class PeerKeys:
    """Ed25519 signatures that hold for this federation only; see `Keys`."""

    def __init__(self, peers: PeerTable) -> None:
        self._peers = peers
        self._suffix = " of " + peers.federation

    def sign(self, domain: str, payload: bytes) -> bytes:
        return sign(self._peers.identity.private_key, domain + self._suffix, payload)

    def verify(self, author: PeerId, domain: str, payload: bytes, signature: bytes) -> bool:
        record = self._peers.get(author)
        if record is None:
            return False
        try:
            verify(record.public_key, domain + self._suffix, payload, signature)
        except UntrustedError:
            return False
        return True
