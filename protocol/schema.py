"""Parser of Kafka's schema dialect: JSON -> validated, immutable specs.

An unknown attribute or type, a duplicate tag or a default that does not fit its type raises SchemaError: a schema that
is half-understood would silently become a wrong wire format.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Literal, cast, get_args

import schemas
from protocol.lazy_dataclass import lazy_dataclass
from protocol.versions import ALL, NONE, Versions

Default = int | float | bool | str | None
Primitive = Literal[
    "bool", "int8", "int16", "uint16", "int32", "uint32", "int64", "float64", "uuid", "string", "bytes", "records"
]
PRIMITIVES: frozenset[str] = frozenset(get_args(Primitive))
INTEGER_BITS = {"int8": 8, "int16": 16, "uint16": 16, "int32": 32, "uint32": 32, "int64": 64}
NULLABLE_PRIMITIVES = frozenset({"string", "bytes", "records", "uuid"})
KINDS = frozenset({"request", "response", "header", "data", "metadata", "coordinator-key", "coordinator-value"})

_MESSAGE_KEYS = frozenset(
    {"apiKey", "type", "listeners", "name", "about", "validVersions", "latestVersionUnstable", "flexibleVersions"}
) | {"commonStructs", "fields"}
_FIELD_KEYS = frozenset(
    {"name", "type", "versions", "nullableVersions", "taggedVersions", "tag", "flexibleVersions", "mapKey"}
) | {"ignorable", "default", "entityType", "zeroCopy", "about", "fields"}
_STRUCT_KEYS = frozenset({"name", "versions", "fields"})
_WORD_START = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")


class SchemaError(Exception):
    """A schema file breaks the rules of the dialect."""


def snake_case(name: str) -> str:
    """ "PartitionMaxBytes" -> "partition_max_bytes", "KRaftVersion" -> "kraft_version"."""
    return _WORD_START.sub("_", name.replace("KRaft", "Kraft")).lower()


@lazy_dataclass(frozen=True, slots=True)
class StructSpec:
    """Fields in the order in which they are written."""

    name: str
    versions: Versions
    fields: tuple["FieldSpec", ...]


@lazy_dataclass(frozen=True, slots=True)
class FieldSpec:
    """One field. `primitive` or `struct` is the type of one value; `array` marks a list of values."""

    name: str
    primitive: Primitive | None
    struct: StructSpec | None
    array: bool
    versions: Versions
    nullable: Versions
    tagged: Versions
    tag: int | None
    never_flexible: bool
    ignorable: bool
    default: Default
    zero_copy: bool
    about: str

    @property
    def attribute(self) -> str:
        return snake_case(self.name)

    @property
    def is_buffer(self) -> bool:
        """Whether the value is a view when decoded and a chunk of its own when encoded."""
        return self.primitive == "records" or self.zero_copy


@lazy_dataclass(frozen=True, slots=True)
class MessageSpec:
    """A message in all its versions."""

    path: str
    kind: str
    api_key: int
    listeners: tuple[str, ...]
    about: str
    valid: Versions
    flexible: Versions
    latest_version_unstable: bool
    struct: StructSpec

    @property
    def name(self) -> str:
        return self.struct.name

    def structs(self) -> Iterator[StructSpec]:
        """Yield every struct of the message once, each after the structs it uses; the message itself is last."""
        seen: set[str] = set()

        def walk(struct: StructSpec) -> Iterator[StructSpec]:
            for field in struct.fields:
                if field.struct is not None and field.struct.name not in seen:
                    seen.add(field.struct.name)
                    yield from walk(field.struct)
            yield struct

        return walk(self.struct)


def load(path: str) -> MessageSpec:
    """Load the spec in `path`, relative to the schemas package. Raises SchemaError."""
    return parse(path, schemas.read_json(path))


def parse(path: str, document: object) -> MessageSpec:
    """Return the spec for a parsed JSON `document`; `path` is used in messages."""
    try:
        return _Parser(path).message(document)
    except (KeyError, TypeError, ValueError) as error:
        raise SchemaError(f"{path}: {error}") from error


class _Parser:
    """The parser of one document, with the structs defined so far."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.common: dict[str, Mapping[str, object]] = {}
        self.structs: dict[str, StructSpec] = {}

    def message(self, document: object) -> MessageSpec:
        raw = _object(document, _MESSAGE_KEYS)
        for item in _list(raw.get("commonStructs", [])):
            struct = _object(item, _STRUCT_KEYS)
            self.common[_text(struct["name"])] = struct
        kind = _text(raw["type"])
        if kind not in KINDS:
            raise SchemaError(f"{self.path}: unknown type of message {kind!r}")
        valid = Versions.parse(_text(raw["validVersions"]))
        flexible = Versions.parse(_text(raw["flexibleVersions"]))
        name = _text(raw["name"])
        spec = MessageSpec(
            path=self.path,
            kind=kind,
            api_key=_integer(raw.get("apiKey", -1)),
            listeners=tuple(_text(listener) for listener in _list(raw.get("listeners", []))),
            about=_text(raw.get("about", "")),
            valid=valid,
            flexible=flexible,
            latest_version_unstable=bool(raw.get("latestVersionUnstable", False)),
            struct=StructSpec(name, ALL, self.fields(name, raw["fields"])),
        )
        unused = self.common.keys() - self.structs.keys()
        if unused:
            raise SchemaError(f"{self.path}: no field uses the structs {sorted(unused)}")
        return spec

    def fields(self, owner: str, items: object) -> tuple[FieldSpec, ...]:
        fields = tuple(self.field(item) for item in _list(items))
        for what in ([field.attribute for field in fields], [field.tag for field in fields if field.tag is not None]):
            if len(set(what)) != len(what):
                raise SchemaError(f"{self.path}: {owner} has a duplicate field name or tag")
        return fields

    def field(self, item: object) -> FieldSpec:
        raw = _object(item, _FIELD_KEYS)
        name = _text(raw["name"])
        text = _text(raw["type"])
        array = text.startswith("[]")
        element = text[2:] if array else text
        is_primitive = element in PRIMITIVES
        versions = Versions.parse(_text(raw["versions"]))
        field = FieldSpec(
            name=name,
            primitive=cast(Primitive, element) if is_primitive else None,
            struct=None if is_primitive else self.struct(element, versions, raw.get("fields")),
            array=array,
            versions=versions,
            nullable=_versions(raw, "nullableVersions"),
            tagged=_versions(raw, "taggedVersions"),
            tag=_integer(raw["tag"]) if "tag" in raw else None,
            never_flexible=raw.get("flexibleVersions") == "none",
            ignorable=raw.get("ignorable", False) is True,
            default=_default(element, array, raw.get("default")),
            zero_copy=raw.get("zeroCopy", False) is True,
            about=_text(raw.get("about", "")),
        )
        self.check(field)
        return field

    def struct(self, name: str, versions: Versions, fields: object) -> StructSpec:
        """Return a struct defined by its field (`fields`), or one of the commonStructs."""
        if fields is None and name not in self.structs:
            if name not in self.common:
                raise SchemaError(f"{self.path}: unknown type {name!r}")
            common = self.common[name]
            self.structs[name] = StructSpec(
                name, Versions.parse(_text(common["versions"])), self.fields(name, common["fields"])
            )
        elif fields is not None:
            if name in self.structs or name in self.common:
                raise SchemaError(f"{self.path}: struct {name!r} is defined twice")
            self.structs[name] = StructSpec(name, versions, self.fields(name, fields))
        return self.structs[name]

    def check(self, field: FieldSpec) -> None:
        where = f"{self.path}: {field.name}"
        if (field.tag is None) != (field.tagged == NONE):
            raise SchemaError(f"{where}: tag and taggedVersions require each other")
        if not field.tagged.within(field.versions):
            raise SchemaError(f"{where}: tagged in versions without the field")
        if field.nullable != NONE and not (field.array or field.struct or field.primitive in NULLABLE_PRIMITIVES):
            raise SchemaError(f"{where}: a {field.primitive} cannot be null")
        if field.array and field.primitive == "records":
            raise SchemaError(f"{where}: arrays of records are not supported")


def _default(element: str, array: bool, raw: object) -> Default:
    """Return the default that a schema states or implies; None (null) or "" (empty) for arrays, structs, bytes and
    UUIDs.
    """
    if raw == "null" or (raw is None and element == "records"):
        return None
    if array or element not in PRIMITIVES or element in ("bytes", "uuid", "records"):
        if raw is not None:
            raise SchemaError(f"{element} cannot have the default {raw!r}")
        return ""
    if element == "string":
        return "" if raw is None else _text(raw)
    if element == "bool":
        if raw not in (None, "true", "false"):
            raise SchemaError(f"not a bool: {raw!r}")
        return raw == "true"
    if element == "float64":
        return float(_text(raw or "0"))
    return _integer_default(element, _text(raw or "0"))


def _integer_default(element: str, text: str) -> int:
    value = int(text, 0)
    bits = INTEGER_BITS[element]
    low, high = (0, (1 << bits) - 1) if element.startswith("u") else (-(1 << bits - 1), (1 << bits - 1) - 1)
    if not low <= value <= high:
        raise SchemaError(f"{value} does not fit {element}")
    return value


def _versions(raw: Mapping[str, object], key: str) -> Versions:
    return Versions.parse(_text(raw.get(key, "none")))


def _object(value: object, allowed: frozenset[str]) -> Mapping[str, object]:
    if not isinstance(value, dict):
        raise SchemaError(f"expected an object, not {value!r}")
    unknown = value.keys() - allowed
    if unknown:
        raise SchemaError(f"unknown attributes {sorted(unknown)}")
    return value


def _list(value: object) -> list[object]:
    if not isinstance(value, list):
        raise SchemaError(f"expected a list, not {value!r}")
    return value


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise SchemaError(f"expected a string, not {value!r}")
    return value


def _integer(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise SchemaError(f"expected an integer, not {value!r}")
    return value
