"""What `medusa-peer contract balance` shows: who owes whom how much, from one peer's ledger."""

from __future__ import annotations

from msgspec import Struct


class Balance(Struct, frozen=True):
    """One contract's money at one peer; positive sums, in micros.

    Attributes:
        contract: its id.
        earned, spent: micros by receipts that both sides signed.
        tuples: input tuples (of content contracts: messages) that those receipts are for.
        receipts: how many. disputes: how often the two sides counted differently.
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
        """Micros that the other side owes us; negative: that we owe it."""
        return self.earned - self.spent


class Balances(Struct, frozen=True):
    """All of a ledger in short; the answer to the call "contract.balance".

    Attributes:
        peer: id (hex) of the peer whose ledger this is.
        contracts: those with at least one entry, sorted by id.
        entries: length of the chain. head: digest (hex) of the newest one; "" in an empty ledger.
        fault: the first entry that does not hold, and why; "": the whole chain was verified.
    """

    peer: str
    contracts: tuple[Balance, ...] = ()
    entries: int = 0
    head: str = ""
    fault: str = ""

    def of(self, contract: str) -> Balance:
        """That contract's balance; all zero where there is no entry."""
        found = [b for b in self.contracts if b.contract == contract]
        return found[0] if found else Balance(contract)


class BalanceQuery(Struct, frozen=True):
    """The request of "contract.balance". contract: one id only; "" for all."""

    contract: str = ""
