"""One Spark job computes separate cases; each equals the interpreter's result."""

from __future__ import annotations

import random
from pathlib import Path

import pyarrow as pa
import pytest
import trio
from revised_epochs import DENSE, SCHEMAS, entry_of

from medusa.engine.operators.shared.step import Interval
from medusa.engine.reference.executor import Costs, ReferenceExecutor
from medusa.engine.spark.program import Program
from medusa.engine.spark.session import Spark
from medusa.engine.streams.log.epochs import write_rows
from medusa.engine.tasks.network import Network
from medusa.engine.tasks.revised_tasks import by_arrival, scenario_task

pytestmark = pytest.mark.spark


def test_spark_keeps_cases_apart(spark: Spark, tmp_path: Path) -> None:
    rng = random.Random(7)
    network = Network(DENSE, {name: entry_of(schema) for name, schema in SCHEMAS.items()})
    for task in network.tasks():
        if task.of is not None or not task.steps:
            continue
        case = scenario_task(task)
        schema = case.input_schemas[0]
        shape = schema.source if by_arrival(task) else schema.derived
        rows = [_row(shape, number, rng) for number in range(200)]
        path = tmp_path / f"{task.output}.parquet"
        write_rows(pa.Table.from_pylist(rows, schema=shape), path)
        files, span = {case.inputs[0]: [path]}, Interval(-100, 200)
        made = spark.run(lambda s, c=case, f=files, i=span: Program(c).run(s, f, -100, 200, i))
        computation = ReferenceExecutor(Costs()).compile(case)
        expected = trio.run(computation.run, files, -100, 200, span)
        names = made.table.column_names
        order = [(name, "ascending") for name in names]
        assert made.table.num_rows > 0
        assert made.table.sort_by(order).equals(expected.table.sort_by(order)), task.output


def _row(shape: pa.Schema, number: int, rng: random.Random) -> dict[str, object]:
    values: dict[str, object] = {"seq": number, "revision_scenario": rng.randrange(4)}
    for each in shape:
        if each.name not in values:
            text = pa.types.is_string(each.type)
            values[each.name] = rng.choice("xy") if text else rng.randrange(0, 60)
    return {name: values[name] for name in shape.names}
