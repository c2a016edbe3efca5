"""Well-typed random calls of a peer's methods: messages without meaning that a member may send.

A seeded generator draws requests from the methods' own types, with boundary values and with names
of existing objects. Each call must be answered in time, by a result or by one typed error, or wait
by design; then it must end when its caller leaves.
"""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

import msgspec
import trio
from msgspec import Struct, inspect

from medusa.engine.replication.leaders.messages import Plan, Shipped
from medusa.engine.streams.messages import Acknowledge, Post, ReceiveEvents
from medusa.overlay.connection import Connection
from medusa.overlay.errors import InternalError, MedusaError
from medusa.overlay.rpc import EndOfCall, Service

ANSWER_S: Final = 2.0
"""The greatest duration of a call that waits for nothing, in seconds."""

TRIES: Final = 5
"""How often a late call is repeated alone, since the machine may have been slow."""

LOOK_S: Final = 1.0
"""How long the test watches a call that may wait for longer, in seconds."""

WAITS: Final = "waits"

Connect: TypeAlias = Callable[[str], Awaitable[Connection]]

INTEGERS: Final = (
    *(0, 1, -1, 2, 7, 255, 249, 1_000_000, 10**15),
    *(2**power + more for power in (31, 53, 62, 63) for more in (-1, 0)),
    *(-(2**power) + more for power in (31, 53, 62, 63) for more in (0, 1)),
    2**64 - 1,
)
"""Boundary values, up to both ends of what MessagePack can carry."""

FLOATS: Final = (0.0, -0.0, 1.0, -1.0, 0.25, 1e-300, 1e300, -1e300, math.inf, -math.inf, math.nan)

TEXTS: Final = (
    "",
    " ",
    "x",
    "*",
    "mit.edu",
    "évil.edu",
    "\x00",
    "\n\x1b[31m",
    "\u202e\U0001f40d",
    "'; --",
    "../../etc/passwd",
    "medusa://",
    "medusa:///x",
    "medusa://mit.edu/" + "x/" * 200,
    "medusa://nobody.example/nothing",
    "f" * 40,
    "0" * 40,
    "x" * 10_000,
    "value > 1",
    "case value between 1 and 2 when true then 1 end",
    "<medusa/>",
    '<query name="q"><box name="b" type="filter"/></query>',
    "127.0.0.1:1",
)

WAITING: Final = frozenset(
    {
        "post_event",  # waits for the next post
        "subscribe",  # for ever
        "task.input",  # waits until the worker has the whole input
        "replica.read",  # waits for the next checkpoint
        "leader.follow",  # waits for the entries that the leader ships
        "create_stream",  # waits for the voters of a stream with k_safety, `homes.FOUND_S`
        "move_task",  # waits for the new worker, `Timing.prepare_s`
        "locate",  # waits for the first epoch of a stream, `locating.FIRST_S`
    }
)
"""Methods whose calls may wait by design, as a pull does; they end when their caller leaves."""

FOLLOWING: Final[Mapping[str, tuple[type[Struct], ...]]] = {
    "post_event": (Post,),
    "subscribe": (Acknowledge,),
    "task.input": (Acknowledge,),
    "replica.read": (Acknowledge,),
    "leader.follow": (Plan, Shipped),
}
"""The messages that the caller of a streaming method sends after its request."""


class Generator:
    """
    Args:
        names: names of existing things: objects, peers (hex), participants, contracts.
        blobs: meaningful bytes: documents, digests, ids.
        samples: meaningful messages, and parts of messages: most drawn messages are samples with
            other values in two fields at most.
    """

    def __init__(
        self,
        rng: random.Random,
        names: Sequence[str] = (),
        blobs: Sequence[bytes] = (),
        samples: Sequence[Struct] = (),
    ) -> None:
        self._rng = rng
        self._names = tuple(names)
        self._blobs = tuple(blobs)
        self._samples: dict[type[Struct], list[Struct]] = {}
        for sample in samples:
            self._samples.setdefault(type(sample), []).append(sample)

    def request(self, kind: type[Struct]) -> Struct:
        """Draw a message of that type."""
        made: Struct = self._made(inspect.type_info(kind), 0)
        return made

    def body(self) -> bytes:
        """Draw the bytes that accompany a message: mostly none."""
        size = self._rng.choice((0, 0, 0, 0, 1, 100, 5_000))
        return self._rng.randbytes(size)

    def _made(self, kind: inspect.Type, depth: int) -> Any:
        return _MAKERS[type(kind)](self, kind, depth)

    def _struct(self, kind: inspect.StructType, depth: int) -> Any:
        samples = self._samples.get(kind.cls)
        if samples and self._rng.random() < 0.6:
            changed = self._rng.sample(kind.fields, min(len(kind.fields), self._rng.randrange(3)))
            given = {each.name: self._made(each.type, depth + 1) for each in changed}
            return msgspec.structs.replace(self._rng.choice(samples), **given)
        given = {}
        for each in kind.fields:
            if not each.required and self._rng.random() < 0.4:
                continue
            given[each.name] = self._made(each.type, depth + 1)
        return kind.cls(**given)

    def _union(self, kind: inspect.UnionType, depth: int) -> Any:
        return self._made(self._rng.choice(kind.types), depth)

    def _many(self, kind: Any, depth: int) -> tuple[Any, ...]:
        most = 0 if depth > 8 else self._rng.choice((0, 1, 1, 2, 3, 3, 40))
        return tuple(self._made(kind.item_type, depth + 1) for _ in range(most))

    def _mapping(self, kind: inspect.DictType, depth: int) -> dict[Any, Any]:
        return {
            self._made(kind.key_type, depth + 1): self._made(kind.value_type, depth + 1)
            for _ in range(self._rng.choice((0, 1, 2, 3)))
        }

    def _integer(self, kind: inspect.IntType, _depth: int) -> int:
        least = -(2**63) if kind.ge is None else kind.ge
        most = 2**64 - 1 if kind.le is None else kind.le
        return self._rng.choice([least, most, *(n for n in INTEGERS if least <= n <= most)])

    def _float(self, kind: inspect.FloatType, _depth: int) -> float:
        least = -math.inf if kind.ge is None else kind.ge
        return self._rng.choice([number for number in FLOATS if not number < least])

    def _text(self, kind: inspect.StrType, _depth: int) -> str:
        pool = self._names if self._names and self._rng.random() < 0.6 else TEXTS
        least, most = kind.min_length or 0, kind.max_length
        return self._rng.choice(pool)[:most].ljust(least, "x")

    def _bytes(self, kind: inspect.BytesType, _depth: int) -> bytes:
        if self._blobs and self._rng.random() < 0.5:
            made = self._rng.choice(self._blobs)
        else:
            made = self._rng.randbytes(self._rng.choice((0, 1, 20, 32, 64, 2_000)))
        least, most = kind.min_length or 0, kind.max_length
        return made[:most].ljust(least, b"x")


_MAKERS: Final[Mapping[type[inspect.Type], Callable[[Generator, Any, int], Any]]] = {
    inspect.StructType: Generator._struct,
    inspect.UnionType: Generator._union,
    inspect.VarTupleType: Generator._many,
    inspect.ListType: lambda generator, kind, depth: list(generator._many(kind, depth)),
    inspect.TupleType: lambda generator, kind, depth: tuple(
        generator._made(each, depth + 1) for each in kind.item_types
    ),
    inspect.DictType: Generator._mapping,
    inspect.IntType: Generator._integer,
    inspect.FloatType: Generator._float,
    inspect.StrType: Generator._text,
    inspect.BytesType: Generator._bytes,
    inspect.BoolType: lambda generator, _kind, _depth: generator._rng.random() < 0.5,
    inspect.NoneType: lambda _generator, _kind, _depth: None,
    inspect.EnumType: lambda generator, kind, _depth: generator._rng.choice(list(kind.cls)),
    inspect.LiteralType: lambda generator, kind, _depth: generator._rng.choice(kind.values),
}


def methods_of(service: Service) -> dict[str, type[Struct]]:
    """Return every method that a peer answers, with the type of its request."""
    return {name: method.request_type for name, method in sorted(service._methods.items())}


@dataclass(frozen=True)
class Call:
    """A call before it is made. who: the name of the caller's connection. said: the messages that
    follow the request. finishes: whether the caller announces that no further message follows."""

    who: str
    method: str
    request: Struct
    body: bytes
    said: tuple[tuple[Struct, bytes], ...] = ()
    finishes: bool = True

    @property
    def may_wait(self) -> bool:
        """Whether the call may take longer than `ANSWER_S`."""
        pulls = isinstance(self.request, ReceiveEvents) and self.request.timeout_s > 0
        return pulls or self.method in WAITING

    def __str__(self) -> str:
        return f"{self.who}: {self.method} {self.request!r}"[:2_000]


def drawn(
    rng: random.Random,
    generator: Generator,
    methods: Mapping[str, type[Struct]],
    callers: Sequence[str],
    count: int,
) -> list[Call]:
    """Draw that many calls, evenly over all methods and callers."""

    def call() -> Call:
        method = rng.choice(list(methods))
        said: list[tuple[Struct, bytes]] = []
        if method in FOLLOWING:
            for _ in range(rng.choice((0, 1, 3))):
                message = generator.request(rng.choice(FOLLOWING[method]))
                said.append((message, generator.body()))
        return Call(
            rng.choice(callers),
            method,
            generator.request(methods[method]),
            generator.body(),
            tuple(said),
            method not in FOLLOWING or rng.random() < 0.5,
        )

    return [call() for _ in range(count)]


@dataclass
class Outcome:
    """The result of many calls.

    Attributes:
        answers: the number of calls by (caller, method, result); the result is "answer", "waits" or
            an error's code.
        late: calls that were not answered in time in any try.
        faults: calls that failed inside the peer.
    """

    answers: Counter[tuple[str, str, str]] = field(default_factory=Counter)
    late: list[Call] = field(default_factory=list)
    faults: list[Call] = field(default_factory=list)


async def make(calls: Iterable[Call], connect: Connect, *, at_once: int = 4) -> Outcome:
    """Make the calls, `at_once` of them concurrently, each over its caller's connection. See
    `TRIES`.

    Args:
        connect: returns the connection of the caller of a name, and dials again if it broke.
    """
    outcome, left = Outcome(), iter(calls)

    async def in_time(call: Call) -> bool:
        """Make the call; return whether it was answered, or may wait."""
        answer = await answer_of(await connect(call.who), call)
        outcome.answers[call.who, call.method, answer] += 1
        if answer == InternalError.code:
            outcome.faults.append(call)
        return answer != WAITS or call.may_wait

    async def work() -> None:
        outcome.late += [call for call in left if not await in_time(call)]

    async with trio.open_nursery() as nursery:
        for _ in range(at_once):
            nursery.start_soon(work)
    for _ in range(TRIES):
        outcome.late = [call for call in outcome.late if not await in_time(call)]
    return outcome


async def answer_of(connection: Connection, call: Call) -> str:
    with trio.move_on_after(LOOK_S if call.may_wait else ANSWER_S):
        return await _answer(connection, call)
    return WAITS


async def _answer(connection: Connection, call: Call) -> str:
    try:
        async with connection.open(call.method, call.request, body=call.body) as duplex:
            for message, body in call.said:
                await duplex.send(message, body)
            if call.finishes:
                duplex.finish_now()
            while True:
                await duplex.receive_raw()
                if call.method not in FOLLOWING:
                    return "answer"
    except EndOfCall:
        return "answer"
    except MedusaError as error:
        return error.code
