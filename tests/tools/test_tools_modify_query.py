"""`medusa query modify` as a person runs it: on the command line, by documents, and its
refusals."""

from __future__ import annotations

import io
import json
import shlex
from collections import Counter
from pathlib import Path

import msgspec
import pyarrow as pa
import pytest
import trio
from deadline import DEADLINE_S
from engine_peers import Cluster, until
from tools_prompt import Prompt
from tools_travel import MINUTE_S, THREE, examples, world

from medusa.engine.language.modification import BoxChange, Modified
from medusa.engine.objects.definitions import QueryEntry
from medusa.engine.objects.query import Box, Filter
from medusa.engine.streams.config import Timing
from medusa.tools.client.async_client import AsyncMedusaClient
from medusa.tools.client.blocking import MedusaClient

# the whole history still exists at the end
pytestmark = [
    pytest.mark.cluster(timing=Timing(maintenance_s=3600.0)),
    pytest.mark.usefixtures("interpreted"),
]


QUERY = "medusa://mit.edu/busy_sources"
TWO_S, FOUR_S, FIVE_S, SIX_S = (THREE + hours * 60 * MINUTE_S for hours in (-1, 1, 2, 3))
"""The world runs from two to four o'clock; these tests continue it until six."""
FIVE = "2018-03-24T17:00:00Z"
FIVE_US = FIVE_S * 1_000_000

ONE = ("--box", "busy", "--set", "expression.0=conns > 0")
BOTH = """<borealis>
  <modify box="count" at="2018-03-24T17:00:00Z">
    <parameter name="window-size" value="120"/>
  </modify>
  <modify box="busy">
    <param name="expression.0" value="conns &gt; 2"/>
  </modify>
</borealis>
"""

Answer = tuple[int, str, int]
"""The fields of an answer: stime, address, number of tuples."""


def conns(begin_s: int, end_s: int) -> list[tuple[int, str]]:
    """Return the times and addresses of the world's tuples, and of further tuples in the same
    pattern."""
    # times that the world has passed
    times = (at for at in range(begin_s, end_s, 10) if at != FOUR_S)
    return [(at, f"10.0.0.{(at - TWO_S) // 10 % 4}") for at in times]


def wanted(after_s: int, upto_s: int, *, window_s: int, least: int) -> list[Answer]:
    """Return the addresses that have at least `least` tuples in a window that ends after `after_s`,
    and at `upto_s` at the latest."""
    numbers = Counter((at // window_s, source) for at, source in conns(TWO_S, SIX_S))
    return [
        ((window + 1) * window_s * 1_000_000 - 1, source, number)
        for (window, source), number in sorted(numbers.items())
        if number >= least and after_s < (window + 1) * window_s <= upto_s
    ]


async def answers(client: AsyncMedusaClient, stream: str = "busy") -> list[Answer]:
    """Return all results once the stream has reached six o'clock."""
    rows = conns(FOUR_S, SIX_S)
    table = pa.table(
        {
            "ts": pa.array([float(at) for at, _ in rows]),
            "src_ip": pa.array([source for _, source in rows]),
            "dst_port": pa.array([None] * len(rows), pa.int32()),
        }
    )
    await client.post_event("medusa://mit.edu/conns", table, boundary=SIX_S * 1_000_000)
    found: list[Answer] = []
    with trio.fail_after(DEADLINE_S):
        async for epoch in client.subscribe(f"medusa://mit.edu/{stream}"):
            columns = (epoch.table.column(name) for name in ("stime", "src_ip", "conns"))
            found += zip(*(column.to_pylist() for column in columns), strict=True)
            if epoch.upto >= SIX_S * 1_000_000 - 1:
                break
    return found


async def boxes(client: AsyncMedusaClient) -> tuple[int, dict[str, Box]]:
    """Return the edition that all peers report, and its boxes."""
    found = await client.lookup_object(QUERY)
    entry = msgspec.json.decode(found.entries["query"], type=QueryEntry)
    return entry.edition, {box.name: box for box in entry.query.boxes}


def typed_in(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    """Set the standard input of the next command."""
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(text.encode())))


async def test_a_box_is_modified_from_the_prompt(
    cluster: Cluster, capfd: pytest.CaptureFixture[str]
) -> None:
    mit = await cluster.settle("mit.edu")
    prompt = Prompt(mit.home.folder, capfd)
    client = await cluster.client(mit)
    await world(client, mit)
    said = f"{QUERY}: modified; counts after 2018-03-24 17:00:00 ({FIVE_US})\n"
    one = ("query", "modify", QUERY, *ONE)
    assert await prompt(*one, "--at", FIVE, "--alone") == said
    again = await prompt("query", "modify", QUERY, *ONE)
    assert again == said, "the same again is no change"
    as_json = json.loads(await prompt("query", "modify", QUERY, *ONE, "--json"))
    assert as_json == {"query": QUERY, "since": FIVE_US}
    assert await answers(client) == [
        *wanted(TWO_S, FIVE_S, window_s=60, least=2),
        *wanted(FIVE_S, SIX_S, window_s=60, least=1),
    ]


@pytest.mark.parametrize("source", ["file", "standard input"])
async def test_boxes_are_modified_together_by_a_document(
    cluster: Cluster,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    source: str,
) -> None:
    mit = await cluster.settle("mit.edu")
    prompt = Prompt(mit.home.folder, capfd)
    file = str(tmp_path / "both.xml")
    (tmp_path / "both.xml").write_text(BOTH)
    if source == "standard input":
        file = "-"
        typed_in(monkeypatch, BOTH)
    client = await cluster.client(mit)
    await world(client, mit)
    assert await prompt("query", "modify", QUERY, file) == (
        f"{QUERY}: modified; counts after 2018-03-24 17:00:00 ({FIVE_US})\n"
    )
    assert (await boxes(client))[0] == 1
    assert await answers(client) == [
        *wanted(TWO_S, FIVE_S, window_s=60, least=2),
        *wanted(FIVE_S, SIX_S, window_s=120, least=3),
    ]


SCRIPT = """CREATE QUERY watch AS BEGIN
  CREATE TEMPORARY STREAM counts AS
  SELECT window_start, src_ip, count(*) AS conns
  FROM TUMBLE(TABLE conns, DESCRIPTOR(ts), INTERVAL '60' SECOND) GROUP BY window_start, src_ip;
  CREATE STREAM often AS SELECT * FROM counts WHERE conns >= 2;
END"""
WATCH = "medusa://mit.edu/watch"
MORE = "medusa://mit.edu/often would have the fields window_start timestamp, src_ip string(64), "
RENAMED = (
    "medusa://mit.edu/often would have the fields window_start timestamp, src_ip string(64), "
    "number long instead of window_start timestamp, src_ip string(64), conns long, which those "
    "who read it go by: keep them, or make another query"
)


async def test_an_edited_script_is_taken_and_its_changes_are_shown(
    cluster: Cluster, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    mit = await cluster.settle("mit.edu")
    prompt = Prompt(mit.home.folder, capfd)
    client = await cluster.client(mit)
    await world(client, mit)
    file = tmp_path / "watch.sql"
    side = "CREATE STREAM side (at TIMESTAMP, WATERMARK FOR at AS at - INTERVAL '5' SECOND)"
    file.write_text(f"{side};\n{SCRIPT}")
    await prompt("query", "create", str(file))
    await client.start_query(WATCH)
    await until(lambda: mit.state("often").log.boundary >= FOUR_S * 1_000_000)
    same = await prompt("query", "modify", WATCH, str(file))
    assert same == f"{WATCH}: it is what the script says; nothing changes\n"
    await prompt("stream", "alter", "medusa://mit.edu/side", "--history", "7200")
    # parameters that the script leaves open stay
    same = await prompt("query", "modify", WATCH, str(file))
    assert same == f"{WATCH}: it is what the script says; nothing changes\n"

    file.write_text(SCRIPT.replace("'60'", "'120'").replace(">= 2", ">= 3"))
    said = await prompt("query", "modify", WATCH, str(file), "--at", FIVE)
    assert said.splitlines() == [
        "box counts, window-size: 60 -> 120",
        "box counts, advance: 60 -> 120",
        "box often, expression.0: conns >= 2 -> conns >= 3",
        f"{WATCH}: modified; counts after 2018-03-24 17:00:00 ({FIVE_US})",
    ]
    assert await answers(client, "often") == [
        *wanted(TWO_S, FIVE_S, window_s=60, least=2),
        *wanted(FIVE_S, SIX_S, window_s=120, least=3),
    ]
    file.write_text(SCRIPT)
    back = json.loads(await prompt("query", "modify", WATCH, str(file), "--json"))
    change = {"box": "counts", "parameter": "window-size", "before": "120", "after": "60"}
    assert change in back["changes"]
    for edited, reason in (
        (
            f"{side.replace('5', '9')} WITH (lateness = 60);\n{SCRIPT}",
            "medusa://mit.edu/side has another slack, lateness than the script says: `medusa "
            "stream alter medusa://mit.edu/side --slack ... --lateness ...` changes that",
        ),
        (SCRIPT.replace("watch", "other"), "it defines medusa://mit.edu/other, not"),
        (SCRIPT.replace("BY window_start, src_ip", "BY window_start"), "neither grouped nor"),
        (SCRIPT.replace("AS conns", "AS conns, min(ts) AS first"), MORE),
        (SCRIPT.replace("often", "seldom"), "there is a new stream seldom; "),
        (SCRIPT.replace("conns", "number").replace("TABLE number", "TABLE conns"), RENAMED),
        (SCRIPT.replace("TEMPORARY ", ""), f"{WATCH}: a modification changes conditions, "),
        (SCRIPT.replace("watch", "watch WITH (ha = 'active_standby')"), "its availability is"),
        (SCRIPT.replace("SELECT * FROM counts", "SELECT conns FROM counts"), "create another"),
        (SCRIPT.replace("conns >= 2", "conn >= 2"), "at line 5"),
    ):
        file.write_text(edited)
        code, out, err = await prompt.outcome("query", "modify", WATCH, str(file))
        assert (code, out) == (1, "")
        assert err.startswith(f"medusa: {file}: ")
        assert reason in err
        assert "box '" not in err, "a script of SQL names no box"
        assert "window-size" not in err, "nor a parameter"


async def test_the_manual_works_as_written(
    cluster: Cluster, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    heading = "## Modifying a query while it runs"
    (document,) = examples("xml", heading)
    (session,) = examples("sh", heading)
    lines = session.splitlines()
    mit = await cluster.settle("mit.edu")
    prompt = Prompt(mit.home.folder, capfd)
    file = tmp_path / "shorter.xml"
    file.write_text(document)
    client = await cluster.client(mit)
    await world(client, mit, minutes=90)  # as far as examples/conns.csv goes
    for command, answer in zip(lines[::2], lines[1::2], strict=True):
        words = shlex.split(command.replace(file.name, str(file)))
        assert words.pop(0) == "medusa"
        assert f"# {await prompt(*words)}" == f"{answer}\n"
    assert (await boxes(client))[0] == 2


async def test_the_option_at_overrides_the_document(
    cluster: Cluster, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    mit = await cluster.settle("mit.edu")
    prompt = Prompt(mit.home.folder, capfd)
    client = await cluster.client(mit)
    await world(client, mit)
    typed_in(monkeypatch, BOTH)
    later = FIVE_US + 1_234_567
    said = await prompt("query", "modify", QUERY, "-", "--at", str(later), "--json")
    assert json.loads(said) == {"query": QUERY, "since": later}


async def test_several_parameters_and_values_with_equals_signs(
    cluster: Cluster, capfd: pytest.CaptureFixture[str]
) -> None:
    mit = await cluster.settle("mit.edu")
    prompt = Prompt(mit.home.folder, capfd)
    document = """<medusa>
          <schema name="medusa://mit.edu/number"><field name="n" type="int"/></schema>
          <stream name="medusa://mit.edu/numbers" schema="medusa://mit.edu/number"/>
          <query name="medusa://mit.edu/q"><box name="sorts" type="filter">
            <input port="1" stream="medusa://mit.edu/numbers"/>
            <output port="1" stream="medusa://mit.edu/small"/>
            <output port="2" stream="medusa://mit.edu/large"/>
            <param name="expression.0" value="n = 1"/><param name="expression.1" value="n = 2"/>
          </box></query></medusa>"""
    client = await cluster.client(mit)
    await client.create_query_xml(document)
    settings = ("--set", "expression.0=n <= 3", "--set", " nexpression.1 =n == 7")
    name = mit.name("q")
    said = await prompt("query", "modify", name, "--box", "sorts", *settings)
    assert said == f"{name}: modified; counts from the beginning\n"
    found = await client.lookup_object(name)
    entry = msgspec.json.decode(found.entries["query"], type=QueryEntry)
    (box,) = entry.query.boxes
    assert isinstance(box, Filter)
    assert box.predicates == ("n <= 3", "n == 7")


@pytest.mark.parametrize(
    "wrong",
    [
        (),
        ("--box", "busy"),
        ("--set", "expression.0=conns > 0"),
        ("file.xml", *ONE),
        ("file.xml", "--box", "busy"),
        ("file.xml", "--set", "expression.0=conns > 0"),
        ("file.xml", "another.xml"),
    ],
)
async def test_the_command_takes_either_a_box_or_a_document(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], wrong: tuple[str, ...]
) -> None:
    code, out, err = await Prompt(tmp_path, capfd).outcome("query", "modify", QUERY, *wrong)
    assert (code, out) == (2, "")
    assert err.startswith("Usage: medusa query modify")


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        (("--set", "expression.0"), "--set 'expression.0': expected NAME=VALUE, like "),
        (("--set", "=conns > 0"), "--set '=conns > 0': expected NAME=VALUE, like "),
        (("--set", "a=1", "--set", ""), "--set '': expected NAME=VALUE, like "),
        (("--set", "a=1", "--at", "noon"), "time 'noon': expected a date and time"),
        (("--set", "a=1", "--at", str(2**63)), "beyond 64 bits"),
    ],
)
async def test_mistyped_arguments_are_refused_before_a_peer_is_asked(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], wrong: tuple[str, ...], reason: str
) -> None:
    refused = Prompt(tmp_path / "no peer", capfd).refused
    assert reason in await refused("query", "modify", QUERY, "--box", "busy", *wrong)


SET = '<parameter name="window-size" value="120"/>'


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "line 1: not well-formed XML: no element found"),
        ("<modify", "line 1: not well-formed XML"),
        ("<borealis>\n\n</borealis>", "line 1: <borealis>: there is no <modify> in it"),
        (f"<medusa>\n<box>{SET}</box></medusa>", "line 2: <box>: expected <modify>, or several"),
        ("<modify\nbox='count'/>", "line 1: <modify>: it has no <parameter>"),
        (f"\n<modify>{SET}</modify>", 'line 2: <modify>: attribute box="..." is missing'),
        (
            f"<modify box='count' at='noon'>{SET}</modify>",
            "line 1: <modify>: time 'noon': expected",
        ),
        (
            "<modify box='count'>\n<parameter name='window-size'/></modify>",
            'line 2: <parameter>: attribute value="..." is missing',
        ),
        (
            "<modify box='count'>\n<set name='window-size' value='1'/></modify>",
            "line 2: <set>: a <modify> has only <parameter> elements",
        ),
        (
            f"<medusa><modify box='count' at='1'>{SET}</modify>\n"
            f"<modify box='busy' at='2'>{SET}</modify></medusa>",
            "line 1: <medusa>: all modifications of one document count from the same boundary on",
        ),
        ("<!DOCTYPE x><modify/>", "line 1: document types and entities are not allowed"),
        ("\xff", "not UTF-8 at byte 0"),
    ],
)
async def test_a_wrong_document_is_refused_with_file_line_and_reason(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], text: str, reason: str
) -> None:
    file = tmp_path / "wrong.xml"
    file.write_text(text, encoding="latin-1")
    said = await Prompt(tmp_path / "no peer", capfd).refused("query", "modify", QUERY, str(file))
    assert said.startswith(f"{file}: {reason}")
    assert said.count(str(file)) == 1


async def test_a_refusal_of_the_peer_takes_one_line_and_changes_nothing(
    cluster: Cluster, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    mit = await cluster.settle("mit.edu")
    prompt = Prompt(mit.home.folder, capfd)
    document = tmp_path / "none.xml"
    async with mit.client() as client:
        await world(client, mit)
        before = await boxes(client)
        out = mit.state("busy").log.boundary
        for arguments, reason in [
            ((QUERY, "--box", "net", *ONE[2:]), "has no box 'net'; there are count, busy"),
            ((QUERY, *ONE[:3], "predicate=n"), "box 'busy': parameter 'predicate': unknown"),
            ((QUERY, *ONE[:3], "expression.0=conns >"), "box 'busy': expression 0: "),
            ((QUERY, *ONE[:3], "expression.0=size > 0"), "box 'busy': expression 0: "),
            ((QUERY, *ONE, *ONE[2:]), "box 'busy': parameter 'expression.0' occurs twice"),
            ((QUERY, "--box", "count", "--set", "window-size=long"), "'long' is not a number"),
            ((QUERY, "--box", "count", "--set", "group-by=dst_port"), "would have the fields"),
            ((QUERY, *ONE, "--at", "2018-03-24T15:00:00Z"), f"it can count from {out} ("),
            (("medusa://mit.edu/none", *ONE), "query medusa://mit.edu/none: not found"),
            (("medusa://mit.edu/conns", *ONE), "query medusa://mit.edu/conns: not found"),
            (("medusa://utah.edu/q", *ONE), "is administered by utah.edu, not by mit.edu"),
            (("q", *ONE), "object name 'q': must look like medusa://participant/path"),
            ((QUERY, str(document)), f"no such file: {document}"),
            (("q\udcff", *ONE), "is not UTF-8"),
            ((QUERY, *ONE[:3], "expression.0=\udcff"), "is not UTF-8"),
        ]:
            assert reason in await prompt.refused("query", "modify", *arguments)
        assert await boxes(client) == before
    await cluster.stop(mit)
    assert "is not running" in await prompt.refused("query", "modify", QUERY, *ONE)


async def test_the_blocking_client_modifies_as_well(cluster: Cluster) -> None:
    mit = await cluster.settle("mit.edu")
    change = BoxChange("busy", (("expression.0", "conns > 0"),))

    def use() -> Modified:
        with MedusaClient(mit.home.folder) as blocking:
            return blocking.modify_query(QUERY, [change], FIVE_US)

    client = await cluster.client(mit)
    await world(client, mit)
    assert await trio.to_thread.run_sync(use) == Modified(QUERY, FIVE_US)
    assert (await boxes(client))[0] == 1
