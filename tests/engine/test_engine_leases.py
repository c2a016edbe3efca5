"""Named subscribers are waited for, over restarts, and not without bound."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.streams import subscriptions
from engine.streams.subscriptions import Lease, Leases
from overlay.errors import BusyError, DamagedError

STREAM = "medusa://mit.edu/s"


def test_a_lease_survives_a_restart(tmp_path: Path) -> None:
    first = Leases(tmp_path / "leases.json", 60.0)
    first.renew(STREAM, "utah.edu x", "utah.edu", 17, now=1000.0)
    first.save()
    (lease,) = Leases(tmp_path / "leases.json", 60.0).of(STREAM)
    assert (lease.subscriber, lease.boundary, lease.expires) == ("utah.edu x", 17, 1060.0)


def test_a_lease_runs_out_unless_it_is_renewed(tmp_path: Path) -> None:
    state = Leases(tmp_path / "leases.json", 60.0)
    state.renew(STREAM, "a", "mit.edu", 1, now=0.0)
    state.renew(STREAM, "b", "mit.edu", 1, now=0.0)
    state.renew(STREAM, "b", "mit.edu", 2, now=30.0)
    assert [lease.subscriber for lease in state.expire(60.0)] == ["a"]
    assert [lease.subscriber for lease in state.of(STREAM)] == ["b"]


@pytest.mark.parametrize("expires", [1e9, float("inf"), float("nan")])
def test_none_lasts_longer_than_one_that_is_renewed_now(tmp_path: Path, expires: float) -> None:
    """Granted by a clock that was ahead, or by another peer that says so."""
    state = Leases(tmp_path / "leases.json", 60.0)
    state.take(Lease(STREAM, "a", "mit.edu", 1, expires))
    assert state.expire(100.0) == []
    assert [lease.expires for lease in state.of(STREAM)] == [160.0]
    assert [lease.subscriber for lease in state.expire(160.0)] == ["a"]


def test_no_participant_takes_all_places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subscriptions, "MAX_LEASES_PER_HOLDER", 2)
    state = Leases(tmp_path / "leases.json", 60.0)
    for name in ("a", "b"):
        state.renew(STREAM, name, "greedy.org", 0, now=0.0)
    with pytest.raises(BusyError, match=r"greedy\.org"):
        state.renew(STREAM, "c", "greedy.org", 0, now=0.0)
    state.renew(STREAM, "a", "greedy.org", 5, now=1.0)
    state.renew(STREAM, "c", "modest.org", 0, now=0.0)


def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    path = tmp_path / "leases.json"
    path.write_text("[{")
    with pytest.raises(DamagedError, match=r"leases\.json"):
        Leases(path, 60.0)
