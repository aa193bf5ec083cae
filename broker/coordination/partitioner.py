"""The mapping of names to partitions of an internal topic, by Java's string hash, equal on every Kafka broker."""

from functools import lru_cache

NAMES_MAX = 10_000
"""Limit of the remembered hashes. A coordinator sees the same names again, and a hash in Python costs 3 µs."""

_UNITS = 1 << 32
_SIGN = 1 << 31


@lru_cache(NAMES_MAX)
def java_string_hash(text: str) -> int:
    """Return Java's `String.hashCode`: h = 31·h + unit over the UTF-16 code units, as a signed 32-bit number."""
    value = 0
    if text.isascii():
        for unit in text.encode():
            value = (31 * value + unit) % _UNITS
    else:
        encoded = text.encode("utf-16-be", "surrogatepass")
        for index in range(0, len(encoded), 2):
            value = (31 * value + (encoded[index] << 8 | encoded[index + 1])) % _UNITS
    return value - _UNITS if value >= _SIGN else value


def partition_for(name: str, partition_count: int) -> int:
    """Return the partition that coordinates `name`. The hash −2^31, which has no absolute value, counts as 0."""
    value = abs(java_string_hash(name))
    return 0 if value == _SIGN else value % partition_count
