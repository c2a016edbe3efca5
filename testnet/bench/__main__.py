"""Run the measurements, show them as a table, and write bench.json."""

from __future__ import annotations

import operator
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import click
import msgspec
from rich.console import Console, RenderableType

from medusa.testnet.bench import Entry
from medusa.testnet.kit.report import new_table

MINUTES: Final = {
    "epochs": 4,
    "catalog": 1,
    "journal": 1,
    "path": 2,
    "fanout": 1,
    "moving": 7,
    "idle": 5,
    "windows": 8,
    "others": 9,
    "joins": 8,
}
"""Each part, and its duration on two cores, about."""
PARTS: Final = tuple(MINUTES)
OUT: Final = Path("bench.json")

_COMPARISONS: Final[Mapping[str, Callable[[float, float], bool]]] = {
    ">=": operator.ge,
    "<=": operator.le,
    ">": operator.gt,
    "<": operator.lt,
}


def met(entry: Mapping[str, Any]) -> bool | None:
    """Whether the goal is met; None if there is no goal, or no value."""
    if entry.get("goal") is None:
        return None
    sign, number = str(entry["goal"]).split()
    measured = entry["ratio"] if entry["ratio"] is not None else entry["value"]
    return _COMPARISONS[sign](float(measured), float(number))


def render(entries: list[Entry]) -> RenderableType:
    """One row for each measurement."""
    table = new_table(("measured", "value", "reference", "ratio", "goal", ""), ("measured", ""))
    for entry in entries:
        if "failed" in entry:
            table.add_row(entry["name"], "", "", "", "", "[red]failed[/]")
            continue
        verdict = {True: "[green]met[/]", False: "[red]missed[/]", None: ""}[met(entry)]
        table.add_row(
            entry["name"],
            f"{_number(entry['value'])} {entry['unit']}",
            _number(entry["reference"]),
            _number(entry["ratio"]),
            str(entry["goal"] or ""),
            verdict,
        )
    return table


def _number(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:,.0f}" if abs(value) >= 1_000 else f"{value:.4g}"


@click.command()
@click.argument("parts", nargs=-1, type=click.Choice(PARTS))
@click.option("--out", type=click.Path(path_type=Path), default=OUT, show_default=True)
def main(parts: tuple[str, ...], out: Path) -> None:
    """Measure PARTS (all of them by default), each against its reference in this same run.

    The file gets every figure as soon as it is measured. If a part fails, the file and the output
    name it, the other parts are measured nevertheless, and the exit code is 1.
    """
    console = Console()
    entries: list[Entry] = []
    _write(out, entries)
    for name in parts or PARTS:
        console.print(f"measuring {name}, about {MINUTES[name]} min ...", style="dim")
        for entry in measured(name):
            entries.append(entry)
            _write(out, entries)
            if "failed" in entry:
                console.print(f"{name} failed: {entry['failed']}", style="red", markup=False)
    console.print(render(entries))
    console.print(f"written to {out}", style="dim")
    sys.exit(1 if any("failed" in entry for entry in entries) else 0)


def _write(out: Path, entries: list[Entry]) -> None:
    out.write_bytes(msgspec.json.format(msgspec.json.encode(entries), indent=2) + b"\n")


def measured(name: str) -> Iterator[Entry]:
    """Yield a part's figures as they come, then the reason if it failed. The part runs in a
    separate process, so that it does not affect the next one's figures.
    """
    command = [sys.executable, "-m", "medusa.testnet.bench.part", name]
    failed = False
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        for line in process.stdout:
            entry = msgspec.json.decode(line, type=Entry)
            failed = failed or "failed" in entry
            yield entry
    if process.returncode and not failed:
        yield {"name": name, "failed": f"its process ended with {process.returncode}"}


if __name__ == "__main__":
    main()
