"""Functions of users in processes of their own: results are those of plain Python, a failing call
names its row, and limits of time and memory hold."""

from __future__ import annotations

import math
import os
import signal
import subprocess
import sys
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import psutil
import pyarrow as pa
import pytest
from deadline import DEADLINE_S
from own_functions import OF_LONGS, own, write_code

from medusa.engine.functions.allowed import (
    AllowedFunction,
    Form,
    Functions,
    FunctionSettings,
    allowed_function,
)
from medusa.engine.functions.computation import CallingExecutor
from medusa.engine.functions.process import CallError, FunctionProcess
from medusa.engine.objects.functions import UserFunction
from medusa.engine.objects.schema import FieldType
from medusa.engine.reference.executor import Costs, ReferenceExecutor
from medusa.engine.tasks.calls import NamedCall
from medusa.overlay.errors import InvalidInputError

LONG = (FieldType.LONG,)


def called(allowed: AllowedFunction, *columns: list[Any]) -> list[Any]:
    """Return the results of the allowed function over these columns."""
    process = FunctionProcess(allowed)
    try:
        return call(process, allowed, *columns)
    finally:
        process.close()


def call(process: FunctionProcess, allowed: AllowedFunction, *columns: list[Any]) -> list[Any]:
    types = allowed.function.arguments
    arrays = [pa.array(each, type_.arrow) for each, type_ in zip(columns, types, strict=True)]
    batch = pa.record_batch(arrays, names=[str(n) for n in range(len(arrays))])
    results, cpu_s = process.call(batch)
    assert cpu_s > 0
    assert results.type == allowed.function.result.arrow
    return results.to_pylist()


def test_results_are_plain_pythons(tmp_path: Path) -> None:
    numbers = [3.0, -4.5, math.inf, 0.0, 1e300]
    assert called(own(tmp_path, "distance"), numbers, numbers[::-1]) == [
        math.hypot(x, y) for x, y in zip(numbers, numbers[::-1], strict=True)
    ]
    whole = list(range(-20, 20))
    assert called(own(tmp_path, "even"), whole) == [n % 2 == 0 for n in whole]
    moments = [datetime(2026, 1, 1, 0, 0, n, 17, tzinfo=UTC) for n in range(5)]
    assert called(own(tmp_path, "later"), moments, [60] * 5) == [
        each + timedelta(minutes=1) for each in moments
    ]
    assert called(own(tmp_path, "twice", **OF_LONGS), [1, None, 3]) == [2, None, 6]
    halves = own(tmp_path, "half", arguments=(FieldType.DOUBLE,), result=FieldType.DOUBLE)
    assert called(halves, [1.0, 3.0]) == [0.5, 1.5]


def test_nulls(tmp_path: Path) -> None:
    """A null argument gives null, unless its annotation allows None."""
    assert called(own(tmp_path, "distance"), [3.0, None, 1.0], [4.0, 1.0, None]) == [
        5.0,
        None,
        None,
    ]
    assert called(own(tmp_path, "label"), [1, 7, None, 2], [None, "x", "x", "x"]) == [
        "None-1",
        None,
        None,
        "x-2",
    ]


@pytest.mark.parametrize(
    ("name", "settings", "text"),
    [
        ("unlucky", {}, "ValueError: it is 13"),
        ("wrong", {}, "TypeError: it gave 'thirteen', which is no int64"),
        ("stuck", {"time_s": 1.0}, "it took longer than 1 s, and was ended"),
        ("greedy", {"memory_bytes": 2**26}, "it takes more than 67,108,864 bytes of memory"),
        ("gone", {}, "its process ended (with 3)"),
        ("crashed", {}, "its process ended (SIGSEGV)"),
        ("twice", OF_LONGS, "ValueError: 13 is among them"),
    ],
)
def test_a_failing_call_names_its_row(
    tmp_path: Path, name: str, settings: dict[str, Any], text: str
) -> None:
    """After a failing call the next call is served, by another process if the first has ended."""
    allowed = own(tmp_path, name, **settings)
    process = FunctionProcess(allowed)
    try:
        rows = [*range(5), 13, *range(20, 4000)]
        with pytest.raises(CallError) as raised:
            call(process, allowed, rows)
        assert (raised.value.row, text in str(raised.value)) == (5, True), str(raised.value)
        rows.remove(13)
        expected = [2 * n for n in rows] if name == "twice" else rows
        assert call(process, allowed, rows) == expected
    finally:
        process.close()


def test_memory_within_the_limit_is_no_failure(tmp_path: Path) -> None:
    assert called(own(tmp_path, "greedy", memory_bytes=2**31), [13]) == [2**30]
    assert called(own(tmp_path, "greedy_little", memory_bytes=2**24), [13]) == [2**20]


def test_the_limit_of_time_is_of_a_call_not_of_all(tmp_path: Path) -> None:
    assert called(own(tmp_path, "patient", time_s=1.0), [*range(60)]) == [*range(60)]


def test_no_single_row_of_a_function_over_columns(tmp_path: Path) -> None:
    for name, settings, text in (
        ("idle", {"time_s": 1.0}, "it took longer than 1 s, and was ended"),
        ("short", {}, "TypeError: it gave 0 results for 1 tuples"),
    ):
        with pytest.raises(CallError, match=text.replace("(", "[(]")) as raised:
            called(own(tmp_path, name, **OF_LONGS, **settings), [1, 2, 3])
        assert raised.value.row == (-1 if name == "idle" else 0)


def test_one_process_serves_all_calls(tmp_path: Path) -> None:
    allowed = own(tmp_path, "process")
    process = FunctionProcess(allowed)
    try:
        (first,) = call(process, allowed, [1])
        assert call(process, allowed, [1, 2]) == [first, first]
        assert first == process.pid != os.getpid()
    finally:
        process.close()
    with pytest.raises(CallError, match="the peer ends"):
        call(process, allowed, [1])
    assert not psutil.pid_exists(first)


def test_secrets_of_the_environment_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The function's own output does not disturb the messages to and from its process, either."""
    monkeypatch.setenv("MEDUSA_HOME", "/secret")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    (names,) = called(own(tmp_path, "variables"), [1])
    assert "PATH" in names.split()
    assert not {"MEDUSA_HOME", "AWS_SECRET_ACCESS_KEY"} & set(names.split())


def test_code_that_has_changed_is_not_run(tmp_path: Path) -> None:
    allowed = own(tmp_path, "unlucky")
    write_code(tmp_path, "def unlucky(n: int) -> int:\n    return -n\n")
    with pytest.raises(CallError, match="has changed since the peer read it"):
        called(allowed, [1])


def test_code_that_cannot_be_loaded(tmp_path: Path) -> None:
    write_code(tmp_path, "import nowhere\ndef f(n: int) -> int:\n    return n\n")
    with pytest.raises(
        CallError, match="its code cannot be loaded: ModuleNotFoundError: No module named 'nowhere'"
    ):
        called(own(tmp_path, "f"), [1])


HOLDER = """
import sys
from pathlib import Path
import pyarrow as pa
from medusa.engine.functions.allowed import FunctionSettings, allowed_function
from medusa.engine.functions.process import FunctionProcess
folder = Path(sys.argv[1])
process = FunctionProcess(allowed_function("stuck", FunctionSettings("own.py:stuck"), folder))
process.call(pa.record_batch([pa.array([1])], names=["n"]))
print(process.pid, flush=True)
process.call(pa.record_batch([pa.array([13])], names=["n"]))
"""


@pytest.mark.process
def test_a_process_ends_with_a_peer_that_is_killed(tmp_path: Path) -> None:
    """The process ends in the middle of a call as well."""
    write_code(tmp_path)
    peer = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(tmp_path)], stdout=subprocess.PIPE, text=True
    )
    assert peer.stdout is not None
    with peer.stdout as said:
        pid = int(said.readline())
    assert psutil.pid_exists(pid)
    peer.send_signal(signal.SIGKILL)
    peer.wait()
    deadline = time.monotonic() + DEADLINE_S
    while psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE:
        assert time.monotonic() < deadline, "it goes on without its peer"
        time.sleep(0.05)


async def test_long_texts_come_in_smaller_requests(tmp_path: Path) -> None:
    """A whole page of long texts would exceed the function's memory."""
    (tmp_path / "own.py").write_text("def size(text: str) -> int:\n    return len(text)\n")
    functions = Functions({"size": own(tmp_path, "size", memory_bytes=2**27)})
    call = NamedCall(functions._allowed["size"].function, ("text",), "call 0")
    texts = ["x" * 2**20] * 200
    table = pa.table({"stime": pa.array(range(200)), "text": pa.array(texts)})
    executor = CallingExecutor(ReferenceExecutor(Costs()), functions, tmp_path)
    try:
        results, _ = await executor.results(call, table)
    finally:
        executor.close()
    assert results.to_pylist() == [2**20] * 200
    assert results.num_chunks > 10


# -- files of functions ----------------------------------------------------------------------------


def test_types_come_from_annotations(tmp_path: Path) -> None:
    found = {
        name: own(tmp_path, name).function.signature
        for name in ("distance", "label", "later", "even")
    }
    assert found == {
        "distance": "distance(double, double) double",
        "label": "label(long, string) string",
        "later": "later(timestamp, long) timestamp",
        "even": "even(long) bool",
    }
    forms = [own(tmp_path, name, **OF_LONGS).form for name in ("even", "twice", "half")]
    assert forms == [Form.VALUE, Form.ARROW, Form.PANDAS]


@pytest.mark.parametrize(
    ("source", "settings", "reason"),
    [
        ("own.py", {}, "neither FILE.py:NAME nor entry:NAME"),
        ("own.py:f()", {}, "neither FILE.py:NAME nor entry:NAME"),
        ("other.py:even", {}, "other.py: No such file or directory"),
        ("own.py:odd", {}, "own.py:odd: there is no such function in the file"),
        ("own.py:twice", {}, "its annotations do not say its types"),
        ("own.py:bare", {}, "its annotations do not say its types"),
        ("own.py:none", {}, "it takes 1 to 32 arguments"),
        ("own.py:many", {}, "it takes positional arguments, and no others"),
        ("own.py:even", {"arguments": (FieldType.INT,) * 2}, "it takes 1 arguments, not 2"),
        ("own.py:even", {"time_s": 0.0}, "time_s is more than 0"),
        ("own.py:even", {"memory_bytes": 10}, "memory_bytes is at least"),
        ("broken.py:f", {}, "broken.py: it is no Python"),
        ("entry:nothing", {}, "entry:nothing: no entry points of that name"),
    ],
)
def test_a_wrong_function_setting_is_refused_with_its_reason(
    tmp_path: Path, source: str, settings: dict[str, Any], reason: str
) -> None:
    write_code(tmp_path)
    with (tmp_path / "own.py").open("a") as file:
        file.write("\ndef bare(n): return n\ndef none() -> int: return 1\n")
        file.write("def many(*n: int) -> int: return 1\n")
    (tmp_path / "broken.py").write_text("def f(:\n")
    with pytest.raises(InvalidInputError) as raised:
        allowed_function("f", FunctionSettings(source, **settings), tmp_path)
    assert reason in str(raised.value)
    assert "\n" not in str(raised.value)


def test_no_function_takes_a_name_of_the_language(tmp_path: Path) -> None:
    write_code(tmp_path)
    for name, reason in (
        ("lower", "part of the language"),
        ("sum", "part of the language"),
        ("case", "part of the language"),
        ("Far", "no name of a function"),
    ):
        with pytest.raises(InvalidInputError, match=reason):
            allowed_function(name, FunctionSettings("own.py:even"), tmp_path)


def test_an_installed_function(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The fingerprint covers its file and its package's version."""
    package, about = tmp_path / "own_models", tmp_path / "own_models-1.0.dist-info"
    package.mkdir()
    about.mkdir()
    (package / "__init__.py").write_text("SHIFT = 5\n")
    (package / "near.py").write_text(
        "from own_models import SHIFT\ndef shifted(n: int) -> int:\n    return n + SHIFT\n"
    )
    (about / "entry_points.txt").write_text("[medusa.functions]\nnear = own_models.near:shifted\n")
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: own-models\nVersion: 1.0\n")
    monkeypatch.syspath_prepend(tmp_path)
    path = os.environ.get("PYTHONPATH", "")
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}{os.pathsep}{path}")
    allowed = allowed_function("near", FunctionSettings("entry:near"), tmp_path)
    assert called(allowed, [1, 2]) == [6, 7]
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: own-models\nVersion: 1.1\n")
    later = allowed_function("near", FunctionSettings("entry:near"), tmp_path)
    assert later.function.fingerprint != allowed.function.fingerprint
    with pytest.raises(CallError, match="has changed since the peer read it"):
        called(allowed, [1])


# -- function names in queries ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"name": "odd"}, "function odd is not allowed at this peer (there are even)"),
        ({"arguments": (FieldType.INT,)}, "function even is even(long) bool here, not even(int)"),
        ({"source": "x.py:even"}, "function even is 'own.py:even' here, not 'x.py:even'"),
        ({"deterministic": True}, "function even is not declared deterministic here"),
        ({"fingerprint": "0" * 64}, "and the query was made with 000000000000"),
    ],
)
def test_a_query_names_what_is_allowed_and_no_other(
    tmp_path: Path, changes: dict[str, Any], reason: str
) -> None:
    allowed = own(tmp_path, "even")
    functions = Functions({"even": allowed})
    here = allowed.function
    assert functions.find(here) is allowed
    given = {each: getattr(here, each) for each in here.__struct_fields__} | changes
    with pytest.raises(InvalidInputError) as raised:
        functions.find(UserFunction(**given))
    assert reason in str(raised.value)


def test_a_query_may_promise_less_than_the_operator(tmp_path: Path) -> None:
    allowed = own(tmp_path, "even", deterministic=True)
    functions = Functions({"even": allowed})
    careful = UserFunction("even", LONG, FieldType.BOOL, "own.py:even")
    assert functions.pinned(careful) == UserFunction(
        "even", LONG, FieldType.BOOL, "own.py:even", fingerprint=allowed.function.fingerprint
    )
