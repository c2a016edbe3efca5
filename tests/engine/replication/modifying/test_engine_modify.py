"""The parameters of a running query are modified, at complete peers (`engine_peers`): the tests
check what its consumers receive, and which modifications are refused."""

from __future__ import annotations

import msgspec
import pytest
from engine_peers import Cluster, begin, make_stream, until
from modified_queries import (
    LONGER,
    MORE,
    SHORTER,
    Edition,
    ModifiedReader,
    change,
    edition,
    modify,
    sieve_and_sums,
    stored,
)
from moving_tasks import post

from medusa.engine.language.modification import BoxChange, modified_query
from medusa.engine.objects.moments import moment_of
from medusa.engine.objects.query import Query
from medusa.engine.objects.schema import END
from medusa.engine.replication.records.placements import Deal
from medusa.engine.streams.config import Timing
from medusa.overlay.errors import ConflictError, InvalidInputError, MedusaError, NotFoundError

pytestmark = [
    pytest.mark.cluster(
        timing=Timing(modified_s=0.05, maintenance_s=0.05, workers_s=0.05, confirm_s=0.05)
    ),
    pytest.mark.usefixtures("interpreted"),
]


@pytest.mark.parametrize(
    ("first", "at", "second"),
    [(MORE, None, LONGER), (LONGER, 777, SHORTER), (SHORTER, None, MORE)],
    ids=["filter, longer", "longer at 777, shorter", "shorter, filter"],
)
async def test_old_up_to_the_boundary_and_new_after_it(
    cluster: Cluster, first: BoxChange, at: int | None, second: BoxChange
) -> None:
    one, two = await cluster.siblings(2)
    client, reader = await cluster.clients(one, two)
    source = await make_stream(client, one, "s")
    query = sieve_and_sums(one, source)
    await begin(client, query)
    sums = ModifiedReader(reader, one.name("sums"), "total", "number")
    state = ModifiedReader(reader, one.name("kept"), "value")
    await sums.feed(client, source, range(530))
    done = await modify(client, query.name, first, at=at)
    assert done.since == at if at else 529 <= done.since < 800
    editions = [Edition(query), edition(query, done.since, first)]
    await sums.feed(client, source, range(530, 1230))
    await state.take(1229)
    done = await modify(client, query.name, second)
    editions.append(edition(editions[-1].query, done.since, second))
    await sums.end(client, source, range(1230, 2000))
    await state.take(END)
    everything = (editions, source, range(2000))
    sums.check(*everything)
    state.check(*everything)
    description = await reader.lookup_object(query.name)
    entry = msgspec.json.decode(description.entries["query"])
    assert entry["edition"] == 2
    assert entry["since"] == done.since
    assert msgspec.convert(entry["query"], Query) == editions[-1].query
    await until(lambda: not stored(one).editions, "the old editions are forgotten")


async def test_the_event_of_a_modification_has_its_moment(cluster: Cluster) -> None:
    mit = await cluster.settle("mit.edu")
    async with mit.client() as client:
        query = sieve_and_sums(mit, await make_stream(client, mit, "s"))
        await begin(client, query)
        await modify(client, query.name, MORE, at=moment_of("2018-03-24T12:00:00.000099Z"))
    texts = [each.text for each in mit.up.engine.overlay.events.recent()]
    (text,) = [text for text in texts if text.startswith(f"modified {query.name}: ")]
    assert text.endswith("; counts after 2018-03-24T12:00:00.000099Z")


async def test_a_restarted_peer_keeps_the_modification(cluster: Cluster) -> None:
    one, two = await cluster.siblings(2)
    async with two.client() as reader:
        async with one.client() as client:
            source = await make_stream(client, one, "s")
            query = sieve_and_sums(one, source)
            await begin(client, query)
            sums = ModifiedReader(reader, one.name("sums"), "total", "number")
            await sums.feed(client, source, range(250))
            await modify(client, query.name, MORE, LONGER, at=799)
            await sums.feed(client, source, range(250, 530))
        await cluster.restart(one)
        assert len(stored(one).editions) == 1
        async with one.client() as client:
            await sums.feed(client, source, range(530, 900))
            await cluster.restart(one)
        async with one.client() as client:
            await sums.end(client, source, range(900, 1500))
    editions = [Edition(query), edition(query, 799, MORE, LONGER)]
    sums.check(editions, source, range(1500))


async def test_a_task_that_runs_elsewhere_is_taken_home_and_may_leave_again(
    cluster: Cluster,
) -> None:
    one, two, three = await cluster.siblings(3)
    async with one.client() as client, three.client() as reader:
        source = await make_stream(client, one, "s")
        query = sieve_and_sums(one, source)
        await begin(client, query)
        sums = ModifiedReader(reader, one.name("sums"), "total", "number")
        mover = one.up.engine.mover
        await sums.feed(client, source, range(250))
        await mover.move(one.name("sums"), two.peer_id, Deal(giver=one.id))
        await sums.feed(client, source, range(250, 530))
        done = await modify(client, query.name, LONGER)
        _, placed = one.up.engine.queries.find(one.name("sums"))
        assert not placed.current.term.holder
        assert placed.given >= 499, "the worker said how far it had come"
        await sums.feed(client, source, range(530, 1000))
        later = await modify(client, query.name, SHORTER, at=1333)
        await mover.move(one.name("sums"), two.peer_id, Deal(giver=one.id))
        await post(client, source, range(1000, 1100))
        # after the restart the peer plans the task with both editions again
        await cluster.restart(two)
        await sums.feed(client, source, range(1100, 1700))
        assert placed.current.term.holder == two.peer_id
        await sums.end(client, source, range(1700, 2000))
    editions = [Edition(query), edition(query, done.since, LONGER)]
    editions.append(edition(editions[-1].query, later.since, SHORTER))
    sums.check(editions, source, range(2000))


async def test_a_query_that_has_not_run_yet_is_modified_from_the_beginning_on(
    cluster: Cluster,
) -> None:
    one = await cluster.settle("mit.edu")
    client = await cluster.client(one)
    source = await make_stream(client, one, "s")
    query = sieve_and_sums(one, source)
    await client.create_query(query)
    await modify(client, query.name, MORE)
    await modify(client, query.name, SHORTER)
    await client.start_query(query.name)
    sums = ModifiedReader(client, one.name("sums"), "total", "number")
    await sums.end(client, source, range(500))
    now = Edition(modified_query(query, [MORE, SHORTER]))
    sums.check([now], source, range(500))


async def test_the_same_again_is_no_change(cluster: Cluster) -> None:
    one, two = await cluster.siblings(2)
    client, other = await cluster.clients(one, two)
    source = await make_stream(client, one, "s")
    query = sieve_and_sums(one, source)
    await begin(client, query)
    await post(client, source, range(250))
    done = await modify(other, query.name, MORE, at=999)
    assert await modify(client, query.name, MORE) == done
    assert await modify(client, query.name, MORE, at=999) == done
    assert stored(one).entry.edition == 1
    with pytest.raises(ConflictError, match="from 999 on, not 1999"):
        await modify(client, query.name, MORE, at=1999)
    later = await modify(client, query.name, SHORTER)
    assert later.since > 999, "one after the other"


REFUSED = [
    ((change("sieve", expression_0="value +"),), "box 'sieve': expression 0: "),
    ((change("sieve", expression_0="volume > 7"),), "box 'sieve': expression 0: .*volume"),
    ((BoxChange("sieve", (("expression.1", "value > 7"),)),), "2 are needed"),
    ((BoxChange("sieve", (("pass-on-false-port", "1"),)),), "2 are needed"),
    ((BoxChange("sieve", (("predicate", "value > 7"),)),), "unknown parameter 'predicate'"),
    ((BoxChange("net", (("expression.0", "value > 7"),)),), "has no box 'net'; there are sieve"),
    ((MORE, MORE), "box 'sieve' is named twice"),
    ((BoxChange("sieve", ()),), "box 'sieve': say 1 to"),
    ((), "say what of which box"),
    ((change("sum", window_size="soon"),), "box 'sum': parameter 'window-size': 'soon' is not a"),
    ((change("sum", timeout="3"),), "box 'sum': parameter 'timeout': timeout can only be 0"),
    ((change("sum", group_by="name"),), "box 'sum', group-by: medusa://mit.edu/sums would have"),
    (
        (BoxChange("sum", (("aggregate-function.0", "max(value)"),)),),
        r"total int or null, .* instead of .*total long or null",
    ),
]


@pytest.mark.parametrize(("changes", "reason"), REFUSED)
async def test_an_impossible_modification_is_refused_and_changes_nothing(
    cluster: Cluster, changes: tuple[BoxChange, ...], reason: str
) -> None:
    one = await cluster.settle("mit.edu")
    client = await cluster.client(one)
    source = await make_stream(client, one, "s")
    query = sieve_and_sums(one, source)
    await client.create_query(query)
    before = stored(one)
    with pytest.raises(InvalidInputError, match=reason) as raised:
        await modify(client, query.name, *changes)
    assert "\n" not in str(raised.value)
    assert stored(one) == before


async def test_impossible_boundaries_are_refused_and_the_error_names_a_possible_one(
    cluster: Cluster,
) -> None:
    one = await cluster.settle("mit.edu")
    client = await cluster.client(one)
    source = await make_stream(client, one, "s", history_us=0)
    query = sieve_and_sums(one, source)
    await begin(client, query)
    sums = ModifiedReader(client, one.name("sums"), "total", "number")
    await sums.feed(client, source, range(530))
    for changes, at, earliest in [
        ((SHORTER,), 500, 529),  # readers already have results behind the boundary
        ((MORE,), 530, 599),  # a window over changed tuples would mix both editions
        ((MORE,), 600, 699),
    ]:
        with pytest.raises(InvalidInputError, match=rf"from {earliest} .* on, not from {at}"):
            await modify(client, query.name, *changes, at=at)
    with pytest.raises(ConflictError, match="beyond all time"):
        await modify(client, query.name, MORE, at=END)
    overlapping = BoxChange("sum", (("advance", "0.00005"),))
    done = await modify(client, query.name, overlapping)
    with pytest.raises(InvalidInputError, match="made of overlapping windows"):
        await modify(client, query.name, MORE)
    await sums.end(client, source, range(530, 900))
    editions = [Edition(query), edition(query, done.since, overlapping)]
    sums.check(editions, source, range(900))
    with pytest.raises(ConflictError, match="has ended"):
        await modify(client, query.name, LONGER)


async def test_only_its_owner_modifies_a_query(cluster: Cluster) -> None:
    mit, utah, client, stranger, source = await cluster.owner_and_guest()
    query = sieve_and_sums(mit, source)
    await client.create_query(query)
    for other in (query.name, utah.name("none")):
        with pytest.raises(MedusaError):
            await modify(stranger, other, MORE)
    with pytest.raises(NotFoundError):
        await modify(client, mit.name("none"), MORE)
    assert stored(mit).entry.edition == 0


async def test_editions_that_are_still_needed_are_bounded(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("medusa.engine.replication.records.query_history.MAX_EDITIONS", 2)
    one = await cluster.settle("mit.edu")
    client = await cluster.open(one.client(patience_s=0.1))
    source = await make_stream(client, one, "s")
    query = sieve_and_sums(one, source)
    await begin(client, query)
    await post(client, source, range(130))
    for size, at in (("0.0001", 1999), ("0.0002", 2999)):
        wish = change("sum", window_size=size, advance=size)
        await modify(client, query.name, MORE if at == 1999 else wish, at=at)
    with pytest.raises(MedusaError, match="catch up first"):
        await modify(client, query.name, SHORTER)
    await post(client, source, range(130, 5000))
    await until(lambda: not stored(one).editions, "they are over")
    await modify(client, query.name, SHORTER)
