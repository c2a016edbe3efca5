"""Logs in a folder that have rows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from engine_streams_data import SCHEMA, Row, logged

from medusa.engine.streams.log.stream_log import StreamLog


def opened(folder: Path, **more: Any) -> StreamLog:
    return StreamLog.open(folder, SCHEMA.source, **more)


def filled(folder: Path, count: int, size: int = 3, **more: Any) -> tuple[StreamLog, list[Row]]:
    """Return a log with epochs (0, 10], (10, 20]... of `size` rows each."""
    log = opened(folder, **more)
    log.append(0, None)
    rows: list[Row] = []
    for n in range(count):
        new = [(n * 10 + 1 + i % 10, len(rows) + i) for i in range(size)]
        new.sort()
        log.append(n * 10 + 10, logged(new, len(rows)))
        rows += new
    return log, rows


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())
