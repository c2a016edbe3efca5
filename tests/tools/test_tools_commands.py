"""`medusa` as a person runs it, against a peer in another thread: output, errors, exit codes."""

from __future__ import annotations

import itertools
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from importlib import metadata
from pathlib import Path

import click
import msgspec
import pyarrow as pa
import pyarrow.csv as pv
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from deadline import DEADLINE_S
from programs import medusa_command
from tools_fake_peer import (
    AVAILABILITY,
    DERIVED,
    QUERY,
    SCHEMA,
    STREAM,
    FakePeer,
    derived,
    fake_peer_in_thread,
    rows,
)

from medusa.engine.objects.availability import AvailabilityRequest, Mode, Recovery
from medusa.engine.objects.schema import BEGINNING, END
from medusa.overlay.errors import ConflictError, InvalidInputError, UnavailableError
from medusa.testnet import command as testnet_command
from medusa.tools.commands import command_line
from medusa.tools.commands.medusa.medusa_command import medusa
from medusa.tools.commands.peer import peer_command
from medusa.tools.rows.post_speed import cut

pytestmark = pytest.mark.process


class Outcome:
    """The results of a command."""

    def __init__(self, code: int, out: bytes, err: str) -> None:
        self.code, self.out, self.err = code, out, err

    @property
    def value(self) -> dict[str, object]:
        return json.loads(self.out)  # type: ignore[no-any-return]


Run = Callable[..., Outcome]


@pytest.fixture
def run(tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]) -> Run:
    def call(*arguments: str, home: bool = True) -> Outcome:
        at = ("--home", str(tmp_path)) if home else ()
        with pytest.raises(SystemExit) as left:
            command_line.run(medusa, [*arguments, *at])
        captured = capfdbinary.readouterr()
        assert isinstance(left.value.code, int)
        return Outcome(left.value.code, captured.out, captured.err.decode())

    return call


@pytest.fixture
def peer(tmp_path: Path) -> Iterator[FakePeer]:
    with fake_peer_in_thread(tmp_path) as peer:
        yield peer


def test_definitions_and_listings(peer: FakePeer, tmp_path: Path, run: Run) -> None:
    document = tmp_path / "q.xml"
    document.write_text("<medusa/>")
    assert run("query", "create", str(document), "--json").value == {
        "created": ["medusa://mit.edu/made"],
        "readers": {},
    }
    assert run("schema", "create", str(document)).out == b"medusa://mit.edu/made\n"
    assert run("query", "start", "medusa://mit.edu/q").code == 0
    assert run("query", "stop", "medusa://mit.edu/q").code == 0
    assert peer.statuses[-1] == ("medusa://mit.edu/q", "STOPPED")
    assert run("lookup", STREAM, "--json").value["stream"]["stream"]["name"] == STREAM
    assert STREAM.encode() in run("lookup", STREAM).out
    listed = run("list")
    assert f"stream    {STREAM}\n".encode() in listed.out
    assert "did not answer: abababab" in listed.err
    assert run("list", "--json").value["names"]["stream"] == [STREAM, DERIVED]
    assert run("monitor", "--json").value["federation"] == "fed"
    assert b"1/1 peers up" in run("monitor", "--once").out


def test_availability_is_asked_for_at_the_prompt(tmp_path: Path, run: Run) -> None:
    document = tmp_path / "q.xml"
    document.write_text("<medusa/>")
    create = ("query", "create", str(document))
    with fake_peer_in_thread(tmp_path) as peer:
        assert run(*create).code == 0
        assert run(*create, "--ha", "passive_standby").code == 0
        flags = ("--recovery", "rollback", "--bound", "2.5", "--checkpoint", "0.5")
        assert run(*create, "--ha", "active", *flags, "--secondary", "abab").code == 0
        assert run(*create, "--bound", "3", "--secondary", "ab" * 20).code == 0
        assert [request.availability for request in peer.created] == [
            None,
            AvailabilityRequest(Mode.PASSIVE_STANDBY),
            AvailabilityRequest(Mode.ACTIVE_STANDBY, Recovery.ROLLBACK, 2.5, 0.5, "ab" * 20),
            AvailabilityRequest(bound_s=3.0, secondary="ab" * 20),
        ]
        unknown = run(*create, "--secondary", "77")
        assert unknown.err == "medusa: no peer of mit.edu has an id that begins with '77'\n"
    assert run(*create, "--ha", "hot").code == 2
    assert run(*create, "--bound", "soon").code == 2
    assert run("stream", "create", str(document), "--ha", "active").code == 2
    helped = run("query", "create", "--help", home=False).out.decode()
    for flag in ("--ha MODE", "--recovery", "--bound", "--checkpoint", "--secondary"):
        assert flag in helped


def test_availability_is_shown(peer: FakePeer, run: Run) -> None:
    words = (
        "passive_standby, precise recovery, within 2 s, a checkpoint every 0.5 s, secondary cdcd"
    )
    found = run("lookup", QUERY)
    assert f"availability: {words}" in found.out.decode()
    assert b"class: repeatable (box 'some')" in found.out
    entry = run("lookup", QUERY, "--json").value["query"]
    assert entry["query"]["availability"] == msgspec.to_builtins(AVAILABILITY)  # type: ignore[index]
    listed = run("list")
    assert f"query     {QUERY}  ({words}" in listed.out.decode()
    assert f"query     {QUERY}2\n" in listed.out.decode()
    assert run("list", "--json").value["availability"] == {QUERY: msgspec.to_builtins(AVAILABILITY)}


def test_errors_are_one_line(tmp_path: Path, run: Run) -> None:
    document = tmp_path / "q.xml"
    document.write_text("nothing\n")
    missing = run("query", "create", str(tmp_path / "none.xml"))
    assert (missing.code, missing.out) == (1, b"")
    assert missing.err == f"medusa: no such file: {tmp_path}/none.xml\n"
    assert "medusa-peer init" in run("list").err
    with fake_peer_in_thread(tmp_path):
        bad = run("query", "create", str(document))
        assert (bad.code, bad.err) == (1, f"medusa: {document}: line 1: no XML\n")
        for command in (("query", "create"), ("post", STREAM)):
            folder = run(*command, str(tmp_path))
            told = f"medusa: {tmp_path} is a directory: give one of the files in it"
            assert (folder.code, folder.err.partition(";")[0].strip()) == (1, told)
        unknown = run("lookup", "medusa://mit.edu/none")
        assert (unknown.code, unknown.err.count("\n")) == (1, 1)
    assert "is not running" in run("list").err
    assert run("post", STREAM, home=False).code == 2
    assert run("post", STREAM, "f", "--speed", "0").code == 2
    assert run("nonsense", home=False).code == 2
    assert run("--help", home=False).code == 0


def test_post_and_subscribe(peer: FakePeer, tmp_path: Path, run: Run) -> None:
    csv = tmp_path / "rows.csv"
    csv.write_text("ts,name\n1.5,a\n2.5,b\n")
    parquet = tmp_path / "rows.parquet"
    pq.write_table(rows(0, 200_000), parquet)
    posted = run("post", STREAM, str(csv), "--producer", "me", "--json")
    assert posted.value == {
        "stream": STREAM,
        "rows": 2,
        "late": 0,
        "inserted": 0,
        "before": 0,
        "under_way": 0,
        "waiting": 0,
        "let_out_by": "",
        "boundary": BEGINNING,
        "dropped": [],
        "unfilled": [],
    }
    assert peer.stored["me"] == [(1, 2)]
    again = run("post", STREAM, str(csv), "--producer", "me")
    assert again.out == b"posted 0 rows, 2 were there already; boundary -\n"
    peer.crash_at = [2]
    many = run("post", STREAM, str(parquet), "--producer", "big", "--end")
    assert many.out == b"posted 200,000 rows; boundary ended\n"
    assert sum(count for _, count in peer.stored["big"]) == 200_000
    assert peer.ended
    csv.write_text("ts,name\n1.5,a\nx,b\n")
    wrong = run("post", STREAM, str(csv), "--producer", "bad")
    assert wrong.err == f"medusa: {csv}: row 2, field 'ts': 'x' is no double; no row is stored\n"
    csv.write_text("ts,name\n" + "1.5,a\n" * 70_000 + "x,b\n")
    wrong = run("post", STREAM, str(csv), "--producer", "torn")
    told = "row 70001, field 'ts': 'x' is no double; the first 65,536 rows are stored"
    assert wrong.err == f"medusa: {csv}: {told}, and the same command goes on after them\n"
    assert sum(count for _, count in peer.stored["torn"]) == 65_536

    peer.epochs = [(BEGINNING, 9, [derived(0, 2)]), (9, 19, [derived(10, 2)])]
    peer.epochs += [(19, END, [derived(20, 1)])]
    out = run("subscribe", DERIVED).out.decode().splitlines()
    assert out[0] == '"stime","ts","name"'
    assert out[1:] == [f'{n},{n},"n{n}"' for n in (0, 1, 10, 11, 20)]
    lines = run("subscribe", DERIVED, "--json", "--from", "9", "--until", "10").out
    assert [json.loads(line) for line in lines.splitlines()] == [
        {"stime": 10, "ts": 10.0, "name": "n10"}
    ]
    arrow = pa.ipc.open_stream(run("subscribe", DERIVED, "--format", "arrow").out).read_all()
    assert arrow.column("stime").to_pylist() == [0, 1, 10, 11, 20]


def test_a_stream_is_ended_without_a_file(peer: FakePeer, run: Run) -> None:
    nothing = run("post", STREAM)
    assert nothing.code == 2
    assert "FILE" in nothing.err
    assert "--end" in nothing.err
    for more in (("--again",), ("--format", "csv"), ("--follow",), ("--map", "a=b")):
        refused = run("post", STREAM, "--end", *more)
        assert (refused.code, "without FILE, --end takes no option" in refused.err) == (2, True)
    assert not peer.ended
    assert run("post", STREAM, "--end").out == b"posted 0 rows; boundary ended\n"
    assert peer.ended
    assert peer.tables[-1].num_rows == 0


def test_another_peer_is_asked_while_the_first_does_not_answer(
    tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    """`--also` may be repeated, for several peers."""

    def run(*arguments: str) -> int | str | None:
        with pytest.raises(SystemExit) as left:
            command_line.run(medusa, [*arguments, "--home", str(tmp_path / "dead")])
        return left.value.code

    csv = tmp_path / "rows.csv"
    csv.write_text("ts,name\n1.5,a\n2.5,b\n")
    also = ("--also", str(tmp_path / "dead too"), "--also", str(tmp_path / "alive"))
    for name in ("dead", "dead too"):
        with fake_peer_in_thread(tmp_path / name):
            pass
    with fake_peer_in_thread(tmp_path / "alive") as peer:
        peer.epochs = [(BEGINNING, END, [derived(0, 2)])]
        assert run("post", STREAM, str(csv)) == 1, "without it"
        assert run("post", STREAM, str(csv), "--end", *also) == 0
        assert "posted 2 rows" in capfdbinary.readouterr().out.decode()
        assert run("subscribe", DERIVED, *also) == 0
    assert len(capfdbinary.readouterr().out.splitlines()) == 3


def test_a_reader_that_leaves_is_no_error(peer: FakePeer, tmp_path: Path) -> None:
    peer.epochs = [
        (n * 1000 - 1 if n else BEGINNING, n * 1000 + 999, [derived(n * 1000, 1000)])
        for n in range(300)
    ]
    command = medusa_command("subscribe", DERIVED)
    with subprocess.Popen(
        [*command, "--home", str(tmp_path)], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.readline()
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait(DEADLINE_S) == 0


def test_ctrl_c_exits_with_130(peer: FakePeer, tmp_path: Path) -> None:
    peer.epochs = [(BEGINNING, 9, [derived(0, 2)])]
    command = medusa_command("subscribe", DERIVED)
    with subprocess.Popen(
        [*command, "--home", str(tmp_path)], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.readline()
        process.stdout.readline()
        process.send_signal(signal.SIGINT)
        assert process.wait(DEADLINE_S) == 130
        assert process.stderr.read() == b""


def test_help_is_quick_and_clients_never_import_spark() -> None:
    program = (
        "import sys, medusa.tools.commands.medusa.medusa_command,"
        " medusa.tools.commands.medusa.calls, medusa.tools.commands.medusa.post_file,"
        " medusa.tools.commands.medusa.print_stream,"
        " medusa.tools.monitor.watch, medusa.tools.client.blocking\n"
        "print([name for name in ('pyspark', 'asyncio', 'kademlia') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)
    assert done.stdout == b"[]\n"
    slow = (
        "import sys, medusa.tools.commands.medusa.medusa_command\n"
        "print('pyarrow' in sys.modules, 'trio' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", slow], capture_output=True, check=True)
    assert done.stdout == b"False False\n"


def test_groups_of_errors_become_one_line_unless_they_are_faults_of_ours(
    capsys: pytest.CaptureFixture[str],
) -> None:
    def fail(error: BaseException) -> click.Command:
        @click.command()
        def command() -> None:
            raise error

        return command

    inner = ExceptionGroup("inner", [ConflictError("first\nline"), UnavailableError("second")])
    with pytest.raises(SystemExit) as left:
        command_line.run(fail(ExceptionGroup("outer", [inner])), [])
    assert (left.value.code, capsys.readouterr().err) == (1, "medusa: first line\n")
    with pytest.raises(SystemExit) as left:
        command_line.run(fail(BaseExceptionGroup("", [KeyboardInterrupt()])), [])
    assert left.value.code == 130
    with pytest.raises(ExceptionGroup):
        command_line.run(fail(ExceptionGroup("", [ConflictError("x"), KeyError("ours")])), [])


def test_pieces_at_a_speed_cover_every_row_in_order() -> None:
    batches = [rows(0, 10), rows(4, 3), rows(10, 5)]
    pieces = list(cut(iter(batches), SCHEMA, 8.0))  # slices of 0.25 s * 8 = 2 s
    table = pa.concat_tables([piece.table for piece in pieces])
    assert table.equals(pa.concat_tables(batches))
    assert [piece.due for piece in pieces] == sorted(piece.due for piece in pieces)
    assert [(piece.due, piece.table.num_rows) for piece in pieces[:5]] == [
        (0.0, 2),
        (0.25, 2),
        (0.5, 2),
        (0.75, 2),
        (1.0, 2),
    ]
    assert [(piece.due, piece.table.num_rows) for piece in pieces[5:6]] == [(1.0, 3)]
    assert next(iter(cut(iter(batches), SCHEMA, None))).due == 0.0


def test_a_speed_needs_a_time_field() -> None:
    from msgspec.structs import replace

    with pytest.raises(InvalidInputError, match="no time field"):
        cut(iter([]), replace(SCHEMA, time=None), 1.0)


def test_a_terminal_shows_progress(
    tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    csv = tmp_path / "rows.csv"
    csv.write_text("ts,name\n" + "1.5,a\n" * 100_000)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm")
    with fake_peer_in_thread(tmp_path):
        posted = run("post", STREAM, str(csv))
    assert posted.out.startswith(b"posted 100,000 rows")
    assert "rows.csv" in posted.err
    assert "100,000 rows" in posted.err
    assert "0.6 of 0.6 MB" in posted.err


@pytest.mark.parametrize("kind", ["csv", "json", "arrow", "parquet"])
def test_a_limit_stops_after_so_many_rows(peer: FakePeer, run: Run, kind: str) -> None:
    peer.epochs = [(BEGINNING, 9, [derived(0, 5)]), (9, 19, [derived(10, 5)])]
    limited = run("subscribe", DERIVED, "--limit", "7", "--format", kind)
    assert limited.code == 0
    assert rows_of(kind, limited.out) == [0, 1, 2, 3, 4, 10, 11]
    assert run("subscribe", DERIVED, "--limit", "0").code == 2
    changes = run("subscribe", DERIVED, "--limit", "2", "--corrections", "undo", "--json")
    assert len(changes.out.splitlines()) == 2


def rows_of(kind: str, out: bytes) -> list[int]:
    """Return the stimes in a command's output."""
    match kind:
        case "csv":
            table = pv.read_csv(pa.BufferReader(out))
        case "json":
            return [json.loads(line)["stime"] for line in out.splitlines()]
        case "arrow":
            table = pa.ipc.open_stream(out).read_all()
        case _:
            table = pq.read_table(pa.BufferReader(out))
    return table.column("stime").to_pylist()


def test_parquet_is_whole_with_its_types_and_in_row_groups_of_some_size(
    peer: FakePeer, run: Run
) -> None:
    bounds = [BEGINNING, *range(10, 500, 10), END]
    peer.epochs = [
        (after, upto, [derived(10 * n + 1, 3)])
        for n, (after, upto) in enumerate(itertools.pairwise(bounds))
    ]
    done = run("subscribe", DERIVED, "--format", "parquet")
    file = pq.ParquetFile(pa.BufferReader(done.out))
    assert file.schema_arrow == derived(0, 1).schema
    assert (file.metadata.num_rows, file.num_row_groups) == (3 * len(peer.epochs), 1)
    peer.epochs = [(BEGINNING, END, [derived(0, 0)])]
    empty = run("subscribe", DERIVED, "--format", "parquet")
    assert pq.read_table(pa.BufferReader(empty.out)).num_rows == 0


@pytest.mark.parametrize("kind", ["arrow", "parquet"])
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_file_is_whole_after_ctrl_c(
    tmp_path: Path, kind: str, number: signal.Signals, code: int
) -> None:
    with fake_peer_in_thread(tmp_path / "home") as peer:
        peer.epochs = [(BEGINNING, 9, [derived(0, 5)]), (9, 19, [derived(10, 5)])]
        path = tmp_path / "out"
        command = medusa_command("subscribe", DERIVED)
        options = ["--format", kind, "--home", str(tmp_path / "home")]
        with path.open("wb") as file:
            process = subprocess.Popen([*command, *options], stdout=file)
            with peer.moved:  # then the command asks for the second epoch
                assert peer.moved.wait_for(lambda: 9 in peer.acknowledged, DEADLINE_S)
            process.send_signal(number)
            assert process.wait() == code
        assert rows_of(kind, path.read_bytes())[:5] == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_is_for_all_three_commands(run: Run, shell: str) -> None:
    script = run("completion", shell, home=False).out.decode()
    for name in ("medusa", "medusa-peer", "medusa-testnet"):
        assert f"_{name.upper().replace('-', '_')}_COMPLETE={shell}_complete" in script
    assert run("completion", "tcsh", home=False).code == 2


@pytest.mark.parametrize(
    ("module", "variable", "words", "found"),
    [
        (
            "medusa.tools.commands.medusa.medusa_command",
            "_MEDUSA_COMPLETE",
            "medusa stream ",
            "alter",
        ),
        (
            "medusa.tools.commands.peer.peer_command",
            "_MEDUSA_PEER_COMPLETE",
            "medusa-peer in",
            "invite",
        ),
        ("medusa.testnet.command", "_MEDUSA_TESTNET_COMPLETE", "medusa-testnet intr", "intrusion"),
    ],
)
def test_the_shell_is_answered(module: str, variable: str, words: str, found: str) -> None:
    asked = {variable: "bash_complete", "COMP_WORDS": words, "COMP_CWORD": str(words.count(" "))}
    name = words.split(maxsplit=1)[0]
    entry = f"main(prog_name={name!r})" if module == "medusa.testnet.command" else "main()"
    done = subprocess.run(
        [sys.executable, "-c", f"from {module} import main; {entry}"],
        env={**os.environ, **asked},
        capture_output=True,
        check=False,
    )
    assert found in done.stdout.decode(), done.stderr


def completed(words: str, home: Path) -> list[str]:
    """Return the completions that the program gives bash for the last of these words."""
    asked = {
        "_MEDUSA_COMPLETE": "bash_complete",
        "COMP_WORDS": words,
        "COMP_CWORD": str(words.count(" ")),
        "MEDUSA_HOME": str(home),
    }
    done = subprocess.run(
        medusa_command(), env={**os.environ, **asked}, capture_output=True, check=False
    )
    assert not done.stderr
    return [line.removeprefix("plain,") for line in done.stdout.decode().split()]


def test_names_of_objects_are_completed(tmp_path: Path) -> None:
    for words in ("medusa subscribe ", "medusa query show med"):
        assert completed(words, tmp_path) == [], "no peer is there, and that is no error"
    with fake_peer_in_thread(tmp_path):
        assert completed("medusa subscribe ", tmp_path) == [DERIVED, STREAM]
        assert completed(f"medusa stream show {STREAM[:-2]}", tmp_path) == [STREAM]
        assert completed("medusa query start medusa://", tmp_path) == [QUERY, f"{QUERY}2"]
        assert completed(f"medusa lookup {QUERY}", tmp_path) == [QUERY, f"{QUERY}2"]


def test_bash_takes_a_name_for_one_word(run: Run) -> None:
    words = "medusa lookup medusa://mit.edu/conns"
    asked = f'{run("completion", "bash", home=False).out.decode()}\necho "$COMP_WORDBREAKS"'
    done = subprocess.run(
        ["bash", "--norc", "-c", asked],
        env={**os.environ, "COMP_WORDBREAKS": " =:"},
        capture_output=True,
        check=True,
    )
    assert ":" not in done.stdout.decode(), words


def test_every_command_says_its_version() -> None:
    want = metadata.version("medusa-federation")
    for command in (medusa, peer_command.peer, testnet_command.main):
        told = CliRunner().invoke(command, ["--version"])
        assert told.exit_code == 0
        assert want in told.output
