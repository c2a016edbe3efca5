"""The output of `medusa-testnet simulate`."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from rich.console import Console, Group, RenderableType
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.text import Text

from medusa.testnet.simulation.campaign import Campaign, Summary
from medusa.testnet.simulation.simulate import Result


@asynccontextmanager
async def open_progress(campaign: Campaign, console: Console) -> AsyncIterator[None]:
    """A bar of the completed seeds, and a line for each failed one, during the block."""
    with Progress(
        TextColumn("seeds"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[cpu]:.1f} CPU-s a seed"),
        TimeRemainingColumn(),
        console=console,
        disable=not console.is_terminal,
    ) as progress:
        task = progress.add_task("seeds", total=campaign.seeds, cpu=0.0)

        def done(result: Result) -> None:
            if not result.good:  # at once, so that a user who interrupts a campaign sees it
                console.print(f"seed {result.seed} failed", style="bold red")
            cpu_s = sum(result.cpu_s for result in campaign.results) / len(campaign.results)
            progress.update(task, completed=len(campaign.results), cpu=cpu_s)

        with campaign.done.listening(done):
            yield


def render_summary(summary: Summary) -> RenderableType:
    """A line of figures; for a failed seed, its findings and how to replay it."""
    per_seed = summary.cpu_s / max(1, summary.seeds)
    figures = Text(
        f"{summary.green} of {summary.seeds} seeds green: {summary.virtual_s:,.0f} s of virtual "
        f"time, {summary.faults:,} faults, {summary.rows:,} rows, {summary.epochs:,} epochs, "
        f"{summary.tentative:,} tentative tuples; "
        f"{per_seed:.2f} CPU-s a seed"
    )
    return Group(*(_failure(result) for result in summary.failed), figures)


def render_result(result: Result, *, trace: bool) -> RenderableType:
    """The result of one seed. trace: with a line for every event."""
    lines = [Text(line) for line in result.trace] if trace else []
    if not result.good:
        return Group(*lines, _failure(result))
    figures = (
        f"seed {result.seed} is green: {result.virtual_s:.1f} s of virtual time, {result.faults} "
        f"faults, {result.rows} rows, {result.epochs} epochs; {result.cpu_s:.2f} CPU-s; "
        f"digest {result.digest[:16]}"
    )
    return Group(*lines, Text(figures))


def _failure(result: Result) -> Text:
    text = Text(f"seed {result.seed} failed\n", style="bold red")
    for violation in result.violations:
        text.append(f"  {violation.check}: {violation.text}\n", style="red")
        for line in violation.evidence:
            text.append(f"    {line}\n", style="none")
    text.append(f"  replay: medusa-testnet simulate --seed {result.seed} --trace", style="bold")
    return text
