"""The run of a workload at a peer that fails ends in time, and names the stopped tasks."""

from __future__ import annotations

import pyarrow as pa
import pytest
import trio
from deadline import DEADLINE_S

from medusa.engine.spark import executor
from medusa.engine.tasks.plan import Task
from medusa.testnet.kit.stages import Stages
from medusa.testnet.workload.patience import StandstillError
from medusa.testnet.workload.run import run_workload
from medusa.testnet.workload.workload import STAGES, Script, Workload

TEXT = "CREATE STREAM doubled AS SELECT n * 2 AS n FROM numbers"


def doubling() -> Workload:
    times = pa.array([1_000_000, 2_000_000]).cast(pa.timestamp("us", "UTC"))
    numbers = pa.table({"time": times, "n": [1, 2]})
    right = pa.table({"n": [2, 4]})
    return Workload("two rows", {"numbers": numbers}, (Script(TEXT, {"doubled": lambda: right}),))


@pytest.mark.spark
@pytest.mark.usefixtures("own_spark")
async def test_a_defect_of_a_job_ends_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(task: Task) -> None:
        raise ValueError(f"cannot group {task.output}")

    monkeypatch.setattr(executor, "kind_of", broken)
    with trio.fail_after(DEADLINE_S):
        result = await run_workload(doubling, Stages(STAGES), patience_s=DEADLINE_S)
    (outcome,) = result.outcomes
    assert "its job met a bug" in outcome.failed


@pytest.mark.spark
@pytest.mark.usefixtures("own_spark")
async def test_tasks_that_stand_still_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    async def never(*_: object) -> None:
        await trio.sleep_forever()

    monkeypatch.setattr(executor.SparkExecutor, "compute", never)
    said = r"nothing got on for 3 s: medusa://.*doubled.* is (starting|running), 0 epochs done"
    with trio.fail_after(DEADLINE_S), pytest.raises(StandstillError, match=said):
        await run_workload(doubling, Stages(STAGES), patience_s=3.0)


@pytest.mark.spark
@pytest.mark.usefixtures("own_spark")
async def test_a_peer_in_order_answers() -> None:
    with trio.fail_after(DEADLINE_S):
        result = await run_workload(doubling, Stages(STAGES), patience_s=DEADLINE_S)
    (outcome,) = result.outcomes
    assert (outcome.query, outcome.rows, outcome.exact) == ("doubled", 2, True)
