"""A peer's ledger, read off its file and verified without the ledger's own code."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from contracts.ledger import LEDGER_FILE, read_balances
from contracts.ledger_file import connect_for_reading
from contracts.receipts import (
    COUNTERSIGN_DOMAIN,
    RECEIPT_DOMAIN,
    Receipt,
    Settled,
    decode_entry,
    digest_of,
    read_receipt,
)
from overlay.certificates import peer_id_of
from overlay.errors import MedusaError, UntrustedError
from overlay.signing import verify
from testnet.simulation.history import AccountView, Books
from tools.home.folder import Home


def books_of(home: Home, peer: str, federation: str) -> Books:
    """What the ledger of that peer (hex) says, and what is wrong with it."""
    path = home.folder / LEDGER_FILE
    if not path.exists():
        return Books()
    try:
        balances = read_balances(path, bytes.fromhex(peer), federation)
        accounts, unsigned = _accounts(path)
    except MedusaError as error:
        return Books(fault=str(error))
    return Books(balances.contracts, accounts, balances.fault or unsigned)


def _accounts(path: Path) -> tuple[tuple[AccountView, ...], str]:
    """The receipts by account, and the first that both did not sign."""
    with connect_for_reading(path) as connection:
        keys = dict(connection.execute("SELECT peer, key FROM keys").fetchall())
        entries = connection.execute("SELECT data FROM entries ORDER BY position").fetchall()
    found: dict[tuple[str, str, str], AccountView] = {}
    fault = ""
    for (data,) in entries:
        entry = decode_entry(data)
        if not isinstance(entry, Settled):
            continue
        receipt = read_receipt(entry.payload)
        fault = fault or _unsigned(entry, receipt, keys)
        account = receipt.contract, receipt.payer.hex(), receipt.payee.hex()
        before = found.get(account, AccountView(*account))
        found[account] = AccountView(
            *account,
            receipts=before.receipts + 1,
            tuples=before.tuples + receipt.rows,
            amount=before.amount + receipt.amount,
            head=digest_of(entry.payload).hex(),
        )
    return tuple(found[account] for account in sorted(found)), fault


def _unsigned(entry: Settled, receipt: Receipt, keys: Mapping[bytes, bytes]) -> str:
    """Who of the two has not signed it; "": both have."""
    signed = (
        (receipt.payee, RECEIPT_DOMAIN, entry.payee_signature),
        (receipt.payer, COUNTERSIGN_DOMAIN, entry.payer_signature),
    )
    for peer, domain, signature in signed:
        key = Ed25519PublicKey.from_public_bytes(keys[peer])
        try:
            verify(key, domain, entry.payload, signature)
        except (UntrustedError, InvalidSignature):
            return f"receipt {receipt.number} is not signed by {peer.hex()[:8]}"
        if peer_id_of(key) != peer:
            return f"receipt {receipt.number}: the key kept of {peer.hex()[:8]} is another's"
    return ""
