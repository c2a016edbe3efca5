"""Fixtures of many modules.

One Spark serves all tests of a run: PySpark has one per process, and it takes seconds to start.
"""

from collections.abc import Iterator

import pytest
from engine_detector import detectors
from engine_interpreted import interpret
from replicated_queries import Made

from engine.spark.config import SparkConfig
from engine.spark.session import Spark


@pytest.fixture(scope="session")
def shared_spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Spark]:
    """Started when first used. Tests may kill it; take `spark` to have it alive."""
    spark = Spark(SparkConfig(), tmp_path_factory.mktemp("spark"))
    yield spark
    spark.stop()


@pytest.fixture
def spark(shared_spark: Spark) -> Spark:
    shared_spark.start()
    return shared_spark


@pytest.fixture
def spark_stopped(shared_spark: Spark) -> None:
    """For a test that starts a Spark of its own: while the shared one runs it is refused."""
    shared_spark.stop()


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> Made:
    """The detectors of the peers that are opened from now on, which say what a test tells them."""
    interpret(monkeypatch)
    return detectors(monkeypatch)
