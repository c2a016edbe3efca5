"""One Spark for all tests of a run: PySpark has one per process, and it takes seconds to start."""

from collections.abc import Iterator

import pytest
from pyspark import SparkContext

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
    if SparkContext._jvm is None:  # a test that had another Spark took this one out of PySpark
        shared_spark.stop()
    shared_spark.start()
    return shared_spark
