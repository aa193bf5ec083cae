"""A schema is parsed completely or refused."""

from collections.abc import Iterator
from typing import Any

import pytest

import schemas
from protocol import schema
from protocol.schema import FieldSpec, SchemaError, StructSpec, snake_case


def document(**field: Any) -> dict[str, Any]:
    fields = [{"name": "Name", "type": "string", "versions": "0+"} | field]
    head = {"apiKey": 1, "type": "request", "name": "T", "validVersions": "0-2", "flexibleVersions": "1+"}
    return head | {"fields": fields}


@pytest.mark.parametrize(
    ("field", "problem"),
    [
        ({"nulableVersions": "0+"}, "unknown attributes"),
        ({"type": "text"}, "unknown type 'text'"),
        ({"type": "int32", "default": "x"}, "invalid literal"),
        ({"type": "int8", "default": "128"}, "128 does not fit int8"),
        ({"type": "uint16", "default": "-1"}, "-1 does not fit uint16"),
        ({"type": "bool", "default": "yes"}, "not a bool"),
        ({"type": "[]int32", "default": "1"}, "cannot have the default"),
        ({"type": "int32", "nullableVersions": "0+"}, "a int32 cannot be null"),
        ({"type": "[]records"}, "arrays of records are not supported"),
        ({"tag": 0}, "tag and taggedVersions require each other"),
        ({"taggedVersions": "1+"}, "tag and taggedVersions require each other"),
        ({"tag": 0, "taggedVersions": "0+", "versions": "1+"}, "without the field"),
        ({"versions": "5-1"}, "not a range of versions"),
        ({"versions": 3}, "expected a string"),
        ({"tag": "0", "taggedVersions": "1+"}, "expected an integer"),
        ({"fields": {}, "type": "S"}, "expected a list"),
    ],
)
def test_error_names_an_invalid_field(field: dict[str, Any], problem: str) -> None:
    with pytest.raises(SchemaError, match=problem):
        schema.parse("T.json", document(**field))


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"extra": 1}, "unknown attributes"),
        ({"type": "reply"}, "unknown type of message"),
        ({"validVersions": None}, "expected a string"),
        ({"commonStructs": [{"name": "S", "versions": "0+", "fields": []}]}, "no field uses the structs"),
        ({"fields": [{"name": "A", "type": "int8", "versions": "0"}] * 2}, "a duplicate field name or tag"),
        ({"fields": None}, "expected a list"),
    ],
)
def test_error_names_an_invalid_message(change: dict[str, Any], problem: str) -> None:
    with pytest.raises(SchemaError, match=problem):
        schema.parse("T.json", document() | change)


def test_missing_attribute_is_refused() -> None:
    incomplete = document()
    del incomplete["name"]
    with pytest.raises(SchemaError, match="name"):
        schema.parse("T.json", incomplete)


def test_duplicate_struct_is_refused() -> None:
    inner = [{"name": "X", "type": "int8", "versions": "0+"}]
    twice = [{"name": name, "type": "S", "versions": "0+", "fields": inner} for name in ("A", "B")]
    with pytest.raises(SchemaError, match="defined twice"):
        schema.parse("T.json", document() | {"fields": twice})


@pytest.mark.parametrize(
    ("camel", "snake"),
    [
        ("TopicId", "topic_id"),
        ("PartitionMaxBytes", "partition_max_bytes"),
        ("KRaftVersion", "kraft_version"),
        ("Enable2Pc", "enable2_pc"),
        ("ISRNodes", "isr_nodes"),
        ("topic", "topic"),
    ],
)
def test_names_become_snake_case(camel: str, snake: str) -> None:
    assert snake_case(camel) == snake


def every_field() -> Iterator[tuple[str, StructSpec, FieldSpec]]:
    for path in schemas.message_paths():
        for struct in schema.load(path).structs():
            for field in struct.fields:
                yield path, struct, field


def test_every_schema_file_is_parsed_and_named_after_its_message() -> None:
    names = [(path, schema.load(path).name) for path in schemas.message_paths()]
    assert len(names) == 278
    assert all(path.endswith(f"/{name}.json") for path, name in names)


def test_tags_are_numbered_from_0_and_fit_one_byte() -> None:
    assert all(field.tag < 128 for _, _, field in every_field() if field.tag is not None)


def test_non_flexible_structs_have_fields_on_the_wire() -> None:
    """A count of empty structs would allocate memory without bytes in the frame."""
    for path in schemas.message_paths():
        spec = schema.load(path)
        for struct in spec.structs():
            for version in range(spec.valid.first, spec.valid.last + 1):
                if struct is not spec.struct and version in struct.versions and version not in spec.flexible:
                    assert any(version in field.versions for field in struct.fields), (path, struct.name, version)
