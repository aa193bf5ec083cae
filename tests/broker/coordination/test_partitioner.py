"""Java's string hash; expected values come from `String.hashCode` and Kafka's `Utils.abs`."""

import pytest

from broker.coordination.partitioner import java_string_hash, partition_for


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", 0),
        ("hello", 99162322),
        ("group-ü", 293427502),
        ("😀", 1772899),  # two UTF-16 units
        ("polygenelubricants", -(2**31)),
    ],
)
def test_hash_equals_javas(text: str, expected: int) -> None:
    assert java_string_hash(text) == expected


def test_group_is_mapped_to_kafkas_partition() -> None:
    assert partition_for("group-ü", 50) == 2


def test_minimum_integer_hash_counts_as_zero() -> None:
    assert partition_for("polygenelubricants", 50) == 0


def test_unpaired_surrogates_are_hashed_too() -> None:
    assert java_string_hash("\ud83d") == 0xD83D
