"""Committed modules match the schemas."""

from pathlib import Path

import pytest

import protocol.messages
from protocol import generate, schema
from protocol.schema import SchemaError

DIRECTORY = Path(protocol.messages.__file__).parent


def test_committed_modules_match_the_schemas() -> None:
    committed = {path.name: path.read_text() for path in DIRECTORY.glob("*.py") if path.name != "__init__.py"}
    generated = generate.generate()
    assert sorted(committed) == sorted(generated)
    assert [name for name in generated if committed[name] != generated[name]] == []


def test_schema_in_an_unknown_directory_has_no_module() -> None:
    fields = [{"name": "A", "type": "int8", "versions": "0"}]
    head = {"type": "data", "name": "T", "validVersions": "0", "flexibleVersions": "none", "fields": fields}
    with pytest.raises(KeyError):
        generate.module_name(schema.parse("elsewhere/T.json", head))
    with pytest.raises(SchemaError):
        schema.parse("elsewhere/T.json", head | {"type": "thing"})
