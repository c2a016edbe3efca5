"""The home folder: one daemon at a time, and its address."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from medusa.engine.replication import restored
from medusa.overlay.errors import (
    ConflictError,
    DamagedError,
    InvalidInputError,
    NotFoundError,
    UnavailableError,
)
from medusa.tools.home.addresses import format_address, parse_address
from medusa.tools.home.folder import Home, Running

RUNNING = Running(1, "mit.edu", "ab" * 20, ("127.0.0.1", 1), ("127.0.0.1", 2))


def test_the_home_is_located_by_option_then_environment_then_default(tmp_path: Path) -> None:
    assert Home.locate(tmp_path, {"MEDUSA_HOME": "/x"}).folder == tmp_path
    assert Home.locate(None, {"MEDUSA_HOME": "/x"}).folder == Path("/x")
    assert Home.locate(None, {}).folder == Path.home() / ".medusa"


def test_a_second_holder_is_refused_with_the_first_ones_pid(tmp_path: Path) -> None:
    home = Home(tmp_path)
    program = (
        "import sys; from pathlib import Path; from medusa.tools.home.folder import Home\n"
        "with Home(Path(sys.argv[1])).lock():\n"
        "    print('held', flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        assert home.is_locked()
        with pytest.raises(ConflictError, match=rf"pid {holder.pid}\)"), home.lock():
            pass
        holder.kill()
        holder.wait()
    assert not home.is_locked(), "the kernel lets go of a dead holder's lock"
    with home.lock():
        assert home.is_locked()


def test_where_the_daemon_answers(tmp_path: Path) -> None:
    home = Home(tmp_path)
    with pytest.raises(NotFoundError, match="medusa-peer init"):
        home.running()
    home.config.touch()
    home.write_run(RUNNING)
    with pytest.raises(UnavailableError, match="medusa-peer run"):
        home.running()
    with home.lock():
        # a killed daemon had left its addresses
        with pytest.raises(UnavailableError, match=r"is still starting$"):
            home.running()
        home.write_run(RUNNING)
        assert home.running() == RUNNING
        home.run.write_text("{")
        with pytest.raises(DamagedError, match=r"run\.json"):
            home.running()
        home.clear_run()
        with pytest.raises(UnavailableError, match=r"is still starting$"):
            home.running()
        home.data.mkdir()
        (home.data / restored.FILE).touch()
        said = r"still starting: it was restored from a backup, and asks all other peers .*, 60 s$"
        with pytest.raises(UnavailableError, match=said):
            home.running()


@pytest.mark.parametrize("text", ["127.0.0.1:0", "peer.mit.edu:65535", "[::1]:7"])
def test_addresses_round_trip(text: str) -> None:
    assert format_address(parse_address(text)) == text


@pytest.mark.parametrize(
    "text", ["", ":", "a", "a:", ":1", "a:b", "a:65536", "::1:7", "a:-1", "a:٣"]
)
def test_addresses_that_are_none(text: str) -> None:
    with pytest.raises(InvalidInputError, match="address"):
        parse_address(text)
