"""The lock of the protocol equals the types, and the page describes every message in it."""

from __future__ import annotations

import difflib
import re
from pathlib import Path
from typing import Annotated, Final

from msgspec import Meta, Struct, structs

from medusa.testnet.protocol.chapters import messages_of, read_methods, write
from medusa.testnet.protocol.lock import write_lock
from medusa.testnet.protocol.page import COLUMNS, closure
from medusa.testnet.protocol.words import describe, type_words

LOCK: Final = Path(__file__).parents[2] / "docs/protocol.lock"


async def test_the_lock_equals_the_types() -> None:
    made, there = write_lock(await read_methods()), LOCK.read_text()
    differing = list(difflib.unified_diff(there.splitlines(), made.splitlines(), n=0, lineterm=""))
    assert differing == [], "run `make protocol`"


async def test_the_page_describes_every_call_and_message_and_wraps() -> None:
    methods = await read_methods()
    page, lock = write(methods), write_lock(methods)
    messages = set(re.findall(r"^message ([^,]+),", lock, re.MULTILINE))
    assert messages <= set(re.findall(r"^###+ (.+)$", page, re.MULTILINE))
    assert len(messages) > 100
    calls = page.partition("\n## Calls\n")[2].partition("\n### ")[0]
    assert set(re.findall(r"^\| `([\w.]+)` \| \[", calls, re.MULTILINE)) == methods.keys()
    prose = [line for line in page.splitlines() if not line.startswith("|")]
    assert max(map(len, prose)) <= COLUMNS


async def test_names_on_the_wire_are_the_names_in_the_code() -> None:
    """A class, and each of its fields, has one name (ADR 27)."""
    for kind in closure(messages_of(await read_methods())):
        assert {each.name: each.encode_name for each in structs.fields(kind)} == {
            name: name for name in kind.__struct_fields__
        }
        snake = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", kind.__name__).lower()
        assert kind.__struct_config__.tag in {None, snake}, kind


async def test_every_streaming_call_names_its_messages() -> None:
    for name, method in (await read_methods()).items():
        answer = method.handler.__annotations__["return"]
        assert (answer == "None") == bool(method.sends), name


class Inner(Struct, frozen=True):
    """Within."""


class Outer(Struct, frozen=True, array_like=True, tag="outer"):
    """Shows how a message is described. first: of all. Later ones: none.

    Attributes:
        second, third: two at once; see
            `Inner`.
        fourth: limited.
    """

    first: int
    second: Inner | None = None
    third: tuple[Inner, ...] = ()
    fourth: Annotated[bytes, Meta(min_length=2, max_length=4)] = b""
    fifth: dict[str, float] = {}
    """Beside it."""


def test_a_message_in_words() -> None:
    words = describe(Outer, lambda kind: kind.__name__)
    assert words.text == "Shows how a message is described."
    assert words.encoding == "an array of its fields, tagged `outer`"
    assert [(each.name, each.type, each.default, each.meaning) for each in words.fields] == [
        ("first", "integer", "", "of all. Later ones: none."),
        ("second", "Inner or none", "none", "two at once; see `Inner`."),
        ("third", "list of Inner", "`()`", "two at once; see `Inner`."),
        ("fourth", "2 to 4 bytes", "`b''`", "limited."),
        ("fifth", "map of text to number", "`{}`", "Beside it."),
    ]


def test_limits_in_words() -> None:
    def words(hint: object) -> str:
        return type_words(hint, lambda kind: kind.__name__)

    assert words(Annotated[int, Meta(ge=0, le=2**62)]) == "integer, 0 to 2^62"
    assert words(Annotated[str, Meta(max_length=64)]) == "text, at most 64 characters"
    assert words(Annotated[list[int], Meta(max_length=9)]) == "list of integer, at most 9 items"
    assert words(Annotated[bytes, Meta(min_length=20, max_length=20)]) == "20 bytes"
