"""Scenarios by their commands, and their JSON."""

from __future__ import annotations

from typing import Any

from click.testing import CliRunner
from msgspec import json

from medusa.testnet.command import main


def json_of(command: str, *arguments: str) -> dict[str, Any]:
    """Return the JSON of a run that ends well."""
    ended = CliRunner().invoke(main, [command, "--json", *arguments])
    assert ended.exit_code == 0, ended.output
    found: dict[str, Any] = json.decode(ended.stdout)
    return found


def exact_rows(workload: str, *arguments: str) -> dict[str, int]:
    """Return the rows of each answer of a workload; all answers must be exact."""
    outcomes = json_of(workload, *arguments)["outcomes"]
    assert all(each["exact"] for each in outcomes), outcomes
    return {each["query"]: each["rows"] for each in outcomes}
