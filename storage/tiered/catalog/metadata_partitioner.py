"""Mapping of partitions to partitions of `__remote_log_metadata`: Kafka's RemoteLogMetadataTopicPartitioner.

The 32-bit Java hash of topic id and partition, hashed again with murmur2. (KIP-405 has another formula; brokers and
tools use this one.)
"""

import struct
from typing import Final

from storage.tiered.segment_metadata import TopicIdPartition

_MASK: Final = 0xFFFFFFFF
_MULTIPLIER: Final = 0x5BD1E995
_SEED: Final = 0x9747B28C


def metadata_partition(partition: TopicIdPartition, count: int) -> int:
    """Return the number of the metadata partition among `count`."""
    high, low = struct.unpack(">QQ", partition.topic_id)
    mixed = 31 + _fold(low)
    mixed = (mixed * 31 + _fold(high)) * 31 + partition.partition
    return (_murmur2(mixed & _MASK) & 0x7FFFFFFF) % count


def _fold(value: int) -> int:
    """Return Java's hash of a long."""
    return (value ^ value >> 32) & _MASK


def _murmur2(value: int) -> int:
    """Return murmur2 of the four bytes of `value`, big-endian."""
    block = int.from_bytes(value.to_bytes(4, "big"), "little") * _MULTIPLIER & _MASK
    block = (block ^ block >> 24) * _MULTIPLIER & _MASK
    mixed = (_SEED ^ 4) * _MULTIPLIER & _MASK ^ block
    mixed = (mixed ^ mixed >> 13) * _MULTIPLIER & _MASK
    return mixed ^ mixed >> 15
