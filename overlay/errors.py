"""Every error that crosses a package, a process or a command line.

One tree, one wire code a class: a peer that refuses a call sends the code and the message, and the
caller raises the same class. A message names the thing, the place and the mend.

    MedusaError
    +-- InvalidInputError        something given from outside is malformed or does not type-check
    |   +-- DecodeError          bytes that do not decode (the one error of every decoder)
    +-- NotAuthorisedError       the caller is known, and may not do this
    |   +-- UntrustedError       the caller, certificate or signature cannot be believed
    |       +-- RefusedError     a member does not take this peer for one of the federation
    +-- NotFoundError            no such object
    |   +-- WithdrawnError       there was one, and its owner has taken it back
    +-- ConflictError            it exists already, and differs
    +-- BusyError                a limit was reached; nothing was done; try again later
    |   +-- StorageError         the disk does not take it: it fails, or may only be read
    |       +-- StorageFullError the disk, or this peer's share of it, is full
    +-- UnavailableError         the peer that should answer cannot be reached
    |   +-- DeadlineError        it did not answer in time; what it did is unknown
    |   +-- BrokenError          the connection broke; what was under way is unknown
    +-- ClosedError              our side closed it
    +-- SequenceGapError         a post skipped a sequence number; nothing was stored
    +-- NotRetainedError         the boundary asked for is older than what is kept
    +-- StoppedError             the query that this needs is not running
    +-- InternalError            a fault of ours; the peer's log has it, under the id that is said
        +-- DamagedError         a file of this peer's home is damaged, or part of it is missing
"""

from __future__ import annotations

from typing import ClassVar


def printable(text: str) -> str:
    """A stranger's text without the control characters by which it would steer a terminal."""
    return "".join(c if c.isprintable() else "?" for c in text)


class MedusaError(Exception):
    """Root of the tree.

    Attributes:
        code: the class's name on the wire.
        remote: whether another peer has raised it, and so has its log.
    """

    code: ClassVar[str] = "error"
    remote = False
    _by_code: ClassVar[dict[str, type[MedusaError]]] = {}

    def __init_subclass__(cls, code: str | None) -> None:
        super().__init_subclass__()
        if code is None:  # others are told what it is a kind of
            return
        cls.code = code
        assert code not in MedusaError._by_code, f"two errors with code {code}"
        MedusaError._by_code[code] = cls

    @staticmethod
    def from_wire(code: str, message: str) -> MedusaError:
        """The error that a remote peer sent; an unknown code gives a plain `MedusaError`."""
        error = MedusaError._by_code.get(code, MedusaError)(printable(message))
        error.remote = True
        return error


class InvalidInputError(MedusaError, code="invalid_input"):
    pass


class DecodeError(InvalidInputError, code="decode"):
    pass


class NotAuthorisedError(MedusaError, code="not_authorised"):
    pass


class UntrustedError(NotAuthorisedError, code="untrusted"):
    pass


class RefusedError(UntrustedError, code="refused"):
    pass


class NotFoundError(MedusaError, code="not_found"):
    pass


class WithdrawnError(NotFoundError, code="withdrawn"):
    pass


class ConflictError(MedusaError, code="conflict"):
    pass


class BusyError(MedusaError, code="busy"):
    pass


class StorageError(BusyError, code="storage"):
    pass


class StorageFullError(StorageError, code="storage_full"):
    pass


class UnavailableError(MedusaError, code="unavailable"):
    pass


class DeadlineError(UnavailableError, code="deadline"):
    pass


class BrokenError(UnavailableError, code="broken"):
    pass


class ClosedError(MedusaError, code="closed"):
    pass


class SequenceGapError(MedusaError, code="sequence_gap"):
    pass


class NotRetainedError(MedusaError, code="not_retained"):
    pass


class StoppedError(MedusaError, code="stopped"):
    pass


class InternalError(MedusaError, code="internal"):
    pass


class DamagedError(InternalError, code="damaged"):
    pass
