"""The ledger only grows, is chained, and survives crashes; it names every altered entry."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import msgspec
import pytest
from contracts_ledgers import AT, disputed, filled, next_receipt, opened
from contracts_settling import AC, CD, FEDERATION, RATE, TASK, A, C, D, S, deal_of
from damaged_files import flip
from deadline import DEADLINE_S

from medusa.contracts.audit import chained
from medusa.contracts.deals import ContentRate, Deal
from medusa.contracts.ledger import read_balances
from medusa.overlay.errors import ConflictError, InvalidInputError, NotFoundError, UntrustedError


def test_appended_entries_exist_after_a_restart(tmp_path: Path) -> None:
    path = tmp_path / "ledger.sqlite"
    with opened(path) as ledger:
        first = next_receipt(ledger, deal_of())
        assert ledger.append(first).number == 1
        ledger.append(disputed(ledger, deal_of()))
        ledger.append(next_receipt(ledger, deal_of()))
    with opened(path) as ledger:
        account = deal_of().account
        assert ledger.verify() == 3
        assert ledger.find(account, 1) == first
        assert ledger.last(account)[0] == 2
        assert ledger.find(account, 3) is None
        found = ledger.find_dispute(deal_of().key, 40 * S)
        assert [found] == list(ledger.disputes())
        balance = ledger.balance(AC)
        assert (balance.spent, balance.earned, balance.net) == (20_000, 0, -20_000)
        assert (balance.tuples, balance.receipts, balance.disputes) == (2_000, 2, 1)
        assert ledger.balance(CD).receipts == 0


def test_both_sides_of_one_receipt(tmp_path: Path) -> None:
    with opened(tmp_path / "a", A) as payer, opened(tmp_path / "c", C) as payee:
        settled = next_receipt(payer, deal_of())
        payer.append(settled)
        payee.append(settled)
        assert payer.balance(AC).spent == payee.balance(AC).earned == 10_000
        assert payer.balance(AC).last_at == AT


def test_a_receipt_that_does_not_follow_is_refused(tmp_path: Path) -> None:
    with opened(tmp_path / "ledger") as ledger:
        deal, other = deal_of(), deal_of(task="medusa://a.edu/other")
        first = next_receipt(ledger, deal)
        rival = next_receipt(ledger, deal, rows=999)
        ledger.append(first)
        later = next_receipt(ledger, deal)
        for bad, reason in [
            (first, "next number is 2"),
            (rival, "next number is 2"),
            (next_receipt(ledger, deal, after=20 * S), "starts at 20000000, not at 40000000"),
            (next_receipt(ledger, deal, after=50 * S), "starts at 50000000, not at 40000000"),
            (next_receipt(ledger, deal, after=10 * S), "starts at 10000000"),
        ]:
            with pytest.raises(ConflictError, match=reason):
                ledger.append(bad)
        ledger.append(next_receipt(ledger, other))
        with pytest.raises(ConflictError, match="next number is 3"):
            ledger.append(later)
        assert ledger.verify() == 2


def test_a_receipt_on_another_history_is_refused(tmp_path: Path) -> None:
    with opened(tmp_path / "ledger") as ledger, opened(tmp_path / "other") as other:
        ledger.append(next_receipt(ledger, deal_of()))
        other.append(next_receipt(other, deal_of(), rows=999))
        with pytest.raises(ConflictError, match="does not continue the account's chain"):
            ledger.append(next_receipt(other, deal_of()))


def test_one_placement_is_not_paid_to_two(tmp_path: Path) -> None:
    with opened(tmp_path / "ledger", C) as ledger:
        paid = Deal(CD, C, D, TASK, 1, 10 * S, RATE, AT)
        ledger.append(next_receipt(ledger, deal_of()))
        ledger.append(next_receipt(ledger, paid))  # passed on: earned once and spent once
        twice = msgspec.structs.replace(paid, contract=AC, payee=A)
        with pytest.raises(ConflictError, match="placement 1 is another account's"):
            ledger.append(next_receipt(ledger, twice))
        ledger.open_deal(paid)
        with pytest.raises(ConflictError, match="another account's"):
            ledger.open_deal(twice)


def test_subscriptions_of_two_readers_may_have_one_number(tmp_path: Path) -> None:
    with opened(tmp_path / "ledger", C) as ledger:
        for payer, contract in ((A, AC), (D, CD)):
            deal = Deal(contract, payer, C, "medusa://c.edu/s", 1, 0, ContentRate(3), AT)
            ledger.open_deal(deal)
            ledger.append(next_receipt(ledger, deal))
        assert [ledger.balance(c).earned for c in (AC, CD)] == [3_000, 3_000]


def test_the_ledger_refuses_foreign_and_unsigned_receipts(tmp_path: Path) -> None:
    with opened(tmp_path / "ledger", D) as ledger, opened(tmp_path / "a") as at_a:
        settled = next_receipt(at_a, deal_of())
        with pytest.raises(UntrustedError, match="no party"):
            ledger.append(settled)
        with pytest.raises(UntrustedError, match="no party"):
            ledger.open_deal(deal_of())
        bad = msgspec.structs.replace(settled, payer_signature=settled.payee_signature)
        with pytest.raises(UntrustedError, match="countersigned"):
            at_a.append(bad)
        assert at_a.verify() == ledger.verify() == 0


def test_deals_are_kept_until_they_are_forgotten(tmp_path: Path) -> None:
    path = tmp_path / "ledger"
    deal = deal_of(start=-5 * S)
    with opened(path, C) as ledger:
        standing = ledger.open_deal(deal)
        assert ledger.open_deal(deal) is standing
        with pytest.raises(ConflictError, match="agreed otherwise"):
            ledger.open_deal(msgspec.structs.replace(deal, start=0))
        ledger.append(next_receipt(ledger, deal, seconds=5))
        assert standing.billed == 0
        ledger.end_deal(standing, 70 * S, AT)
        ledger.keep_tail(standing, 0, 77)
        ledger.end_deal(standing, 80 * S, AT)  # an end is never moved to a later boundary
    with opened(path, C) as ledger:
        (standing,) = ledger.deals()
        assert (standing.deal, standing.billed, standing.end) == (deal, 0, 70 * S)
        assert (standing.tail, standing.ended_at, standing.paid) == ((0, 77), AT, False)
        assert ledger.open_deal(deal).billed == 0  # 0 is a boundary, and does not mean the start
        ledger.end_deal(standing, 0, AT + 1)
        assert (standing.paid, standing.tail, standing.ended_at) == (True, None, AT)
        ledger.forget_deal(standing)
        assert ledger.deals() == ledger.deals_of(TASK, 1) == ()
    with opened(path, C) as ledger:
        assert ledger.deals() == ()
        assert ledger.billed(deal.key) == 0


ALTERATIONS = [
    ("UPDATE entries SET amount = 1 WHERE position = 3", "entry 3: its columns"),
    ("UPDATE entries SET rows = rows + 1 WHERE position = 2", "entry 2: its columns"),
    ("UPDATE entries SET contract = 'x' WHERE position = 5", "entry 5: its columns"),
    ("UPDATE entries SET kind = 'dispute' WHERE position = 4", "entry 4: its columns"),
    (
        "UPDATE entries SET data = CAST(data || 'x' AS BLOB) WHERE position = 2",
        "entry 2: its bytes",
    ),
    ("UPDATE entries SET digest = x'00' WHERE position = 1", "entry 1: its bytes"),
    ("DELETE FROM entries WHERE position = 3", "entry 3: it is missing"),
    ("DELETE FROM entries WHERE position = 1", "entry 1: it is missing"),
    ("DELETE FROM entries WHERE position = 5", "entry 5: the chain once ended with entry 5"),
    ("DELETE FROM entries", "entry 1: the chain once ended with entry 5"),
    ("UPDATE head SET entries = 4", "entry 5: the chain once ended with entry 4"),
    ("DELETE FROM keys", "entry 1: no key of peer"),
    ("UPDATE keys SET key = x'00'", "entry 1: the key kept of peer .* is none"),
    (f"UPDATE keys SET key = (SELECT key FROM keys WHERE peer = x'{A.hex()}')", "another one's"),
]


@pytest.mark.parametrize(("sql", "reason"), ALTERATIONS)
def test_an_altered_file_is_detected_and_named(tmp_path: Path, sql: str, reason: str) -> None:
    path = tmp_path / "ledger"
    filled(path)
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(sql)
    with opened(path) as ledger, pytest.raises(InvalidInputError, match=reason):
        ledger.verify()
    assert read_balances(path, A, FEDERATION).fault


def test_a_chain_made_anew_without_a_receipt_is_detected(tmp_path: Path) -> None:
    """An attacker who alters the file may recompute digests; the missing receipt still shows in the
    later ones."""
    path = tmp_path / "ledger"
    filled(path)
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("DELETE FROM entries WHERE position = 3")
        digest, rows = b"", connection.execute("SELECT position, data FROM entries").fetchall()
        for position, (old, data) in enumerate(sorted(rows), 1):
            digest = chained(digest, data)
            values = (position, digest, old)
            connection.execute(
                "UPDATE entries SET position = ?, digest = ? WHERE position = ?", values
            )
        connection.execute("UPDATE head SET entries = 4, digest = ?", (digest,))
    with opened(path) as ledger, pytest.raises(InvalidInputError, match="entry 3: receipt 4"):
        ledger.verify()


def test_a_damaged_file_is_reported(tmp_path: Path) -> None:
    path = tmp_path / "ledger"
    path.write_bytes(b"no database" * 1_000)
    with pytest.raises(InvalidInputError, match="damaged"), opened(path):
        pass
    with pytest.raises(InvalidInputError, match="damaged"):
        read_balances(path, A, FEDERATION)
    with closing(sqlite3.connect(tmp_path / "newer")) as connection:
        connection.execute("PRAGMA user_version = 99")
    with pytest.raises(InvalidInputError, match="version 99"), opened(tmp_path / "newer"):
        pass


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (lambda path: path.unlink(), "is lost"),
        (lambda path: os.truncate(path, 0), "is lost"),
        (lambda path: os.truncate(path, path.stat().st_size // 2), "damaged"),
        (lambda path: path.write_bytes(b"no database" * 1_000), "damaged"),
        (lambda path: flip(path, 4096), "damaged"),
        (lambda path: (path.unlink(), path.mkdir()), "is a folder"),
    ],
)
def test_a_ledger_that_is_lost_or_damaged_is_never_replaced_in_silence(
    tmp_path: Path, damage: Callable[[Path], object], reason: str
) -> None:
    path = tmp_path / "ledger.sqlite"
    filled(path)
    copy = path.read_bytes()
    damage(path)
    for _ in range(2):
        with pytest.raises(InvalidInputError, match=reason) as caught, opened(path):
            pass
        assert str(path) in str(caught.value)
        assert "put a copy in its place" in str(caught.value)
        with pytest.raises(InvalidInputError, match=reason):
            read_balances(path, A, FEDERATION)
    if path.is_dir():
        path.rmdir()
    path.write_bytes(copy)
    with opened(path) as ledger:
        assert ledger.verify() == 5
    path.unlink()
    (tmp_path / "ledger.sqlite.inventory").unlink()  # the error names this step as the mend
    with opened(path) as ledger:
        assert ledger.verify() == 0


def test_balances_are_read_beside_a_peer_that_runs(tmp_path: Path) -> None:
    path = tmp_path / "ledger"
    with pytest.raises(NotFoundError):
        read_balances(path, A, FEDERATION)
    with opened(path) as ledger:
        ledger.append(next_receipt(ledger, deal_of()))
        seen = read_balances(path, A, FEDERATION)
        assert seen == ledger.balances(check=True)
        assert (seen.entries, seen.fault, seen.of(AC).spent) == (1, "", 10_000)
        assert read_balances(path, A, FEDERATION, CD).contracts == ()
        ledger.append(next_receipt(ledger, deal_of()))
    assert read_balances(path, A, FEDERATION).of(AC).receipts == 2


def test_large_sums_are_exact(tmp_path: Path) -> None:
    with opened(tmp_path / "ledger") as ledger:
        dear = deal_of(ContentRate(2**40 - 1), task="medusa://c.edu/s")
        for _ in range(3):
            ledger.append(next_receipt(ledger, dear, rows=2**12 + 1))
        assert ledger.balance(AC).spent == 3 * (2**12 + 1) * (2**40 - 1)


CHILD = Path(__file__).with_name("killed_append.py")


@pytest.mark.parametrize(
    ("statement", "there"),
    [
        ("BEGIN", 0),
        ("INSERT INTO entries", 0),
        ("UPDATE head", 0),
        ("INSERT OR IGNORE INTO keys", 0),
        ("COMMIT", 0),
        ("return", 1),
    ],
)
def test_killed_in_the_middle_of_an_append(tmp_path: Path, statement: str, there: int) -> None:
    path = tmp_path / "ledger"
    filled(path, 2)
    child = subprocess.run(
        [sys.executable, str(CHILD), str(path), statement],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )
    assert child.returncode == -signal.SIGKILL, child.stderr
    with opened(path) as ledger:
        assert ledger.verify() == 2 + there
        ledger.append(next_receipt(ledger, deal_of()))
        assert ledger.verify() == 3 + there
