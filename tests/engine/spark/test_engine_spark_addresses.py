"""IP addresses in odd texts: Spark and the interpreter agree with the C library's `inet_pton`."""

from __future__ import annotations

import socket

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scalar_rows import WORDS, Oracle, check_oracles, odd, rows

from medusa.engine.evaluation.expressions import Row
from medusa.engine.spark.session import Spark

pytestmark = pytest.mark.spark


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


WRONG = """1::2::3 fe80::1%eth0 1:2:3:4:5:6:7:: 1:2:3:4::5:6:7:8 ::12345 1.2.3.4:: ::1.2.3 ::g
[::1] 1:2:3:4:5:6:7:1.2.3.4 1.2.3.4/8 1:2:3:4:5:1.2.3.4 ::2:3:4:5:6:7:8 1:0:0:2:0:0:0:3
1:0:0:2:3:0:0:4 ::01.2.3.4 1:0:2:3:4:5:6:7 0:0:1:: ::1:0:0 1::1:1.2.3.4
::1:2:3:4:5:6:1.2.3.4 1.2.3.4%1 ::1:2:3:4:5:1.2.3.4 1:: ::ffff:0:0 :1:2:3:4:5:6:7
1:2:3:4:5:6:7: 1.2.3.4.""".split()  # noqa: SIM905
WRONG += [" ::1", "::1 ", "::1\n", "1.2.3.4\n", " 1.2.3.4", "1.2.3.4\x00", "::\x00", ""]
"""Most of them are no addresses."""


@st.composite
def written_addresses(draw: st.DrawFn) -> str:
    """Draw addresses of both versions in all their forms, and texts that are nearly addresses."""
    octet = st.integers(0, 255).map(str) | st.sampled_from(["256", "01", "", "1e", "٣", "999"])
    good = st.lists(st.integers(0, 255).map(str), min_size=4, max_size=4).map(".".join)
    strange = st.lists(octet, min_size=3, max_size=5).map(".".join)
    near = st.sampled_from(["10.1.2.3", "10.1.3.255", "10.1.4.0", "9.255.255.255"])
    group = st.sampled_from(["0", "0", "0", "1", "db8", "2001", "FE80", "00ab", "ffff", "abcd"])
    groups = draw(st.lists(group, min_size=5, max_size=9))
    for _ in range(draw(st.integers(0, 2))):
        groups[draw(st.integers(0, len(groups) - 1))] = ""
    sixth = ":".join(groups)
    cut = sixth.replace(":0:0:0:", "::", draw(st.integers(0, 1)))
    short = st.sampled_from(["::", "::1", "1::", ":::", "::ffff:1.2.3.4", "1:2:3:4:5:6:1.2.3.4"])
    wrong = st.sampled_from(WRONG)
    return draw(good | strange | near | st.just(sixth) | st.just(cut) | short | wrong)


@odd(6, soak=60)
@given(rows(written_addresses() | WORDS))
def test_addresses(spark: Spark, found: list[Row]) -> None:
    check_oracles(spark, found, ADDRESSES)
