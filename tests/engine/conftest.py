"""Fixtures of many modules.

One Spark serves all tests of a run: PySpark has one per process, and it takes seconds to start.
"""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import spark_of_tests
from engine_peers import Cluster, Place
from replicated_queries import Made, detectors

from medusa.engine.spark.config import SparkConfig
from medusa.engine.spark.session import Spark


@pytest.fixture(scope="session")
def shared_spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Spark]:
    """Start the shared Spark when it is first used. Tests may kill it; take `spark` to have it
    alive."""
    spark = Spark(SparkConfig(), tmp_path_factory.mktemp("spark"))
    spark_of_tests.SHARED.append(spark)
    yield spark
    spark.stop()


@pytest.fixture
def spark(shared_spark: Spark) -> Spark:
    shared_spark.start()
    return shared_spark


@pytest.fixture
def spark_stopped(shared_spark: Spark) -> None:
    """Stop the shared Spark for a test that starts another one."""
    shared_spark.stop()


@pytest.fixture
def made(interpreted: None, monkeypatch: pytest.MonkeyPatch) -> Made:
    """Replace the detectors of peers that are opened from now on by ones that the test controls."""
    return detectors(monkeypatch)


@pytest.fixture
async def places(cluster: Cluster) -> list[Place]:
    """Give three peers of one participant."""
    return await cluster.siblings(3)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """Give a disk of four megabytes."""
    place = tmp_path / "disk"
    place.mkdir()
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(place)],
        check=False,
        capture_output=True,
    )
    if done.returncode:
        pytest.skip("mounting a tmpfs is not permitted here")
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)
