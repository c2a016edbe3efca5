"""The frame of all commands: options, documents, output, one-line errors, exit codes."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, NoReturn, TypeVar

import click
import msgspec

from medusa.overlay.errors import InvalidInputError, MedusaError, NotFoundError, printable
from medusa.tools.commands.in_text import InTextError

Function = TypeVar("Function", bound=Callable[..., object])

MAX_DOCUMENT_BYTES: Final = 1020 * 1024
"""Bytes of a document that a peer accepts: a request of 1 MiB has some words beside it."""

EXIT_FAILED: Final = 1
EXIT_INTERRUPTED: Final = 130
"""128 + SIGINT, as shells do."""

_FAILURES: Final = (MedusaError, OSError, UnicodeEncodeError)
"""Errors that are shown in one line; any other is a bug."""


def engine_option(function: Function) -> Function:
    return click.option(
        "--engine",
        type=click.Choice(["spark", "reference"]),
        help="What computes: spark, as at peers; or reference, plain Python without Java, which "
        "answers small files in about a second (default: spark where there is Java).",
    )(function)


def home_option(function: Function) -> Function:
    return click.option(
        "--home",
        metavar="DIR",
        help="The peer's home folder (default: $MEDUSA_HOME, then ~/.medusa).",
    )(function)


def root_option(function: Function) -> Function:
    return click.option(
        "--root", metavar="HOME", help="The home with the root key that signs (default: this one)."
    )(function)


def also_option(function: Function) -> Function:
    return click.option(
        "--also",
        metavar="DIR",
        multiple=True,
        help="Home of another peer of ours, asked while the first does not answer; repeatable.",
    )(function)


def yes_option(function: Function) -> Function:
    return click.option("--yes", is_flag=True, help="Do not ask.")(function)


def json_option(function: Function) -> Function:
    return click.option("--json", "as_json", is_flag=True, help="Write JSON.")(function)


def map_option(function: Function) -> Function:
    return click.option(
        "--map",
        "names",
        metavar="COLUMN=FIELD",
        multiple=True,
        help="The column COLUMN of the file is the schema's FIELD: id.orig_h=src_ip. May be "
        "repeated.",
    )(function)


def fields_by_column(mapped: tuple[str, ...]) -> dict[str, str]:
    """The field of each column, by --map. Raises: click.BadParameter: a value is not
    COLUMN=FIELD."""
    names = {}
    for each in mapped:
        column, equals, field = each.rpartition("=")
        if not equals or not column or not field:
            raise click.BadParameter(f"{each!r} is not COLUMN=FIELD", None, None, "--map")
        names[column] = field
    return names


def say(as_json: bool, value: object, text: str) -> None:
    """Print the JSON of `value`, or `text`."""
    if as_json:
        say_json(value)
    else:
        click.echo("\n".join(printable(line) for line in text.split("\n")))


def say_json(value: object) -> None:
    """Print the JSON of `value`."""
    click.echo(json_text(value))


def json_text(value: object) -> str:
    """JSON in ASCII that any program reads and that steers no terminal; numbers that are not finite
    are null."""
    return json.dumps(msgspec.json.decode(msgspec.json.encode(value)))


def confirm(what: str, consequences: Sequence[str] = (), *, yes: bool) -> None:
    """Say what a command will do, and ask for confirmation.

    Args:
        consequences: further effects, a line each.
        yes: the user gave `--yes`.

    Raises:
        InvalidInputError: there is no terminal to ask at.
        click.Abort: the answer is no.
    """
    if yes:
        return
    if not sys.stdin.isatty():
        said = " ".join((what, "; ".join(consequences))).strip()
        raise InvalidInputError(f"{said}; nobody can be asked here: say --yes")
    for line in (what, *(f"    {each}" for each in consequences)):
        click.echo(printable(line), err=True)
    click.confirm("Go on?", abort=True, err=True)


def warn(text: str) -> None:
    """Write one line for people to standard error."""
    click.echo(f"medusa: {printable(_one_line(text))}", err=True)


def read_text(file: str) -> str:
    """A document from a file, or from standard input for `-`.

    Raises:
        NotFoundError: no such file. InvalidInputError: too long, or not UTF-8; a directory.
    """
    try:
        if file == "-":
            data = sys.stdin.buffer.read(MAX_DOCUMENT_BYTES + 1)
        else:
            with Path(file).open("rb") as opened:
                data = opened.read(MAX_DOCUMENT_BYTES + 1)
    except FileNotFoundError:
        raise NotFoundError(f"no such file: {file}") from None
    except IsADirectoryError:
        raise InvalidInputError(f"{file} is a directory: give one of the files in it") from None
    except OSError as error:
        raise InvalidInputError(f"{file}: {error.strerror}") from None
    if len(data) > MAX_DOCUMENT_BYTES:
        raise InvalidInputError(f"{file}: longer than {MAX_DOCUMENT_BYTES} bytes")
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise InvalidInputError(f"{file}: not UTF-8 at byte {error.start}") from None


def run(command: click.Command, arguments: Sequence[str] | None = None) -> NoReturn:
    """Run a command and exit: 0; 1 and one line on stderr; 2 for wrong usage; 130 for Ctrl-C."""
    sys.exit(_outcome(command, arguments))


def _outcome(command: click.Command, arguments: Sequence[str] | None) -> int:
    from medusa.tools.commands.completion import (
        complete,  # imported here: only the shell asks for it, and seldom
    )

    complete(command, command.name or "")
    given = sys.argv[1:] if arguments is None else list(arguments)
    try:
        # not `command.main`, which treats Ctrl-C and closed pipes in its own way
        with command.make_context(command.name, given) as context:
            command.invoke(context)
        sys.stdout.flush()
    except click.exceptions.Exit as done:
        return done.exit_code
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except (KeyboardInterrupt, click.Abort):
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        return _reader_left()
    except _FAILURES as error:
        warn(_reason(error))
        for line in error.excerpt if isinstance(error, InTextError) else ():
            click.echo(line, err=True)
        return EXIT_FAILED
    except ModuleNotFoundError as error:
        from medusa.tools.commands.extras import say_missing  # seldom needed

        return say_missing(error)
    except BaseExceptionGroup as group:
        return _group_outcome(group)
    return 0


def _group_outcome(group: BaseExceptionGroup[BaseException]) -> int:
    """Python decodes arguments in other encodings in this way"""
    leaves = list(_leaves(group))
    if any(isinstance(leaf, KeyboardInterrupt) for leaf in leaves):
        return EXIT_INTERRUPTED
    if not all(isinstance(leaf, _FAILURES) for leaf in leaves):
        raise group
    if any(isinstance(leaf, BrokenPipeError) for leaf in leaves):
        return _reader_left()
    warn(_reason(leaves[0]))
    return EXIT_FAILED


def _reason(error: BaseException) -> str:
    if isinstance(error, UnicodeEncodeError):  # Python decodes arguments of other encodings so
        return f"{error.object!a} is not UTF-8"
    return str(error)


def _leaves(error: BaseException) -> list[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        return [leaf for inner in error.exceptions for leaf in _leaves(inner)]
    return [error]


def _reader_left() -> int:
    """Exit when the reader of a pipe has left, as in `medusa subscribe ... | head`. Python must not
    flush again."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 0


def _one_line(text: str) -> str:
    return " ".join(text.split())
