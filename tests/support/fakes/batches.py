"""Record batches of the metadata log, built and read whole."""

from collections.abc import Iterator, Sequence

from protocol.ids import LeaderEpoch
from protocol.primitives import Buffer
from protocol.records.batch import HEADER_SIZE, BatchHeader, parse_header
from protocol.records.builder import build_value_batch
from protocol.records.reader import FullRecord, iter_records


def data_batch(frames: Sequence[bytes], *, base_offset: int, epoch: int, timestamp_ms: int) -> bytes:
    """Return a batch of framed metadata records with null keys and one timestamp, as in the log and in snapshots."""
    return build_value_batch(frames, timestamp_ms, base_offset=base_offset, leader_epoch=LeaderEpoch(epoch))


def iter_all_records(batches: Buffer) -> Iterator[tuple[BatchHeader, FullRecord]]:
    """Yield (header, record) of every whole batch in `batches`, including control batches. Raises as `iter_records`."""
    position = 0
    while len(batches) - position >= HEADER_SIZE:
        header = parse_header(batches, position)
        if position + header.size > len(batches):
            return
        for record in iter_records(batches, position):
            yield header, record
        position += header.size
