"""Run the measurements, show them as a table, and write bench.json."""

from __future__ import annotations

import importlib
import operator
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import click
import msgspec
from rich import box
from rich.console import Console, RenderableType
from rich.table import Table

MODULES: Final = ("epochs", "catalog", "journal", "path", "moving")
OUT: Final = Path("bench.json")

_COMPARISONS: Final[Mapping[str, Callable[[float, float], bool]]] = {
    ">=": operator.ge,
    "<=": operator.le,
    ">": operator.gt,
    "<": operator.lt,
}


def met(entry: Mapping[str, Any]) -> bool | None:
    """Whether the goal is met; None where there is none."""
    if entry["goal"] is None:
        return None
    sign, number = str(entry["goal"]).split()
    measured = entry["ratio"] if entry["ratio"] is not None else entry["value"]
    return _COMPARISONS[sign](float(measured), float(number))


def render(entries: list[dict[str, Any]]) -> RenderableType:
    """One row for each measurement."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("measured")
    for heading in ("value", "reference", "ratio", "goal"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("")
    for entry in entries:
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
@click.argument("modules", nargs=-1, type=click.Choice(MODULES))
@click.option("--out", type=click.Path(path_type=Path), default=OUT, show_default=True)
def main(modules: tuple[str, ...], out: Path) -> None:
    """Measure MODULES (all of them by default), each against its reference in this same run."""
    console = Console()
    entries: list[dict[str, Any]] = []
    for name in modules or MODULES:
        console.print(f"measuring {name} ...", style="dim")
        entries += _measured_apart(name) if len(modules) != 1 else _measured(name)
    out.write_bytes(msgspec.json.format(msgspec.json.encode(entries), indent=2) + b"\n")
    console.print(render(entries))
    console.print(f"written to {out}", style="dim")


def _measured(name: str) -> list[dict[str, Any]]:
    entries: list[dict[str, Any]] = importlib.import_module(f"testnet.bench.{name}").measure()
    return entries


def _measured_apart(name: str) -> list[dict[str, Any]]:
    """In a process of its own: what one module loads must not weigh on the next one's figures."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "bench.json"
        command = [sys.executable, "-m", "testnet.bench", name, "--out", str(out)]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        return msgspec.json.decode(out.read_bytes(), type=list[dict[str, Any]])


if __name__ == "__main__":
    main()
