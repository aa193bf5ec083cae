"""OTLP metrics as a client encodes them, by hand: the wire format of protobuf is small."""

import struct
from collections.abc import Mapping, Sequence


def varint(number: int) -> bytes:
    """Return an unsigned number."""
    encoded = bytearray()
    while number > 0x7F:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*encoded, number])


def message(number: int, *parts: bytes) -> bytes:
    """Return a field with an embedded message, a string or bytes."""
    body = b"".join(parts)
    return varint(number << 3 | 2) + varint(len(body)) + body


def point(value: float, attributes: Mapping[str, str] | None = None) -> bytes:
    """Return a NumberDataPoint: a double, or a signed integer."""
    fixed = struct.pack("<q", value) if isinstance(value, int) else struct.pack("<d", value)
    tag = varint((6 if isinstance(value, int) else 4) << 3 | 1)
    pairs = [
        message(7, message(1, k.encode()), message(2, message(1, v.encode()))) for k, v in (attributes or {}).items()
    ]
    return varint(3 << 3 | 1) + bytes(8) + tag + fixed + b"".join(pairs)


def gauge(name: str, *points: bytes) -> bytes:
    """Return a Metric with a Gauge."""
    return message(1, name.encode()) + message(5, *(message(1, each) for each in points))


def counter(name: str, *points: bytes, is_delta: bool = True) -> bytes:
    """Return a Metric with a monotonic Sum."""
    temporality = varint(2 << 3) + varint(1 if is_delta else 2)
    body = [message(1, each) for each in points]
    return message(1, name.encode()) + message(7, *body, temporality, varint(3 << 3) + b"\x01")


def metrics_data(metrics: Sequence[bytes]) -> bytes:
    """Return MetricsData with one resource and one scope."""
    scope = message(2, message(1, message(1, b"scope")), *(message(2, each) for each in metrics))
    return message(1, message(1, message(1, b"resource")), scope)
