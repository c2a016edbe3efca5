"""Readers of a stream: every path that serves tuples asks here whether a participant is one.

The catalog asks too, before it serves a private object (`guard`).
"""

from __future__ import annotations

from collections.abc import Iterable

from medusa.dht.catalog import Catalog
from medusa.engine.objects.catalog_records import QUERY, SCHEMA, STREAM
from medusa.engine.objects.definitions import (
    ANY,
    CONTRACT,
    Policy,
    QueryEntry,
    StreamDefinition,
    StreamEntry,
    may_write,
)
from medusa.engine.objects.schema import Schema
from medusa.overlay.errors import NotAuthorisedError
from medusa.overlay.listeners import Decision, Listeners
from medusa.overlay.names import ObjectName


class Readers:
    """Decides which participants may read a stream, or know a query.

    Attributes:
        pays: whether a participant has a content contract in force for a stream, with its owner, as
            far as this peer's participant is a party to it. The market sets this function. changed:
            called whenever an answer of `pays` changes.
    """

    def __init__(self) -> None:
        self.pays: Decision[[str, str], bool] = Decision(_nobody_pays)
        self.changed: Listeners[[]] = Listeners()

    def may_read(self, stream: StreamDefinition, participant: str) -> bool:
        """Whether a participant owns the stream, or every policy of the stream admits it."""
        return participant == stream.owner or self._satisfies(stream.policies, participant)

    def may_know(self, query: str, label: Iterable[Policy], participant: str) -> bool:
        """Whether a participant owns the query, or may read all its inputs.

        Args:
            query: its name. label: the policies of its inputs.
        """
        owner = ObjectName.parse(query).participant
        return participant == owner or self._satisfies(label, participant)

    def check(self, stream: StreamDefinition, participant: str) -> None:
        """Raise NotAuthorisedError unless the participant may read the stream; the message says who
        decides about its readers."""
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
    """The refusal's text. It does not name the streams in the label: they may be secret."""
    text = f"{participant} may not read {stream.name}"
    if policy not in stream.label:
        text += f"; {stream.owner} names its readers"
    else:
        text += f": the owners of what it is made from name its readers; {stream.owner} knows them"
    return text if CONTRACT not in policy.readers else f"{text}, and a content contract makes one"


def readers_in_words(stream: StreamDefinition) -> str:
    """The readers of a stream by its own definition, and by those of all streams that it is made
    from."""
    policies = stream.policies
    if any(CONTRACT in policy.readers for policy in policies):
        if not stream.label:
            return names_in_words(stream.admitted, stream.owner)
        return f"{stream.owner}, and the readers of it and of all that it is made of"
    lists = [{policy.owner, *policy.readers} for policy in policies if ANY not in policy.readers]
    if not lists:
        return "every member"
    common = set[str].intersection(*lists)
    return _listed(stream.owner, sorted(common - {stream.owner}))


def names_in_words(members: Iterable[str], owner: str) -> str:
    """A list of readers, for people."""
    if ANY in members:
        return "every member"
    others = ["who has a contract" if name == CONTRACT else name for name in members]
    return _listed(owner, [name for name in others if name != owner])


def _listed(owner: str, others: Iterable[str]) -> str:
    found = ", ".join([owner, *others])
    return f"{owner} alone" if found == owner else found


def guard(catalog: Catalog, readers: Readers) -> None:
    """Have a peer serve definitions of streams to their readers and writers, schemas to readers and
    writers of a stream that has it, and queries to participants that may read all their inputs."""

    def may_have_stream(entry: StreamEntry, participant: str) -> bool:
        writes = may_write(entry.stream, participant)  # a writer must know the fields
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
