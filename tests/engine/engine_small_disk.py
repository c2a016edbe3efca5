"""A disk that a test fills."""

from __future__ import annotations

from pathlib import Path


def fill(disk: Path) -> Path:
    """Fill the disk completely."""
    filler = disk / "filler"
    with filler.open("wb", buffering=0) as file:
        while True:
            try:
                file.write(b"x" * 4096)
            except OSError:
                break
    with filler.open("ab", buffering=0) as file:
        while True:
            try:
                file.write(b"x")
            except OSError:
                return filler
