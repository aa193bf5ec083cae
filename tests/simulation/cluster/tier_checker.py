"""Invariants of the tiered topic, by the names in violations:

- TierReadable: the leader by the committed metadata has every acknowledged record from its log start offset on, locally
  or in a finished remote segment. Excepted are records below the log start offset that a former leader stored beside
  the segments: a new leader learns of it with its first expiration.
- NoForeignDeletions: no broker deletes a segment with records of a later leader epoch than its own.
- TieredReadsAreFinal: consumers read the acknowledged record of each offset or get an error. An offset that was read
  once has the same record for ever. No offset is skipped; no position above the log start offset becomes invalid.
- LookUpsByTimeAreFirst: an offset that is looked up by a timestamp has a record with at least that timestamp, and no
  record between it and the log start offset has one.
- LookUpsByTimeEnd: after the faults, look-ups of records that were read have an answer, also beside given up offsets.

Rotten and lost segments are excepted from TierReadable, until an operator restores them. Offsets of segments that an
operator gave up are excepted from TierReadable, and may be skipped by consumers and by look-ups.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from broker.metadata.image.partition import PartitionRegistration
from broker.replication.leader import LeaderRole
from broker.runtime.partitions.partition import Partition
from protocol.messages.fetch import PartitionData
from protocol.primitives import Uuid
from protocol.records.batch import BatchHeader
from storage.tiered.errors import RemoteStorageError
from storage.tiered.lifecycle.copying import lineage_of
from storage.tiered.segment_metadata import (
    TOOL_BROKER_ID,
    RemoteSegment,
    SegmentState,
    SegmentUpdate,
    TopicIdPartition,
)
from tests.simulation.cluster.tier import SETTINGS, TIERED, Tier
from tests.simulation.replication.broker import Node
from tests.simulation.replication.clients import Read
from tests.simulation.replication.disk import ReplicaName
from tests.simulation.watched_disk import _batches
from tests.support.fakes.memory_remote_metadata import Event

if TYPE_CHECKING:
    from tests.simulation.cluster.checker import ClusterChecker

TIERED_NAME = ReplicaName(TIERED, 0)


class TierChecker:
    """The witness of the tiered topic's producer and of the remote metadata. Implements ClientWitness."""

    def __init__(self, checker: "ClusterChecker", tier: Tier, nodes: Mapping[int, Node]) -> None:
        self._checker = checker
        self._tier = tier
        self._nodes = nodes
        self._sent: set[int] = set()
        self._acknowledged: dict[int, int] = {}
        self._times: dict[int, int] = {}
        """The timestamps of the batches that consumers have read, by base offset. Batches have one timestamp each."""
        self._read: dict[int, int] = {}
        """The checksums of the batches that consumers have read, by base offset."""
        self._log_start = 0
        self._checked: object = None
        self._contents: dict[Uuid, dict[int, int]] = {}
        self._given_up: list[range] = []
        """The offsets that an operator gave up."""
        self._promises = True
        """Whether acknowledged records must survive: no replica without them was elected for want of others."""
        tier.metadata.observers.append(self._on_event)

    # The producer

    def on_sent(self, name: ReplicaName, crc: int, *, is_idempotent: bool) -> bool:
        if crc in self._sent:
            return False
        self._sent.add(crc)
        return True

    def on_acknowledged(self, name: ReplicaName, crc: int, offset: int, acks: int) -> None:
        self._checker.data.acknowledged.add(name)
        self._checker.counts.add("acknowledged records")
        if offset >= 0:
            self._acknowledged[offset] = crc

    def on_sequence_lost(self, name: ReplicaName, crc: int, leader_id: int) -> None:
        self._checker.counts.add("lost sequences")

    # The consumer

    def on_read(self, consumer: int, name: ReplicaName, header: BatchHeader, *, follows: Read | None) -> None:
        self._checker.counts.add("tiered records read", header.record_count)
        first = self._read.setdefault(header.base_offset, header.crc)
        self._times.setdefault(header.base_offset, header.max_timestamp)
        acknowledged = self._acknowledged.get(header.base_offset, header.crc)
        if self._promises and header.crc != first:
            self._fail_read(f"consumer {consumer} reads two records at {header.base_offset}")
        if self._promises and header.crc != acknowledged:
            self._fail_read(f"consumer {consumer} reads another record than the acknowledged one: {header}")

    def on_skip(self, consumer: int, position: int, header: BatchHeader) -> None:
        """Check a batch that begins above the consumer's position."""
        if all(self._is_given_up(offset) for offset in range(position, header.base_offset)):
            self._checker.counts.add("skips of given up records")
        elif self._promises:
            self._fail_read(f"consumer {consumer} at {position} reads {header.base_offset} next")

    def on_damaged(self, consumer: int, header: BatchHeader) -> None:
        """Report a batch whose checksum does not match."""
        self._fail_read(f"consumer {consumer} gets the damaged batch {header}")

    def on_time_found(self, timestamp: int, offset: int, found_ms: int) -> None:
        """Check a look-up by time. Without a result, a leader that is behind proves nothing."""
        self._checker.counts.add("look-ups by time")
        if not self._promises or offset < 0:
            return
        log_start = self._highest_log_start()
        known_ms = self._times.get(offset, found_ms)
        missed = [
            base
            for base, each_ms in self._times.items()
            if log_start <= base < offset and each_ms >= timestamp and not self._is_given_up(base)
        ]
        if known_ms != found_ms or found_ms < timestamp or missed:
            self._checker.fail(
                "LookUpsByTimeAreFirst",
                f"{timestamp} is at {offset} with {found_ms} (read as {known_ms}); {sorted(missed)[:5]} are earlier",
            )

    def on_time_missing(self, timestamp: int) -> None:
        """Report a timestamp whose look-ups time out long after the faults."""
        self._checker.fail("LookUpsByTimeEnd", f"look-ups of {timestamp} time out long after the last fault")

    def _highest_log_start(self) -> int:
        """Return the highest log start offset that a broker has had."""
        partitions = [self._partition(node_id) for node_id in self._nodes]
        starts = [each.log.log_start_offset for each in partitions if each is not None]
        self._log_start = max(self._log_start, *starts) if starts else self._log_start
        return self._log_start

    def on_follower_read(self, consumer: int, name: ReplicaName, replica: int, data: PartitionData) -> None:
        """Count reads of followers; `on_read` checks their records."""
        self._checker.counts.add("follower reads")

    def on_truncation_noticed(self, consumer: int, name: ReplicaName, position: int, offset: int) -> None:
        self._checker.note(f"consumer {consumer} of {name} resets from {position} to {offset}")
        if self._promises and offset < position:
            self._fail_read(f"consumer {consumer} has to reset from {position} to {offset}")

    def on_out_of_range(self, consumer: int, name: ReplicaName, position: int, start: int) -> None:
        self._checker.note(f"consumer {consumer} of {name} at {position} is out of range, goes to {start}")
        if self._promises and position > start:
            self._fail_read(f"consumer {consumer} at {position} is out of range, the log starts at {start}")

    def _fail_read(self, text: str) -> None:
        self._checker.fail("TieredReadsAreFinal", text)

    def committed_end(self, leader_id: int) -> int:
        """Return the high watermark of the tiered topic's leader; 0 without one."""
        partition = self._partition(leader_id)
        return 0 if partition is None else partition.log.high_watermark

    # The controller and the remote metadata

    def on_registration(self, before: PartitionRegistration, now: PartitionRegistration) -> None:
        """Record an unclean election: all in-sync and eligible replicas may have lost records (KIP-966)."""
        if now.isr and set(now.isr).isdisjoint((*before.isr, *before.elr)):
            self._checker.note(f"{TIERED_NAME}: unclean election")
            if not before.last_known_elr:
                self._checker.fail("LeaderCompleteness", f"{now.isr} are in sync for {TIERED_NAME}, which was clean")
            self._promises = False

    def _on_event(self, event: Event) -> None:
        if isinstance(event, RemoteSegment) and event.broker_id == TOOL_BROKER_ID:
            self._given_up.append(range(event.start_offset, event.end_offset + 1))
        elif isinstance(event, RemoteSegment):
            self._checker.counts.add("remote copies")
            self._checker.note(f"broker {event.broker_id} copies {event.start_offset}..{event.end_offset}")
            self._checker.counts.add("copies past a deposed leader", self._deposed_leaders(event))
        elif (
            isinstance(event, SegmentUpdate)
            and event.state is SegmentState.DELETE_STARTED
            and event.broker_id != TOOL_BROKER_ID
        ):
            self._checker.counts.add("remote deletions")
            self._check_deletion(event)

    def _is_given_up(self, offset: int) -> bool:
        return any(offset in each for each in self._given_up)

    def _deposed_leaders(self, segment: RemoteSegment) -> int:
        """Return the number of brokers that take themselves for the leader in an earlier epoch than the segment's."""
        epoch = max(each.epoch for each in segment.leader_epochs)
        partitions = (self._partition(node_id) for node_id in self._nodes)
        roles = (partition.role for partition in partitions if partition is not None)
        return sum(isinstance(role, LeaderRole) and role.epoch < epoch for role in roles)

    def _check_deletion(self, update: SegmentUpdate) -> None:
        segment = self._tier.metadata.cache(update.id.partition).get(update.id.id)
        partition = self._partition(update.broker_id)
        if segment is None or partition is None:
            return
        self._checker.note(f"broker {update.broker_id} deletes {segment.start_offset}..{segment.end_offset}")
        newest = max((each.epoch for each in segment.leader_epochs), default=-1)
        if newest > partition.leader_epoch:
            self._checker.fail(
                "NoForeignDeletions",
                f"broker {update.broker_id} in leader epoch {partition.leader_epoch} deletes {segment}",
            )

    def _partition(self, node_id: int) -> Partition | None:
        node = self._nodes.get(node_id)
        return None if node is None or node.broker is None else node.broker.partition(*TIERED_NAME)

    def is_filled(self, registration: PartitionRegistration | None) -> bool:
        """Whether the leader has records in remote storage alone."""
        partition = None if registration is None else self._partition(registration.leader)
        return partition is not None and partition.log.local_log_start_offset > partition.log.log_start_offset

    # The leader

    def check(self, node: Node, registration: PartitionRegistration | None) -> None:
        """Check a broker after an event of its own, if it leads the tiered topic by the committed metadata."""
        partition = self._partition(node.id)
        if partition is None or registration is None or registration.leader != node.id:
            return
        role, log = partition.role, partition.log
        if not isinstance(role, LeaderRole) or role.epoch != registration.leader_epoch:
            return
        start, local, events = log.log_start_offset, log.local_log_start_offset, len(self._tier.metadata.events)
        version = self._tier.weather.version
        signature = (node.id, role.epoch, start, local, events, len(self._acknowledged), node.disk.removals, version)
        if signature == self._checked:
            return
        self._checked = signature
        self._log_start = max(self._log_start, start)
        start = max(start, self._tier.kept_log_start(_id(partition)) or 0)
        found, rotten = self._remote(partition, start, local)
        found.update({each.base_offset: each.crc for each in node.disk.between(TIERED_NAME, local, 2**62)})
        for offset, crc in self._acknowledged.items() if self._promises else ():
            if offset >= start and found.get(offset) != crc and not any(offset in each for each in rotten):
                self._checker.fail(
                    "TierReadable",
                    f"leader {node.id} in {role.epoch} with {log} lacks the acknowledged record at {offset}",
                )

    def _remote(self, partition: Partition, first: int, end: int) -> tuple[dict[int, int], list[range]]:
        """Return the checksums of the batches that finished segments have for [first, end), by base offset, and the
        offsets of rotten segments.
        """
        log, offset, found, rotten = partition.log, first, dict[int, int](), list[range]()
        cache = self._tier.metadata.cache(_id(partition))
        while offset < end:
            epoch = log.epochs.epoch_for_offset(offset)
            segment = None if epoch is None else cache.segment_for(epoch, offset)
            if segment is None and self._is_given_up(offset):
                rotten.append(range(offset, offset + 1))
                offset += 1
                continue
            if segment is None:
                self._checker.fail("TierReadable", f"offset {offset} of epoch {epoch} is in no segment of {log}")
            last = min(end - 1, lineage_of(log).agreed_end(replace(segment, start_offset=offset)))
            if self._tier.weather.has_lost(segment):
                rotten.append(range(offset, last + 1))
            else:
                batches = self._content(segment)
                found.update({base: crc for base, crc in batches.items() if offset <= base <= last})
            offset = last + 1
        return found, rotten

    def _content(self, segment: RemoteSegment) -> dict[int, int]:
        """Return the checksums of a segment's batches by base offset."""
        known = self._contents.get(segment.id.id)
        if known is None or not self._tier.weather.has(segment):
            try:
                content = self._tier.weather.truth(segment)
            except RemoteStorageError as error:
                self._checker.fail("TierReadable", f"{segment} cannot be read: {error}")
            known = self._contents[segment.id.id] = {each.base_offset: each.crc for each in _batches(content, 0)}
        return known

    # Recovery

    def unsettled_reason(self, registration: PartitionRegistration | None, dead: set[int]) -> str | None:
        """Return why the tier has not caught up; None if it has."""
        if registration is None or {*registration.isr, *registration.elr} <= dead:
            return None
        if set(registration.isr) != set(registration.replicas) - dead:
            return f"{TIERED_NAME} has the ISR {registration.isr} of {registration.replicas}"
        partition = self._partition(registration.leader)
        if partition is None:
            return f"{TIERED_NAME} is not led by {registration.leader}"
        log = partition.log
        first_of_active = log.segments.active.base_offset
        if log.highest_remote_offset < min(first_of_active, log.high_watermark) - 1 and first_of_active > 0:
            return f"{TIERED_NAME} is copied up to {log.highest_remote_offset}: {log}"
        cache = self._tier.metadata.cache(_id(partition))
        leader = self._nodes[registration.leader].broker
        assert leader is not None
        old_ms = leader.process.now_ms() - SETTINGS.grace_ms  # after a step back, a clock takes long to get there
        unfinished = [
            each
            for each in cache.segments()
            if each.state is not SegmentState.COPY_FINISHED
            and each.event_timestamp_ms < old_ms
            and not each.is_given_up_mark
        ]
        return f"{TIERED_NAME} has unfinished segments {unfinished}" if unfinished else None


def _id(partition: Partition) -> TopicIdPartition:
    return TopicIdPartition(partition.topic_id, partition.topic, partition.index)
