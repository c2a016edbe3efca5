"""The market on the monitor's screen: beneath the peers, and only where there is a market."""

from __future__ import annotations

import io
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.console import Console

from medusa.engine.replication.records.status import PeerStatus, Snapshot
from medusa.engine.streams.messages import StreamStatus
from medusa.tools.home.messages import (
    ContractStatus,
    MarketStatus,
    MoveStatus,
    OfferStatus,
    TradedTask,
)
from medusa.tools.monitor.render import render
from medusa.tools.monitor.tables import money

NAMES = ("mit.edu", "utah.edu", "brown.example.edu", "mit.edu")
IDS = tuple(f"{number:02x}" * 20 for number in range(1, 5))
NOON = 1521892800.0


def _snapshot(streams: int = 1) -> Snapshot:
    peers = [
        PeerStatus(name, peer, "127.0.0.1:1", "running", load=0.31, capacity=0.35)
        for name, peer in zip(NAMES, IDS, strict=True)
    ]
    status = tuple(
        StreamStatus(f"medusa://mit.edu/s{n}", "source", 1.0, 0, 0.5, 9, 0, 9, 0)
        for n in range(streams)
    )
    peers[0] = PeerStatus("mit.edu", IDS[0], "127.0.0.1:1", "running", streams=status)
    return Snapshot(NOON, IDS[0], "0123456789abcdef", tuple(peers))


MARKET = MarketStatus(
    peer=IDS[0],
    capacity=35.0,
    load=31.4,
    marginal_cost=123.4,
    contracts=(
        ContractStatus("utah.edu", "ab12" * 8, "in force", 100, 125, 117, 12.3, 0.0, -1_234_567),
        ContractStatus("brown.example.edu", "cd34" * 8, "in force", 80, 100, 0, 0.0, 4.2, 34_567),
        ContractStatus("mit.edu", given=2.0),
        ContractStatus("ethz.ch", "ef56" * 8, "revoked", 1_000_000, 1_250_000, balance=2_000_000),
    ),
    offer=OfferStatus(IDS[1], "ab12" * 8, 117, 3, 9.4, 0.7),
    taken=(TradedTask("medusa://brown.example.edu/alarms", IDS[2], "cd34" * 8, 4.2, 90),),
    given=(
        TradedTask("medusa://mit.edu/scans", IDS[1], "ab12" * 8, 12.3, 117),
        TradedTask("medusa://mit.edu/hosts", IDS[3], "", 2.0),
    ),
    moves=(
        MoveStatus(NOON, "medusa://mit.edu/scans", IDS[0], IDS[1], 117, 812.4, 20 * 2**20),
        MoveStatus(NOON + 20, "medusa://mit.edu/hosts", IDS[0], "99" * 20, 0, 412.4, 2**12),
    ),
)


def _lines(
    market: MarketStatus | None, width: int, height: int | None = None, streams: int = 1
) -> list[str]:
    console = Console(width=width, file=io.StringIO(), record=True, color_system=None)
    console.print(render(_snapshot(streams), width, height, market))
    return console.export_text().splitlines()


def _line(lines: list[str], *words: str) -> str:
    found = [line for line in lines if all(word in line for word in words)]
    assert len(found) == 1, (words, lines)
    return found[0]


@pytest.mark.parametrize("width", [100, 120])
def test_the_market_shows_all_its_fields(width: int) -> None:
    lines = _lines(MARKET, width)
    assert _line(lines, "31.4/35.0 units").split()[3:7] == ["0.000123", "14", "4.2", "0.8"]
    _line(lines, "31.4/35.0 units", "utah.edu: 3 tasks, 9.4 units")
    assert _line(lines, "utah.edu", "in force").split()[-5:] == [
        "0.0001-0.000125",
        "0.000117",
        "12",
        "0",
        "-1.2346",
    ]
    assert _line(lines, "ethz.ch").split()[-6:] == ["revoked", "1-1.25", "-", "0", "0", "2"]
    assert _line(lines, "mit.edu", "own peer").split()[-5:] == ["-", "-", "2", "0", "0"]
    assert "for brown.example.edu" in _line(lines, "alarms")
    assert "at utah.edu" in _line(lines, "scans", "at ")
    assert "at mit.edu 04040404" in _line(lines, "hosts", "at "), "which of its peers"
    assert "mit.edu 01010101 → utah.edu" in _line(lines, "812 ms")
    assert "→ 99999999" in _line(lines, "412 ms"), "a peer that is not known any more"


def test_order_beneath_the_peers() -> None:
    text = "\n".join(_lines(MARKET, 100))
    at = [text.index(word) for word in ("Peers", "Strea", "Market", "Contracts", "Traded", "Moves")]
    assert at == sorted(at)
    assert text.index("ethz.ch") < text.index("0.0001-0.000125"), "what is not in force first"
    assert text.index("412 ms") < text.index("812 ms"), "the latest move first"


def test_without_a_market_there_is_no_panel() -> None:
    text = "\n".join(_lines(None, 100))
    assert "Market" not in text
    assert "Contracts" not in text


def test_a_market_without_contracts_is_not_shown() -> None:
    text = "\n".join(_lines(MarketStatus(marginal_cost=None), 80))
    for absent in ("Market", "Contracts", "Traded", "Moves", "nan", "inf"):
        assert absent not in text


@pytest.mark.parametrize(
    ("prices", "shown"),
    [
        ({"per_message": 1000}, "0.001/tuple"),
        ({"per_period": 5_000_000, "period_s": 3600.0}, "5/1h00m"),
        ({"per_message": 1000, "per_period": 5_000_000, "period_s": 60.0}, "0.001/tuple + 5/1m00s"),
        ({}, "-"),
    ],
)
def test_the_price_of_a_stream(prices: dict[str, Any], shown: str) -> None:
    contract = ContractStatus("utah.edu", "ab" * 16, **prices)
    line = _line(_lines(MarketStatus(contracts=(contract,)), 120), "utah.edu", "in force")
    assert shown in line
    assert "0-0" not in line


@settings(max_examples=60)
@given(st.sampled_from([80, 100, 120, 200]), st.integers(6, 60), st.integers(0, 30))
def test_the_market_fits_the_terminal(width: int, height: int, streams: int) -> None:
    lines = _lines(MARKET, width, height, streams)
    assert len(lines) <= height
    assert all(cell_len(line) <= width for line in lines)
    assert any("Peers" in line for line in lines)


def test_markup_of_partners_is_only_text() -> None:
    partner = ContractStatus("[red]x[/]", "ab" * 16)
    assert "[red]x[/]" in "\n".join(_lines(MarketStatus(contracts=(partner,)), 100))


@pytest.mark.parametrize(
    ("micros", "shown"),
    [
        (0, "0"),
        (1, "0.000001"),
        (125, "0.000125"),
        (-1_500_000, "-1.5"),
        (3_000_000, "3"),
        (12_345_678, "12.3457"),
        (1_204_750_000, "1,204.75"),
        (-40, "-0.00004"),
    ],
)
def test_money(micros: int, shown: str) -> None:
    assert money(micros) == shown
