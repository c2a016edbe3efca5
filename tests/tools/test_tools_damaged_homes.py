"""Every file of a home is damaged in every way: the peer starts and names its loss, or one line
names the file and the mend; no traceback appears."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest
import trio
from damaged_files import make_folder
from engine_interpreted import interpret
from engine_peers import Place, begin, make_stream, open_cluster, received, rows, until
from moving_tasks import post, windows
from tools_market_cluster import contracted, set_up, settle

from medusa.engine.replication.records.placements import Deal
from medusa.overlay.encoding import encode
from medusa.overlay.errors import ConflictError, MedusaError
from medusa.overlay.identity import Identity
from medusa.tools.commands.peer.inspect_command import inspect
from medusa.tools.commands.peer.inspection import Inspection, inspect_home
from medusa.tools.daemon.peer import open_peer
from medusa.tools.home.config import write_bootstrap
from medusa.tools.home.folder import Home

ANYTHING = {"flipped", "halved", "all 0xff", "large", "empty", "folder", "no file"}
PAGES = {"flipped"}
"""Damage of a Parquet file that a peer finds only when it reads the damaged page."""

KINDS: dict[str, set[str]] = {
    "bootstrap.json": {"missing"},
    "client.token": {"flipped", "halved", "all 0xff"},
    "contracts/*.contract": set(),
    "contracts/.lock": {*ANYTHING, "missing"},
    "data/assignments/*.json": set(),
    "data/ballots/*.json": set(),
    "data/catalog.sqlite": {"flipped", "large", "empty", "missing"},
    "data/incarnation": {"flipped", "halved", "missing"},
    "data/leases.json": set(),
    "data/peers": {"missing"},
    "data/queries/*.json": set(),
    "data/schemas/*.json": set(),
    "data/streams/mit.edu,out/log/*.parquet": {*PAGES, "missing"},
    "data/streams/mit.edu,s/journal/*.journal": set(),
    "data/streams/mit.edu,s/late/*.parquet": {*PAGES, "missing"},
    "data/streams/mit.edu,s/late-journal/*.journal": set(),
    "data/streams/mit.edu,s/log/*.parquet": {*PAGES, "missing"},
    "data/streams/mit.edu,s/stream.json": set(),
    "data/streams/mit.edu,r@home/journal/*.journal": set(),
    "data/streams/mit.edu,r@home/stream.json": set(),
    "data/streams/utah.edu,t/log/*.parquet": {*PAGES, "missing"},
    "federation": set(),
    "federation.lock": {"flipped", "halved", "all 0xff", "large", "empty", "missing"},
    "ledger.sqlite": {"flipped", "large", "empty"},
    "medusa.toml": {"flipped", "halved", "empty", "missing"},
    "peer.crt": set(),
    "peer.key": set(),
    "root.crt": set(),
}
"""By file: which damage may pass without a message. A file may be missing if the peer can restore
it without loss from other files, from other peers or from the clock; also the newest file of a log,
and settings."""

UNMENDED = {"client.token", "federation", "peer.crt", "peer.key", "root.crt"}
"""Files without which a peer does not start; the error says no more than that they are missing."""

MEND = re.compile(
    r"restore it|remove|it is fetched again|it is put aside as|put a copy|made anew|look at"
    r"|must be a file|save it|move it away|is kept as|write into it|in its place|has cut the file"
)


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    if data:
        data[len(data) // 2] ^= 1
        path.write_bytes(data)


def halve(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def empty(path: Path) -> None:
    os.truncate(path, 0)


def fill(path: Path) -> None:
    path.write_bytes(b"\xff" * max(1, path.stat().st_size))


def enlarge(path: Path) -> None:
    os.truncate(path, 65 * 2**20)


def make_unreadable(path: Path) -> None:
    """Make a file unreadable, also for root, who may read any file: it becomes a link to itself."""
    path.unlink()
    path.symlink_to(path.name)


DAMAGE: dict[str, Callable[[Path], None]] = {
    "flipped": flip,
    "halved": halve,
    "empty": empty,
    "all 0xff": fill,
    "large": enlarge,
    "folder": make_folder,
    "no file": make_unreadable,
    "missing": Path.unlink,
}


async def build(folder: Path) -> Place:
    """Build a peer that has an object of every kind, and that knows no other peer."""
    async with open_cluster(folder, leader_silence_s=0.4) as cluster:
        one = await settle(cluster, "mit.edu", 100)
        two, three = [await settle(cluster, "mit.edu", 100, sibling=True) for _ in range(2)]
        utah = await settle(cluster, "utah.edu", 100)
        await cluster.acquainted(one, two, three, utah)
        await contracted(one, utah)
        async with one.client() as client, two.client() as second, utah.client() as other:
            stream = await make_stream(client, one, "s", writers=("*",))
            replicated = await make_stream(client, one, "r", k_safety=1)
            theirs = await make_stream(other, utah, "t")
            await client.post_event(replicated, rows([(1, 1), (2, 2)]), boundary=2)
            for place, asked, source, path in (
                (one, client, stream, "out"),
                (one, client, theirs, "out2"),
                (two, second, stream, "out3"),
            ):
                await begin(asked, windows(place, source, path))
            await two.up.engine.mover.move(two.name("out3"), one.peer_id, Deal(giver=two.id))
            reader = other.subscribe(stream, subscriber="me")
            for start in range(0, 300, 100):
                await post(client, stream, range(start, start + 90))
                await post(other, theirs, range(start, start + 90))
                await until(lambda end=start + 89: one.state(stream).log.boundary == end)
                await until(lambda end=start + 89: one.state("out").log.boundary == end)
            await client.post_event(stream, rows([(5, 5)]))
            await post(client, stream, range(300, 310))
            await until(lambda: one.state("s/late").log.files.rows == 1)
            await received(reader, 10)
        for place in (one, two, three, utah):
            await cluster.stop(place)
    (one.home.data / "peers").write_bytes(encode([]))  # the peer waits for no other peer
    write_bootstrap(one.home, ())
    return one


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Place, Path]]:
    """Give the peer, and its home in the state after its end."""
    with pytest.MonkeyPatch.context() as patch:
        set_up(patch)
        place = trio.run(build, tmp_path_factory.mktemp("cluster"))
        whole = tmp_path_factory.mktemp("whole") / "home"
        shutil.copytree(place.home.folder, whole)
        yield place, whole


async def started(place: Place) -> list[str]:
    """Return the peer's messages at its start."""
    async with open_peer(place.home, place.config) as peer:
        return [event.text for event in peer.engine.overlay.events.recent()]


def outcome(place: Place) -> list[str]:
    try:
        return trio.run(started, place)
    except MedusaError as error:
        return [str(error)]


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_file_is_named_with_its_mend(
    built: tuple[Place, Path], damage: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    interpret(monkeypatch)
    place, whole = built
    for kind, quiet in KINDS.items():
        shutil.rmtree(place.home.folder)
        shutil.copytree(whole, place.home.folder)
        path = sorted(place.home.folder.glob(kind))[-1]
        DAMAGE[damage](path)
        said = [text for text in outcome(place) if str(path) in text or str(path.parent) in text]
        assert said or damage in quiet, f"{kind}, {damage}: nothing was said"
        mended = damage == "missing" and kind in UNMENDED
        for text in said:
            assert mended or MEND.search(text), (kind, damage, said)
            assert "\n" not in text


def test_the_home_itself_is_whole(
    built: tuple[Place, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    interpret(monkeypatch)
    place, whole = built
    shutil.rmtree(place.home.folder)
    shutil.copytree(whole, place.home.folder)
    assert not [text for text in outcome(place) if str(place.home.folder) in text]


def test_a_folder_of_no_known_stream_is_reported(
    built: tuple[Place, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    interpret(monkeypatch)
    place, whole = built
    shutil.rmtree(place.home.folder)
    shutil.copytree(whole, place.home.folder)
    path = place.home.data / "streams" / "utah.edu,t" / "stream.json"
    path.unlink()
    assert any(f"found {path.parent} without stream.json" in text for text in outcome(place))


UNREAD = {
    "bootstrap.json",
    "client.token",
    "contracts/*.contract",
    "contracts/.lock",
    "data/peers",
    "data/schemas/*.json",
    "federation.lock",
    "medusa.toml",
    "root.crt",
}
"""Files that `medusa-peer inspect` does not read."""


def restored(place: Place, whole: Path) -> Home:
    shutil.rmtree(place.home.folder)
    shutil.copytree(whole, place.home.folder)
    return place.home


def contents(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


def test_a_stopped_home_is_inspected_and_stays_as_it_is(
    built: tuple[Place, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    place, whole = built
    home = restored(place, whole)
    before = contents(home.folder)
    seen = inspect_home(home)
    assert contents(home.folder) == before
    assert seen.damaged == ()
    me = Identity.load(home.folder).peer_id.hex()
    assert (seen.participant, seen.peer, seen.federation) == ("mit.edu", me, "cluster")
    assert seen.incarnation > 0
    source = next(each for each in seen.streams if each.name == place.name("s"))
    log, late = source.logs
    assert source.role == "source"
    assert (log.rows, log.boundary, late.rows) == (280, 309, 1)
    assert {journal.name for journal in source.journals} == {"journal", "late-journal"}
    assert all(journal.entries for journal in source.journals)
    assert {query.name for query in seen.queries} == {place.name("q/out"), place.name("q/out2")}
    assert all(query.primary == me and query.term for query in seen.queries)
    (assignment,) = seen.assignments
    assert (assignment.task, assignment.contract) == (place.name("out3"), "")
    (ballot,) = seen.ballots
    assert ballot.stream == place.name("r")
    assert ballot.leader in ballot.voters
    assert len(ballot.voters) == 3
    assert {lease.holder for lease in seen.leases} == {"mit.edu", "utah.edu"}
    assert place.name("s") in seen.catalog.published["stream"]
    assert seen.catalog.records["query"] >= 2
    assert seen.ledger is not None
    assert seen.ledger.fault == ""
    for options in ([], ["--json"]):
        inspect.main(["--home", str(home.folder), *options], standalone_mode=False)
        out, err = capsys.readouterr()
        assert err == ""
        assert place.name("out3") in out
        assert not options or msgspec.json.decode(out, type=Inspection) == seen
    assert contents(home.folder) == before


def test_a_running_home_is_not_inspected(built: tuple[Place, Path]) -> None:
    place, whole = built
    home = restored(place, whole)
    with home.lock(), pytest.raises(ConflictError, match=f"a peer runs in {home.folder}: ask it"):
        inspect_home(home)


@pytest.mark.parametrize("damage", DAMAGE)
def test_inspect_names_what_is_damaged_and_reads_the_rest(
    built: tuple[Place, Path], damage: str
) -> None:
    place, whole = built
    for kind, quiet in KINDS.items():
        home = restored(place, whole)
        path = sorted(home.folder.glob(kind))[-1]
        DAMAGE[damage](path)
        seen = inspect_home(home)
        fault = "" if seen.ledger is None else seen.ledger.fault
        torn = any(journal.torn for stream in seen.streams for journal in stream.journals)
        said = [text for text in seen.damaged if str(path) in text or str(path.parent) in text]
        unread = kind in UNREAD or (damage == "missing" and kind in UNMENDED)
        assert said or fault or torn or unread or damage in quiet, f"{kind}, {damage}"
        assert all("\n" not in text for text in seen.damaged), (kind, damage)
        assert seen.streams or "streams" in kind
