"""One replica of a source stream, without a peer around it."""

from __future__ import annotations

from pathlib import Path
from typing import Self

from engine_streams_data import SCHEMA, Row, all_rows

from engine.streams import replica
from engine.streams.config import SourceConfig
from engine.streams.log import StreamLog
from engine.streams.sources import open_sources

NOW = 1_700_000_000.0


CONFIG = SourceConfig(segment_bytes=4096, replicated=True)


class Replica:
    """Synchronous: the sources and logs of one peer."""

    def __init__(self, folder: Path, config: SourceConfig = CONFIG) -> None:
        self.folder, self.config = folder, config
        self.open()

    def open(self) -> None:
        self.log = StreamLog.open(self.folder / "log", SCHEMA.source)
        self.late_log = StreamLog.open(self.folder / "late", SCHEMA.source)
        source, self.late = open_sources(
            self.folder,
            "s",
            SCHEMA,
            self.config,
            committed=(self.log.boundary, self.late_log.boundary),
            journal=0,
            now=NOW,
        )
        self.source = source
        self.replica = replica.Replica(source)

    def close(self) -> None:
        self.source.close()
        self.late.close()
        self.log.close()
        self.late_log.close()

    def crash(self) -> None:
        self.close()
        self.open()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def lead(self, term_number: int) -> None:
        self.replica.lead(term_number)
        self.replica.settling.leading = True

    def cut(self) -> None:
        for source, log in ((self.source, self.log), (self.late, self.late_log)):
            while (cut := source.cut()) is not None:
                log.append(*cut)
                source.committed(cut[0])

    def take(self, other: Replica, limit: int) -> None:
        """What the other's journal has beyond ours, in parts."""
        start = self.source.position if self.source.position[0] else (1, 0)
        at = start
        while at < other.source.position:
            at, data = other.source.read(at, limit)
            self.replica.follow(at, data)
            at = (at[0], at[1] + len(data))

    def settle(self, upto: tuple[int, int]) -> None:
        self.replica.settle(upto, NOW + 5)

    @property
    def rows(self) -> list[Row]:
        return all_rows(self.log)
