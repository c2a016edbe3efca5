"""The lock of the protocol: a line for each number, call and message, without its text.

git has the lock and not the page, so that a review sees what a change does to the wire.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from msgspec import Struct

from medusa.overlay import frames, greeting, tls
from medusa.overlay.gossip import claims
from medusa.overlay.rpc import Method
from medusa.testnet.protocol.chapters import (
    answers_in_words,
    callers_in_words,
    messages_of,
    scopes_in_words,
)
from medusa.testnet.protocol.page import closure, names_of
from medusa.testnet.protocol.words import FieldWords, describe

HEAD: Final = "# `make protocol` writes this file. A change of it is a change of the wire (ADR 27)."


def write_lock(methods: Mapping[str, Method]) -> str:
    """The whole file. methods: of a running peer."""
    return "\n".join([HEAD, *_numbers(), *_calls(methods), *_messages(methods), ""])


def _numbers() -> Iterator[str]:
    yield f"protocol {greeting.PROTOCOL}"
    yield f"alpn {tls.PEER_PROTOCOL} {tls.CLIENT_PROTOCOL}"
    yield from (f"answer {each.name} {each.value}" for each in greeting.Answer)
    for kind in frames.Kind:
        least, most = frames.LENGTHS[kind]
        yield f"frame {kind.name} {kind.value}, {least:,} to {most:,} bytes"
    yield from (f"claim {each.name} {each.value}" for each in claims.Word)


def _calls(methods: Mapping[str, Method]) -> Iterator[str]:
    names = names_of(messages_of(methods))
    for name, method in sorted(methods.items()):
        answers = answers_in_words(method, names.__getitem__)
        scopes = scopes_in_words(name) if method.clients else "none"
        yield (
            f"call {name}({names[method.request_type]}): {answers}; for {callers_in_words(method)};"
            f" scope {scopes}; {method.limit:,} bytes"
        )


def _messages(methods: Mapping[str, Method]) -> Iterator[str]:
    told = messages_of(methods)
    names = names_of(told)
    return (_message(kind, names) for kind in sorted(closure(told), key=names.__getitem__))


def _message(kind: type[Struct], names: Mapping[type[Struct], str]) -> str:
    words = describe(kind, names.__getitem__)
    fields = "; ".join(map(_field, words.fields))
    return f"message {names[kind]}, {words.encoding}" + (f": {fields}" if fields else "")


def _field(field: FieldWords) -> str:
    return f"{field.name} {field.type}" + (f" = {field.default}" if field.default else "")
