"""Blocks of producer ids; each block is allocated once in the lifetime of the cluster (KIP-730)."""

from typing import Final, NamedTuple

from broker.metadata.controller.result import ControllerResult
from broker.metadata.controller.state import ControllerState
from broker.metadata.image.records import VersionedRecord
from protocol.errors import ErrorCode, KafkaError
from protocol.ids import BrokerEpoch, BrokerId
from protocol.messages.metadata_records import ProducerIdsRecord

BLOCK_SIZE: Final = 1_000
_LARGEST_ID: Final = 2**63 - 1


class ProducerIdBlock(NamedTuple):
    """`size` ids from `first` on."""

    first: int
    size: int


def allocate_block(
    state: ControllerState, broker_id: BrokerId, broker_epoch: BrokerEpoch
) -> ControllerResult[ProducerIdBlock]:
    """Return the next block. The record holds the first id after it: a lost response wastes ids and repeats none."""
    first = state.image.producer_ids.next_id
    if first > _LARGEST_ID - BLOCK_SIZE:
        raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, "all producer ids are allocated")
    record = ProducerIdsRecord(broker_id=broker_id, broker_epoch=broker_epoch, next_producer_id=first + BLOCK_SIZE)
    return ControllerResult([VersionedRecord(record, 0)], ProducerIdBlock(first, BLOCK_SIZE))
