"""Writes a peer's home to one file, and restores a home from it."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from medusa.contracts.ledger import LEDGER_FILE
from medusa.contracts.ledger_file import copy_ledger
from medusa.engine.replication.leaders.logs import BallotFiles
from medusa.engine.replication.restored import FILE, Restored
from medusa.engine.streams.store.freezing import SIZES, copied
from medusa.overlay.addresses import Address
from medusa.overlay.errors import ConflictError, InvalidInputError, MedusaError, NotFoundError
from medusa.overlay.files import (
    load_json,
    read_secret,
    save_json,
    storing,
    sweep_parts,
    write_secret,
)
from medusa.overlay.identity import PEER_KEY, Identity, parse_key
from medusa.tools.client.at_prompt import call_daemon
from medusa.tools.commands.peer.archive import (
    MAX_MANIFEST,
    ROOTS,
    VERSION,
    Manifest,
    Member,
    Progress,
    extract,
    write_archive,
)
from medusa.tools.home.folder import Home
from medusa.tools.home.frozen import held
from medusa.tools.home.messages import FREEZE, Freeze, Frozen

FREEZE_S: Final = 60.0
"""Seconds for a peer to give its files second names: some microseconds each."""

SECRETS: Final = ("root.key", "peer.key", "client.token", "tokens.json")
"""Names that an archive never has."""


def backup(home: Home, file: Path, keys: Path | None, progress: Progress) -> Manifest:
    """Write the home, as it is at one moment, to a file; the peer may run.

    The file appears last, when it is complete: a call that was killed is simply repeated.

    Args:
        keys: the file for its keys and tokens, mode 0600; None: they are not written. It may be
            there already if it has them.

    Raises:
        NotFoundError: the home has no peer. ConflictError: there is such a file.
        StorageError: the disk does not take it.
    """
    home.require()
    identity, secrets = Identity.load(home.folder), _secrets(home)
    if file.exists():
        raise ConflictError(f"{file} is there already: remove it, or take another name")
    if keys is not None and keys.exists() and _load_keys(keys) != secrets:
        raise ConflictError(f"{keys} has other keys: remove it, or take another name")
    address = home.running().overlay if home.is_locked() else None
    votes = _votes(home)

    def manifest(files: dict[str, tuple[int, str]], archive: str) -> Manifest:
        return Manifest(
            VERSION,
            identity.participant,
            identity.peer_id.hex(),
            time.time(),
            str(home.folder),
            address,
            votes,
            files,
            archive,
        )

    if keys is not None:
        sweep_parts(keys)
        save_json(keys, secrets, secret=True)
    with _data(home, address) as data:
        members = [*_members(home), *data]
        return write_archive(file, members, manifest, identity.private_key, progress)


def restore(
    file: Path, home: Home, keys: Path | None, progress: Progress, behind: int | None = None
) -> Manifest:
    """Make a home from a backup; at its first start the peer asks others for newer tuples.

    Args:
        keys: the file of its keys.
        behind: the operator's promise that nobody has read its source streams beyond that boundary,
            microseconds, or beyond other peers' copies.

    Raises:
        ConflictError: a peer lives there, or the backed-up peer still runs here.
        InvalidInputError: the backup, or the file of keys, is damaged or of another peer.
        NotFoundError: there are no keys.
    """
    if home.exists or (home.folder.exists() and any(home.folder.iterdir())):
        raise ConflictError(f"{home.folder} is not empty: restore into a new --home")
    secrets = _load_keys(keys)
    key = _peer_key(secrets, keys)
    place = home.folder.with_name(f".{home.folder.name}.restoring")
    shutil.rmtree(place, ignore_errors=True)  # left by a call that was killed
    try:
        manifest = extract(file, place, key, progress)
        _check_gone(manifest)
        for name, content in secrets.items():
            write_secret(place / name, content)
        _check_identity(place, manifest, keys)
        _prepare(place, manifest, behind)
        with storing(home.folder):
            if home.folder.exists():
                home.folder.rmdir()
            place.rename(home.folder)
    finally:
        shutil.rmtree(place, ignore_errors=True)
    return manifest


# -- backing up ------------------------------------------------------------------------------------


def _members(home: Home) -> Iterator[Member]:
    """The files of a home except its data and its ledger."""
    for name in sorted(ROOTS - {"data", "contracts", LEDGER_FILE}):
        with suppress(FileNotFoundError):
            path = home.folder / name
            yield Member(name, path, path.stat().st_size)
    for path in sorted((home.folder / "contracts").glob("*.contract")):
        yield Member(f"contracts/{path.name}", path, path.stat().st_size)


@contextmanager
def _data(home: Home, running: Address | None) -> Iterator[list[Member]]:
    """The home's data and ledger as they are at one moment."""
    if running is None:
        with home.lock(), _ledger(home, home.frozen("ledger")) as ledger:
            files = copied(home.data)
            yield [*_named(home.data, {path: path.stat().st_size for path in files}), *ledger]
        return
    folder = _freeze(home)
    try:
        with held(folder), _ledger(home, folder / "ledger") as ledger:
            sizes = load_json(folder / SIZES, dict[str, int], mend="try again", limit=MAX_MANIFEST)
            yield [*_named(folder, {folder / name: size for name, size in sizes.items()}), *ledger]
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _named(folder: Path, sizes: dict[Path, int]) -> Iterator[Member]:
    for path, size in sizes.items():
        yield Member(f"data/{path.relative_to(folder)}", path, size)


def _freeze(home: Home) -> Path:
    return Path(call_daemon(home, FREEZE, Freeze(), Frozen, FREEZE_S).folder)


@contextmanager
def _ledger(home: Home, folder: Path) -> Iterator[list[Member]]:
    """A copy of the ledger, made by SQLite while another process may write to it."""
    path = home.folder / LEDGER_FILE
    if not path.exists():
        yield []
        return
    copy = folder / LEDGER_FILE
    try:
        with storing(copy):
            folder.mkdir(parents=True)
        copy_ledger(path, copy)
        yield [Member(LEDGER_FILE, copy, copy.stat().st_size)]
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _votes(home: Home) -> tuple[str, ...]:
    stored = BallotFiles(home.data / "ballots").load()
    return tuple(sorted(each.entry.stream.name for each in stored))


# -- keys -----------------------------------------------------------------------------------------


def _secrets(home: Home) -> dict[str, bytes]:
    found: dict[str, bytes] = {}
    for name in SECRETS:
        with suppress(NotFoundError):
            found[name] = read_secret(home.folder / name)
    return found


def _load_keys(file: Path | None) -> dict[str, bytes]:
    if file is None:
        raise NotFoundError(
            "a backup has no keys: say --keys FILE, as `medusa-peer backup --keys FILE` wrote it"
        )
    found = load_json(file, dict[str, bytes], mend="take another copy of it", secret=True)
    if not {"peer.key", "client.token"} <= found.keys() <= set(SECRETS):
        raise InvalidInputError(f"{file}: it is no file of a peer's keys")
    return found


def _peer_key(secrets: dict[str, bytes], file: Path | None) -> Ed25519PublicKey:
    """
    Raises:
        InvalidInputError: there is none in the file of keys.
    """
    try:
        return parse_key(secrets[PEER_KEY]).public_key()
    except InvalidInputError as error:
        raise InvalidInputError(f"{file}: {PEER_KEY}: {error}") from None


# -- restoring -------------------------------------------------------------------------------------


def _check_gone(manifest: Manifest) -> None:
    """
    Raises:
        ConflictError: the peer that was backed up runs on this machine.
    """
    old = Home(Path(manifest.home))
    try:
        runs = old.is_locked() and old.running().peer == manifest.peer
    except (MedusaError, OSError):
        return
    if runs:
        raise ConflictError(
            f"the peer that was backed up runs in {old.folder}: stop it for good first"
        )


def _check_identity(place: Path, manifest: Manifest, keys: Path | None) -> None:
    """
    Raises:
        InvalidInputError: the keys are not those of the peer that was backed up.
    """
    try:
        own = Identity.load(place)
    except MedusaError as error:
        reason = str(error).replace(f"{place}/", "")
        raise InvalidInputError(f"{keys}: not the keys of this backup ({reason})") from None
    if own.peer_id.hex() != manifest.peer:
        raise InvalidInputError(f"{keys}: keys of another peer than {manifest.peer[:8]}")


def _prepare(place: Path, manifest: Manifest, behind: int | None) -> None:
    data = place / "data"
    with storing(data):
        for folder in (data, place / "logs", place / "contracts"):
            folder.mkdir(mode=0o700, exist_ok=True)
        for contract in (place / "contracts").iterdir():
            contract.chmod(0o600)
    if manifest.votes:
        BallotFiles(data / "ballots").abstain(manifest.votes)
    save_json(data / FILE, Restored(manifest.made_at, manifest.address, behind))
