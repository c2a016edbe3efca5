"""The generated pages: the lock has every limit with its value, and each limit has a reason."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest

from medusa.testnet.pages import limits, scopes
from medusa.tools.daemon.scopes import SCOPES

ROOT: Final = Path(__file__).parents[2]
LOCK: Final = ROOT / "docs/security/limits.lock"


@pytest.fixture(scope="module")
def known() -> dict[str, limits.Place]:
    return limits.places(ROOT)


def test_the_lock_equals_the_code(known: dict[str, limits.Place]) -> None:
    text = LOCK.read_text()
    found = limits.chosen(limits.read_lock(text), known)
    assert len(found) > 300
    assert limits.lock(found) == text, "run `make docs`"


def test_every_limit_says_what_it_counts(known: dict[str, limits.Place]) -> None:
    found = limits.chosen(limits.read_lock(LOCK.read_text()), known)
    assert [each.name for each in found if len(each.meaning) < 10] == []


def test_a_page_has_a_row_for_each_limit_and_each_call(known: dict[str, limits.Place]) -> None:
    found = limits.chosen(limits.read_lock(LOCK.read_text()), known)
    rows = [line for line in limits.page(found).splitlines() if line.startswith("| `")]
    assert len(rows) == len(found)
    assert all(f"| `{call}` | " in scopes.page() for call in SCOPES)


def write(root: Path, path: str, text: str) -> dict[str, limits.Place]:
    for package in limits.PACKAGES:
        (root / package).mkdir(exist_ok=True)
    (root / path).write_text(text)
    return limits.places(root)


def test_where_the_reason_of_a_limit_stands(tmp_path: Path) -> None:
    known = write(
        tmp_path,
        "overlay/rooms.py",
        '''
MAX_BEDS = 3
"""Beds: as many
as fit."""
MAX_LAMPS: Final = 2
MAX_CHAIRS: Final = 4
"""Lamps and chairs of a room."""
MAX_NOTHING = 1


class Hotel:
    """A hotel.

    Attributes:
        floors: more need a
            lift.
        rooms_s, halls: as many as floors.
    """

    floors: int = 3
    rooms_s: float = 2.0
    halls: int = 1
    doors: int = 9
    """Beside it."""
''',
    )
    assert {name.removeprefix("overlay.rooms."): each.meaning for name, each in known.items()} == {
        "MAX_BEDS": "Beds: as many as fit.",
        "MAX_LAMPS": "Lamps and chairs of a room.",
        "MAX_CHAIRS": "Lamps and chairs of a room.",
        "MAX_NOTHING": "",
        "Hotel.floors": "more need a lift.",
        "Hotel.rooms_s": "as many as floors.",
        "Hotel.halls": "as many as floors.",
        "Hotel.doors": "Beside it.",
    }


def test_a_limit_that_has_moved_is_found_and_one_that_is_gone_is_named(tmp_path: Path) -> None:
    known = write(tmp_path, "overlay/new.py", "WAIT_S: Final = 2.0\nMAX_IN_ALL: Final = 5\n")
    assert [each.name for each in limits.chosen({"overlay.old.WAIT_S": "2.0"}, known)] == [
        "overlay.new.MAX_IN_ALL",
        "overlay.new.WAIT_S",
    ]
    known |= write(tmp_path, "engine/far.py", "WAIT_S: Final = 1.0\n")
    assert [each.name for each in limits.chosen({"overlay.old.WAIT_S": "2.0"}, known)] == [
        "overlay.new.MAX_IN_ALL",
        "overlay.new.WAIT_S",
    ]
    with pytest.raises(SystemExit, match=r"overlay\.old\.OTHER_S is gone"):
        limits.chosen({"overlay.old.OTHER_S": "2.0"}, known)


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("overlay.rpc.MAX_STRUCT_BYTES", 2**20, "1 MiB"),
        ("overlay.rpc.MAX_METHOD", 128, "128"),
        ("overlay.listening.HANDSHAKE_S", 10.0, "10 s"),
        ("overlay.datagrams.MAX_AGE_US", 60_000_000, "1 min"),
        ("overlay.datagrams.MAX_DATAGRAM", 9_000, "9,000 B"),
        ("overlay.pace.CALL_S", 250e-6, "0.00025 s"),
        ("overlay.peer_records.MAX_VERSION", 2**62, "2^62"),
        ("contracts.deals.MAX_COST_NS", 2**40, "1,099.51 s"),
    ],
)
def test_values_have_units(
    known: dict[str, limits.Place], name: str, value: float, words: str
) -> None:
    assert known[name].value == value
    assert limits.in_words(known[name]) == words
