"""The interpreter's JSON: documents as `json_value` and `json_double` take them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from medusa.engine.scalars.json_paths import read_path

MAX_LEVELS: Final = 1_000
"""Levels of a document, as in Spark's parser (Jackson): a deeper one gives null."""

MAX_DIGITS: Final = 1_000
"""Characters of a number, as in Spark's parser (Jackson): a document with a longer one gives
null."""

MAX_NAME: Final = 50_000
"""Characters of a member's name, as in Spark's parser (Jackson): a document with a longer one gives
null."""

_TOKEN = re.compile(
    r'[ \t\n\r]*(?:([][{}:,])|"((?:[^"\\\x00-\x1f]|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*)"'
    r"|(-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?)|(true|false|null))"
)
_ESCAPE = re.compile(r"\\(?:u([0-9a-fA-F]{4})|(.))", re.DOTALL)
_SHORT: Final = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}
_WORDS: Final = {"true": True, "false": False, "null": None}


@dataclass(frozen=True)
class Number:
    """A number as it is written."""

    text: str


Json: TypeAlias = Any


def value_at(text: str, path: str) -> str | bool | Number | None:
    """The string, truth value or number at a path; None if the path leads to none of these, or the
    text is no document."""
    try:
        value: Json = _document(text)
    except ValueError:
        return None
    for step in read_path(path):
        if isinstance(step, str):
            value = value.get(step) if isinstance(value, dict) else None
        else:
            within = isinstance(value, list) and step < len(value)
            value = value[step] if within else None
    return value if isinstance(value, (str, bool, Number)) else None


class _Reader:
    """Reads the tokens of a text, one after the other."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0

    def token(self) -> tuple[str, Json]:
        """The next token: a sign, or ("", value)."""
        match = _TOKEN.match(self._text, self._at)
        if match is None:
            raise ValueError("no token")
        self._at = match.end()
        sign, string, number, word = match.groups()
        if sign is not None:
            return sign, None
        if string is not None:
            return "", _unescaped(string)
        if number is not None:
            if sum(each.isdigit() for each in number) > MAX_DIGITS:
                raise ValueError("too many digits")
            return "", Number(number)
        return "", _WORDS[word]

    def member(self, container: Json, *, first: bool) -> tuple[bool, str | None]:
        """Whether another member follows, and its name if the container is an object. The reader is
        then before the member's value."""
        before = self._at
        sign, value = self.token()
        if sign == ("}" if isinstance(container, dict) else "]"):
            return False, None
        if not first:
            if sign != ",":
                raise ValueError("no comma")
            before = self._at
            sign, value = self.token() if isinstance(container, dict) else ("", None)
        if isinstance(container, list):
            self._at = before
            return True, None
        if not isinstance(value, str) or self.token()[0] != ":":
            raise ValueError("no name of a member")
        if value in container or len(value.encode("utf-16-le")) > 2 * MAX_NAME:
            raise ValueError("a name that is there already, or too long")
        container[value] = None
        return True, value


def _unescaped(string: str) -> str:
    def plain(match: re.Match[str]) -> str:
        code, sign = match.groups()
        return chr(int(code, 16)) if code else _SHORT.get(sign, sign)

    units = _ESCAPE.sub(plain, string).encode("utf-16-le", "surrogatepass")
    return units.decode("utf-16-le")  # half a surrogate pair raises a ValueError


def _document(text: str) -> Json:
    reader = _Reader(text)
    # open containers, each with the name of the present member
    open_: list[tuple[Json, str | None]] = []
    while True:
        sign, value = reader.token()
        if sign and sign not in "{[":
            raise ValueError("a sign that is no value")
        done = not sign
        if sign:
            value = {} if sign == "{" else []
            if len(open_) == MAX_LEVELS:
                raise ValueError("too many levels")
            more, name = reader.member(value, first=True)
            done = not more
            if more:
                open_.append((value, name))
        while done and open_:
            container, name = open_.pop()
            _put(container, name, value)
            more, name = reader.member(container, first=False)
            done = not more
            if more:
                open_.append((container, name))
            value = container
        if done:
            return value


def _put(container: Json, name: str | None, value: Json) -> None:
    if name is None:
        container.append(value)
    else:
        container[name] = value
