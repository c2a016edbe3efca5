"""The output of a run with kills for a person, a script and a caller."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
import trio
from click.testing import CliRunner
from screens import text_of, words_of

import medusa.testnet.intrusion.kills
from medusa.engine.objects.availability import Mode
from medusa.overlay.errors import UnavailableError
from medusa.testnet.command import main
from medusa.testnet.intrusion.board import Board, Posting, Toll
from medusa.testnet.intrusion.kills import FIRST_S, SECONDS_A_KILL, KillsResult, run_intrusion_kills
from medusa.testnet.intrusion.run import Disturbance, Options, Result, compare
from medusa.testnet.intrusion.screen import render_result
from medusa.testnet.kit.answers import Received


def plain(*, exact: bool = True) -> Result:
    answer = compare([], [] if exact else [(1, "a", 1)])
    return Result(
        scenario="intrusion",
        generated=True,
        peers=("mit.edu", "utah.edu"),
        rows=200_000,
        seconds=100.0,
        rows_per_second=2_000.0,
        first_answer_seconds=9.0,
        first_answer_after_post_seconds=3.0,
        answers=dict.fromkeys(("busy", "scan", "cluster"), answer),
        exact=exact,
        stage_seconds={},
        out="out",
        folder=None,
    )


def with_kills(*faults: str, exact: bool = True) -> KillsResult:
    fields = {name: getattr(plain(), name) for name in Result.__struct_fields__}
    return KillsResult(
        **{**fields, "exact": exact},
        kills=20,
        restarts=20,
        longest_pause_seconds=12.25,
        longest_afterlife_seconds=0.5,
        faults=faults,
        history=("    5.74 kill 1: utah.edu",),
        victims=("utah.edu", "brown.edu") * 10,
    )


@pytest.mark.parametrize("width", [60, 80, 120])
def test_the_screen_shows_the_number_of_kills_and_the_peers_that_are_down(width: int) -> None:
    board = Board(seconds=lambda: 1.0)
    board.posting = {"mit.edu": Posting(1, 2)}
    board.answers = {"busy": 17, "scan": 4, "cluster": 0}
    assert "kills" not in text_of(board.screen(width, 40), width)
    board.toll = Toll(20)
    assert "0 of 20 kills, 0 restarts; all peers are up" in text_of(board.screen(width, 40), width)
    board.killed("utah.edu")
    board.killed("brown.edu")
    board.restarted("utah.edu")
    text = text_of(board.screen(width, 40), width)
    assert "2 of 20 kills, 1 restart;" in text
    assert "utah.edu starting, brown" in text
    assert "17" in text
    board.up("utah.edu")
    assert "; brown.edu down" in text_of(board.screen(width, 40), width)


@pytest.mark.parametrize("width", [60, 80, 120])
def test_the_summary_has_the_kills(width: int) -> None:
    text = words_of(render_result(with_kills()), width)
    assert "20 kills, 20 restarts; an answer stood still for at most 12.2 s" in text
    assert "kills" not in text_of(render_result(plain()), width)
    fault = "brown.edu was dead, and java (17) went on"
    assert fault in text_of(render_result(with_kills(fault, exact=False)), width)


def test_a_script_gets_the_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[Options, int]] = []

    async def run(options: Options, kills: int, board: Board) -> KillsResult:
        await trio.lowlevel.checkpoint()
        asked.append((options, kills))
        return with_kills("a fault", exact=False)

    monkeypatch.setattr(medusa.testnet.intrusion.kills, "run_intrusion_kills", run)
    arguments = ["intrusion", "--kills", "20", "--seed", "7", "--json"]
    result = CliRunner().invoke(main, [*arguments, "--ha", "active_standby", "--k-safety", "1"])
    assert result.exit_code == 1
    decoded = msgspec.json.decode(result.stdout)
    assert {key: decoded[key] for key in ("kills", "restarts", "longest_pause_seconds")} == {
        "kills": 20,
        "restarts": 20,
        "longest_pause_seconds": 12.25,
    }
    assert decoded["exact"] is False
    assert decoded["faults"] == ["a fault"]
    ((options, kills),) = asked
    assert (kills, options.seed, options.k_safety) == (20, 7, 1)
    assert options.mode is Mode.ACTIVE_STANDBY


@pytest.mark.parametrize("faulty", [False, True])
async def test_a_history_with_a_fault_is_not_exact(
    faulty: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def run(options: Options, board: Board, disturb: Disturbance) -> Result:
        assert options.stretch_s == FIRST_S + 2 * SECONDS_A_KILL
        with board.stage("post"):
            await trio.lowlevel.checkpoint()
        board.history.add("busy", Received(1.0, -(2**63), 10))
        board.history.add("busy", Received(2.0, 9 if faulty else 10, 20))
        return plain()

    monkeypatch.setattr(medusa.testnet.intrusion.kills, "run_intrusion", run)
    result = await run_intrusion_kills(Options(), 2, Board(seconds=lambda: 0.0))
    assert result.exact is not faulty
    assert result.faults == (("busy: (9, 20] goes back behind 10",) if faulty else ())
    assert result.longest_pause_seconds == 1.0


async def test_a_failure_names_the_killed_peers_and_the_times(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    async def run(
        options: Options, board: Board, killer: medusa.testnet.intrusion.kills.Killer
    ) -> Result:
        await trio.lowlevel.checkpoint()
        killer.log.append("    1.00 kill 1: mit.edu")
        raise UnavailableError("mit.edu does not answer")

    monkeypatch.setattr(medusa.testnet.intrusion.kills, "run_intrusion", run)
    with pytest.raises(UnavailableError) as raised:
        await run_intrusion_kills(Options(out=tmp_path), 1, Board())
    assert raised.value.__notes__ == ["--- kills\n    1.00 kill 1: mit.edu"]
