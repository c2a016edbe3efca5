"""A person sees why a stream has stopped: in `query show`, `status` and `subscribe`."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest
import trio
from engine_interpreted import interpret
from engine_peers import Cluster, send_rows, until
from tools_prompt import Prompt

from medusa.engine.tasks.waiting import Held, Waiting
from medusa.tools.client.async_client import AsyncMedusaClient
from medusa.tools.commands.medusa import print_stream
from medusa.tools.monitor.waiting_words import in_words

SCRIPT = """
CREATE STREAM conns (ts TIMESTAMP, k INT, WATERMARK FOR ts AS ts)
  WITH (history = INTERVAL '1' HOUR, lateness = 0, max_ahead = 'none');
CREATE STREAM alerts (ts TIMESTAMP, k INT, WATERMARK FOR ts AS ts)
  WITH (history = INTERVAL '1' HOUR, lateness = 0, max_ahead = 'none');
CREATE STREAM minutes AS SELECT window_start, count(*) AS n
  FROM HOP(TABLE conns, DESCRIPTOR(ts), INTERVAL '10' SECOND, INTERVAL '1' MINUTE)
  GROUP BY window_start;
CREATE STREAM pairs AS SELECT c.k, a.k AS other FROM conns AS c
  JOIN alerts AS a ON a.k = c.k AND a.ts BETWEEN c.ts - INTERVAL '1' HOUR AND c.ts;
"""
AT = 1_790_604_341_000_000  # 2026-09-28 14:05:41
WINDOW = (
    "the window that ends 2026-09-28 14:05:50 waits for medusa://mit.edu/conns to pass it; "
    "medusa://mit.edu/conns stands at 2026-09-28 14:05:41, for "
)
JOIN = (
    "what the join has up to 2026-09-28 14:05:41 waits for medusa://mit.edu/alerts to get there; "
    "medusa://mit.edu/alerts has brought nothing, for "
)


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    interpret(monkeypatch)
    monkeypatch.setattr("medusa.tools.monitor.waiting_words.WAIT_S", 0.1)
    monkeypatch.setattr(print_stream, "WAIT_S", 0.1)


async def stalled(cluster: Cluster) -> tuple[Path, AsyncMedusaClient]:
    """Give a peer whose stream `conns` has its boundary at 14:05:41, and whose stream `alerts` has
    no row; return its home's folder."""
    mit = await cluster.settle("mit.edu")
    client = await cluster.client(mit)
    await client.create_query_xml(SCRIPT)
    for query in ("minutes", "pairs"):
        await client.start_query(mit.name(query))
    table = pa.table(
        {"ts": pa.array([AT], pa.timestamp("us", "UTC")), "k": pa.array([1], pa.int32())}
    )
    await send_rows(client, mit.name("conns"), table, boundary=AT)
    await until(lambda: mit.state("minutes").log.boundary >= AT)
    return mit.home.folder, client


async def test_query_show_and_status_name_the_input_and_the_moment(
    cluster: Cluster, capfd: pytest.CaptureFixture[str]
) -> None:
    home, _ = await stalled(cluster)
    prompt = Prompt(home, capfd)
    for query, why in (("minutes", WINDOW), ("pairs", JOIN)):

        async def is_told(query: str = query, why: str = why) -> bool:
            return why in _flat(await prompt("query", "show", f"medusa://mit.edu/{query}"))

        await until(is_told)
    told = _flat(await prompt("status"))
    assert f"medusa://mit.edu/minutes: {WINDOW}" in told
    assert f"medusa://mit.edu/pairs: {JOIN}" in told
    shown = json.loads(await prompt("query", "show", "medusa://mit.edu/pairs", "--json"))
    (task,) = shown["tasks"]
    assert (task["waits"]["stream"], task["waits"]["held"]) == ("medusa://mit.edu/alerts", "join")
    assert task["waits"]["until"] == AT


def _flat(text: str) -> str:
    return " ".join(text.split())


async def test_a_subscriber_reads_once_why_nothing_comes(
    cluster: Cluster, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    _, client = await stalled(cluster)
    monkeypatch.setattr(print_stream, "LOOK_S", 0.05)
    told = ""

    async def is_told() -> bool:
        nonlocal told
        told += capfd.readouterr().err
        return WINDOW in told

    async with trio.open_nursery() as nursery:
        nursery.start_soon(print_stream.report_waits, client, "medusa://mit.edu/minutes")
        await until(is_told)
        await trio.sleep(0.5)
        nursery.cancel_scope.cancel()
    told += capfd.readouterr().err
    assert told.count("medusa: medusa://mit.edu/minutes: the window") == 1


def test_commands_take_the_shown_names() -> None:
    """A stream of panes is named by its window, because no person has made it."""
    for stream, named in (
        ("medusa://mit.edu/conns", "medusa://mit.edu/conns"),
        ("medusa://mit.edu/minutes/panes", "the partial results of medusa://mit.edu/minutes"),
        ("medusa://mit.edu/conns/revisions", "medusa://mit.edu/conns/revisions"),
    ):
        for held in Held:
            told = in_words(Waiting(stream, AT, 9.0, held, AT))
            assert f"waits for {named}" in told
            assert f"; {named} stands at " in told
