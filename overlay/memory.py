"""The bound on what all connections of a peer hold together."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

MAX_HELD_BYTES: Final = 512 * 2**20
"""Bytes unread or waiting to be sent on all connections together: some dozen of the longest
messages under way on one of them. Views of larger reads make it at most four times as much in
memory (see `overlay.streams.store`)."""


@dataclass(slots=True)
class Memory:
    """Shared by the connections of one listener. held: bytes.

    A connection may hold as much as is free (dynamic thresholds, Choudhury and Hahne 1998): one
    alone half of the limit, n hostile ones 1/(n+1) each; so there is always room for one more.
    """

    limit: int = MAX_HELD_BYTES
    held: int = 0

    @property
    def free(self) -> int:
        return self.limit - self.held
