"""The simulated detector in small worlds: figures, replay, faults, the command."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner
from rich.console import Group
from screens import text_of

import medusa.testnet.detection.world
from medusa.overlay.datagrams import Channel, Envelope
from medusa.overlay.errors import InternalError, InvalidInputError
from medusa.overlay.gossip.claims import CLAIM_DOMAIN, SIGNATURE_BYTES
from medusa.overlay.gossip.events import Health
from medusa.overlay.identity import Identity, Root
from medusa.overlay.membership import Membership
from medusa.overlay.peers import PeerTable
from medusa.testnet.detection.command import detect
from medusa.testnet.detection.experiment import Progress, run
from medusa.testnet.detection.figures import Options, Result, bytes_check, checks_of
from medusa.testnet.detection.show import draw, render_progress, render_results
from medusa.testnet.detection.world import ENVELOPE, HashKeys, World

COMMAND = "from medusa.testnet.detection.command import detect; detect()"
REPLAY = ("--nodes", "20", "--crashes", "2", "--loss", "0.1", "--slow", "0.1", "--json")


@pytest.fixture(scope="module")
def plain() -> Result:
    """Return sixty peers, in seven worlds; each world loses three peers."""
    return run(Options(60, crashes=21))


def world_of(nodes: int, **changes: float) -> World:
    return World(
        nodes,
        preset="lan",
        loss=changes.get("loss", 0.0),
        slow=changes.get("slow", 0.0),
        rng=random.Random(1),
    )


# -- figures ---------------------------------------------------------------------------------------


def test_crashes_are_detected_when_the_papers_say(plain: Result) -> None:
    expected = plain.predicted
    assert plain.crashes == 21
    assert plain.worlds == 7
    assert plain.unknown == 0
    assert plain.suspect_median_s == pytest.approx(expected.suspect_median_s, rel=0.35)
    assert plain.detect_median_s == pytest.approx(expected.detect_median_s, rel=0.15)
    assert plain.disseminate_median_s is not None
    assert plain.detect_median_s is not None
    # Every peer knows within the rounds that gossip takes, and not before the first peer does.
    spread = plain.disseminate_median_s - plain.detect_median_s
    assert 0 < spread < 2 * expected.spread_s
    assert all(check.holds for check in checks_of(plain))


def test_no_peer_is_suspected_on_a_plain_network(plain: Result) -> None:
    assert plain.suspicions == 0
    assert plain.false_positives == plain.false_positive_pairs == 0


def test_quiet_peers_send_a_ping_and_an_answer_a_second_whatever_their_number(
    plain: Result,
) -> None:
    large = run(Options(200, crashes=0))
    for result in (plain, large):
        assert result.messages_per_peer_per_s == pytest.approx(2.0, rel=0.05)
    checks = bytes_check([plain, large])
    assert [check.holds for check in checks] == [True]
    assert checks[0].value < 1.1
    assert plain.busy_bytes_per_peer_per_s > plain.bytes_per_peer_per_s


def test_seed_replays_exactly_and_another_differs() -> None:
    options = Options(20, crashes=3, loss=0.05, slow=0.1, seed=7)
    first, again = run(options), run(options)
    other = run(Options(20, crashes=3, loss=0.05, slow=0.1, seed=8))
    measured = [
        {**msgspec.to_builtins(result), "seconds": 0, "bytes_per_node": 0, "seed": 0}
        for result in (first, again, other)
    ]
    assert measured[0] == measured[1]
    assert measured[0] != measured[2]


def test_seed_replays_in_another_process_too() -> None:
    # For a different order of sets.
    said = [
        subprocess.run(
            [
                sys.executable,
                "-c",
                "from medusa.testnet.detection.command import detect; detect()",
                *REPLAY,
            ],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            check=False,
        ).stdout
        for seed in ("1", "2")
    ]
    first, second = (json.loads(each) for each in said)
    assert {**first, "seconds": 0, "bytes_per_node": 0} == {
        **second,
        "seconds": 0,
        "bytes_per_node": 0,
    }


def test_killed_processes_are_known_sooner_than_silent_machines(plain: Result) -> None:
    killed = run(Options(60, crashes=6, killed=True))
    assert killed.detect_median_s is not None
    assert plain.detect_median_s is not None
    assert killed.unknown == 0
    assert killed.detect_median_s < plain.detect_median_s / 2
    assert killed.false_positives == 0


def test_loss_makes_no_false_alarm() -> None:
    result = run(Options(40, crashes=2, loss=0.1, seconds=60))
    assert result.simulated_s >= 60
    assert result.unknown == 0
    assert result.suspicions == 0  # a probe over a connection makes up for lost datagrams
    assert result.false_positives == 0
    assert all(check.holds for check in checks_of(result))


def test_loss_is_refuted_where_there_are_datagrams_alone() -> None:
    result = run(Options(40, crashes=2, loss=0.1, seconds=120, datagrams_only=True))
    assert result.unknown == 0
    assert result.suspicions > 0
    assert result.false_positives == 0


def test_slow_peers_cost_no_healthy_one_its_name() -> None:
    result = run(Options(40, crashes=2, slow=0.05, seconds=60))
    assert result.unknown == 0
    assert result.suspicions > 0
    assert result.false_positives_healthy == 0
    assert result.lifeguard_fp_minus == 0
    assert all(check.holds for check in checks_of(result))


# -- the world -------------------------------------------------------------------------------------


def test_crashed_peers_say_and_learn_nothing() -> None:
    world = world_of(12)
    world.clock.run(3.0)
    world.crash(3)
    world.crash(4)
    world.clock.run(40.0)
    assert world.health(3, 4) is None
    live = [node for node in range(12) if node not in {3, 4}]
    assert {world.health(node, 3) for node in live} == {Health.DEAD}
    assert {world.health(node, other) for node in live for other in live} == {Health.ALIVE}
    assert world.tally.unknown == 0


def test_the_books_equal_the_detectors_beliefs() -> None:
    world = world_of(30, loss=0.05, slow=0.1)
    for number in range(3):
        world.clock.at(5.0 + number, world.crash_one)
    for until in range(6, 40):
        world.clock.run(float(until))
        for crash in world.tally.crashes.values():
            for node in range(30):
                if world.tally.live[node]:
                    believed = world.health(node, crash.node) is Health.DEAD
                    assert bool(crash.knows[node]) == believed


def test_ticks_of_a_detector_that_wants_them_for_ever_are_an_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Stuck(medusa.testnet.detection.world.Detector):
        def next_due(self) -> float:
            return 0.0

    monkeypatch.setattr(medusa.testnet.detection.world, "Detector", Stuck)
    with pytest.raises(InternalError, match="wants the tick"):
        world_of(3).clock.run(1.0)


def test_envelopes_are_counted_as_long_as_they_are() -> None:
    now = 1_700_000_000.0
    root = Root.create("mit.edu", now)
    identity = Identity.issue(root, now)
    peers = PeerTable(identity, Membership.found(root, now))
    for payload in (b"", b"x" * 100, b"x" * 1000):
        sealed = Envelope(identity, peers).seal(Channel.GOSSIP, payload, now)
        assert len(sealed) - len(payload) == pytest.approx(ENVELOPE, abs=8)


def test_hashed_signatures_are_their_authors_and_their_purposes() -> None:
    keys = HashKeys(b"a" * 20)
    signature = keys.sign(CLAIM_DOMAIN, b"word")
    assert len(signature) == SIGNATURE_BYTES
    assert keys.verify(b"a" * 20, CLAIM_DOMAIN, b"word", signature)
    assert not keys.verify(b"b" * 20, CLAIM_DOMAIN, b"word", signature)
    assert not keys.verify(b"a" * 20, "other", b"word", signature)
    assert not keys.verify(b"a" * 20, CLAIM_DOMAIN, b"worm", signature)


# -- checks ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "broken"),
    [
        ({"detect_median_s": 30.0}, "median time to detection"),
        ({"detect_p99_s": 60.0}, "p99 time to detection"),
        ({"disseminate_healthy_p99_s": 60.0}, "p99 time to dissemination"),
        ({"unknown": 1}, "not known to everybody"),
        ({"false_positives_healthy": 1}, "taken for dead"),
    ],
)
def test_figures_that_stray_break_their_check(
    plain: Result, change: dict[str, float], broken: str
) -> None:
    checks = checks_of(msgspec.structs.replace(plain, **change))
    assert [check.name for check in checks if not check.holds] == [
        next(check.name for check in checks if broken in check.name)
    ]


def test_traffic_that_grows_with_the_peers_breaks_its_check(plain: Result) -> None:
    rate = plain.bytes_per_peer_per_s
    grown = msgspec.structs.replace(plain, nodes=600, bytes_per_peer_per_s=2 * rate)
    assert [check.holds for check in bytes_check([plain, grown])] == [False]
    assert bytes_check([plain]) == []


# -- command, screen, picture ----------------------------------------------------------------------


def test_command_prints_what_was_asked_for() -> None:
    outcome = CliRunner().invoke(detect, ["--nodes", "10", "--crashes", "1", "--json"])
    assert outcome.exit_code == 0, outcome.output
    figures = json.loads(outcome.stdout)
    assert figures["nodes"] == 10
    assert {
        "detect_median_s",
        "detect_p99_s",
        "disseminate_p99_s",
        "false_positives",
        "bytes_per_peer_per_s",
        "messages_per_peer_per_s",
        "predicted",
    } <= figures.keys()


def test_command_has_a_line_for_each_size_and_draws(tmp_path: Path) -> None:
    picture = tmp_path / "detect.png"
    arguments = ["--nodes", "10,20", "--crashes", "1", "--plot", str(picture)]
    outcome = CliRunner().invoke(detect, arguments)
    assert outcome.exit_code == 0, outcome.output
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert "all 11 checks hold" in outcome.output
    assert outcome.output.count("predicted") == 2


def test_command_fails_where_a_check_does(monkeypatch: pytest.MonkeyPatch, plain: Result) -> None:
    bad = msgspec.structs.replace(plain, false_positives_healthy=1)
    monkeypatch.setattr("medusa.testnet.detection.experiment.run", lambda *_: bad)
    outcome = CliRunner().invoke(detect, [])
    assert outcome.exit_code == 1
    assert "taken for dead" in outcome.output


def test_a_picture_that_cannot_be_written_is_reported(tmp_path: Path, plain: Result) -> None:
    with pytest.raises(InvalidInputError, match="cannot be written"):
        draw([plain], tmp_path / "no" / "folder.png")


def test_screens_fit_eighty_columns(plain: Result) -> None:
    checks = [("60 peers", check) for check in checks_of(plain)]
    large = msgspec.structs.replace(plain, nodes=10_000, loss=0.1, slow=0.05)
    progress = render_progress("10,000 peers:", Progress(1, 100, 1234.5, 50, 49, 3))
    text = text_of(Group(render_results([plain, large], checks), progress), 80)
    assert "10,000" in text
    assert "…" not in text
