"""A running peer reads its settings again on SIGHUP."""

from __future__ import annotations

import dataclasses
import json
import re
import signal
import subprocess
import time
from pathlib import Path

import pytest
from deadline import DEADLINE_S
from engine_interpreted import interpret
from engine_peers import Cluster, make_stream, send_rows
from programs import peer_command
from tools_fake_peer import make_home

from medusa.overlay.errors import StorageFullError
from medusa.overlay.events import Events
from medusa.tools.client.async_client import AsyncMedusaClient
from medusa.tools.daemon.reloading import Reloading, Take, live_settings
from medusa.tools.home.config import TEMPLATE, Config, load_config
from medusa.tools.home.folder import Home

pytestmark = pytest.mark.cluster(disk_bytes=1)


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return make_home(tmp_path)


def texts(events: Events) -> list[tuple[str, str]]:
    return [(event.level, event.text) for event in events.recent()]


async def test_live_settings_are_taken_and_others_wait_for_a_restart(home: Home) -> None:
    home.config.write_text("[engine]\ndisk_bytes = 1000\nepoch_s = 1.0\n")
    took: list[int] = []
    live: dict[str, Take] = {"engine.disk_bytes": lambda new: took.append(new.engine.disk_bytes)}
    events = Events()
    reloading = Reloading(load_config(home), lambda: load_config(home), live, events)
    await reloading.reload()
    assert texts(events) == [("info", "read medusa.toml again: no setting has changed")]
    home.config.write_text('[engine]\ndisk_bytes = 2000\nepoch_s = 2.0\n[log]\nlevel = "debug"\n')
    await reloading.reload()
    assert took == [2000]
    assert texts(events)[1:] == [
        ("info", "set engine.disk_bytes to 2000, from 1000"),
        ("warning", "waits for a restart: medusa.toml has changed engine.epoch_s, log.level"),
    ]
    home.config.write_text("[engine]\ndisk_bytes = 1000\n")  # and back
    await reloading.reload()
    assert took == [2000, 1000]
    assert texts(events)[-1] == ("info", "set engine.disk_bytes to 1000, from 2000")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[engine]\ndisk_byte = 7\n", "unknown key"),
        ("[engine]\ndisk_bytes = -1\n", "disk_bytes must be positive"),
        ("[engine\n", "line 1"),
    ],
)
async def test_a_bad_file_changes_nothing(home: Home, text: str, said: str) -> None:
    events = Events()

    def never(_: Config) -> None:
        raise AssertionError

    reloading = Reloading(
        load_config(home), lambda: load_config(home), {"engine.disk_bytes": never}, events
    )
    home.config.write_text(text)
    await reloading.reload()
    ((level, told),) = texts(events)
    assert level == "error"
    assert told.startswith(f"keeps the settings as they are: {home.config}: ")
    assert said in told


async def fill(client: AsyncMedusaClient, stream: str) -> None:
    for number in range(50):
        await send_rows(client, stream, [(number, 1)])


async def test_a_higher_limit_gives_room_at_once(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    interpret(monkeypatch)
    mit = await cluster.settle("mit.edu")
    async with mit.client(patience_s=0.2) as client:
        stream = await make_stream(client, mit, "conns")
        with pytest.raises(StorageFullError):
            await fill(client, stream)
    live = live_settings(mit.up.engine)
    config = mit.config
    more = dataclasses.replace(config.engine, disk_bytes=2**30)
    live["engine.disk_bytes"](dataclasses.replace(config, engine=more))
    client = await cluster.client(mit)
    await send_rows(client, stream, [(60, 1)])


def test_the_template_marks_what_is_live() -> None:
    marked = set(re.findall(r"^# (\w+) = .*\(live\)", TEMPLATE.read_text(), re.MULTILINE))
    assert marked == {"disk_bytes", "foreign_hold_s", "patience_s", "level", "format"}


def reload(home: Home) -> tuple[int, str]:
    """Run `medusa-peer reload`; return its exit code and its output."""
    command = peer_command("reload", "--home", str(home.folder))
    done = subprocess.run(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )
    return done.returncode, done.stdout


@pytest.mark.process
def test_a_peer_heeds_the_signal(home: Home) -> None:
    """Live settings change at once, a bad file is reported, and the peer continues."""
    listen = '[overlay]\nlisten = "127.0.0.1:0"\n'
    home.config.write_text(listen)
    command = peer_command("run", "--home", str(home.folder))
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:

        def logged(words: str) -> str:
            """Return the line of the peer's log that contains these words, once it exists."""
            until = time.monotonic() + DEADLINE_S
            while True:
                assert process.poll() is None
                assert time.monotonic() < until, words
                for line in home.log_file.read_text().splitlines():
                    if words in line:
                        return line
                time.sleep(0.02)

        assert process.stdout is not None
        assert "is up" in process.stdout.readline()
        home.config.write_text(f'{listen}[log]\nformat = "json"\n[engine]\nepoch_s = 2.0\n')
        (code, said) = reload(home)
        assert (code, said) == (
            0,
            f"the peer in {home.folder} (pid {process.pid}) reads {home.config} again\n",
        )
        waits = logged("waits for a restart: medusa.toml has changed engine.epoch_s")
        assert json.loads(waits)["level"] == "warning"  # by now the log is JSON
        home.config.write_text("[nonsense]\n")
        code, said = reload(home)
        assert code == 1
        assert f"{home.config}: unknown section [nonsense]" in said
        process.send_signal(signal.SIGHUP)
        logged("keeps the settings as they are: ")
        process.terminate()
        assert process.wait() == 0
    code, said = reload(home)
    assert code == 1
    assert "is not running: start it with" in said
