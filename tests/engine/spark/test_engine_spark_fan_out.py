"""A join with too many pairs fails its job, and the error names the join."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from medusa.engine.objects.query import Join, JoinKind
from medusa.engine.objects.schema import Field, FieldType, Schema
from medusa.engine.operators.join import spark as joins
from medusa.engine.operators.join.step import JoinStep
from medusa.engine.operators.shared.step import Interval
from medusa.engine.operators.typing import type_box
from medusa.engine.spark.session import Spark
from medusa.overlay.errors import InternalError

pytestmark = pytest.mark.spark

LIMIT = 100
SCHEMAS = {
    name: Schema(name, (Field("k", FieldType.LONG),)) for name in ("medusa://a/l", "medusa://a/r")
}


def rows(folder: Path, name: str, count: int) -> Path:
    """Return tuples of one stime."""
    path = folder / f"{name}.parquet"
    columns = {"stime": pa.array([5] * count, pa.int64()), "k": pa.array(range(count), pa.int64())}
    pq.write_table(pa.table(columns), path)
    return path


def joined(spark: Spark, folder: Path, kind: JoinKind, predicate: str, count: int) -> int:
    """Return the number of results of a join of two streams of that many tuples."""
    one_sided = kind in {JoinKind.SEMI, JoinKind.ANTI}
    outputs = (("l", "left.k"),) if one_sided else (("l", "left.k"), ("r", "right.k"))
    box = Join("j", *SCHEMAS, "medusa://a/o", kind, 1_000_000, 0, predicate, outputs)
    step = type_box(box, SCHEMAS).steps["medusa://a/o"]
    assert isinstance(step, JoinStep)
    files = {name: [rows(folder, name[-1], count)] for name in SCHEMAS}

    def count_rows(session: object) -> int:
        made = joins.Joins(session, step, SCHEMAS, frozenset())  # type: ignore[arg-type]
        frame = made.frame(files, 0, 10, Interval(-(10**9), 10), large=False)
        return len(frame.collect())

    return spark.run(count_rows)


@pytest.mark.parametrize("kind", [JoinKind.INNER, JoinKind.LEFT, JoinKind.RIGHT, JoinKind.FULL])
def test_one_pair_too_many(
    kind: JoinKind, spark: Spark, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(joins, "MAX_PAIRS", LIMIT)
    assert joined(spark, tmp_path, kind, "true", 10) == LIMIT
    with pytest.raises(InternalError) as raised:
        joined(spark, tmp_path, kind, "true", 11)
    assert "the join of medusa://a/l and medusa://a/r, from 1 s before to 0 s after" in str(
        raised.value
    )
    assert "gives more than 100 pairs at once" in str(raised.value)


def test_pairs_are_counted_not_tuples(
    spark: Spark, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(joins, "MAX_PAIRS", LIMIT)
    assert joined(spark, tmp_path, JoinKind.INNER, "left.k = right.k", LIMIT) == LIMIT
    assert joined(spark, tmp_path, JoinKind.SEMI, "true", LIMIT + 50) == LIMIT + 50
    assert joined(spark, tmp_path, JoinKind.ANTI, "false", LIMIT + 50) == LIMIT + 50
