"""The work of `medusa test`: runs the cases one after the other at one peer, and reports
differences."""

from __future__ import annotations

import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final

import click

from medusa.engine.functions.allowed import NO_FUNCTIONS, FunctionsConfig
from medusa.overlay.errors import InvalidInputError, MedusaError, printable
from medusa.tools.client.async_client import AsyncMedusaClient
from medusa.tools.client.interrupt import run_interruptible
from medusa.tools.commands.command_line import read_text, warn
from medusa.tools.commands.in_text import InTextError, in_file
from medusa.tools.trial.answers import Answers, with_moments
from medusa.tools.trial.cases import Case, file_of_stream, find_cases
from medusa.tools.trial.comparison import Differences, Row, compare, read_expected, write_expected
from medusa.tools.trial.engines import Engine, engine_of
from medusa.tools.trial.peer_of_the_moment import forget, open_peer_of_the_moment, run_at
from medusa.tools.trial.recordings import RecordingError
from medusa.tools.trial.trial import SELF, Trial, qualified, trial_of

SHOWN_ROWS: Final = 5
"""Differing rows of an answer that are shown, of each kind."""


@dataclass(slots=True)
class Outcome:
    """The outcome of a case.

    Attributes: reason: why it could not run; "": it ran. excerpt: the place in the query.
        differences: the differences of each answer that differs. written: files that were written.
        late: for each input, the number of late rows. remarks: oddities of the inputs and answers.
    """

    name: str
    reason: str = ""
    excerpt: tuple[str, ...] = ()
    differences: dict[str, Differences] = field(default_factory=dict)
    written: list[Path] = field(default_factory=list)
    late: Mapping[str, int] = field(default_factory=dict)
    remarks: Sequence[str] = ()

    @property
    def ok(self) -> bool:
        return not self.reason and not self.differences

    def as_json(self) -> dict[str, object]:
        return {
            "name": self.name,
            "ok": self.ok,
            "reason": self.reason,
            "differences": {
                name: {
                    "rows": each.rows,
                    "expected": each.expected,
                    "missing": _as_objects(each, each.missing),
                    "unexpected": _as_objects(each, each.unexpected),
                }
                for name, each in self.differences.items()
            },
            "written": [str(each) for each in self.written],
            "late": self.late,
            "remarks": list(self.remarks),
        }


def _as_objects(found: Differences, rows: Sequence[Row]) -> list[dict[str, object]]:
    return [dict(zip(found.columns, row, strict=True)) for row in rows[:SHOWN_ROWS]]


def run(
    folder: str,
    pattern: str | None,
    time: str | None,
    *,
    update: bool,
    quiet: bool,
    functions: FunctionsConfig = NO_FUNCTIONS,
    engine: str | None = None,
) -> list[Outcome]:
    """Run the cases, and print each outcome as it comes.

    Args:
        functions: the functions of users that the queries may call.
        engine: see `medusa.tools.trial.engines.engine_of`.

    Raises:
        NotFoundError, InvalidInputError: there are no cases. MedusaError: no peer can be started.
    """
    cases = find_cases(Path(folder), pattern)
    chosen, remark = engine_of(engine)
    if remark and not quiet:
        warn(remark)
    running = partial(_run, cases, time, functions, chosen, update=update, quiet=quiet)
    return run_interruptible(running)


async def _run(
    cases: list[Case],
    time: str | None,
    functions: FunctionsConfig,
    engine: Engine,
    *,
    update: bool,
    quiet: bool,
) -> list[Outcome]:
    found = []
    async with open_peer_of_the_moment(SELF, functions, engine=engine) as client:
        for number, case in enumerate(cases):
            outcome = Outcome(case.name)
            try:
                await _run_case(client, case, f"case.{number}", time, outcome, update=update)
            except MedusaError as error:
                outcome.reason = str(error)
                outcome.excerpt = error.excerpt if isinstance(error, InTextError) else ()
            except Exception as error:  # noqa: BLE001 - of one case: the others are run
                outcome.reason = _defect(error)
            found.append(outcome)
            if not quiet:
                click.echo("\n".join(map(printable, lines(outcome))))
    return found


def _defect(error: Exception) -> str:
    """The message for an error that Medusa does not know: a defect of its own."""
    frames = traceback.extract_tb(error.__traceback__)
    place = f" at {Path(frames[-1].filename).name}:{frames[-1].lineno}" if frames else ""
    return f"a defect of Medusa, please report it: {type(error).__name__}{place}: {error}"


async def _run_case(
    client: AsyncMedusaClient,
    case: Case,
    path: str,
    time: str | None,
    outcome: Outcome,
    *,
    update: bool,
) -> None:
    trial = _trial(case, path, time)
    if trial.document.explain:
        raise InvalidInputError("EXPLAIN asks for a plan, and a case needs answers: leave it out")
    if not case.expected and not update:
        raise InvalidInputError(f"{case.folder} has no expected files: --update writes them")
    expected = _expected(case, trial)
    streams = {trial.made[stream]: file for stream, file in expected.items()}
    if update:
        made = {name: stream for stream, name in trial.made.items()}
        for stream in trial.outputs:
            streams.setdefault(stream, file_of_stream(case, SELF, made[stream]))
    answers = Answers(whole=True)
    try:
        posted = await run_at(client, trial, streams, answers.take)
    finally:
        await forget(client, trial)
    outcome.late = {trial.as_given(stream): rows for stream, rows in posted.late.items()}
    found = {stream: answers.rows.get(stream, 0) for stream in streams}
    outcome.remarks = [*trial.left_out, *posted.remarks(trial, found)]
    for stream, file in streams.items():
        table = with_moments(answers.beginnings[stream])
        wanted = read_expected(file, table.schema) if file.exists() else None
        differences = None if wanted is None else compare(wanted, table)
        if differences is not None and differences.none:
            continue
        if update:
            write_expected(file, table, None if wanted is None else wanted.column_names)
            outcome.written.append(file)
        elif differences is not None:
            outcome.differences[trial.as_given(stream)] = differences


def _trial(case: Case, path: str, time: str | None) -> Trial:
    text = read_text(str(case.query))
    try:
        return trial_of(text, case.inputs, time, case=path)
    except RecordingError:
        raise
    except InvalidInputError as error:
        raise in_file(error, str(case.query), text) from None


def _expected(case: Case, trial: Trial) -> dict[str, Path]:
    """The expected files by the streams' whole names."""
    found = {qualified(stream, SELF): file for stream, file in case.expected.items()}
    for stream, file in found.items():
        if stream not in trial.made:
            known = ", ".join(trial.as_given(name) for name in trial.outputs)
            raise InvalidInputError(f"{file}: the query makes no stream {stream}; it gives {known}")
    return found


def lines(outcome: Outcome) -> list[str]:
    """The printed lines of an outcome: a line, and below it the differences."""
    if outcome.reason:
        return [f"{outcome.name}: FAILED", f"    {outcome.reason}", *outcome.excerpt]
    made = [f"{outcome.name}: {'ok' if outcome.ok else 'FAILED'}"]
    made += [f"    wrote {file}" for file in outcome.written]
    for stream, found in outcome.differences.items():
        made.append(f"    {stream}: {found.rows:,} rows, expected {found.expected:,}")
        for word, rows in (("missing", found.missing), ("unexpected", found.unexpected)):
            made += [f"      {word}: {_shown(found, row)}" for row in rows[:SHOWN_ROWS]]
            if len(rows) > SHOWN_ROWS:
                made.append(f"      and {len(rows) - SHOWN_ROWS:,} more {word}")
    made += [f"    {remark}" for remark in outcome.remarks]
    for stream, late in outcome.late.items():
        made.append(
            f"    {stream}: {late:,} rows came too late: sort the file by its time, or declare the "
            "stream with a slack"
        )
    return made


def _shown(found: Differences, row: Row) -> str:
    return ", ".join(f"{name}={value}" for name, value in zip(found.columns, row, strict=True))


def summary(outcomes: Sequence[Outcome]) -> str:
    """The last printed line: a summary."""
    failed = sum(not each.ok for each in outcomes)
    cases = f"{len(outcomes)} case{'' if len(outcomes) == 1 else 's'}"
    return f"{cases}: {failed} failed" if failed else f"{cases}: all ok"
