"""The frame of a workload's command."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final, NoReturn

from medusa.engine.spark.config import Profile
from medusa.testnet.kit.command import Scenario
from medusa.testnet.kit.stages import Stages
from medusa.testnet.workload.run import run_workload
from medusa.testnet.workload.workload import (
    STAGES,
    Beside,
    Result,
    Workload,
    render_result,
    with_beside,
)

BESIDE: Final = "beside"
"""The stage of the other system."""

AnotherSystem = Callable[[Callable[[str], None]], Awaitable[Beside]]
"""A function that runs the same queries in another system; it gets a function to call with the name
of the next query."""


def run_command(
    name: str,
    make: Callable[[], Workload],
    *,
    as_json: bool,
    profile: Profile = "edge",
    beside: AnotherSystem | None = None,
) -> NoReturn:
    """Run a workload, show its outcomes, and end the process: with 0 if every answer is exact, with
    1 if one is not, with 2 if a query failed.

    Args:
        name: the name of the command. make: generates the rows.
        profile: the profile of Spark at the peer.
        beside: runs after Medusa's peer has ended; its outcomes do not change the exit code.
    """
    words = STAGES if beside is None else {**STAGES, BESIDE: "another system runs them"}
    stages = Stages(words, name)

    async def run() -> Result:
        result = await run_workload(make, stages, profile=profile)
        if beside is None:
            return result
        with stages.stage(BESIDE):
            return with_beside(result, await beside(partial(stages.say, BESIDE)))

    Scenario(stages, run, render_result).play(as_json=as_json)
