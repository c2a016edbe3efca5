"""Intrusion detection among three participants: the scripts of `examples/intrusion` at real peers,
against the oracle; and the permissions to read."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

import interpreting_peer
import msgspec
import pyarrow.parquet as pq
import pytest
import trio
from deadline import DEADLINE_S
from scenario_commands import json_of
from screens import text_of, words_of
from shared_intrusion_traces import TRACED, traces_in

from medusa.engine.language.folding import with_panes
from medusa.engine.objects.definitions import StreamEntry
from medusa.engine.objects.query import streams_read, streams_written
from medusa.engine.objects.readers import Readers
from medusa.engine.reading import read_draft
from medusa.engine.tasks.network import Network
from medusa.testnet.kit.answers import tuples_in
from medusa.testnet.kit.peers import Launch
from medusa.testnet.kit.stages import Stages
from medusa.testnet.shared_intrusion.generate import (
    ADDED,
    EXAMPLE_CONNECTIONS,
    LABS,
    generate,
    write,
)
from medusa.testnet.shared_intrusion.oracle import right_answers
from medusa.testnet.shared_intrusion.refusals import READ, Attempt
from medusa.testnet.shared_intrusion.results import Answer, Result, Update, render_result
from medusa.testnet.shared_intrusion.run import (
    COLUMNS,
    STAGES,
    Options,
    run_shared_intrusion,
)
from medusa.testnet.shared_intrusion.scripts import (
    PARTICIPANTS,
    ROUNDS,
    SCRIPTS,
    THREATS,
    expected_readers,
    readers,
    script_of,
    stream_of,
)
from medusa.tools.client.async_client import AsyncMedusaClient
from medusa.tools.trial.answers import Files
from medusa.tools.trial.peer_of_the_moment import open_peer_of_the_moment, run_at
from medusa.tools.trial.trial import trial_of

STRANGER = "stranger.example"

# -- the scripts -----------------------------------------------------------------------------------


def entries() -> dict[str, StreamEntry]:
    """Return every stream that the scripts make, including those between their boxes."""
    known: dict[str, StreamEntry] = {}
    for step in (step for steps in ROUNDS for step in steps):
        draft = read_draft(script_of(step).read_text(), f"medusa://{step.participant}/")
        read = {name: known[name] for name in draft.reads}
        tables = [name for name, entry in read.items() if entry.stream.table]
        document = draft.complete({name: each.schema for name, each in read.items()}, {}, tables)
        schemas = {each.name: each for each in document.schemas}
        known |= {s.name: StreamEntry(s, schemas[s.schema]) for s in document.streams}
        assert tuple(q.name.rpartition("/")[2] for q in document.queries) == step.queries
        for query in document.queries:
            inputs = {name: known[name] for name in streams_read(query) - streams_written(query)}
            network = Network(with_panes(query, 256), inputs, readers=dict(query.readers))
            made = network.schemas().items()
            known |= {name: network.entry_of(name, schema, "") for name, schema in made}
    return known


def test_each_stream_has_the_readers_that_the_scripts_intend() -> None:
    known, rights = entries(), Readers()
    assert {name for name in readers() if not name.endswith("/late")} <= known.keys()
    for name, entry in known.items():
        may = {who for who in (*PARTICIPANTS, STRANGER) if rights.may_read(entry.stream, who)}
        assert may == expected_readers(name), name


def test_the_shared_streams_of_a_laboratory_name_no_host() -> None:
    for name, entry in entries().items():
        if name.startswith("medusa://lab-") and len(expected_readers(name)) > 1:
            fields = {field.name for field in entry.schema.fields}
            assert fields.isdisjoint({"src_ip", "ts", "dst_port", "bytes_out"}), name


def test_the_examples_data_is_the_generators(tmp_path: Path) -> None:
    write(tmp_path)
    made = sorted(each.name for each in tmp_path.iterdir())
    assert made == ["lab-a.csv", "lab-b.csv", "threats.csv"]
    for name in made:
        assert (tmp_path / name).read_bytes() == (SCRIPTS / name).read_bytes()


PAGE = Path(__file__).parents[2] / "docs/intrusion.md"


def test_the_scripts_contain_the_sql_of_the_page() -> None:
    blocks = re.findall(r"^```sql\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    scripts = [each.read_text() for each in SCRIPTS.glob("*.sql")]
    assert len(blocks) >= 4
    for block in blocks:
        assert any(block in script for script in scripts), block


@pytest.mark.process
@pytest.mark.spark
@pytest.mark.usefixtures("own_spark")
async def test_tried_over_the_examples_files_they_give_the_oracles_answers(tmp_path: Path) -> None:
    """As on the page, `medusa try` runs them with real Spark: the files of two trials are the
    inputs of the third."""
    found: dict[str, list[object]] = {}
    async with open_peer_of_the_moment("you") as client:
        for lab in LABS:
            records = {"conns": SCRIPTS / f"{lab}.csv", THREATS: SCRIPTS / "threats.csv"}
            found |= await tried(
                client, "lab", records, tmp_path / lab, keys={THREATS: ("address",)}
            )
        made = {
            stream_of(f"{lab}.example", name): tmp_path / lab / f"{name}.parquet"
            for lab in LABS
            for name in ("listed", "beacons")
        }
        found |= await tried(client, "shared", made, tmp_path / "shared")
    right = right_answers(generate(0, EXAMPLE_CONNECTIONS))
    wanted: dict[str, Sequence[object]] = {
        "shared/sightings": right.sightings,
        "shared/campaigns": right.campaigns,
    }
    for lab in LABS:
        wanted |= {f"{lab}/listed": right.listed[lab], f"{lab}/beacons": right.beacons[lab]}
    assert found == wanted
    printed = re.findall(r"^# (\S+)\.parquet: (\d+) rows$", PAGE.read_text(), re.MULTILINE)
    assert len(printed) == 3
    assert [len(found[name]) for name, _ in printed] == [int(rows) for _, rows in printed]


async def tried(
    client: AsyncMedusaClient,
    script: str,
    given: Mapping[str, Path],
    folder: Path,
    *,
    keys: Mapping[str, tuple[str, ...]] | None = None,
) -> dict[str, list[object]]:
    """Run a trial, and write its answers into a folder; return their rows, sorted."""
    text = (SCRIPTS / f"{script}.sql").read_text()
    trial = trial_of(text, given, None, case=folder.name, keys=keys)
    with ExitStack() as stack:
        files = Files(folder, trial.outputs, stack)
        with trio.fail_after(DEADLINE_S):
            await run_at(client, trial, trial.outputs, files.take)
    return {
        f"{folder.name}/{path.stem}": sorted(tuples_in(pq.read_table(path), COLUMNS[path.stem]))
        for path in files.paths.values()
    }


# -- at peers --------------------------------------------------------------------------------------


class Interpreting:
    """Starts peers without a JVM."""

    async def launch(self, peer: str) -> Launch:
        return Launch(program=(sys.executable, str(Path(interpreting_peer.__file__))))


def check(result: Result) -> None:
    assert result.good, result
    assert len(result.answers) == 4 + 2 * len(PARTICIPANTS)
    assert all(each.rows == each.expected > 0 for each in result.answers)
    update = result.update
    assert update.address == ADDED
    assert update.early == 0 < update.before
    assert update.counted == update.after > 0
    for each in result.found:
        assert each.planted == 6 <= each.beacons
        assert each.listed > 0
        assert each.beats > 0
    reads = [each for each in result.attempts if each.way == READ]
    assert {(e.who, e.stream) for e in reads} >= {(w, s) for w in PARTICIPANTS for s in readers()}
    for one, other in (LABS, LABS[::-1]):
        who, stream = f"{one}.example", f"medusa://{other}.example/conns"
        mine = [each for each in result.attempts if (each.who, each.stream) == (who, stream)]
        assert {each.way for each in mine} == {READ, "query", "view", "post", "alter"}
        assert not any(each.allowed for each in mine)
        assert all(who in each.said or stream in each.said for each in mine)
        late = [e for e in reads if (e.who, e.stream) == (who, f"{stream}/late")]
        assert [each.allowed for each in late] == [False]


@pytest.mark.process
async def test_three_peers_give_the_oracles_answers_and_no_participant_sees_the_others_rows() -> (
    None
):
    options = Options(connections=400, seed=3)
    result = await run_shared_intrusion(options, Stages(STAGES), Interpreting())
    check(result)
    shown = text_of(render_result(result), 110)
    for words in ("exact", "refused", "198.51.100.200", "lab-b", "planted"):
        assert words in shown


@pytest.mark.process
async def test_recorded_connections_of_the_laboratories(tmp_path: Path) -> None:
    result = await run_shared_intrusion(
        Options(seed=2, traces=traces_in(tmp_path)), Stages(STAGES), Interpreting()
    )
    assert result.good, result
    assert sum(each.connections for each in result.found) == sum(TRACED)
    assert result.update.before > 0 < result.update.after
    assert all(each.listed > 0 for each in result.found)


@pytest.mark.soak
@pytest.mark.process
@pytest.mark.spark
def test_the_command_with_spark() -> None:
    check(msgspec.convert(json_of("intrusion-shared", "--seed", "1"), Result))


@pytest.mark.soak
@pytest.mark.process
@pytest.mark.spark
def test_real_traces_with_spark() -> None:
    data = Path(__file__).parents[2].parent / "shared" / "data"
    files = [data / f"{name}.parquet" for name in ("wrccdc_a", "wrccdc_b")]
    if not all(file.exists() for file in files):
        pytest.skip("the traces are not here")
    found = msgspec.convert(
        json_of("intrusion-shared", *(f"--conns={file}" for file in files)), Result
    )
    assert found.good
    assert [each.connections for each in found.found] == [24_993, 45_982]


# -- the figures -----------------------------------------------------------------------------------


def test_a_wrong_answer_or_a_row_that_leaks_is_not_good() -> None:
    exact = Answer("medusa://c/s", "c", 2, 2, 0, 0)
    fine = Update("x", 2, 3, 0, 3)
    right = Attempt("a", "medusa://b/conns", READ, allowed=False, right=False, said="no")
    good = Result(("a", "b"), 0, (), (exact,), fine, (right,), 1.0)
    assert good.good
    replace = msgspec.structs.replace
    for worse in (
        replace(good, answers=(Answer("medusa://c/s", "c", 2, 2, 1, 1),)),
        replace(good, update=Update("x", 2, 3, 1, 3)),
        replace(good, update=Update("x", 2, 3, 0, 5)),
        replace(good, attempts=(replace(right, allowed=True),)),
        replace(good, attempts=(replace(right, right=True),)),
    ):
        assert not worse.good
    leaked = replace(right, who="a", allowed=True)
    other = Attempt("b", "medusa://b/conns", READ, allowed=True, right=True)
    assert "a got medusa://b/conns by read" in words_of(
        render_result(replace(good, attempts=(leaked, other))), 110
    )
