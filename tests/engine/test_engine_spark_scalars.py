"""Functions of expressions over odd rows: Spark, the interpreter, and an oracle for each."""

from __future__ import annotations

import hashlib
import math
import socket
import zlib
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from examples import examples
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from scalar_rows import (
    FIELDS,
    WORDS,
    by_duckdb,
    check,
    check_like,
    rows,
)

from engine.spark.session import Spark
from testnet.simulation.expressions import Row

pytestmark = pytest.mark.spark

ODD = settings(
    max_examples=examples(6, soak=60),
    deadline=None,
    phases=(Phase.explicit, Phase.generate),  # a smaller example takes as many jobs
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)

Oracle = Callable[..., Any]


def check_oracles(spark: Spark, found: list[Row], oracles: dict[str, Oracle]) -> None:
    """The parameters of an oracle are fields; it is asked where none of them is null."""

    def value(oracle: Oracle, row: Row) -> Any:
        names = oracle.__code__.co_varnames[: oracle.__code__.co_argcount]
        values = [row[name] for name in names]
        return None if any(each is None for each in values) else oracle(*values)

    texts = [*oracles]
    wanted = [[value(oracle, row) for row in found] for oracle in oracles.values()]
    check_like(texts, found, check(spark, found, texts), wanted)


def check_duckdb(spark: Spark, found: list[Row], pairs: dict[str, str]) -> None:
    texts = [*pairs]
    made = check(spark, found, texts)
    check_like(texts, found, made, by_duckdb(found, [*pairs.values()]))


# -- texts ---------------------------------------------------------------------------------------

TEXTS_OF_DUCKDB = {
    "contains(s, p)": "contains(s, p)",
    "startswith(s, p)": "starts_with(s, p)",
    "ends_with(s, p)": "ends_with(s, p)",
    "instr(s, p)": "instr(s, p)::INTEGER",
    "position(p in s)": "position(p IN s)::INTEGER",
    "replace(s, p, '-+')": "CASE WHEN p = '' THEN s ELSE replace(s, p, '-+') END",
    "length(s) - length(replace(s, 'a', ''))": "(length(s) - length(replace(s, 'a', '')))::INTEGER",
    "left(s, 3)": "left(s, 3)",
    "right(s, 2)": "right(s, 2)",
    "lpad(s, 5, 'éx')": "lpad(s, 5, 'éx')",
    "rpad(s, 5)": "rpad(s, 5, ' ')",
    "repeat(s, 3)": "repeat(s, 3)",
    "ltrim(s) || rtrim(s)": "ltrim(s, ' ') || rtrim(s, ' ')",
    "split_index(s, '.', 1)": "string_split(s, '.')[2]",
    "md5(s)": "md5(s)",
    "sha256(s)": "sha256(s)",
}

TEXTS_OF_PYTHON: dict[str, Oracle] = {
    "reverse(s)": lambda s: "".join(reversed(s)),
    "lpad(s, n, p)": lambda s, n, p: padded(s, n, p, left=True),
    "rpad(s, n, p)": lambda s, n, p: padded(s, n, p, left=False),
    "right(s, n)": lambda s, n: s[max(len(s) - max(n, 0), 0) :],
    "left(s, n)": lambda s, n: s[: max(n, 0)],
    "repeat(s, n)": lambda s, n: (
        "".join(s for _ in range(n if s else 0)) if n * len(s) <= 65_536 else None
    ),
    "replace(s, p, '')": lambda s, p: "".join(s.split(p)) if p else s,
    "split_index(s, 'a', n)": lambda s, n: dict(enumerate(s.split("a"))).get(n),
    "split_index(s, '😀.', n)": lambda s, n: dict(enumerate(s.split("😀."))).get(n),
    "split_index(s, '\\E$', n)": lambda s, n: dict(enumerate(s.split("\\E$"))).get(n),
    "sha2(s, 512)": lambda s: hashlib.sha512(s.encode()).hexdigest(),
    "sha2(s, 224)": lambda s: hashlib.sha224(s.encode()).hexdigest(),
    "crc32(s)": lambda s: zlib.crc32(s.encode()),
    "hash64(s)": lambda s: xxh64(s.encode()),
}


def padded(text: str, length: int, filling: str, *, left: bool) -> str | None:
    if length > 65_536:
        return None
    made = list(text)[: max(length, 0)]
    fill = [filling[n % len(filling)] for n in range(max(length - len(text), 0)) if filling]
    return "".join([*fill, *made] if left else [*made, *fill])


def xxh64(data: bytes, seed: int = 42) -> int:
    """XXH64, after its specification (Y. Collet, "XXHash fast digest algorithm", 0.1.1)."""
    mask = 2**64 - 1
    p1, p2, p3 = 11400714785074694791, 14029467366897019727, 1609587929392839161
    p4, p5 = 9650029242287828579, 2870177450012600261

    def turned(value: int, count: int) -> int:
        return (value << count | value >> 64 - count) & mask

    def one(lane: int, word: int) -> int:
        return turned(lane + word * p2 & mask, 31) * p1 & mask

    words = len(data) // 32 * 4
    hashed = seed + p5
    if words:
        lanes = [seed + p1 + p2, seed + p2, seed, seed - p1]
        for n in range(words):
            word = int.from_bytes(data[8 * n : 8 * n + 8], "little")
            lanes[n % 4] = one(lanes[n % 4] & mask, word)
        turns = zip(lanes, (1, 7, 12, 18), strict=True)
        hashed = sum(turned(lane, count) for lane, count in turns) & mask
        for lane in lanes:
            hashed = ((hashed ^ one(0, lane)) * p1 + p4) & mask
    hashed = hashed + len(data) & mask
    at = 8 * words
    while at + 8 <= len(data):
        hashed ^= one(0, int.from_bytes(data[at : at + 8], "little"))
        hashed = turned(hashed, 27) * p1 + p4 & mask
        at += 8
    if at + 4 <= len(data):
        hashed ^= int.from_bytes(data[at : at + 4], "little") * p1 & mask
        hashed = turned(hashed, 23) * p2 + p3 & mask
        at += 4
    for byte in data[at:]:
        hashed = turned(hashed ^ byte * p5 & mask, 11) * p1 & mask
    for shift, factor in ((33, p2), (29, p3), (32, 1)):
        hashed = (hashed ^ hashed >> shift) * factor & mask
    return hashed - 2**64 if hashed >= 2**63 else hashed


@ODD
@given(rows(WORDS | st.text(st.sampled_from("abé😀. "), max_size=80)))
def test_texts(spark: Spark, found: list[Row]) -> None:
    check_duckdb(spark, found, TEXTS_OF_DUCKDB)
    check_oracles(spark, found, TEXTS_OF_PYTHON)


def test_no_text_grows_beyond_the_limit(spark: Spark) -> None:
    none = dict.fromkeys(FIELDS)
    found = [
        {**none, "s": "é" * length, "n": length, "m": 2}
        for length in (32_768, 32_769, 65_536, 65_537, 2**20)
    ]
    lengths: dict[str, list[int | None]] = {
        "length(replace(s, 'é', '-+'))": [65_536, None, None, None, None],
        "length(replace(s, 'é', '-'))": [32_768, 32_769, 65_536, 65_537, 2**20],
        "length(replace(s, '', '-'))": [32_768, 32_769, 65_536, None, None],
        "length(repeat(s, m))": [65_536, None, None, None, None],
        "length(lpad('', n, 'ab'))": [32_768, 32_769, 65_536, None, None],
        "length(rpad(s, n))": [32_768, 32_769, 65_536, None, None],
        "length(regexp_replace(s, '(é)', '$1-'))": [65_536, None, None, None, None],
        "length(regexp_replace(s, 'é', 'x'))": [32_768, 32_769, 65_536, None, None],
    }
    assert check(spark, found, [*lengths]) == [*lengths.values()]


# -- numbers and logic ----------------------------------------------------------------------------


def rooted(x: float) -> float | None:
    return None if x < 0 else math.sqrt(x)


def shifted(value: int, count: int, width: int) -> int | None:
    if not 0 <= count < width:
        return None
    return int.from_bytes(
        (value * 2**count % 2**width).to_bytes(width // 8, "little"), "little", signed=True
    )


def signed(x: float) -> int:
    return 1 if x > 0 or math.isnan(x) else -1 if x < 0 else 0


NUMBERS: dict[str, Oracle] = {
    "sqrt(x)": rooted,
    "sqrt(b)": lambda b: rooted(float(b)),
    "sign(x)": signed,
    "sign(b)": lambda b: signed(b),
    "mod(b, c)": lambda b, c: b - c * div(b, c) if c else None,
    "bitand(b, c)": lambda b, c: b & c,
    "bitor(b, n)": lambda b, n: b | n,
    "bitxor(n, m)": lambda n, m: n ^ m,
    "shiftleft(b, n)": lambda b, n: shifted(b, n, 64),
    "shiftleft(n, m)": lambda n, m: shifted(n, m, 32),
    "shiftright(b, n)": lambda b, n: b // 2**n if n in range(64) else None,
    "shiftright(n, m)": lambda n, m: n // 2**m if m in range(32) else None,
}


def div(a: int, b: int) -> int:
    """The quotient, towards zero."""
    return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


LOGIC_OF_DUCKDB = {
    "s is distinct from p": "s IS DISTINCT FROM p",
    "b is not distinct from c": "b IS NOT DISTINCT FROM c",
    "x is distinct from x + 0": "x IS DISTINCT FROM x + 0",
    "x is not distinct from null": "x IS NULL",
    "nullif(n, m)": "nullif(n, m)",
    "nullif(x, x)": "nullif(x, x)",
    "if(n > m, s, p)": "if(n > m, s, p)",
    "ifnull(s, p)": "ifnull(s, p)",
    "nvl(n, b)": "coalesce(n::BIGINT, b)",
    "x = x and x >= 1": "x = x AND x >= 1",
    "case when x < 1e308 then 1 end": "CASE WHEN x < 1e308 THEN 1 END",
}


@ODD
@given(rows())
def test_numbers_and_logic(spark: Spark, found: list[Row]) -> None:
    check_oracles(spark, found, NUMBERS)
    check_duckdb(spark, found, LOGIC_OF_DUCKDB)


# -- moments --------------------------------------------------------------------------------------

CYCLE_US = 146_097 * 86_400 * 10**6
"""400 years of the Gregorian calendar, after which it repeats itself."""

START = datetime(2000, 1, 1)


def calendar(us: int) -> tuple[datetime, int]:
    """A moment of 2000 to 2399, and the years that the given one is later."""
    since = us - (START - datetime(1970, 1, 1)) // timedelta(microseconds=1)
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
    return long(us - (moment - kept[unit]) // timedelta(microseconds=1))


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


@ODD
@given(rows())
def test_moments(spark: Spark, found: list[Row]) -> None:
    check_oracles(spark, found, MOMENTS_OF_PYTHON)


def test_moments_at_the_ends_of_their_range(spark: Spark) -> None:
    edges = (-(2**63), 2**63 - 1, -62_135_596_800_000_000, 253_402_300_800_000_000, 0)
    edges += (-106_751_981 * 86_400_000_000, -106_751_992 * 86_400_000_000)
    spread = (0, 1, 10**3, 10**6, 60 * 10**6, 3_600 * 10**6, 86_400 * 10**6, 7 * 86_400 * 10**6)
    moments = {each + sign * by for each in edges for by in spread for sign in (1, -1)}
    none = dict.fromkeys(FIELDS)
    found = [{**none, "t": each, "u": 0} for each in sorted(moments) if long(each) is not None]
    check_oracles(spark, found, MOMENTS_OF_PYTHON)


def read(pattern: str, *lengths: int) -> Oracle:
    """strptime, of texts of the length that the pattern has: it takes shorter numbers, too."""

    def oracle(s: str) -> int | None:
        if len(s) not in lengths or not s.isascii() or s != s.strip():
            return None
        try:
            moment = datetime.strptime(s, pattern)
        except ValueError:
            return None
        return (moment - datetime(1970, 1, 1)) // timedelta(microseconds=1)

    return oracle


TIMES = {
    "to_timestamp(s, 'yyyy-MM-dd')": read("%Y-%m-%d", 10),
    "to_timestamp(s, 'yyyy-MM-dd HH:mm:ss')": read("%Y-%m-%d %H:%M:%S", 19),
    "to_timestamp(s, 'yyyyMMddHHmm')": read("%Y%m%d%H%M", 12),
    "to_timestamp(s, 'dd/MM/yyyy HH:mm:ss.SSS')": read("%d/%m/%Y %H:%M:%S.%f", 23),
    "to_timestamp(s, 'yyyy-MM-dd''T''HH:mm:ss.SSSSSS''Z''')": read("%Y-%m-%dT%H:%M:%S.%fZ", 27),
}


@st.composite
def written_times(draw: st.DrawFn) -> str:
    """Texts that are moments, and others that are nearly so."""
    moment = draw(st.datetimes() | st.sampled_from([datetime(1, 1, 1), datetime(2024, 2, 29)]))
    pattern = draw(
        st.sampled_from(
            ["%Y-%m-%d", "%Y-%m-%d %H:%M:%S", "%Y%m%d%H%M", "%d/%m/%Y %H:%M:%S.", "%Y-%m-%dT%H:%M"]
            + ["%Y-%m-%dT%H:%M:%S.%fZ", "%Y-%m-%d %H:%M:%S.%f+01:30", "%Y-%m-%dT%H:%M:%S-18:00"]
        )
    )
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


@ODD
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
}
NO_MOMENTS = """2023-02-29 0000-01-01 2018-3-24 2018-03-24T 2018-03-24T12 2018-03-24T24:00
2018-03-24T12:60 2018-03-24T12:30:60 2018-03-24T12:30:59. 2018-03-24T12:30:59.1234567 now epoch
2018-03-24Z 2018-03-24T12:30:00z 2018-03-24T12:30:00+18:00 2018-03-24T12:30:00+1:00 2018-03-24T12:30Z 2018-03-24T12:30+01:30 12:30 2018 20180324
+12018-03-24 2018-03-24t12:30 2018-13-01 2018-00-01 2018-04-31 2018-03-24T12:30:00+01:60 today
٢018-03-24 2018-03-24T12:30:00UTC 2018-03-24T12:30:00[UTC]"""


def test_iso_texts(spark: Spark) -> None:
    none = dict.fromkeys(FIELDS)
    refused = [*NO_MOMENTS.split(), "", " 2018-03-24", "2018-03-24 ", "2018-03-24\n"]
    found = [{**none, "s": each} for each in (*ISO, *refused)]
    (made,) = check(spark, found, ["to_timestamp(s)"])
    epoch = datetime(1970, 1, 1, tzinfo=UTC)
    times = [
        (datetime.fromisoformat(each) - epoch) // timedelta(microseconds=1) for each in ISO.values()
    ]
    assert made == [*times, *[None] * len(refused)]


# -- addresses ------------------------------------------------------------------------------------


def packed(text: str) -> bytes | None:
    for family in (socket.AF_INET, socket.AF_INET6):
        try:
            return socket.inet_pton(family, text)
        except (OSError, ValueError):
            continue
    return None


def inside(network: str) -> Oracle:
    base, _, bits = network.partition("/")

    def oracle(s: str) -> bool | None:
        address, wanted = packed(s), packed(base)
        assert wanted is not None
        if address is None:
            return None
        return len(address) == len(wanted) and leading(address, int(bits)) == leading(
            wanted, int(bits)
        )

    return oracle


def leading(address: bytes, bits: int) -> str:
    return "".join(f"{byte:08b}" for byte in address)[:bits]


def prefixed(bits: int, bits_of_6: int | None = None) -> Oracle:
    def oracle(s: str) -> str | None:
        address = packed(s)
        kept = None if address is None else bits if len(address) == 4 else bits_of_6
        if address is None or kept is None:
            return None
        text = leading(address, kept).ljust(8 * len(address), "0")
        masked = int(text, 2).to_bytes(len(address), "big")
        family = socket.AF_INET if len(address) == 4 else socket.AF_INET6
        head, _, last = socket.inet_ntop(family, masked).rpartition(":")
        if head and "." in last:  # glibc writes the end of some IPv6 addresses as IPv4
            high, low = (int.from_bytes(masked[at : at + 2], "big") for at in (12, 14))
            last = f"{high:x}:{low:x}"
        return f"{head}{':' * bool(head)}{last}/{kept}"

    return oracle


ADDRESSES = {
    **{
        f"ip_in_cidr(s, '{network}')": inside(network)
        for network in (
            *("0.0.0.0/0", "10.0.0.0/8", "10.1.2.0/23", "255.255.255.255/32", "128.0.0.0/1"),
            *("::/0", "2001:db8::/32", "fe80::/10", "::1/128", "::ffff:0:0/96", "2001:db8::8/125"),
        )
    },
    "ip_prefix(s, 24)": prefixed(24),
    "ip_prefix(s, 0, 0)": prefixed(0, 0),
    "ip_prefix(s, 32, 128)": prefixed(32, 128),
    "ip_prefix(s, 13, 49)": prefixed(13, 49),
}


@st.composite
def written_addresses(draw: st.DrawFn) -> str:
    """Addresses of both versions in all their forms, and texts that are nearly so."""
    octet = st.integers(0, 255).map(str) | st.sampled_from(["256", "01", "", "1e", "٣", "999"])
    good = st.lists(st.integers(0, 255).map(str), min_size=4, max_size=4).map(".".join)
    odd = st.lists(octet, min_size=3, max_size=5).map(".".join)
    near = st.sampled_from(["10.1.2.3", "10.1.3.255", "10.1.4.0", "9.255.255.255"])
    group = st.sampled_from(["0", "0", "0", "1", "db8", "2001", "FE80", "00ab", "ffff", "abcd"])
    groups = draw(st.lists(group, min_size=5, max_size=9))
    for _ in range(draw(st.integers(0, 2))):
        groups[draw(st.integers(0, len(groups) - 1))] = ""
    sixth = ":".join(groups)
    cut = sixth.replace(":0:0:0:", "::", draw(st.integers(0, 1)))
    short = st.sampled_from(["::", "::1", "1::", ":::", "::ffff:1.2.3.4", "1:2:3:4:5:6:1.2.3.4"])
    wrong = st.sampled_from(
        ["1::2::3", "fe80::1%eth0", "::1 ", "1:2:3:4:5:6:7::", "1:2:3:4::5:6:7:8", "::12345"]
        + ["1.2.3.4::", "::1.2.3", "1:2:3:4:5:6:7:1.2.3.4", "::g", "[::1]", "1.2.3.4/8", "::1\n"]
        + [
            "1:2:3:4:5:1.2.3.4",
            "::2:3:4:5:6:7:8",
            "1:0:0:2:0:0:0:3",
            "1:0:0:2:3:0:0:4",
            "::01.2.3.4",
        ]
        + [
            "1:0:2:3:4:5:6:7",
            "0:0:1::",
            "::1:0:0",
            "1::1:1.2.3.4",
            "::1:2:3:4:5:6:1.2.3.4",
            "1.2.3.4\n",
        ]
    )
    return draw(good | odd | near | st.just(sixth) | st.just(cut) | short | wrong)


@ODD
@given(rows(written_addresses() | WORDS))
def test_addresses(spark: Spark, found: list[Row]) -> None:
    check_oracles(spark, found, ADDRESSES)
