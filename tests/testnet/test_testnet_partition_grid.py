"""Real splits of real peers, by chain and length: the table of docs/reference/availability.md."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

pytestmark = [pytest.mark.soak, pytest.mark.process]

COMMAND = (
    sys.executable,
    "-c",
    "from medusa.testnet.command import main; main()",
    "partition",
    "--json",
)


def split(*options: str, seconds: int) -> dict[str, object]:
    done = subprocess.run(
        [*COMMAND, "--seconds", str(seconds), *options],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout, done.stderr
    result: dict[str, object] = json.loads(done.stdout)
    assert done.returncode == 0, result["checks"]
    return result


@pytest.mark.parametrize("corrections", ["undo", "revisions"])
@pytest.mark.parametrize("seconds", [2, 10, 30, 60])
@pytest.mark.parametrize("chain", [1, 2, 3, 4])
def test_any_chain_survives_a_split_of_any_length(
    chain: int, seconds: int, corrections: str
) -> None:
    result = split("--chain", str(chain), "--corrections", corrections, seconds=seconds)
    assert (result["exact"], result["duplicates"], result["losses"]) == (True, 0, 0)
    if corrections == "undo":
        assert result["undos"] == result["rec_dones"]
        assert result["undos"] == 1 or not result["tentative"]


def test_a_split_shorter_than_the_bound_shows_nowhere() -> None:
    result = split("--bound", "6", seconds=3)
    assert (result["exact"], result["tentative"], result["undos"]) == (True, 0, 0)


def test_a_replica_hides_the_split() -> None:
    result = split("--replica", seconds=10)
    assert (result["exact"], result["tentative"], result["duplicates"]) == (True, 0, 0)
