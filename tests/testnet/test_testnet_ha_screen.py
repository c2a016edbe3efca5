"""The output of the high-availability demonstration for a person and for a program."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import trio
from click.testing import CliRunner
from screens import pipe, said, text_of, words_of

import medusa.testnet.ha.run
from medusa.engine.objects.availability import Mode
from medusa.overlay.concurrency import one_error
from medusa.overlay.errors import ConflictError, UnavailableError
from medusa.testnet.ha.chain import NONE, SERVERS, VARIANTS, Reading, Variant, expected
from medusa.testnet.ha.command import ha as ha_command
from medusa.testnet.ha.figures import (
    Arrival,
    Cost,
    HaResult,
    ModeResult,
    Observations,
    figures,
    judge,
)
from medusa.testnet.ha.run import Options, Play, run_ha
from medusa.testnet.ha.screen import (
    FROM_S,
    RUN_S,
    HaBoard,
    per_second,
    received_by,
    render_result,
    write_plot,
)
from medusa.testnet.kit.stages import about, open_screen

OUTAGES_S = {
    Mode.NONE: 14.0,
    Mode.AMNESIA: 1.5,
    Mode.UPSTREAM_BACKUP: 4.0,
    Mode.PASSIVE_STANDBY: 2.5,
    Mode.ACTIVE_STANDBY: 0.8,
}


def a_run(variant: Variant) -> Observations:
    """Return a run with 40 answers per second for a minute and a kill in the middle; delayed
    answers come at once."""
    run = Observations(variant, began=0.0, ended=75.0)
    run.before, run.after = Cost(15.0, 10.0, 0), Cost(30.0, 25.0, 400_000)
    run.killed_at, run.watched_at, run.returned = 30.0, 60.0, len(SERVERS)
    run.posted = [Reading(number * 2_500, number) for number in range(1, 24_000)]
    outage = OUTAGES_S[variant.mode]
    right = sorted(expected(run.posted))
    for at in range(1, 121):
        due = [row for row in right[:2_400] if (at - 1) * 0.5e6 <= row[0] + 10**6 < at * 0.5e6]
        when = max(at / 2 + 0.4, 30.0 + outage) if at / 2 >= 30.0 else at / 2 + 0.4
        if variant.mode is Mode.AMNESIA and 30.0 <= at / 2 <= 30.0 + outage:
            continue
        run.received(when, [row[0] + 10**6 for row in due], due)
    run.answers = [*right] if variant.mode is not Mode.AMNESIA else right[60:]
    return run


def played() -> HaBoard:
    """Return a board as it is after all runs."""
    clock = iter(float(second) for second in range(100_000))
    board = HaBoard(seconds=lambda: next(clock), planned=VARIANTS)
    for variant in VARIANTS:
        run = a_run(variant)
        board.begin(run)
        for key in tuple(board.stages):
            with board.stage(key) as stage:
                stage.detail = "answers after 0.81 s" if key == "kill" else ""
        none = board.results[0] if board.results else None
        board.results.append(figures(run, expected(run.posted), none))
    return board


@pytest.fixture(scope="module")
def board() -> HaBoard:
    return played()


def result(board: HaBoard) -> HaResult:
    return HaResult(tuple(board.results), judge(board.results), 400, 560.0, "ha.png", ("/tmp/x",))


@pytest.mark.parametrize("width", [80, 100, 120])
def test_the_screen_fits(board: HaBoard, width: int) -> None:
    text = text_of(board.screen(), width)
    for part in ("active standby, precise", "run 7 of 7", "┃", "answers after 0.81 s"):
        assert part in text, part
    assert text.count("\n") <= 24, "as many lines as a small terminal has"


def test_the_screen_before_anything_was_received() -> None:
    fresh = HaBoard()
    assert "run 0 of 0" in text_of(fresh.screen(), 80)
    fresh.begin(Observations(NONE))
    assert "medusa-testnet ha: none" in text_of(fresh.screen(), 80)


@pytest.mark.parametrize("width", [80, 120])
def test_the_summary_fits(board: HaBoard, width: int) -> None:
    text = words_of(render_result(result(board)), width)
    for part in ("passive/precise", "recovers", "amnesia loses", "400 readings/s", "ha.png"):
        assert part in text, part
    assert all(mark in text for mark in ("✓", "~"))


def test_answers_second_by_second() -> None:
    run = Observations(NONE)
    run.arrivals = [Arrival(10.1, (1, 2)), Arrival(10.9, (3,)), Arrival(12.0, (4,))]
    assert per_second(run, 9, 12) == [0, 3, 0, 1]
    assert per_second(run, 11, 11) == [0]


async def test_each_line_names_the_run_and_the_remaining_time() -> None:
    console = pipe()
    board = HaBoard(seconds=lambda: 0.0, planned=VARIANTS)
    async with open_screen(board, console):
        board.begin(Observations(NONE))
        with board.stage("start"):
            await trio.lowlevel.checkpoint()
    first = said(console).splitlines()[0]
    assert first == "none (run 1 of 7, about 13 minutes left): start the peers ..."


def test_the_picture(board: HaBoard, tmp_path: Path) -> None:
    write_plot(tmp_path / "ha.png", board.runs, board.results)
    assert (tmp_path / "ha.png").read_bytes().startswith(b"\x89PNG")
    write_plot(tmp_path / "empty.svg", [], [])
    times, counts = received_by(board.runs[0])
    assert times == sorted(times)
    assert times[0] >= FROM_S
    assert counts[-1] == sum(
        len(each.stimes) for each in board.runs[0].arrivals if each.at >= 30.0 + FROM_S
    )


# -- the command -----------------------------------------------------------------------------------


def test_the_board_estimates_the_rest_from_the_runs_so_far() -> None:
    clock = 0.0
    board = HaBoard(seconds=lambda: clock, planned=VARIANTS)
    assert board.left_s == len(VARIANTS) * RUN_S
    for seconds in (200.0, 100.0):
        board.results.append(ModeResult("none", "gap", 0, 0, None, 0.0, 0.0, 0.0, seconds=seconds))
    clock = 330.0  # 30 s into the third run
    assert board.left_s == pytest.approx(150.0 * (len(VARIANTS) - 2) - 30.0)
    clock = 1e6
    assert board.left_s == 0.0


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(0.0, "half a minute"), (50.0, "about 1 minute"), (770.0, "about 13 minutes")],
)
def test_times_that_are_not_known_exactly(seconds: float, words: str) -> None:
    assert about(seconds) == words


def test_the_command_says_beforehand_how_long_it_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Options] = []

    async def run_ha(options: Options, board: HaBoard) -> HaResult:
        await trio.lowlevel.checkpoint()
        asked.append(options)
        return HaResult((), ())

    monkeypatch.setattr(medusa.testnet.ha.run, "run_ha", run_ha)
    ended = CliRunner().invoke(ha_command, [])
    assert ended.output.startswith("7 runs of the chain: about 13 minutes")
    ended = CliRunner().invoke(ha_command, ["--short"])
    assert ended.output.startswith("one run of the chain: about 2 minutes")
    assert asked[1].short
    assert [each.mode for each in asked[1].variants] == [Mode.ACTIVE_STANDBY]


@pytest.mark.parametrize(("lost", "code"), [(0, 0), (1, 1)])
def test_the_json_and_the_exit_code(lost: int, code: int, monkeypatch: pytest.MonkeyPatch) -> None:
    async def run_ha(options: Options, board: HaBoard) -> HaResult:
        await trio.lowlevel.checkpoint()
        assert [variant.mode for variant in options.variants] == [Mode.NONE, Mode.ACTIVE_STANDBY]
        modes = (
            ModeResult("none", "gap", 0, 0, 9_000.0, 0.0, 0.0, 0.0, returned=4),
            ModeResult("active_standby", "precise", lost, 0, 800.0, 9.0, 0.9, 1.0, returned=4),
        )
        return HaResult(modes, judge(modes))

    monkeypatch.setattr(medusa.testnet.ha.run, "run_ha", run_ha)
    ended = CliRunner().invoke(ha_command, ["--mode", "active_standby", "--json"])
    assert ended.exit_code == code
    told = json.loads(ended.stdout)
    assert told["modes"][1]["lost"] == lost
    wanted = (
        "mode recovery lost duplicated recovery_ms added_delay_ms cpu_overhead network_overhead"
    )
    assert set(wanted.split()) <= told["modes"][0].keys()
    assert [check["good"] for check in told["checks"]].count(False) == lost


async def test_the_failure_of_a_run_is_its_result_and_the_others_go_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def run(self: Play) -> None:
        await trio.lowlevel.checkpoint()
        if self._run.variant.mode is Mode.PASSIVE_STANDBY:
            raise ConflictError("no such mode here")

    monkeypatch.setattr(Play, "run", run)
    found = await run_ha(Options(), HaBoard())
    assert [mode.failure for mode in found.modes].count("no such mode here") == 2
    assert len(found.modes) == len(VARIANTS)
    assert not found.good


async def test_a_failure_without_secondaries_has_the_ends_of_the_logs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def fail(_: Play) -> None:
        await trio.lowlevel.checkpoint()
        raise UnavailableError("the peer of mit.edu ended with 1")

    monkeypatch.setattr(Play, "run", fail)
    with pytest.raises(UnavailableError, match="ended with 1") as caught, one_error():
        await run_ha(Options(), HaBoard())
    assert hasattr(caught.value, "__notes__")
