"""The intrusion query over real traces; network namespaces split its federation of four."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from namespaces_here import skip_without_namespaces

TRACES = Path(__file__).resolve().parents[3] / "shared" / "data"
"""The folder of real connections; see its README."""
WRCCDC = [TRACES / "wrccdc_a.parquet", TRACES / "wrccdc_b.parquet"]

needs_traces = pytest.mark.skipif(
    not all(path.exists() for path in WRCCDC), reason="the wrccdc traces are not here"
)


@pytest.fixture(scope="module")
def possible() -> None:
    skip_without_namespaces()


def run(folder: Path, *options: str) -> dict[str, object]:
    command = [sys.executable, "-c", "from medusa.testnet.command import main; main()", "intrusion"]
    traces = [part for path in WRCCDC for part in ("--trace", str(path))]
    done = subprocess.run(
        [*command, "--peers", "4", *traces, "--out", str(folder), "--json", *options],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout, done.stderr
    result: dict[str, object] = json.loads(done.stdout)
    assert done.returncode == 0, result
    return result


@pytest.mark.soak
@needs_traces
@pytest.mark.usefixtures("possible")
def test_answers_are_exact_after_a_split(tmp_path: Path) -> None:
    result = run(tmp_path, "--split", "15", "--netns")
    assert result["exact"]
    assert result["faults"] == []
    assert result["tentative"]


@pytest.mark.soak
@needs_traces
@pytest.mark.usefixtures("possible")
def test_answers_are_exact_though_load_moves_while_it_is_split(tmp_path: Path) -> None:
    """Both sides of every contract also have signed the same receipts in the end."""
    result = run(tmp_path, "--split", "25", "--netns", "--trade")
    assert result["exact"]
    assert result["faults"] == []
    assert result["moves_while_split"]
    assert result["receipts"]
