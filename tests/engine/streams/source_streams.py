"""A source with its logs, as a leader has them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from engine_streams_data import SCHEMA, Row, all_rows, body

from medusa.engine.objects.schema import Schema
from medusa.engine.streams.config import SourceConfig
from medusa.engine.streams.log.stream_log import StreamLog
from medusa.engine.streams.messages import Post, Posted
from medusa.engine.streams.source.acceptance import Writer
from medusa.engine.streams.source.post_request import PostRequest
from medusa.engine.streams.source.source import Source

NOW = 1_700_000_000.0
NOW_US = 1_700_000_000_000_000
DEFAULT = SourceConfig()
P = Writer("p")
UTAH = Writer("p", "utah.edu")


@dataclass
class Stream:
    """A source with its log and the log of late tuples, as a leader has them, without
    concurrency."""

    folder: Path
    config: SourceConfig = DEFAULT
    schema: Schema = SCHEMA
    sequence: dict[Writer, int] = field(default_factory=dict)

    def open(self) -> Stream:
        durable = self.config.durable
        self.log = StreamLog.open(self.folder / "log", self.schema.source, durable=durable)
        self.late_log = StreamLog.open(self.folder / "late", self.schema.source, durable=durable)
        self.late = Source.open(
            self.folder / "late-journal",
            "s/late",
            replace_time(self.schema),
            committed=self.late_log.boundary,
            config=SourceConfig(segment_bytes=self.config.segment_bytes),
            late=None,
            now=NOW,
        )
        self.source = Source.open(
            self.folder / "journal",
            "s",
            self.schema,
            committed=self.log.boundary,
            config=self.config,
            late=self.late,
            now=NOW,
        )
        return self

    def close(self) -> None:
        self.source.close()
        self.late.close()
        self.log.close()
        self.late_log.close()

    def crash(self) -> None:
        """Simulate kill -9: only the files on disk remain."""
        self.close()
        self.open()

    def post(self, rows: list[Row], writer: Writer = P, **more: object) -> Posted:
        number = self.sequence.get(writer, 0) + 1
        posted = self.source.post(
            PostRequest(writer, Post(number, **more), body(rows) if rows else b""), now=NOW
        )
        self.sequence[writer] = number
        return posted

    def post_until(self, error: type[Exception], message: str, rows: list[Row]) -> int:
        """Post the rows again and again, each time later; return the number of accepted posts."""
        for n in range(100):
            try:
                self.post([(stime + len(rows) * n, value) for stime, value in rows])
            except error as refused:
                assert message in str(refused)  # noqa: PT017
                assert n
                return n
        pytest.fail("never refused")

    def move(self) -> bool:
        moved = False
        for source, log in ((self.source, self.log), (self.late, self.late_log)):
            if (cut := source.cut()) is not None:
                log.append(*cut)
                source.committed(cut[0])
                moved = True
        return moved

    def rows(self) -> list[Row]:
        return all_rows(self.log)

    def late_values(self) -> list[int]:
        return [value for _, value in all_rows(self.late_log)]


def replace_time(schema: Schema) -> Schema:
    return Schema(schema.name, schema.fields)


@contextmanager
def opened(
    folder: Path, config: SourceConfig = DEFAULT, schema: Schema = SCHEMA
) -> Iterator[Stream]:
    stream = Stream(folder, config, schema).open()
    try:
        yield stream
    finally:
        stream.close()
