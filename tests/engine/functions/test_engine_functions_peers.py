"""Queries that call functions of users, at complete peers (`engine_peers`): the function's code
never travels, a task that calls it runs where the same code is, and a failing call stops that task
alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
from engine_peers import Cluster, Place, begin, make_stream, passing, send_rows, until
from modified_queries import modify
from moving_tasks import Reader, post
from own_functions import CODE, OF_LONGS, own, write_code
from replicated_queries import asked, secondary_of, stands_by
from revised_streams import changes_of, deletions, keyed_stream, logged, replacements

from medusa.engine.functions.allowed import AllowedFunction
from medusa.engine.language.classes import BoxClass, weakest_class
from medusa.engine.language.modification import BoxChange
from medusa.engine.objects.availability import Availability, Mode, Recovery
from medusa.engine.objects.query import Map, Query
from medusa.engine.objects.schema import END
from medusa.engine.replication.records.placements import Deal
from medusa.engine.replication.replicas.standbys import Standbys
from medusa.engine.streams.config import Timing
from medusa.overlay.errors import InvalidInputError, NotAuthorisedError, NotRetainedError
from medusa.tools.client.async_client import AsyncMedusaClient
from medusa.tools.daemon.reloading import Reloading, live_settings
from medusa.tools.home.config import load_config

pytestmark = [
    pytest.mark.cluster(
        timing=Timing(maintenance_s=0.05, workers_s=0.05, confirm_s=0.05, keep_up_s=0.05)
    ),
    pytest.mark.usefixtures("interpreted"),
]


def called(place: Place, source: str, text: str, path: str = "out") -> Query:
    """Return a query of one map."""
    boxes = (Map("call", source, place.name(path), (("value", text),)),)
    return Query(place.name(f"q/{path}"), boxes)


def allow(*places: Place, **allowed: AllowedFunction) -> None:
    for place in places:
        place.up.engine.functions.allow(allowed)


async def reason(client: AsyncMedusaClient, query: Query) -> str:
    """Return the reason for which its task has stopped."""
    (task,) = (await client.lookup_object(query.name, "query")).tasks
    return task.reason


async def until_told(client: AsyncMedusaClient, query: Query, text: str) -> None:
    async def is_told() -> bool:
        return text in await reason(client, query)

    await until(is_told, text)


async def test_a_function_gives_results_and_its_code_is_not_in_the_catalog(
    cluster: Cluster, tmp_path: Path
) -> None:
    one, client = await cluster.founder()
    even = own(tmp_path, "even")
    allow(one, even=even, unlucky=own(tmp_path, "unlucky"))
    source = await make_stream(client, one, "s")
    query = called(one, source, "even(value)")
    await begin(client, query)
    found = Reader(client, one.name("out"), "value")
    await found.end(client, source, range(100))
    assert found.rows == [(at, at % 2 == 0) for at in range(100)]
    kept = one.up.engine.queries.get(query.name).stored.entry.query
    assert kept.functions == (even.function,)
    assert weakest_class(kept) is BoxClass.ARBITRARY
    assert CODE not in str(await client.lookup_object(query.name, "query"))
    # creating it again, without the functions, is no error: the query is the same
    await client.create_query(query)


async def test_a_function_that_is_not_allowed_is_refused(cluster: Cluster, tmp_path: Path) -> None:
    one, client, source = await cluster.founder_with_stream()
    with pytest.raises(InvalidInputError, match="there is no function 'even'"):
        await client.create_query(called(one, source, "even(value)"))
    allow(one, even=own(tmp_path, "even"))
    of_another = msgspec.structs.replace(
        own(tmp_path, "even").function, source="elsewhere.py:even", fingerprint=""
    )
    query = msgspec.structs.replace(called(one, source, "even(value)"), functions=(of_another,))
    with pytest.raises(InvalidInputError, match=r"is 'own.py:even' here, not 'elsewhere.py:even'"):
        await client.create_query(query)
    for mode in (Mode.UPSTREAM_BACKUP, Mode.ACTIVE_STANDBY):
        wish = Availability(mode, Recovery.PRECISE)
        promised = msgspec.structs.replace(called(one, source, "even(value)"), availability=wish)
        with pytest.raises(InvalidInputError, match="'call', is arbitrary: ask for gap"):
            await client.create_query(promised)


async def test_a_failing_call_stops_its_task_and_names_the_row(
    cluster: Cluster, tmp_path: Path
) -> None:
    """No tuple is lost: the query continues once it calls another function; other queries never
    stop."""
    one, client = await cluster.founder()
    allow(one, unlucky=own(tmp_path, "unlucky"), patient=own(tmp_path, "patient"))
    source = await make_stream(client, one, "s")
    query = called(one, source, "unlucky(value)")
    await begin(client, query)
    await begin(client, passing(one, "q/beside", source, one.name("beside"), "value >= 0"))
    found, beside = (Reader(client, one.name(path), "value") for path in ("out", "beside"))
    await found.feed(client, source, range(10))
    await post(client, source, range(10, 20))
    await until_told(client, query, "function unlucky failed at the tuple of stime 13 (1970-")
    assert "unlucky(13): ValueError: it is 13" in await reason(client, query)
    await beside.take(19)
    assert found.rows == [(at, at) for at in range(10)]
    await modify(client, query.name, BoxChange("call", (("expression.0", "patient(value)"),)))
    await found.end(client, source, range(20, 30))
    assert found.rows == [(at, at) for at in range(30)]
    await beside.take(END)
    kept = one.up.engine.queries.get(query.name).stored.entry.query
    assert {each.name for each in kept.functions} == {"unlucky", "patient"}


async def test_other_code_under_the_same_name_stops_the_task(
    cluster: Cluster, tmp_path: Path
) -> None:
    """The results of two codes are never mixed silently."""
    one, client = await cluster.founder()
    allow(one, even=own(tmp_path / "before", "even"))
    source = await make_stream(client, one, "s")
    query = called(one, source, "even(value)")
    await begin(client, query)
    found = Reader(client, one.name("out"), "value")
    await found.feed(client, source, range(10))
    write_code(tmp_path / "after", CODE.replace("n % 2 == 0", "n % 2 == 1"))
    allow(one, even=own(tmp_path / "after", "even"))
    await post(client, source, range(10, 20))
    await until_told(client, query, "and the query was made with")
    allow(one, even=own(tmp_path / "before", "even"))
    await found.end(client, source, range(20, 30))
    assert found.rows == [(at, at % 2 == 0) for at in range(30)]


async def test_a_restart_and_a_reload(cluster: Cluster) -> None:
    """The peer reads the functions of medusa.toml, and those of the folder beside it."""
    one, client = await cluster.founder()
    write_code(one.home.functions)
    one.home.config.write_text('[functions]\neven = "own.py:even"\n')
    config = one.config
    live = live_settings(one.up.engine)
    events = one.up.engine.overlay.events
    reloading = Reloading(load_config(one.home), lambda: load_config(one.home), live, events)
    one.home.config.write_text('[functions]\neven = "own.py:even"\nhalve = "own.py:unlucky"\n')
    await reloading.reload()
    told = [event.text for event in events.recent() if "functions.allowed" in event.text]
    assert told == [
        "set functions.allowed to {'even': <even(long) bool of own.py:even>, 'halve': "
        "<halve(long) long of own.py:unlucky>}, from {'even': <even(long) bool of own.py:even>}"
    ]
    assert set(config.functions.allowed) == {"even"}
    source = await make_stream(client, one, "s")
    await begin(client, called(one, source, "even(halve(value))"))
    found = Reader(client, one.name("out"), "value")
    await found.feed(client, source, range(10))
    await cluster.close_clients()
    await cluster.restart(one)
    client = await cluster.client(one)
    again = Reader(client, one.name("out"), "value")
    await again.end(client, source, range(14, 20))
    assert again.rows == [(at, at % 2 == 0) for at in (*range(10), *range(14, 20))]


# -- other peers -----------------------------------------------------------------------------------


async def test_a_calling_task_moves_to_a_sibling_with_the_same_code(
    cluster: Cluster, tmp_path: Path
) -> None:
    one, two = await cluster.siblings(2)
    client = await cluster.client(one)
    allow(one, even=own(tmp_path / "one", "even"))
    source = await make_stream(client, one, "s")
    await begin(client, called(one, source, "even(value)"))
    found = Reader(client, one.name("out"), "value")
    await found.feed(client, source, range(10))
    mover, task = one.up.engine.mover, one.name("out")
    with pytest.raises(InvalidInputError, match="function even is not allowed at this peer"):
        await mover.move(task, two.peer_id, Deal(giver=one.id))
    write_code(tmp_path / "two", CODE.replace("n % 2 == 0", "n % 2 == 1"))
    allow(two, even=own(tmp_path / "two", "even"))
    with pytest.raises(InvalidInputError, match="and the query was made with"):
        await mover.move(task, two.peer_id, Deal(giver=one.id))
    assert not two.up.engine.assignments.all()
    allow(two, even=own(tmp_path / "same", "even"))
    await mover.move(task, two.peer_id, Deal(giver=one.id))
    await found.feed(client, source, range(10, 20))
    assert [each.boundary for each in two.up.engine.assignments.all()] == [19]
    await mover.take_back(task)
    await found.end(client, source, range(20, 30))
    assert found.rows == [(at, at % 2 == 0) for at in range(30)]


async def test_a_calling_task_does_not_move_to_a_partner(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Even if the partner has the same code, the owner does not offer the task, and the partner
    would not take it. Later tasks of the query move."""
    mit, utah = await cluster.settle_all("mit.edu", "utah.edu")
    client = await cluster.client(mit)
    allow(mit, utah, even=own(tmp_path, "even", deterministic=True))
    assignments: Any = utah.up.engine.assignments
    assignments.expect = assignments.admit = lambda *_: None  # the test stands in for a contract
    source = await make_stream(client, mit, "s", readers=("*",))
    await begin(client, called(mit, source, "even(value)"))
    await begin(client, passing(mit, "q/behind", mit.name("out"), mit.name("behind"), "value"))
    found = Reader(client, mit.name("behind"), "value")
    await found.feed(client, source, range(10))
    mover, deal = mit.up.engine.mover, Deal(giver=mit.id)
    refused = "calls even, whose code mit.edu alone has: utah.edu cannot run it"
    with pytest.raises(NotAuthorisedError, match=refused):
        await mover.move(mit.name("out"), utah.peer_id, deal)
    monkeypatch.setattr("medusa.engine.replication.moves.mover.check_worker", lambda *_: None)
    with pytest.raises(NotAuthorisedError, match=refused):
        await mover.move(mit.name("out"), utah.peer_id, deal)
    assert not utah.up.engine.assignments.all()
    await mover.move(mit.name("behind"), utah.peer_id, deal)
    await found.end(client, source, range(10, 20))
    assert found.rows == [(at, True) for at in range(20) if at % 2 == 0]


async def test_a_secondary_has_the_same_code(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    refusals: list[str] = []
    opened = Standbys._open

    async def watched(self: Standbys, *args: Any, **more: Any) -> Any:
        try:
            return await opened(self, *args, **more)
        except InvalidInputError as error:
            refusals.append(str(error))
            raise

    monkeypatch.setattr(Standbys, "_open", watched)
    one, two = await cluster.siblings(2)
    client = await cluster.client(one)
    allow(one, even=own(tmp_path, "even"))
    source = await make_stream(client, one, "s")
    query = called(one, source, "even(value)")
    await begin(client, asked(query, Mode.PASSIVE_STANDBY, two, Recovery.PRECISE))
    await until(lambda: bool(refusals), "the other peer refuses")
    assert "function even is not allowed at this peer" in refusals[0]
    assert secondary_of(one, "q/out") == ""
    allow(two, even=own(tmp_path / "same", "even"))
    await stands_by(one, two, "q/out")


# -- revised inputs --------------------------------------------------------------------------------


async def test_revisions_go_through_a_deterministic_function(
    cluster: Cluster, tmp_path: Path
) -> None:
    """The result of the old tuple is withdrawn, and the function is called for the new one."""
    one, client = await cluster.founder()
    allow(one, twice=own(tmp_path, "twice", **OF_LONGS, deterministic=True))
    source = await keyed_stream(client, one)
    boxes = (Map("call", source, one.name("out"), (("t", "t"), ("value", "twice(value)"))),)
    await begin(client, Query(one.name("q/out"), boxes))
    await send_rows(client, source, [(10, 1), (20, 2), (30, 3)], boundary=40)
    assert await client.post_revisions(source, replacements([(20, 7)])) == []
    assert await client.post_revisions(source, deletions([30])) == []
    await send_rows(client, source, end=True)
    for path in ("out", "out/revisions"):
        await until(lambda p=path: one.state(p).log.boundary == END, path)
    assert [change[1:] for change in changes_of(logged(one, "out/revisions"))] == [
        ("DELETION", 20, 4),
        ("INSERTION", 20, 14),
        ("DELETION", 30, 6),
    ]


async def test_a_damaged_log_of_arbitrary_results_is_not_made_again(
    cluster: Cluster, tmp_path: Path
) -> None:
    one, client = await cluster.founder()
    allow(one, even=own(tmp_path, "even"))
    source = await make_stream(client, one, "s")
    await begin(client, called(one, source, "even(value)"))
    found = Reader(client, one.name("out"), "value")
    await found.feed(client, source, range(10))
    (placed,) = one.up.engine.queries.get(one.name("q/out")).tasks
    with pytest.raises(NotRetainedError, match="even, which is not declared deterministic"):
        await anext(placed.runner.recompute(0, 5))
