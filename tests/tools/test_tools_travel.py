"""`medusa view` and `medusa query copy` as a person runs them, and as the manual shows them."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest
import trio
from engine_peers import Cluster, until
from tools_prompt import Prompt
from tools_travel import THREE, examples, world

from medusa.engine.objects.view import Last, Range, Recent, View
from medusa.engine.streams.config import Timing
from medusa.overlay.errors import InvalidInputError
from medusa.tools.client.blocking import MedusaClient
from medusa.tools.commands.medusa import travel
from medusa.tools.commands.medusa.travel import view_in_words

pytestmark = [
    pytest.mark.cluster(timing=Timing(maintenance_s=0.02)),
    pytest.mark.usefixtures("interpreted"),
]


def commands(heading: str) -> list[tuple[list[str], str]]:
    """Return the commands of the manual, word by word, with the remark beside each."""
    found = []
    for block in examples("sh", heading):
        for line in block.splitlines():
            command, _, beside = line.partition("#")
            words = command.split()
            assert words[0] == "medusa"
            found.append((words[1:], beside.strip()))
    return found


def stimes(out: str) -> list[float]:
    """Return the stimes in a command's output, in seconds after 15:00:00."""
    return [int(row["stime"]) / 1e6 - THREE for row in csv.DictReader(out.splitlines())]


async def test_the_manual_works_as_written(
    cluster: Cluster, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    mit = await cluster.settle("mit.edu")
    prompt = Prompt(mit.home.folder, capfd)
    client = await cluster.client(mit)
    await world(client, mit)
    ran: dict[str, str] = {}
    for words, beside in commands("## Time travel"):
        more = ["--until", "2018-03-24T16:00:00Z"] if "continues" in beside else []
        ran[" ".join(words)] = await prompt(*words, *more)
    assert len(ran) == 13
    part = [10.0 * n for n in range(1, 61)]
    read = "subscribe medusa://mit.edu/conns --from 2018-03-24T15:"
    assert stimes(ran[f"{read}00:00Z --until 2018-03-24T15:02:00Z"]) == part[:12]
    assert stimes(ran[f"{read}29:00Z"]) == [10.0 * n for n in range(175, 360)]
    assert len(stimes(ran["subscribe medusa://mit.edu/latest"])) == 100
    assert stimes(ran["subscribe medusa://mit.edu/evidence"]) == part
    assert (
        "a part of medusa://mit.edu/conns: from 2018-03-24 15:00:00 to 2018-03-24 15"
        in (ran["lookup medusa://mit.edu/evidence"])
    )
    original = stimes(await prompt("subscribe", mit.name("busy"), *until_four))
    copied = stimes(ran["subscribe medusa://mit.edu/again/busy"])
    # the window [15:00, 15:01) has a tuple of 15:00:00 itself, which is not after that time
    assert copied == [t for t in original if 60 < t <= 600]
    assert copied
    for document in examples("xml", "## Time travel"):
        file = tmp_path / "views.xml"
        file.write_text(document)
        made = (await prompt("stream", "create", str(file))).splitlines()
        assert made == [
            f"medusa://mit.edu/{path}: read by mit.edu alone"
            for path in ("latest", "minutes", "now", "ten_minutes")
        ]
    assert stimes(await prompt("subscribe", mit.name("ten_minutes"))) == part
    listed = await prompt("list")
    for path in ("latest", "minutes", "now", "ten_minutes"):
        assert f"view      medusa://mit.edu/{path}\n" in listed
    assert "evidence" not in listed
    assert "again/busy" not in listed


until_four = ("--until", "2018-03-24T16:00:00Z")


async def test_messages_and_refusals(cluster: Cluster, capfd: pytest.CaptureFixture[str]) -> None:
    mit = await cluster.settle("mit.edu")
    prompt = Prompt(mit.home.folder, capfd)
    client = await cluster.client(mit)
    await world(client, mit)
    conns, log = mit.name("conns"), mit.state("conns").log
    view = ("view", "create", mit.name("v"), "--of", conns)
    assert (await prompt(*view, "--last", "3", "--frozen")) == (
        f"{mit.name('v')}: read by mit.edu alone; the last 3 tuples of {conns}: from 2018-03-24 "
        "15:59:29 to 2018-03-24 16:00:00, and nothing else\n"
    )
    made = json.loads(await prompt(*view, "--last", "3", "--frozen", "--json"))
    assert made["shows"] == {"type": "last", "rows": 3}
    assert made["readers"] == {mit.name("v"): "mit.edu alone"}
    looked_up = json.loads(await prompt("lookup", mit.name("v"), "--json"))
    assert looked_up["stream"]["stream"]["readers"] == ["*"], "its own definition names nobody"
    assert looked_up["readers"] == made["readers"]
    assert "\nread by mit.edu alone\n" in await prompt("lookup", mit.name("v"))
    assert stimes(await prompt("subscribe", mit.name("v"))) == [3570.0, 3580.0, 3590.0]
    assert "exists and differs; delete it first" in await prompt.refused(*view, "--last", "4")
    copied = json.loads(
        await prompt(
            "query",
            "copy",
            mit.name("busy_sources"),
            mit.name("c"),
            "--from",
            "beginning",
            "--json",
        )
    )
    assert mit.name("c/busy") in copied["created"]
    assert copied["readers"] == dict.fromkeys(
        (each for each in copied["created"] if each != mit.name("c")), "mit.edu alone"
    )
    again = ("query", "copy", mit.name("busy_sources"), mit.name("again"), "--from", "beginning")
    assert f"{mit.name('again/busy')}: read by mit.edu alone\n" in await prompt(*again)
    await prompt("query", "delete", mit.name("again"))
    told = await prompt("lookup", mit.name("c"))
    assert "computed over its inputs from the beginning on; version 1\n" in told
    assert (await prompt("view", "delete", mit.name("v"))) == f"{mit.name('v')}: deleted\n"
    assert "v: its owner has deleted it" in await prompt.refused("view", "delete", mit.name("v"))
    log.retention.history_us = 0  # as if the stream's definition did not ask for so long a history
    await prompt("query", "stop", mit.name("busy_sources"))
    await prompt("query", "delete", mit.name("c"))
    await until(lambda: log.start > 0)
    oldest = log.start
    for command in (
        ("subscribe", conns, "--from", "2018-03-24T14:00:00Z"),
        (*view, "--range", "2018-03-24T14:00:00Z..2018-03-24T15:00:00Z"),
        (
            "query",
            "copy",
            mit.name("busy_sources"),
            mit.name("c"),
            "--from",
            "2018-03-24T14:00:00Z",
        ),
    ):
        said = await prompt.refused(*command)
        assert said.startswith(f"{conns} is kept from boundary {oldest} on (2018-03-24T1")
        assert "; 1521900000000000 (2018-03-24T14:00:00Z) is older: " in said
        assert said.endswith(f"begin at {oldest}, or at the beginning")
    assert stimes(await prompt("subscribe", conns, "--from", str(oldest), *until_four))
    assert await prompt("subscribe", conns, *until_four)
    for command, text in (
        (("subscribe", conns, "--from", "20", "--until", "20"), "later than --from"),
        ((*view, "--range", "1..end"), "must end"),
        ((*view, "--range", "1"), "expected T0..T1"),
        ((*view, "--range", "noon..1"), "time 'noon': expected a date"),
        ((*view, "--last-seconds", "nan"), "not a time"),
        ((*view, "--last", "0"), "1 to 100000000 are allowed"),
        (("view", "delete", mit.name("none")), "none"),
        (("query", "copy", conns, mit.name("c"), "--from", "1"), "is no query but: "),
    ):
        assert text in await prompt.refused(*command)
    for wrong in ((), ("--last", "1", "--last-seconds", "1"), ("--last", "some")):
        assert (await prompt.outcome(*view, *wrong))[0] == 2
    assert (await prompt.outcome("query", "copy", "a", "b"))[0] == 2


async def test_the_blocking_client_travels_as_well(cluster: Cluster) -> None:
    mit, client = await cluster.founder()
    await world(client, mit)

    def use() -> None:
        with MedusaClient(mit.home.folder) as blocking:
            asked = View(mit.name("v"), mit.name("conns"), Last(2), frozen=True)
            made = blocking.create_view(asked)
            assert made.after < made.until
            with blocking.subscribe(asked.name) as reader:
                assert sum(epoch.table.num_rows for epoch in reader) == 2
            blocking.delete_view(asked.name)
            names = blocking.copy_query(
                mit.name("busy_sources"), mit.name("c"), THREE * 10**6, THREE * 10**6 + 1
            )
            with blocking.subscribe(names[-1]) as reader:
                assert not any(epoch.table.num_rows for epoch in reader)

    await trio.to_thread.run_sync(use)


def test_times_and_words() -> None:
    assert travel.parse_range("beginning..2018-03-24T15:00:00Z") == Range(-(2**63), THREE * 10**6)
    assert travel.parse_range("-5..10") == Range(-5, 10)
    assert travel.shown(None, 1.5, None) == Recent(1_500_000)
    for text in ("", "..", "1..", "..2", "1.2", "1..2..3"):
        with pytest.raises(InvalidInputError):
            travel.parse_range(text)
    name, stream = "medusa://mit.edu/v", "medusa://mit.edu/s"
    assert view_in_words(View(name, stream, Last(1000), after=THREE * 10**6)) == (
        f"the last 1,000 tuples of {stream}, moving with it; copied from 2018-03-24 15:00:00 on"
    )
    assert view_in_words(View(name, stream, Recent(90_000_000), True, until=THREE * 10**6)) == (
        f"the last 90 s of {stream}: from the beginning to 2018-03-24 15:00:00, and nothing else"
    )
