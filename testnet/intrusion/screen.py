"""The result of the scenario for people."""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from typing import Final

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from medusa.testnet.connections.query import COLUMNS
from medusa.testnet.intrusion.board import count_of
from medusa.testnet.intrusion.kills import KillsResult
from medusa.testnet.intrusion.run import AnswerResult, Result
from medusa.testnet.kit.report import new_table

_MEANINGS: Final = {
    "busy": "addresses with > 100 connections a minute",
    "scan": "addresses with > 10 ports a minute",
    "cluster": "quiet /24s with > 100 a minute",
}

_WORDS: Final = ("answer", "what it lists", "")


def render_result(result: Result) -> RenderableType:
    """The summary: each answer against the batch run, and the speed."""
    table = new_table(("answer", "what it lists", "received", "batch", ""), _WORDS)
    for name, answer in result.answers.items():
        table.add_row(
            f"[bold]{name}[/]",
            f"[dim]{_MEANINGS[name]}[/]",
            f"{answer.rows:,}",
            f"{answer.expected:,}",
            "[green]equal[/]" if answer.exact else "[red]different[/]",
        )
    parts: list[RenderableType] = [table, _found(result), _figures(result)]
    if isinstance(result, KillsResult):
        parts.append(_kills(result))
    for name, answer in result.answers.items():
        if not answer.exact:
            parts.append(_differences(name, answer))
    if result.generated and result.exact:
        parts.append(_next())
    return Group(*parts)


_FOUND: Final = {
    "busy": "opened {count:,} connections in that minute",
    "scan": "tried {count:,} different ports in that minute",
    "cluster": "opened {count:,} together, none of its addresses more than 100",
}


def _found(result: Result) -> RenderableType:
    """The strongest row of each answer: address, time, and reason."""
    table = Table.grid(padding=(0, 2))
    for name, answer in result.answers.items():
        if answer.strongest is not None:
            begins, who, count = answer.strongest
            at = datetime.fromtimestamp(begins, UTC)
            who = f"{who}.0/24" if name == "cluster" else who
            why = _FOUND[name].format(count=count)
            table.add_row(Text(name, "bold"), Text(who, "yellow"), f"{at:%H:%M}", why)
    return table


def _figures(result: Result) -> RenderableType:
    *posters, owner = result.peers
    text = Text()
    kind = "generated connections" if result.generated else "connections"
    text.append(f"{result.rows:,} {kind}", "bold")
    text.append(f" posted at {_listed(posters)}, processed at {owner}, received at {posters[0]}\n")
    text.append(f"{result.seconds:.1f} s", "bold")
    text.append(" from the first post to the last answer: ")
    text.append(f"{result.rows_per_second:,.0f} rows/s", "bold")
    if result.first_answer_seconds is not None:
        text.append("; first answer ")
        text.append(f"{result.first_answer_seconds:.1f} s", "bold")
        text.append(" after the command's start")
    files = ", ".join(f"{name}.csv" for name in COLUMNS)
    text.append(f"\n{files} are in {result.out}/")
    if result.folder is not None:
        text.append(f"\nhomes and logs are in {result.folder}")
    return text


def _next() -> RenderableType:
    """Suggestions for the next step after a run with synthetic connections."""
    testnet = sys.argv[0]
    text = Text("\nnext, your own connections, and a network that splits:\n")
    text.append(f"  {testnet} intrusion --trace your_conn.log\n", "bold")
    text.append(f"  {testnet} partition --seconds 10", "bold")
    return text


def _kills(result: KillsResult) -> RenderableType:
    text = Text()
    text.append(f"{_listed(sorted({*result.victims}))} killed with -9", "bold red")
    text.append(f": {count_of(result.kills, 'kill')}, ")
    text.append(f"{count_of(result.restarts, 'restart')}; an answer stood still for at most ")
    text.append(f"{result.longest_pause_seconds:.1f} s", "bold")
    text.append(f", a JVM outlived its peer by at most {result.longest_afterlife_seconds:.1f} s")
    for fault in result.faults:
        text.append(f"\n{fault}", "red")
    return text


def _listed(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def _differences(name: str, answer: AnswerResult) -> RenderableType:
    lines = [f"{name}: missing {row}" for row in answer.missing]
    lines += [f"{name}: not expected {row}" for row in answer.extra]
    return Text("\n".join(lines), "red")
