"""Worker processes, and the seeds that they are given one after the other.

One that makes no progress is ended, and its seed has failed: by the CPU time that it takes where it
turns in circles, by the clock where it waits for what never comes.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

import msgspec
import psutil
import trio

from overlay.errors import UnavailableError
from testnet.simulation.simulate import RUN, Result
from testnet.simulation.violation import found
from testnet.simulation.worker import Request

CPU_LIMIT_S: Final = 120.0
"""Of one seed: some tens of times what one takes."""

STILL_SHARE: Final = 4.0
"""Times as long may pass by the clock: others want the processor as well."""

WATCH_S: Final = 0.5

TAIL_BYTES: Final = 2000
"""Of what a worker that died said last."""


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
        """That seed, or how it failed to come to an end."""
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
        process = psutil.Process(self._process.pid)
        begun_s, begun_at = _cpu_s(process), trio.current_time()
        while True:
            await trio.sleep(WATCH_S)
            used_s, passed_s = _cpu_s(process) - begun_s, trio.current_time() - begun_at
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
    # The same hashes everywhere: the order of a set that shows would differ otherwise.
    environment = {**os.environ, "PYTHONHASHSEED": "0"}
    try:
        process = await trio.lowlevel.open_process(
            [sys.executable, "-m", "testnet.simulation.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=environment,
            start_new_session=True,  # Ctrl-C is ours to handle
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
    """In a worker of its own."""
    async with open_worker() as worker:
        return await worker.run(request)


def _cpu_s(process: psutil.Process) -> float:
    try:
        times = process.cpu_times()
    except psutil.NoSuchProcess:
        return 0.0
    return float(times.user + times.system)
