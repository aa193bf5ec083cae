"""The partitions of the metadata topic that this broker leads, as pruning uses them."""

from collections.abc import Iterator
from typing import Final

from broker.clock import Clock
from broker.runtime.partitions.partition import ACKS_ALL, Partition
from broker.runtime.partitions.registry import Partitions
from broker.runtime.remote_metadata.pruning import LedMetadataLog
from broker.runtime.remote_metadata.settings import TOPIC
from protocol.errors import ErrorCode, KafkaError
from protocol.records.batch import NO_LEADER_EPOCH
from protocol.records.builder import build_value_batch

_MIN_BATCH_BYTES: Final = 2


class HostedMetadataLogs:
    """Implements LedMetadataLogs over the partitions hosted here."""

    def __init__(self, partitions: Partitions, clock: Clock) -> None:
        self._partitions = partitions
        self._clock = clock

    def led(self) -> Iterator[int]:
        hosted = self._partitions.by_name.get(TOPIC)
        for number, partition in () if hosted is None else tuple(hosted.partitions.items()):
            if partition.is_leader:
                yield number

    def log(self, partition: int) -> LedMetadataLog | None:
        hosted = self._partitions.by_name.get(TOPIC)
        found = None if hosted is None else hosted.partitions.get(partition)
        return None if found is None or not found.is_leader else HostedMetadataLog(found, self._clock)


class HostedMetadataLog:
    """Implements LedMetadataLog."""

    def __init__(self, partition: Partition, clock: Clock) -> None:
        self._partition = partition
        self._clock = clock

    @property
    def leader_epoch(self) -> int:
        return self._led().leader_epoch

    @property
    def start_offset(self) -> int:
        return self._led().log.log_start_offset

    @property
    def end_offset(self) -> int:
        return self._led().log.log_end_offset

    @property
    def max_batch_bytes(self) -> int:
        return max(_MIN_BATCH_BYTES, self._partition.log.config.max_message_bytes)

    def append(self, values: list[bytes]) -> None:
        batch = build_value_batch(values, self._clock.now_ms(), base_offset=0, leader_epoch=NO_LEADER_EPOCH)
        self._led().append(bytearray(batch), ACKS_ALL)

    def delete_records(self, offset: int) -> None:
        self._led().record_deletion.delete_records(offset)

    def _led(self) -> Partition:
        if not self._partition.is_leader:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        return self._partition
