"""Damage to files, as disks and people do it."""

from __future__ import annotations

from pathlib import Path


def flip(path: Path, at: int, bits: int = 1) -> None:
    """Flip bits of one byte of the file."""
    data = bytearray(path.read_bytes())
    data[at] ^= bits
    path.write_bytes(data)


def make_folder(path: Path) -> None:
    """Put a folder in the place of the file."""
    path.unlink()
    path.mkdir()
