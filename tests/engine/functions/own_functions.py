"""Functions of users for the tests, as their files contain them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from medusa.engine.functions.allowed import AllowedFunction, FunctionSettings, allowed_function
from medusa.engine.objects.schema import FieldType

OF_LONGS: dict[str, Any] = {"arguments": (FieldType.LONG,), "result": FieldType.LONG}
"""The types of a function over columns of longs."""

CODE = '''
"""Functions of the tests."""

import math
import os
import time
from datetime import datetime, timedelta

import pyarrow as pa
import pyarrow.compute as pc


def distance(x: float, y: float) -> float:
    return math.hypot(x, y)


def label(n: int, name: str | None) -> str | None:
    return None if n % 7 == 0 else f"{name}-{n}"


def later(at: datetime, seconds: int) -> datetime:
    return at + timedelta(seconds=seconds)


def even(n: int) -> bool:
    return n % 2 == 0


def unlucky(n: int) -> int:
    if n == 13:
        raise ValueError("it is 13")
    return n


def wrong(n: int) -> int:
    return "thirteen" if n == 13 else n


def stuck(n: int) -> int:
    while n == 13:
        pass
    return n


def patient(n: int) -> int:
    time.sleep(0.03)
    return n


def greedy(n: int) -> int:
    return len(bytearray(2**30)) if n == 13 else n


def greedy_little(n: int) -> int:
    return len("x" * 2**20) if n == 13 else n


def gone(n: int) -> int:
    if n == 13:
        os._exit(3)
    return n


def crashed(n: int) -> int:
    if n == 13:
        import ctypes

        ctypes.string_at(0)
    return n


def process(n: int) -> int:
    return os.getpid()


def variables(n: int) -> str:
    print("to nobody")
    return " ".join(sorted(os.environ))


def twice(n: pa.Array) -> pa.Array:
    if pc.any(pc.equal(n, 13)).as_py():
        raise ValueError("13 is among them")
    return pc.multiply(n, 2)


def short(n: pa.Array) -> pa.Array:
    return n.slice(1)


def idle(n: pa.Array) -> pa.Array:
    while True:
        pass


def half(n: "pd.Series") -> "pd.Series":
    return n / 2
'''


def write_code(folder: Path, text: str = CODE) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "own.py").write_text(text)


def own(folder: Path, name: str, **settings: Any) -> AllowedFunction:
    """Write one of the functions above into that folder."""
    if not (folder / "own.py").exists():
        write_code(folder)
    return allowed_function(name, FunctionSettings(f"own.py:{name}", **settings), folder)
