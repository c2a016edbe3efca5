"""The balances of a ledger: how much each contract's parties owe each other."""

from __future__ import annotations

from msgspec import Struct


class Balance(Struct, frozen=True):
    """One contract's money at one peer. All sums are positive, in micros.

    Attributes:
        contract: its id.
        earned, spent: micros by receipts that both sides signed.
        tuples: input tuples (of content contracts: messages) in those receipts.
        receipts: the number of receipts.
        disputes: how often the two sides counted differently.
        last_at: when the newest receipt was made, microseconds UTC; 0: there is none.
    """

    contract: str
    earned: int = 0
    spent: int = 0
    tuples: int = 0
    receipts: int = 0
    disputes: int = 0
    last_at: int = 0

    @property
    def net(self) -> int:
        """Micros that the other side owes us; negative: we owe them."""
        return self.earned - self.spent


class Balances(Struct, frozen=True):
    """The balances of a ledger; the answer to the call "contract.balance".

    Attributes:
        peer: id (hex) of the ledger's peer.
        contracts: those with at least one entry, sorted by id.
        entries: length of the chain.
        head: digest (hex) of the newest entry; "" in an empty ledger.
        fault: the first invalid entry and its fault; "": the whole chain was verified.
    """

    peer: str
    contracts: tuple[Balance, ...] = ()
    entries: int = 0
    head: str = ""
    fault: str = ""

    def of(self, contract: str) -> Balance:
        """The balance of that contract; all zero if there is no entry."""
        found = [b for b in self.contracts if b.contract == contract]
        return found[0] if found else Balance(contract)


class BalanceQuery(Struct, frozen=True):
    """The request of "contract.balance". contract: one id only; "" for all."""

    contract: str = ""
