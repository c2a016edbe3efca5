"""Corrections: the messages by which a client learns that tentative tuples were wrong. Sans IO.

Both ways take stable and tentative epochs, and leave the client with the stable tuples. In between:

* `undo` (Delay, Process and Correct; TODS 2008): UNDO withdraws every tentative tuple, the stable
  ones follow, and REC_DONE says that no tentative tuple is left, not even one of newer input.
* `revisions` (Borealis, CIDR 2005): only the difference, as DELETION and INSERTION, or REPLACEMENT
  if the old tuple and the new one have the same key.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from medusa.engine.objects.schema import STIME
from medusa.engine.streams.log.recent import Epoch
from medusa.engine.streams.ordering import between, repeated

TENTATIVE_BYTES: Final = 256 * 2**20
"""Arrow bytes of tentative tuples kept for comparison. In a longer failure the oldest are undone
early; the stable ones follow when it is over."""

_SIGN: Final = "sign "
"""The name of the column with a tuple's sign in a difference; no field's name has a blank."""


class Corrections(StrEnum):
    """The forms in which a client can receive corrections."""

    UNDO = "undo"
    REVISIONS = "revisions"


class Kind(StrEnum):
    """Kinds of change, in the words of Borealis."""

    INSERTION = "INSERTION"
    """New tuples that are final."""
    TENTATIVE = "TENTATIVE"
    """New tuples that may be corrected."""
    UNDO = "UNDO"
    """The tentative tuples with after < stime <= upto are void. If the client gets revisions in
    this form, so are the stable ones, which are sent again."""
    REC_DONE = "REC_DONE"
    """No tentative tuple is left: everything up to `upto` is final."""
    DELETION = "DELETION"
    """These tuples are deleted."""
    REPLACEMENT = "REPLACEMENT"
    """These tuples replace the tuples with the same keys."""


@dataclass(frozen=True, slots=True, eq=False)
class Change:
    """One change of a stream as a client knows it.

    Attributes:
        after, upto: the interval of the change, microseconds of stime.
        table: its tuples; none in an UNDO and a REC_DONE.
        boundary: everything up to it is final after this change.
    """

    kind: Kind
    after: int
    upto: int
    table: pa.Table
    boundary: int


class Corrector(Protocol):
    """Makes changes of stable and tentative epochs, each flow in order, and of revisions.

    Attributes:
        again: whether it emits revisions as all tuples from the first revised one on.
    """

    again: bool

    def stable(self, epoch: Epoch) -> list[Change]: ...

    def tentative(self, epoch: Epoch) -> list[Change]: ...

    def revised(self, gone: pa.Table, come: pa.Table) -> list[Change]:
        """The changes for deleted and inserted tuples of stable epochs, both in any order."""

    def repeated(self, epoch: Epoch) -> list[Change]:
        """The changes that repeat all stable tuples from a boundary on, as they are now; used if
        `again` is set."""


def corrector(how: Corrections, after: int, key: Sequence[str] = ()) -> Corrector:
    """The corrector for a client's choice of messages.

    Args:
        after: the boundary that the client has, microseconds.
        key: the fields that identify a tuple; empty: only a whole tuple does.
    """
    match how:
        case Corrections.UNDO:
            return _Undoing(after)
        case Corrections.REVISIONS:
            return _Revising(after, key)


class _Undoing:
    again = True

    def __init__(self, after: int) -> None:
        self._boundary = after
        self._seen = after
        self._undone = False

    def stable(self, epoch: Epoch) -> list[Change]:
        nothing = epoch.table.slice(0, 0)
        changes: list[Change] = []
        if self._seen > self._boundary and not self._undone:
            undo = Change(Kind.UNDO, self._boundary, self._seen, nothing, self._boundary)
            changes.append(undo)
            self._undone = True
        after, self._boundary = epoch.after, epoch.upto
        changes.append(Change(Kind.INSERTION, after, epoch.upto, epoch.table, epoch.upto))
        if self._undone and self._boundary >= self._seen:
            changes.append(Change(Kind.REC_DONE, after, epoch.upto, nothing, epoch.upto))
            self._undone = False
        self._seen = max(self._seen, self._boundary)
        return changes

    def tentative(self, epoch: Epoch) -> list[Change]:
        if epoch.upto <= self._seen:
            return []
        # a client that asked for all tuples learns where they begin
        after = max(self._seen, epoch.after)
        rows = between(epoch.table, after, epoch.upto)
        change = Change(Kind.TENTATIVE, after, epoch.upto, rows, self._boundary)
        self._seen = epoch.upto
        return [change]

    def revised(self, gone: pa.Table, come: pa.Table) -> list[Change]:
        raise AssertionError("all of it is repeated instead")

    def repeated(self, epoch: Epoch) -> list[Change]:
        nothing, after, upto = epoch.table.slice(0, 0), epoch.after, epoch.upto
        changes = [
            Change(Kind.UNDO, after, upto, nothing, self._boundary),
            Change(Kind.INSERTION, after, upto, epoch.table, self._boundary),
        ]
        # otherwise tentative tuples remain, and a REC_DONE follows later
        if self._seen <= self._boundary:
            changes.append(Change(Kind.REC_DONE, after, upto, nothing, self._boundary))
        return changes


class _Revising:
    again = False

    def __init__(self, after: int, key: Sequence[str]) -> None:
        self._boundary = after
        self._seen = after
        self._key = [STIME, *(name for name in key if name != STIME)] if key else []
        self._kept: deque[Epoch] = deque()
        self._bytes = 0

    def tentative(self, epoch: Epoch) -> list[Change]:
        if epoch.upto <= self._seen:
            return []
        # a client that asked for all tuples learns where they begin
        after = max(self._seen, epoch.after)
        kept = Epoch(after, epoch.upto, between(epoch.table, after, epoch.upto))
        self._kept.append(kept)
        self._bytes += kept.bytes
        self._seen = epoch.upto
        change = Change(Kind.TENTATIVE, kept.after, kept.upto, kept.table, self._boundary)
        return [change, *self._take_back()]

    def stable(self, epoch: Epoch) -> list[Change]:
        known = min(epoch.upto, self._seen)
        before = self._known_upto(epoch.table.schema, known)
        now = between(epoch.table, epoch.after, known)
        gone, come = difference(before, now)
        replaced = self._replaced(gone, come)
        rest = between(epoch.table, known, epoch.upto)
        self._boundary, self._seen = epoch.upto, max(self._seen, epoch.upto)
        changes = _changes(replaced, epoch.after, known, epoch.after)
        changes.append(
            Change(Kind.INSERTION, max(epoch.after, known), epoch.upto, rest, epoch.upto)
        )
        return changes

    def revised(self, gone: pa.Table, come: pa.Table) -> list[Change]:
        chunks = [*gone.column(STIME).chunks, *come.column(STIME).chunks]
        times = pa.chunked_array(chunks, pa.int64())
        ends = pc.min_max(times)
        if ends["min"].as_py() is None:
            return []
        replaced = self._replaced(gone, come)
        return _changes(replaced, ends["min"].as_py() - 1, ends["max"].as_py(), self._boundary)

    def repeated(self, epoch: Epoch) -> list[Change]:
        raise AssertionError("the difference alone is told")

    def _take_back(self) -> list[Change]:
        """Undo the oldest tuples beyond the limit."""
        changes: list[Change] = []
        while self._bytes > TENTATIVE_BYTES:
            oldest = self._kept.popleft()
            self._bytes -= oldest.bytes
            nothing = oldest.table.slice(0, 0)
            changes.append(Change(Kind.UNDO, oldest.after, oldest.upto, nothing, self._boundary))
        return changes

    def _known_upto(self, schema: pa.Schema, upto: int) -> pa.Table:
        """Remove and return the tentative tuples up to that boundary."""
        found = [schema.empty_table()]
        while self._kept and self._kept[0].after < upto:
            oldest = self._kept.popleft()
            self._bytes -= oldest.bytes
            found.append(between(oldest.table, oldest.after, upto))
            if oldest.upto > upto:
                rest = Epoch(upto, oldest.upto, between(oldest.table, upto, oldest.upto))
                self._kept.appendleft(rest)
                self._bytes += rest.bytes
        return pa.concat_tables(found)

    def _replaced(self, gone: pa.Table, come: pa.Table) -> tuple[pa.Table, pa.Table, pa.Table]:
        """Split tuples into deleted ones, replacements, and inserted ones."""
        if not self._key or not gone.num_rows or not come.num_rows:
            return gone, come.slice(0, 0), come
        if max(_most_of_a_key(table, self._key) for table in (gone, come)) > 1:
            return gone, come.slice(0, 0), come  # the key is not unique here
        shared = gone.select(self._key).join(come.select(self._key), self._key, join_type="inner")
        return (
            _without(gone, shared, self._key),
            _only(come, shared, self._key),
            _without(come, shared, self._key),
        )


def _changes(
    replaced: tuple[pa.Table, pa.Table, pa.Table], after: int, upto: int, boundary: int
) -> list[Change]:
    """The changes of a `_replaced` result, without empty ones."""
    kinds = (Kind.DELETION, Kind.REPLACEMENT, Kind.INSERTION)
    return [
        Change(kind, after, upto, table, boundary)
        for kind, table in zip(kinds, replaced, strict=True)
        if table.num_rows
    ]


def difference(before: pa.Table, now: pa.Table) -> tuple[pa.Table, pa.Table]:
    """The tuples of `before` that are not in `now`, and those of `now` that are not in `before`; if
    equal tuples occur more often on one side, the surplus counts. Both are in canonical order.
    Nulls are equal to nulls, and NaN to NaN.
    """
    if before.equals(now):
        return before.slice(0, 0), now.slice(0, 0)
    signed = [
        table.append_column(_SIGN, pa.repeat(pa.scalar(sign, pa.int64()), table.num_rows))
        for table, sign in ((before, -1), (now, 1))
    ]
    names = before.column_names
    counted = pa.concat_tables(signed).group_by(names).aggregate([(_SIGN, "sum")])
    sums = counted.column(f"{_SIGN}_sum")
    rows = counted.select(names)
    keys = [(name, "ascending") for name in names]
    found: list[pa.Table] = []
    for sign in (-1, 1):
        chosen = repeated(rows, pc.multiply(sums, sign))
        found.append(chosen.take(pc.sort_indices(chosen, sort_keys=keys)).cast(before.schema))
    return found[0], found[1]


def _most_of_a_key(table: pa.Table, key: list[str]) -> int:
    counted = table.group_by(key).aggregate([([], "count_all")])
    return int(pc.max(counted.column("count_all")).as_py() or 0)


def _only(table: pa.Table, keys: pa.Table, key: list[str]) -> pa.Table:
    return _joined(table, keys, key, "left semi")


def _without(table: pa.Table, keys: pa.Table, key: list[str]) -> pa.Table:
    return _joined(table, keys, key, "left anti")


def _joined(table: pa.Table, keys: pa.Table, key: list[str], kind: str) -> pa.Table:
    found = table.join(keys, key, join_type=kind).select(table.column_names)
    order = [(name, "ascending") for name in table.column_names]
    return found.take(pc.sort_indices(found, sort_keys=order)).cast(table.schema)
