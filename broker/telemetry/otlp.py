"""Numbers out of OTLP metrics (opentelemetry.proto.metrics.v1.MetricsData), as Kafka's clients push them (KIP-714).

Clients send gauges and sums of numbers, so other kinds of data are skipped. The protobuf wire format needs some fifty
lines here and no dependency. Input is hostile: no length is believed, and `FIELDS_MAX` limits the work of one push.
"""

import struct
from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from protocol.codec_errors import DecodeError

FIELDS_MAX: Final = 50_000
"""Fields of one push; 50 to 100 ms of decoding. A client's thousand metrics have about twenty thousand."""

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_VARINT_BYTES_MAX: Final = 10
_DELTA: Final = 1
_DOUBLE: Final = struct.Struct("<d")
_SIGNED: Final = struct.Struct("<q")

Field = tuple[int, int, int | memoryview]
"""Number, wire type, and the value: a varint as an integer, other values as their bytes."""


class NumberPoint(NamedTuple):
    """One number. A counter is a monotonic sum; `is_delta`: the value is the growth since the point before."""

    name: str
    attributes: Mapping[str, str]
    value: float
    is_counter: bool
    is_delta: bool


def number_points(data: memoryview) -> Iterator[NumberPoint]:
    """Yield the points of gauges and sums, in order. Raises DecodeError at malformed or excessive input."""
    reader = _Reader()
    for resource in reader.messages(data, 1):
        for scope in reader.messages(resource, 2):
            for metric in reader.messages(scope, 2):
                yield from _points(reader, metric)


class _Reader:
    """Reads protobuf messages, and counts the fields of all of them."""

    __slots__ = ("_left",)

    def __init__(self) -> None:
        self._left = FIELDS_MAX

    def fields(self, data: memoryview) -> Iterator[Field]:
        """Yield the fields of a message."""
        position, end = 0, len(data)
        while position < end:
            self._left -= 1
            if self._left < 0:
                raise DecodeError(f"the metrics have more than {FIELDS_MAX} fields")
            tag, position = _varint(data, position)
            number, kind = tag >> 3, tag & 7
            if kind == _VARINT:
                value, position = _varint(data, position)
                yield number, kind, value
                continue
            if kind == _BYTES:
                size, position = _varint(data, position)
            elif kind in (_FIXED64, _FIXED32):
                size = 8 if kind == _FIXED64 else 4
            else:
                raise DecodeError(f"protobuf wire type {kind} is not used by OTLP")
            if size > end - position:
                raise DecodeError("a field is cut short")
            yield number, kind, data[position : position + size]
            position += size

    def messages(self, data: memoryview, wanted: int) -> Iterator[memoryview]:
        """Yield the embedded messages of one field."""
        for number, kind, value in self.fields(data):
            if number == wanted and kind == _BYTES:
                assert isinstance(value, memoryview)
                yield value


def _points(reader: _Reader, metric: memoryview) -> Iterator[NumberPoint]:
    """Yield the points of one metric: name 1, gauge 5, sum 7."""
    name, bodies = "", []
    for number, kind, value in reader.fields(metric):
        if kind == _BYTES:
            assert isinstance(value, memoryview)
            if number == 1:
                name = _text(value)
            elif number in (5, 7):
                bodies.append((number == 7, value))
    for is_sum, body in bodies:
        is_delta = is_monotonic = False
        points = []
        for number, kind, value in reader.fields(body):
            if number == 1 and isinstance(value, memoryview) and kind == _BYTES:
                points.append(value)
            elif is_sum and kind == _VARINT and number == 2:
                is_delta = value == _DELTA
            elif is_sum and kind == _VARINT and number == 3:
                is_monotonic = bool(value)
        for point in points:
            found = _number(reader, point)
            if found is not None:
                yield NumberPoint(name, found[1], found[0], is_monotonic, is_delta)


def _number(reader: _Reader, point: memoryview) -> tuple[float, dict[str, str]] | None:
    """Return value and attributes of a point, None without a value: double 4, integer 6, attributes 7."""
    number_value: float | None = None
    attributes: dict[str, str] = {}
    for number, kind, value in reader.fields(point):
        if not isinstance(value, memoryview):
            continue
        if number == 4 and kind == _FIXED64:
            number_value = _DOUBLE.unpack(value)[0]
        elif number == 6 and kind == _FIXED64:
            number_value = float(_SIGNED.unpack(value)[0])
        elif number == 7 and kind == _BYTES:
            key, text = _attribute(reader, value)
            attributes[key] = text
    return None if number_value is None else (number_value, attributes)


def _attribute(reader: _Reader, pair: memoryview) -> tuple[str, str]:
    """Return key 1 and value 2 of an attribute; values that are no scalar are empty."""
    key = text = ""
    for number, kind, value in reader.fields(pair):
        if isinstance(value, memoryview) and kind == _BYTES:
            if number == 1:
                key = _text(value)
            elif number == 2:
                text = _scalar(reader, value)
    return key, text


def _scalar(reader: _Reader, data: memoryview) -> str:
    """Return an AnyValue as text: string 1, boolean 2, integer 3, double 4."""
    text = ""
    for number, kind, value in reader.fields(data):
        if isinstance(value, int):
            if number == 2:
                text = "true" if value else "false"
            elif number == 3:
                text = str(value - (1 << 64) if value >> 63 else value)
        elif number == 1 and kind == _BYTES:
            text = _text(value)
        elif number == 4 and kind == _FIXED64:
            text = str(_DOUBLE.unpack(value)[0])
    return text


def _varint(data: memoryview, position: int) -> tuple[int, int]:
    """Return an unsigned 64-bit integer and the position after it."""
    result = 0
    for index in range(_VARINT_BYTES_MAX):
        if position >= len(data):
            raise DecodeError("a number is cut short")
        byte = data[position]
        position += 1
        result |= (byte & 0x7F) << (7 * index)
        if byte < 0x80:
            return result & 0xFFFF_FFFF_FFFF_FFFF, position
    raise DecodeError("a number has more than 64 bits")


def _text(data: memoryview) -> str:
    try:
        return str(data, "utf-8")
    except UnicodeDecodeError as error:
        raise DecodeError("a name or attribute is not UTF-8") from error
