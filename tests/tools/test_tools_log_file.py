"""The log of a peer is private and bounded, a line for each note, whatever other participants
send."""

from __future__ import annotations

import json
import logging
import os
import re
import warnings
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from medusa.overlay.errors import InvalidInputError, StorageError
from medusa.overlay.events import Events
from medusa.overlay.log import LOGGER, bound
from medusa.tools.home import log_file
from medusa.tools.home.log_file import (
    BURST,
    MAX_KINDS,
    MAX_TRACEBACK,
    PER_LINE_S,
    ConsoleLines,
    FloodGate,
    JsonLines,
    LogConfig,
    open_log,
)

LINE = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z (DEBUG|INFO|WARNING|ERROR) +\[.*\] .*")


def record(text: str, **fields: object) -> logging.LogRecord:
    made = LOGGER.makeRecord("medusa", logging.INFO, __file__, 1, "%s", (text,), None)
    made.__dict__["fields"] = fields
    return made


def test_lines_of_both_forms(tmp_path: Path) -> None:
    events = Events(peer="mit.edu/3fa9c1d2")
    for form in ("console", "json"):
        with open_log(tmp_path / form, LogConfig(format=form)), bound(cause="abc123"):
            events.note("info", "q is running", query="medusa://mit.edu/q", term=7)
            events.note("debug", "not at this level")
    (line,) = (tmp_path / "console").read_text().splitlines()
    assert LINE.fullmatch(line)
    assert line.endswith(
        " INFO    [peer=mit.edu/3fa9c1d2 cause=abc123 query=medusa://mit.edu/q term=7] q is running"
    )
    (text,) = (tmp_path / "json").read_text().splitlines()
    said = json.loads(text)
    assert (said["level"], said["text"], said["query"]) == (
        "info",
        "q is running",
        "medusa://mit.edu/q",
    )
    assert (said["term"], said["cause"], said["peer"]) == (7, "abc123", "mit.edu/3fa9c1d2")
    assert said["code"].startswith("test_tools_log_file:")


def test_a_fault_is_found_by_its_id_with_its_traceback(tmp_path: Path) -> None:
    events, file = Events(), tmp_path / "logs" / "medusa.log"
    with open_log(file, LogConfig()):
        try:
            raise ValueError("boom\n2026-01-01T00:00:00.000Z INFO    [] all is well\x1b[2J")
        except ValueError as error:
            cause = events.fault("post failed", error)
    lines = file.read_text().splitlines()
    assert f"cause={cause}" in lines[0]
    assert [line for line in lines if LINE.match(line)] == lines[:1]
    assert any("in test_a_fault_is_found_by_its_id" in line for line in lines)
    assert "\x1b" not in file.read_text()


@given(st.text(), st.text())
@settings(max_examples=200)
def test_no_text_makes_a_second_line(text: str, field: str) -> None:
    for form in (ConsoleLines(), JsonLines()):
        line = form.format(record(text, stream=field))
        assert len(line.splitlines()) == 1
        assert line.isprintable()


def test_a_field_cannot_pass_for_another() -> None:
    line = ConsoleLines().format(record("x", stream='a] cause=forged "', cause="real"))
    assert '[stream="a] cause=forged \\"" cause=real] x' in line


def test_a_traceback_is_bounded(tmp_path: Path) -> None:
    with open_log(tmp_path / "log", LogConfig()):
        Events().fault("failed", ValueError("x" * 10 * MAX_TRACEBACK))
    assert (tmp_path / "log").stat().st_size < 2 * MAX_TRACEBACK


def test_files_are_private_and_put_aside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_file, "MAX_FILE_BYTES", 2000)
    monkeypatch.setattr(log_file, "OLD_FILES", 2)
    folder, umask = tmp_path / "logs", os.umask(0)
    try:
        with open_log(folder / "medusa.log", LogConfig()):
            for number in range(200):
                Events().note("info", f"note {number}")
    finally:
        os.umask(umask)
    names = sorted(each.name for each in folder.iterdir())
    assert names == ["medusa.log", "medusa.log.1", "medusa.log.2"]
    assert {each.stat().st_mode & 0o777 for each in folder.iterdir()} == {0o600}
    assert folder.stat().st_mode & 0o777 == 0o700
    assert max(each.stat().st_size for each in folder.iterdir()) <= 2000
    assert (folder / "medusa.log").read_text().endswith("note 199\n")


def test_a_kind_of_line_is_written_so_often_and_then_counted() -> None:
    gate = FloodGate()
    flood, other = ("a.py", 1, "evil.org"), ("a.py", 1, "mit.edu")
    assert [gate.admit(flood, 0.0) for _ in range(BURST)] == [0] * BURST
    assert gate.admit(flood, 0.0) is None
    assert gate.admit(flood, PER_LINE_S / 2) is None
    assert gate.admit(other, 0.0) == 0
    assert gate.left_out() == 2
    assert gate.admit(flood, PER_LINE_S) == 2
    assert gate.left_out() == 0


def test_kinds_that_are_counted_are_bounded() -> None:
    gate = FloodGate()
    for number in range(3 * MAX_KINDS):
        gate.admit(("a.py", number, None), 0.0)
    assert len(gate._counts) == MAX_KINDS


def test_events_left_out_in_a_flood_are_counted(tmp_path: Path) -> None:
    with open_log(tmp_path / "log", LogConfig()):
        for number in range(BURST + 25):
            Events().note("warning", f"refused {number}")
        Events().note("info", "another")
    lines = (tmp_path / "log").read_text().splitlines()
    assert len(lines) == BURST + 2
    assert lines[-2].endswith("another")
    assert "25 lines like others were left out" in lines[-1]


def test_a_failing_disk_is_reported_and_stops_no_peer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    events = Events()
    with open_log(tmp_path / "log", LogConfig()):
        events.note("info", "before")
        with monkeypatch.context() as patch:
            patch.setattr(log_file._LogFile, "shouldRollover", _refuse)
            events.note("info", "lost")
            events.note("info", "lost too")
        events.note("info", "after")
    lines = (tmp_path / "log").read_text().splitlines()
    assert [line.rpartition("] ")[2] for line in lines] == [
        "before",
        "2 lines before this one could not be written",
        "after",
    ]


def _refuse(*_: object) -> bool:
    raise OSError(28, "No space left on device")


def test_warnings_of_libraries_are_logged_too(tmp_path: Path) -> None:
    with open_log(tmp_path / "log", LogConfig()), bound(connection="utah.edu/1#2"):
        logging.getLogger("kademlia").warning("odd %s", "thing\n")
        logging.getLogger("kademlia").info("not this")
    (line,) = (tmp_path / "log").read_text().splitlines()
    assert line.endswith("[connection=utah.edu/1#2 library=kademlia] odd thing?")
    assert not logging.getLogger().handlers or all(
        "_LogFile" not in str(type(handler)) for handler in logging.getLogger().handlers
    )


def test_warnings_of_libraries_go_to_the_log_and_not_to_the_terminal(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        with open_log(tmp_path / "log", LogConfig()):
            warnings.warn("old ways", FutureWarning, stacklevel=1)
    assert "FutureWarning: old ways" in (tmp_path / "log").read_text()
    assert capfd.readouterr().err == ""


def test_a_log_that_cannot_be_opened_is_one_error(tmp_path: Path) -> None:
    (tmp_path / "logs").write_text("a file")
    with pytest.raises(StorageError, match="logs"), open_log(tmp_path / "logs" / "x", LogConfig()):
        raise AssertionError


@pytest.mark.parametrize(("level", "form"), [("loud", "console"), ("info", "xml")])
def test_a_misspelt_setting_is_refused_by_name(level: str, form: str) -> None:
    with pytest.raises(InvalidInputError, match=r"log\.(level|format) is one of"):
        LogConfig(level, form)
