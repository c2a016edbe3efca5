"""The intrusion query as a document is read, type-checks, and has the answers' columns."""

from __future__ import annotations

import pytest

from medusa.engine.language.check import check_query
from medusa.engine.objects.schema import FieldType
from medusa.engine.reading import read_document
from medusa.testnet.connections.conn import conn_schema
from medusa.testnet.connections.query import (
    COLUMNS,
    Names,
    intrusion_document,
    source_schema,
    source_stream,
)


@pytest.mark.parametrize("posters", [1, 2, 7])
def test_the_document_type_checks(posters: int) -> None:
    participants = [f"p{index}.edu" for index in range(posters)]
    names = Names("owner.edu")
    sources = [source_stream(participant).name for participant in participants]
    (query,) = read_document(intrusion_document(names, sources)).queries
    assert query.name == names.query
    known = {
        source_stream(participant).name: conn_schema(source_schema(participant))
        for participant in participants
    }
    schemas = check_query(query, known)
    types = (FieldType.TIMESTAMP, FieldType.STRING, FieldType.LONG)
    for answer, stream in names.answers.items():
        for column, kind in zip(COLUMNS[answer], types, strict=True):
            field = schemas[stream].field(column)
            assert field is not None, (answer, column)
            assert field.type is kind


def test_a_source_stream_is_open_to_read_and_keeps_a_trace() -> None:
    stream = source_stream("mit.edu")
    assert stream.readers == ("*",)
    assert stream.writers == ()
    assert stream.schema == source_schema("mit.edu")
    assert stream.history_us > 188 * 86_400_000_000
