"""The option `--functions FILE`: functions of users for a temporary peer."""

from __future__ import annotations

from pathlib import Path

from medusa.engine.functions.allowed import NO_FUNCTIONS, FunctionsConfig
from medusa.overlay.errors import InvalidInputError, NotFoundError
from medusa.tools.home.config import read_document, read_functions


def functions_of(file: str | None) -> FunctionsConfig:
    """The functions in the section [functions] of a file in the form of medusa.toml. Raises:
    NotFoundError: there is no such file. InvalidInputError: the file is wrong; the message names it
    and the mistake.
    """
    if file is None:
        return NO_FUNCTIONS
    path = Path(file).absolute()
    if not path.is_file():
        raise NotFoundError(f"--functions {file[:200]}: there is no such file")
    table = read_document(path).get("functions")
    if not isinstance(table, dict):
        raise InvalidInputError(f"{path}: it has no section [functions]")
    return read_functions(table, file, path.parent)
