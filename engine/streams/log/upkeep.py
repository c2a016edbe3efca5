"""The upkeep of a log: which files go, and which become one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa
import trio

from medusa.engine.streams.log.damage import Damage
from medusa.engine.streams.log.epochs import EpochDamagedError, EpochFile, EpochWriter, pinned
from medusa.engine.streams.log.folder import EpochFolder, choose, merge
from medusa.engine.streams.log.folding import folded, worth_folding
from medusa.engine.streams.log.reached import Reached
from medusa.engine.streams.log.retention import Hold, Retention


class Upkeep:
    """Drops, merges and folds the files of one log.

    Attributes:
        table_key: the key, if the log belongs to a table; then tuples that no reader needs are
            folded, not dropped.
    """

    def __init__(
        self,
        folder: EpochFolder,
        schema: pa.Schema,
        retention: Retention,
        reached: Reached,
        damage: Damage,
    ) -> None:
        self._folder = folder
        self._schema = schema
        self._retention = retention
        self._reached = reached
        self._damage = damage
        self._compacting = False
        self.table_key: tuple[str, ...] = ()

    def needed(self, without: frozenset[Hold]) -> int:
        """The boundary that all consumers except these have reached; without consumers, the
        boundary of the log."""
        return min(self._reached.boundary, self._retention.held(without))

    def held_by_others(self, now: float) -> Iterator[tuple[Hold, str, int, float]]:
        """(consumer, holder, bytes, since) of other participants' consumers that keep files which
        no consumer of ours needs. since: when the consumer began to keep them; since and now:
        seconds of trio's clock."""
        retention, files = self._retention, self._folder.files
        if not retention.is_held_by_others:
            return
        floor = self._floor(now, foreign=False)
        for consumer, holder, boundary, since in retention.lagging(floor, now):
            state = sum(f.bytes for f in files[:-1] if boundary < f.upto <= floor)
            if state:
                yield consumer, holder, state, since

    def retain(self, now: float) -> int:
        """Drop the files that no consumer needs and that history has passed, from the oldest on, up
        to one that a reader pins; returns their number. now: seconds of trio's clock. Raises:
        StorageError: the disk does not allow it.
        """
        if now < self._retention.rests_until:
            return 0
        if self.table_key:
            self._retention.rest()
            return 0
        files, floor = self._folder.files, self._floor(now)
        count = 0
        # The newest file always stays, because its name is the boundary.
        while len(files) > 1 and files[0].upto <= floor:
            if files[0].pins:
                return count
            self._folder.drop_oldest()
            count += 1
        self._retention.rest()
        return count

    async def compact(self) -> int:
        """Merge one run of small files, if that is worthwhile, or fold the tuples of a table that
        nobody needs; returns how many files became one.

        Raises:
            StorageError: the disk does not take the merged file; nothing was changed.
        """
        run, merge_run = self._foldable(), self._fold
        if not run:
            run, merge_run = choose(self._folder.files), self._merge
        if self._compacting or not run:
            return 0
        self._compacting = True
        try:
            with pinned(run):
                writer = await trio.to_thread.run_sync(merge_run, run)
                self._retention.stir()
                return self._folder.replace(run, writer)
        except EpochDamagedError as error:
            self._damage.find(error.path)
            return 0
        finally:
            self._compacting = False

    def _floor(self, now: float, *, foreign: bool = True) -> int:
        newest = self._folder.files.last_stime
        return self._retention.floor(self._reached.boundary, newest, now, foreign=foreign)

    def _foldable(self) -> Sequence[EpochFile]:
        if not self.table_key:
            return ()
        return worth_folding(self._folder.files, self._floor(trio.current_time()))

    def _fold(self, run: Sequence[EpochFile]) -> EpochWriter:
        return folded(run, self._folder.path, self._schema, self.table_key, durable=True)

    def _merge(self, run: Sequence[EpochFile]) -> EpochWriter:
        # Synced in any case, because the replaced files may have been on the disk for long.
        return merge(run, self._folder.path, self._schema, durable=True)
