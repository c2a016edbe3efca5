"""The output of the load demonstration for a person and for a program."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import trio
from click.testing import CliRunner
from screens import text_of, words_of

import medusa.testnet.load.run
from medusa.overlay.concurrency import one_error
from medusa.overlay.errors import UnavailableError
from medusa.testnet.load.board import (
    EXPECTED_S,
    SHORT_SHARE,
    SHORT_STAGES,
    STAGES,
    Load,
    LoadBoard,
    LoadResult,
    Moved,
    Step,
)
from medusa.testnet.load.command import load as load_command
from medusa.testnet.load.run import Options
from medusa.testnet.load.screen import (
    lines_of,
    load_at,
    render_result,
    write_plot,
)
from medusa.testnet.load.script import FULL, SHORT, Script

# -- showing ---------------------------------------------------------------------------------------


def played() -> LoadBoard:
    """Return a board as after a run: A gives tasks to B, then to C."""
    clock = iter(float(second) for second in range(100_000))
    board = LoadBoard(seconds=lambda: next(clock))
    for key in ("calibrate", "shed", "rise", "join", "flow"):
        with board.stage(key) as stage:
            stage.detail = "acceptable"
            for second in range(30):
                share = {
                    "mit.edu": 25.0 - second / 3,
                    "utah.edu": 9.0 + second / 6,
                    "brown.edu": 8.0,
                }
                if key in {"join", "flow"}:
                    share["brandeis.edu"] = second / 5
                board.sampled({name: Load(load, 15.0, (1.5, 0.0)) for name, load in share.items()})
    board.moves = [
        Moved(60.0, "medusa://mit.edu/busy1", "mit.edu", "utah.edu", 1_000_000, 120.0, 4_096),
        Moved(70.0, "medusa://mit.edu/busy2", "mit.edu", "brown.edu", 950_000, 80.0, 4_096),
        Moved(90.0, "medusa://mit.edu/busy3", "mit.edu", "ffff", 950_000, 80.0, 4_096),
    ]
    board.rows, board.answers = 1_234_567, 890
    return board


def result(*, exact: bool = True, acceptable: bool = True) -> LoadResult:
    capacities = {"mit.edu": 15.0, "utah.edu": 15.0}
    steps = (
        Step(STAGES["shed"], acceptable, {"mit.edu": 15.0, "utah.edu": 11.0}, capacities),
        Step(STAGES["join"], False, {"mit.edu": 19.0, "utah.edu": 11.0}, capacities, due=False),
    )
    different = () if exact else ("medusa://mit.edu/busy1",)
    moves = tuple(played().moves)
    return LoadResult(steps, moves, exact, 28, different, 1_234_567, 24.0, plot="load.png")


@pytest.mark.parametrize("width", [80, 100, 120])
def test_the_screen_fits(width: int) -> None:
    text = text_of(played().screen(), width)
    for part in ("1 A sheds to B and C", "1,234,567 connections", "A → B", "at 0.950"):
        assert part in text
    assert text.count("\n") <= 24, "as many lines as a small terminal has"


@pytest.mark.parametrize("width", [80, 120])
def test_the_summary_fits(width: int) -> None:
    text = words_of(render_result(result(exact=False, acceptable=False)), width)
    for part in (
        "15.0/15",
        "not acceptable",
        "not yet acceptable",
        "1 of 28 answers differ",
        "median stall 80 ms",
    ):
        assert part in text, part


def test_the_picture(tmp_path: Path) -> None:
    write_plot(tmp_path / "load.png", played())
    assert (tmp_path / "load.png").read_bytes().startswith(b"\x89PNG")
    write_plot(tmp_path / "empty.svg", LoadBoard())
    lines = lines_of(played())
    assert load_at(lines, "mit.edu", -1.0) == 25.0
    assert load_at(lines, "mit.edu", 1e9) == pytest.approx(25.0 - 29 / 3)


@pytest.mark.parametrize("words", [STAGES, SHORT_STAGES])
def test_the_board_estimates_the_rest_from_the_next_stages(words: dict[str, str]) -> None:
    clock = 0.0
    board = LoadBoard(words=words, seconds=lambda: clock)
    whole = board.left_s
    assert whole == pytest.approx(
        sum(EXPECTED_S[name] for name in words) * (1.0 if words is STAGES else SHORT_SHARE)
    )
    with board.stage("start"):
        clock = 5.0
        assert board.left_s == pytest.approx(whole - 5.0)
        clock = 500.0
    assert board.left_s < whole - 5.0
    for name in list(words)[1:]:
        with board.stage(name):
            pass
    assert board.left_s == 0.0


def test_the_command_says_beforehand_how_long_it_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    async def run_load(_: Options, board: LoadBoard, script: Script) -> LoadResult:
        await trio.lowlevel.checkpoint()
        assert script is (SHORT if board.words == SHORT_STAGES else FULL)
        return result()

    monkeypatch.setattr(medusa.testnet.load.run, "run_load", run_load)
    assert CliRunner().invoke(load_command, []).output.startswith("four steps: about 7 minutes")
    said = CliRunner().invoke(load_command, ["--short"]).output
    assert said.startswith("one step: about 2 minutes")


# -- the command -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("exact", "acceptable", "code"), [(True, True, 0), (False, True, 1), (True, False, 1)]
)
def test_the_json_and_the_exit_code(
    exact: bool, acceptable: bool, code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def run_load(_: Options, board: LoadBoard, script: Script) -> LoadResult:
        with board.stage("start"):
            await trio.lowlevel.checkpoint()
        return result(exact=exact, acceptable=acceptable)

    monkeypatch.setattr(medusa.testnet.load.run, "run_load", run_load)
    ended = CliRunner().invoke(load_command, ["--json"])
    assert ended.exit_code == code
    told = json.loads(ended.stdout)
    assert told["answers_exact"] is exact
    assert told["steps"][0]["acceptable"] is acceptable
    assert {"name", "acceptable", "loads", "capacities"} <= told["steps"][0].keys()
    assert {"task", "from", "to", "price", "stall_ms", "carry_bytes"} <= told["moves"][0].keys()


async def test_a_failure_has_the_ends_of_the_logs(monkeypatch: pytest.MonkeyPatch) -> None:
    async def fail(*_: object) -> None:
        await trio.lowlevel.checkpoint()
        raise UnavailableError("the peer of mit.edu ended with 1")

    monkeypatch.setattr(medusa.testnet.load.run.Cast, "enter", fail)
    with pytest.raises(UnavailableError, match="ended with 1") as caught, one_error():
        await medusa.testnet.load.run.run_load(Options(), LoadBoard(), FULL)
    assert hasattr(caught.value, "__notes__")
