"""Names: of participants (`mit.edu`) and of their objects (`medusa://mit.edu/path`)."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, NewType

from medusa.overlay.errors import InvalidInputError

PeerId = NewType("PeerId", bytes)
"""The id of a peer: the first 20 bytes of the SHA-256 of its public key; empty: no peer. Files,
clients' calls and texts have it as 40 hexadecimal digits: see `parse_peer_id`."""

PEER_ID_BYTES: Final = 20
"""Bytes of a peer id: Kademlia's 160 bits."""

NO_PEER: Final = PeerId(b"")

SCHEME: Final = "medusa://"

MAX_PARTICIPANT: Final = 64
"""Characters of a participant's name: as many as an X.509 common name holds (RFC 5280,
ub-common-name)."""

MAX_NAME: Final = 256
"""Characters of a whole object name. It is part of keys, paths and 1-KiB records."""

_LABEL = re.compile(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?")
_SEGMENT = re.compile(r"[A-Za-z0-9._-]+")


def check_participant(text: str) -> str:
    """Return the participant's name if it is valid: labels of a-z, 0-9 and inner '-', joined by
    dots.

    Raises:
        InvalidInputError: it is not valid; the message says why.
    """
    if not 0 < len(text) <= MAX_PARTICIPANT:
        raise InvalidInputError(
            f"participant name {_shown(text)}: {len(text)} characters, not 1 to {MAX_PARTICIPANT}"
        )
    for label in text.split("."):
        if _LABEL.fullmatch(label) is None:
            raise InvalidInputError(
                f"participant name {_shown(text)}: {_shown(label)} is not a label; "
                "use lower-case letters, digits and inner hyphens, like mit.edu"
            )
    return text


@dataclass(frozen=True, order=True, slots=True)
class ObjectName:
    """`medusa://participant/path`; constructed by `parse` or `child`, which check it."""

    participant: str
    path: str

    @staticmethod
    def parse(text: str) -> ObjectName:
        """
        Raises:
            InvalidInputError: it is not an object name; says which part is wrong.
        """
        if not text.startswith(SCHEME):
            raise InvalidInputError(
                f"object name {_shown(text)}: must look like medusa://participant/path"
            )
        if len(text) > MAX_NAME:
            raise InvalidInputError(
                f"object name {_shown(text)}: {len(text)} characters, at most {MAX_NAME} allowed"
            )
        participant, _, path = text[len(SCHEME) :].partition("/")
        check_participant(participant)
        for segment in path.split("/"):
            # "." and ".." would name other folders once a name becomes a path on disk
            if _SEGMENT.fullmatch(segment) is None or segment in {".", ".."}:
                raise InvalidInputError(
                    f"object name {_shown(text)}: {_shown(segment)} is not a path segment; "
                    "use letters, digits, '.', '_' and '-'"
                )
        return ObjectName(participant, path)

    def child(self, segment: str) -> ObjectName:
        """This name with one more segment (or several, joined by '/').

        Raises:
            InvalidInputError: it gives no object name.
        """
        return ObjectName.parse(f"{self}/{segment}")

    def __str__(self) -> str:
        return f"{SCHEME}{self.participant}/{self.path}"


def _shown(text: str) -> str:
    """The text quoted and cut, so that hostile input neither fills nor breaks a one-line
    message."""
    return ascii(text if len(text) <= 80 else text[:77] + "...")
