"""CPU seconds of a task's jobs, wherever in the JVM they were spent.

Planning happens in the JVM thread that stands for the calling Python thread; its clock is read
there. Executors report theirs to Spark's status store, a little after the job has ended: so what
a job's executors took is counted with the task's next one, and where epochs follow each other more
quickly than `LOOK_S`, some stand for their neighbours.
"""

from __future__ import annotations

import itertools
import math
import time
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession

LOOK_S: Final = 0.5
"""How often the status store is asked at most, seconds: it takes ten calls into the JVM, 3 ms."""

_NS: Final = 1e-9

_numbers = itertools.count()


class CpuMeter:
    """Counts for one task on one session; used by one thread at a time."""

    def __init__(self, session: SparkSession) -> None:
        self._context = session.sparkContext
        jvm: Any = self._context._jvm
        self._threads = jvm.java.lang.management.ManagementFactory.getThreadMXBean()
        self._arrays = jvm.java.util.Arrays
        self._store = self._context._jsc.sc().statusStore()
        self._tracker = self._context._jsc.sc().statusTracker()
        self._group = f"medusa-{next(_numbers)}"
        self._looked = -math.inf
        self._latest_ns = 0
        self._started_ns = 0

    def start(self) -> None:
        self._context.setJobGroup(self._group, self._group)
        self._started_ns = int(self._threads.getCurrentThreadCpuTime())

    def plan(self, frame: DataFrame) -> None:
        """Plan in this thread, where it is measured; else the one that sends the result would."""
        frame._jdf.queryExecution().executedPlan()

    def read(self) -> float:
        """Seconds since `start` in this thread, and of the latest finished job's executors."""
        planning_ns = int(self._threads.getCurrentThreadCpuTime()) - self._started_ns
        return (planning_ns + self._executors_ns()) * _NS

    def _executors_ns(self) -> int:
        now = time.monotonic()
        if now - self._looked >= LOOK_S:
            self._looked = now
            self._latest_ns = self._look()
        return self._latest_ns

    def _look(self) -> int:
        """What the latest job took that the store knows to be complete."""
        listed = self._arrays.toString(self._tracker.getJobIdsForGroup(self._group))
        jobs = sorted(int(number) for number in listed.strip("[]").split(",") if number.strip())
        for job in reversed(jobs[-2:]):
            data = self._store.job(job)
            if data.completionTime().isDefined():
                stages = data.stageIds().mkString(",").split(",")
                return sum(self._stage_ns(stage) for stage in stages)
        return self._latest_ns

    def _stage_ns(self, stage: str) -> int:
        data = self._store.lastStageAttempt(int(stage))
        return int(data.executorCpuTime() + data.executorDeserializeCpuTime())
