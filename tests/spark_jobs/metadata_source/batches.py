"""Batches of a metadata log with arbitrary content and given sizes and epochs."""

from collections.abc import Iterable

from broker.metadata.image.records import encode_record
from protocol.ids import LeaderEpoch
from protocol.messages.metadata_records import NoOpRecord
from protocol.records.builder import build_value_batch

FRAME = encode_record(NoOpRecord(), 0)


def batches(*sizes: int, epochs: Iterable[int] = ()) -> list[bytes]:
    """Return consecutive batches with these numbers of records; epoch 1 unless given."""
    given = list(epochs) or [1] * len(sizes)
    made, base = [], 0
    for size, epoch in zip(sizes, given, strict=True):
        made.append(build_value_batch([FRAME] * size, 1000 + base, base_offset=base, leader_epoch=LeaderEpoch(epoch)))
        base += size
    return made
