from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Final

import pyarrow as pa

from engine.objects.schema import BEGINNING, END
from engine.streams.epochs import GROUP_BYTES, JOB_BYTES, EpochFile, EpochWriter, read_groups
from engine.streams.ordering import tidy
from overlay.errors import InternalError

RUN: Final = 16
"""Files merged at least: each row is rewritten once per factor of 16, about three times in all."""
TIERS: Final = (64 * 2**10, 2**20, 16 * 2**20)
"""Bytes. Files below a tier are merged with each other before anything larger is rewritten."""
MERGED_BYTES: Final = 64 * 2**20
"""Bytes of a merged file at most, about: retention can still drop days by the hour, and a reader of
a few rows opens no giant. Nor has it more rows than one job takes."""


def choose(files: Sequence[EpochFile]) -> Sequence[EpochFile]:
    """A run of neighbours worth merging, or none. Never the newest file: empty epochs extend it."""
    for tier in TIERS:
        run: list[EpochFile] = []
        size = content = 0
        for file in files[:-1]:
            full = size + file.bytes > MERGED_BYTES or content + file.content > JOB_BYTES
            if file.lost or file.bytes >= tier or full:
                if len(run) >= RUN:
                    break
                run, size, content = [], 0, 0
            if file.bytes < tier and not file.lost:
                run.append(file)
                size += file.bytes
                content += file.content
        if len(run) >= RUN:
            return run
    return ()


def merge(
    files: Sequence[EpochFile], folder: Path, schema: pa.Schema, *, durable: bool
) -> EpochWriter:
    """Merge neighbouring files into one, finished but not committed. Blocking.

    Holds one row group at a time.

    Raises:
        StorageError: the disk does not take it; nothing is left behind.
        EpochDamagedError: a file is damaged.
    """
    assert all(one.upto == two.after for one, two in pairwise(files)), "not neighbours"
    writer = EpochWriter(folder, schema, compress=True, durable=durable)
    try:
        waiting: list[pa.Table] = []
        size = 0
        for file in files:
            for rows in read_groups(file.path, schema, BEGINNING, END):
                waiting.append(rows)
                size += rows.nbytes
                if size >= GROUP_BYTES:
                    writer.write(tidy(pa.concat_tables(waiting)))
                    waiting, size = [], 0
        writer.write(tidy(pa.concat_tables([schema.empty_table(), *waiting])))
        if writer.rows != sum(file.rows for file in files):
            raise InternalError(f"{writer.rows} rows were read of {files[0].path.name} and others")
        writer.finish()
    except BaseException:
        writer.abandon()
        raise
    return writer
