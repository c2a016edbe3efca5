"""A peer in a process of its own is backed up during posts, killed, and restored elsewhere."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import crashing_peer
import peer_intervals
import pyarrow as pa
import pytest
from deadline import DEADLINE_S

from medusa.engine.objects.definitions import StreamDefinition
from medusa.engine.objects.schema import BEGINNING, Field, FieldType, Schema
from medusa.overlay.errors import MedusaError
from medusa.tools.client.blocking import MedusaClient

STREAM = "medusa://mit.edu/s"
PEER = (sys.executable, "-m", "medusa.tools.commands.peer.peer_command")
TIMED = (sys.executable, crashing_peer.__file__)
ALONE = peer_intervals.intervals(engine={"timing": {"restored_ask_s": 1.0}})
"""Settings of a federation that has one peer: no other peer will answer, or call."""


def command(home: Path, *arguments: str) -> dict[str, Any]:
    done = subprocess.run(
        [*PEER, *arguments, "--home", str(home), "--json"], capture_output=True, check=False
    )
    assert done.returncode == 0, done.stderr.decode()
    return json.loads(done.stdout)


@contextmanager
def running(home: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Give the home's peer in a process, which is killed at the end."""
    arguments = [*TIMED, "run", "--listen", "127.0.0.1:0", "--home", str(home), "--json"]
    environment = {**os.environ, peer_intervals.INTERVALS: ALONE}
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, env=environment) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline(), "it is up"
            yield process
        finally:
            process.send_signal(signal.SIGKILL)


class Reader(threading.Thread):
    """A subscriber. found: (stime, value), as received."""

    def __init__(self, home: Path, after: int = BEGINNING) -> None:
        super().__init__(daemon=True)
        self.found: list[tuple[int, int]] = []
        self.boundary = after
        self._moved = threading.Condition()
        self._client = MedusaClient(home, patience_s=0.0)

    def run(self) -> None:
        with suppress(MedusaError), self._client as client:  # until its peer is killed
            for epoch in client.subscribe(STREAM, self.boundary):
                columns = (epoch.table.column(name).to_pylist() for name in ("stime", "value"))
                with self._moved:
                    self.found += zip(*columns, strict=True)
                    self.boundary = epoch.upto
                    self._moved.notify_all()

    def wait_for(self, count: int) -> None:
        with self._moved:
            assert self._moved.wait_for(lambda: len(self.found) >= count, DEADLINE_S)


class Poster(threading.Thread):
    """Posts rows with the present time, one after the other, until it is stopped."""

    def __init__(self, home: Path, first: int) -> None:
        super().__init__(daemon=True)
        self.value = first
        self.stop = threading.Event()
        self._client = MedusaClient(home, patience_s=0.0)

    def run(self) -> None:
        try:
            with self._client as client:
                while not self.stop.is_set():
                    times = pa.array([int(time.time() * 1e6)], pa.int64())
                    values = pa.array([self.value], pa.int64())
                    client.post_event(STREAM, pa.table({"t": times, "value": values}))
                    client.flush()
                    self.value += 1
                    self.stop.wait(0.002)
        except MedusaError:
            return  # its peer was killed


@pytest.mark.process
def test_a_peer_is_killed_and_restored(tmp_path: Path) -> None:
    home, file, keys = tmp_path / "home", tmp_path / "mit.backup", tmp_path / "mit.keys"
    command(home, "init", "--participant", "mit.edu", "--found", "cluster")
    fields = (Field("t", FieldType.LONG), Field("value", FieldType.LONG))
    schema = Schema("medusa://mit.edu/row", fields, time="t")
    with running(home) as process:
        with MedusaClient(home) as client:
            client.create_schema(schema)
            client.create_stream(StreamDefinition(STREAM, schema.name))
        first, reader = Poster(home, 0), Reader(home)
        first.start()
        reader.start()
        reader.wait_for(100)
        done = command(home, "backup", str(file), "--keys", str(keys))
        assert done["files"] > 3
        reader.wait_for(len(reader.found) + 300)  # the reader has rows that the backup lacks
        process.send_signal(signal.SIGKILL)
        process.wait()
    first.join()
    reader.join()
    before = dict(reader.found)
    shutil.rmtree(home)
    command(home, "restore", str(file), "--keys", str(keys))
    with running(home):
        second, later, same = Poster(home, 10**6), Reader(home), Reader(home, reader.boundary)
        for thread in (second, later, same):
            thread.start()
        same.wait_for(100)  # the older reader continues
        later.wait_for(len(same.found))
        second.stop.set()
        second.join()
        with MedusaClient(home) as client:
            (peer,) = client.status(federation=False).peers
            told = [event.text for event in peer.events]
        assert any("posts answered after the backup" in text for text in told)
    known = before | dict(same.found)
    assert len(known) == len(before) + len(same.found), "each position is given once"
    for at, value in dict(later.found).items():
        assert known.get(at, value) == value, "never another tuple at one position"
    values = [value for _, value in later.found]
    assert values == sorted(values)
    assert len(set(values)) == len(values)
    assert {value for value in values if value < 10**6} <= set(before.values())
    assert os.stat(keys).st_mode & 0o777 == 0o600
