"""The home folder of a peer: its files, its lock, and the addresses of its daemon."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final

from msgspec import Struct

from medusa.overlay.errors import ConflictError, InvalidInputError, NotFoundError, UnavailableError
from medusa.overlay.files import load_json, mended_by, read_secret, save_json, storing
from medusa.tools.home.addresses import Address

HOME_VARIABLE: Final = "MEDUSA_HOME"
DEFAULT_FOLDER: Final = "~/.medusa"
MAX_RUN_BYTES: Final = 64 * 1024
"""Bytes: a run.json has a few hundred; a longer file is not ours."""

FROZEN: Final = "frozen-"
"""The prefix of the folders that a backup makes, and removes."""

TOKEN_BYTES: Final = 32
"""Random bytes of a client token, written in hex: too many to guess."""

LOCK_TRIES: Final = 10
LOCK_PAUSE_S: Final = 0.02
"""Seconds that a daemon waits for the lock: a client that calls `is_locked` holds it for
microseconds."""


class Running(Struct, frozen=True):
    """The contents of run.json: a daemon's process, peer and addresses.

    Attributes:
        peer: its peer id, hex.
        overlay: its address for other peers. client: its address for this participant's clients.
        xmlrpc: its address for those that speak XML-RPC; None: it has none.
    """

    pid: int
    participant: str
    peer: str
    overlay: Address
    client: Address
    xmlrpc: Address | None = None


@dataclass(frozen=True)
class Home:
    """The folder of one peer: its files, its lock, and the addresses of its daemon."""

    folder: Path

    @staticmethod
    def locate(given: str | Path | None, environment: Mapping[str, str] = os.environ) -> Home:
        """The home for a command: `--home`, else $MEDUSA_HOME, else ~/.medusa."""
        chosen = given or environment.get(HOME_VARIABLE) or DEFAULT_FOLDER
        return Home(Path(chosen).expanduser().absolute())

    @property
    def config(self) -> Path:
        return self.folder / "medusa.toml"

    @property
    def token(self) -> Path:
        """The token of this peer's owner, with every scope, mode 0600."""
        return self.folder / "client.token"

    @property
    def tokens(self) -> Path:
        """The hashes, names and scopes of the other tokens, mode 0600."""
        return self.folder / "tokens.json"

    @property
    def spark_secret(self) -> Path:
        """The secret of its Spark cluster, mode 0600; only where there is one."""
        return self.folder / "spark.secret"

    @property
    def root_key(self) -> Path:
        """The participant's private key: only in the home where it was made."""
        return self.folder / "root.key"

    @property
    def root_certificate(self) -> Path:
        return self.folder / "root.crt"

    @property
    def peer_certificate(self) -> Path:
        return self.folder / "peer.crt"

    @property
    def bootstrap(self) -> Path:
        """The file with the addresses of peers to join by, from the invitation: a JSON list of
        "host:port"."""
        return self.folder / "bootstrap.json"

    @property
    def run(self) -> Path:
        return self.folder / "run.json"

    @property
    def lock_file(self) -> Path:
        return self.folder / "lock"

    @property
    def data(self) -> Path:
        return self.folder / "data"

    def frozen(self, name: str) -> Path:
        """The folder of the data as it was at one moment, during a backup."""
        return self.folder / f"{FROZEN}{name}"

    @property
    def functions(self) -> Path:
        """The files of the functions that medusa.toml names."""
        return self.folder / "functions"

    @property
    def logs(self) -> Path:
        return self.folder / "logs"

    @property
    def log_file(self) -> Path:
        return self.logs / "medusa.log"

    @property
    def exists(self) -> bool:
        return self.config.exists() or self.peer_certificate.exists()

    def require(self) -> None:
        """
        Raises:
            NotFoundError: no peer was made here.
        """
        if not self.exists:
            raise NotFoundError(
                f"no peer lives in {self.folder}: make one with "
                f"`medusa-peer init --participant NAME --home {self.folder}`, "
                f"or say where it is with --home or ${HOME_VARIABLE}"
            )

    @contextlib.contextmanager
    def lock(self) -> Iterator[None]:
        """Hold the home for this process; the kernel releases it when the process dies in any way.

        Raises:
            ConflictError: another process holds it.
        """
        with storing(self.lock_file):
            opened = self.lock_file.open("a+", errors="replace")
        with opened as file:
            if not _take(file):
                file.seek(0)
                holder = file.read(32).strip() or "unknown"
                raise ConflictError(
                    f"a peer runs in {self.folder} already (pid {holder}): stop it first, "
                    "or give this one its own --home"
                )
            file.truncate(0)
            file.write(f"{os.getpid()}\n")
            file.flush()
            # a killed daemon leaves the file, with addresses where nobody listens now
            self.clear_run()
            for left in self.folder.glob(f"{FROZEN}*"):  # an interrupted backup leaves such folders
                shutil.rmtree(left, ignore_errors=True)
            yield

    def is_locked(self) -> bool:
        """Whether a daemon holds this home now."""
        try:
            with self.lock_file.open() as file:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except FileNotFoundError:
            return False
        except BlockingIOError:
            return True
        return False

    def write_run(self, running: Running) -> None:
        """Write this daemon's addresses; a reader never sees half of them."""
        save_json(self.run, running)

    def clear_run(self) -> None:
        # a left-over file makes no reader believe that a daemon runs
        with contextlib.suppress(OSError):
            self.run.unlink(missing_ok=True)

    def running(self) -> Running:
        """The addresses of the daemon of this home.

        Raises:
            NotFoundError: no peer was made here.
            UnavailableError: its daemon does not run.
            DamagedError: run.json is damaged.
        """
        self.require()
        if not self.is_locked():
            raise UnavailableError(
                f"the peer in {self.folder} is not running: start it with "
                f"`medusa-peer run --home {self.folder}`"
            )
        try:
            mend = "restart the peer to have it written anew"
            return load_json(self.run, Running, mend=mend, limit=MAX_RUN_BYTES)
        except NotFoundError:
            told = f"the peer in {self.folder} is still starting{self._waiting_for()}"
            raise UnavailableError(told) from None

    def _waiting_for(self) -> str:
        """Why the start of a peer takes long, for people."""
        from medusa.engine.replication.restored import is_restored  # other commands do not load it
        from medusa.engine.streams.config import Timing

        if not is_restored(self.data):
            return ""
        return (
            ": it was restored from a backup, and asks all other peers how far they have its "
            "streams; it waits for those that do not answer, or for a first one, "
            f"{Timing().restored_ask_s:g} s"
        )

    def client_token(self) -> bytes:
        """The secret that the owner's clients show.

        Raises:
            NotFoundError, NotAuthorisedError: it is missing, or open to others.
            DamagedError: it is too short for a secret.
        """
        mend = f"have it made anew: medusa-peer token rotate owner --home {self.folder}"
        with mended_by(self.token, mend):
            token = read_secret(self.token).strip()
            if len(token) < TOKEN_BYTES:
                raise InvalidInputError(f"it holds {len(token)} bytes; a token has more")
            return token


def _take(file: IO[str]) -> bool:
    for _ in range(LOCK_TRIES):
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            time.sleep(LOCK_PAUSE_S)
        else:
            return True
    return False
