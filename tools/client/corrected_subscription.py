"""A client's subscription with corrections of tentative tuples, and with revisions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
import trio

from medusa.engine.objects.schema import BEGINNING, END, REVISED_STIME, STIME
from medusa.engine.streams.ordering import between
from medusa.engine.streams.revisions.columns import (
    SIGN,
    folded,
    multiplied,
    net,
    revisions_name,
    signed,
)
from medusa.engine.streams.revisions.corrections import Change, Corrections, Kind, corrector
from medusa.overlay.concurrency import Watched, until_one_ends
from medusa.overlay.errors import InvalidInputError, NotRetainedError
from medusa.tools.client.subscription import Epoch, Following, Source, Subscription

AGAIN_BYTES: Final = 512 * 2**20
"""Bytes of tuples that are emitted again after an UNDO, and of their revisions: a revision may
concern the stream's first tuples."""

__all__ = ["Change", "CorrectedSubscription", "Corrections"]


class CorrectedSubscription(Following[Change]):
    """The changes of a stream: stable tuples, tentative tuples and their corrections, and
    revisions.

    Acknowledged tuples are final but for later revisions; a client that crashes loses the others.
    The boundary reached is the lower of those of the stream and of its revisions.

    Args:
        corrections: the form of the corrections.
    """

    tentative = True

    def __init__(
        self,
        source: Source,
        stream: str,
        corrections: Corrections,
        *,
        after: int = BEGINNING,
        subscriber: str = "",
    ) -> None:
        super().__init__(source, stream, after=after, subscriber=subscriber)
        self._corrections = corrections
        self._corrector = corrector(corrections, after)
        self._revised = _Reached(END)
        self._stable = _Reached(after)
        self._began_at: int | None = None
        self._giving = trio.Lock()
        self._given = 0
        self._asked = _Reached(0)

    async def _acknowledge(self) -> None:
        self._asked.reach(self._taken + 1)
        await super()._acknowledge()

    async def _follow(self) -> None:
        entry = await self._source.entry_of(self.stream)
        self._corrector = corrector(self._corrections, self._after, entry.schema.key)
        if not entry.is_revised:
            await super()._follow()
            return
        self._revised = _Reached(self._after)
        beside = self._subscription(revisions_name(self.stream), self._after, self._subscriber)
        await until_one_ends(super()._follow, beside.run_on, partial(self._revise, beside))

    def _items(self, epoch: Epoch, *, tentative: bool) -> list[tuple[Change, int]]:
        correct = self._corrector.tentative if tentative else self._corrector.stable
        return self._numbered(correct(epoch))

    def _numbered(self, changes: Sequence[Change]) -> list[tuple[Change, int]]:
        """Changes, each with the boundary that both the stream and its revisions have reached."""
        reached = self._revised.at
        return [
            (replace(change, boundary=min(reached, change.boundary)), min(reached, change.boundary))
            for change in changes
        ]

    async def _emit(self, epoch: Epoch, *, tentative: bool) -> None:
        async with self._giving:
            if self._began_at is None and not tentative:
                self._began_at = epoch.after
            await self._give_all(self._items(epoch, tentative=tentative))
            if not tentative:
                self._stable.reach(epoch.upto)

    async def _give_all(self, items: Sequence[tuple[Change, int]]) -> None:
        for item in items:
            await self._give.send(item)
            self._given += 1

    async def _revise(self, beside: Subscription) -> None:
        """Emit revisions, each after the tuples that it revises."""
        async for epoch in beside:
            if epoch.table.num_rows:
                await self._stable.beyond(epoch.table.column(STIME)[-1].as_py() - 1)
            async with self._giving:
                changes = await self._changes(epoch)
                if not changes and self._revised.at < self._stable.at:
                    changes = [self._nothing()]  # the emitted tuples become final only now
                await self._give_all(self._numbered(changes[:-1]))
                self._revised.reach(epoch.upto)  # together with the last change
                await self._give_all(self._numbered(changes[-1:]))
                given = self._given
            if changes:
                # `beside` acknowledges the epoch only after the caller took its changes
                await self._asked.beyond(given)
        await trio.sleep_forever()  # the end of the stream itself ends this task

    def _nothing(self) -> Change:
        assert self._schema is not None
        at = self._stable.at
        return Change(Kind.INSERTION, at, at, self._schema.empty_table(), at)

    async def _changes(self, epoch: Epoch) -> list[Change]:
        schema = await self.schema()
        rows = epoch.table
        # tuples before it were never emitted
        if self._after == BEGINNING and self._began_at is not None:
            rows = rows.filter(pc.greater(rows.column(REVISED_STIME), self._began_at))
        if not rows.num_rows:
            return []
        if self._corrector.again:
            first = pc.min(rows.column(REVISED_STIME)).as_py()
            again = await self._again(first - 1, self._stable.at, epoch.upto)
            return self._corrector.repeated(again)
        summed = net([signed(rows).select([*schema.names, SIGN])])
        gone, come = (multiplied(summed, sign).cast(schema) for sign in (-1, 1))
        return self._corrector.revised(gone, come)

    async def _again(self, after: int, upto: int, position: int) -> Epoch:
        """The stable tuples of an interval, or of its kept part, with all revisions up to a
        position applied."""
        stable = await self._read(self.stream, after, upto)
        revisions = await self._read(revisions_name(self.stream), BEGINNING, position)
        times = revisions.table.column(REVISED_STIME)
        inside = pc.and_(pc.greater(times, stable.after), pc.less_equal(times, upto))
        table = folded(stable.table, [revisions.table.filter(inside)])
        return Epoch(stable.after, upto, table)

    async def _read(self, stream: str, after: int, upto: int) -> Epoch:
        """The tuples of a stream in an interval.

        Raises:
            InvalidInputError: the tuples exceed `AGAIN_BYTES`. MedusaError: the tuples cannot be
                read.
        """
        found: list[Epoch] = []
        left = AGAIN_BYTES

        async def read(since: int) -> None:
            subscription = self._subscription(stream, since)

            async def take() -> None:
                nonlocal left
                async for epoch in subscription:
                    found.append(epoch)
                    left -= epoch.bytes
                    if left < 0:
                        raise InvalidInputError(
                            f"{self.stream} is revised from boundary {after} on, and what follows "
                            f"takes more than {AGAIN_BYTES >> 20} MiB to tell again: follow it by "
                            "revisions instead of undo"
                        )
                    if epoch.upto >= upto:
                        return

            await until_one_ends(subscription.run_on, take)

        try:
            await read(after)
        except NotRetainedError:
            await read(BEGINNING)
        table = pa.concat_tables([epoch.table for epoch in found])
        return Epoch(max(after, found[0].after), upto, between(table, after, upto))

    def _subscription(self, stream: str, after: int, subscriber: str = "") -> Subscription:
        # this class reads it in trio's loop, whichever loop its caller runs in
        here = replace(self._source, portal=None)
        return Subscription(here, stream, after=after, subscriber=subscriber)


class _Reached:
    """A number that grows, and can be waited for."""

    def __init__(self, at: int) -> None:
        self._at = Watched(at)

    @property
    def at(self) -> int:
        return self._at.value

    def reach(self, at: int) -> None:
        if at > self._at.value:
            self._at.set(at)

    async def beyond(self, at: int) -> None:
        """Wait until the number is greater than that."""
        await trio.lowlevel.checkpoint()
        await self._at.until(lambda reached: reached > at)
