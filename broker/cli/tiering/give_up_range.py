"""Giving up of a range of offsets, for `ottla remote give-up --from-offset A --to-offset B`.

The range may lack metadata altogether, so the evidence comes from all places that may have the records: the finished
segments that overlap the range, which are read whole, and the local logs of all replicas.
"""

from collections.abc import Iterator
from typing import NamedTuple

from broker.cli.shared.failure import CommandFailed
from broker.cli.tiering.bucket import RemoteBucket
from broker.cli.tiering.cluster import EARLIEST_LOCAL, FIRST_VERSIONS
from broker.cli.tiering.give_up import GivenUpOffsets, LostSegment, fault_of
from broker.client import Client, ClientError, raise_for
from protocol.api_keys import ApiKey
from protocol.errors import KafkaError
from protocol.ids import LeaderEpoch
from protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from protocol.messages.metadata import MetadataResponsePartition
from protocol.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from storage.tiered.bucket.audit import PartitionReport
from storage.tiered.bucket.reconcile import Finding
from storage.tiered.bucket.segment_check import SegmentCheck
from storage.tiered.segment_metadata import SegmentEpoch, TopicIdPartition

DEBUGGING_REPLICA_ID = -2
"""Replica id of ListOffsets requests that followers answer, too."""


class OffsetBounds(NamedTuple):
    """The range that an operator names, both bounds included."""

    first: int
    last: int

    def overlaps(self, first: int, last: int) -> bool:
        return first <= self.last and last >= self.first

    def contains(self, first: int, last: int) -> bool:
        return self.first <= first and last <= self.last


class RangeReplicas:
    """The brokers that host a partition. Raises KafkaError and ClientError where the leader does not answer."""

    def __init__(self, client: Client, partition: TopicIdPartition) -> None:
        self._client = client
        self._partition = partition
        topic = client.leaders([partition.topic])[partition.topic]
        self._replicas: MetadataResponsePartition = next(
            each for each in topic.partitions if each.partition_index == partition.partition
        )

    def offsets(self, bounds: OffsetBounds) -> GivenUpOffsets:
        """Return the range with the leader epochs of the leader's log. Raises CommandFailed if it has none there."""
        found: list[SegmentEpoch] = []
        epoch, above = self._replicas.leader_epoch, bounds.last + 1
        while above > bounds.first:
            answer = self._end_of(epoch)
            below = self._end_of(answer.leader_epoch - 1) if answer.leader_epoch > 0 else EpochEndOffset()
            start = max(below.end_offset, 0)
            if answer.leader_epoch < 0 or answer.end_offset < above:
                raise CommandFailed(
                    f"{self._partition}: the leader's log does not reach offset {bounds.last}, or does not know its"
                    " leader epoch; nothing was given up."
                )
            if start < above:
                found.append(SegmentEpoch(LeaderEpoch(answer.leader_epoch), max(start, bounds.first)))
                above = start
            if below.leader_epoch < 0:
                break
            epoch = below.leader_epoch
        return GivenUpOffsets(self._partition, bounds.first, bounds.last, tuple(reversed(found)))

    def holding(self, bounds: OffsetBounds) -> Iterator[str]:
        """Yield a sentence for each replica whose local log has, or may have, offsets of the range."""
        for broker in self._replicas.replica_nodes:
            try:
                start = self._local_start(broker)
            except (KafkaError, ClientError, OSError) as error:
                yield f"broker {broker} does not say what its local log has ({error})"
                continue
            if start <= bounds.last:
                yield f"the local log of broker {broker} begins at offset {start}"

    def _end_of(self, epoch: int) -> EpochEndOffset:
        """Return the end of the latest epoch up to `epoch`; epoch -1 for none."""
        asked = OffsetForLeaderPartition(self._partition.partition, -1, epoch)
        request = OffsetForLeaderEpochRequest(-1, [OffsetForLeaderTopic(self._partition.topic, [asked])])
        leader = self._client.node(self._replicas.leader_id)
        answer = leader.call(request, OffsetForLeaderEpochResponse).topics[0].partitions[0]
        raise_for(answer.error_code, str(self._partition))
        return answer

    def _local_start(self, broker: int) -> int:
        connection = self._client.node(broker)
        if connection.version_of(ApiKey.LIST_OFFSETS) < FIRST_VERSIONS[EARLIEST_LOCAL]:
            raise ClientError("its ListOffsets has no local log start")
        asked = ListOffsetsTopic(
            self._partition.topic, [ListOffsetsPartition(self._partition.partition, -1, EARLIEST_LOCAL)]
        )
        request = ListOffsetsRequest(replica_id=DEBUGGING_REPLICA_ID, topics=[asked])
        answer = connection.call(request, ListOffsetsResponse).topics[0].partitions[0]
        raise_for(answer.error_code, f"broker {broker}")
        return answer.offset


def lost_in_range(
    bucket: RemoteBucket, report: PartitionReport, replicas: RangeReplicas, bounds: OffsetBounds, *, is_forced: bool
) -> list[LostSegment]:
    """Return the segments to give up with the range.

    Raises CommandFailed if records of the range can still be read, unless `is_forced`, and if the range ends within a
    lost segment.
    """
    readable = list(replicas.holding(bounds))
    found: list[LostSegment] = []
    check = SegmentCheck(bucket.reader, bucket.storage)
    for verdict in report.of(Finding.DANGLING, Finding.LIVE):
        segment = verdict.segment
        if segment is None or not bounds.overlaps(segment.start_offset, segment.end_offset):
            continue
        fault = fault_of(check, verdict, segment)
        is_inside = bounds.contains(segment.start_offset, segment.end_offset)
        if fault is None:
            readable.append(f"segment {segment.id} has offsets {segment.start_offset}-{segment.end_offset}")
        elif not is_inside:
            raise CommandFailed(
                f"{report.partition}: the lost segment {segment.id} has offsets {segment.start_offset}-"
                f"{segment.end_offset}; name a range that contains it whole. Nothing was given up."
            )
        if is_inside:
            found.append(LostSegment(segment, fault or "intact; given up by --force"))
    if readable and not is_forced:
        raise CommandFailed(
            f"{report.partition}: records of offsets {bounds.first}-{bounds.last} may still be read: "
            f"{'; '.join(readable)}. Nothing was given up; --force gives them up all the same."
        )
    return found
