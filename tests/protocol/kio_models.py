"""Comparison with kio, an independent implementation generated from Kafka's schemas.

kio has a class per version and richer types (UUID, timedelta, datetime, an enum of error codes). `clamp` keeps a
message within the ranges of those types; `as_ours` converts kio's entities to Ottla's field names and plain values.
"""

import dataclasses
import datetime
import io
import uuid
from collections.abc import Iterable, Mapping
from enum import Enum
from functools import cache
from pkgutil import resolve_name
from typing import Any, get_args

from kio.schema.errors import ErrorCode as KioErrorCode
from kio.schema.index import LoadableEntityType, schema_name_map
from kio.serial import entity_reader, entity_writer
from kio.static.constants import EntityType

from protocol.compiler import spec_of
from protocol.messages import Message
from protocol.schema import snake_case

_KINDS: Mapping[str, LoadableEntityType] = {
    "request": EntityType.request,
    "response": EntityType.response,
    "header": EntityType.header,
    "data": EntityType.data,
}
_LAST_TIMESTAMP_MS = 250_000_000_000_000
_LONGEST_MS = 1_000_000_000_000
_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_MILLISECOND = datetime.timedelta(milliseconds=1)


@cache
def kio_class(cls: type[Message], version: int) -> Any:
    """Return kio's class for one version of a message, or None."""
    spec = spec_of(cls)
    name = snake_case(spec.name.replace("KRaft", "K_Raft"))
    name = name.removesuffix("_request").removesuffix("_response") if spec.kind in ("request", "response") else name
    versions = schema_name_map.get("request_header" if cls.__name__ == "RequestHeader" else name)
    if spec.kind not in _KINDS or versions is None or version not in versions:
        return None
    path = versions[version].get(_KINDS[spec.kind])
    return None if path is None else resolve_name(path)


def clamp(message: object, model: Any) -> None:
    """Clamp the values of a message, in place, to the ranges of kio's types."""
    for field in dataclasses.fields(model):
        name = our_name(field, message)
        value = getattr(message, name)
        kind = field.metadata.get("kafka_type")
        element = _entity_type(field.type)
        if element is not None:
            for part in value if isinstance(value, list) else [value]:
                if part is not None:
                    clamp(part, element)
        elif kind in _CLAMPS:
            setattr(message, name, _CLAMPS[kind](value))


_KNOWN_CODES = sorted(code.value for code in KioErrorCode)
_CLAMPS = {
    "error_code": lambda value: _KNOWN_CODES[value % len(_KNOWN_CODES)],
    "datetime_i64": lambda value: value % _LAST_TIMESTAMP_MS // 1000 * 1000,
    "timedelta_i64": lambda value: value % _LONGEST_MS,
}


def field_count(model: Any) -> int:
    """Count the fields of a model and, recursively, of its structs."""
    fields = dataclasses.fields(model)
    return len(fields) + sum(field_count(inner) for f in fields if (inner := _entity_type(f.type)) is not None)


def read(model: Any, encoded: bytes) -> tuple[Any, int]:
    """Return (kio's entity, bytes read)."""
    entity, size = entity_reader(model)(encoded, 0)
    return entity, size


def write(entity: Any) -> bytes:
    out = io.BytesIO()
    entity_writer(type(entity))(out, entity)
    return out.getvalue()


def as_ours(value: object, ours: object) -> object:
    """Convert kio's entity to plain values, {field name: value}; `ours` provides the field names."""
    match value:
        case None if isinstance(ours, bytes) and len(ours) == 16:
            return bytes(16)
        case None if isinstance(ours, int):
            return -1
        case datetime.timedelta():
            return value // _MILLISECOND
        case datetime.datetime():
            return (value - _EPOCH) // _MILLISECOND
        case uuid.UUID():
            return value.bytes
        case Enum():
            return value.value
        case tuple():
            assert isinstance(ours, list)
            return [as_ours(part, mine) for part, mine in zip(value, ours, strict=True)]
    if not dataclasses.is_dataclass(value):
        return value
    names = {field.name: our_name(field, ours) for field in dataclasses.fields(value)}
    return {mine: as_ours(getattr(value, name), getattr(ours, mine)) for name, mine in names.items()}


def plain(value: object, names: object) -> object:
    """Convert a message to the same form, with only the fields of kio's entity."""
    if isinstance(value, list) and isinstance(names, list):
        return [plain(part, name) for part, name in zip(value, names, strict=True)]
    if isinstance(names, dict):
        return {name: plain(getattr(value, name), inner) for name, inner in names.items()}
    return value


def our_name(field: Any, ours: object) -> str:
    name = field.name.removesuffix("_")
    candidates: Iterable[str] = (name, f"{name}_ms", name.replace("k_raft", "kraft"))
    return next(name for name in candidates if hasattr(ours, name))


def _entity_type(annotation: Any) -> Any:
    if dataclasses.is_dataclass(annotation):
        return annotation
    return next((found for part in get_args(annotation) if (found := _entity_type(part)) is not None), None)
