"""Makes one process deterministic: all outside influences follow from a seed.

For the time of one simulation, this replaces:

* trio's choice of the next task, and the order in which it cancels several;
* clocks, random bytes, and new keys;
* threads (their jobs run in the calling task, while virtual time passes);
* the order of folders, and the times of garbage collection.

Two things stay random and must not matter: the bytes that OpenSSL makes for itself (only lengths go
into the digest, and they are fixed), and addresses of objects (so no set of plain objects may
decide an order). Random numbers that a module draws at its import are not the seed's either: only
the first seed of a process imports it.

Signatures made here are not verified again. Signers and verifiers share a process, and verification
was a sixth of a seed's cost. A signature that a key has made of a message is valid by the
definition of Ed25519, so remembering it changes no outcome. All others are verified: a forged or
altered signature, or one under another key or purpose, is not among the remembered ones.
"""

from __future__ import annotations

import itertools
import os
import random
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from importlib import _bootstrap
from typing import Any, Final, TypeVar
from unittest import mock

import trio
from cryptography.hazmat.primitives.asymmetric.ed25519 import (
    Ed25519PrivateKey,
    Ed25519PublicKey,
)
from trio._core import _run

from medusa.overlay import signing
from medusa.testnet.simulation.disk import Disk, folder_patches
from medusa.testnet.virtual.clock import VirtualTime
from medusa.testnet.virtual.garbage import without_collection
from medusa.testnet.virtual.hosts import EPOCH_S, running_process

MOST_REMEMBERED: Final = 20_000
"""Remembered signatures: more than a seed makes while their messages are under way; some 10 MB."""


class Signatures:
    """Signs, verifies, and remembers made signatures.

    Attributes:
        verified: number of signatures that had to be verified.
    """

    def __init__(self) -> None:
        self.verified = 0
        self._made: OrderedDict[bytes, tuple[bytes, bytes]] = OrderedDict()
        self._publics: dict[Ed25519PrivateKey, bytes] = {}

    @contextmanager
    def remembered(self) -> Iterator[None]:
        """Sign and verify through this object until the block ends."""
        with (
            mock.patch.object(signing, "_sign", self.sign),
            mock.patch.object(signing, "_verify", self.verify),
        ):
            yield

    def sign(self, key: Ed25519PrivateKey, message: bytes) -> bytes:
        public = self._publics.get(key)
        if public is None:
            public = self._publics[key] = key.public_key().public_bytes_raw()
        signature = key.sign(message)
        if len(self._made) >= MOST_REMEMBERED:
            self._made.popitem(last=False)  # in one step: clusters of tests sign in threads too
        self._made[signature] = public, message
        return signature

    def verify(self, public: Ed25519PublicKey, signature: bytes, message: bytes) -> None:
        """
        Raises:
            InvalidSignature: that key did not sign this message.
        """
        if self._made.get(signature) == (public.public_bytes_raw(), message):
            return
        self.verified += 1
        public.verify(signature, message)


T = TypeVar("T")

KEY_BYTES: Final = 32
"""Bytes of an Ed25519 private key."""


@contextmanager
def deterministic(seed: int, virtual: VirtualTime, disk: Disk) -> Iterator[None]:
    """Until the block ends, all events in this process follow from the seed.

    Args:
        disk: called with files that are synced.
    """
    with ExitStack() as stack:
        stack.callback(random.setstate, random.getstate())
        random.seed(f"{seed} global")
        for patch in (
            *_clocks(virtual),
            *_random_bytes(random.Random(f"{seed} bytes")),
            *_threads(random.Random(f"{seed} threads")),
            *folder_patches(random.Random(f"{seed} names")),
            *disk.patches(),
            Signatures().remembered(),
            *_scheduler(random.Random(f"{seed} scheduler")),
        ):
            stack.enter_context(patch)
        stack.enter_context(without_collection())
        yield


def _clocks(virtual: VirtualTime) -> list[Any]:
    def wall() -> float:
        process = running_process()
        if process is None:
            return EPOCH_S + virtual.elapsed
        return process.machine.clock.wall(virtual.elapsed)

    def steady() -> float:
        process = running_process()
        return virtual.now if process is None else process.machine.clock.steady(virtual.elapsed)

    def wall_ns() -> int:
        return int(wall() * 1e9)

    return [
        mock.patch.object(time, "time", wall),
        mock.patch.object(time, "time_ns", wall_ns),
        mock.patch.object(time, "monotonic", steady),
        # CPU time must not depend on real time
        mock.patch.object(time, "thread_time", _no_cpu_time),
        mock.patch.object(time, "process_time", _no_cpu_time),
        mock.patch.object(time, "sleep", _refusing_to_sleep()),
    ]


def _no_cpu_time() -> float:
    return 0.0


def _refusing_to_sleep() -> Callable[[float], None]:
    """A `time.sleep` that raises in the simulation's thread; threads of libraries that this process
    has used before may sleep."""
    simulation, really_sleep = threading.get_ident(), time.sleep

    def sleep(seconds: float) -> None:
        if threading.get_ident() == simulation:
            raise AssertionError("time.sleep stops the whole simulation")
        really_sleep(seconds)

    return sleep


def _random_bytes(rng: random.Random) -> list[Any]:
    class Ed25519Keys:
        """Keys from seeded bytes; everything else is inherited from the real class."""

        @staticmethod
        def generate() -> Ed25519PrivateKey:
            return Ed25519PrivateKey.from_private_bytes(rng.randbytes(KEY_BYTES))

    importer: Any = _bootstrap
    importing, really_import, system = 0, importer._find_and_load, os.urandom

    def import_module(*arguments: object) -> object:
        """Import a module. While an import is under way, random bytes come from the system, not
        from the seed."""
        nonlocal importing
        importing += 1
        try:
            return really_import(*arguments)
        finally:
            importing -= 1

    def draw(count: int) -> bytes:
        return system(count) if importing else rng.randbytes(count)

    return [
        mock.patch.object(importer, really_import.__name__, import_module),
        mock.patch.object(os, "urandom", draw),
        mock.patch.object(random, "_urandom", draw),  # for SystemRandom, and so for secrets
        mock.patch(
            "medusa.overlay.identity.Ed25519PrivateKey", _with(Ed25519PrivateKey, Ed25519Keys)
        ),
    ]


def _with(real: type, changed: type) -> type:
    """`real` for isinstance, with the static methods of `changed`."""

    class Kind(type):
        def __instancecheck__(cls, instance: object) -> bool:
            return isinstance(instance, real)

        def __getattr__(cls, name: str) -> object:
            return getattr(real, name)

    return Kind(real.__name__, (), {"generate": changed.__dict__["generate"]})


def _threads(rng: random.Random) -> list[Any]:
    async def run_sync(
        job: Callable[..., T],
        *arguments: object,
        thread_name: str | None = None,
        abandon_on_cancel: bool = False,
        limiter: trio.CapacityLimiter | None = None,
    ) -> T:
        """Run a worker thread's job in the calling task: its effect appears at some moment while
        others run."""
        await trio.lowlevel.checkpoint_if_cancelled()
        process = running_process()
        mean_s = 0.0 if process is None else process.disk_s
        with trio.CancelScope(shield=not abandon_on_cancel):
            if limiter is not None:
                await limiter.acquire_on_behalf_of(trio.lowlevel.current_task())
            try:
                await _pass(rng, mean_s)
                result = job(*arguments)
                await _pass(rng, mean_s)
            finally:
                if limiter is not None:
                    limiter.release_on_behalf_of(trio.lowlevel.current_task())
        return result

    return [mock.patch.object(trio.to_thread, "run_sync", run_sync)]


async def _pass(rng: random.Random, mean_s: float) -> None:
    if mean_s:
        await trio.sleep(rng.expovariate(2 / mean_s))
    else:
        await trio.lowlevel.checkpoint()


def _scheduler(rng: random.Random) -> list[Any]:
    return [
        mock.patch.object(_run, "_ALLOW_DETERMINISTIC_SCHEDULING", True),
        mock.patch.object(_run, "_r", rng),
        *_cancellation(),
    ]


def _cancellation() -> list[Any]:
    """Cancel scopes with equal deadlines, and the tasks of one scope, in the order of their
    creation, not of their addresses: aborting a task may have visible effects, as when it waits for
    an asyncio task."""
    numbers = itertools.count()
    recalculate = _run.CancelStatus.recalculate
    deliver = _run.Task._attempt_delivery_of_any_pending_cancel
    told: list[_run.Task] | None = None

    def in_order(status: _run.CancelStatus) -> None:
        nonlocal told
        tasks: list[_run.Task] = []
        told = tasks
        recalculate(status)
        told = None
        for task in sorted(tasks, key=_age):
            deliver(task)

    def number(_: object) -> int:
        return next(numbers)

    def notify(task: _run.Task) -> None:
        if told is None:
            deliver(task)
        else:
            told.append(task)

    return [
        mock.patch.object(_run.CancelStatus, recalculate.__name__, in_order),
        mock.patch.object(_run.Task, deliver.__name__, notify),
        mock.patch.object(_run, "id", number, create=True),
    ]


def _age(task: _run.Task) -> int:
    return task._counter
