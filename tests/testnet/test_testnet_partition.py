"""The effects of a split, derived from a client's messages; and one real split."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest
from click.testing import CliRunner
from screens import text_of

from medusa.engine.objects.schema import END, STIME
from medusa.engine.streams.revisions.corrections import Change, Corrections, Kind
from medusa.testnet.command import main
from medusa.testnet.partition.chain import SIEVES, expected, query, sources
from medusa.testnet.partition.figures import (
    Observations,
    Options,
    PartitionResult,
    ReceivedChange,
    figures,
    render_result,
    write_plot,
)

SECOND = 1_000_000


def change(kind: Kind, after: float, upto: float, final: float, *numbers: int) -> Change:
    """Return a change. Times are in seconds; the n-th tuple is of sensor 1 and of the time n."""
    table = pa.table(
        {
            STIME: pa.array([n * SECOND for n in numbers], pa.int64()),
            "sensor": pa.array([1] * len(numbers), pa.int8()),
            "number": pa.array(numbers, pa.int64()),
        }
    )
    return Change(kind, int(after * SECOND), int(upto * SECOND), table, int(final * SECOND))


def seen(*heard: tuple[float, Change], posted: int) -> Observations:
    """Return a client's messages with their times, for a split from 10 to 20 s."""
    run = Observations(steady_at=0.0, cut_at=10.0, healed_at=20.0)
    run.heard = [ReceivedChange(at, each) for at, each in heard]
    run.posted = [(1, number) for number in range(1, posted + 1)]
    return run


def judged(
    run: Observations, how: Corrections = Corrections.UNDO, **more: float
) -> PartitionResult:
    settings = {"seconds": 10.0, "bound_s": 2.0, "missing": 1 / 3, **more}
    return figures(run, Options(chain=1, corrections=how, **settings))  # type: ignore[arg-type]


def broken(result: PartitionResult) -> list[str]:
    return [check.claim for check in result.checks if not check.good]


GOOD = (
    (9.5, change(Kind.INSERTION, 0, 9, 9, 1, 2, 3, 4, 5, 6, 7, 8, 9)),
    (14.0, change(Kind.TENTATIVE, 9, 12, 9, 11, 12)),
    (20.3, change(Kind.UNDO, 9, 12, 9)),
    (20.3, change(Kind.INSERTION, 9, 20, 20, 11, 12, 13, 14, 15, 16, 17, 18, 19)),
    (20.4, change(Kind.REC_DONE, 9, 20, 20)),
)


def test_the_judge_finds_kept_promises() -> None:
    at_once = (9.5, change(Kind.INSERTION, 0, 9, 9, 1, 2, 3, 4, 5, 6, 7, 8, 9))
    late = (13.0, change(Kind.TENTATIVE, 9, 12, 9, 11, 12))
    result = judged(seen(at_once, late, *GOOD[2:], posted=19), bound_s=8.0)
    assert result.exact
    assert (result.tentative, result.undone, result.undos, result.rec_dones) == (2, 2, 1, 1)
    assert result.max_new_tuple_delay_ms_stable == 8500.0
    assert result.max_new_tuple_delay_ms_failure == 2000.0
    assert result.max_new_tuple_delay_ms_stabilization == 7300.0
    assert result.first_tentative_ms == 3000.0
    assert broken(result) == []


@pytest.mark.parametrize(
    ("heard", "posted", "claim"),
    [
        (GOOD[:-2], 19, "the client ends with the stream of a failure-free run"),
        (GOOD, 21, "the client ends with the stream of a failure-free run"),
        (
            ((9.5, change(Kind.INSERTION, 0, 9, 9, 8, 9)), *GOOD[1:]),
            19,
            "new results within X of the usual during stabilization",
        ),
        (GOOD[:1] + GOOD[3:4], 19, "results go on during the split"),
        (GOOD[:2] + GOOD[3:4], 19, "one UNDO and one REC_DONE"),
    ],
)
def test_the_judge_names_the_broken_promise(
    heard: tuple[tuple[float, Change], ...], posted: int, claim: str
) -> None:
    assert claim in broken(judged(seen(*heard, posted=posted), bound_s=2.0))


def test_a_short_split_must_show_nowhere() -> None:
    result = judged(seen(*GOOD, posted=19), seconds=0.5, bound_s=4.0)
    assert "a split shorter than the bound shows nowhere" in broken(result)


def test_revisions_of_a_little_must_be_few() -> None:
    heard = (
        GOOD[0],
        (14.0, change(Kind.TENTATIVE, 9, 12, 9, 11, 12)),
        (20.3, change(Kind.DELETION, 9, 12, 9, 11)),
        (20.3, change(Kind.INSERTION, 9, 12, 9, 11)),
        (20.3, change(Kind.INSERTION, 12, 20, 20, 13, 14, 15, 16, 17, 18, 19)),
    )
    result = judged(seen(*heard, posted=19), Corrections.REVISIONS, missing=0.01)
    assert result.exact
    assert result.revised == 2
    assert "corrections carry only the difference" in broken(result)


def test_the_answer_is_plain_arithmetic() -> None:
    wanted = expected([(0, n) for n in range(1, 1000)], chain=2)
    assert wanted == {(0, n) for n in range(1, 1000) if n % SIEVES[0] and n % SIEVES[1]}
    assert sum(source.share for source in sources(0.01)) == pytest.approx(1.0)
    assert query(0, 2.0).availability.bound_s == 2.0


def test_the_result_is_shown_beside_the_original(tmp_path: Path) -> None:
    run = seen(*GOOD, posted=19)
    result = judged(run)
    assert "Borealis" in text_of(render_result(result), 80)
    write_plot(tmp_path / "split.png", run, result)
    assert (tmp_path / "split.png").stat().st_size > 10_000


@pytest.mark.process
@pytest.mark.spark
def test_results_continue_through_a_real_split_and_are_corrected(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, seconds in (("WARM_S", 1.0), ("STEADY_S", 2.0), ("WATCH_S", 1.0)):
        monkeypatch.setattr(f"medusa.testnet.partition.run.{name}", seconds)
    options = ["--seconds", "4", "--chain", "1", "--corrections", "revisions", "--missing", "0.01"]
    done = CliRunner().invoke(main, ["partition", *options, "--json"])
    assert done.stdout, done.stderr
    result = json.loads(done.stdout)
    assert (result["exact"], result["duplicates"], result["losses"]) == (True, 0, 0), result
    assert result["tentative"] > 0
    assert result["revised"] <= 0.05 * result["tentative"]


def test_a_stream_that_ended_is_past_all_else() -> None:
    run = seen(*GOOD, (21.0, change(Kind.INSERTION, 20, END / SECOND, END / SECOND)), posted=19)
    assert run.corrected_at() == 20.3
    assert run.corrected
