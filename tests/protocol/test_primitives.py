import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.errors import DecodeError, EncodeError
from protocol.primitives import (
    METADATA_TOPIC_ID,
    UVARLONG_MAX_BYTES,
    ZERO_UUID,
    Uuid,
    compact_string_prefix,
    decode_uvarint,
    decode_varint,
    encode_uvarint,
    encode_varint,
    rest_of_string_size,
    skip_tags,
    uuid_from_text,
    uuid_to_text,
)
from tests.protocol.profile import more_examples


@pytest.mark.parametrize(("value", "encoded"), [(0, "00"), (127, "7f"), (128, "8001"), (2**31 - 1, "ffffffff07")])
def test_unsigned_varints_round_trip(value: int, encoded: str) -> None:
    assert encode_uvarint(value).hex() == encoded
    assert decode_uvarint(bytes.fromhex("aa" + encoded), 1) == (value, 1 + len(encoded) // 2)


@pytest.mark.parametrize(
    ("value", "encoded"), [(0, "00"), (-1, "01"), (1, "02"), (-64, "7f"), (-(2**31), "ffffffff0f")]
)
def test_zigzag_varints_round_trip(value: int, encoded: str) -> None:
    assert encode_varint(value).hex() == encoded
    assert decode_varint(bytes.fromhex(encoded), 0) == (value, len(encoded) // 2)


@more_examples
@given(st.integers(-(2**63), 2**63 - 1))
def test_every_signed_value_round_trips(value: int) -> None:
    encoded = encode_varint(value)
    assert decode_varint(encoded, 0) == (value, len(encoded))
    assert len(encoded) <= UVARLONG_MAX_BYTES


@pytest.mark.parametrize("encoded", ["", "80", "ffffffff", "8080808080", "808080808000"])
def test_truncated_or_overlong_varint_is_refused(encoded: str) -> None:
    with pytest.raises(DecodeError, match="varint"):
        decode_uvarint(bytes.fromhex(encoded), 0)


def test_negative_unsigned_varint_is_refused() -> None:
    with pytest.raises(ValueError, match="cannot hold -1"):
        encode_uvarint(-1)


def test_compact_strings_end_at_the_limit_of_strings() -> None:
    assert compact_string_prefix(32767).hex() == "808002"
    assert rest_of_string_size(b"\x80\x80\x02", 1, 0x80) == (32768, 3)
    with pytest.raises(EncodeError, match="32768 bytes"):
        compact_string_prefix(32768)
    with pytest.raises(DecodeError, match="32768 bytes"):
        rest_of_string_size(b"\x81\x80\x02", 1, 0x81)


def test_tag_sections_are_skipped_whole() -> None:
    section = bytes.fromhex("02 00 02 abcd 8101 00 99")
    assert skip_tags(section, 1, section[0]) == len(section) - 1
    many = encode_uvarint(200) + b"\x05\x00" * 200
    assert skip_tags(many, 1, many[0]) == len(many)
    with pytest.raises(DecodeError, match="exceeds"):
        skip_tags(bytes.fromhex("01 00 02 ab"), 1, 1)


def test_uuids_are_written_as_kafka_writes_them() -> None:
    assert uuid_to_text(ZERO_UUID) == "AAAAAAAAAAAAAAAAAAAAAA"
    assert uuid_to_text(METADATA_TOPIC_ID) == "AAAAAAAAAAAAAAAAAAAAAQ"
    assert uuid_from_text("AAAAAAAAAAAAAAAAAAAAAQ==") == METADATA_TOPIC_ID
    assert uuid_to_text(Uuid(b"\xfb\xff" * 8)) == "-__7__v_-__7__v_-__7_w"


@more_examples
@given(st.binary(min_size=16, max_size=16))
def test_uuid_text_round_trips(raw: bytes) -> None:
    text = uuid_to_text(Uuid(raw))
    assert len(text) == 22
    assert uuid_from_text(text) == raw


@pytest.mark.parametrize("text", ["", "A", "AAAAAAAAAAAAAAAAAAAAA", "AAAAAAAAAAAAAAAAAAAAAAAA", "!" * 22, "é" * 22])
def test_invalid_uuid_texts_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="not a UUID"):
        uuid_from_text(text)
