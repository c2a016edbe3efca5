"""Person tracking: the readers' sightings, and the oracle against plain Python."""

from __future__ import annotations

import datetime
from collections import defaultdict
from operator import itemgetter
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from medusa.testnet.tracking import oracle
from medusa.testnet.tracking.generate import (
    PERMISSION,
    READERS,
    ROOMS,
    SIGHTING,
    START_US,
    Tracked,
    track,
)

TIME: Final = SIGHTING.field("time").type
SECOND: Final = datetime.timedelta(seconds=1)


@pytest.fixture(scope="module")
def tracked() -> Tracked:
    return track(1, hours=0.5)


def rows(table: pa.Table) -> list[tuple[Any, ...]]:
    return [tuple(row.values()) for row in table.to_pylist()]


def strays_by_hand(tracked: Tracked) -> list[dict[str, Any]]:
    """Go through permissions and sightings by time; of two at one moment the permission comes
    first."""
    allowed: dict[tuple[int, str], dict[int, range]] = defaultdict(dict)
    both = [*tracked.permissions.to_pylist(), *tracked.sightings.to_pylist()]
    strays = []
    for row in sorted(both, key=itemgetter("time")):  # the sort keeps the order of equal rows
        minutes = allowed[row["person_id"], row["room"]]
        if "from_min" in row:
            minutes[row["from_min"]] = range(row["from_min"], row["until_min"])
        elif not any(row["time"].hour * 60 + row["time"].minute in m for m in minutes.values()):
            strays.append(row)
    return strays


def alarms_by_hand(tracked: Tracked, quiet_s: int) -> list[tuple[Any, ...]]:
    open_alarms: dict[tuple[int, str], list[dict[str, Any]]] = {}
    ended: list[list[dict[str, Any]]] = []
    for row in strays_by_hand(tracked):
        key = row["person_id"], row["room"]
        alarm = open_alarms.get(key)
        if alarm is not None and row["time"] - alarm[-1]["time"] <= quiet_s * SECOND:
            alarm.append(row)
        else:
            open_alarms[key] = [row]
            ended.append(open_alarms[key])
    return sorted(
        (
            *(a[0][c] for c in ("time", "person_name", "person_id", "building", "room")),
            a[-1]["time"],
            len(a),
        )
        for a in ended
    )


def test_mr_x_is_followed(tracked: Tracked) -> None:
    answer = oracle.followed(tracked).to_pylist()
    assert answer == [r for r in tracked.sightings.to_pylist() if r["person_id"] == 2]
    assert len(answer) > 100
    assert {row["person_name"] for row in answer} == {"Mr X"}


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_equals_plain_python(seed: int) -> None:
    tracked = track(seed, persons=20, buildings=3, hours=2.5)
    right = sorted(tuple(row.values()) for row in strays_by_hand(tracked))
    assert rows(oracle.strays(tracked)) == right
    for quiet_s in (1, 20, 60):
        assert rows(oracle.alarms(tracked, quiet_s)) == alarms_by_hand(tracked, quiet_s)
    assert 10 < oracle.alarms(tracked).num_rows < len(right) < tracked.sightings.num_rows


def sighted(seconds: list[float]) -> pa.Table:
    times = pa.array([START_US + int(second * 1_000_000) for second in seconds]).cast(TIME)
    count = len(seconds)
    columns = [times, ["Ada"] * count, [7] * count, ["b1"] * count, ["b1-101"] * count]
    return pa.table([*columns, ["b1-101-north"] * count], schema=SIGHTING)


def test_an_alarm_ends_after_more_than_the_quiet_seconds() -> None:
    nobody = PERMISSION.empty_table()
    answer = oracle.alarms(Tracked(sighted([0, 60, 120.000001]), nobody), 60).to_pylist()
    assert [row["sightings"] for row in answer] == [2, 1]
    assert answer[0]["until"] - answer[0]["time"] == 60 * SECOND


def test_a_permission_begins_with_its_minute_and_ends_before_the_other() -> None:
    """The start is 8:00, minute 480."""
    before = pa.array([START_US - 1] * 2).cast(TIME)
    allowed = pa.table([before, [7, 7], ["b1-101"] * 2, [481, 490], [483, 491]], schema=PERMISSION)
    seconds = [59.999999, 60, 179.999999, 180, 600, 659, 660]
    answer = oracle.strays(Tracked(sighted(seconds), allowed))
    since = pc.subtract(answer.column("time").cast(pa.int64()), START_US).to_pylist()
    assert [micros / 1e6 for micros in since] == [59.999999, 180, 660]


def test_a_permission_holds_from_its_row_to_the_next() -> None:
    at = pa.array([START_US + second * 1_000_000 for second in (10, 20)]).cast(TIME)
    allowed = pa.table([at, [7, 7], ["b1-101"] * 2, [480, 480], [490, 480]], schema=PERMISSION)
    answer = oracle.strays(Tracked(sighted([9.999999, 10, 19.999999, 20, 30]), allowed))
    since = pc.subtract(answer.column("time").cast(pa.int64()), START_US).to_pylist()
    assert [micros / 1e6 for micros in since] == [9.999999, 20, 30]


def test_some_permissions_are_taken_back(tracked: Tracked) -> None:
    given = tracked.permissions.to_pylist()
    times = [row["time"] for row in given]
    assert times == sorted(times)
    start = tracked.sightings.column("time")[0].as_py()
    later = [row for row in given if row["time"] > start]
    assert 0.05 * len(given) < len(later) < 0.15 * len(given)
    assert all(row["from_min"] == row["until_min"] for row in later)
    keys = [(row["person_id"], row["room"], row["from_min"]) for row in given]
    first = set(keys[: len(given) - len(later)])
    assert len(first) == len(given) - len(later)
    assert first.issuperset(keys)
    kept = Tracked(tracked.sightings, tracked.permissions.slice(0, len(first)))
    assert oracle.strays(tracked).num_rows > 1.02 * oracle.strays(kept).num_rows


def test_a_seed_gives_the_same_sightings(tracked: Tracked) -> None:
    assert track(1, hours=0.5) == tracked
    assert track(2, hours=0.5).sightings != tracked.sightings


def test_readers_see_persons_in_one_room_at_a_time(tracked: Tracked) -> None:
    table = tracked.sightings
    assert table.schema == SIGHTING
    assert pc.count_distinct(table.column("room")).as_py() == 2 * ROOMS
    assert pc.count_distinct(table.column("reader")).as_py() == 2 * ROOMS * READERS
    assert pc.count_distinct(table.column("person_id")).as_py() == 100
    assert pc.max(pc.utf8_length(table.column("person_name"))).as_py() <= 32
    last: dict[int, dict[str, Any]] = {}
    before = table.column("time")[0].as_py()
    for row in table.to_pylist():
        assert row["time"] >= before
        before = row["time"]
        earlier = last.get(row["person_id"])
        if earlier is not None and earlier["room"] != row["room"]:
            assert row["time"] - earlier["time"] > 4 * SECOND
        last[row["person_id"]] = row
        assert row["room"].startswith(row["building"] + "-")
        assert row["reader"] in {f"{row['room']}-north", f"{row['room']}-south"}


def test_the_buildings_share_out_the_sightings(tracked: Tracked) -> None:
    parts = [tracked.of(building) for building in ("b1", "b2")]
    assert sorted(rows(pa.concat_tables(parts))) == sorted(rows(tracked.sightings))
    assert min(part.num_rows for part in parts) > 1_000


@pytest.mark.parametrize("wrong", [{"persons": 0}, {"buildings": 0}, {"hours": 25.0}])
def test_numbers_out_of_range_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="up to 24 hours"):
        track(1, **wrong)


def test_one_person() -> None:
    assert set(track(1, persons=1).sightings.column("person_name").to_pylist()) == {"Person 1"}


def test_the_tracking_may_have_no_sightings_yet() -> None:
    tracked = track(1, persons=1, buildings=1, hours=1e-6)
    assert tracked.sightings == SIGHTING.empty_table()
    assert len(oracle.strays(tracked)) == len(oracle.alarms(tracked)) == 0
