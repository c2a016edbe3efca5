"""A message in words: its text and its fields, from the type and its docstring."""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
import types
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import Enum
from itertools import pairwise
from typing import Annotated, Any, Final, Union, get_args, get_origin, get_type_hints

import msgspec
from msgspec import Meta, Struct, structs

from medusa.engine.objects.schema import BEGINNING, END
from medusa.overlay.names import PeerId

_LONG: Final = 2**40
"""Powers of two from this one on are written as `2^40`."""

_MOMENTS: Final = {BEGINNING: "BEGINNING", END: "END"}

_BASIC: Final[dict[object, str]] = {
    bytes: "bytes",
    PeerId: "peer id",
    str: "text",
    int: "integer",
    float: "number",
    bool: "boolean",
    type(None): "none",
    msgspec.UnsetType: "missing",
}

_UNITS: Final[dict[object, str]] = {
    bytes: " bytes",
    PeerId: " bytes",
    str: " characters",
    int: "",
    float: "",
}


@dataclass(frozen=True)
class FieldWords:
    """One field of a message: its name on the wire, its type, its default and its meaning."""

    name: str
    type: str
    default: str
    meaning: str


@dataclass(frozen=True)
class MessageWords:
    """A message: its text, how it is encoded, and its fields in order."""

    text: str
    encoding: str
    fields: tuple[FieldWords, ...]


def describe(kind: type[Struct], name_of: Callable[[type[Struct]], str]) -> MessageWords:
    """Describe a message. name_of: the page's name of another message."""
    names = [each.name for each in structs.fields(kind)]
    text, meanings = _split(inspect.cleandoc(_docstring(kind)), names)
    meanings |= _beside_fields(kind)
    hints = get_type_hints(kind, include_extras=True)
    return MessageWords(
        text,
        _encoding(kind),
        tuple(
            FieldWords(
                each.encode_name,
                type_words(hints[each.name], name_of),
                _default(each),
                meanings.get(each.name, ""),
            )
            for each in structs.fields(kind)
        ),
    )


def type_words(hint: object, name_of: Callable[[type[Struct]], str]) -> str:
    """A field's type in words, with the limits that its decoder enforces."""
    origin, arguments = get_origin(hint), get_args(hint)
    parts = [type_words(each, name_of) for each in arguments if _is_type(each)]
    if origin is Annotated:
        limits = [_limits(meta, arguments[0]) for meta in arguments[1:] if isinstance(meta, Meta)]
        unlimited = [] if arguments[0] is bytes and any(limits) else parts
        return ", ".join([*unlimited, *filter(None, limits)])
    if origin in {Union, types.UnionType}:
        return " or ".join(parts)
    if origin is tuple and Ellipsis not in arguments:
        return f"({', '.join(parts)})"
    if origin is dict:
        return f"map of {parts[0]} to {parts[1]}"
    return f"list of {parts[0]}" if origin is not None else _plain(hint, name_of)


def _plain(hint: object, name_of: Callable[[type[Struct]], str]) -> str:
    if hint in _BASIC:
        return _BASIC[hint]
    assert isinstance(hint, type)
    if issubclass(hint, Struct):
        return name_of(hint)
    assert issubclass(hint, Enum)
    return "one of " + ", ".join(_member(each) for each in hint)


def _is_type(argument: object) -> bool:
    return argument is not Ellipsis and not isinstance(argument, Meta)


def inner(kind: type[Struct]) -> Iterator[type[Struct]]:
    """The messages that fields of this one contain, in order."""
    for hint in get_type_hints(kind, include_extras=True).values():
        yield from messages_in(hint)


def messages_in(hint: object) -> Iterator[type[Struct]]:
    """The messages that a type names."""
    if isinstance(hint, type) and issubclass(hint, Struct) and hint is not Struct:
        yield hint
    for argument in get_args(hint):
        yield from messages_in(argument)


def limit_words(module: types.ModuleType, name: str) -> tuple[str, str]:
    """A constant of a module: its value, and the text that follows it in the source."""
    value = getattr(module, name)
    return _number(value), _beside(inspect.getsource(module)).get(name, "")


def _number(value: object) -> str:
    if not isinstance(value, int):
        return str(value)
    size = abs(value)
    if size >= _LONG and size & (size - 1) == 0:
        return f"{'-' if value < 0 else ''}2^{size.bit_length() - 1}"
    return f"{value:,}"


def _member(member: Enum) -> str:
    if isinstance(member.value, int):
        return f"{member.name} ({member.value})"
    return f"`{member.value}`"


def _limits(meta: Meta, hint: object) -> str:
    unit = _UNITS.get(hint, " items")
    least = meta.min_length if meta.ge is None else meta.ge
    most = meta.max_length if meta.le is None else meta.le
    if least is not None and least == most:
        return f"{_number(most)}{unit}"
    if least is None:
        return f"at most {_number(most)}{unit}" if most is not None else ""
    return f"{_number(least)} to {_number(most)}{unit}" if most is not None else f"from {least}"


def _default(field: structs.FieldInfo) -> str:
    if field.default_factory is not msgspec.NODEFAULT:
        return f"`{field.default_factory()!r}`"
    if field.default is msgspec.NODEFAULT:
        return ""
    value = field.default
    if value is None or value is msgspec.UNSET:
        return "none" if value is None else "missing"
    if isinstance(value, Enum):
        return f"`{value.value}`"
    if isinstance(value, Struct):
        return "its defaults"
    return _MOMENTS.get(value, f"`{value!r}`") if isinstance(value, int) else f"`{value!r}`"


def _encoding(kind: type[Struct]) -> str:
    config = kind.__struct_config__
    shape = "an array of its fields" if config.array_like else "a map of its fields"
    return f"{shape}, tagged `{config.tag}`" if config.tag else shape


def _docstring(kind: type[Struct]) -> str:
    return kind.__dict__.get("__doc__") or ""


def _split(text: str, names: list[str]) -> tuple[str, dict[str, str]]:
    """Split a docstring into the text about the whole, and the text of each field: `name: ...` or
    `one, other: ...`."""
    text = text.replace("\nAttributes:\n", "\n")
    if text.startswith("Attributes:\n"):
        text = text.partition("\n")[2]
    if not names:
        return _flow(text), {}
    name = "|".join(map(re.escape, sorted(names, key=len, reverse=True)))
    start = re.compile(rf"(?:^|(?<=[.;:?)\n ]))\s*((?:{name})(?:, (?:{name}))*): ", re.MULTILINE)
    found = [match for match in start.finditer(text) if _begins(text, match.start(1))]
    if not found:
        return _flow(text), {}
    ends = [match.start() for match in found[1:]] + [len(text)]
    meanings = {
        each: _flow(text[match.end() : end]).rstrip(";")
        for match, end in zip(found, ends, strict=True)
        for each in match[1].split(", ")
    }
    return _flow(text[: found[0].start()]), meanings


def _begins(text: str, at: int) -> bool:
    """Whether a sentence or a line begins there."""
    before = text[:at].rstrip(" ")
    return not before or before[-1] in ".\n?)"


def _flow(text: str) -> str:
    """A text with each paragraph on one line."""
    paragraphs = re.split(r"\n\s*\n", textwrap.dedent(text).strip())
    return "\n\n".join(" ".join(each.split()) for each in paragraphs)


def _beside_fields(kind: type[Struct]) -> dict[str, str]:
    return _beside(textwrap.dedent(inspect.getsource(kind)))


def _beside(source: str) -> dict[str, str]:
    """The texts that follow the assignments of a module or class."""
    tree: Any = ast.parse(source)
    body = tree.body[0].body if isinstance(tree.body[0], ast.ClassDef) else tree.body
    found = {}
    for before, after in pairwise(body):
        match before, after:
            case (
                ast.AnnAssign(target=ast.Name(id=name)),
                ast.Expr(value=ast.Constant(value=str(text))),
            ):
                found[name] = _flow(inspect.cleandoc(text))
            case _:
                pass
    return found
