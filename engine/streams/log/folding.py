"""Folding the log of a table: of each key the newest tuple stays.

Kafka calls this the compaction of a topic. The remaining tuples keep their stime and their order,
so a folded file is an epoch file like any other: a reader from the beginning finds, at every
boundary that is not before the folded ones, the same newest tuple of each key as before.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

import pyarrow as pa

from medusa.engine.objects.schema import BEGINNING, END
from medusa.engine.streams.log.epochs import GROUP_BYTES, EpochFile, EpochWriter, read_groups
from medusa.engine.streams.ordering import tidy

MORE: Final = 0.5
"""A log is folded when the files behind the folded one have this share of its rows: so folding
reads a tuple three times on average, however long the table lives."""

_NUMBER: Final = "number "
"""The name of the column with a row's place; no field's name has a blank."""


def worth_folding(files: Sequence[EpochFile], floor: int) -> Sequence[EpochFile]:
    """The files to fold into one, the oldest first; none if it is not worthwhile. Args: floor: the
    boundary up to which no reader needs the table's former state.
    """
    run = []
    for file in files[:-1]:  # the newest file is never folded: empty epochs extend it
        if file.upto > floor or file.lost:
            break
        run.append(file)
    if len(run) < 2 or sum(file.rows for file in run[1:]) < MORE * run[0].rows:
        return ()
    return run


def newest(table: pa.Table, key: Sequence[str]) -> pa.Table:
    """The last tuple of each key, in the table's order. Args: table: the tuples in the order of
    their log."""
    numbered = table.append_column(_NUMBER, pa.arange(0, table.num_rows))
    last = numbered.group_by(list(key)).aggregate([(_NUMBER, "max")])
    return table.take(last.column(f"{_NUMBER}_max").combine_chunks().sort())


def folded(
    files: Sequence[EpochFile],
    folder: Path,
    schema: pa.Schema,
    key: Sequence[str],
    *,
    durable: bool,
) -> EpochWriter:
    """The files folded into one, finished but not committed. Blocking.

    Raises:
        StorageError: the disk does not take it; nothing is left behind.
        EpochDamagedError: a file is damaged.
    """
    stays = schema.empty_table()
    for file in files:
        for rows in read_groups(file.path, schema, BEGINNING, END):
            stays = newest(pa.concat_tables([stays, rows]), key)
    writer = EpochWriter(folder, schema, compress=True, durable=durable)
    try:
        size = max(1, stays.num_rows * GROUP_BYTES // max(stays.nbytes, 1))
        for start in range(0, stays.num_rows, size):
            writer.write(tidy(stays.slice(start, size)))
        if not stays.num_rows:
            writer.write(stays)
        writer.finish()
    except BaseException:
        writer.abandon()
        raise
    return writer
