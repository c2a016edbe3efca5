"""Medusa with the profile of busy peers, `throughput`: Java's optimising compiler, which Structured
Streaming and Flink have, too."""

from __future__ import annotations

import sys
from pathlib import Path

import trio

from medusa.engine.spark.config import SparkConfig
from medusa.testnet.bench.systems.medusa import main

if __name__ == "__main__":
    trio.run(main, Path(sys.argv[1]), SparkConfig(profile="throughput"))
