import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.tiered.format.custom_metadata import CustomField, decode_custom_metadata, encode_custom_metadata

FIELDS = st.fixed_dictionaries(
    {},
    optional={
        CustomField.REMOTE_SIZE: st.integers(0, 2**63 - 1),
        CustomField.OBJECT_PREFIX: st.text(max_size=200),
        CustomField.OBJECT_KEY: st.text(max_size=200),
    },
)


def test_encoding_has_tagged_fields_a_zigzag_size_and_a_compact_string() -> None:
    data = encode_custom_metadata({CustomField.REMOTE_SIZE: 100, CustomField.OBJECT_KEY: "foo"})
    assert data == bytes.fromhex("02 00 02 c801 02 04 04") + b"foo"
    assert len(data) == 11


def test_metadata_without_fields_is_none() -> None:
    assert encode_custom_metadata({}) is None
    assert decode_custom_metadata(b"") == {}


@given(FIELDS)
def test_encoding_round_trips(fields: dict[CustomField, int | str]) -> None:
    assert decode_custom_metadata(encode_custom_metadata(fields) or b"") == fields


def test_unknown_tags_are_skipped() -> None:
    assert decode_custom_metadata(bytes.fromhex("02 00 01 02 07 03 ffffff")) == {CustomField.REMOTE_SIZE: 1}


@pytest.mark.parametrize("data", ["01", "01 00 05 02", "01 01 04 03 61 62 63", "01 01 02 02 ff", "ffffffffffff"])
def test_invalid_bytes_are_refused(data: str) -> None:
    with pytest.raises(ValueError, match="invalid custom metadata"):
        decode_custom_metadata(bytes.fromhex(data))
