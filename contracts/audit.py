"""Verifies a ledger's chain, finds its first invalid entry, and sums its balances."""

from __future__ import annotations

import hashlib
import sqlite3
from typing import Final

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from medusa.contracts.balances import Balance
from medusa.contracts.deals import Account, DealKey
from medusa.contracts.receipts import (
    Entry,
    KeyOf,
    Receipt,
    Settled,
    decode_entry,
    digest_of,
    open_dispute,
    open_settled,
)
from medusa.overlay.certificates import peer_id_of
from medusa.overlay.errors import ConflictError, InvalidInputError, MedusaError, UntrustedError
from medusa.overlay.names import PeerId

_LOW_BITS: Final = 26
"""Amounts are summed in two halves, so that no sum in SQLite exceeds 64 bits."""

Columns = tuple[str, str, bytes, bytes, int, str, int, int, int, int, int, int]
"""An entry's columns other than its position, data and digest."""

_COLUMNS: Final = (
    "kind, contract, payer, payee, number, task, term_number, after, upto, rows, amount, at"
)


def chained(before: bytes, data: bytes) -> bytes:
    """The digest (SHA-256) of an entry and of all entries before it."""
    return hashlib.sha256(before + data).digest()


def open_entry(entry: Entry, federation: str, key_of: KeyOf) -> tuple[Receipt, Columns]:
    """Verify an entry's signatures; returns its receipt, and the values of its columns.

    Raises:
        DecodeError, UntrustedError: see `open_settled`, `open_dispute`.
    """
    if isinstance(entry, Settled):
        receipt = open_settled(entry, federation, key_of)
        return receipt, _columns("receipt", receipt, receipt.rows, receipt.amount)
    receipt, objection = open_dispute(entry, federation, key_of)
    return receipt, _columns("dispute", receipt, objection.rows, 0)


def _columns(kind: str, receipt: Receipt, rows: int, amount: int) -> Columns:
    account, task, term = receipt.key
    at = receipt.at
    return (
        kind, *account, receipt.number, task, term, receipt.after, receipt.upto, rows, amount, at
    )  # fmt: skip


class Continuity:
    """Checks that entries follow one another, for all accounts."""

    def __init__(self) -> None:
        self._last: dict[Account, tuple[int, bytes]] = {}
        self._billed: dict[DealKey, int] = {}

    def check(self, receipt: Receipt, payload: bytes | None) -> None:
        """Check the next entry. payload: the receipt's bytes, None for a dispute.

        Raises:
            ConflictError: the entry does not follow from the entries before.
        """
        billed = self._billed.get(receipt.key)
        if payload is None:
            check_disputed(receipt, billed)
        else:
            check_follows(receipt, self._last.get(receipt.account, (0, b"")), billed)
            self._last[receipt.account] = (receipt.number, digest_of(payload))
            self._billed[receipt.key] = receipt.upto


def check_follows(receipt: Receipt, last: tuple[int, bytes], billed: int | None) -> None:
    """Check that a receipt is the next of its account and its deal.

    Args:
        last: number and digest of the account's last receipt; (0, b"") if there is none.
        billed: the boundary up to which this deal is paid; None: there is no receipt of it yet.

    Raises:
        ConflictError: the receipt is not the next one.
    """
    number, digest = last
    where = f"receipt {receipt.number} of {receipt.task!a}"
    if receipt.number != number + 1:
        raise ConflictError(f"{where}: the account's next number is {number + 1}")
    if receipt.previous != digest:
        raise ConflictError(f"{where}: it does not continue the account's chain")
    check_disputed(receipt, billed)


def check_disputed(receipt: Receipt, billed: int | None) -> None:
    """Check that a dispute concerns the part of the deal that is not paid yet. (Meanwhile another
    task's receipt may have taken its number.)

    Raises:
        ConflictError: the receipt does not start where the paid part ends.
    """
    if billed is not None and receipt.after != billed:
        raise ConflictError(
            f"receipt {receipt.number} of {receipt.task!a}: it starts at {receipt.after}, "
            f"not at {billed}, up to where it is paid"
        )


def audit(connection: sqlite3.Connection, own: PeerId, federation: str) -> int:
    """Verify every digest, signature, column, number and interval; returns the number of entries.

    Raises:
        InvalidInputError: names the first invalid entry and its fault.
    """
    keys: dict[PeerId, bytes] = dict(connection.execute("SELECT peer, key FROM keys"))
    continuity = Continuity()
    digest, position = b"", 0
    rows = connection.execute(
        f"SELECT position, data, digest, {_COLUMNS} FROM entries ORDER BY position"  # noqa: S608
    )
    for position_, data, digest_, *columns in rows:
        position += 1
        try:
            if position_ != position:
                raise ConflictError("it is missing")
            digest = chained(digest, data)
            if digest_ != digest:
                raise ConflictError("its bytes are not those that the chain was made with")
            entry = decode_entry(data)
            receipt, expected = open_entry(entry, federation, lambda peer: _key(keys, peer))
            if tuple(columns) != expected:
                raise ConflictError("its columns do not say what was signed")
            if own not in {receipt.payer, receipt.payee}:
                raise ConflictError("this peer is no party to it")
            continuity.check(receipt, entry.payload if isinstance(entry, Settled) else None)
        except MedusaError as error:
            raise InvalidInputError(f"entry {position}: {error}") from None
    (count, head) = connection.execute("SELECT entries, digest FROM head").fetchone()
    if (count, head) != (position, digest):
        missing = position + 1 if count > position else position
        raise InvalidInputError(f"entry {missing}: the chain once ended with entry {count}")
    return position


def _key(keys: dict[PeerId, bytes], peer: PeerId) -> Ed25519PublicKey:
    raw = keys.get(peer)
    if raw is None:
        raise UntrustedError(f"no key of peer {peer.hex()} is kept")
    try:
        key = Ed25519PublicKey.from_public_bytes(raw)
    except ValueError:
        raise UntrustedError(f"the key kept of peer {peer.hex()} is none") from None
    if peer_id_of(key) != peer:
        raise UntrustedError(f"the key kept of peer {peer.hex()} is another one's")
    return key


def sums(connection: sqlite3.Connection, own: PeerId, contract: str = "") -> tuple[Balance, ...]:
    """The balances of all contracts, or of one, sorted by contract id."""
    found: dict[str, list[int]] = {}
    rows = connection.execute(
        f"SELECT contract, kind = 'dispute', payee = ?, count(*), sum(rows), sum(amount >> "  # noqa: S608
        f"{_LOW_BITS}), sum(amount & {2**_LOW_BITS - 1}), max(at) FROM entries "
        "WHERE ? IN ('', contract) GROUP BY 1, 2, 3",
        (own, contract),
    )
    for name, disputed, earning, count, tuples, high, low, at in rows:
        total = found.setdefault(name, [0, 0, 0, 0, 0, 0])
        if disputed:
            total[4] += count
            continue
        total[0 if earning else 1] += (high << _LOW_BITS) + low
        total[2] += tuples
        total[3] += count
        total[5] = max(total[5], at)
    return tuple(Balance(name, *total) for name, total in sorted(found.items()))
