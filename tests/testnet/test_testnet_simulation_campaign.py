"""Campaigns: seeds in worker processes, the replay of one, a manifest, and the output."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner
from rich.console import Console

import medusa.testnet.simulation
from medusa.overlay.errors import InvalidInputError
from medusa.testnet.simulation.campaign import (
    Campaign,
    Request,
    Summary,
    open_worker,
    simulate_apart,
)
from medusa.testnet.simulation.command import simulate as command
from medusa.testnet.simulation.faults import Noise
from medusa.testnet.simulation.history import found
from medusa.testnet.simulation.manifest import load_manifest
from medusa.testnet.simulation.run_real import run_real
from medusa.testnet.simulation.screen import open_progress, render_result, render_summary
from medusa.testnet.simulation.simulate import RUN, Result, simulate

MANIFESTS = Path(medusa.testnet.simulation.__file__).parent / "manifests"
THIN, TRADE = MANIFESTS / "thin.toml", MANIFESTS / "trade.toml"

BAD = Result(4711, (found("streams", "s lost acknowledged rows", ["row 7"]),))


def shown(renderable: object) -> str:
    console = Console(file=io.StringIO(), width=200, color_system=None)
    console.print(renderable)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_the_thin_manifest_is_green_and_has_work_in_it() -> None:
    result = simulate(load_manifest(THIN), 1)
    assert result.violations == ()
    assert result.rows == 180
    assert result.epochs > 10
    assert result.trace


def test_both_ledgers_have_receipts_for_the_work_under_a_contract() -> None:
    result = simulate(load_manifest(TRADE), 1)
    assert result.violations == ()
    assert result.rows == 200
    assert result.receipts >= 2


DIGESTS = """
import sys
from medusa.testnet.simulation.generate import generate
from medusa.testnet.simulation.simulate import simulate
for seed in map(int, sys.argv[1:]):
    print(simulate(generate(seed), seed).digest)
"""


@pytest.mark.process
def test_a_seed_has_one_history_alone_and_after_another_whatever_the_hashes() -> None:
    def digests(hashes: str, *seeds: str) -> list[str]:
        environment = {**os.environ, "PYTHONHASHSEED": hashes}
        command = [sys.executable, "-c", DIGESTS, *seeds]
        return subprocess.check_output(command, env=environment, text=True).split()

    alone, after = digests("1", "11"), digests("2", "8", "11")
    assert alone == after[1:]
    assert alone != after[:1]


@pytest.mark.process
async def test_a_seed_gives_the_same_run_in_every_process() -> None:
    request = Request(3, load_manifest(THIN), trace=True)
    one, two = await simulate_apart(request), await simulate_apart(request)
    assert one.good
    assert one.digest == two.digest
    assert one.trace == two.trace
    other = await simulate_apart(Request(4, load_manifest(THIN)))
    assert other.digest != one.digest
    assert other.trace == ()


async def test_a_seed_that_takes_too_much_cpu_has_failed_and_its_worker_is_gone() -> None:
    async with open_worker() as worker:
        result = await worker.run(Request(1, load_manifest(THIN)), cpu_limit_s=0.01)
        assert [violation.check for violation in result.violations] == [RUN]
        assert "hangs" in result.violations[0].text
    assert not worker.alive


async def test_a_campaign_stops_at_the_first_seed_that_fails() -> None:
    campaign = Campaign(1, 50, cpu_limit_s=0.01)
    summary = await campaign.run()
    assert not summary.good
    assert summary.failed[0].seed == 1
    assert summary.seeds == 1


async def test_a_failed_seed_is_reported_at_once() -> None:
    console = Console(file=io.StringIO(), width=200, color_system=None)
    campaign = Campaign(1, 50)
    async with open_progress(campaign, console):
        for result in (Result(1, ()), BAD):
            campaign.results.append(result)
            campaign.done.notify(result)
        assert isinstance(console.file, io.StringIO)
        assert console.file.getvalue() == "seed 4711 failed\n"


def test_a_failure_is_shown_with_its_evidence_and_how_to_replay_it() -> None:
    text = shown(render_summary(Summary(4700, 12, 11, 20.0, 300.0, 1000, 900, 40, 7, (BAD,))))
    assert "lost acknowledged rows" in text
    assert "row 7" in text
    assert "medusa-testnet simulate --seed 4711 --trace" in text
    assert "11 of 12 seeds green" in text


def test_a_trace_is_shown_line_by_line_when_asked_for() -> None:
    result = msgspec.structs.replace(BAD, violations=(), trace=("0.1 a", "0.2 b"))
    assert shown(render_result(result, trace=True)).splitlines()[:2] == ["0.1 a", "0.2 b"]
    assert "0.1 a" not in shown(render_result(result, trace=False))


def test_the_command_runs_a_manifest_and_reports_by_its_exit_code() -> None:
    done = CliRunner().invoke(command, [str(THIN), "--seed", "2", "--json"])
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["rows"] == 180


def test_the_command_says_what_is_wrong_with_a_manifest(tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.toml"
    wrong.write_text('participants = {"mit.edu" = 1}\nworkload_s = -1.0\n')
    done = CliRunner().invoke(command, [str(wrong)])
    assert done.exit_code == 2
    assert "workload_s" in done.output


async def test_faults_that_real_processes_cannot_have_are_refused() -> None:
    manifest = msgspec.structs.replace(load_manifest(THIN), faults=(Noise(1.0, 1.0, 0.1),))
    with pytest.raises(InvalidInputError, match="noise"):
        await run_real(manifest, 1)


@pytest.mark.soak
@pytest.mark.process
async def test_the_same_manifest_runs_as_real_processes() -> None:
    manifest = load_manifest(THIN)
    mortal = tuple(
        msgspec.structs.replace(fault, power=False)
        for fault in manifest.faults  # type: ignore[type-var]
    )
    result = await run_real(msgspec.structs.replace(manifest, faults=mortal, settle_s=120.0), 1)
    assert result.violations == ()
    assert result.rows == 180


@pytest.mark.soak
@pytest.mark.timeout(3600)
async def test_a_thousand_seeds_are_green() -> None:
    summary = await Campaign(1, 1000, jobs=2).run()
    assert summary.failed == ()
    assert summary.green == 1000
