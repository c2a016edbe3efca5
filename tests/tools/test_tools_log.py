"""The logs of complete peers (`engine_peers`): a call's cause at each, faults of clients' calls,
start and stop."""

from __future__ import annotations

import json
import signal
import stat
import subprocess
from pathlib import Path

import pytest
from engine_peers import Place, open_cluster
from msgspec import Struct
from programs import peer_command

from medusa.overlay.errors import InternalError
from medusa.overlay.rpc import Caller, UnaryHandler
from medusa.tools.home.folder import Home
from medusa.tools.home.founding import make_peer
from medusa.tools.home.log_file import LogConfig, open_log


class Word(Struct, frozen=True):
    text: str


@pytest.fixture
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("logs") / "medusa.log"


def answer(place: Place, method: str, handler: UnaryHandler[Word]) -> None:
    place.up.engine.overlay.service.unary(method, Word, handler, clients=True)


async def divide(_: Caller, __: Word, ___: bytes) -> Word:
    raise ZeroDivisionError("by nothing")


async def call(place: Place, method: str) -> str:
    """Return the answer that a client of that peer receives."""
    async with place.client() as client:
        connection = await client._link.connection()
        with pytest.raises(InternalError) as caught:
            await connection.call(method, Word("x"), Word)
    return str(caught.value)


def lines_of(file: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in file.read_text().splitlines()]


async def test_a_fault_in_a_clients_call_is_noted_and_found_by_its_id(
    tmp_path: Path, file: Path
) -> None:
    async with open_cluster(tmp_path) as cluster:
        with open_log(file, LogConfig(format="json")):
            mit = await cluster.settle("mit.edu")
            answer(mit, "divide", divide)
            told = await call(mit, "divide")
            (fault,) = (
                event for event in mit.up.engine.overlay.events.recent() if event.level == "error"
            )
    assert "by nothing" in fault.text
    assert "by nothing" not in told
    assert f"grep {fault.cause} logs/medusa.log" in told
    assert f"of mit.edu/{mit.id[:8]}" in told
    (line,) = (line for line in lines_of(file) if line.get("cause") == fault.cause)
    assert "in divide" in str(line["traceback"])
    assert line["method"] == "divide"
    assert str(line["connection"]).startswith("mit.edu/client#")


async def test_a_cause_follows_a_call_across_peers(tmp_path: Path, file: Path) -> None:
    async with open_cluster(tmp_path) as cluster:
        with open_log(file, LogConfig("debug", "json")):
            mit, utah = await cluster.settle_all("mit.edu", "utah.edu")
            answer(utah, "divide", divide)

            async def ask(_: Caller, word: Word, __: bytes) -> Word:
                there = await mit.up.engine.overlay.connect(bytes.fromhex(utah.id))
                return await there.call("divide", word, Word)

            answer(mit, "ask", ask)
            told = await call(mit, "ask")
    assert f"of utah.edu/{utah.id[:8]}" in told
    cause = told.split("`grep ")[1].split()[0]
    there, here = (line for line in lines_of(file) if line.get("cause") == cause)
    assert (there["peer"], there["level"]) == (f"utah.edu/{utah.id[:8]}", "error")
    assert "in divide" in str(there["traceback"])
    assert str(there["connection"]).startswith(f"mit.edu/{mit.id[:8]}#")
    assert (here["peer"], here["method"], here["level"]) == (
        f"mit.edu/{mit.id[:8]}",
        "ask",
        "debug",
    )


@pytest.mark.process
def test_a_peer_logs_its_start_and_why_it_ends(tmp_path: Path) -> None:
    home = Home(tmp_path / "mit")
    make_peer(home, "mit.edu", "cluster")
    run = peer_command("run", "--home", str(home.folder))
    options = ["--listen", "127.0.0.1:0", "--log-format", "json", "--log-level", "debug"]
    with subprocess.Popen([*run, *options], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert str(home.log_file) in process.stdout.readline()
        process.send_signal(signal.SIGTERM)
    assert process.returncode == 0
    texts = [str(line["text"]) for line in lines_of(home.log_file)]
    assert texts[0].startswith("starts: medusa ")
    assert any(text.startswith("listens on 127.0.0.1:") for text in texts)
    assert texts[-2:] == ["stops: SIGTERM", "ended, as it was told"]
    assert stat.S_IMODE(home.logs.stat().st_mode) == 0o700
    assert stat.S_IMODE(home.log_file.stat().st_mode) == 0o600
    home.config.write_text('[overlay]\nlisten = "203.0.113.1:1"\n')
    assert subprocess.run(run, capture_output=True, check=False).returncode == 1
    last = home.log_file.read_text().splitlines()[-1]
    assert " ERROR   [] ended: " in last
    assert "203.0.113.1" in last
