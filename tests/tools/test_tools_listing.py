"""Status and lists on the command line: of streams, queries and peers."""

from __future__ import annotations

import io
import json
import re
from pathlib import Path

import msgspec
import pytest
from engine_interpreted import interpret
from engine_peers import Cluster, make_stream, send_rows, until
from msgspec.structs import replace
from rich.console import Console, RenderableType
from tools_fake_peer import QUERY, STREAM, FakePeer, fake_peer_in_thread
from tools_prompt import Prompt

from medusa.engine.objects.definitions import ANY, Policy, QueryEntry, StreamDefinition, StreamEntry
from medusa.engine.objects.query import Filter, Query, QueryStatus
from medusa.engine.objects.schema import Schema
from medusa.engine.reading import read_document
from medusa.engine.replication.records.status import PeerStatus, Snapshot
from medusa.engine.streams.config import Timing
from medusa.engine.streams.messages import REFUSES_POSTS, StreamStatus
from medusa.engine.tasks.status import TaskStatus
from medusa.overlay.troubles import Reason, Trouble
from medusa.tools.commands import command_line
from medusa.tools.commands.medusa.listing import QueryLine, StreamLine
from medusa.tools.commands.medusa.listing_screen import (
    queries_table,
    query_details,
    readers_in_words,
    stream_details,
)
from medusa.tools.commands.medusa.medusa_command import medusa
from medusa.tools.monitor.render import render

pytestmark = pytest.mark.cluster(timing=Timing(maintenance_s=0.02))


DOCUMENT = """<medusa>
  <schema name="medusa://mit.edu/conn" time="ts" key="id">
    <field name="ts" type="double"/>
    <field name="id" type="long"/>
    <field name="src_ip" type="string" size="64" nullable="1"/>
  </schema>
  <stream name="medusa://mit.edu/conns" schema="medusa://mit.edu/conn" readers="*"
    slack="5" max_ahead="none"/>
  <stream name="medusa://mit.edu/secret" schema="medusa://mit.edu/conn" readers="brown.edu"/>
  <query name="medusa://mit.edu/few">
    <output stream="medusa://mit.edu/low"/>
    <box name="few" type="filter">
      <input port="1" stream="medusa://mit.edu/conns"/>
      <output port="1" stream="medusa://mit.edu/low"/>
      <param name="expression.0" value="id &lt; 10"/>
    </box>
    <box name="minutes" type="aggregate">
      <input port="1" stream="medusa://mit.edu/low"/>
      <output port="1" stream="medusa://mit.edu/counts"/>
      <param name="aggregate-function.0" value="count()"/>
      <param name="aggregate-function-output-name.0" value="rows"/>
      <param name="window-size" value="60"/>
    </box>
  </query>
</medusa>"""


@pytest.fixture(autouse=True)
def _quick_and_interpreted(monkeypatch: pytest.MonkeyPatch) -> None:
    interpret(monkeypatch)
    monkeypatch.setenv("COLUMNS", "40")  # the width of a terminal; here the output goes elsewhere


async def test_the_commands_list_streams_queries_and_peers(
    cluster: Cluster, capfd: pytest.CaptureFixture[str]
) -> None:
    mit, utah = await cluster.settle_all("mit.edu", "utah.edu")
    at_mit, at_utah = Prompt(mit.home.folder, capfd), Prompt(utah.home.folder, capfd)
    assert (await at_mit("query", "list")) == "no query is defined yet\n"
    async with mit.client() as client:
        await client.create_query_xml(DOCUMENT)
        await client.start_query("medusa://mit.edu/few")
        rows = [{"ts": 100.0 + n, "id": n, "src_ip": "10.0.0.1"} for n in range(30)]
        await client.post_event("medusa://mit.edu/conns", rows)
    await until(lambda: mit.state("low").log.boundary > 0)

    listed = (await at_mit("stream", "list")).splitlines()
    assert listed[0].split() == [
        *("stream", "owner", "made", "by", "who", "may", "read", "boundary", "waiting", "rows/s")
    ]
    assert [line.split("  ")[0] for line in listed[1:]] == [
        f"medusa://mit.edu/{path}" for path in ("conns", "counts", "low", "secret")
    ]
    assert "source" in listed[1]
    assert "every member" in listed[1]
    assert "medusa://mit.edu/few" in listed[3]
    assert "mit.edu, brown.edu" in listed[4]
    # The slack of 5 s holds back the rows of the last five seconds, and those of exactly five
    # seconds ago.
    assert listed[1].split()[-2] == "6"
    assert [line.split()[-2] for line in listed[2:]] == ["-", "-", "-"]
    found = json.loads(await at_mit("stream", "list", "--json"))["streams"]
    assert [line["name"] for line in found] == [line.split("  ")[0] for line in listed[1:]]
    assert found[0]["entry"]["stream"]["readers"] == ["*"]
    assert found[0]["status"]["rows"] > 0

    shown = await at_mit("stream", "show", "medusa://mit.edu/conns")
    for words in (
        "who may read  every member",
        "who may post  mit.edu",
        "medusa://mit.edu/conn, key id",
        "src_ip: string of 64 bytes, may be null",
        "ts: double, the time",
        "slack         5.0s",
        "max ahead     any time",
        "waiting       6 more, for the boundary to pass them",
        "a row more than 5.0s later or the stream's end lets them come out",
    ):
        assert words in shown
    assert "who may read  mit.edu, brown.edu" in await at_mit(
        "stream", "show", "medusa://mit.edu/secret"
    )

    queries = (await at_mit("query", "list")).splitlines()
    assert queries[1].split() == [
        *("medusa://mit.edu/few", "mit.edu", "running"),
        *("medusa://mit.edu/conns", "medusa://mit.edu/low", "running"),
    ] or queries[1].split()[-1] in {"waiting", "starting"}
    shown = await at_mit("query", "show", "medusa://mit.edu/few")
    assert "few: filter, medusa://mit.edu/conns -> medusa://mit.edu/low; expression.0 id < 10" in (
        shown
    )
    assert "minutes: aggregate" in shown
    assert "window-size 60, advance 60" in shown, "as the definition has it"
    assert "status        running\n" in shown
    assert re.search(r"medusa://mit.edu/low (is [a-z]+|waits for input)", shown)
    assert json.loads(await at_mit("query", "show", "medusa://mit.edu/few", "--json"))["tasks"]

    # A participant that may not read a stream receives only its name and its owner.
    for line in (await at_utah("stream", "list")).splitlines():
        if "secret" in line:
            assert "private: mit.edu says who may read it" in line
            assert "brown" not in line
    private = json.loads(await at_utah("stream", "show", "medusa://mit.edu/secret", "--json"))
    assert private["entry"] is None
    assert private["status"] is None
    assert (private["name"], private["owner"]) == ("medusa://mit.edu/secret", "mit.edu")

    peers = (await at_utah("peer", "list")).splitlines()
    assert [line.split()[:2] for line in peers[1:]] == [
        [mit.id[:8], "mit.edu"],
        [utah.id[:8], "utah.edu"],
    ]
    assert len(json.loads(await at_utah("peer", "list", "--json"))) == 2
    told = await at_mit("status")
    assert "federation  cluster: 2 of 2 peers up\n" in told
    assert f"peer        {mit.id[:8]} of mit.edu" in told
    status = json.loads(await at_mit("status", "--json"))
    assert (status["federation"], len(status["peers"])) == ("cluster", 2)

    none = await at_mit.refused("query", "show", "medusa://mit.edu/none")
    assert none == "nothing is known under medusa://mit.edu/none"
    other = await at_mit.refused("query", "show", "medusa://mit.edu/conns")
    assert "is no query but: " in other
    assert "none" in await at_mit.refused("stream", "show", "medusa://mit.edu/none")
    assert "medusa://" in await at_mit.refused("stream", "show", "conns")


HOP = """<medusa><query name="medusa://mit.edu/hop">
  <box name="hop" type="aggregate">
    <input port="1" stream="medusa://mit.edu/conns"/>
    <output port="1" stream="medusa://mit.edu/often"/>
    <param name="aggregate-function.0" value="count()"/>
    <param name="window-size" value="600"/>
    <param name="advance" value="10"/>
    <param name="group-by" value="src_ip"/>
  </box>
</query></medusa>"""


async def test_the_plan_of_a_query_is_explained(
    cluster: Cluster, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    mit, _ = await cluster.settle_all("mit.edu", "utah.edu")
    at_mit = Prompt(mit.home.folder, capfd)
    file = tmp_path / "hop.xml"
    file.write_text(HOP)
    assert "reads medusa://mit.edu/conns, which does not exist" in await at_mit.refused(
        "query", "explain", str(file)
    )
    file.write_text(HOP.replace("often", "often/panes"))
    refused = await at_mit.refused("query", "explain", str(file))
    assert "names in /panes are kept for partial results" in refused
    file.write_text("<medusa/>")
    assert "there is no query in it" in await at_mit.refused("query", "explain", str(file))
    file.write_text(HOP)
    async with mit.client() as client:
        await client.create_query_xml(DOCUMENT)
        foreseen = json.loads(await at_mit("query", "explain", str(file), "--json"))
        await client.create_query_xml(HOP)
    few = await at_mit("query", "explain", "medusa://mit.edu/few")
    assert "minutes: made of its tuples" in few
    assert "few: filter: id < 10\n" in few
    assert "?" not in few, "lines stay lines"
    hop = await at_mit("query", "explain", "medusa://mit.edu/hop")
    assert "medusa://mit.edu/often/panes" in hop
    assert "partial results of panes of 10 s by src_ip" in hop
    assert "windows of 600 s every 10 s by src_ip, of 60 panes each" in hop
    assert "hop: folded from panes: a tuple is read once, not in each of 60 windows" in hop
    explained = json.loads(await at_mit("query", "explain", "medusa://mit.edu/hop", "--json"))
    for task in (*explained[0]["tasks"], *foreseen[0]["tasks"]):
        del task["place"], task["state"]
    assert explained == foreseen, "the file's plan is what was made of it"
    drawn = await at_mit("query", "explain", "medusa://mit.edu/hop", "--plot")
    assert max(map(len, drawn.splitlines())) <= 100
    assert drawn.index("1 medusa://mit.edu/often/panes ") < drawn.index("3 medusa://mit.edu/often ")
    assert f"at peer {mit.id[:8]}, stopped" in drawn
    script = tmp_path / "plan.sql"
    script.write_text("EXPLAIN SELECT id FROM conns WHERE id > 1")
    assert "answer.where: filter: id > 1" in await at_mit("query", "explain", str(script))
    assert "EXPLAIN asks for a plan" in await at_mit.refused("query", "create", str(script))
    assert "panes" not in await at_mit("query", "list")
    assert "panes" not in await at_mit("stream", "list")


def test_status_and_lists_show_failing_tasks_and_absent_peers(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(*arguments: str, code: int = 0) -> str:
        with pytest.raises(SystemExit) as left:
            command_line.run(medusa, [*arguments, "--home", str(tmp_path)])
        assert left.value.code == code
        return capfd.readouterr().out

    task = TaskStatus("t", QUERY, (), 0, 0, 0.0, 0.0, 0.0, "failing", "Spark does not\x1b[2J start")
    trouble = Trouble(Reason.TASK_FAILS, "t", f"fails: {task.reason}", "mend it", 0.5)
    warning = Trouble(Reason.DISK_NEARLY_FULL, "the disk", "fills", "clear it", 0.5)
    refusing = Trouble(Reason.REFUSES_POSTS, STREAM, "refuses posts: it burns", "quench it", 0.5)
    away_for = Trouble(Reason.SIBLING_AWAY, f"our peer {'ef' * 20}", "does not answer", "", 0.5)
    stream = StreamStatus(STREAM, "source", 0.0, 0, 0.0, 0, 0, 0, 0, state=REFUSES_POSTS)
    here = PeerStatus(
        "mit.edu",
        "ab" * 20,
        "127.0.0.1:1",
        "running",
        tasks=(task,),
        streams=(stream,),
        troubles=(away_for, refusing, trouble, warning),
    )
    away = PeerStatus("utah.edu", "cd" * 20, "192.0.2.1:7", "unreachable", health="dead")

    async def status(*_: object) -> Snapshot:
        return Snapshot(1.0, here.peer, "fed", (here, away))

    monkeypatch.setattr(FakePeer, "_status", status)
    with fake_peer_in_thread(tmp_path):
        listed = run("query", "list")
        assert "failing: Spark does not?[2J start" in listed
        # the query disappeared while the list was made
        assert f"nothing is known under {QUERY}2" in listed
        told = run("status")
        assert told.splitlines()[:4] == [
            "trouble     our peer efefefef does not answer (for 0.5s)",
            f"trouble     {STREAM} refuses posts: it burns; quench it (for 0.5s)",
            "trouble     t fails: Spark does not?[2J start; mend it (for 0.5s)",
            "warning     the disk fills; clear it (for 0.5s)",
        ]
        assert "tasks       1, 1 of them failing" in told
        checked = run("status", "--check", code=1).splitlines()
        assert checked == [line[len("trouble     ") :] for line in told.splitlines()[:4]]
        as_json = json.loads(run("status", "--check", "--json", code=1))
        assert as_json["well"] is False
        assert [each["reason"] for each in as_json["troubles"]] == [
            "sibling_away",
            "refuses_posts",
            "task_fails",
            "disk_nearly_full",
        ]
        detailed = run("stream", "show", STREAM)
        assert "state         refuses posts" in detailed
        assert f"trouble       {STREAM} refuses posts: it burns; quench it" in detailed
        here = replace(here, troubles=(warning,))
        assert "the disk fills" in run("status", "--check")
        here = replace(here, troubles=())
        assert run("status", "--check") == ""
        assert json.loads(run("status", "--check", "--json")) == {"well": True, "troubles": []}
        assert "away        cdcdcdcd of utah.edu: unreachable" in told
        assert "unreachable" in run("peer", "list")
        assert STREAM in run("stream", "list")


@pytest.mark.parametrize("kind", ["stream", "query", ""])
async def test_a_list_is_no_whole_one_without_the_peers_that_do_not_answer(
    cluster: Cluster, capfd: pytest.CaptureFixture[str], kind: str
) -> None:
    """This holds even for an empty list; scripts find the missing peers' ids."""
    mit, utah = await cluster.settle_all("mit.edu", "utah.edu")
    async with mit.client() as client:
        await client.create_query_xml(DOCUMENT)
    at_utah = Prompt(utah.home.folder, capfd)
    command = [kind, "list"] if kind else ["list"]
    id_ = mit.id
    await cluster.stop(mit)
    silent = f"medusa: not all is listed: these peers did not answer: {id_[:8]} "
    assert await at_utah.outcome(*command) == (0, "", f"{silent}(medusa peer list)\n")
    code, out, err = await at_utah.outcome(*command, "--json")
    assert (code, json.loads(out)["unreachable"]) == (0, [id_])
    assert err.startswith(silent)


async def test_a_script_learns_that_its_own_peer_does_not_answer(
    cluster: Cluster, capfd: pytest.CaptureFixture[str]
) -> None:
    """The document has the form of any other peer's status, beside the reason for people."""
    mit = await cluster.settle("mit.edu")
    at_mit = Prompt(mit.home.folder, capfd)
    running = msgspec.json.decode(await at_mit("status", "--json"), type=Snapshot)
    healthy = json.loads(await at_mit("status", "--check", "--json"))
    await cluster.stop(mit)
    code, out, err = await at_mit.outcome("status", "--json")
    seen = msgspec.json.decode(out, type=Snapshot)
    (peer,) = seen.peers
    assert (code, peer.state, seen.by, peer.peer) == (1, "unreachable", running.by, running.by)
    assert peer.participant == "mit.edu"
    code, out, checked = await at_mit.outcome("status", "--check", "--json")
    told = json.loads(out)
    assert (code, told["well"], told.keys()) == (1, False, healthy.keys())
    (trouble,) = told["troubles"]
    assert trouble["reason"] == peer.troubles[0].reason == "no_answer"
    assert f"the peer in {mit.home.folder} is not running: start it" in trouble["what"]
    assert (
        err == checked == await _said(at_mit, "status") == await _said(at_mit, "status", "--check")
    )


async def _said(prompt: Prompt, *command: str) -> str:
    """Return the message of a failing command on standard error; it prints no output."""
    code, out, err = await prompt.outcome(*command)
    assert (code, out) == (1, "")
    return err


def test_a_query_whose_peer_does_not_answer_is_not_shown_as_running() -> None:
    low = "medusa://mit.edu/low"
    box = Filter("few", "medusa://mit.edu/conns", (low,), ("id < 10",))
    query = Query("medusa://mit.edu/few", (box,))
    entry = QueryEntry(query, QueryStatus.RUNNING, "cd" * 20, (low,))
    for silent in (True, False):
        line = QueryLine(query.name, "mit.edu", entry, silent=silent)
        for table in (query_details(line), queries_table([line])):
            assert ("its peer does not answer" in " ".join(_text(table).split())) is silent


def _readers(stream: StreamDefinition, owner: str = "utah.edu") -> list[str]:
    """Return the lines in which `stream show` names the readers of a stream."""
    entry = StreamEntry(stream, Schema("medusa://utah.edu/s", ()))
    lines = _text(stream_details(StreamLine(stream.name, owner, entry))).splitlines()
    first = next(n for n, line in enumerate(lines) if line.startswith("who may read"))
    last = next(n for n, line in enumerate(lines) if line.startswith("history"))
    return [line.removeprefix("who may read").strip() for line in lines[first:last]]


def test_a_stream_made_of_others_streams_has_the_readers_that_all_owners_permit() -> None:
    def named(*readers: str, path: str = "conns") -> Policy:
        return Policy(f"medusa://mit.edu/{path}", readers)

    derived = StreamDefinition(
        "medusa://utah.edu/low", "medusa://utah.edu/s", readers=(ANY,), query="q"
    )
    made = replace(derived, label=(named("utah.edu", "brown.edu"),))
    assert _readers(made) == [
        "utah.edu, brown.edu, mit.edu",
        "every member: by its own definition",
        "mit.edu, utah.edu, brown.edu: by medusa://mit.edu/conns, of which it is made",
    ]
    assert readers_in_words(made) == "utah.edu, brown.edu, mit.edu", "also in lists"
    narrowed = replace(made, readers=("brown.edu", "cmu.edu"))
    assert _readers(narrowed)[0] == "utah.edu, brown.edu"
    both = replace(made, label=(*made.label, named("utah.edu", "cmu.edu", path="flows")))
    assert _readers(both)[0] == "utah.edu, mit.edu"
    sold = replace(made, label=(named("utah.edu", "contract"),))
    assert _readers(sold)[0] == "utah.edu, and the readers of it and of all that it is made of"
    assert "mit.edu, utah.edu, who has a contract: by medusa://mit.edu/conns" in _readers(sold)[2]
    assert _readers(derived) == ["every member"]


def _text(table: RenderableType) -> str:
    console = Console(width=200, file=io.StringIO(), record=True, color_system=None)
    console.print(table)
    return console.export_text()


TABLES = """
CREATE STREAM plain (ts TIMESTAMP, k STRING, n BIGINT, WATERMARK FOR ts AS ts)
  WITH (lateness = 0, history = INTERVAL '1' HOUR);
CREATE STREAM sums AS SELECT k, sum(n) AS total FROM plain GROUP BY k;
CREATE STREAM sizes AS SELECT total, count(*) AS n FROM sums GROUP BY total;
"""


async def test_a_query_is_printed_in_each_language(
    cluster: Cluster, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    mit, _ = await cluster.settle_all("mit.edu", "utah.edu")
    at_mit = Prompt(mit.home.folder, capfd)
    async with mit.client() as client:
        await client.create_query_xml(DOCUMENT)
        await client.create_query_xml(HOP)  # the peer folds the query from panes
    hop, few = "medusa://mit.edu/hop", "medusa://mit.edu/few"
    xml = await at_mit("query", "print", hop, "--as", "xml")
    assert read_document(xml) == read_document(HOP)
    sql = await at_mit("query", "print", hop)
    assert "HOP(TABLE mit.edu.conns, DESCRIPTOR(ts), INTERVAL '10' SECOND, INTERVAL" in sql
    file = tmp_path / "hop.sql"
    file.write_text(sql)
    again = await at_mit("query", "print", str(file), "--as", "xml")
    assert read_document(again) == read_document(HOP)
    python = await at_mit("query", "print", few, "--as", "python")
    assert 'conns.filter("id < 10").named("medusa://mit.edu/low", box="few")' in python
    whole = tmp_path / "whole.xml"
    whole.write_text(DOCUMENT)
    script = tmp_path / "whole.sql"
    script.write_text(await at_mit("query", "print", str(whole), "--as", "sql"))
    assert script.read_text().startswith("CREATE SCHEMA mit.edu.conn (")
    printed = await at_mit("query", "print", str(script), "--as", "xml")
    assert read_document(printed) == read_document(DOCUMENT)
    as_python = await at_mit("query", "print", str(script), "--as", "python")
    assert 'medusa.Field(name="id", type=medusa.FieldType("long"))' in as_python
    assert "nothing is known under" in await at_mit.refused("query", "print", f"{few}er")
    script.write_text(TABLES)
    await at_mit("query", "create", str(script))
    for name in ("sums", "sizes"):  # one query makes a table, the other reads it from the catalog
        tables = tmp_path / f"{name}.sql"
        tables.write_text(await at_mit("query", "print", f"medusa://mit.edu/{name}"))
        told = f"CREATE TABLE mit.edu.{name}"
        assert told in tables.read_text()
        by_xml = await at_mit("query", "print", f"medusa://mit.edu/{name}", "--as", "xml")
        assert read_document(await at_mit("query", "print", str(tables), "--as", "xml")) == (
            read_document(by_xml)
        )
    whole.write_text("<medusa><query/></medusa>")
    assert 'name="..." is missing' in await at_mit.refused("query", "print", str(whole))


async def test_a_quota_that_is_nearly_used_up_is_in_all_lists_of_troubles(
    cluster: Cluster, capfd: pytest.CaptureFixture[str]
) -> None:
    """The trouble is a warning, with which the peer counts as well. It disappears once there is
    room."""
    mit = await cluster.settle("mit.edu")
    prompt = Prompt(mit.home.folder, capfd)
    client = await cluster.client(mit)
    stream = await make_stream(client, mit, "s")
    await send_rows(client, stream, [(n, n) for n in range(1000)], boundary=1000)
    await until(lambda: mit.state("s").log.boundary == 1000)
    store = mit.up.engine.store
    taken = sum(state.log.files.bytes for state in store.all())
    store.quota.allow(taken * 10 // 9)
    said = " fills: the streams of this peer hold "
    (first, *_) = (await prompt("status")).splitlines()
    assert first.startswith("warning     the disk of ")
    assert said in await prompt("status", "--check")
    told = json.loads(await prompt("status", "--check", "--json"))
    assert told["well"] is True
    assert [each["reason"] for each in told["troubles"]] == ["disk_nearly_full"]
    drawn = Console(width=1000, file=io.StringIO(), record=True, color_system=None)
    drawn.print(render(await client.status(), 1000))
    assert said in drawn.export_text()
    store.quota.allow(taken * 10)
    assert await prompt("status", "--check") == ""
