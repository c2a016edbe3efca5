"""Failover when something goes wrong at the worst moment: whole peers, told who is dead."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
import trio
from engine_detector import detectors
from engine_interpreted import interpret
from engine_peers import Place, make_stream, open_town, rows, until
from test_engine_moves import Sums, expected, post, siblings, windows
from test_engine_replicas import Made, asked, die, standby_boundary, stands_by
from test_engine_replicas_chains import passed

from dht.catalog import Catalog
from engine.availability import Mode, Recovery
from engine.kinds import STREAM
from engine.messages import Subscribe, Tuples
from engine.moves.messages import Deal
from engine.query import Query
from engine.replicas.messages import KeepUp
from engine.replicas.primaries import Primaries
from engine.replicas.standbys import Standbys
from engine.schema import END
from engine.stream_store import StreamStore
from overlay.errors import InternalError, InvalidInputError, NotFoundError, StorageFullError
from overlay.gossip.events import Health
from overlay.identity import parse_peer_id
from overlay.names import ObjectName


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> Made:
    interpret(monkeypatch)
    monkeypatch.setattr("engine.replicas.primaries.KEEP_UP_S", 0.05)
    monkeypatch.setattr("engine.stream_store.TEND_S", 0.05)
    return detectors(monkeypatch)


def believes(made: Made, witness: Place, peer: str, health: Health) -> None:
    made[bytes.fromhex(witness.id)].tell(peer, health)


def has(place: Place, query: str) -> bool:
    return any(running.name == query for running in place.up.engine.queries.all())


async def taken_over(made: Made, primary: Place, secondary: Place, query: str) -> None:
    """By a secondary that believes wrongly that its primary is dead; which then steps down."""
    believes(made, secondary, primary.id, Health.DEAD)
    await until(lambda: has(secondary, query), "it is taken over")
    await until(lambda: not has(primary, query), "the old primary steps down")


def query_file(place: Place, query: str) -> Path:
    return place.up.engine.queries.files._path(query)


# -- names that are used again ------------------------------------------------------------------


async def test_a_query_made_again_is_not_deposed_by_the_fence_of_its_namesake(
    tmp_path: Path, made: Made
) -> None:
    async with open_town(tmp_path) as town:
        home, primary, secondary = await siblings(town, others=2)
        async with (
            home.client() as poster,
            primary.client() as one,
            secondary.client() as two,
        ):
            source = await make_stream(poster, home, "s")
            query = asked(windows(home, source), Mode.ACTIVE_STANDBY, secondary)
            await one.create_query(query)
            await one.start_query(query.name)
            await stands_by(primary, secondary, "q/out")
            await post(poster, source, range(250))
            await taken_over(made, primary, secondary, query.name)
            await two.stop_query(query.name)
            await two.delete_query(query.name)
            believes(made, secondary, primary.id, Health.ALIVE)
            await one.create_query(query)
            await one.start_query(query.name)
            await trio.sleep(0.5)
            assert has(primary, query.name)
            sums = Sums(poster, home.name("out"))
            await poster.post_event(source, rows((at, at) for at in range(250, 777)), end=True)
            await sums.take(END)
            assert sums.rows == expected(range(777))


async def test_a_query_may_be_made_again_where_its_namesake_was_stood_by_for(
    tmp_path: Path, made: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The secondary has not heard yet that the query is deleted."""

    async def unheard(*_: object) -> None:
        await trio.lowlevel.checkpoint()

    monkeypatch.setattr(Primaries, "_dismiss", unheard)
    monkeypatch.setattr("engine.replicas.watch.ASK_S", 1.0)
    async with open_town(tmp_path) as town:
        home, primary, secondary = await siblings(town, others=2)
        async with (
            home.client() as poster,
            primary.client() as one,
            secondary.client() as two,
        ):
            source = await make_stream(poster, home, "s")
            query = asked(windows(home, source), Mode.ACTIVE_STANDBY, secondary)
            await one.create_query(query)
            await one.start_query(query.name)
            await stands_by(primary, secondary, "q/out")
            await post(poster, source, range(250))
            await one.stop_query(query.name)
            await one.delete_query(query.name)
            again = windows(home, source)
            await two.create_query(again)
            await two.start_query(again.name)
            sums = Sums(poster, home.name("out"))
            await trio.sleep(1.8)  # by then it would have asked
            await poster.post_event(source, rows((at, at) for at in range(250, 777)), end=True)
            await sums.take(END)
            assert sums.rows == expected(range(777))
            assert query_file(secondary, again.name).exists()
            assert secondary.up.engine.standbys.get(again.name) is None


async def test_a_query_deleted_while_a_secondary_is_found_stays_deleted(
    tmp_path: Path, made: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked_for, go_on = trio.Event(), trio.Event()
    stand_by = Standbys.stand_by

    async def slowly(self: Standbys, *args: Any) -> Any:
        asked_for.set()
        await go_on.wait()
        return await stand_by(self, *args)

    async with open_town(tmp_path) as town:
        home, primary, secondary = await siblings(town, others=2)
        monkeypatch.setattr(Standbys, "stand_by", slowly)
        async with home.client() as poster, primary.client() as owner:
            source = await make_stream(poster, home, "s")
            query = asked(windows(home, source), Mode.UPSTREAM_BACKUP, secondary)
            await owner.create_query(query)
            with trio.fail_after(20):
                await asked_for.wait()
            await owner.delete_query(query.name)
            go_on.set()
            await until(
                lambda: (
                    secondary.up.engine.standbys.get(query.name) is None
                    and not query_file(secondary, query.name).exists()
                )
            )
            await trio.sleep(0.3)
            assert not query_file(primary, query.name).exists()
            assert secondary.up.engine.standbys.get(query.name) is None
            await owner.create_query(windows(home, source, "other"))  # it lives


async def test_a_worker_is_not_named_for_a_query_that_is_no_more(
    tmp_path: Path, made: Made
) -> None:
    async with open_town(tmp_path) as town:
        (place,) = await siblings(town, others=0)
        async with place.client() as client:
            source = await make_stream(client, place, "s")
            await client.create_query(windows(place, source))
            queries = place.up.engine.queries
            (task,) = queries.get(place.name("q/out")).tasks
            await client.delete_query(place.name("q/out"))
            with pytest.raises(NotFoundError):
                await queries.name_worker(task)


# -- restarts and crashes -----------------------------------------------------------------------


async def test_a_restarted_primary_survives_a_catalog_that_refuses(
    tmp_path: Path, made: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_town(tmp_path) as town:
        home, primary, secondary, reader = await siblings(town, others=3)
        async with home.client() as poster, reader.client() as client:
            async with primary.client() as owner:
                source = await make_stream(poster, home, "s")
                query = asked(windows(home, source), Mode.UPSTREAM_BACKUP, secondary)
                await owner.create_query(query)
                await owner.start_query(query.name)
                await stands_by(primary, secondary, "q/out")
            publish, refusals = Catalog.publish, 0

            async def refuse(self: Catalog, *args: Any) -> int:
                nonlocal refusals
                if refusals < 3:
                    refusals += 1
                    raise StorageFullError("the disk is full")
                return await publish(self, *args)

            await town.stop(primary)
            monkeypatch.setattr(Catalog, "publish", refuse)
            await town.start(primary)
            sums = Sums(client, home.name("out"))
            await poster.post_event(source, rows((at, at) for at in range(777)), end=True)
            await sums.take(END)
            assert sums.rows == expected(range(777))
            await until(lambda: refusals == 3, "it tries again")


async def test_a_restarted_standby_keeps_its_carry_though_nothing_comes(
    tmp_path: Path, made: Made
) -> None:
    async with open_town(tmp_path) as town:
        home, primary, secondary, reader = await siblings(town, others=3)
        async with home.client() as poster, primary.client() as owner, reader.client() as client:
            source = await make_stream(poster, home, "s", history_us=0)
            query = asked(windows(home, source), Mode.PASSIVE_STANDBY, secondary)
            await owner.create_query(query)
            await owner.start_query(query.name)
            sums = Sums(client, home.name("out"))
            await stands_by(primary, secondary, "q/out")
            for start in range(0, 280, 20):
                await post(poster, source, range(start, start + 20))
                await sums.take(start + 19)
            boundary = standby_boundary(secondary, "q/out", "out")
            await until(lambda: boundary() == 279)
            await until(lambda: standby_boundary(secondary, "q/out", "s")() == 279)
            await trio.sleep(0.3)
            await town.stop(primary)
            await town.restart(secondary)
            await trio.sleep(0.3)  # retention has its way
            for witness in (home, reader, secondary):
                believes(made, witness, query_primary(secondary, query), Health.DEAD)
            await poster.post_event(source, rows((at, at) for at in range(280, 777)), end=True)
            await sums.take(END)
            assert sums.rows == expected(range(777))


def query_primary(place: Place, query: Query) -> str:
    standby = place.up.engine.standbys.get(query.name)
    assert standby is not None
    return standby.tenure.primary


async def test_a_restarted_standby_copies_on_though_consumers_are_ahead_of_it(
    tmp_path: Path, made: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("engine.replicas.standby.SAVE_S", 0.0)
    async with open_town(tmp_path) as town:
        home, primary, secondary = await siblings(town, others=2)
        async with home.client() as poster, primary.client() as owner:
            source = await make_stream(poster, home, "s")
            query = asked(
                passed(home, source, "out"), Mode.PASSIVE_STANDBY, secondary, Recovery.ROLLBACK
            )
            slow = msgspec.structs.replace(query.availability, checkpoint_s=1.5)
            query = msgspec.structs.replace(query, availability=slow)
            await owner.create_query(query)
            await owner.start_query(query.name)
            await stands_by(primary, secondary, "q/out")
            await post(poster, source, range(100))
            boundary = standby_boundary(secondary, "q/out", "out")
            await until(lambda: boundary() == 99)
            await post(poster, source, range(100, 200))

            def told() -> int:
                standby = secondary.up.engine.standbys.get(query.name)
                return -1 if standby is None else standby.stored.positions[home.name("out")]

            await until(lambda: told() == 199)
            assert boundary() == 99
            await town.restart(secondary)
            boundary = standby_boundary(secondary, "q/out", "out")
            await until(lambda: boundary() == 199, "it has copied the rest")


async def test_a_crash_while_stepping_down_harms_nobody(
    tmp_path: Path, made: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The query's file is gone, its logs are not; a query here reads what it made."""
    async with open_town(tmp_path) as town:
        home, primary, secondary, reader = await siblings(town, others=3)
        async with home.client() as poster, reader.client() as client:
            async with primary.client() as owner:
                source = await make_stream(poster, home, "s")
                query = asked(passed(home, source, "mid"), Mode.ACTIVE_STANDBY, secondary)
                await owner.create_query(query)
                await owner.start_query(query.name)
                await owner.create_query(windows(home, home.name("mid")))
                await owner.start_query(home.name("q/out"))
                await stands_by(primary, secondary, "q/mid")
            sums = Sums(client, home.name("out"))
            await post(poster, source, range(250))
            await sums.take(249)
            file = query_file(primary, query.name)
            with monkeypatch.context() as crashing:

                async def crash(*_: object) -> None:
                    raise InternalError("as if it died here")

                crashing.setattr("engine.mirrors.Mirrors.part_with", crash)
                believes(made, secondary, primary.id, Health.DEAD)
                await until(lambda: not file.exists(), "it has begun to step down")
                await town.stop(primary)
            await town.start(primary)
            for witness in (home, secondary, reader):
                believes(made, witness, primary.id, Health.ALIVE)
            await poster.post_event(source, rows((at, at) for at in range(250, 777)), end=True)
            await sums.take(END)
            assert sums.rows == expected(range(777))
            name = ObjectName.parse(home.name("mid"))
            await home.up.engine.catalog.lookup(STREAM, name)  # the successor's, still


# -- who reads where ------------------------------------------------------------------------------


async def test_a_standby_that_reads_a_stream_made_here_survives_its_deletion(
    tmp_path: Path, made: Made
) -> None:
    async with open_town(tmp_path) as town:
        home, primary, secondary = await siblings(town, others=2)
        async with (
            home.client() as poster,
            primary.client() as one,
            secondary.client() as two,
        ):
            source = await make_stream(poster, home, "s")
            await two.create_query(passed(home, source, "mid"))
            await two.start_query(home.name("q/mid"))
            query = asked(windows(home, home.name("mid")), Mode.ACTIVE_STANDBY, secondary)
            await one.create_query(query)
            await one.start_query(query.name)
            await stands_by(primary, secondary, "q/out")
            await post(poster, source, range(250))
            boundary = standby_boundary(secondary, "q/out", "out")
            await until(lambda: boundary() == 249)
            await two.stop_query(home.name("q/mid"))
            await two.delete_query(home.name("q/mid"))
            await trio.sleep(0.2)
            await two.create_query(windows(home, source, "other"))  # it lives


async def test_two_standbys_of_one_input_do_not_hang_on_one_primary(
    tmp_path: Path, made: Made
) -> None:
    async with open_town(tmp_path) as town:
        home, primary, secondary, reader = await siblings(town, others=3)
        async with home.client() as poster, primary.client() as owner, reader.client() as client:
            source = await make_stream(poster, home, "s", history_us=0)
            for path in ("a", "out"):
                query = asked(windows(home, source, path), Mode.PASSIVE_STANDBY, secondary)
                await owner.create_query(query)
                await owner.start_query(query.name)
                await stands_by(primary, secondary, f"q/{path}")
            sums = Sums(client, home.name("out"))
            await post(poster, source, range(250))
            await sums.take(249)
            await owner.stop_query(home.name("q/a"))
            await owner.delete_query(home.name("q/a"))
            standbys = secondary.up.engine.standbys
            await until(lambda: standbys.get(home.name("q/a")) is None, "it is dismissed")
            await post(poster, source, range(250, 520))
            await sums.take(519)
            carry = standby_boundary(secondary, "q/out", "s")
            await until(lambda: carry() == 519, "the carry goes on")
            await die(made, primary, town, home, secondary, reader)
            await poster.post_event(source, rows((at, at) for at in range(520, 777)), end=True)
            await sums.take(END)
            assert sums.rows == expected(range(777))


async def test_a_query_made_at_the_new_primary_reads_what_is_left_of_the_stream(
    tmp_path: Path, made: Made
) -> None:
    async with open_town(tmp_path) as town:
        home, primary, secondary = await siblings(town, others=2)
        async with (
            home.client() as poster,
            primary.client() as one,
            secondary.client() as two,
        ):
            source = await make_stream(poster, home, "s")
            query = asked(passed(home, source, "mid"), Mode.UPSTREAM_BACKUP, secondary)
            await one.create_query(query)
            await one.start_query(query.name)
            await stands_by(primary, secondary, "q/mid")
            await post(poster, source, range(250))
            await until(lambda: primary.kept(home.name("mid")).log.boundary == 249)
            await trio.sleep(0.3)
            await taken_over(made, primary, secondary, query.name)
            served = secondary.up.engine.store.serving(home.name("mid"))
            assert served is not None
            assert served.log.start == 249
            await two.create_query(windows(home, home.name("mid")))
            await two.start_query(home.name("q/out"))
            sums = Sums(poster, home.name("out"))
            await poster.post_event(source, rows((at, at) for at in range(250, 777)), end=True)
            await sums.take(END)
            assert sums.rows[-4:] == expected(range(777))[-4:]
            # and nobody makes a peer hold what it has not
            connection = await home.up.engine.overlay.connect(parse_peer_id(secondary.id))
            request = Subscribe(home.name("mid"), 300, "greedy", keep=1)
            async with connection.open("subscribe", request) as duplex:
                await duplex.receive(Tuples)
                assert served.log.retention.held(frozenset()) >= served.log.start


# -- what is kept, and for how long ---------------------------------------------------------------


@pytest.mark.parametrize("mode", [Mode.UPSTREAM_BACKUP, Mode.PASSIVE_STANDBY])
async def test_a_deleted_query_holds_nothing_of_its_inputs(
    tmp_path: Path, made: Made, mode: Mode
) -> None:
    async with open_town(tmp_path) as town:
        home, secondary = await siblings(town)
        async with home.client() as client:
            source = await make_stream(client, home, "s")
            query = asked(windows(home, source), mode, secondary)
            await client.create_query(query)
            await client.start_query(query.name)
            await stands_by(home, secondary, "q/out")
            await post(client, source, range(250))
            retention = home.kept(source).log.retention
            await until(lambda: len(retention.consumers) > 1)
            await client.stop_query(query.name)
            await client.delete_query(query.name)
            await until(lambda: secondary.up.engine.standbys.get(query.name) is None)
            await trio.sleep(0.2)
            held = [each for each in retention.consumers if "mit.edu " not in each]
            assert held == []


async def test_two_queries_do_not_hold_for_each_others_secondaries(
    tmp_path: Path, made: Made
) -> None:
    """The input is let go of when the last of them has it, not the first."""
    async with open_town(tmp_path) as town:
        home, primary, secondary = await siblings(town, others=2)
        async with home.client() as poster, primary.client() as owner:
            source = await make_stream(poster, home, "s")
            for path in ("a", "b"):
                query = asked(windows(home, source, path), Mode.PASSIVE_STANDBY, secondary)
                await owner.create_query(query)
                await owner.start_query(query.name)
                await stands_by(primary, secondary, f"q/{path}")
            retention = primary.kept(source).log.retention
            assert len([each for each in retention.consumers if "secondary" in each]) == 2


async def test_a_secondary_that_is_the_home_of_the_input_lets_go_of_it(
    tmp_path: Path, made: Made
) -> None:
    async with open_town(tmp_path) as town:
        home, primary = await siblings(town)
        async with home.client() as poster, primary.client() as owner:
            source = await make_stream(poster, home, "s", history_us=0)
            query = asked(windows(home, source), Mode.PASSIVE_STANDBY, home)
            await owner.create_query(query)
            await owner.start_query(query.name)
            await stands_by(primary, home, "q/out")
            for start in range(0, 1000, 50):
                await post(poster, source, range(start, start + 50))
            log = home.kept(source).log
            await until(lambda: log.retention.held(frozenset()) > 800, "it is let go of")
            mirror = primary.kept(source).log
            await until(lambda: mirror.retention.held(frozenset()) > 800, "and at the primary")


async def test_amnesia_goes_on_though_its_producer_keeps_no_history(
    tmp_path: Path, made: Made
) -> None:
    async with open_town(tmp_path) as town:
        home, primary, secondary, reader = await siblings(town, others=3)
        async with home.client() as poster, primary.client() as owner, reader.client() as client:
            source = await make_stream(poster, home, "s", history_us=0)
            query = asked(passed(home, source, "out"), Mode.AMNESIA, secondary)
            await owner.create_query(query)
            await owner.start_query(query.name)
            await stands_by(primary, secondary, "q/out")
            subscription = client.subscribe(home.name("out"))
            for start in range(0, 500, 50):
                await post(poster, source, range(start, start + 50))
                while subscription.boundary < start + 49:
                    await anext(subscription)
            await die(made, primary, town, home, secondary, reader)
            await poster.post_event(source, rows((at, at) for at in range(500, 600)), end=True)
            got: list[int] = []
            with trio.fail_after(60):
                while subscription.boundary < END:
                    got += (await anext(subscription)).table.column("value").to_pylist()
            assert got == list(range(500, 600))


async def test_an_active_secondary_has_the_window_that_is_open_when_it_joins(
    tmp_path: Path, made: Made
) -> None:
    """Although the producer has let go of it: the primary has it."""
    async with open_town(tmp_path) as town:
        home, primary, secondary, reader = await siblings(town, others=3)
        async with home.client() as poster, primary.client() as owner, reader.client() as client:
            for place in (home, secondary, reader):
                believes(made, primary, place.id, Health.DEAD)  # nobody to choose from
            source = await make_stream(poster, home, "s", history_us=0)
            query = asked(windows(home, source), Mode.ACTIVE_STANDBY, secondary)
            await owner.create_query(query)
            await owner.start_query(query.name)
            sums = Sums(client, home.name("out"))
            for start in range(0, 280, 20):
                await post(poster, source, range(start, start + 20))
                await sums.take(start + 19)
            log = home.kept(source).log
            await until(lambda: log.start > 250, "the producer has let go of it")
            believes(made, primary, secondary.id, Health.ALIVE)
            await stands_by(primary, secondary, "q/out")
            boundary = standby_boundary(secondary, "q/out", "out")
            await until(lambda: boundary() >= 279, "it is where the primary is")
            await die(made, primary, town, home, secondary, reader)
            await poster.post_event(source, rows((at, at) for at in range(280, 777)), end=True)
            await sums.take(END)
            assert sums.rows == expected(range(777))


# -- secondaries that cannot -----------------------------------------------------------------------


async def test_a_standby_goes_on_when_its_query_is_stopped_and_started(
    tmp_path: Path, made: Made
) -> None:
    async with open_town(tmp_path) as town:
        home, primary, secondary = await siblings(town, others=2)
        async with home.client() as poster, primary.client() as owner:
            source = await make_stream(poster, home, "s")
            query = asked(windows(home, source), Mode.ACTIVE_STANDBY, secondary)
            await owner.create_query(query)
            await owner.start_query(query.name)
            await stands_by(primary, secondary, "q/out")
            standby = secondary.up.engine.standbys.get(query.name)
            assert standby is not None
            await until(lambda: standby.stored.entry.status == "RUNNING")
            await owner.stop_query(query.name)
            await until(lambda: standby.stored.entry.status == "STOPPED")
            await owner.start_query(query.name)
            await until(lambda: standby.stored.entry.status == "RUNNING")
            assert secondary.up.engine.standbys.get(query.name) is standby


async def test_a_candidate_that_refuses_does_not_stand_in_the_way(
    tmp_path: Path, made: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_town(tmp_path) as town:
        home, primary, secondary = await siblings(town, others=2)
        stand_by = Standbys.stand_by

        async def refuse(self: Standbys, *args: Any) -> Any:
            if self is secondary.up.engine.standbys:
                raise InvalidInputError("what is this?")
            return await stand_by(self, *args)

        monkeypatch.setattr(Standbys, "stand_by", refuse)
        async with home.client() as poster, primary.client() as owner:
            source = await make_stream(poster, home, "s")
            query = asked(windows(home, source), Mode.UPSTREAM_BACKUP, secondary)
            await owner.create_query(query)
            await stands_by(primary, home, "q/out")


async def test_consumers_do_not_wait_for_a_secondary_that_lost_everything_and_refuses(
    tmp_path: Path, made: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_town(tmp_path) as town:
        home, primary, secondary = await siblings(town, others=2)
        believes(made, primary, home.id, Health.DEAD)  # not chosen
        async with home.client() as poster, primary.client() as owner:
            source = await make_stream(poster, home, "s")
            query = asked(passed(home, source, "out"), Mode.PASSIVE_STANDBY, secondary)
            await owner.create_query(query)
            await owner.start_query(query.name)
            await stands_by(primary, secondary, "q/out")
            kept = primary.kept(home.name("out"))
            await until(lambda: kept.gate is not None, "it is caught up")

            async def refuse(self: Standbys, *_: Any) -> Any:
                raise StorageFullError("no room")

            monkeypatch.setattr(Standbys, "stand_by", refuse)
            standbys = secondary.up.engine.standbys
            standby = standbys.get(query.name)
            assert standby is not None
            await standbys._drop(standby)
            subscription = poster.subscribe(home.name("out"))
            await post(poster, source, range(100))
            with trio.fail_after(20):
                while subscription.boundary < 99:
                    await anext(subscription)


async def test_a_takeover_that_was_decided_is_finished_when_there_is_room(
    tmp_path: Path, made: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Although its primary turns out to live."""
    async with open_town(tmp_path) as town:
        home, primary, secondary, reader = await siblings(town, others=3)
        change_role, full = StreamStore.change_role, True

        async def refuse(self: StreamStore, *args: Any) -> None:
            if full and self is secondary.up.engine.store:
                raise StorageFullError("no room")
            await change_role(self, *args)

        async with home.client() as poster, primary.client() as owner, reader.client() as client:
            source = await make_stream(poster, home, "s")
            query = asked(windows(home, source), Mode.PASSIVE_STANDBY, secondary)
            await owner.create_query(query)
            await owner.start_query(query.name)
            await stands_by(primary, secondary, "q/out")
            sums = Sums(client, home.name("out"))
            await post(poster, source, range(250))
            await sums.take(249)
            monkeypatch.setattr(StreamStore, "change_role", refuse)
            believes(made, secondary, primary.id, Health.DEAD)
            await trio.sleep(0.5)
            believes(made, secondary, primary.id, Health.ALIVE)
            await trio.sleep(0.5)
            full = False
            await until(lambda: has(secondary, query.name) != has(primary, query.name))
            await poster.post_event(source, rows((at, at) for at in range(250, 777)), end=True)
            await sums.take(END)
            assert sums.rows == expected(range(777))
            assert has(secondary, query.name) != has(primary, query.name)


# -- others who work on it ------------------------------------------------------------------------


async def test_the_worker_of_a_dead_primary_is_released_by_its_successor(
    tmp_path: Path, made: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("engine.moves.assignments.CONFIRM_S", 0.05)
    async with open_town(tmp_path) as town:
        home, primary, secondary, worker = await siblings(town, others=3)
        async with home.client() as poster, primary.client() as owner:
            source = await make_stream(poster, home, "s")
            query = asked(windows(home, source), Mode.UPSTREAM_BACKUP, secondary)
            await owner.create_query(query)
            await owner.start_query(query.name)
            sums = Sums(poster, home.name("out"))
            await post(poster, source, range(250))
            await sums.take(249)
            await stands_by(primary, secondary, "q/out")
            await primary.up.engine.mover.move(home.name("out"), worker.id, Deal(giver=primary.id))
            await post(poster, source, range(250, 520))
            await sums.take(519)
            await die(made, primary, town, home, secondary, worker)
            await until(lambda: not worker.up.engine.assignments.all(), "it is released")
            await poster.post_event(source, rows((at, at) for at in range(520, 777)), end=True)
            await sums.take(END)
            assert sums.rows == expected(range(777))


async def test_a_peer_that_stops_hears_no_more_of_others(tmp_path: Path, made: Made) -> None:
    async with open_town(tmp_path) as town:
        home, other = await siblings(town)
        detector = made[bytes.fromhex(home.id)]
        await until(lambda: len(detector.changed) > 1)
        await town.stop(home)
        assert detector.changed == []
        assert other.up


async def test_a_query_started_as_its_primary_died_is_taken_over(
    tmp_path: Path, made: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The secondary has not been told; the client has."""
    async with open_town(tmp_path) as town:
        home, primary, secondary, reader = await siblings(town, others=3)
        async with home.client() as poster, reader.client() as client:
            async with primary.client() as owner:
                source = await make_stream(poster, home, "s")
                query = asked(windows(home, source), Mode.UPSTREAM_BACKUP, secondary)
                await owner.create_query(query)
                await stands_by(primary, secondary, "q/out")

                async def mute(*_: object) -> None:
                    await trio.lowlevel.checkpoint()

                monkeypatch.setattr(Primaries, "_attend", mute)
                await owner.start_query(query.name)
            standby = secondary.up.engine.standbys.get(query.name)
            assert standby is not None
            assert standby.stored.entry.status == "SETUP"
            await die(made, primary, town, home, secondary, reader)
            sums = Sums(client, home.name("out"))
            await poster.post_event(source, rows((at, at) for at in range(777)), end=True)
            await sums.take(END)
            assert sums.rows == expected(range(777))


async def test_a_secondary_whose_disk_is_full_hears_its_primary_all_the_same(
    tmp_path: Path, made: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("engine.replicas.standby.SAVE_S", 0.0)
    async with open_town(tmp_path) as town:
        home, primary, secondary = await siblings(town, others=2)
        async with home.client() as poster, primary.client() as owner:
            source = await make_stream(poster, home, "s")
            query = asked(passed(home, source, "out"), Mode.UPSTREAM_BACKUP, secondary)
            bound = msgspec.structs.replace(query.availability, bound_s=1.0)
            query = msgspec.structs.replace(query, availability=bound)
            await owner.create_query(query)
            await owner.start_query(query.name)
            await stands_by(primary, secondary, "q/out")

            def refuse(*_: object) -> None:
                raise StorageFullError("no room")

            files = secondary.up.engine.queries.files
            monkeypatch.setattr(files, "save", refuse)
            for start in range(0, 300, 10):
                await post(poster, source, range(start, start + 10))
                await trio.sleep(0.1)
            assert has(primary, query.name)
            assert secondary.up.engine.standbys.get(query.name) is not None


async def test_a_stream_whose_time_runs_faster_than_the_clock_deposes_nobody(
    tmp_path: Path, made: Made
) -> None:
    """A bound is of the clock, not of the stream's own time: a day may be posted in a second."""
    async with open_town(tmp_path) as town:
        home, primary, secondary = await siblings(town, others=2)
        async with home.client() as poster, primary.client() as owner:
            source = await make_stream(poster, home, "s")
            query = asked(passed(home, source, "out"), Mode.ACTIVE_STANDBY, secondary)
            bound = msgspec.structs.replace(query.availability, bound_s=2.0)
            query = msgspec.structs.replace(query, availability=bound)
            await owner.create_query(query)
            await owner.start_query(query.name)
            await stands_by(primary, secondary, "q/out")
            standby = secondary.up.engine.standbys.get(query.name)
            assert standby is not None
            hour = 3_600_000_000
            made_in_a_day = rows((number * hour, number) for number in range(10))
            await poster.post_event(source, made_in_a_day, boundary=9 * hour)
            await poster.flush()
            boundary = standby_boundary(secondary, "q/out", "out")
            await until(lambda: boundary() == 9 * hour)
            standby.note_boundaries(trio.current_time())
            late = KeepUp(query.name, standby.tenure.fence, {}, {home.name("out"): 8 * hour})
            assert standby.hear(late, trio.current_time()).behind_us < 1_500_000
            assert standby.hear(late, trio.current_time() + 5).behind_us > 4_000_000


async def test_a_standby_that_is_dropped_as_it_opens_is_dropped(tmp_path: Path, made: Made) -> None:
    """Before its copies have begun."""
    async with open_town(tmp_path) as town:
        home, primary, secondary = await siblings(town, others=2)
        async with home.client() as poster, primary.client() as owner:
            source = await make_stream(poster, home, "s")
            query = asked(passed(home, source, "out"), Mode.PASSIVE_STANDBY, home)
            await owner.create_query(query)
            await stands_by(primary, home, "q/out")
            standbys = secondary.up.engine.standbys
            stored = primary.up.engine.queries.get(query.name).stored
            with trio.fail_after(20):
                for _ in range(5):
                    standby = await standbys._open(stored)
                    await standbys._drop(standby)
            assert not secondary.up.engine.store.all()


async def test_a_query_whose_stop_was_not_waited_for_can_be_started_again(
    tmp_path: Path, made: Made
) -> None:
    async with open_town(tmp_path) as town:
        (place,) = await siblings(town, others=0)
        async with place.client() as client:
            source = await make_stream(client, place, "s")
            await client.create_query(windows(place, source))
            await client.start_query(place.name("q/out"))
            running = place.up.engine.queries.get(place.name("q/out"))
            with trio.CancelScope() as scope:
                scope.cancel()
                await running.stop()
            running.start(place.up.engine.queries._nursery)
            sums = Sums(client, place.name("out"))
            await client.post_event(source, rows((at, at) for at in range(777)), end=True)
            await sums.take(END)
            assert sums.rows == expected(range(777))
