"""DuckDB, pandas and Spark read a peer's streams while a client posts, as docs/reading.md says."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import crashing_peer
import outside_readers
import peer_intervals
import pyarrow as pa
import pytest
from deadline import DEADLINE_S
from field_texts import fields_of

from medusa.engine.objects.definitions import StreamDefinition
from medusa.engine.objects.schema import Schema
from medusa.engine.spark.java import find_java
from medusa.tools.client.blocking import MedusaClient

STREAM = "medusa://mit.edu/conns"
BUSY = peer_intervals.intervals(engine={"epoch_s": 0.1})
"""Ten epochs per second, so that every look merges files."""
HISTORY_US = 20_000_000
"""The history is short, so that old files are dropped all the while as well."""
POST_ROWS = 20

PEER = (sys.executable, "-m", "medusa.tools.commands.peer.peer_command")
MEDUSA = Path(sys.executable).with_name("medusa")


@contextmanager
def peer(home: Path) -> Iterator[None]:
    """Give a peer in a process of its own."""
    init = [*PEER, "init", "--participant", "mit.edu", "--found", "cluster", "--home", str(home)]
    subprocess.run(init, check=True, capture_output=True)
    run = [sys.executable, crashing_peer.__file__, "run", "--listen", "127.0.0.1:0"]
    environment = {**os.environ, peer_intervals.INTERVALS: BUSY}
    arguments = [*run, "--home", str(home), "--json"]
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, env=environment) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline(), "it is up"
            yield
        finally:
            process.send_signal(signal.SIGTERM)


class Poster(threading.Thread):
    """Posts rows with rising numbers until it is stopped."""

    def __init__(self, client: MedusaClient) -> None:
        super().__init__(daemon=True)
        self.number = 0
        self.stop = threading.Event()
        self._client = client

    def run(self) -> None:
        while not self.stop.wait(0.01):
            self._post({})
        now = int(time.time() * 1e6)
        self._post({"boundary": now + 1_000_000})

    def _post(self, promise: dict[str, int]) -> None:
        now = int(time.time() * 1e6)
        numbers = range(self.number, self.number + POST_ROWS)
        columns = {
            "ts": pa.array([now + place for place in range(POST_ROWS)], pa.int64()),
            "src_ip": [f"10.0.0.{number % 9}" for number in numbers],
            "number": pa.array(numbers, pa.int64()),
        }
        self._client.post_event(STREAM, pa.table(columns), **promise)
        self._client.flush()
        self.number += POST_ROWS


class Copier:
    """Runs `medusa subscribe --into`, and kills it now and then."""

    def __init__(self, folder: Path, environment: dict[str, str]) -> None:
        self.folder = folder
        self._environment = environment
        self._process = self._start()
        self.killed = 0

    def _start(self) -> subprocess.Popen[bytes]:
        arguments = [str(MEDUSA), "subscribe", STREAM, "--into", str(self.folder), "--every", "1"]
        return subprocess.Popen(arguments, env=self._environment)

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()
        self.killed += 1
        self._process = self._start()

    def end(self) -> None:
        self._process.send_signal(signal.SIGINT)
        self._process.wait(DEADLINE_S)


@contextmanager
def copier(folder: Path, environment: dict[str, str]) -> Iterator[Copier]:
    one = Copier(folder, environment)
    try:
        yield one
    finally:
        one.end()


def beside_a_posting_client(folder: Path, seconds: float) -> dict[str, Any]:
    """Return the findings of the page's programs within that many seconds."""
    home = folder / ".medusa"  # the folder is hidden, as the default one is
    java = str(find_java(os.environ))
    path = f"{MEDUSA.parent}:{os.environ['PATH']}"
    environment = {**os.environ, "MEDUSA_HOME": str(home), "PATH": path, "JAVA_HOME": java}
    fields = fields_of("ts long, src_ip string(64), number long")
    schema = Schema("medusa://mit.edu/conn", fields, time="ts")
    with peer(home), MedusaClient(home) as client:
        client.create_schema(schema)
        client.create_stream(StreamDefinition(STREAM, schema.name, history_us=HISTORY_US))
        poster = Poster(client)
        poster.start()
        with copier(folder / "conns-files", environment) as into:
            told = read(folder, seconds, environment, into, poster)
    assert told["readStream"]["numbers"] == [0, poster.number - 1]
    told["posted"], told["killed"] = poster.number, into.killed
    return told


def read(
    folder: Path, seconds: float, environment: dict[str, str], into: Copier, poster: Poster
) -> dict[str, Any]:
    """Return the final report of `outside_readers`."""
    while len(list(into.folder.glob("*.parquet"))) < 2:
        assert poster.is_alive()
        time.sleep(0.2)
    readers = [sys.executable, outside_readers.__file__, str(seconds), into.folder.name]
    with subprocess.Popen(
        readers, env=environment, cwd=folder, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            time.sleep(min(10.0, seconds / 3))
            into.kill()
        while (line := process.stdout.readline()) != b"read\n":
            assert line, "it goes on"
        poster.stop.set()
        poster.join()
        deadline = time.monotonic() + DEADLINE_S
        while outside_readers.with_the_folder(str(into.folder))[3] != poster.number - 1:
            assert time.monotonic() < deadline, "the last tuple came to the folder"
        told: dict[str, Any] = json.loads(process.communicate(b"\n", DEADLINE_S)[0])
    return told


def check(told: dict[str, Any]) -> None:
    for name in ("duckdb and pandas", "spark", "folder", "readStream"):
        assert not told[name]["faults"], f"{name}: {told[name]['faults'][0]}"
        assert told[name]["times"] >= outside_readers.LEAST, name
        assert told[name]["rows"] > POST_ROWS, name
    assert told["readStream"]["rows"] == told["posted"]


@pytest.mark.process
@pytest.mark.spark
def test_outside_readers_find_each_tuple_once(tmp_path: Path) -> None:
    check(beside_a_posting_client(tmp_path, 25.0))


@pytest.mark.soak
def test_outside_readers_find_each_tuple_once_for_ten_minutes(tmp_path: Path) -> None:
    told = beside_a_posting_client(tmp_path, 600.0)
    print(json.dumps(told))
    check(told)
