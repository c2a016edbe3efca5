"""`medusa-peer backup` and `medusa-peer restore`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

from medusa.tools.commands.command_line import home_option, json_option, say

if TYPE_CHECKING:
    from pathlib import Path

    from medusa.tools.commands.peer.archive import Manifest, Progress


@click.command()
@click.argument("file")
@click.option("--keys", metavar="KEYS", help="Write its keys and tokens to KEYS, mode 0600.")
@home_option
@json_option
def backup(file: str, keys: str | None, home: str | None, as_json: bool) -> None:
    """Write this home to FILE, as it is at one moment. The peer may run.

    FILE has no keys: they go to KEYS, once, since they do not change, to be kept apart.
    """
    from pathlib import Path

    from medusa.tools.commands.peer import backup as backing_up
    from medusa.tools.home.folder import Home

    place = Home.locate(home)
    size = sum(path.stat().st_size for path in place.data.rglob("*") if path.is_file())
    with _bar("backing up", size) as progress:
        done = backing_up.backup(
            place, Path(file), Path(keys) if keys is not None else None, progress
        )
    kept = f"; keys in {keys}" if keys else "; without keys: see --keys"
    say(as_json, _as_json(Path(file), done), f"{file}: {_summed(done)}{kept}")


@click.command()
@click.argument("file")
@click.option("--keys", metavar="KEYS", help="The file that `medusa-peer backup --keys` wrote.")
@click.option(
    "--behind",
    metavar="T",
    help="How far anybody but other peers has read its source streams: they go on behind that. "
    "Without it, streams whose time was the present go on behind the present, and streams of "
    "other times behind what other peers have.",
)
@home_option
@json_option
def restore(
    file: str, keys: str | None, behind: str | None, home: str | None, as_json: bool
) -> None:
    """Make a home of the backup FILE, where the peer is lost for good.

    At its first start the peer asks the peers that it knew for newer tuples, names the lost ones,
    and goes on behind those.
    """
    from pathlib import Path

    from medusa.tools.client.times import parse_time
    from medusa.tools.commands.peer import backup as backing_up
    from medusa.tools.home.folder import Home

    place, path = Home.locate(home), Path(file)
    size = path.stat().st_size if path.exists() else 0
    with _bar("restoring", size) as progress:
        kept = Path(keys) if keys is not None else None
        done = backing_up.restore(
            path, place, kept, progress, None if behind is None else parse_time(behind)
        )
    lines = [f"{place.folder}: {_summed(done)}"]
    if done.votes:
        lines.append("this peer has no vote any more on: " + ", ".join(done.votes))
    lines += [
        "the peer that was backed up must not run again: remove its home",
        f"start it: medusa-peer run --home {place.folder}",
        "it asks other peers first, and says in its log and monitor what is lost since the backup",
    ]
    say(as_json, {**_as_json(path, done), "home": str(place.folder)}, "\n".join(lines))


def _as_json(file: Path, done: Manifest) -> dict[str, object]:
    return {
        "file": str(file),
        "participant": done.participant,
        "peer": done.peer,
        "made_at": done.made_at,
        "files": len(done.files),
        "bytes": sum(size for size, _ in done.files.values()),
        "no_votes_on": list(done.votes),
    }


def _summed(done: Manifest) -> str:
    size = sum(size for size, _ in done.files.values())
    return f"{len(done.files)} files, {size:,} bytes of peer {done.peer[:8]} of {done.participant}"


@contextmanager
def _bar(label: str, size: int) -> Iterator[Progress]:
    """A progress bar on a terminal; elsewhere nothing."""
    from sys import stderr

    if not stderr.isatty():
        yield lambda _bytes: None
        return
    with click.progressbar(length=max(size, 1), label=label, file=stderr) as bar:
        yield bar.update
