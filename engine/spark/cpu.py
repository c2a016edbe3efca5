"""Measures the CPU seconds of a task's jobs, in all threads and processes.

The JVM thread of the calling Python thread plans a job; the clocks of both threads are read.
Executors report their time to Spark's status store a little after the job's end. So a job's
executor time counts with the task's next job; where epochs follow each other more quickly than
`LOOK_S`, one of them stands for those before it.

Planning and executors are about half the cost of a small job (measured: 23 of 51 ms). The rest is
spent by threads that all jobs share: they schedule, send results, compile and collect garbage. So
the time of the JVM's process is shared out to the jobs in proportion to the measured part of each.
"""

from __future__ import annotations

import itertools
import math
import threading
import time
from typing import Any, Final, Protocol
from weakref import WeakKeyDictionary

import psutil
from py4j.protocol import Py4JJavaError
from pyspark.sql import DataFrame, SparkSession

LOOK_S: Final = 0.5
"""Seconds between looks at the status store, at least: one takes ten calls into the JVM, 3 ms."""

SHARED_S: Final = 30.0
"""Time constant over which the JVM's use is compared with its measured part, seconds: the process
is counted in ticks of 10 ms, and garbage is collected now and then."""

MOST_SHARED: Final = 4.0
"""The greatest believed ratio of the JVM's use to its measured part. While it starts and compiles,
and while it is nearly idle, the rest belongs to no job."""

_NS: Final = 1e-9

_clocks: WeakKeyDictionary[SparkSession, JvmClock] = WeakKeyDictionary()
_making = threading.Lock()

_numbers = itertools.count()


class JvmClock:
    """The ratio of all CPU time of a JVM to its measured part; all meters of a session share it, in
    any thread."""

    def __init__(self, process: psutil.Process) -> None:
        self._process = process
        self._lock = threading.Lock()
        self._at = time.monotonic()
        self._latest_s = 0.0
        self._latest_s = self._process_s()
        self._warm = False
        self._used_s = 0.0
        self._seen_s = 0.0

    @staticmethod
    def of(session: SparkSession) -> JvmClock:
        """The clock of that session."""
        with _making:
            if session not in _clocks:
                jvm: Any = session.sparkContext._jvm
                name = str(jvm.java.lang.management.ManagementFactory.getRuntimeMXBean().getName())
                _clocks[session] = JvmClock(psutil.Process(int(name.partition("@")[0])))
            return _clocks[session]

    def whole(self, seen_s: float) -> float:
        """Seconds that a job took in all, estimated from its measured seconds."""
        with self._lock:
            self._seen_s += seen_s
            now = time.monotonic()
            if now - self._at >= LOOK_S:
                # The first job plans for a second, unlike all later ones.
                keep = math.exp((self._at - now) / SHARED_S) if self._warm else 0.0
                self._warm = True
                latest = self._process_s()
                self._used_s = (self._used_s + latest - self._latest_s) * keep
                self._seen_s *= keep
                self._latest_s, self._at = latest, now
            if not self._seen_s:
                return seen_s
            return seen_s * min(max(self._used_s / self._seen_s, 1.0), MOST_SHARED)

    def _process_s(self) -> float:
        try:
            times = self._process.cpu_times()
        except psutil.Error:  # the JVM died; the job reports it
            return self._latest_s
        return float(times.user + times.system)


class Meter(Protocol):
    """Counts CPU seconds of one task on one session; used by one thread at a time."""

    def start(self) -> None:
        """Begin to count."""

    def plan(self, frame: DataFrame) -> None:
        """Plan a job."""

    def read(self) -> float:
        """Seconds since `start`."""


def meter_of(session: SparkSession) -> Meter:
    """A meter of one task: it reads the clocks of the session's JVM, if that is ours."""
    return CpuMeter(session) if isinstance(session, SparkSession) else TimeMeter()


class TimeMeter:
    """Counts the time of a job as its CPU seconds, because a Connect server does not report its CPU
    time. The figure is too large if the server's cores are busy with other work, and too small for
    a job on several cores.
    """

    def __init__(self) -> None:
        self._started_s = 0.0

    def start(self) -> None:
        self._started_s = time.monotonic()

    def plan(self, frame: DataFrame) -> None:
        pass  # the server plans

    def read(self) -> float:
        return time.monotonic() - self._started_s


class CpuMeter:
    """Reads the clocks of the JVM; see `Meter`."""

    def __init__(self, session: SparkSession) -> None:
        self._context = session.sparkContext
        jvm: Any = self._context._jvm
        self._threads = jvm.java.lang.management.ManagementFactory.getThreadMXBean()
        self._arrays = jvm.java.util.Arrays
        self._store = self._context._jsc.sc().statusStore()
        self._tracker = self._context._jsc.sc().statusTracker()
        self._clock = JvmClock.of(session)
        self._in_jvm = str(self._context.master).startswith("local")
        self._group = f"medusa-{next(_numbers)}"
        self._looked = -math.inf
        self._counted = -1
        self._started_ns = 0
        self._started_s = 0.0

    def start(self) -> None:
        self._context.setJobGroup(self._group, self._group)
        self._started_ns = int(self._threads.getCurrentThreadCpuTime())
        self._started_s = time.thread_time()

    def plan(self, frame: DataFrame) -> None:
        """Plan in this thread, which is measured; otherwise the thread that sends results would
        plan."""
        frame._jdf.queryExecution().executedPlan()

    def read(self) -> float:
        """Seconds since `start`, used by this thread and by the JVM on its behalf."""
        planning_ns = int(self._threads.getCurrentThreadCpuTime()) - self._started_ns
        try:
            executors_ns = self._executors_ns()
        except Py4JJavaError:  # the store has dropped a job or stage since it was listed
            executors_ns = 0  # the job has run; missing figures do not make it fail
        planning_s, executors_s = planning_ns * _NS, executors_ns * _NS
        if self._in_jvm:
            jvm_s = self._clock.whole(planning_s + executors_s)
        else:
            # An executor's JVM receives, sends and compiles beside its tasks, as the driver's JVM
            # does beside planning. Measured: with this factor 0.65 to 0.9 of the processes' time is
            # counted, without it 0.35 to 0.75.
            driver_s = self._clock.whole(planning_s)
            jvm_s = 2 * driver_s - planning_s + executors_s
        return jvm_s + time.thread_time() - self._started_s

    def _executors_ns(self) -> int:
        """Executor time of the jobs since the last look; 0 between looks."""
        now = time.monotonic()
        if now - self._looked < LOOK_S:
            return 0
        self._looked = now
        listed = self._arrays.toString(self._tracker.getJobIdsForGroup(self._group))
        numbers = sorted(int(number) for number in listed.strip("[]").split(",") if number.strip())
        new = [number for number in numbers if number > self._counted]
        # The latest job may not be complete in the store yet.
        for latest in reversed(new[-2:]):
            job = self._store.job(latest)
            if job.completionTime().isDefined():
                self._counted = latest
                stages = job.stageIds().mkString(",").split(",")
                each = sum(self._stage_ns(stage) for stage in stages)
                return each * sum(number <= latest for number in new)
        return 0

    def _stage_ns(self, stage: str) -> int:
        data = self._store.lastStageAttempt(int(stage))
        return int(data.executorCpuTime() + data.executorDeserializeCpuTime())
