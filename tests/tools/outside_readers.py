"""Runs the programs of docs/reading.md again and again for some seconds; prints the results as
JSON. It is a program of its own: PySpark and the peer are never in one process here, as for a user.
Its arguments: seconds, and the folder that `medusa subscribe --into` writes."""

from __future__ import annotations

import json
import re
import sys
import threading
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import duckdb

PAGE: Final = Path(__file__).parents[2] / "docs" / "reading.md"

LEAST: Final = 2
"""The least number of runs of each program, even on a slow machine."""

BETWEEN_S: Final = 2.0
"""Seconds between listing and reading, in which a log merges files and drops others."""


def programs() -> list[str]:
    return re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)


def whole(count: int, distinct: int, low: int, high: int) -> str:
    """Return a description of the errors in numbers that were posted one after the other; "":
    none."""
    if count == distinct == high - low + 1:
        return ""
    return f"{count} rows, {distinct} numbers, from {low} to {high}"


class Tried:
    """The number of runs of a program, and its failures."""

    def __init__(self) -> None:
        self.times = 0
        self.rows = 0
        self.faults: list[str] = []

    def repeat(self, program: Callable[[], tuple[int, int, int, int]], until: float) -> None:
        while time.monotonic() < until or self.times < LEAST:
            try:
                found = program()
                self.rows = found[0]
                fault = whole(*found)
            except Exception:  # noqa: BLE001 - told
                fault = traceback.format_exc()[-2000:]
            self.times += 1
            if fault:
                self.faults.append(fault)


NUMBERS: Final = "count(*), count(DISTINCT number), min(number), max(number)"


def with_duckdb(program: str) -> tuple[int, int, int, int]:
    names: dict[str, Any] = {}
    exec(program, names)
    paths = sorted(str(path) for path in Path(names["folder"]).glob("*.parquet"))
    time.sleep(BETWEEN_S)
    found = duckdb.connect().execute(f"SELECT {NUMBERS} FROM read_parquet($1)", [paths]).fetchone()
    assert found is not None
    assert len(names["conns"]) == found[0], "pandas has the same"
    return found


def with_spark(program: str, spark: Any) -> tuple[int, int, int, int]:
    names: dict[str, Any] = {}
    exec(program, names)
    time.sleep(BETWEEN_S)
    names["conns"].createOrReplaceTempView("conns")
    return tuple(spark.sql(f"SELECT {NUMBERS} FROM conns").first())


def with_the_folder(folder: str) -> tuple[int, int, int, int]:
    paths = sorted(str(path) for path in Path(folder).glob("*.parquet"))
    time.sleep(BETWEEN_S)
    found = duckdb.connect().execute(f"SELECT {NUMBERS} FROM read_parquet($1)", [paths]).fetchone()
    assert found is not None
    return found


def main(seconds: float, folder: str) -> None:
    from pyspark.sql import SparkSession

    duck, batch, stream = programs()
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    builder = builder.config("spark.ui.showConsoleProgress", "false")
    spark = builder.config("spark.sql.shuffle.partitions", "2").getOrCreate()
    until = time.monotonic() + seconds
    tried = {name: Tried() for name in ("duckdb and pandas", "spark", "folder")}
    each: dict[str, Callable[[], tuple[int, int, int, int]]] = {
        "duckdb and pandas": lambda: with_duckdb(duck),
        "spark": lambda: with_spark(batch, spark),
        "folder": lambda: with_the_folder(folder),
    }
    threads = [
        threading.Thread(target=tried[name].repeat, args=(each[name], until)) for name in each
    ]
    for thread in threads:
        thread.start()
    names: dict[str, Any] = {}
    assert "awaitTermination(20)" in stream
    exec(stream.replace("awaitTermination(20)", f"awaitTermination({seconds:.0f})"), names)
    for thread in threads:
        thread.join()
    print("read", flush=True)
    sys.stdin.readline()  # the last file is written
    query = names["query"]
    query.processAllAvailable()
    fault = query.exception()
    query.stop()
    copy = spark.read.parquet("copy")
    copy.createOrReplaceTempView("copy")
    found = tuple(spark.sql(f"SELECT {NUMBERS} FROM copy").first())
    told = {name: vars(one) for name, one in tried.items()}
    told["readStream"] = {
        "times": query.lastProgress["batchId"] if query.lastProgress else 0,
        "rows": found[0],
        "faults": [*filter(None, [fault and str(fault), whole(*found)])],
        "numbers": found[2:],
    }
    print(json.dumps(told), flush=True)
    spark.stop()


if __name__ == "__main__":
    main(float(sys.argv[1]), sys.argv[2])
