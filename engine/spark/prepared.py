"""A small job, planned once and run again over other rows.

Most of a small job's CPU time is analysis, optimisation and planning (measured: 27 of 36 ms). So a
plan reads one file, its *slot*, and each run puts other rows there. Spark reads the file anew and
does all the rest from what it has: plan, generated code, tasks. No plan has a number that differs
from run to run.

Only where driver and executors are one process: the slot is on this machine.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as T

from medusa.engine.spark.cpu import meter_of
from medusa.overlay.errors import InternalError

SLOT_BYTES: Final = 16 * 2**20
"""Bytes of a slot's file, at most: Spark plans one partition of this size, and would not read rows
behind it. `spark.sql.files.maxPartitionBytes` is as large."""


class Prepared:
    """One plan over a slot.

    Args:
        schema: the schema of the slot's rows.
        build: the plan, given the slot's rows.
    """

    def __init__(
        self, session: SparkSession, schema: T.StructType, build: Callable[[DataFrame], DataFrame]
    ) -> None:
        self.session = session
        self.meter = meter_of(session)
        scratch = session.sparkContext.getConf().get("spark.local.dir") or tempfile.gettempdir()
        folder = Path(tempfile.mkdtemp(prefix="slot-", dir=scratch))
        weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)
        self._slot = folder / "rows.parquet"
        self._slot.touch()
        os.truncate(self._slot, SLOT_BYTES)  # Spark plans for files of this size
        reader = session.read.schema(schema)
        self._frame = build(reader.parquet(f"file://{self._slot}").coalesce(1))
        self.meter.plan(self._frame)
        if "Exchange" in self._frame._jdf.queryExecution().executedPlan().toString():
            raise InternalError("a plan that moves rows would give those of its first run again")

    def run(self, rows: pa.Table) -> pa.Table | None:
        """The plan's result over these rows; None: they do not fit into the slot."""
        fresh = self._slot.with_suffix(".tmp")
        pq.write_table(  # noqa: TID251 - the cheapest form, without any bounds
            rows, fresh, compression="none", use_dictionary=False, write_statistics=False
        )
        if fresh.stat().st_size > SLOT_BYTES:
            fresh.unlink()
            return None
        fresh.rename(self._slot)
        return self._frame.toArrow()
