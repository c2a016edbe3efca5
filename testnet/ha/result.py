"""What the demonstration found, as its JSON has it."""

from __future__ import annotations

from msgspec import Struct


class ModeResult(Struct, frozen=True):
    """One run of the chain.

    Attributes:
        lost, duplicated: answers that did not come, and those that came again. wrong: answers that
            are none: of windows of which a part was forgotten. Null where the run failed before the
            kill: nothing was lost by what did not begin.
        expected: how many answers there should be.
        recovery_ms: for how long the kill kept answers back: how much later than usual the first
            one of after it came, or `stall_ms` where that is more; null: none came.
        first_new_ms: how long after the kill that was, the chain's usual delay included.
        stall_ms: the longest time without an answer after the kill, less the longest before it.
        delay_ms: from the close of a window to its answer, the median before the kill.
        added_delay_ms: more than without a secondary, before the kill.
        cpu_s: CPU seconds per second of all peers and their JVMs before the kill; bytes_s: bytes
            per second that they sent to each other.
        cpu_overhead, network_overhead: how much more that is than without secondaries, as a share.
            These three are null where there was no run without.
        returned: how many of the killed peers came back, and claim nothing that another has taken
            over. secured: how many queries had a secondary that was caught up, in the end.
        seconds: how long the run took.
    """

    mode: str
    recovery: str
    lost: int | None
    duplicated: int | None
    recovery_ms: float | None
    added_delay_ms: float | None
    cpu_overhead: float | None
    network_overhead: float | None
    wrong: int | None = 0
    expected: int = 0
    first_new_ms: float | None = None
    stall_ms: float = 0.0
    delay_ms: float = 0.0
    cpu_s: float = 0.0
    bytes_s: float = 0.0
    returned: int = 0
    secured: int = 0
    seconds: float = 0.0
    failure: str = ""
    """Why the run did not come to its end, if it did not."""

    @property
    def begun(self) -> bool:
        """Whether it came to the kill."""
        return self.lost is not None

    @property
    def label(self) -> str:
        """What a person reads in a table."""
        return self.mode if self.mode == "none" else f"{self.mode.split('_')[0]}/{self.recovery}"


class Check(Struct, frozen=True):
    """Something that the papers say, or that a mode promises.

    Attributes:
        certain: it must hold; else it is what is to be expected, and noise may be against it.
        found: what was measured.
    """

    claim: str
    good: bool
    certain: bool
    found: str


class HaResult(Struct, frozen=True):
    """
    Attributes:
        rate: readings posted per second.
        folders: where the homes and logs of each run were left.
    """

    modes: tuple[ModeResult, ...]
    checks: tuple[Check, ...]
    rate: int = 0
    seconds: float = 0.0
    plot: str | None = None
    folders: tuple[str, ...] = ()

    @property
    def failed(self) -> bool:
        """Some run did not come to its kill: it shows nothing."""
        return not all(mode.begun for mode in self.modes)

    @property
    def good(self) -> bool:
        """Everything certain holds."""
        return all(check.good for check in self.checks if check.certain)
