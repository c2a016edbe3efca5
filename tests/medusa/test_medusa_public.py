"""The public names that `import medusa` offers."""

from __future__ import annotations

import inspect
import traceback
from collections.abc import Callable
from importlib import metadata

import pytest

import medusa
from medusa import AsyncMedusaClient, MedusaClient, MedusaError

CALLS = [
    pytest.param(call, id=f"{kind.__name__}.{name}")
    for kind in (MedusaClient, AsyncMedusaClient)
    for name, call in inspect.getmembers(kind, inspect.isfunction)
    if not name.startswith("_") and name not in {"poster", "close"}
]


def test_every_name_is_there_and_the_version_is_the_packages() -> None:
    assert all(getattr(medusa, name) is not None for name in medusa.__all__)
    assert medusa.__version__ == metadata.version("medusa-federation")


def test_every_error_of_the_tree_is_there() -> None:
    def below(kind: type[MedusaError]) -> set[type[MedusaError]]:
        return {kind}.union(*map(below, kind.__subclasses__()))

    mine = {kind for kind in below(MedusaError) if kind.__module__ == "medusa.overlay.errors"}
    assert mine <= {getattr(medusa, name) for name in medusa.__all__}


def test_errors_are_printed_under_their_public_names() -> None:
    error = medusa.NotFoundError("no stream medusa://mit.edu/none")
    assert traceback.format_exception_only(error) == [
        "medusa.NotFoundError: no stream medusa://mit.edu/none\n"
    ]
    assert repr(medusa.StorageFullError) == "<class 'medusa.StorageFullError'>"


@pytest.mark.parametrize("call", CALLS)
def test_every_call_says_what_it_does_what_it_raises_and_how_it_is_made(
    call: Callable[..., object],
) -> None:
    text = inspect.getdoc(call) or ""
    assert "Raises:\n" in text
    assert "Example:\n    >>> " in text
    for name in inspect.signature(call).parameters:
        if name in {"after", "until", "at", "boundary"}:
            assert "microseconds" in text, name
        if name.endswith("_s"):
            assert "seconds" in text, name


def test_both_clients_have_the_same_calls() -> None:
    def names(kind: type) -> set[str]:
        members = inspect.getmembers(kind, inspect.isfunction)
        return {name for name, _ in members if not name.startswith("_")}

    # the documented differences of the client that runs under trio only; of the client that blocks
    apart = {"poster", "close"}
    assert names(MedusaClient) ^ names(AsyncMedusaClient) <= apart


def test_the_blocking_calls_have_the_parameters_and_no_await() -> None:
    blocking, awaited = MedusaClient.modify_query, AsyncMedusaClient.modify_query
    assert inspect.signature(blocking) == inspect.signature(awaited)
    assert not inspect.iscoroutinefunction(blocking)
    assert "await" not in (MedusaClient.modify_query.__doc__ or "")
    assert "async " not in (MedusaClient.subscribe.__doc__ or "")
