"""Moments over odd rows: Spark, the interpreter, and Python's `datetime`."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scalar_rows import FIELDS, Oracle, check, check_duckdb, check_oracles, odd, rows

from medusa.engine.evaluation.expressions import Row
from medusa.engine.spark.session import Spark

pytestmark = pytest.mark.spark

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MICROSECOND = timedelta(microseconds=1)


def div(a: int, b: int) -> int:
    """Return the quotient, rounded towards zero."""
    return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


CYCLE_US = 146_097 * 86_400 * 10**6
"""400 years of the Gregorian calendar, after which it repeats itself."""

START = datetime(2000, 1, 1, tzinfo=UTC)


def calendar(us: int) -> tuple[datetime, int]:
    """Return a moment of the years 2000 to 2399, and the number of years by which the given moment
    is later."""
    since = us - (START - EPOCH) // MICROSECOND
    cycles, within = divmod(since, CYCLE_US)
    return START + timedelta(microseconds=within), 400 * cycles


def began(us: int, unit: str) -> int | None:
    moment, _ = calendar(us)
    kept = {
        "minute": moment.replace(second=0, microsecond=0),
        "hour": moment.replace(minute=0, second=0, microsecond=0),
    }
    day = moment.replace(hour=0, minute=0, second=0, microsecond=0)
    kept["day"] = day
    kept["week"] = day - timedelta(days=day.weekday())
    kept["month"] = day.replace(day=1)
    kept["quarter"] = day.replace(day=1, month=(day.month - 1) // 3 * 3 + 1)
    kept["year"] = day.replace(day=1, month=1)
    return long(us - (moment - kept[unit]) // MICROSECOND)


def long(value: int) -> int | None:
    return value if -(2**63) <= value < 2**63 else None


def shown(us: int, pattern: str) -> str | None:
    moment, later = calendar(us)
    if not 1 <= moment.year + later <= 9999:
        return None
    return moment.strftime(pattern).replace("YYYY", f"{moment.year + later:04}")


MOMENTS_OF_PYTHON: dict[str, Oracle] = {
    "year(t)": lambda t: calendar(t)[0].year + calendar(t)[1],
    "extract(quarter from t)": lambda t: math.ceil(calendar(t)[0].month / 3),
    "month(t)": lambda t: calendar(t)[0].month,
    "dayofmonth(t)": lambda t: calendar(t)[0].day,
    "extract(HOUR from t)": lambda t: calendar(t)[0].hour,
    "minute(t)": lambda t: calendar(t)[0].minute,
    "second(t)": lambda t: calendar(t)[0].second,
    "dayofweek(t)": lambda t: calendar(t)[0].isoweekday() % 7 + 1,
    "dayofyear(t)": lambda t: calendar(t)[0].timetuple().tm_yday,
    "unix_micros(t)": lambda t: t,
    "unix_seconds(t)": lambda t: t // 10**6,
    "t + interval '5' minute": lambda t: long(t + 300 * 10**6),
    "interval 10 seconds + t": lambda t: long(t + 10**7),
    "t - interval '1' week": lambda t: long(t - 7 * 86_400 * 10**6),
    "t + interval '-3' day": lambda t: long(t - 3 * 86_400 * 10**6),
    "timestampdiff(microsecond, t, u)": lambda t, u: long(u - t),
    "timestampdiff(HOUR, t, u)": lambda t, u: (
        None if long(u - t) is None else div(u - t, 3_600 * 10**6)
    ),
    "date_trunc('microseconds', t)": lambda t: t,
    "date_trunc('millisecond', t)": lambda t: long(t // 1_000 * 1_000),
    "date_trunc('second', t)": lambda t: long(t // 10**6 * 10**6),
    "date_trunc('minute', t)": lambda t: began(t, "minute"),
    "date_trunc('HOUR', t)": lambda t: began(t, "hour"),
    "date_trunc('day', t)": lambda t: began(t, "day"),
    "date_trunc('week', t)": lambda t: began(t, "week"),
    "date_trunc('month', t)": lambda t: began(t, "month"),
    "date_trunc('quarter', t)": lambda t: began(t, "quarter"),
    "date_trunc('year', t)": lambda t: began(t, "year"),
    "date_format(t, 'yyyy-MM-dd')": lambda t: shown(t, "YYYY-%m-%d"),
    "date_format(t, 'HH:mm')": lambda t: shown(t, "%H:%M"),
    "date_format(t, 'yyyyMMdd''T''HHmmss.SSSSSS')": lambda t: shown(t, "YYYY%m%dT%H%M%S.%f"),
    "date_format(t, 'ss SSS')": lambda t: (shown(t, "%S %f") or "")[:-3] or None,
}


@odd(6, soak=60)
@given(rows())
def test_moments(spark: Spark, found: list[Row]) -> None:
    check_oracles(spark, found, MOMENTS_OF_PYTHON)


MOMENTS_OF_DUCKDB = {
    "year(t) * 366 + month(t) * 31 + day(t)": ("(year(t) * 366 + month(t) * 31 + day(t))::INTEGER"),
    "quarter(t)": "quarter(t)::INTEGER",
    "hour(t) * 3600 + minute(t) * 60 + second(t)": (
        "(hour(t) * 3600 + minute(t) * 60 + second(t))::INTEGER"
    ),
    "dayofweek(t)": "(dayofweek(t) + 1)::INTEGER",
    "dayofyear(t)": "dayofyear(t)::INTEGER",
    "unix_micros(date_trunc('month', t))": "epoch_us(date_trunc('month', t))",
    "unix_micros(date_trunc('week', t))": "epoch_us(date_trunc('week', t))",
    "date_format(t, 'yyyy-MM-dd HH:mm:ss.SSS')": "strftime(t, '%Y-%m-%d %H:%M:%S.%g')",
    "unix_micros(t + interval '36' hour)": "epoch_us(t + INTERVAL 36 HOUR)",
    "timestampdiff(millisecond, t, u)": "epoch_us(u - t) // 1000",
}

YEARS = st.integers(-30_000_000_000_000_000, 250_000_000_000_000_000)
"""Moments of years with four digits, from 1019 on."""


@odd(4, soak=40)
@given(st.lists(st.tuples(YEARS, YEARS), min_size=20, max_size=60))
def test_moments_as_in_duckdb(spark: Spark, pairs: list[tuple[int, int]]) -> None:
    none = dict.fromkeys(FIELDS)
    found = [{**none, "t": first, "u": last} for first, last in pairs]
    check_duckdb(spark, found, MOMENTS_OF_DUCKDB)


def test_moments_at_the_ends_of_their_range(spark: Spark) -> None:
    edges = (-(2**63), 2**63 - 1, -62_135_596_800_000_000, 253_402_300_800_000_000, 0)
    edges += (-106_751_981 * 86_400_000_000, -106_751_992 * 86_400_000_000)
    spread = (0, 1, 10**3, 10**6, 60 * 10**6, 3_600 * 10**6, 86_400 * 10**6, 7 * 86_400 * 10**6)
    moments = {each + sign * by for each in edges for by in spread for sign in (1, -1)}
    none = dict.fromkeys(FIELDS)
    found = [{**none, "t": each, "u": 0} for each in sorted(moments) if long(each) is not None]
    check_oracles(spark, found, MOMENTS_OF_PYTHON)


def read(pattern: str, *lengths: int) -> Oracle:
    """Read texts with strptime, only in the pattern's own length, since strptime also takes shorter
    numbers."""

    def oracle(s: str) -> int | None:
        if len(s) not in lengths or not s.isascii() or s.count(" ") != pattern.count(" "):
            return None
        try:
            moment = datetime.strptime(s, pattern).replace(tzinfo=UTC)
        except ValueError:
            return None
        return (moment - EPOCH) // MICROSECOND

    return oracle


LEAP_DAY = datetime(2024, 2, 29, tzinfo=UTC)

TIMES = {
    "to_timestamp(s, 'yyyy-MM-dd')": read("%Y-%m-%d", 10),
    "to_timestamp(s, 'yyyy-MM-dd HH:mm:ss')": read("%Y-%m-%d %H:%M:%S", 19),
    "to_timestamp(s, 'yyyyMMddHHmm')": read("%Y%m%d%H%M", 12),
    "to_timestamp(s, 'dd/MM/yyyy HH:mm:ss.SSS')": read("%d/%m/%Y %H:%M:%S.%f", 23),
    "to_timestamp(s, 'yyyy-MM-dd''T''HH:mm:ss.SSSSSS''Z''')": read("%Y-%m-%dT%H:%M:%S.%fZ", 27),
}


WAYS = ["%Y-%m-%d", "%Y-%m-%d %H:%M:%S", "%Y%m%d%H%M", "%d/%m/%Y %H:%M:%S.", "%Y-%m-%dT%H:%M"]
WAYS += ["%Y-%m-%dT%H:%M:%S.%fZ", "%Y-%m-%d %H:%M:%S.%f+01:30", "%Y-%m-%dT%H:%M:%S-18:00"]


@st.composite
def written_times(draw: st.DrawFn) -> str:
    """Draw texts that are moments, and others that are nearly moments."""
    moment = draw(st.datetimes() | st.just(LEAP_DAY))
    pattern = draw(st.sampled_from(WAYS))
    text = moment.strftime(pattern.replace("%Y", f"{moment.year:04}"))
    if text.endswith("."):
        text += moment.strftime("%f")[:3]
    change = draw(st.sampled_from(["", "", "digit", "cut", "more"]))
    if change == "digit":
        at = draw(st.integers(0, len(text) - 1))
        text = text[:at] + draw(st.sampled_from("0123456789 -:é٣T")) + text[at + 1 :]
    if change == "cut":
        text = text[: draw(st.integers(0, len(text)))]
    if change == "more":
        text += draw(st.sampled_from([" ", "Z", "\n", "0", "x"]))
    return text


@odd(6, soak=60)
@given(rows(written_times()))
def test_texts_of_moments(spark: Spark, found: list[Row]) -> None:
    check_oracles(spark, found, TIMES)


ISO = {
    "2018-03-24": "2018-03-24T00:00:00+00:00",
    "2018-03-24 12:30": "2018-03-24T12:30:00+00:00",
    "2018-03-24T12:30:59": "2018-03-24T12:30:59+00:00",
    "2018-03-24T12:30:59.5": "2018-03-24T12:30:59.500000+00:00",
    "2018-03-24 12:30:59.123456Z": "2018-03-24T12:30:59.123456+00:00",
    "2018-03-24T12:30:00+01:30": "2018-03-24T11:00:00+00:00",
    "0001-01-01T00:00:00-17:59": "0001-01-01T17:59:00+00:00",
    "9999-12-31T23:59:59.999999": "9999-12-31T23:59:59.999999+00:00",
    "2024-02-29": "2024-02-29T00:00:00+00:00",
    "2018-03-24T09:59:59.9999999": "2018-03-24T09:59:59.999999+00:00",
    "1969-12-31T23:59:59.9999999Z": "1969-12-31T23:59:59.999999+00:00",
    "2018-03-24T09:59:59.99999949999999999999999999Z": "2018-03-24T09:59:59.999999+00:00",
}
NO_MOMENTS = """
2023-02-29 0000-01-01 2018-3-24 2018-03-24T 2018-03-24T12 2018-03-24T24:00 2018-03-24T12:60
2018-03-24T12:30:60 2018-03-24T12:30:59. 2018-03-24T12:30:59.1234567x now epoch 2018-03-24Z
2018-03-24T12:30:00z 2018-03-24T12:30:00+18:00 2018-03-24T12:30:00+1:00 2018-03-24T12:30Z
2018-03-24T12:30+01:30 12:30 2018 20180324 +12018-03-24 2018-03-24t12:30 2018-13-01 2018-00-01
2018-04-31 2018-03-24T12:30:00+01:60 today ٢018-03-24 2018-03-24T12:30:00UTC
2018-03-24T12:30:00[UTC]
"""


def test_iso_texts(spark: Spark) -> None:
    none = dict.fromkeys(FIELDS)
    refused = [*NO_MOMENTS.split(), "", " 2018-03-24", "2018-03-24 ", "2018-03-24\n"]
    found = [{**none, "s": each} for each in (*ISO, *refused)]
    (made,) = check(spark, found, ["to_timestamp(s)"])
    times = [(datetime.fromisoformat(each) - EPOCH) // MICROSECOND for each in ISO.values()]
    assert made == [*times, *[None] * len(refused)]
