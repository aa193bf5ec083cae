"""Transaction markers as a transaction coordinator writes them to partitions."""

import struct

from protocol.records.control import ControlType, control_batch

_VALUE = struct.Struct(">hi")
_VERSION = 0


def end_transaction_marker(
    type: ControlType, producer_id: int, producer_epoch: int, coordinator_epoch: int, timestamp_ms: int
) -> bytes:
    """Build the 78-byte batch that ends a transaction on one partition; `type` is ABORT or COMMIT."""
    return control_batch(
        [(type, _VALUE.pack(_VERSION, coordinator_epoch))],
        timestamp_ms,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        transactional=True,
    )
