"""The output for a person: on a terminal, in a pipe, and at the end."""

from __future__ import annotations

import io

import msgspec
import pytest
import trio
from rich.console import Console
from screens import pipe, said, text_of, words_of

from medusa.overlay.errors import UnavailableError
from medusa.testnet.ha.chain import NONE
from medusa.testnet.ha.figures import Observations
from medusa.testnet.ha.screen import HaBoard
from medusa.testnet.intrusion.board import Board, Posting
from medusa.testnet.intrusion.run import AnswerResult, Result, compare
from medusa.testnet.intrusion.screen import render_result
from medusa.testnet.kit.stages import Stages, State, open_screen
from medusa.testnet.load.board import Load, LoadBoard


def running_board() -> Board:
    clock = iter(float(second) for second in range(1_000))
    board = Board(seconds=lambda: next(clock))
    with board.stage("traces") as stage:
        stage.detail = "200,000 connections in 2 traces"
    board.stages["post"].state = State.RUNNING
    board.posting = {"mit.edu": Posting(0, 120_000), "utah.edu": Posting(0, 80_000)}
    board.posted("mit.edu", 40_000)
    board.answers = {"busy": 0, "scan": 0, "cluster": 0}
    board.received("busy", 17)
    return board


def result(*, exact: bool = True) -> Result:
    answer = compare([(60, "a", 101)], [(60, "a", 101)] if exact else [(60, "b", 102)])
    return Result(
        scenario="intrusion",
        generated=True,
        peers=("mit.edu", "utah.edu", "brown.edu"),
        rows=200_000,
        seconds=4.0,
        rows_per_second=50_000.0,
        first_answer_seconds=12.34,
        first_answer_after_post_seconds=1.2,
        answers={"busy": answer, "scan": compare([], []), "cluster": compare([], [])},
        exact=exact,
        stage_seconds={"post": 3.0},
        out="out",
        folder="/kept/here",
    )


@pytest.mark.parametrize("width", [60, 80, 120])
def test_live_screen_fits(width: int) -> None:
    text = text_of(running_board().screen(width, 30), width, 30)
    assert "post the connections" in text
    assert "40,000 of 200,000" in text
    assert "utah.edu" in text
    assert "17" in text


@pytest.mark.parametrize("width", [60, 80, 120])
def test_summary_fits(width: int) -> None:
    text = text_of(render_result(result()), width)
    assert text.count("equal") == 3
    assert "50,000 rows/s" in text
    assert "12.3 s" in text
    assert "/kept/here" in text


def test_summary_shows_differences() -> None:
    text = text_of(render_result(result(exact=False)), 80)
    assert "different" in text
    assert "busy: missing (60, 'b', 102)" in text
    assert "busy: not expected (60, 'a', 101)" in text


def test_repeated_rows_are_differences() -> None:
    row = (60, "a", 101)
    assert compare([row, row], [row]) == AnswerResult(
        2, 1, exact=False, strongest=row, extra=(row,)
    )
    assert compare([row], [row, row]) == AnswerResult(
        1, 2, exact=False, strongest=row, missing=(row,)
    )
    assert compare([row], [row]).exact


def test_result_is_json() -> None:
    decoded = msgspec.json.decode(msgspec.json.encode(result()))
    assert decoded["exact"] is True
    assert decoded["answers"]["busy"]["rows"] == 1


def running_ha() -> HaBoard:
    board = HaBoard()
    board.begin(Observations(NONE))
    return board


def sample(board: Stages) -> None:
    if isinstance(board, LoadBoard):
        board.sampled({"mit.edu": Load(12.34, 15.0)})


@pytest.mark.parametrize(
    ("board", "began", "failed", "around"),
    [
        (Board(), "traces", "start", ("", "", "")),
        (running_ha(), "start", "kill", ("none: ", "", "")),
        (LoadBoard(), "start", "shed", ("", ", about 7 minutes left", " (A 12.3/15), about ")),
    ],
)
async def test_a_pipe_gets_a_line_for_each_stage(
    board: Stages, began: str, failed: str, around: tuple[str, str, str]
) -> None:
    before, after, at_last = around
    console = pipe()
    with pytest.raises(UnavailableError):  # noqa: PT012 - what is shown meanwhile is the point
        async with open_screen(board, console):
            with board.stage(began) as stage:
                stage.detail = "8 of 8 peers"
            sample(board)
            with board.stage(failed):
                raise UnavailableError("gone")
    lines = said(console).splitlines()
    one, other = (f"{before}{board.words[name]}" for name in (began, failed))
    beginnings = [f"{one} ...", f"{one} done", f"{other} ...", f"{other} failed"]
    assert [line.split(" in 0.0 s")[0] for line in lines] == beginnings
    assert lines[1].endswith(f": 8 of 8 peers{after}")
    assert at_last in lines[3]
    assert board.stages[failed].state is State.FAILED


async def test_the_live_screen_leaves_the_stages(autojump_clock: trio.testing.MockClock) -> None:
    board = running_board()
    output = Console(width=80, height=30, file=io.StringIO(), force_terminal=True)
    async with open_screen(board, output):
        await trio.sleep(1)
    text = said(output)
    assert text.count("medusa-testnet intrusion") > 2, "it was drawn again and again"
    assert "read the traces" in text.split("medusa-testnet intrusion")[-1]


def test_a_failures_words_are_printed_as_they_are() -> None:
    board, output = Board(), pipe()
    board.print_each(output)
    words = "[Errno 28] No space left on device [/bold]"

    def fail() -> None:
        with board.stage("traces") as stage:
            stage.detail = words
            raise OSError(words)

    with pytest.raises(OSError, match="No space"):
        fail()
    assert words in said(output)


def test_generated_traffic_is_called_so_and_its_finds_are_shown_with_their_reason() -> None:
    text = words_of(render_result(result()), 100)
    assert "200,000 generated connections posted" in text
    assert "busy a 00:01 opened 101 connections in that minute" in text
    assert "intrusion --trace your_conn.log" in text
    assert " partition --seconds 10" in text


def test_the_screen_advertises_no_real_traces_nor_wrong_answers() -> None:
    for each in (msgspec.structs.replace(result(), generated=False), result(exact=False)):
        assert "next" not in text_of(render_result(each), 100)
