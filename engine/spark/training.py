"""The training run: a Spark that computes a little of everything, and archives the classes it used.

`ClassArchive.make_apart` starts it as `python -m medusa.engine.spark.training ARCHIVE`, at the
lowest priority. It takes 13 s of a core to run and 20 s to write.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Final

from medusa.engine.aggregates.function import AggregateFunction
from medusa.engine.aggregates.rows import AGGREGATES
from medusa.engine.language.check import check_query
from medusa.engine.objects.query import Aggregate, AggregateCall, Filter, Map, Query
from medusa.engine.objects.schema import Field, FieldType, Schema
from medusa.engine.spark.archive import ClassArchive
from medusa.engine.spark.config import SparkConfig
from medusa.engine.spark.program import Program
from medusa.engine.spark.session import Spark
from medusa.engine.tasks.plan import Task, plan
from medusa.overlay.errors import MedusaError, UnavailableError

END_S: Final = 1_800.0
"""Longest that the JVM may take to write the archive and end, seconds: the cores may be busy."""

_SCHEMA: Final = Schema(
    "medusa://training/input",
    (
        Field("time_us", FieldType.LONG),
        Field("name", FieldType.STRING),
        Field("size", FieldType.LONG),
        Field("ratio", FieldType.DOUBLE),
    ),
    time="time_us",
)
_SECOND_US: Final = 1_000_000


def every_function(argument: str) -> tuple[AggregateCall, ...]:
    """Every function of a window, over a number, under its own name."""
    return tuple(
        AggregateCall(
            name, _taken(row, argument), name, None if row.constant is None else row.constant.value
        )
        for name, row in AGGREGATES.items()
    )


def _taken(function: AggregateFunction, number: str) -> str:
    """The number, converted to an argument type of the function."""
    if FieldType.LONG in function.takes:
        return number
    return f"{number} > 0" if FieldType.BOOL in function.takes else f"cast({number} as string)"


_QUERY: Final = Query(
    "medusa://training/query",
    (
        Filter("large", _SCHEMA.name, ("large",), ("size > 10 AND name LIKE 'a%'",)),
        Map("short", "large", "short", (("name", "lower(name)"), ("size", "size * 2"))),
        Aggregate(
            "count", "short", "count", _SECOND_US, _SECOND_US, ("name",), every_function("size")
        ),
        Aggregate("slide", "count", "slide", 2 * _SECOND_US, _SECOND_US, (), every_function("sum")),
        Filter("known", "slide", ("known",), ("count > 0",)),
    ),
    outputs=("short",),
)
"""A query with expressions, all functions, and windows that tumble and slide."""


def tasks() -> tuple[Task, ...]:
    """The tasks that the training run computes."""
    schemas = {_SCHEMA.name: _SCHEMA}
    return plan(_QUERY, schemas | check_query(_QUERY, schemas))


def train(archive: ClassArchive) -> None:
    """Make the archive. Blocking, half a minute or more.

    Raises:
        MedusaError: it could not be made.
    """
    written = archive.making / "classes.jsa"
    archive.making.mkdir(mode=0o700)
    options = archive.shape.get("spark.driver.extraJavaOptions", "")
    writes = f'{options} "-XX:ArchiveClassesAtExit={written}"'
    config = SparkConfig(
        master="local[1]",
        options={**archive.shape, "spark.driver.extraJavaOptions": writes},
    )
    spark = Spark(config, archive.making)
    spark.start()
    try:
        for task in tasks():
            spark.run(partial(Program(task).warm_up, within=archive.making))
        spark.end(END_S)
    finally:
        spark.stop()
    if not written.is_file():
        raise UnavailableError("this Java wrote no archive")
    _commit(written, archive.path)


def _commit(written: Path, path: Path) -> None:
    """Give the archive its name: a JVM finds all of it or none, also after a power cut."""
    with written.open("rb") as file:
        os.fsync(file.fileno())
    written.rename(path)


def main(archive: ClassArchive) -> None:
    """Make the archive, or store the reason of the failure. No peer waits for this, or reads its
    output."""
    try:
        train(archive)
    except (MedusaError, OSError, subprocess.TimeoutExpired) as error:
        archive.fail(str(error))
    finally:
        shutil.rmtree(archive.making, ignore_errors=True)


if __name__ == "__main__":  # this process holds the lock, an inherited file, until it ends
    _folder, _key, _shape = json.loads(sys.argv[1])
    main(ClassArchive(Path(_folder), _key, _shape))
