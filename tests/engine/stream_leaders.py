"""One leader of a source stream, without a peer around it."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from pathlib import Path

from engine_streams_data import SCHEMA

from engine.streams.acceptance import Writer
from engine.streams.config import SourceConfig
from engine.streams.leader import Leader, open_leader

P = Writer("p")
NOW = 1_700_000_000.0


def home_in(
    folder: Path, config: SourceConfig | None = None, history_us: int = 10**9
) -> AbstractAsyncContextManager[Leader]:
    return open_leader(
        folder,
        "medusa://mit.edu/s",
        SCHEMA,
        config or SourceConfig(),
        history_us=history_us,
        now=NOW,
    )
