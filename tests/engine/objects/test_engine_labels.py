"""Labels of derived streams equal a model that asks every owner on the way."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from medusa.engine.language.labels import labels
from medusa.engine.objects.definitions import (
    ANY,
    MAX_POLICIES,
    Policy,
    StreamDefinition,
    StreamEntry,
)
from medusa.engine.objects.query import Box, Filter, Query, Union
from medusa.engine.objects.readers import Readers
from medusa.engine.objects.schema import Field, FieldType, Schema
from medusa.engine.tasks.network import Network
from medusa.overlay.errors import InvalidInputError, NotAuthorisedError

PARTICIPANTS = ("mit.edu", "utah.edu", "brown.edu", "evil.org")
SCHEMA = Schema("medusa://mit.edu/event", (Field("value", FieldType.INT),))

READERS = Readers()


def source(name: str, readers: tuple[str, ...], declassify: tuple[str, ...] = ()) -> StreamEntry:
    definition = StreamDefinition(name, SCHEMA.name, readers=readers, declassify=declassify)
    return StreamEntry(definition, SCHEMA)


def network(
    query: Query, *inputs: StreamEntry, readers: Mapping[str, tuple[str, ...]] | None = None
) -> Network:
    return Network(query, {each.stream.name: each for each in inputs}, readers=dict(readers or {}))


def made(of: Network, stream: str) -> StreamEntry:
    return of.entry_of(stream, SCHEMA, "")


def who(entry: StreamEntry) -> set[str]:
    return {each for each in PARTICIPANTS if READERS.may_read(entry.stream, each)}


def test_a_filter_has_the_readers_of_its_input() -> None:
    query = Query("medusa://utah.edu/q", (_keep("medusa://mit.edu/s", "medusa://utah.edu/out"),))
    of = network(query, source("medusa://mit.edu/s", ("utah.edu",)))
    assert who(made(of, "medusa://utah.edu/out")) == {"mit.edu", "utah.edu"}
    assert who(made(of, "medusa://utah.edu/out/revisions")) == {"mit.edu", "utah.edu"}
    with pytest.raises(NotAuthorisedError, match=r"evil\.org may not read medusa://utah\.edu/out"):
        READERS.check(made(of, "medusa://utah.edu/out").stream, "evil.org")


def test_a_refused_reader_does_not_learn_the_sources_of_a_stream() -> None:
    query = Query("medusa://utah.edu/q", (_keep("medusa://mit.edu/s", "medusa://utah.edu/out"),))
    of = network(query, source("medusa://mit.edu/s", ("utah.edu",)))
    with pytest.raises(NotAuthorisedError) as refusal:
        READERS.check(made(of, "medusa://utah.edu/out").stream, "evil.org")
    assert "mit.edu" not in str(refusal.value)


def test_declared_readers_narrow_and_only_the_inputs_owner_lets_them_widen() -> None:
    out = "medusa://utah.edu/out"
    for declassify, declared, wanted in (
        ((), ("brown.edu", "mit.edu"), {"mit.edu", "utah.edu"}),
        ((), ("*",), {"mit.edu", "utah.edu"}),
        ((), (), {"utah.edu"}),
        (("brown.edu",), ("evil.org",), {"utah.edu"}),
        (("utah.edu",), ("evil.org",), {"utah.edu", "evil.org"}),
        (("utah.edu",), ("*",), set(PARTICIPANTS)),
        (("utah.edu",), None, {"mit.edu", "utah.edu"}),
    ):
        readers = () if declared is None else ((out, declared),)
        query = Query("medusa://utah.edu/q", (_keep("medusa://mit.edu/s", out),), readers=readers)
        found = made(network(query, source("medusa://mit.edu/s", ("utah.edu",), declassify)), out)
        assert who(found) == wanted, (declassify, declared)
        # the query's output was declared before, as a stream
        plain = Query(query.name, query.boxes)
        given_before = {} if declared is None else {out: declared}
        of = network(
            plain, source("medusa://mit.edu/s", ("utah.edu",), declassify), readers=given_before
        )
        assert made(of, out) == found


def test_a_chain_of_one_participants_queries_may_declassify_at_its_end() -> None:
    """The readers of the input may read the streams between; the label keeps its policy with the
    exception."""
    first = Query("medusa://utah.edu/a", (_keep("medusa://mit.edu/s", "medusa://utah.edu/x"),))
    between = made(
        network(first, source("medusa://mit.edu/s", (), ("utah.edu",))), "medusa://utah.edu/x"
    )
    assert who(between) == {"mit.edu", "utah.edu"}
    for owner, wanted in (("utah.edu", {"utah.edu", "evil.org"}), ("brown.edu", {"brown.edu"})):
        out = f"medusa://{owner}/out"
        query = Query(
            f"medusa://{owner}/b",
            (_keep("medusa://utah.edu/x", out),),
            readers=((out, ("evil.org",)),),
        )
        assert who(made(network(query, between), out)) == wanted


def test_streams_of_one_query_carry_only_what_they_are_made_from() -> None:
    query = Query(
        "medusa://utah.edu/q",
        (
            _keep("medusa://mit.edu/s", "medusa://utah.edu/x"),
            _keep("medusa://mit.edu/open", "medusa://utah.edu/y"),
        ),
    )
    of = network(
        query, source("medusa://mit.edu/s", ("utah.edu",)), source("medusa://mit.edu/open", (ANY,))
    )
    assert who(made(of, "medusa://utah.edu/x")) == {"mit.edu", "utah.edu"}
    assert who(made(of, "medusa://utah.edu/y")) == set(PARTICIPANTS)


def test_there_is_an_end_to_the_policies_of_one_stream() -> None:
    entries = [source(f"medusa://mit.edu/s{n}", ("utah.edu",)) for n in range(MAX_POLICIES + 1)]
    names = [each.stream.name for each in entries]
    boxes: tuple[Box, ...] = (
        Union("a", tuple(names[:200]), "medusa://utah.edu/x"),
        Union("b", ("medusa://utah.edu/x", *names[200:]), "medusa://utah.edu/out"),
    )
    of = network(Query("medusa://utah.edu/q", boxes), *entries)
    with pytest.raises(InvalidInputError, match="257 streams that have restricted readers"):
        made(of, "medusa://utah.edu/out")
    few = network(Query("medusa://utah.edu/q", boxes[:1]), *entries[:200])
    assert len(made(few, "medusa://utah.edu/x").stream.label) == 200


lists = st.lists(st.sampled_from(PARTICIPANTS), max_size=3).map(tuple)
some_readers = st.one_of(st.just((ANY,)), lists)


@given(
    st.lists(st.tuples(st.sampled_from(PARTICIPANTS), some_readers, lists), min_size=1, max_size=3),
    st.sampled_from(PARTICIPANTS),
    st.one_of(st.none(), some_readers),
    st.one_of(st.none(), some_readers),
)
def test_labels_permit_readers_that_every_owner_on_the_way_permits(
    sources: list[tuple[str, tuple[str, ...], tuple[str, ...]]],
    owner: str,
    between: tuple[str, ...] | None,
    last: tuple[str, ...] | None,
) -> None:
    """Two steps: a union of sources gives x, and a filter of x gives out, within one query or two.
    For each source the model keeps the readers that its owner permits, and drops policies that an
    owner has lifted."""
    x, out = f"medusa://{owner}/x", f"medusa://{owner}/out"
    entries = [
        source(f"medusa://{of}/s{n}", readers, declassify)
        for n, (of, readers, declassify) in enumerate(sources)
    ]
    unite = Union("u", tuple(each.stream.name for each in entries), x)
    declared = tuple((n, r) for n, r in ((x, between), (out, last)) if r is not None)
    one = network(
        Query(f"medusa://{owner}/q", (unite, _keep(x, out)), (x,), readers=declared), *entries
    )
    first = network(
        Query(f"medusa://{owner}/p", (unite,), readers=tuple(d for d in declared if d[0] == x)),
        *entries,
    )
    then = Query(
        f"medusa://{owner}/q", (_keep(x, out),), readers=tuple(d for d in declared if d[0] == out)
    )
    second = network(then, made(first, x))

    bound = [
        (of, readers)
        for of, readers, declassify in sources
        if not (owner in declassify and (between is not None or last is not None))
    ]
    if between is not None:
        bound.append((owner, between))
    if last is not None:
        bound.append((owner, last))
    wanted = {
        each
        for each in PARTICIPANTS
        if each == owner or all(each == of or {each, ANY} & set(names) for of, names in bound)
    }
    assert who(made(one, out)) == who(made(second, out)) == wanted


@given(st.lists(some_readers, min_size=2, max_size=4))
def test_a_stream_of_several_inputs_has_only_their_common_readers(
    lists: list[tuple[str, ...]],
) -> None:
    entries = [source(f"medusa://mit.edu/s{n}", each) for n, each in enumerate(lists)]
    found = {}
    for size in range(1, len(entries) + 1):
        for some in combinations(entries, size):
            names = tuple(each.stream.name for each in some)
            query = Query("medusa://utah.edu/q", (Union("u", names, "medusa://utah.edu/out"),))
            found[names] = who(made(network(query, *some), "medusa://utah.edu/out"))
    for fewer, more in combinations(found, 2):
        if set(fewer) < set(more):
            assert found[more] <= found[fewer]


def test_a_contract_is_asked_for_by_the_stream_that_is_paid_for() -> None:
    asked: list[tuple[str, str]] = []

    def pays(participant: str, stream: str) -> bool:
        asked.append((participant, stream))
        return participant == "utah.edu"

    readers = Readers()
    readers.pays = pays
    paid = source("medusa://mit.edu/s", ("contract", "brown.edu")).stream
    assert [p for p in PARTICIPANTS if readers.may_read(paid, p)] == [
        "mit.edu",
        "utah.edu",
        "brown.edu",
    ]
    assert set(asked) == {("utah.edu", paid.name), ("evil.org", paid.name)}
    with pytest.raises(NotAuthorisedError, match="content contract"):
        readers.check(paid, "evil.org")


def test_nothing_restricted_leaves_no_label() -> None:
    query = Query("medusa://utah.edu/q", (_keep("medusa://mit.edu/s", "medusa://utah.edu/out"),))
    assert labels(query, {"medusa://mit.edu/s": source("medusa://mit.edu/s", (ANY,))}, {}) == {}
    found = labels(query, {"medusa://mit.edu/s": source("medusa://mit.edu/s", ())}, {})
    assert found == {"medusa://utah.edu/out": (Policy("medusa://mit.edu/s", ()),)}


def _keep(read: str, made: str) -> Filter:
    return Filter(made.rpartition("/")[2], read, (made,), ("value > 0",))
