"""The records of `medusa-testnet intrusion-shared`, and its oracle by hand and by DuckDB."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import duckdb
import pytest
from shared_intrusion_traces import TRACED, traces_in

from medusa.overlay.errors import InvalidInputError
from medusa.testnet.shared_intrusion.generate import (
    ADDED,
    LABS,
    REMOVED,
    START_US,
    UPDATE_US,
    Connection,
    Records,
    Threat,
    connection_table,
    generate,
    recorded,
    threat_table,
)
from medusa.testnet.shared_intrusion.oracle import (
    WINDOW_US,
    found_beacons,
    listed_at,
    right_answers,
)

SECOND = 1_000_000


def test_the_list_is_drawn_from_the_traces(tmp_path: Path) -> None:
    files = traces_in(tmp_path)
    records = recorded(files, 5)
    assert [len(rows) for rows in records.connections.values()] == list(TRACED)
    for rows in records.connections.values():
        assert [row.ts for row in rows] == sorted(row.ts for row in rows)
    times = [row.ts for rows in records.connections.values() for row in rows]
    calls = Counter(row.dst_ip for rows in records.connections.values() for row in rows)
    assert records.update_us == (min(times) + max(times)) // 2
    assert calls[records.added] == max(calls.values())
    gone = [each.address for each in records.threats if each.deleted]
    assert len(gone) == 1
    for address in {each.address for each in records.threats} - {records.added}:
        assert listed_at(records.threats, address, min(times)) is not None
        assert (listed_at(records.threats, address, max(times)) is None) == (address in gone)
    assert listed_at(records.threats, records.added, records.update_us - 1) is None
    assert listed_at(records.threats, records.added, records.update_us) is not None
    assert recorded(files, 5) == records
    assert recorded(files, 6).threats != records.threats
    few = tmp_path / "few.csv"
    few.write_text("ts,src_ip,dst_ip,dst_port\n1,a,b,2\n")
    with pytest.raises(InvalidInputError, match="have 1 destinations: the list takes 10"):
        recorded((few, few), 0)


# -- the oracle ------------------------------------------------------------------------------------


def calls(at: list[float], host: str = "h", to: str = "x") -> tuple[Connection, ...]:
    return tuple(Connection(START_US + int(each * SECOND), host, to, 443, 1) for each in at)


def beacons_of(*at: float) -> bool:
    return bool(found_beacons(Records((), {"lab-a": calls(list(at))}, ())))


def test_a_beacon_is_five_calls_with_gaps_within_a_tenth_of_the_first() -> None:
    assert beacons_of(0, 10, 20, 30, 40)
    assert beacons_of(0, 10, 21, 30, 40)  # gaps of 11, 9 and 10
    assert not beacons_of(0, 10, 21.1, 30, 40)
    assert not beacons_of(0, 10, 20, 30)
    assert beacons_of(0, 1, 2, 3, 4)
    assert not beacons_of(0, 0.9, 1.8, 2.7, 3.6)
    assert beacons_of(0, 150, 300, 450, 600)
    assert not beacons_of(0, 151, 302, 453, 604)
    assert not beacons_of(0, 5, 10, 20, 30, 40)  # the additional call breaks the row


def test_an_address_is_on_the_list_from_its_time_to_its_end() -> None:
    threats = (Threat("x", "a", 10), Threat("x", "b", 20), Threat("x", "b", 30, deleted=True))
    found = [listed_at(threats, "x", at) for at in (9, 10, 19, 20, 29, 30)]
    assert [each and each.kind for each in found] == [None, "a", "a", "b", "b", None]


@pytest.mark.parametrize("seed", range(3))
def test_listed_connections_are_duckdbs(seed: int) -> None:
    records = generate(seed, 500)
    right = right_answers(records)
    for lab, rows in records.connections.items():
        with duckdb.connect() as database:
            database.register("conns", connection_table(rows))
            database.register("threats", threat_table(records.threats))
            found = database.execute(
                f"""SELECT epoch_us(c.ts) // {WINDOW_US} * {WINDOW_US}, c.dst_ip, t.kind,
                           count(DISTINCT c.src_ip), count(*)
                    FROM conns AS c ASOF JOIN threats AS t
                      ON t.address = c.dst_ip AND t.since <= c.ts
                    WHERE NOT t.deleted GROUP BY ALL"""
            ).fetchall()
        assert sorted(found) == right.listed[lab]
        addresses = {row[1] for row in found if row[0] < UPDATE_US // WINDOW_US * WINDOW_US}
        assert REMOVED in addresses
        assert ADDED not in addresses


def test_planted_beacons_are_found_and_slow_calls_are_none() -> None:
    for seed in range(5):
        records = generate(seed, 500)
        found = found_beacons(records)
        assert set(records.beacons) <= found
        assert len(records.beacons) == 6 * len(LABS)
        assert all(each.dst_ip != "203.0.113.201" for each in found)
