"""Spark's settings, by profile.

This module does not import PySpark, so that a peer reads its configuration without waiting for it.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal

from medusa.engine.spark.cluster import SECRET, cluster_settings
from medusa.engine.spark.workforce import Patience
from medusa.overlay.errors import InvalidInputError

MEND: Final = "mend [spark.options], or master in [spark], in medusa.toml, and start the peer again"
"""The remedy for settings that Spark refuses. A peer reads them when it starts."""

Profile = Literal["edge", "throughput"]

NO_COUNTERS: Final = "-XX:-UsePerfData"
"""The option of a JVM without counters for `jstat`: an idle JVM would wake twenty times a second to
sample them."""

PROFILES: Final[Mapping[Profile, Mapping[str, str]]] = {
    # Measured, four peers on two cores: 0.16 cores each, not 0.37; 10 s to start, not 17.
    "edge": {
        "spark.driver.memory": "768m",
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC "
        f"-XX:MinHeapFreeRatio=10 -XX:MaxHeapFreeRatio=30 {NO_COUNTERS}",
    },
    # With the optimising compiler: 2.5 times the rows per second once it is warm.
    "throughput": {
        "spark.driver.memory": "2g",
        "spark.driver.extraJavaOptions": NO_COUNTERS,
    },
}

SETTINGS: Final[Mapping[str, str]] = {
    "spark.app.name": "medusa",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.ansi.enabled": "false",  # no data may make a job fail, ...
    "spark.sql.legacy.timeParserPolicy": "CORRECTED",  # ... and no text that is no time
    "spark.sql.caseSensitive": "true",
    "spark.sql.catalogImplementation": "in-memory",
    "spark.sql.adaptive.enabled": "false",  # re-planning costs more than small jobs do
    # Windows close over many small files: list them in the driver, pack them into few partitions.
    "spark.sql.sources.parallelPartitionDiscovery.threshold": "100000",
    "spark.sql.files.openCostInBytes": "65536",
    "spark.sql.files.minPartitionNum": "1",
    "spark.sql.files.maxPartitionBytes": "16m",
    # with 100, a hundred tasks would compile every epoch
    "spark.sql.codegen.cache.maxEntries": "2000",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "65536",
    "spark.hadoop.parquet.page.verify-checksum.enabled": "true",  # damaged pages fail the job
    "spark.sql.parquet.datetimeRebaseModeInRead": "CORRECTED",  # Arrow's calendar is proleptic
    "spark.sql.objectHashAggregate.sortBased.fallbackThreshold": "65536",
    "spark.executorEnv.PYTHONSAFEPATH": "1",
    "spark.ui.retainedJobs": "200",  # only CPU times are read from the status store
    "spark.ui.retainedStages": "400",
    "spark.sql.ui.retainedExecutions": "10",
    # this halves the cost of making a column
    "spark.python.sql.dataFrameDebugging.enabled": "false",
    "spark.sql.ui.explainMode": "simple",  # otherwise Spark describes every plan
}
"""Settings of every profile; the peer's `spark.*` options win over them."""

_LOCAL: Final[Mapping[str, str]] = {
    # Everything is in one JVM: nothing has to listen beyond the loopback.
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
}


@dataclass(frozen=True)
class SparkConfig:
    """The settings of Spark at a peer.

    Attributes:
        master: any Spark master that runs DataFrames: local[*], spark://..., yarn, k8s://...,
            or the address of a Spark Connect server, sc://...
        profile: `edge` for many small peers and quick starts, `throughput` for few busy ones.
        options: `spark.*` settings; they win over ours.
        secret_file: no setting: has the secret of a standalone cluster, or the token of a Connect
            server, mode 0600.
        patience: no setting: how long to wait for a cluster that provides no executor.
    """

    master: str = "local[*]"
    profile: Profile = "edge"
    options: Mapping[str, str] = field(default_factory=dict)
    secret_file: Path | None = field(default=None, compare=False, metadata={"setting": False})
    patience: Patience = field(default=Patience(), metadata={"setting": False})

    def __post_init__(self) -> None:
        if self.profile not in PROFILES:
            raise InvalidInputError(
                f"spark.profile must be one of {', '.join(PROFILES)}: {self.profile}"
            )
        for name in self.options:
            if not name.startswith("spark."):
                raise InvalidInputError(f"spark option {name!r} does not begin with 'spark.'")
        text = "medusa.toml is no secret: write it into spark.secret beside it, mode 0600"
        if SECRET in self.options:
            raise InvalidInputError(f"spark option {SECRET}: {text}")
        if "token=" in self.master:
            raise InvalidInputError(f"token= in spark.master: {text}")

    @property
    def local(self) -> bool:
        """Whether all jobs run in the peer's own JVM."""
        return self.master.startswith("local")

    @property
    def remote(self) -> bool:
        """Whether a Spark Connect server runs all jobs."""
        return self.master.startswith("sc://")

    def settings(self) -> dict[str, str]:
        """All Spark settings, the later ones winning.

        Raises:
            MedusaError: the secret of the cluster is missing, or open to others.
        """
        if self.local:
            place = _LOCAL
        else:
            place = cluster_settings(self.master, self.options, self.secret_file)
        cores = str(os.cpu_count() or 1)
        ours = {**SETTINGS, "spark.sql.shuffle.partitions": cores, **place}
        return {**ours, **PROFILES[self.profile], "spark.master": self.master, **self.options}
