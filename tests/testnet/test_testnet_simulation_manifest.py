"""Manifests are read strictly and drawn from seeds; the tests check their schedules of faults."""

from __future__ import annotations

import random
from pathlib import Path
from typing import get_args

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

import medusa.testnet.simulation
from medusa.overlay.errors import InvalidInputError
from medusa.testnet.simulation.faults import (
    Crash,
    Fault,
    FaultRates,
    Stop,
    draw_rates,
    named_peers,
    schedule,
)
from medusa.testnet.simulation.generate import MOST_PEERS, ROWS_OF_ALL, generate
from medusa.testnet.simulation.manifest import load_manifest, read_manifest

EXAMPLES = sorted((Path(medusa.testnet.simulation.__file__).parent / "manifests").glob("*.toml"))
PEERS = ("mit.edu/0", "mit.edu/1", "utah.edu/0")


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_the_examples_are_manifests(path: Path) -> None:
    assert load_manifest(path).peers


def test_there_are_examples() -> None:
    assert len(EXAMPLES) >= 2


@pytest.mark.parametrize(
    ("document", "place"),
    [
        ({}, "participants"),
        ({"participants": {}}, "participants"),
        ({"participants": {"mit.edu": 65}}, "participants"),
        ({"participants": {"MIT": 1}}, "participants"),
        ({"participants": {"mit.edu": 1}, "peers": 3}, "peers"),
        (
            {"participants": {"mit.edu": 1}, "faults": [{"kind": "flood", "at_s": 1, "for_s": 1}]},
            r"faults\[",
        ),
        (
            {
                "participants": {"mit.edu": 1},
                "faults": [{"kind": "crash", "peer": "mit.edu/1", "at_s": 1, "for_s": 1}],
            },
            r"faults\[0\]: no peer is called mit.edu/1",
        ),
        ({"participants": {"mit.edu": 1}, "workload_s": -1.0}, "workload_s"),
        (
            {
                "participants": {"mit.edu": 1},
                "contracts": [{"one": "mit.edu", "other": "utah.edu"}],
            },
            r"contracts\[0\]: no participant is called utah.edu",
        ),
        (
            {"participants": {"mit.edu": 1}, "settings": {"capacities": {"mit.edu/1": 2.0}}},
            r"settings.capacities: no peer is called mit.edu/1",
        ),
        ({"participants": {"mit.edu": 1}, "weather": {"loss": 1.5}}, "weather.loss"),
        (
            {"participants": {"mit.edu": 1}, "streams": [{"name": "s", "home": "mit.edu/0"}]},
            r"streams\[0\]",
        ),
        (
            {"participants": {"mit.edu": 1}, "queries": [{"at": "mit.edu/0", "xml": "<x"}]},
            r"queries\[0\]",
        ),
    ],
)
def test_the_error_of_a_manifest_names_the_place(document: dict[str, object], place: str) -> None:
    with pytest.raises(InvalidInputError, match=place):
        read_manifest(document)


def test_a_file_that_is_not_there_and_one_that_is_no_toml_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match="No such file"):
        load_manifest(tmp_path / "none.toml")
    wrong = tmp_path / "wrong.toml"
    wrong.write_text("participants = [")
    with pytest.raises(InvalidInputError, match=r"wrong\.toml"):
        load_manifest(wrong)


@given(st.integers(0, 2**32))
def test_any_seed_draws_a_manifest_that_is_read_back(seed: int) -> None:
    manifest = generate(seed)
    assert manifest == generate(seed)
    assert read_manifest(msgspec.to_builtins(manifest)) == manifest
    assert 2 <= len(manifest.peers) <= MOST_PEERS
    assert sum(p.posts * p.rows for p in manifest.posters) <= 4 * ROWS_OF_ALL
    assert all(fault.at_s + fault.for_s <= manifest.workload_s for fault in manifest.faults)


def test_seeds_differ_in_kinds_of_faults_and_availability() -> None:
    manifests = [generate(seed) for seed in range(300)]
    kinds = {type(fault).__name__ for each in manifests for fault in each.faults}
    assert kinds == {kind.__name__ for kind in get_args(Fault)}
    modes = {query.availability.mode for each in manifests for query in each.queries}
    assert len(modes) == 5
    assert {stream.k_safety for each in manifests for stream in each.streams} == {0, 1}


def test_a_quarter_of_the_seeds_trade_and_some_end_a_contract() -> None:
    manifests = [generate(seed) for seed in range(400)]
    trading = [each for each in manifests if each.contracts]
    assert 60 < len(trading) < 140
    assert all(each.settings.trade and each.settings.capacities for each in trading)
    revoked = [contract.revoked_s for each in trading for contract in each.contracts]
    assert None in revoked
    assert any(at is not None for at in revoked)


@given(st.integers(0, 2**32), st.floats(1.0, 60.0))
def test_a_schedule_heals_all_it_breaks_and_kills_no_peer_twice(seed: int, span_s: float) -> None:
    rng = random.Random(seed)
    faults = schedule(rng, PEERS, draw_rates(rng), span_s, spared=PEERS[:1])
    down_until: dict[str, float] = {}
    for fault in faults:
        assert 0 <= fault.at_s <= fault.at_s + fault.for_s <= span_s + 0.01
        assert set(named_peers(fault)) <= set(PEERS)
        if isinstance(fault, Crash | Stop):
            assert fault.peer != PEERS[0]
            assert fault.at_s > down_until.get(fault.peer, -1.0)
            down_until[fault.peer] = fault.at_s + fault.for_s
    assert list(faults) == sorted(faults, key=lambda fault: fault.at_s)


def test_without_rates_nothing_breaks() -> None:
    assert schedule(random.Random(1), PEERS, FaultRates(), 60.0) == ()
