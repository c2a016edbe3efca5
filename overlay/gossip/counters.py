"""What the detector has done, and what it dropped by policy."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class Counters:
    """
    Attributes:
        probes, acked, failed: probes started, answered in time, and not.
        indirect: probes that asked others for help.
        suspected, died, revived: changes of what we believe of others.
        refuted: accusations of ourselves that we answered.
        late: ticks that came so late that we were the slow ones.
        claims: claims believed. old: not news. ahead: of an incarnation that its subject has not
            signed, as far as we know. unknown: by or about no member. excessive: by a peer that
            accuses more than an honest one can. future: of an incarnation that no clock can have
            made yet. forged: not signed by their author. malformed: no
            claims, or no digests. digests: digests taken in.
    """

    probes: int = 0
    acked: int = 0
    failed: int = 0
    indirect: int = 0
    suspected: int = 0
    died: int = 0
    revived: int = 0
    refuted: int = 0
    late: int = 0
    claims: int = 0
    old: int = 0
    ahead: int = 0
    unknown: int = 0
    excessive: int = 0
    future: int = 0
    forged: int = 0
    malformed: int = 0
    digests: int = 0
