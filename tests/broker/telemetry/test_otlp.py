"""Decoding of OTLP metrics, hostile input included."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.telemetry import otlp
from broker.telemetry.otlp import NumberPoint, number_points
from protocol.errors import DecodeError
from tests.broker.telemetry.pushed_metrics import counter, gauge, message, metrics_data, point, varint


def decoded(data: bytes) -> list[NumberPoint]:
    return list(number_points(memoryview(data)))


def test_gauges_and_sums_are_decoded() -> None:
    data = metrics_data(
        [
            gauge("a.b", point(1.5, {"x": "1"}), point(-3)),
            counter("c", point(7)),
            counter("d", point(9), is_delta=False),
        ]
    )
    assert decoded(data) == [
        ("a.b", {"x": "1"}, 1.5, False, False),
        ("a.b", {}, -3.0, False, False),
        ("c", {}, 7.0, True, True),
        ("d", {}, 9.0, True, False),
    ]


def test_attributes_of_other_types_become_text() -> None:
    values = {
        "flag": varint(2 << 3) + b"\x01",
        "number": varint(3 << 3) + varint((1 << 64) - 5),
        "ratio": varint(4 << 3 | 1) + struct.pack("<d", 0.5),
        "list": message(5, b""),
    }
    pairs = [message(7, message(1, key.encode()), message(2, value)) for key, value in values.items()]
    body = point(1) + b"".join(pairs)
    [found] = decoded(metrics_data([gauge("a", body)]))
    assert found.attributes == {"flag": "true", "number": "-5", "ratio": "0.5", "list": ""}


def test_other_kinds_of_data_and_unknown_fields_are_skipped() -> None:
    histogram = message(1, b"h") + message(9, message(1, b"\x09" + bytes(8)))
    unknown = varint(15 << 3 | 5) + bytes(4) + varint(16 << 3) + varint(300)
    assert decoded(metrics_data([histogram, gauge("a", point(1)) + unknown])) == [("a", {}, 1.0, False, False)]
    assert decoded(b"") == []


@pytest.mark.parametrize(
    "data",
    [
        b"\x0a",
        b"\x0a\x05ab",
        b"\x0b",
        b"\xff" * 11,
        message(1, message(2, message(2, message(1, b"\xff")))),
        message(1, message(2, message(2, message(5, message(1, b"\x21" + bytes(7)))))),
    ],
    ids=["no length", "cut short", "group", "long varint", "no UTF-8", "short double"],
)
def test_malformed_input_is_refused(data: bytes) -> None:
    with pytest.raises(DecodeError):
        decoded(data)


@given(st.binary(max_size=200))
def test_no_input_raises_another_error(data: bytes) -> None:
    for wrapped in (data, metrics_data([data])):
        try:
            decoded(wrapped)
        except DecodeError:
            continue


def test_work_of_one_push_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(otlp, "FIELDS_MAX", 1_000)
    with pytest.raises(DecodeError, match="more than 1000 fields"):
        decoded(message(1, b"\x78\x00" * 1_000))
