"""The scripts of `examples/intrusion`, and the streams among their results that each participant
may read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from medusa.overlay.errors import NotFoundError
from medusa.overlay.names import SCHEME
from medusa.testnet.shared_intrusion.generate import LABS

SCRIPTS: Final = Path(__file__).parents[3] / "examples/intrusion"

CERT: Final = "cert.example"
"""The participant that has the list and the shared streams."""


@dataclass(frozen=True)
class Step:
    """A participant's script, and the queries in it that are started once it is created."""

    participant: str
    script: str
    queries: tuple[str, ...] = ()


def lab_participant(lab: str) -> str:
    return f"{lab}.example"


def stream_of(participant: str, path: str) -> str:
    return f"{SCHEME}{participant}/{path}"


PARTICIPANTS: Final = (CERT, *(lab_participant(lab) for lab in LABS))

ROUNDS: Final = (
    (Step(CERT, "threats.sql"), *(Step(lab_participant(lab), f"{lab}.sql") for lab in LABS)),
    tuple(Step(lab_participant(lab), "lab.sql", ("watch", "beat")) for lab in LABS),
    (Step(CERT, "shared.sql", ("shared",)),),
)
"""The steps in the order of their creation; the steps of one round are created at once."""

SOURCES: Final = ("/threats", "/conns")
"""The suffixes of the names of the streams that take posts."""

THREATS: Final = stream_of(CERT, "threats")
SIGHTINGS: Final = stream_of(CERT, "sightings")
CAMPAIGNS: Final = stream_of(CERT, "campaigns")


def script_of(step: Step) -> Path:
    """The file of a step.

    Raises:
        NotFoundError: this is no checkout.
    """
    found = SCRIPTS / step.script
    if not found.is_file():
        raise NotFoundError(f"no such file: {found}: run this from a checkout, which has examples/")
    return found


def readers() -> Mapping[str, frozenset[str]]:
    """The participants that may read each stream, as the scripts intend: written here, not computed
    from them."""
    everyone = frozenset(PARTICIPANTS)
    found = {THREATS: everyone, f"{THREATS}/late": everyone}
    found |= {SIGHTINGS: everyone, CAMPAIGNS: everyone}
    for participant in PARTICIPANTS[1:]:
        own = frozenset({participant})
        rows = (stream_of(participant, name) for name in ("conns", "conns/late"))
        made = (stream_of(participant, name) for name in ("listed", "beacons"))
        found |= dict.fromkeys(rows, own) | dict.fromkeys(made, everyone)
    return found


def expected_readers(stream: str) -> frozenset[str]:
    """The participants that may read a stream, even one that a script does not name: only a
    laboratory may read the streams between its boxes."""
    known = readers()
    if stream in known:
        return known[stream]
    owner = stream.removeprefix(SCHEME).partition("/")[0]
    return frozenset(PARTICIPANTS) if owner == CERT else frozenset({owner})
