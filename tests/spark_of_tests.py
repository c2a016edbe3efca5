"""Ends the Spark that the tests of a process share (`shared_spark`), for tests that cannot run
beside it: PySpark allows one in a process."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from medusa.engine.spark.session import Spark

SHARED: Final[list[Spark]] = []
"""The shared Spark, once a test has taken it."""


def stop_shared() -> None:
    """Stop the shared Spark, if it runs; the next test that takes it starts it again."""
    for spark in SHARED:
        spark.stop()
