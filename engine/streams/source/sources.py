from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from medusa.engine.objects.schema import BEGINNING, Schema
from medusa.engine.streams.config import SourceConfig
from medusa.engine.streams.journal.entries import whole_entries
from medusa.engine.streams.source.acceptance import decode_snapshot
from medusa.engine.streams.source.source import Source
from medusa.overlay.errors import DecodeError


def open_sources(
    folder: Path,
    name: str,
    schema: Schema,
    config: SourceConfig,
    *,
    committed: tuple[int, int],
    revised: int = BEGINNING,
    journal: int,
    now: float,
) -> tuple[Source, Source]:
    """The sources of a stream and of its late tuples, over the journals in its folder. Blocking.

    Args:
        committed: the boundaries of their logs. revised: the boundary of the log of its revisions.
            journal: see `open_leader`.

    Raises:
        InternalError: the files are damaged. StorageFullError: there is no room to begin a journal.
    """
    main, lates = journal_folders(folder, journal)
    late = Source.open(
        lates,
        f"{name}/late",
        Schema(schema.name, schema.fields),
        committed=committed[1],
        config=SourceConfig(durable=config.durable, segment_bytes=config.segment_bytes),
        late=None,
        now=now,
    )
    source = Source.open(
        main,
        name,
        schema,
        committed=committed[0],
        config=config,
        late=late,
        now=now,
        revised=revised,
    )
    return source, late


def journal_folders(folder: Path, journal: int) -> tuple[Path, Path]:
    """The folders of a stream's journal, and of its late tuples' journal."""
    suffix = f"-{journal}" if journal else ""
    return folder / f"journal{suffix}", folder / f"late-journal{suffix}"


def logged_before(folder: Path) -> int:
    """The boundary that the log had reached when the oldest segment of the journal in that folder
    began; BEGINNING: not known. Blocking."""
    for path in sorted(folder.glob("*.journal"))[:1]:
        with suppress(OSError, DecodeError), path.open("rb", buffering=0) as file:
            size = os.fstat(file.fileno()).st_size
            for entry in whole_entries(file.fileno(), size):
                return decode_snapshot(entry.meta).logged if not entry.start else BEGINNING
    return BEGINNING
