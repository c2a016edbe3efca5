from __future__ import annotations

from medusa.engine.replication.records.stored_query import QueryFiles, StoredQuery


class QueryRecord:
    """A query as one peer knows it, and its file there. All methods but `note` block.

    Attributes:
        saved: the positions that are on disk.
        decided: the query that a takeover has stored, until the takeover is complete.
    """

    def __init__(self, files: QueryFiles, stored: StoredQuery) -> None:
        self._files = files
        self._stored = stored
        self.saved: dict[str, int] = {}
        self.decided: StoredQuery | None = None

    @property
    def stored(self) -> StoredQuery:
        """The query as this peer believes it."""
        return self._stored

    def write(self, stored: StoredQuery) -> None:
        """Store a change of the query; the change takes effect then.

        Raises:
            StorageError: the disk does not take it; nothing has changed.
        """
        self._files.save(stored)
        self._stored, self.saved = stored, stored.positions

    def note(self, stored: StoredQuery) -> None:
        """Take other positions, which a loss of power may take back; see `save`."""
        self._stored = stored

    def save(self) -> None:
        """Save the query. Raises: StorageError: the disk does not take it; the old file stays."""
        self.write(self._stored)

    def decide(self, stored: StoredQuery) -> None:
        """Store that this peer has the query now; `take_over` makes this effective here.

        Raises:
            StorageError: as `write`.
        """
        self._files.save(stored)
        self.decided = stored

    def take_over(self) -> None:
        """Make the decided query the present one."""
        assert self.decided is not None, "it is written down first"
        self._stored = self.decided
