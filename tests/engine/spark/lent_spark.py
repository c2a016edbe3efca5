"""Lends the tests' one Spark to an engine as its own."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from pyspark.sql import SparkSession

from medusa.engine.spark.session import Spark

T = TypeVar("T")


class LentSpark:
    """The one Spark of this process, lent to every peer in place of its own Spark; it outlives the
    peers."""

    def __init__(self, spark: Spark) -> None:
        self._spark = spark

    @property
    def alive(self) -> bool:
        return self._spark.alive

    @property
    def shares(self) -> bool:
        return self._spark.shares

    def start(self) -> None:
        self._spark.start()

    restart = start

    def stop(self) -> None:
        pass

    give_up_start = stop

    def run(self, job: Callable[[SparkSession], T]) -> T:
        return self._spark.run(job)
