"""The admission policy: any member admits, the founder alone, or a number of named sponsors."""

from __future__ import annotations

import re
from collections.abc import Set
from dataclasses import dataclass
from typing import Final, Self

from medusa.overlay.errors import InvalidInputError
from medusa.overlay.names import check_participant

ANY: Final = "any"
FOUNDER: Final = "founder"

MAX_SPONSORS: Final = 16
"""Most sponsors of one policy: a person asks each of them."""

_SPONSORS = re.compile(r"(\d{1,2}) of (.+)", re.ASCII)


@dataclass(frozen=True, slots=True)
class AdmissionPolicy:
    """The sponsors whose signatures admit a participant, and how many of them must sign. `founder`
    is one of one, `any` is one of all members.

    The founder alone admits the sponsors that a policy names: until they are members, nobody else
    can.

    Attributes:
        needed: number of sponsors that must sign.
        sponsors: participants that may sign; empty: every member.
        founder: the federation's founder.
    """

    needed: int
    sponsors: tuple[str, ...]
    founder: str

    @classmethod
    def parse(cls, text: str, founder: str) -> Self:
        """Parse `any`, `founder` or `2 of mit.edu,utah.edu`.

        Raises:
            InvalidInputError: the text is none of these.
        """
        if text == ANY:
            return cls(1, (), founder)
        if text == FOUNDER:
            return cls(1, (founder,), founder)
        if (match := _SPONSORS.fullmatch(text)) is None:
            raise InvalidInputError(
                f"admission policy {text[:80]!a}: must be {FOUNDER}, {ANY}, or as in "
                "'2 of mit.edu,utah.edu,brown.edu'"
            )
        needed, names = int(match[1]), [name.strip() for name in match[2].split(",")]
        if len(names) > MAX_SPONSORS:
            raise InvalidInputError(f"admission policy: names at most {MAX_SPONSORS} sponsors")
        sponsors = tuple(sorted({check_participant(name) for name in names}))
        if not 0 < needed <= len(sponsors):
            raise InvalidInputError(
                f"admission policy {text[:80]!a}: it names {len(sponsors)} sponsors, so 1 to "
                f"{len(sponsors)} of them can be needed, not {needed}"
            )
        return cls(needed, sponsors, founder)

    def __str__(self) -> str:
        if not self.sponsors:
            return ANY
        if self.sponsors == (self.founder,):
            return FOUNDER
        return f"{self.needed} of {','.join(self.sponsors)}"

    @property
    def who(self) -> str:
        """The sponsors in words that can end a sentence."""
        if not self.sponsors:
            return "any member"
        if self.sponsors == (self.founder,):
            return f"its founder {self.founder} alone"
        return f"{self.needed} of its sponsors {', '.join(self.sponsors)}"

    @property
    def of_changes(self) -> AdmissionPolicy:
        """The policy by which this one is changed: the same policy, or the founder's where any
        member admits. Otherwise any member could shut the others out."""
        return self if self.sponsors else AdmissionPolicy(1, (self.founder,), self.founder)

    def may_sign(self, signer: str, participant: str = "") -> bool:
        """Whether the signer's admission of that participant counts."""
        return (
            not self.sponsors
            or signer in self.sponsors
            or (participant in self.sponsors and signer == self.founder)
        )

    def is_met(self, signers: Set[str], participant: str = "") -> bool:
        """Whether the signatures of these members admit that participant."""
        if not self.sponsors:
            return bool(signers)
        if participant in self.sponsors and self.founder in signers:
            return True
        return len(signers & frozenset(self.sponsors)) >= self.needed
