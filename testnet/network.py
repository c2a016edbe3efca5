"""The intrusion query of the Medusa papers, as the boxes of one participant's network.

Every participant's connections flow together; per source address and minute they are counted, with
their destination ports; the busy, the scanning, and the prefixes of the quiet many come out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from engine.objects.definitions import StreamDefinition

DOCUMENT: Final = Path(__file__).with_name("intrusion.xml")
"""The query with its names to be filled in: what a user would hand to `medusa query create`."""

DAY_US: Final = 86_400_000_000
HISTORY_US: Final = 400 * DAY_US
"""The traces of a run stay readable whole, honeypots' half years included."""


@dataclass(frozen=True)
class Names:
    """The object names of the scenario, under the participant that owns the query."""

    owner: str

    @property
    def query(self) -> str:
        return self._under("intrusion")

    @property
    def answers(self) -> dict[str, str]:
        """Answer -> the stream that carries it."""
        return {name: self._under(name) for name in ("busy", "scan", "cluster")}

    def _under(self, path: str) -> str:
        return f"medusa://{self.owner}/{path}"


def source_schema(participant: str) -> str:
    return f"medusa://{participant}/conn"


def source_stream(participant: str) -> StreamDefinition:
    """The stream a participant posts its connections to; every member may read it."""
    return StreamDefinition(
        name=f"medusa://{participant}/conns",
        schema=source_schema(participant),
        history_us=HISTORY_US,
        max_ahead_us=None,
    )


def intrusion_document(names: Names, sources: Sequence[str]) -> str:
    """The query over some source streams, as XML."""
    inputs = "\n    ".join(
        f'<input port="{port}" stream="{stream}"/>' for port, stream in enumerate(sources, 1)
    )
    document = DOCUMENT.read_text(encoding="utf-8")
    return document.replace("{participant}", names.owner).replace("{inputs}", inputs)
