"""The ledger of a peer's earnings and payments: a chain of entries in one SQLite file.

* Entries are receipts that both sides signed, and disputes. They are only appended, each with the
  digest of all before it, so that an altered entry can be found.
* A committed entry survives `kill -9` and a power cut.
* Beside the chain the file has the deals that are not yet paid in full, and the public keys that
  verify the chain's signatures (a peer's id is its key's digest).
* The file's owner can cut off its end, digests included; the other party's copy shows that.
"""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from medusa.contracts.audit import audit, chained, check_disputed, check_follows, open_entry, sums
from medusa.contracts.balances import Balance, Balances
from medusa.contracts.deals import Account, Deal, DealKey, LoadRate
from medusa.contracts.ledger_file import connect, connect_for_reading, translated
from medusa.contracts.receipts import (
    MAX_RECEIPT,
    Dispute,
    Entry,
    KeyOf,
    Receipt,
    Settled,
    decode_entry,
    digest_of,
    read_receipt,
)
from medusa.overlay.encoding import decode, encode
from medusa.overlay.errors import BusyError, ConflictError, InvalidInputError, UntrustedError
from medusa.overlay.names import PeerId

LEDGER_FILE: Final = "ledger.sqlite"
"""The file's name in a home."""

MAX_DEALS: Final = 20_000
"""Deals kept: running ones, and lately ended ones. Some 10 MB of memory."""

MAX_DEALS_OF_CONTRACT: Final = 2_000
"""Deals of one contract: a partner that keeps opening deals takes no other partner's places."""

_INSERT: Final = f"INSERT INTO entries VALUES ({', '.join('?' * 15)})"  # noqa: S608 - no values in it

_OF_ACCOUNT: Final = "contract = ? AND payer = ? AND payee = ?"


@dataclass(slots=True)
class Standing:
    """A deal and how far it is paid.

    Attributes:
        billed: paid up to this boundary (microseconds of stime).
        end: the boundary at which the placement ended, None while it runs. ended_at: when,
            microseconds UTC.
        tail: (after, rows): the tuples of (after, end], counted before they were deleted. Those
            paid since then are included.
    """

    deal: Deal
    billed: int
    end: int | None = None
    ended_at: int = 0
    tail: tuple[int, int] | None = None

    @property
    def paid(self) -> bool:
        """Whether nothing more is owed."""
        return self.end is not None and self.billed >= self.end


class Standings:
    """The stored deals, in memory: by key, by contract and by placement."""

    def __init__(self) -> None:
        self._deals: dict[DealKey, Standing] = {}
        self._of_contract = Counter[str]()
        self._of_task: dict[tuple[str, int], list[Standing]] = {}

    def __len__(self) -> int:
        return len(self._deals)

    def add(self, standing: Standing) -> None:
        key = standing.deal.key
        self._deals[key] = standing
        self._of_contract[key.account.contract] += 1
        self._of_task.setdefault((key.task, key.term_number), []).append(standing)

    def remove(self, standing: Standing) -> None:
        key = standing.deal.key
        del self._deals[key]
        self._of_contract[key.account.contract] -= 1
        self._of_task[key.task, key.term_number].remove(standing)
        if not self._of_task[key.task, key.term_number]:
            del self._of_task[key.task, key.term_number]

    def get(self, key: DealKey) -> Standing | None:
        return self._deals.get(key)

    def all(self) -> tuple[Standing, ...]:
        return tuple(self._deals.values())

    def count(self, contract: str) -> int:
        """How many deals of that contract there are."""
        return self._of_contract[contract]

    def of_placement(self, task: str, term_number: int) -> tuple[Standing, ...]:
        return tuple(self._of_task.get((task, term_number), ()))


class Ledger:
    """One peer's ledger.

    Attributes:
        own: the peer's id. federation: its id. path: the path of its file.
    """

    def __init__(
        self,
        connection: sqlite3.Connection,
        path: Path,
        own: PeerId,
        federation: str,
        key_of: KeyOf,
    ) -> None:
        self.own = own
        self.federation = federation
        self._connection = connection
        self.path = path
        self._key_of = key_of
        self._standings = Standings()
        with translated(path):
            for data, end, ended_at, after, rows in connection.execute(
                "SELECT data, ending, ended_at, tail_after, tail_rows FROM deals"
            ):
                deal = decode(data, Deal, limit=MAX_RECEIPT, what=f"{path}: deal")
                tail = None if after is None else (after, rows)
                billed = self.billed(deal.key)
                start = deal.start if billed is None else billed
                self._standings.add(Standing(deal, start, end, ended_at or 0, tail))

    # -- the chain ---------------------------------------------------------------------------------

    def append(self, entry: Entry) -> Receipt:
        """Append an entry, which is on disk on return; returns its receipt.

        Raises:
            DecodeError, UntrustedError: its signatures are invalid, or we are no party to it.
            ConflictError: it is not the next of its account, overlaps paid intervals, or exists
                already.
            StorageFullError: the disk is full; nothing was changed.
        """
        receipt, columns = open_entry(entry, self.federation, self._key_of)
        if self.own not in {receipt.payer, receipt.payee}:
            raise UntrustedError(f"receipt of {receipt.task!a}: this peer is no party to it")
        if isinstance(entry, Settled):
            check_follows(receipt, self.last(receipt.account), self.billed(receipt.key))
        else:
            check_disputed(receipt, self.billed(receipt.key))
        if isinstance(receipt.rate, LoadRate) and self._paid_elsewhere(receipt):
            raise ConflictError(
                f"receipt of {receipt.task!a}: placement {receipt.term_number} is another account's"
            )
        self._insert(columns, encode(entry), (receipt.payer, receipt.payee))
        standing = self._standings.get(receipt.key)
        if standing is not None and isinstance(entry, Settled):
            standing.billed = receipt.upto
        return receipt

    def _insert(
        self, columns: tuple[object, ...], data: bytes, parties: tuple[PeerId, PeerId]
    ) -> None:
        keys = [(peer, self._key_of(peer).public_bytes_raw()) for peer in parties]
        with translated(self.path), self._connection as connection:
            connection.execute("BEGIN IMMEDIATE")
            count, digest = connection.execute("SELECT entries, digest FROM head").fetchone()
            after = chained(digest, data)
            try:
                connection.execute(_INSERT, (count + 1, *columns, data, after))
            except sqlite3.IntegrityError:
                raise ConflictError(f"{columns[0]} {columns[4]} of {columns[5]!a}: here") from None
            connection.execute("UPDATE head SET entries = ?, digest = ?", (count + 1, after))
            connection.executemany("INSERT OR IGNORE INTO keys VALUES (?, ?)", keys)

    def verify(self) -> int:
        """Verify the whole chain; returns the number of entries.

        Raises:
            InvalidInputError: names the first invalid entry and its fault.
        """
        with translated(self.path):
            return audit(self._connection, self.own, self.federation)

    def last(self, account: Account) -> tuple[int, bytes]:
        """Number and digest of the account's last receipt; (0, b"") if there is none."""
        rows = self._rows(
            f"SELECT number, data FROM entries WHERE {_OF_ACCOUNT} AND kind = 'receipt' "  # noqa: S608
            "ORDER BY number DESC LIMIT 1",
            *account,
        )
        for number, data in rows:
            return int(number), digest_of(_settled(data).payload)
        return 0, b""

    def find(self, account: Account, number: int) -> Settled | None:
        """The receipt of that number, signed by both sides; None if there is none."""
        rows = self._rows(
            f"SELECT data FROM entries WHERE {_OF_ACCOUNT} AND kind = 'receipt' AND number = ?",  # noqa: S608
            *account, number,
        )  # fmt: skip
        return _settled(rows[0][0]) if rows else None

    def find_dispute(self, key: DealKey, after: int) -> Dispute | None:
        """The dispute of this deal about the interval that starts at that boundary."""
        rows = self._of_deal("data", key, "dispute", "AND after = ?", after)
        entry = decode_entry(rows[0][0]) if rows else None
        return entry if isinstance(entry, Dispute) else None

    def paid_from(self, key: DealKey, after: int) -> Receipt | None:
        """The receipt of this deal that starts at that boundary."""
        rows = self._of_deal("data", key, "receipt", "AND after = ?", after)
        return read_receipt(_settled(rows[0][0]).payload) if rows else None

    def billed(self, key: DealKey) -> int | None:
        """The boundary up to which this deal is paid; None: there is no receipt of it."""
        upto = self._of_deal("max(upto)", key, "receipt")[0][0]
        return None if upto is None else int(upto)

    def rows_paid(self, key: DealKey, after: int) -> int:
        """Paid tuples of this deal from that boundary on."""
        rows = self._of_deal("coalesce(sum(rows), 0)", key, "receipt", "AND after >= ?", after)
        return int(rows[0][0])

    def balance(self, contract: str) -> Balance:
        """The balance of that contract."""
        return self.balances(contract).of(contract)

    def balances(self, contract: str = "", *, check: bool = False) -> Balances:
        """The balances of all contracts, or of one. check: verify the chain too (0.3 ms for each
        entry)."""
        with translated(self.path):
            return _balances(self._connection, self.own, self.federation, contract, check=check)

    def disputes(self) -> tuple[Dispute, ...]:
        """All disputes, oldest first."""
        found = self._rows("SELECT data FROM entries WHERE kind = 'dispute' ORDER BY position")
        entries = [decode_entry(data) for (data,) in found]
        return tuple(entry for entry in entries if isinstance(entry, Dispute))

    # -- deals -------------------------------------------------------------------------------------

    def open_deal(self, deal: Deal) -> Standing:
        """Store a deal; an equal one again changes nothing.

        Raises:
            ConflictError: another deal of this placement is stored.
            BusyError: MAX_DEALS deals are stored, or MAX_DEALS_OF_CONTRACT of this contract.
            UntrustedError: we are no party to it.
        """
        known = self._standings.get(deal.key)
        if known is not None:
            if (known.deal.rate, known.deal.start) != (deal.rate, deal.start):
                raise ConflictError(
                    f"{deal.task}: placement {deal.term_number} was agreed otherwise"
                )
            return known
        if self.own not in {deal.payer, deal.payee} or deal.payer == deal.payee:
            raise UntrustedError(f"{deal.task}: this peer is no party to that deal")
        for other in self.deals_of(deal.task, deal.term_number):
            both_load = isinstance(deal.rate, LoadRate) and isinstance(other.deal.rate, LoadRate)
            if both_load and not _passes_on(deal, other.deal):
                raise ConflictError(
                    f"{deal.task}: placement {deal.term_number} is another account's"
                )
        if len(self._standings) >= MAX_DEALS:
            raise BusyError(f"{MAX_DEALS} deals are open or ended lately; no more are taken")
        if self._standings.count(deal.contract) >= MAX_DEALS_OF_CONTRACT:
            raise BusyError(
                f"contract {deal.contract[:8]}: {MAX_DEALS_OF_CONTRACT} deals are open or ended "
                "lately; no more are taken"
            )
        billed = self.billed(deal.key)
        standing = Standing(deal, deal.start if billed is None else billed)
        self._change(
            "INSERT INTO deals VALUES (?, ?, ?, ?, ?, ?, NULL, NULL, NULL, NULL)",
            *_arguments(deal.key),
            encode(deal),
        )
        self._standings.add(standing)
        return standing

    def end_deal(self, standing: Standing, end: int, at: int) -> None:
        """Note that the placement ended at that boundary, unless an earlier one is known. at:
        microseconds UTC."""
        if standing.end is not None and standing.end <= end:
            return
        ended_at = standing.ended_at or at
        # a count up to a later end includes tuples that are not owed
        values = "ending = ?, ended_at = ?, tail_after = NULL, tail_rows = NULL"
        self._update(standing.deal.key, values, end, ended_at)
        standing.end, standing.ended_at, standing.tail = end, ended_at, None

    def keep_tail(self, standing: Standing, after: int, rows: int) -> None:
        """Store the count of (after, end], because the tuples will be deleted."""
        self._update(standing.deal.key, "tail_after = ?, tail_rows = ?", after, rows)
        standing.tail = (after, rows)

    def forget_deal(self, standing: Standing) -> None:
        """Delete a deal that is paid, or that nobody has claimed for long."""
        key = standing.deal.key
        where = f"{_OF_ACCOUNT} AND task = ? AND term_number = ?"
        self._change(f"DELETE FROM deals WHERE {where}", *_arguments(key))  # noqa: S608
        self._standings.remove(standing)

    def deals(self) -> tuple[Standing, ...]:
        """All stored deals."""
        return self._standings.all()

    def deal(self, key: DealKey) -> Standing | None:
        return self._standings.get(key)

    def deals_of(self, task: str, term_number: int) -> tuple[Standing, ...]:
        """The deals of that placement: one, or two if this peer passed the task on."""
        return self._standings.of_placement(task, term_number)

    # -- SQL ---------------------------------------------------------------------------------------

    def _of_deal(
        self, what: str, key: DealKey, kind: str, more: str = "", *arguments: int
    ) -> list[tuple[bytes, ...]]:
        return self._rows(
            f"SELECT {what} FROM entries WHERE task = ? AND term_number = ? AND kind = ? "  # noqa: S608
            f"AND {_OF_ACCOUNT} {more}",
            key.task, key.term_number, kind, *key.account, *arguments,
        )  # fmt: skip

    def _paid_elsewhere(self, receipt: Receipt) -> bool:
        """Whether another account has a receipt of the same placement on the same side."""
        side = "payer" if receipt.payer == self.own else "payee"
        rows = self._rows(
            "SELECT 1 FROM entries WHERE task = ? AND term_number = ? AND kind = 'receipt' "  # noqa: S608
            f"AND {side} = ? AND NOT ({_OF_ACCOUNT}) LIMIT 1",
            receipt.task, receipt.term_number, self.own, *receipt.account,
        )  # fmt: skip
        return bool(rows)

    def _rows(self, sql: str, *arguments: object) -> list[tuple[bytes, ...]]:
        with translated(self.path):
            return self._connection.execute(sql, arguments).fetchall()

    def _update(self, key: DealKey, values: str, *arguments: object) -> None:
        where = f"{_OF_ACCOUNT} AND task = ? AND term_number = ?"
        sql = f"UPDATE deals SET {values} WHERE {where}"  # noqa: S608
        self._change(sql, *arguments, *_arguments(key))

    def _change(self, sql: str, *arguments: object) -> None:
        with translated(self.path), self._connection:
            self._connection.execute(sql, arguments)


def _passes_on(one: Deal, other: Deal) -> bool:
    """Whether the payee of one deal is the payer of the other, with three different peers."""
    ends = {one.payer, one.payee}, {other.payer, other.payee}
    return len(ends[0] & ends[1]) == 1 and (one.payee == other.payer or one.payer == other.payee)


def _arguments(key: DealKey) -> tuple[object, ...]:
    return *key.account, key.task, key.term_number


def _settled(data: bytes) -> Settled:
    entry = decode_entry(data)
    if not isinstance(entry, Settled):
        raise InvalidInputError("ledger: a dispute stands where a receipt should")
    return entry


def _balances(
    connection: sqlite3.Connection, own: PeerId, federation: str, contract: str, *, check: bool
) -> Balances:
    fault = ""
    if check:
        try:
            audit(connection, own, federation)
        except InvalidInputError as error:
            fault = str(error)
    entries, head = connection.execute("SELECT entries, digest FROM head").fetchone()
    return Balances(own.hex(), sums(connection, own, contract), entries, head.hex(), fault)


@contextmanager
def open_ledger(path: Path, own: PeerId, federation: str, key_of: KeyOf) -> Iterator[Ledger]:
    """Open the ledger of that peer in that file; create it if it is missing.

    Args:
        own: the peer's id. federation: its id. path: the path of its file.
        key_of: the public key of a peer id; raises UntrustedError if it is not known.

    Raises:
        InvalidInputError: the file is damaged, or of another version.
        StorageFullError: the disk is full.
    """
    with connect(path) as connection:
        yield Ledger(connection, path, own, federation, key_of)


def read_balances(path: Path, own: PeerId, federation: str, contract: str = "") -> Balances:
    """Read the balances in a ledger's file and verify its chain, whether or not the peer runs.

    Raises:
        NotFoundError: there is no ledger: nothing was ever settled.
        InvalidInputError: the file is damaged, or of another version.
    """
    with connect_for_reading(path) as connection, translated(path):
        connection.execute("BEGIN")  # all reads see one state, whatever the peer appends meanwhile
        return _balances(connection, own, federation, contract, check=True)
