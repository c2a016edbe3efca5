"""Streams that a peer sells or pays for: their local logs, and meters that count their tuples."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Protocol

import trio

from medusa.contracts.deals import ContentRate, Deal, DealKey
from medusa.contracts.desk import MICROS
from medusa.contracts.ledger import Ledger, Standing
from medusa.contracts.payer import SKEW_S
from medusa.engine.objects.schema import BEGINNING, END
from medusa.engine.replication.following.book import Followers
from medusa.engine.streams.log.retention import Hold
from medusa.engine.streams.store.store import StreamStore
from medusa.engine.streams.store.stream_state import Role, StreamState
from medusa.overlay.errors import NotFoundError
from medusa.tools.market.boundaries import clamped, stime_of
from medusa.tools.market.content_deals import deals_in, rate_of

SKEW_US: Final = int(SKEW_S * MICROS)


class Meter(Protocol):
    """Counts the tuples of a deal."""

    @property
    def boundary(self) -> int:
        """The boundary up to which the deal can be billed, microseconds of stime."""

    def count(self, after: int, upto: int) -> int:
        """Tuples with after < stime <= upto that are still kept.

        Raises:
            MedusaError: they cannot be counted.
        """


@dataclass(frozen=True)
class StreamMeter:
    """Counts in a stream's log. now: microseconds UTC. bills: True for the payee; False for the
    payer, which checks the bill."""

    state: StreamState
    rate: ContentRate
    now: int
    bills: bool

    @property
    def boundary(self) -> int:
        """The boundary up to which the deal can be billed. For the payee an ended stream ends at
        its last tuple, because the time after it has no periods. With periods, a boundary in the
        future does not count."""
        log = self.state.log
        boundary = log.boundary
        if boundary == END and self.bills:
            boundary = BEGINNING if log.files.last_stime is None else log.files.last_stime
        if self.rate.period_us:
            boundary = min(boundary, self.now + (0 if self.bills else SKEW_US))
        return boundary

    def count(self, after: int, upto: int) -> int:
        """Tuples with after < stime <= upto that are still kept."""
        log = self.state.log
        after = max(after, log.start)
        return log.reader.count(after, upto) if after < upto else 0


@dataclass(frozen=True)
class Tail:
    """The receiver's count at the end of its deal: its copy is gone, or is read on unpaid."""

    standing: Standing
    ledger: Ledger

    @property
    def boundary(self) -> int:
        assert self.standing.end is not None, "only an ended deal has a tail"
        return self.standing.end

    def count(self, after: int, upto: int) -> int:
        """The count of all unpaid tuples; parts of it cannot be counted.

        Raises:
            NotFoundError: another interval is asked for.
        """
        standing = self.standing
        if standing.tail is None or (clamped(after), upto) != (standing.billed, standing.end):
            raise NotFoundError(f"{standing.deal.task}: was counted up to its end, not to {upto}")
        since, rows = standing.tail
        return max(0, rows - self.ledger.rows_paid(standing.deal.key, since))


class PaidStreams:
    """The logs of the streams that this peer sells, or pays for, and the boundaries up to which
    they are billed.

    Args:
        own: this peer's id. lease_s: how long tuples are kept for a reader that went away.
        clock: seconds since the epoch.
    """

    def __init__(
        self,
        *,
        own: bytes,
        ledger: Ledger,
        store: StreamStore,
        followers: Followers,
        lease_s: float,
        clock: Callable[[], float],
    ) -> None:
        self._own = own
        self._ledger = ledger
        self._store = store
        self._followers = followers
        self._lease_s = lease_s
        self._clock = clock
        self._read_as: dict[str, str] = {}
        self._billed: dict[DealKey, tuple[int, float]] = {}

    def sold(self, stream: str) -> StreamState | None:
        """The stream, if this peer makes it."""
        state = self._store.get(stream)
        return None if state is None or state.role is Role.FOLLOWER else state

    def received(self, stream: str) -> StreamState | None:
        """The copy that our queries read under that name."""
        for state in self._followers.followed():
            if self.name_of(state.name) == stream:
                return state
        return None

    def state(self, name: str) -> StreamState | None:
        """The stream that this peer keeps under that name."""
        return self._store.get(name)

    def name_of(self, mirror: str) -> str:
        """The name under which a copy is read: the name of another stream, if the copy is read in
        its place."""
        return self._read_as.get(mirror, mirror)

    def read_as(self, mirror: str, name: str) -> None:
        """Read that copy under that name from now on."""
        self._read_as[mirror] = name

    def read_no_more(self, mirror: str) -> str:
        """Note that no query of ours reads that copy any more; returns the name under which it was
        read."""
        return self._read_as.pop(mirror, mirror)

    def meter(self, deal: Deal) -> Meter:
        """The meter of a deal for a stream.

        Raises:
            NotFoundError: it is not here.
        """
        standing = self._ledger.deal(deal.key)
        state = self._log_of(deal)
        if standing is not None and deal.payer == self._own and standing.end is not None:
            return Tail(standing, self._ledger)
        if standing is None or state is None:
            raise NotFoundError(f"{deal.task} is not kept here")
        now = int(self._clock() * MICROS)
        return StreamMeter(state, rate_of(standing), now, bills=deal.payee == self._own)

    def hold_for_bills(self) -> None:
        """Keep the uncounted tuples, as long as for a reader that went away."""
        for standing in deals_in(self._ledger):
            deal, state = standing.deal, self._log_of(standing.deal)
            if state is None:
                continue
            consumer = Hold("bill", f"{deal.contract} {deal.payer.hex()} {deal.term_number}")
            if _counted(standing):
                state.log.retention.release(consumer)
                self._billed.pop(deal.key, None)
                continue
            billed, at = self._billed.get(deal.key, (None, 0.0))
            if billed != standing.billed:
                at = trio.current_time()
                self._billed[deal.key] = standing.billed, at
            state.log.retention.hold(consumer, stime_of(standing.billed), at + self._lease_s)

    def _log_of(self, deal: Deal) -> StreamState | None:
        return self.sold(deal.task) if deal.payee == self._own else self.received(deal.task)


def _counted(standing: Standing) -> bool:
    """Whether nothing more of the deal has to be counted."""
    return standing.end is not None and (standing.paid or standing.tail is not None)
