"""What counts the tuples of a stream that is paid for: at who sends it, and at who receives it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from contracts.deals import ContentRate
from contracts.desk import MICROS
from contracts.ledger import Ledger, Standing
from contracts.payer import SKEW_S
from engine.objects.schema import BEGINNING, END
from engine.streams.kept import KeptStream
from overlay.errors import NotFoundError
from tools.market.boundaries import clamped

SKEW_US: Final = int(SKEW_S * MICROS)


@dataclass(frozen=True)
class StreamMeter:
    """A stream's log. now: microseconds UTC. bills: for who is paid; else for who checks that."""

    kept: KeptStream
    rate: ContentRate
    now: int
    bills: bool

    @property
    def boundary(self) -> int:
        """Up to where it can be billed. The end of an ended stream is its last tuple, as the rest
        of all time has no periods; nor does a boundary promised beyond the present."""
        log = self.kept.log
        boundary = log.boundary
        if boundary == END and self.bills:
            boundary = BEGINNING if log.last_stime is None else log.last_stime
        if self.rate.period_us:
            boundary = min(boundary, self.now + (0 if self.bills else SKEW_US))
        return boundary

    def count(self, after: int, upto: int) -> int:
        """Tuples with after < stime <= upto, as far as they are still kept."""
        log = self.kept.log
        after = max(after, log.start)
        return log.count(after, upto) if after < upto else 0


@dataclass(frozen=True)
class Tail:
    """What the receiver counted when the deal ended: its mirror is gone, or goes on unpaid."""

    standing: Standing
    ledger: Ledger

    @property
    def boundary(self) -> int:
        assert self.standing.end is not None, "only an ended deal has a tail"
        return self.standing.end

    def count(self, after: int, upto: int) -> int:
        """All that is still to be paid, and no part of it.

        Raises:
            NotFoundError: another interval is asked for.
        """
        standing = self.standing
        if standing.tail is None or (clamped(after), upto) != (standing.billed, standing.end):
            raise NotFoundError(f"{standing.deal.task}: was counted up to its end, not to {upto}")
        since, rows = standing.tail
        return max(0, rows - self.ledger.rows_paid(standing.deal.key, since))
