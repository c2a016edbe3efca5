"""The part of its inputs that one job of a task takes."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio
from engine_peers import (
    DEADLINE_S,
    Cluster,
    begin,
    make_stream,
    open_cluster,
    rows,
    send_rows,
    to_the_end,
    until,
)

from medusa.engine.objects.query import Filter, Query, Union
from medusa.engine.objects.schema import END
from medusa.engine.tasks.runner import TaskRunner
from medusa.engine.tasks.waiting import Held, Waiting

pytestmark = pytest.mark.usefixtures("interpreted")


async def test_a_job_takes_no_more_bytes_than_fit_in_the_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A query that is started late has all earlier posts as its input: it takes some epochs at a
    time."""
    reached: list[int] = []
    compute = TaskRunner._compute

    async def noted(runner: TaskRunner, after: int, upto: int, interval: object) -> float:
        reached.append(upto)
        return await compute(runner, after, upto, interval)  # type: ignore[arg-type]

    monkeypatch.setattr(TaskRunner, "_compute", noted)
    async with open_cluster(tmp_path) as cluster:
        mit = await cluster.settle("mit.edu")
        async with mit.client() as client:
            stream = await make_stream(client, mit, "s")
            for at in range(1, 31):
                await client.post_event(stream, rows([(at, at)]), boundary=at)
                with trio.fail_after(DEADLINE_S):
                    await client.flush()
                    await mit.state(stream).log.wait_beyond(at - 1)
            await client.post_event(stream, rows([]), end=True)
            size = sum(file.content for file in mit.state(stream).log.files)
            monkeypatch.setattr("medusa.engine.tasks.inputs.JOB_BYTES", size // 3)
            query = Query(mit.name("q"), (Filter("f", stream, (mit.name("out"),), ("value > 0",)),))
            await begin(client, query)
            found = await to_the_end(client.subscribe(mit.name("out")))
    assert found == [(at, at) for at in range(1, 31)]
    assert reached[-1] == END
    assert 3 <= len(reached) <= 6


async def test_a_task_that_waits_says_for_which_input_and_how_long(cluster: Cluster) -> None:
    mit, client = await cluster.founder()
    ahead = await make_stream(client, mit, "ahead")
    behind = await make_stream(client, mit, "behind")
    union = Union("u", (ahead, behind), mit.name("out"))
    await begin(client, Query(mit.name("q"), (union,)))
    await client.post_event(behind, rows([(1, 1)]), boundary=5)
    await send_rows(client, ahead, [(1, 1)], boundary=9)
    with trio.fail_after(DEADLINE_S):
        await mit.state(mit.name("out")).log.wait_beyond(4)
    await until(lambda: mit.state(ahead).log.boundary == 9)

    async def waiting() -> Waiting | None:
        (task,) = (await client.lookup_object(mit.name("q"))).tasks
        return task.waits

    async def is_waiting() -> bool:
        found = await waiting()
        return found is not None and found.until == 9

    await until(is_waiting)
    found = await waiting()
    assert found is not None
    assert (found.stream, found.at, found.held) == (behind, 5, Held.UNION)
    later = await waiting()
    assert later is not None
    assert later.seconds > found.seconds
    assert (await client.status()).federation == "cluster"


async def test_a_query_that_has_ended_says_so_after_a_restart_too(cluster: Cluster) -> None:
    mit, client, stream = await cluster.founder_with_stream()
    query = Query(mit.name("q"), (Filter("f", stream, (mit.name("out"),), ("value > 0",)),))
    await begin(client, query)
    await send_rows(client, stream, [(1, 1), (0, 2)], end=True)
    assert await to_the_end(client.subscribe(mit.name("out"))) == [(1, 1)]
    await cluster.restart(mit)
    async with mit.client() as again:
        (task,) = (await again.lookup_object(query.name)).tasks
        assert task.state == "ended"
        status = mit.state(stream).status(trio.current_time())
        assert (status.late, status.boundary) == (1, END)
