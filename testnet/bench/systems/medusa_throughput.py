"""Medusa with the profile of busy peers, `throughput`: Java's optimising compiler, which Structured
Streaming and Flink have, too."""

from __future__ import annotations

import trio

from medusa.engine.spark.config import SparkConfig
from medusa.testnet.bench.systems.medusa import Medusa, main

if __name__ == "__main__":
    trio.run(main, Medusa, SparkConfig(profile="throughput"))
