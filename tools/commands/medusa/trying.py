"""The work of `medusa try`: the trial, its plans and its answers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import click
import pyarrow as pa

from medusa.engine.functions.allowed import NO_FUNCTIONS, FunctionsConfig
from medusa.engine.language.check import MAX_BOXES
from medusa.engine.language.folding import with_panes
from medusa.engine.objects.definitions import StreamDefinition, StreamEntry
from medusa.engine.objects.query import streams_read, streams_written
from medusa.engine.tasks.explaining import Explanation, explain
from medusa.engine.tasks.network import Network
from medusa.overlay.errors import InvalidInputError, MedusaError, printable
from medusa.overlay.identity import Identity
from medusa.tools.client.interrupt import run_interruptible
from medusa.tools.commands.command_line import say_json, warn
from medusa.tools.commands.in_text import in_file
from medusa.tools.commands.medusa.explain_query import explanation_table
from medusa.tools.commands.plain_tables import screen
from medusa.tools.home.folder import Home
from medusa.tools.trial.answers import Answers, Files
from medusa.tools.trial.engines import engine_of
from medusa.tools.trial.peer_of_the_moment import run_trial
from medusa.tools.trial.recordings import RecordingError
from medusa.tools.trial.trial import SELF, Trial, trial_of


@dataclass(frozen=True)
class Tried:
    """The outcome of a trial.

    Attributes: rows: for each answer, the number of its rows. files: the written file of each
        answer, if files were written.
    late: for each stream, the number of late rows. remarks: oddities of the files and answers.
    told_before: oddities of the query, and columns without a field, which are printed before it
    runs.
    """

    rows: Mapping[str, int]
    files: Mapping[str, str]
    late: Mapping[str, int]
    remarks: Sequence[str] = ()
    told_before: Sequence[str] = ()

    def as_json(self) -> dict[str, object]:
        return {
            "rows": self.rows,
            "files": self.files,
            "late": self.late,
            "remarks": [*self.told_before, *self.remarks],
        }


def files_of(streams: Sequence[str]) -> dict[str, Path]:
    """The files by stream. Raises: InvalidInputError: an option is not NAME=FILE, or a name occurs
    twice."""
    found: dict[str, Path] = {}
    for each in streams:
        name, sign, file = each.partition("=")
        if not (name and sign and file):
            raise InvalidInputError(f"--stream {each[:80]!a}: say NAME=FILE")
        if name in found:
            raise InvalidInputError(f"--stream {name[:80]!a} occurs twice")
        found[name] = Path(file)
    return found


def keys_of(tables: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """The columns of the keys by table.

    Raises:
        InvalidInputError: an option is not NAME=COLUMN[,COLUMN...], or a name occurs twice.
    """
    found: dict[str, tuple[str, ...]] = {}
    for each in tables:
        name, _, columns = each.rpartition("=")
        key = tuple(columns.split(","))
        if not name or not all(key):
            raise InvalidInputError(
                f"--table {each[:80]!a}: say NAME=COLUMN, or NAME=COLUMN,COLUMN"
            )
        if name in found:
            raise InvalidInputError(f"--table {name[:80]!a} occurs twice")
        found[name] = key
    return found


def trial(
    file: str,
    text: str,
    files: Mapping[str, Path],
    time: str | None,
    home: str | None,
    *,
    keys: Mapping[str, tuple[str, ...]] | None = None,
    names: Mapping[str, str] | None = None,
) -> Trial:
    """The trial of a document.

    Args:
        keys, names: see `medusa.tools.trial.trial.trial_of`.

    Raises:
        InvalidInputError: the document is wrong: shows the line and the place; or a file is.
    """
    try:
        return trial_of(text, files, time, _own(home), keys=keys, names=names)
    except RecordingError:
        raise
    except InvalidInputError as error:
        raise in_file(error, file, text) from None


def _own(home: str | None) -> str:
    """The participant of the home, if there is one."""
    try:
        return Identity.load(Home.locate(home).folder).participant
    except (MedusaError, OSError):
        return SELF


def plans(tried: Trial) -> list[Explanation]:
    """The plans of the queries."""
    schemas = {each.name: each for each in tried.document.schemas}
    known = {
        stream.name: StreamEntry(stream, schemas[stream.schema])
        for stream in tried.document.streams
    }
    found = []
    for query in tried.document.queries:
        read = streams_read(query) - streams_written(query)
        inputs = {name: known[name] for name in sorted(read)}
        network = Network(with_panes(query, MAX_BOXES), inputs)
        found.append(explain(network))
        known |= {
            name: StreamEntry(StreamDefinition(name, name, query=query.name), schema)
            for name, schema in network.schemas().items()
        }
    return found


def show_plans(tried: Trial, as_json: bool) -> None:
    """Print the plans."""
    found = plans(tried)
    if as_json:
        say_json(found)
        return
    console = screen()
    for each in found:
        console.print(explanation_table(each))


def run(
    tried: Trial,
    speed: float | None,
    out: Path | None,
    *,
    quiet: bool,
    functions: FunctionsConfig = NO_FUNCTIONS,
    engine: str | None = None,
) -> Tried:
    """Run the trial, and show or write its answers.

    Args:
        functions: the functions of users that its queries may call.
        engine: see `medusa.tools.trial.engines.engine_of`.

    Raises:
        MedusaError: an answer cannot be computed, or a row does not fit.
    """
    chosen, remark = engine_of(engine)
    answers = Answers()
    with ExitStack() as stack:
        files = None if out is None else Files(out, tried.outputs, stack)

        def take(stream: str, table: pa.Table) -> None:
            answers.take(stream, table)
            if files is not None:
                files.take(stream, table)

        if not quiet:
            for remark in tried.left_out:
                warn(remark)
            if remark:
                warn(remark)
        posted = run_interruptible(partial(run_trial, tried, take, speed, functions, chosen))
    shown = {stream: tried.shown.get(stream, stream) for stream in tried.outputs}
    rows = {shown[stream]: answers.rows.get(stream, 0) for stream in tried.outputs}
    written = {} if files is None else {shown[s]: str(path) for s, path in files.paths.items()}
    if not quiet and out is None:
        answers.show(shown, screen())
    elif not quiet:
        for stream, path in written.items():
            click.echo(f"{printable(path)}: {rows[stream]:,} rows")
    late = {tried.shown.get(stream, stream): n for stream, n in posted.late.items()}
    found = {stream: answers.rows.get(stream, 0) for stream in tried.outputs}
    remarks = posted.remarks(tried, found)
    return Tried(rows, written, late, remarks, (*tried.document.remarks, *tried.left_out))
