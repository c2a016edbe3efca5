"""A campaign: many seeds in worker processes, until one fails.

* A worker reads requests from standard input, one line of JSON each, and answers each with a line.
  It is a process of its own, so that a hanging seed can be ended from outside, and Python's hashes
  are the same in every run.
* A seed without progress is ended and has failed: by its CPU time if it loops, by the clock if it
  waits for ever.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Final

import msgspec
import trio
from msgspec import Struct

from medusa.overlay.errors import UnavailableError
from medusa.overlay.listeners import Listeners
from medusa.testnet.kit.cast import cpu_seconds
from medusa.testnet.simulation.generate import generate
from medusa.testnet.simulation.history import found
from medusa.testnet.simulation.manifest import Manifest
from medusa.testnet.simulation.simulate import RUN, Result, simulate, sweep


class Request(Struct, frozen=True):
    """manifest: None: the one generated from the seed. trace: whether to return it."""

    seed: int
    manifest: Manifest | None = None
    trace: bool = False


def main() -> None:
    sweep()
    # other output of a peer would break the protocol
    answers, sys.stdout = sys.stdout, sys.stderr
    for line in sys.stdin:
        request = msgspec.json.decode(line, type=Request)
        manifest = generate(request.seed) if request.manifest is None else request.manifest
        result = simulate(manifest, request.seed)
        if not request.trace:
            result = msgspec.structs.replace(result, trace=())
        answers.write(msgspec.json.encode(result).decode() + "\n")
        answers.flush()


CPU_LIMIT_S: Final = 120.0
"""CPU seconds of one seed: some tens of times the usual."""

STILL_SHARE: Final = 4.0
"""Wall time of a seed as a multiple of its CPU limit: other processes use the processor too."""

WATCH_S: Final = 0.5

TAIL_BYTES: Final = 2000
"""Bytes of a dead worker's last output."""


class Worker:
    """A worker's process."""

    def __init__(self, process: trio.Process, nursery: trio.Nursery) -> None:
        self._process = process
        self._lines = self._read()
        self._said = b""
        nursery.start_soon(self._listen)

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    async def run(self, request: Request, cpu_limit_s: float = CPU_LIMIT_S) -> Result:
        """Run a seed; returns its result, or how it failed to end."""
        assert self._process.stdin is not None
        try:
            await self._process.stdin.send_all(msgspec.json.encode(request) + b"\n")
        except trio.BrokenResourceError:
            return self._ended(request.seed, "its process could not be told to run it")
        verdict: list[Result] = []
        async with trio.open_nursery() as nursery:
            nursery.start_soon(
                self._watch, request.seed, cpu_limit_s, verdict, nursery.cancel_scope
            )
            line = await anext(self._lines, None)
            if line is None:
                code = await self._process.wait()
                verdict.append(self._ended(request.seed, f"its process ended with {code}"))
            else:
                verdict.append(msgspec.json.decode(line, type=Result))
            nursery.cancel_scope.cancel()
        return verdict[0]

    async def _watch(
        self, seed: int, cpu_limit_s: float, verdict: list[Result], scope: trio.CancelScope
    ) -> None:
        pids = [self._process.pid]
        begun_s, begun_at = cpu_seconds(pids), trio.current_time()
        while True:
            await trio.sleep(WATCH_S)
            used_s, passed_s = cpu_seconds(pids) - begun_s, trio.current_time() - begun_at
            if used_s > cpu_limit_s or passed_s > STILL_SHARE * cpu_limit_s:
                self._process.kill()
                text = f"it hangs: {used_s:.0f} s of CPU in {passed_s:.0f} s"
                verdict.append(self._ended(seed, text))
                scope.cancel()
                return

    async def _read(self) -> AsyncIterator[bytes]:
        assert self._process.stdout is not None
        held = bytearray()
        async for chunk in self._process.stdout:
            held += chunk
            while b"\n" in held:
                line, _, held = held.partition(b"\n")
                yield bytes(line)

    async def _listen(self) -> None:
        assert self._process.stderr is not None
        async for chunk in self._process.stderr:
            self._said = (self._said + chunk)[-TAIL_BYTES:]

    def _ended(self, seed: int, text: str) -> Result:
        said = self._said.decode(errors="replace").splitlines()[-5:]
        return Result(seed, (found(RUN, text, said),))


@asynccontextmanager
async def open_worker() -> AsyncIterator[Worker]:
    """A worker, ended with the block.

    Raises:
        UnavailableError: it cannot be started.
    """
    # no set's order may matter; if one does, the seed fails again in a replay
    environment = {**os.environ, "PYTHONHASHSEED": "0"}
    try:
        process = await trio.lowlevel.open_process(
            [sys.executable, "-m", "medusa.testnet.simulation.campaign"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=environment,
            start_new_session=True,  # Ctrl-C is for this process to handle
        )
    except OSError as error:
        raise UnavailableError(f"no worker can be started: {error.strerror}") from None
    async with trio.open_nursery() as nursery:
        try:
            yield Worker(process, nursery)
        finally:
            with trio.CancelScope(shield=True):
                process.kill()
                await process.wait()
            nursery.cancel_scope.cancel()


async def simulate_apart(request: Request) -> Result:
    """Run a seed in a worker of its own."""
    async with open_worker() as worker:
        return await worker.run(request)


class Summary(msgspec.Struct, frozen=True):
    """The result of a campaign.

    Attributes:
        tentative: tuples that subscribers got before they were final.
        failed: the seeds that failed, the first one first.
    """

    first: int
    seeds: int
    green: int
    cpu_s: float
    virtual_s: float
    rows: int
    epochs: int
    faults: int
    tentative: int = 0
    failed: tuple[Result, ...] = ()

    @property
    def good(self) -> bool:
        return not self.failed


@dataclass
class Campaign:
    """A campaign of seeds.

    Attributes:
        go_on: whether the seeds after a failed one are run too.
        cpu_limit_s: the most CPU time of one seed, seconds.
        done: called with every completed seed.
    """

    first: int
    seeds: int
    jobs: int = 1
    go_on: bool = False
    cpu_limit_s: float = CPU_LIMIT_S
    done: Listeners[[Result]] = field(default_factory=Listeners)
    results: list[Result] = field(default_factory=list)
    _stopped: bool = False

    async def run(self) -> Summary:
        """
        Raises:
            UnavailableError: a worker cannot be started.
        """
        left = iter(range(self.first, self.first + self.seeds))
        async with trio.open_nursery() as nursery:
            for _ in range(min(self.jobs, self.seeds)):
                nursery.start_soon(self._work, left)
        return self.summary()

    def summary(self) -> Summary:
        """The summary of the completed seeds."""
        done = sorted(self.results, key=lambda result: result.seed)
        return Summary(
            self.first,
            len(done),
            sum(result.good for result in done),
            round(sum(result.cpu_s for result in done), 3),
            round(sum(result.virtual_s for result in done), 3),
            sum(result.rows for result in done),
            sum(result.epochs for result in done),
            sum(result.faults for result in done),
            sum(result.tentative for result in done),
            tuple(result for result in done if not result.good),
        )

    async def _work(self, left: Iterator[int]) -> None:
        """Run workers one after the other: a new one if a seed ended the last one."""
        seed = next(left, None)
        while seed is not None and not self._stopped:
            async with open_worker() as worker:
                while seed is not None and worker.alive and not self._stopped:
                    # workers finish their lower seeds, because the first failed seed counts
                    result = await worker.run(Request(seed), self.cpu_limit_s)
                    self.results.append(result)
                    self.done.notify(result)
                    self._stopped = self._stopped or not (result.good or self.go_on)
                    seed = next(left, None)


if __name__ == "__main__":
    main()
