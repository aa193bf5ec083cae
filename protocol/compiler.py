"""Compiles a schema and a version to decode and encode functions. `python -m protocol.compiler Fetch 12` prints them.

A function is generated, compiled and registered with `linecache` (so that tracebacks and debuggers show its lines) on
first use; nothing is written to disk. The cost is milliseconds once per message and version.
"""

import importlib
import linecache
import sys
from collections.abc import Callable, Mapping
from itertools import repeat
from struct import Struct
from struct import error as struct_error
from typing import Any, TypeVar, cast

from protocol import schema
from protocol.array_structs import array_structs
from protocol.codec_errors import DecodeError, EncodeError
from protocol.decoding import decoder_source
from protocol.encoding import encoder_source
from protocol.messages import Message
from protocol.primitives import (
    ZERO_UUID,
    Buffer,
    compact_string_prefix,
    encode_uvarint,
    read_uvarint,
    rest_of_string_size,
    rest_of_uvarint,
    skip_tags,
)
from protocol.schema import MessageSpec

M = TypeVar("M", bound=Message)

Decoder = Callable[[memoryview, int], tuple[M, int]]
"""(view, position) -> (message, end position). Raises DecodeError and nothing else."""

Encoder = Callable[[M, bytearray, list[Buffer]], None]
"""(message, out, chunks): appends the encoding to `out`, and completed buffers to `chunks`. Raises EncodeError."""

_RUNTIME: Mapping[str, object] = {
    "DecodeError": DecodeError,
    "EncodeError": EncodeError,
    "Struct": Struct,
    "StructError": struct_error,
    "ZERO_UUID": ZERO_UUID,
    "array_structs": array_structs,
    "compact_string_prefix": compact_string_prefix,
    "new": object.__new__,
    "read_uvarint": read_uvarint,
    "repeat": repeat,
    "rest_of_string_size": rest_of_string_size,
    "rest_of_uvarint": rest_of_uvarint,
    "skip_tags": skip_tags,
    "uvarint": encode_uvarint,
}
"""Names that generated source uses, except message classes and its own constants."""

_specs: dict[type[Message], MessageSpec] = {}
_decoders: dict[tuple[type[Message], int], Callable[..., Any]] = {}
_encoders: dict[tuple[type[Message], int], Callable[..., Any]] = {}


def decode(cls: type[M], buffer: Buffer, version: int, offset: int = 0) -> tuple[M, int]:
    """Return (message, end position); `records` are views of `buffer`. Raises DecodeError, but not for trailing
    bytes.
    """
    view = buffer if type(buffer) is memoryview else memoryview(buffer)
    return decoder(cls, version)(view, offset)


def encode(message: Message, version: int) -> list[Buffer]:
    """Return the encoding as chunks: small parts joined, large `records` as they are. Raises EncodeError."""
    chunks: list[Buffer] = []
    encoder(type(message), version)(message, bytearray(), chunks)
    return chunks


def encode_bytes(message: Message, version: int, prefix: bytes = b"") -> bytes:
    """Return the encoding in one piece, after `prefix`. Raises EncodeError."""
    chunks: list[Buffer] = []
    encoder(type(message), version)(message, bytearray(prefix), chunks)
    return b"".join(chunks)


def decoder(cls: type[M], version: int) -> Decoder[M]:
    """Return the compiled decoder of one version. Raises DecodeError for an unknown version."""
    function: Any = _decoders.get((cls, version))
    if function is None:
        if not cls.MIN_VERSION <= version <= cls.MAX_VERSION:
            raise DecodeError(f"{cls.__name__} has no version {version}")
        function = _decoders[cls, version] = _compile(cls, version, "decode", decoder_source)
    found: Decoder[M] = function
    return found


def encoder(cls: type[M], version: int) -> Encoder[M]:
    """Return the compiled encoder of one version. Raises EncodeError for an unknown version."""
    function: Any = _encoders.get((cls, version))
    if function is None:
        if not cls.MIN_VERSION <= version <= cls.MAX_VERSION:
            raise EncodeError(f"{cls.__name__} has no version {version}")
        function = _encoders[cls, version] = _compile(cls, version, "encode", encoder_source)
    found: Encoder[M] = function
    return found


def spec_of(cls: type[Message]) -> MessageSpec:
    """Return the schema of a message class, read on first use."""
    spec = _specs.get(cls)
    if spec is None:
        spec = _specs[cls] = schema.load(cls.SCHEMA)
    return spec


def struct_names(cls: type[Message]) -> dict[str, str]:
    """Return the names of the classes, in the module of `cls`, of the structs in its schema."""
    spec = spec_of(cls)
    module = sys.modules[cls.__module__]
    names = {}
    for struct in spec.structs():
        qualified = f"{spec.name}{struct.name}"
        names[struct.name] = qualified if hasattr(module, qualified) else struct.name
    return names


def _compile(
    cls: type[Message], version: int, name: str, write: Callable[[MessageSpec, int, Mapping[str, str]], str]
) -> Callable[..., Any]:
    names = struct_names(cls)
    source = write(spec_of(cls), version, names)
    filename = f"<{name} {cls.__name__} v{version}>"
    module = sys.modules[cls.__module__]
    namespace = dict(_RUNTIME) | {class_name: getattr(module, class_name) for class_name in names.values()}
    exec(compile(source, filename, "exec"), namespace)  # text generated from our own schemas
    linecache.cache[filename] = (len(source), None, source.splitlines(keepends=True), filename)
    return cast(Callable[..., Any], namespace[name])


def source_of(cls: type[Message], version: int) -> str:
    """Return both functions of one version as text for inspection."""
    spec, names = spec_of(cls), struct_names(cls)
    return decoder_source(spec, version, names) + "\n\n" + encoder_source(spec, version, names)


def class_named(name: str) -> type[Message]:
    """Return the class of a message by its schema name, such as "FetchRequest". Raises KeyError for an unknown name."""
    import schemas
    from protocol.generate import module_name

    for path in schemas.message_paths():
        if path.endswith(f"/{name}.json"):
            module = importlib.import_module(f"protocol.messages.{module_name(schema.load(path))}")
            return cast(type[Message], getattr(module, name))
    raise KeyError(name)


def main(arguments: list[str]) -> int:
    try:
        cls = class_named(arguments[0])
        version = int(arguments[1]) if len(arguments) > 1 else cls.MAX_VERSION
        if not cls.MIN_VERSION <= version <= cls.MAX_VERSION:
            raise ValueError(version)
    except (IndexError, KeyError, ValueError):
        sys.stderr.write("usage: python -m protocol.compiler <Message, as FetchRequest> [<version>]\n")
        return 2
    sys.stdout.write(source_of(cls, version))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
