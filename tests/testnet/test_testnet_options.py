"""Options that cannot be are refused in a line that names them, before anything starts."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from medusa.testnet.command import main


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("intrusion --peers 1", "--peers"),
        ("intrusion --speed fast", "'max', or seconds of trace per second"),
        ("intrusion --speed -1", "'max', or"),
        ("intrusion --speed nan", "'max', or"),
        ("intrusion --split 5 --peers 2", "--split takes 3 peers at least, and no --kills"),
        ("intrusion --split 5 --kills 2", "--split takes 3 peers at least, and no --kills"),
        ("intrusion-shared --conns a.csv", "give 2 files, one for each laboratory"),
        ("intrusion-shared --connections 0", "--connections"),
        ("intrusion-shared --conns no.csv --conns no.csv", "no.csv: after row 0: No such file"),
        ("market --minutes 391", "--minutes"),
        ("market --quotes-per-minute 0.5", "--quotes-per-minute"),
        ("market --trades nowhere.parquet", "nowhere.parquet"),
        (
            "market --minutes 390 --quotes-per-minute 5000",
            "are about 19,539,000 trades and quotes, more than 5,000,000: give fewer",
        ),
        ("tracking --hours 0", "--hours"),
        ("tracking --persons 1", "--persons"),
        ("tracking --persons 10000 --hours 1", "about 10,000,000 times, more than 5,000,000"),
        ("nexmark --queries q0,q23", "'q23': the queries are q0 to q22"),
        ("nexmark --events 0", "--events"),
        ("nexmark --profile fast", "'fast' is not one of 'edge', 'throughput'"),
        ("nexmark --events 7201 --rate 2", "longer than the 3600 s that joins keep"),
        (
            "linear-road --rating --minutes 2 --live-seconds 120",
            "--live-seconds 120 is not less than --minutes 2",
        ),
        ("partition --replica --chain 1", "a chain of at least 2"),
        ("ha --mode amnesia --recovery precise", "amnesia promises no more than gap"),
        ("bpm --load nan", "--load"),
        ("bpm --load 0", "--load"),
        ("bpm --nodes 0", "--nodes"),
        ("bpm --vary -1", "--vary"),
        ("bpm --capacity inf", "--capacity"),
        ("detect --nodes 2", "--nodes"),
        ("detect --nodes 10,", "--nodes"),
        ("detect --nodes ten", "--nodes"),
        ("detect --nodes 1000001", "--nodes"),
        ("detect --loss nan", "--loss"),
        ("detect --loss 0.6", "--loss"),
        ("detect --slow -0.1", "--slow"),
        ("detect --preset moon", "--preset"),
        ("detect --seconds inf", "--seconds"),
    ],
)
def test_bad_options(line: str, said: str) -> None:
    ended = CliRunner().invoke(main, line.split())
    assert ended.exit_code == 2
    assert said in ended.output
