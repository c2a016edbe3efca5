"""Readers of a stream: all code that gives out tuples asks here whether a participant is one.

So does the catalog, before it gives out a private object: those are for readers of the streams that
they are about (`guard`).
"""

from __future__ import annotations

from collections.abc import Iterable

from dht.catalog import Catalog
from engine.objects.definitions import (
    ANY,
    CONTRACT,
    Policy,
    QueryEntry,
    StreamDefinition,
    StreamEntry,
    may_write,
)
from engine.objects.kinds import QUERY, SCHEMA, STREAM
from engine.objects.schema import Schema
from overlay.errors import NotAuthorisedError
from overlay.listeners import Decision, Listeners
from overlay.names import ObjectName


class Readers:
    """
    Attributes:
        pays: whether a participant has a content contract in force with the owner of that stream,
            for it, as far as this peer's participant is a party to it. The market decides it.
        changed: told whenever `pays` says something else.
    """

    def __init__(self) -> None:
        self.pays: Decision[[str, str], bool] = Decision(_nobody_pays)
        self.changed: Listeners[[]] = Listeners()

    def may_read(self, stream: StreamDefinition, participant: str) -> bool:
        """A stream's owner always may; anybody else whom every policy of the stream admits."""
        return participant == stream.owner or self._satisfies(stream.policies, participant)

    def may_know(self, query: str, label: Iterable[Policy], participant: str) -> bool:
        """Whether it may know a query: the owner may, and each reader of all that the query reads.

        Args:
            query: its name. label: the policies of all that it reads.
        """
        owner = ObjectName.parse(query).participant
        return participant == owner or self._satisfies(label, participant)

    def check(self, stream: StreamDefinition, participant: str) -> None:
        """
        Raises:
            NotAuthorisedError: it may not read the stream; says by whose word.
        """
        if participant == stream.owner:
            return
        for policy in stream.policies:
            if not self._admits(policy, participant):
                raise NotAuthorisedError(_refusal(stream, policy, participant))

    def _satisfies(self, policies: Iterable[Policy], participant: str) -> bool:
        return all(self._admits(policy, participant) for policy in policies)

    def _admits(self, policy: Policy, participant: str) -> bool:
        named = participant == policy.owner or not {participant, ANY}.isdisjoint(policy.readers)
        return named or (CONTRACT in policy.readers and self.pays(participant, policy.stream))


def _nobody_pays(_participant: str, _stream: str) -> bool:
    return False


def _refusal(stream: StreamDefinition, policy: Policy, participant: str) -> str:
    """For who asks, who may not know what the stream is made from."""
    text = f"{participant} may not read {stream.name}"
    if policy not in stream.label:
        text += f"; {stream.owner} names its readers"
    else:
        text += f": the owners of what it is made from name its readers; {stream.owner} knows them"
    return text if CONTRACT not in policy.readers else f"{text}, and a content contract makes one"


def guard(catalog: Catalog, readers: Readers) -> None:
    """Let a peer give out definitions of streams to their readers and writers, schemas to those of
    a stream that has it, and queries to those who may read all that they read."""

    def may_have_stream(entry: StreamEntry, participant: str) -> bool:
        writes = may_write(entry.stream, participant)  # for that it must know the fields
        return writes or readers.may_read(entry.stream, participant)

    def may_have_schema(schema: Schema, participant: str) -> bool:
        published = (each.value for each in catalog.own(STREAM))
        return any(
            may_have_stream(entry, participant)
            for entry in published
            if entry.stream.schema == schema.name
        )

    def may_have_query(entry: QueryEntry, participant: str) -> bool:
        return readers.may_know(entry.query.name, entry.label, participant)

    catalog.guard(STREAM, may_have_stream)
    catalog.guard(SCHEMA, may_have_schema)
    catalog.guard(QUERY, may_have_query)
