"""Two recorded traces of laboratories, for tests."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from medusa.testnet.shared_intrusion.generate import START_US

TRACED: Final = (300, 200)
"""Connections in each trace, without the one connection that has no destination."""


def traces_in(folder: Path) -> tuple[Path, ...]:
    """Write two traces in CSV, with Zeek's names: they begin an hour apart, and the times of one
    descend."""
    paths = []
    for number, count in enumerate(TRACED):
        begin = START_US // 1_000_000 + 3_600 * number
        rows = [
            f"{begin + 17.25 * n},10.0.0.{n % 7},192.0.2.{n * n % 31},443" for n in range(count)
        ]
        rows.append(f"{begin + 1},10.0.0.9,-,80")
        paths.append(folder / f"{number}.csv")
        head = "ts,id.orig_h,id.resp_h,id.resp_p"
        paths[-1].write_text("\n".join([head, *(rows[::-1] if number else rows)]) + "\n")
    return tuple(paths)
