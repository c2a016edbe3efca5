"""The parts of the high-availability demonstration: its options, measurements, and verdicts."""

from __future__ import annotations

import os
import subprocess
import sys

import duckdb
import msgspec
import pyarrow as pa
import pytest
import trio
from deadline import DEADLINE_S
from hypothesis import given, settings
from hypothesis import strategies as st

from medusa.engine.language.check import check_query
from medusa.engine.objects.availability import Mode, Recovery
from medusa.engine.objects.schema import Schema
from medusa.engine.replication.records.status import PeerStatus, ReplicaStatus
from medusa.engine.tasks.plan import plan
from medusa.overlay.errors import InvalidInputError
from medusa.testnet.ha import chain
from medusa.testnet.ha.chain import (
    NONE,
    RATE,
    SERVERS,
    VARIANTS,
    Answer,
    Reading,
    Variant,
    chosen,
    expected,
    readings_table,
    source_sensor,
)
from medusa.testnet.ha.figures import (
    Arrival,
    Claimed,
    Cost,
    Errors,
    HaResult,
    ModeResult,
    Observations,
    compare,
    delay_ms,
    figures,
    judge,
    longest_gap,
    promises,
    stall_ms,
)
from medusa.testnet.ha.run import primaries_of, secured
from medusa.testnet.kit.cast import cpu_seconds

ACTIVE = Variant(Mode.ACTIVE_STANDBY, Recovery.PRECISE)

# -- the chain -------------------------------------------------------------------------------------


def test_each_server_is_one_task_and_reads_what_the_one_before_puts_out() -> None:
    known = {chain.SOURCE.name: chain.SCHEMA}
    for server, before in zip(SERVERS, (None, *SERVERS), strict=False):
        query = chain.query(server, ACTIVE.availability("ab" * 20))
        schemas = check_query(query, known)
        (task,) = plan(query, schemas)
        assert task.name == chain.output(server)
        assert query.boxes[0].input == (  # type: ignore[union-attr]
            chain.SOURCE.name if before is None else chain.output(before)
        )
        assert query.availability.secondary == "ab" * 20
        known = {task.name: schemas[task.name]}
    assert chain.SOURCE.schema == chain.SCHEMA.name


@settings(deadline=None, max_examples=40)
@given(
    st.lists(st.tuples(st.integers(0, 3_000_000), st.integers(1, 60)), max_size=40, unique_by=tuple)
)
def test_the_expected_answers_equal_a_batch_run(rows: list[tuple[int, int]]) -> None:
    readings = [Reading(at_us, number) for at_us, number in rows]
    with duckdb.connect() as database:
        database.register("readings", readings_table(readings))
        found = database.execute("""
            WITH kept AS (SELECT time_us, number, number % 4 AS lane, number * 3 + 1 AS value
                          FROM readings WHERE number % 10 <> 0),
                 starts AS (SELECT range * 100000 AS start FROM range(-10, 31))
            SELECT start, lane, count(*), min(number), max(number), CAST(sum(value) AS BIGINT)
            FROM kept JOIN starts ON time_us >= start AND time_us < start + 1000000
            GROUP BY ALL""").fetchall()
    assert expected(readings) == set(found)


def test_answers_are_read_from_what_the_last_server_puts_out() -> None:
    known: dict[str, Schema] = {chain.SOURCE.name: chain.SCHEMA}
    for server in SERVERS:
        known |= check_query(chain.query(server, NONE.availability("")), known)
    columns = known[chain.output("E")].derived
    row = [7, 100_000, 2, 5, 1, 9, 44]
    table = pa.table(
        [pa.array([value]).cast(f.type) for value, f in zip(row, columns, strict=True)],
        schema=columns,
    )
    assert chain.answers_in(table) == [(100_000, 2, 5, 1, 9, 44)]


# -- the run systems -------------------------------------------------------------------------------


def test_the_run_without_secondaries_is_always_first() -> None:
    assert chosen("all", None) == VARIANTS
    assert chosen("none", None) == (NONE,)
    assert chosen("active_standby", None) == (NONE, ACTIVE)
    assert len(chosen("passive_standby", None)) == 3
    assert chosen("all", "rollback") == (
        NONE,
        Variant(Mode.UPSTREAM_BACKUP, Recovery.ROLLBACK),
        Variant(Mode.PASSIVE_STANDBY, Recovery.ROLLBACK),
    )
    not_in_the_table = Variant(Mode.ACTIVE_STANDBY, Recovery.ROLLBACK)
    assert chosen("active_standby", "rollback") == (NONE, not_in_the_table)


@pytest.mark.parametrize("mode", ["none", "amnesia"])
def test_no_more_than_gap_without_anything_kept(mode: str) -> None:
    with pytest.raises(InvalidInputError, match="no more than gap"):
        chosen(mode, "precise")


def test_the_table_has_what_the_poster_has() -> None:
    assert {variant.mode for variant in VARIANTS} == set(Mode)
    assert NONE.availability("ab" * 20).mode is Mode.NONE
    assert len({variant.label for variant in VARIANTS}) == len(VARIANTS)


class Stream:
    """A stream that takes posts."""

    def __init__(self) -> None:
        self.tables: list[pa.Table] = []
        self.ended = False

    async def post_event(
        self,
        _: str,
        table: pa.Table | None,
        *,
        boundary: int | None = None,
        end: bool = False,
    ) -> None:
        await trio.sleep(0.01)
        assert boundary is None
        self.ended = end
        if table is not None:
            self.tables.append(table)

    async def flush(self) -> None:
        await trio.lowlevel.checkpoint()


async def test_a_sensor_posts_the_present(autojump_clock: trio.testing.MockClock) -> None:
    stream, posted = Stream(), list[Reading]()
    start = trio.current_time()
    sensor = source_sensor(stream, posted, lambda: 1_000.0 + trio.current_time() - start)  # type: ignore[arg-type]
    async with trio.open_nursery() as nursery:
        nursery.start_soon(sensor.run)
        await trio.sleep(10.01)
        sensor.end()
        await sensor.ended.wait()
    assert stream.ended
    assert pa.concat_tables(stream.tables) == readings_table(posted)
    assert [reading.number for reading in posted] == list(range(1, len(posted) + 1))
    stimes = [reading.at_us for reading in posted]
    assert stimes == sorted(set(stimes))
    assert len(posted) == pytest.approx(10 * RATE, rel=0.02)
    assert stimes[-1] == pytest.approx(1_010.0e6, abs=60_000)


# -- measurements ----------------------------------------------------------------------------------


def answer(number: int) -> Answer:
    return (number, 0, 1, number, number, number)


@given(
    right=st.sets(st.integers(0, 20)),
    received=st.lists(st.integers(0, 25), max_size=40),
)
def test_lost_duplicated_and_wrong_account_for_every_answer(
    right: set[int], received: list[int]
) -> None:
    errors = compare(map(answer, received), {answer(number) for number in right})
    assert errors.lost == sum(number not in received for number in right)
    assert errors.wrong == sum(number not in right for number in set(received))
    assert len(received) == len(right) - errors.lost + errors.wrong + errors.duplicated


def test_compare_by_hand() -> None:
    right = {answer(1), answer(2)}
    assert compare([answer(2), answer(1)], right) == Errors(0, 0, 0)
    assert compare([answer(1), answer(1), answer(3)], right) == Errors(1, 1, 1)


def arrivals(*pairs: tuple[float, float]) -> list[Arrival]:
    """Return arrivals of (when, stime in seconds)."""
    return [Arrival(at, (int(stime * 1e6),)) for at, stime in pairs]


def steady_run(variant: Variant = ACTIVE, *, resumes: float = 130.0) -> Observations:
    """Return a run with an answer a second, each 0.5 s old, from 100 to 150; the kill is at 120; no
    answer comes from the kill until `resumes`, when all missing answers come at once."""
    run = Observations(variant, began=90.0, ended=152.0)
    run.before, run.after = Cost(105.0, 10.0, 1_000), Cost(115.0, 15.0, 21_000)
    run.killed_at, run.watched_at = 120.0, 145.0
    for second in range(100, 150):
        at = second + 0.5 if second < 120 else max(second + 0.5, resumes)
        run.received(at, [int(second * 1e6)], [answer(second)])
    run.returned = len(SERVERS)
    return run


def rights(count: int = 50) -> set[Answer]:
    return {answer(second) for second in range(100, 100 + count)}


def test_the_figures_of_a_run() -> None:
    none = figures(steady_run(NONE), rights(), None)
    assert (none.lost, none.duplicated, none.wrong, none.expected) == (0, 0, 0, 50)
    assert none.delay_ms == pytest.approx(500)
    # the answer of stime 120 does not count as after the kill, that of 121 does
    assert none.first_new_ms == pytest.approx(10_000)
    assert none.recovery_ms == pytest.approx(9_500)
    assert none.stall_ms == pytest.approx(1e3 * (130.0 - 119.5 - 1.0))
    assert none.cpu_s == pytest.approx(0.5)
    assert none.bytes_s == pytest.approx(2_000)
    assert (none.added_delay_ms, none.cpu_overhead, none.network_overhead) == (0, 0, 0)

    run = steady_run(resumes=121.6)
    run.after = Cost(115.0, 20.0, 61_000)
    run.arrivals = [Arrival(each.at + 0.25, each.stimes) for each in run.arrivals]
    active = figures(run, rights(51), none)
    assert active.lost == 1
    assert active.added_delay_ms == pytest.approx(250)
    assert active.cpu_overhead == pytest.approx(1.0)
    assert active.network_overhead == pytest.approx(2.0)
    assert active.recovery_ms == pytest.approx(1_850 - 750)


def test_an_answer_of_before_the_kill_is_no_recovery() -> None:
    run = steady_run(resumes=1e9)
    run.arrivals = [each for each in run.arrivals if each.at < 130]
    run.received(131.0, [119_000_000], [answer(119)])
    found = figures(run, rights(), None)
    assert found.recovery_ms is None
    assert found.duplicated == 1
    assert found.stall_ms == pytest.approx(1e3 * (145.0 - 131.0 - 1.0))


def test_a_variant_that_runs_alone_is_compared_with_no_other() -> None:
    found = figures(steady_run(ACTIVE), rights(), None)
    assert found.lost == 0
    assert (found.added_delay_ms, found.cpu_overhead, found.network_overhead) == (None,) * 3
    assert not [check for check in judge((found,)) if not check.certain]


def test_short_is_one_mode_alone() -> None:
    assert chosen("all", None, short=True) == (ACTIVE,)
    assert [each.mode for each in chosen("passive_standby", None, short=True)] == [
        Mode.PASSIVE_STANDBY
    ]


def test_a_run_that_never_came_to_the_kill_has_lost_nothing() -> None:
    run = Observations(ACTIVE, failure="until the chain's first answer: nothing moved for 120 s")
    found = figures(run, rights(), None)
    assert (found.lost, found.duplicated, found.wrong) == (None, None, None)
    assert not found.begun
    assert HaResult((found,), judge((found,))).failed
    (check,) = promises(found)
    assert (check.claim, check.good) == ("active/precise could be set up", False)
    assert check.found.startswith("until the chain's first answer")


def test_a_run_that_never_came_to_the_kill_has_figures_too() -> None:
    run = Observations(ACTIVE, failure="refused")
    found = figures(run, set(), None)
    assert (found.recovery_ms, found.stall_ms, found.cpu_s) == (None, 0.0, 0.0)
    assert found.failure == "refused"
    beside = figures(run, set(), figures(steady_run(NONE), rights(), None))
    assert (beside.added_delay_ms, beside.cpu_overhead, beside.network_overhead) == (0, 0, 0)
    assert stall_ms(run) == 0.0


def test_epochs_without_answers_do_not_count_as_arrivals() -> None:
    run = Observations(ACTIVE)
    run.received(1.0, [], [])
    assert run.arrivals == []


def test_gaps_and_delays() -> None:
    assert longest_gap([]) == longest_gap([3.0]) == 0.0
    assert longest_gap([1.0, 2.0, 5.0, 6.0]) == 3.0
    assert delay_ms([]) == 0.0
    assert delay_ms(arrivals((1.0, 0.5), (2.0, 1.9), (3.0, 2.8))) == pytest.approx(200)


def test_cpu_of_a_process_and_of_what_it_started() -> None:
    """The figure agrees with the kernel's own count of our work."""
    code = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'while True: pass'])"
    with subprocess.Popen([sys.executable, "-c", code], start_new_session=True) as process:
        try:
            deadline = os.times().elapsed + DEADLINE_S
            while cpu_seconds([process.pid]) < 0.5 and os.times().elapsed < deadline:
                pass
            assert cpu_seconds([process.pid]) >= 0.5
        finally:
            os.killpg(process.pid, 9)
    assert cpu_seconds([process.pid]) == 0.0


# -- judgement -------------------------------------------------------------------------------------


def result(mode: Mode, recovery: Recovery, **changes: object) -> ModeResult:
    """Return a right result."""
    lost = 40 if mode is Mode.AMNESIA else 0
    figures_of = {
        Mode.NONE: (20_000.0, 0.0, 0.0, 0.0),
        Mode.AMNESIA: (900.0, 5.0, 0.02, 0.05),
        Mode.UPSTREAM_BACKUP: (3_000.0, 5.0, 0.02, 0.1),
        Mode.PASSIVE_STANDBY: (1_500.0, 900.0, 0.3, 1.2),
        Mode.ACTIVE_STANDBY: (700.0, 10.0, 0.9, 1.0),
    }[mode]
    return msgspec.structs.replace(
        ModeResult(mode, recovery, lost, 0, *figures_of, wrong=lost, expected=900, returned=4),
        **changes,
    )


def everything() -> list[ModeResult]:
    return [result(variant.mode, variant.recovery) for variant in VARIANTS]


def broken(checks: tuple[Claimed, ...]) -> list[Claimed]:
    return [check for check in checks if not check.good]


def test_good_results_break_no_check() -> None:
    checks = judge(everything())
    assert broken(checks) == []
    assert sum(not check.certain for check in checks) == 6


@pytest.mark.parametrize(
    ("mode", "recovery", "changes"),
    [
        (Mode.UPSTREAM_BACKUP, Recovery.PRECISE, {"lost": 1}),
        (Mode.PASSIVE_STANDBY, Recovery.PRECISE, {"duplicated": 1}),
        (Mode.ACTIVE_STANDBY, Recovery.PRECISE, {"wrong": 1}),
        (Mode.ACTIVE_STANDBY, Recovery.PRECISE, {"recovery_ms": 1_001.0}),
        (Mode.ACTIVE_STANDBY, Recovery.ROLLBACK, {"recovery_ms": 1_001.0}),
        (Mode.PASSIVE_STANDBY, Recovery.ROLLBACK, {"lost": 1}),
        (Mode.UPSTREAM_BACKUP, Recovery.ROLLBACK, {"wrong": 1}),
        (Mode.UPSTREAM_BACKUP, Recovery.ROLLBACK, {"recovery_ms": None}),
        (Mode.AMNESIA, Recovery.GAP, {"lost": 0}),
        (Mode.AMNESIA, Recovery.GAP, {"duplicated": 2}),
        (Mode.NONE, Recovery.GAP, {"lost": 1}),
        (Mode.NONE, Recovery.GAP, {"returned": 3}),
        (Mode.PASSIVE_STANDBY, Recovery.PRECISE, {"failure": "refused"}),
    ],
)
def test_a_broken_promise_is_found(
    mode: Mode, recovery: Recovery, changes: dict[str, object]
) -> None:
    assert not broken(tuple(promises(result(mode, recovery))))
    found = broken(tuple(promises(result(mode, recovery, **changes))))
    assert found
    assert all(check.certain for check in found)


@pytest.mark.parametrize(
    ("recovery", "changes"),
    [(Recovery.ROLLBACK, {"duplicated": 5}), (Recovery.GAP, {"lost": 5, "wrong": 2})],
)
def test_a_result_that_a_mode_does_not_promise_is_no_fault(
    recovery: Recovery, changes: dict[str, object]
) -> None:
    assert not broken(tuple(promises(result(Mode.PASSIVE_STANDBY, recovery, **changes))))


def worse(mode: Mode, **changes: object) -> list[ModeResult]:
    return [
        msgspec.structs.replace(run, **changes) if run.mode == mode else run for run in everything()
    ]


@pytest.mark.parametrize(
    ("mode", "changes", "claim"),
    [
        (Mode.PASSIVE_STANDBY, {"added_delay_ms": 0.0}, "adds most to the delay"),
        (Mode.ACTIVE_STANDBY, {"cpu_overhead": 0.1}, "active standby costs most"),
        (Mode.ACTIVE_STANDBY, {"recovery_ms": 990.0}, None),
        (Mode.PASSIVE_STANDBY, {"recovery_ms": 500.0}, "active standby recovers fastest"),
        (Mode.UPSTREAM_BACKUP, {"cpu_overhead": 0.5}, "upstream backup costs least CPU"),
        (Mode.UPSTREAM_BACKUP, {"network_overhead": 1.5}, "costs the network least"),
        (Mode.UPSTREAM_BACKUP, {"recovery_ms": 1_000.0}, "upstream backup recovers slowest"),
    ],
)
def test_a_difference_from_the_papers_is_reported_and_no_fault(
    mode: Mode, changes: dict[str, object], claim: str | None
) -> None:
    found = broken(judge(worse(mode, **changes)))
    assert [claim in check.claim for check in found] == ([True] if claim else [])  # type: ignore[operator]
    assert not any(check.certain for check in found)


def test_a_variant_is_not_compared_with_one_that_did_not_run() -> None:
    without = [run for run in everything() if run.mode != Mode.PASSIVE_STANDBY]
    assert all(check.certain for check in judge(without))
    assert len(judge(without)) == sum(len(promises(run)) for run in without)


# -- returned peers --------------------------------------------------------------------------------


def replica(query: str, role: str, state: str) -> ReplicaStatus:
    return ReplicaStatus(
        query, role, Mode.ACTIVE_STANDBY, Recovery.PRECISE, 1, "aa", "bb", 0, state
    )


def test_the_status_gives_primaries_and_secured_queries() -> None:
    one = PeerStatus("u", "aa", "", "running", replicas=(replica("q", "primary", "caught up"),))
    two = PeerStatus(
        "u",
        "bb",
        "",
        "running",
        replicas=(replica("q", "secondary", "standing by"), replica("r", "primary", "alone")),
    )
    assert primaries_of(one) == {"q"}
    assert primaries_of(two) == {"r"}
    assert secured([one, two]) == 1
