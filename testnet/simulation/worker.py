"""A campaign's worker: reads requests from standard input, a line of JSON each, and answers each
with a line. A process of its own, so that a seed that hangs can be ended from outside, and so that
Python's hashes are the same in every run."""

from __future__ import annotations

import sys

import msgspec
from msgspec import Struct

from testnet.simulation.generate import generate
from testnet.simulation.manifest import Manifest
from testnet.simulation.scratch import sweep
from testnet.simulation.simulate import simulate


class Request(Struct, frozen=True):
    """manifest: None: the one that the seed generates. trace: whether it is wanted."""

    seed: int
    manifest: Manifest | None = None
    trace: bool = False


def main() -> None:
    sweep()
    # What a peer prints would break the protocol.
    answers, sys.stdout = sys.stdout, sys.stderr
    for line in sys.stdin:
        request = msgspec.json.decode(line, type=Request)
        manifest = generate(request.seed) if request.manifest is None else request.manifest
        result = simulate(manifest, request.seed)
        if not request.trace:
            result = msgspec.structs.replace(result, trace=())
        answers.write(msgspec.json.encode(result).decode() + "\n")
        answers.flush()


if __name__ == "__main__":
    main()
