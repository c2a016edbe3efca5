"""`medusa function` lists and shows what the rows of functions say, without a peer."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from medusa.engine.aggregates.rows import NAMES
from medusa.engine.scalars.rows import FUNCTIONS
from medusa.overlay.errors import NotFoundError
from medusa.tools.commands.medusa import functions_shown
from medusa.tools.commands.medusa.medusa_command import medusa


def printed(*words: str) -> str:
    found = CliRunner().invoke(medusa, ["function", *words], catch_exceptions=False)
    assert found.exit_code == 0
    return found.output


def test_the_list_has_every_function() -> None:
    assert {*functions_shown.names()} == {*FUNCTIONS, *NAMES}
    listed = json.loads(printed("list", "--json"))["functions"]
    lines = printed("list").splitlines()
    assert len(lines) == 1 + len(listed)
    for each, line in zip(listed, lines[1:], strict=True):
        assert line.startswith(each["call"])


def test_a_function_is_shown_by_each_of_its_names() -> None:
    lines = dict(line.split("  ", 1) for line in printed("show", "STDDEV").splitlines())
    assert lines["function"].strip() == "stddev_samp(x)"
    assert lines["also"].strip() == "stddev"
    assert json.loads(printed("show", "percentile_cont", "--json"))["constant"].startswith(
        "a number"
    )


def test_an_unknown_function_is_refused_with_similar_names() -> None:
    with pytest.raises(NotFoundError, match="no function 'sbstring'; alike are substring"):
        functions_shown.one("sbstring")


def test_the_shell_completes_names() -> None:
    command = medusa.commands["function"].commands["show"]  # type: ignore[attr-defined]
    (argument, *_) = command.params
    for typed in ("json_", "JSON_"):
        found = argument.shell_complete(command.make_context("show", ["x"]), typed)
        assert [each.value for each in found] == ["json_double", "json_value"]
