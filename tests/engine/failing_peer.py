"""`medusa-peer` whose disk fails when a test wants it to: from then on the kernel answers some of
its system calls with an error (seccomp), whoever makes them: Python, Arrow or SQLite.

`fail` gives the order: a file in the peer's home, looked for all the time, and removed just before
the disk fails. Sockets are left alone: what is written to them goes by other system calls.
"""

from __future__ import annotations

import ctypes
import errno
import platform
import struct
import sys
import threading
import time
from pathlib import Path
from typing import Final

import msgspec

FILE: Final = "fail.json"
LOOK_S: Final = 0.01

WRITES: Final = ("write", "pwrite64", "writev", "pwritev", "pwritev2")
SYNCS: Final = ("fsync", "fdatasync")
NAMES: Final = ("rename", "renameat", "renameat2", "link", "linkat", "unlink", "unlinkat")
READS: Final = ("pread64",)

_NUMBERS: Final = {
    "write": 1,
    "pread64": 17,
    "pwrite64": 18,
    "writev": 20,
    "fsync": 74,
    "fdatasync": 75,
    "ftruncate": 77,
    "rename": 82,
    "mkdir": 83,
    "link": 86,
    "unlink": 87,
    "unlinkat": 263,
    "renameat": 264,
    "linkat": 265,
    "pwritev": 296,
    "renameat2": 316,
    "pwritev2": 328,
}
"""Numbers of system calls on x86-64."""

_SECCOMP: Final = 317
_NO_NEW_PRIVILEGES: Final = 38
_MODE_FILTER, _ALL_THREADS = 1, 1
_LOAD, _EQUAL, _ABOVE, _RETURN = 0x20, 0x15, 0x25, 0x06
_ALLOW, _FAIL = 0x7FFF0000, 0x00050000
_NUMBER_AT, _FIRST_ARGUMENT_AT = 0, 16
_STANDARD_ERROR: Final = 2


class Order(msgspec.Struct, frozen=True):
    """calls: system calls that fail. error: the number that they return."""

    calls: tuple[str, ...]
    error: int = errno.EIO


def possible() -> bool:
    """Whether this machine can run a peer whose system calls fail."""
    return sys.platform == "linux" and platform.machine() == "x86_64"


def fail(home: Path, order: Order) -> None:
    """Tell the peer that runs in `home` to let its disk fail: write `order` to `FILE` there. The
    peer removes that file just before its disk fails, so a test waits until it is gone."""
    file = home / FILE
    file.with_suffix(".new").write_bytes(msgspec.json.encode(order))
    file.with_suffix(".new").rename(file)


def install(order: Order) -> None:
    """Let the system calls of all threads of this process fail from now on."""
    program = [(_LOAD, 0, 0, _NUMBER_AT)]
    plain = [_NUMBERS[call] for call in order.calls if call != "write"]
    for place, number in enumerate(plain):
        program.append((_EQUAL, len(plain) - place + 3, 0, number))
    # writes to standard output and standard error do not fail
    program.append((_EQUAL, 0, 2, _NUMBERS["write"] if "write" in order.calls else 0xFFFF))
    program.append((_LOAD, 0, 0, _FIRST_ARGUMENT_AT))
    program.append((_ABOVE, 1, 0, _STANDARD_ERROR))
    program.append((_RETURN, 0, 0, _ALLOW))
    program.append((_RETURN, 0, 0, _FAIL | order.error))
    code = ctypes.create_string_buffer(b"".join(struct.pack("<HBBI", *line) for line in program))

    class Filter(ctypes.Structure):
        _fields_ = [("length", ctypes.c_ushort), ("code", ctypes.c_void_p)]

    given = Filter(len(program), ctypes.addressof(code))
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0)
    if libc.syscall(_SECCOMP, _MODE_FILTER, _ALL_THREADS, ctypes.byref(given)):
        raise OSError(ctypes.get_errno(), "seccomp")


def _watch(file: Path) -> None:
    while True:
        time.sleep(LOOK_S)
        try:
            order = msgspec.json.decode(file.read_bytes(), type=Order)
        except FileNotFoundError:
            continue
        file.unlink()
        install(order)
        return


def main() -> None:
    arguments = sys.argv[1:]
    home = Path(arguments[arguments.index("--home") + 1])
    threading.Thread(target=_watch, args=[home / FILE], daemon=True).start()
    from medusa.tools.commands.peer.peer_command import main as medusa_peer

    medusa_peer()


if __name__ == "__main__":
    main()
