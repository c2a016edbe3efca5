"""The command line: refusals, and exit codes."""

from __future__ import annotations

import signal
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
import trio
from click.testing import CliRunner, Result

import medusa.testnet.intrusion.run
from medusa.overlay.errors import UnavailableError
from medusa.testnet.command import main
from medusa.testnet.intrusion.board import Board
from medusa.testnet.intrusion.command import SpeedType
from medusa.testnet.intrusion.run import Options, compare
from medusa.testnet.kit.command import unless_told_to_stop


def run(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["intrusion", *arguments])


def test_a_bad_trace_is_one_line(tmp_path: Path) -> None:
    trace = tmp_path / "bad.csv"
    trace.write_text("ts,src_ip,dst_port\n1,10.0.0.1,eighty\n")
    result = run("--trace", str(trace))
    assert result.exit_code == 2
    assert result.stderr.splitlines() == [
        f"error: {trace}: row 1: dst_port: 'eighty' is not a whole number of 32 bits"
    ]


def test_speeds() -> None:
    speed = SpeedType()
    assert speed.convert("max", None, None) is None
    assert speed.convert("60", None, None) == 60.0


def scenario(exact: bool) -> Callable[..., Awaitable[medusa.testnet.intrusion.run.Result]]:
    async def run_intrusion(options: Options, board: Board) -> medusa.testnet.intrusion.run.Result:
        with board.stage("traces"):
            await trio.lowlevel.checkpoint()
        answer = compare([], [] if exact else [(1, "a", 1)])
        return medusa.testnet.intrusion.run.Result(
            scenario="intrusion",
            generated=True,
            peers=("mit.edu", "utah.edu"),
            rows=1,
            seconds=1.0,
            rows_per_second=1.0,
            first_answer_seconds=None,
            first_answer_after_post_seconds=None,
            answers=dict.fromkeys(("busy", "scan", "cluster"), answer),
            exact=exact,
            stage_seconds={},
            out=str(options.out),
            folder=None,
        )

    return run_intrusion


@pytest.mark.parametrize(("exact", "code"), [(True, 0), (False, 1)])
def test_the_exit_code_says_whether_it_is_exact(
    exact: bool, code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(medusa.testnet.intrusion.run, "run_intrusion", scenario(exact))
    assert run().exit_code == code
    result = run("--json", "--out", "there")
    assert result.exit_code == code
    assert f'"exact": {str(exact).lower()}' in result.stdout
    assert '"out": "there"' in result.stdout
    assert "read the traces" in result.stderr, "progress goes beside the JSON"


def test_a_failure_shows_the_ends_of_the_logs(monkeypatch: pytest.MonkeyPatch) -> None:
    async def fail(options: Options, board: Board) -> None:
        await trio.lowlevel.checkpoint()
        error = UnavailableError("the peer of mit.edu ended with 1")
        error.add_note("--- mit.edu (ended)\nport taken")
        raise error

    monkeypatch.setattr(medusa.testnet.intrusion.run, "run_intrusion", fail)
    result = run()
    assert result.exit_code == 2
    assert result.stderr.splitlines()[-3:] == [
        "error: the peer of mit.edu ended with 1",
        "--- mit.edu (ended)",
        "port taken",
    ]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
async def test_signals_end_a_run_tidily(number: signal.Signals) -> None:
    tidied = []

    async def task() -> int:
        try:
            signal.raise_signal(number)
            await trio.sleep_forever()
        finally:
            tidied.append(True)
        return 1

    # The watcher must be listening before the signal comes.
    async def later() -> int:
        await trio.testing.wait_all_tasks_blocked()
        return await task()

    assert await unless_told_to_stop(later) is None
    assert tidied == [True]


async def test_without_a_signal_the_result_comes_through() -> None:
    async def task() -> int:
        await trio.lowlevel.checkpoint()
        return 7

    assert await unless_told_to_stop(task) == 7
