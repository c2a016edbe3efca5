"""Every error that crosses a package, a process or a command line.

One tree of classes, each with its wire code. A peer that refuses a call sends the code and the
message, and the caller raises the same class. A message names the thing, the place and the mend.

    MedusaError
    +-- InvalidInputError        outside input is malformed or does not type-check
    |   +-- DecodeError          bytes that do not decode (the one error of every decoder)
    +-- NotAuthorisedError       the caller is known, and may not do this
    |   +-- UntrustedError       the caller, certificate or signature cannot be believed
    |       +-- RefusedError     a member does not accept this peer as part of the federation
    +-- NotFoundError            no such object
    |   +-- WithdrawnError       the owner has withdrawn the object
    +-- ConflictError            the object exists already, and differs
    +-- BusyError                a limit was reached; nothing was done; try again later
    |   +-- StorageError         the disk refuses a write: it fails, or is read-only
    |       +-- StorageFullError the disk, or this peer's quota of it, is full
    +-- UnavailableError         the peer that should answer cannot be reached
    |   +-- DeadlineError        no answer in time; whether the call took effect is unknown
    |   +-- BrokenError          the connection broke; whether open calls took effect is unknown
    +-- ClosedError              our side closed the connection
    +-- SequenceGapError         a post skipped a sequence number; nothing was stored
    +-- NotRetainedError         the boundary asked for is older than the kept history
    +-- StoppedError             a query that the call needs is not running
    +-- InternalError            a bug; the peer's log has it under the id in the message
        +-- DamagedError         a file of this peer's home is damaged, or part of it is missing
"""

from __future__ import annotations

from typing import ClassVar


def printable(text: str) -> str:
    """Untrusted text without control characters, which could steer a terminal."""
    return "".join(c if c.isprintable() else "?" for c in text)


class MedusaError(Exception):
    """Root of the tree.

    Attributes:
        code: the class's name on the wire.
        remote: whether another peer raised it, so that its log has the details.
    """

    code: ClassVar[str] = "error"
    remote = False
    _by_code: ClassVar[dict[str, type[MedusaError]]] = {}

    def __init_subclass__(cls, code: str | None) -> None:
        super().__init_subclass__()
        if code is None:  # a class without a code is sent with the code of its base
            return
        cls.code = code
        assert code not in MedusaError._by_code, f"two errors with code {code}"
        MedusaError._by_code[code] = cls

    @staticmethod
    def from_wire(code: str, message: str) -> MedusaError:
        """Rebuild the error that a remote peer sent; an unknown code gives a plain
        `MedusaError`."""
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
