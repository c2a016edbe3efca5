"""`medusa-testnet market`: a trader's queries at a real peer, over a generated and a real day."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from scenario_commands import exact_rows

from medusa.testnet.command import main
from medusa.testnet.market.tables import TIME
from medusa.testnet.market.workload import Options, market_workload

TAQ: Final = (
    Path(__file__).parents[2].parent / "shared" / "data" / "taq_trades_multi_2014-09-17.parquet"
)
ANSWERS: Final = ("vwap", "bars", "together", "quoted", "best", "crossed")


def taq_file(path: Path, *, days: int) -> Path:
    """Write a file of two trades that are that many days apart."""
    at = pa.array([0, days * 86_400_000_000]).cast(TIME)
    table = {"DT": at, "SYMBOL": ["X", "X"], "PRICE": [1.0, 2.0], "SIZE": [1, 1]}
    pq.write_table(pa.table(table), path)
    return path


@pytest.mark.spark
@pytest.mark.usefixtures("own_spark")
def test_a_generated_market_is_answered_exactly() -> None:
    rows = exact_rows("market", "--minutes", "10", "--seed", "2")
    assert tuple(rows) == ANSWERS
    assert rows["vwap"] == rows["bars"] == 5 * 10
    assert rows["quoted"] == rows["best"] > 500
    assert rows["together"] > 10
    assert rows["crossed"] > 10


@pytest.mark.spark
@pytest.mark.usefixtures("own_spark")
def test_a_real_day_is_answered_exactly() -> None:
    if not TAQ.exists():
        pytest.skip("taq_trades_multi_2014-09-17: the trades are not here")
    rows = exact_rows("market", "--trades", str(TAQ), "--quotes-per-minute", "20")
    assert rows["quoted"] == 43_581
    assert rows["bars"] == 3 * 390
    assert min(rows.values()) > 10


@pytest.mark.soak
@pytest.mark.spark
@pytest.mark.usefixtures("own_spark")
@pytest.mark.parametrize("seed", [3, 4])
def test_a_busy_day_is_answered_exactly(seed: int) -> None:
    rows = exact_rows(
        "market",
        *("--minutes", "390", "--seed", str(seed)),
        *("--trades-per-minute", "300", "--quotes-per-minute", "300"),
    )
    assert rows["quoted"] > 500_000
    assert rows["bars"] == 5 * 390


def test_a_bad_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "t.parquet").write_text("no parquet")
    for file, said in (
        (tmp_path / "t.parquet", "t.parquet: not a table of trades"),
        (taq_file(tmp_path / "long.parquet", days=60), "1 symbols in 86400 minutes are about"),
    ):
        ended = CliRunner().invoke(main, ["market", "--trades", str(file)])
        assert ended.exit_code == 2
        assert said in ended.output


def test_the_quotes_of_a_file_are_around_its_trades(tmp_path: Path) -> None:
    file = taq_file(tmp_path / "t.parquet", days=1)
    workload = market_workload(Options(1, quotes_per_minute=1.0, file=file))
    assert workload.title.startswith("Market of t.parquet, 2 trades, ")
    bids = workload.tables["newyork"].column("bid").to_pylist()
    assert len(bids) > 1_000
    assert all(0.9 < bid <= 1.0 for bid in bids)
