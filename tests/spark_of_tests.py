"""Ends the Spark that the tests of a process share (`shared_spark`), for tests that cannot run
beside it, because PySpark allows one in a process; and prepares the start of all others."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from medusa.engine.spark.session import Spark

SHARED: Final[list[Spark]] = []
"""The shared Spark, once a test has taken it."""


def stop_shared() -> None:
    """Stop the shared Spark, if it runs; the next test that takes it starts it again."""
    for spark in SHARED:
        spark.stop()


def make_archive() -> None:
    """Begin to make the archive of classes with which all JVMs of a run start in half the time,
    unless it is there. A peer would make it at the lowest priority, for which a run of all tests
    leaves no time."""
    from pyspark.find_spark_home import _find_spark_home

    from medusa.engine.spark.archive import archive_for
    from medusa.engine.spark.config import SparkConfig
    from medusa.engine.spark.java import find_java
    from medusa.overlay.errors import MedusaError

    with contextlib.suppress(MedusaError):  # without a Java nothing starts from it
        settings, java = SparkConfig().settings(), find_java(os.environ)
        archive = archive_for(settings, java, Path(_find_spark_home()), os.environ)
        if archive is not None:
            archive.make_apart(niceness=0)
