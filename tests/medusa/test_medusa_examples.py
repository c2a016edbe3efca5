"""The examples of the client's docstrings, from first to last, against a real peer: from trio, from
asyncio, and from a thread without an event loop."""

from __future__ import annotations

import ast
import asyncio
import contextlib
import contextvars
import doctest
import inspect
import io
import re
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path

import pytest
import trio
from deadline import DEADLINE_S
from engine_peers import Place, open_cluster

import medusa
from medusa import AsyncMedusaClient, MedusaClient, open_medusa
from medusa.engine.streams.config import Timing

pytestmark = pytest.mark.usefixtures("interpreted")

QUICK = Timing(maintenance_s=0.02)


MANUAL = Path(__file__).parents[2] / "docs" / "reference" / "queries.md"
QUERY = "medusa://mit.edu/busy_sources"
BEGIN_S = 1_521_900_000
"""2018-03-24T14:00:00Z, in seconds since 1970."""


def public(kind: type) -> Iterator[tuple[str, Callable[..., object]]]:
    """Return the public functions of a file, in order."""
    found = [
        (name, member)
        for name, member in inspect.getmembers(kind, inspect.isfunction)
        if not name.startswith("_")
    ]

    def place(item: tuple[str, Callable[..., object]]) -> tuple[bool, str, int]:
        code = inspect.unwrap(item[1]).__code__
        # posts to the streams that the other examples define
        posts = code.co_filename.endswith("async_client.py")
        return posts, code.co_filename, code.co_firstlineno

    yield from sorted(found, key=place)


def examples(kind: type) -> Iterator[tuple[str, doctest.Example]]:
    """Return the examples of the page's opening and of its calls."""
    opened = MedusaClient if kind is MedusaClient else open_medusa
    for name, call in [("opened", opened), *public(kind)]:
        for example in doctest.DocTestParser().get_examples(call.__doc__ or ""):
            yield f"{kind.__name__}.{name}", example


def compiled(name: str, example: doctest.Example):  # noqa: ANN201 - code, which typeshed has twice
    return compile(example.source, name, "single", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)


def names_for(client: object, home: Path) -> dict[str, object]:
    exported = {name: getattr(medusa, name) for name in medusa.__all__}
    return {**exported, "medusa": client, "home": home}


def judge(name: str, example: doctest.Example, got: str) -> None:
    assert got == example.want, f"{name}: {example.source}"


def run(client: MedusaClient, home: Path) -> int:
    names, count = names_for(client, home), 0
    for name, example in examples(MedusaClient):
        with shown() as out:
            eval(compiled(name, example), names)
        judge(name, example, out.getvalue())
        count += 1
    return count


async def run_awaited(client: AsyncMedusaClient, home: Path) -> int:
    names, count = names_for(client, home), 0
    for name, example in examples(AsyncMedusaClient):
        with shown() as out:
            awaitable: Awaitable[None] | None = eval(compiled(name, example), names)
            if awaitable is not None:
                await awaitable
        judge(name, example, out.getvalue())
        count += 1
    return count


@contextlib.contextmanager
def shown() -> Iterator[io.StringIO]:
    """Return the output of Python's prompt."""
    before, sys.displayhook = sys.displayhook, sys.__displayhook__
    try:
        with contextlib.redirect_stdout(io.StringIO()) as out:
            yield out
    finally:
        sys.displayhook = before


@contextlib.asynccontextmanager
async def world(folder: Path) -> AsyncIterator[Place]:
    """Give a peer of mit.edu with the query of docs/reference/queries.md, and a tuple each ten
    seconds."""
    document = MANUAL.read_text().split("```xml\n", 1)[1].split("```", 1)[0]
    rows = [
        {"ts": BEGIN_S + 10.0 * n, "src_ip": f"10.0.0.{n % 4}", "dst_port": n % 7}
        for n in range(60)
    ]
    async with open_cluster(folder, timing=QUICK) as cluster:
        mit, _ = await cluster.settle_all("mit.edu", "mit.edu")
        async with mit.client() as client:
            await client.create_query_xml(document.replace("conns > 100", "conns > 1"))
            await client.start_query(QUERY)
            await client.post_event("medusa://mit.edu/conns", rows)
        yield mit


async def test_the_examples_run_under_trio(tmp_path: Path) -> None:
    async with world(tmp_path) as mit, open_medusa(mit.home.folder) as client:
        assert await run_awaited(client, mit.home.folder) > 30


async def test_the_examples_run_under_asyncio(tmp_path: Path) -> None:
    async def main(place: Place) -> int:
        async with open_medusa(place.home.folder) as client:
            return await run_awaited(client, place.home.folder)

    def run_loop(place: Place) -> int:
        # The class is named, and runs in a context of its own: within ours trio-asyncio would let
        # trio run it.
        with asyncio.Runner(loop_factory=asyncio.SelectorEventLoop) as runner:
            return runner.run(main(place), context=contextvars.Context())

    async with world(tmp_path) as mit:
        apart = contextvars.Context()
        assert await trio.to_thread.run_sync(apart.run, run_loop, mit) > 30


async def test_the_examples_run_without_an_event_loop(tmp_path: Path) -> None:
    def main(place: Place) -> int:
        with MedusaClient(place.home.folder) as client:
            return run(client, place.home.folder)

    async with world(tmp_path) as mit:
        assert await trio.to_thread.run_sync(main, mit) > 30


PAGE = Path(__file__).parents[2] / "docs" / "python.md"
PROGRAMS = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)


async def test_the_programs_of_the_manual_run_as_they_stand(tmp_path: Path) -> None:
    """Each runs in a process of its own, as a person would run it."""
    async with world(tmp_path) as mit:
        for program in PROGRAMS:
            text = f"home = {str(mit.home.folder)!r}\n{program}"
            with trio.fail_after(DEADLINE_S):
                done = await trio.run_process(
                    [sys.executable, "-W", "error", "-c", text], capture_stdout=True
                )
            assert done.stdout, program
    assert len(PROGRAMS) >= 4
