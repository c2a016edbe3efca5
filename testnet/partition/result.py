"""What a split did to a client, as its JSON has it."""

from __future__ import annotations

from msgspec import Struct


class Check(Struct, frozen=True):
    """claim: what must hold. found: what did."""

    claim: str
    good: bool
    found: str


class PartitionResult(Struct, frozen=True):
    """
    Attributes:
        seconds: how long the federation was split. chain: servers one after the other.
        corrections: how the client was told of them. missing: share of the input that was away.
        bound_ms: X, how much longer than usual new results may take.
        max_new_tuple_delay_ms_stable, _failure, _stabilization: longest time from a tuple's posting
            to when the client first heard of it, or of a later one: before the split and after the
            corrections; during the split; from its end until all was corrected.
        first_tentative_ms: after the cut; null: there was none.
        tentative: tuples given tentatively. undone: of those, taken back by UNDO and REC_DONE.
        revised: tuples in DELETION, INSERTION and REPLACEMENT revisions.
        undos, rec_dones: how many there were.
        corrected_ms: from the end of the split until nothing tentative was left.
        duplicates, losses: of the client's stream in the end, against a failure-free answer.
        exact: there is neither.
        expected: tuples of that answer.
        read_from: with a replica: whom C read from at the end of the split, and of the run.
    """

    seconds: float
    chain: int
    corrections: str
    missing: float
    netns: bool
    bound_ms: float
    max_new_tuple_delay_ms_stable: float
    max_new_tuple_delay_ms_failure: float
    max_new_tuple_delay_ms_stabilization: float
    first_tentative_ms: float | None
    tentative: int
    undone: int
    revised: int
    undos: int
    rec_dones: int
    corrected_ms: float
    duplicates: int
    losses: int
    exact: bool
    expected: int
    read_from: tuple[str, ...] = ()
    checks: tuple[Check, ...] = ()
    plot: str | None = None
    folder: str | None = None

    @property
    def good(self) -> bool:
        return all(check.good for check in self.checks)
