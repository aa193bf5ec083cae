"""Invariants of transactions and of committed offsets on the replicated partitions of a cluster.

Those of the transactions plane hold for the committed records of each partition, as the leader that commits them serves
them; the records of `__consumer_offsets` that belong to transactions count like data. In addition:

- StableOffsetIsTrue: the last stable offset of a leader, also of a deposed one, never goes back within a leader epoch.
- CommittedOffsetsStay: an acknowledged offset is the group's offset until the group's client commits another one.
- MarkersAreDecided: a partition has a marker only of a decision that was committed before (`decisions.py`).
- PipelineIsExactlyOnce: each input record below the committed offset of a pipeline has one visible output record.

Nothing is promised any more once a partition of an internal topic or of the applications has lost committed records,
which takes more faults at a time than Kafka's guarantees cover.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple, Protocol

from broker.groups.records import OffsetCommitted, decode_record
from broker.metadata.image.topic_names import GROUP_OFFSETS_TOPIC
from broker.replication.leader import LeaderRole
from broker.runtime.partitions.partition import Partition
from broker.transactions.state import TransactionPartition
from protocol.ids import LeaderEpoch
from protocol.primitives import Uuid
from protocol.records.batch import iter_headers
from protocol.records.reader import FullRecord, iter_records
from storage.log import Log
from tests.simulation.cluster.coordinators import inspection
from tests.simulation.cluster.coordinators.decisions import DecisionChecker
from tests.simulation.cluster.coordinators.owners import OwnerChecker
from tests.simulation.cluster.coordinators.share_checker import ClusterShareChecker
from tests.simulation.replication.broker import Node
from tests.simulation.replication.disk import ReplicaName
from tests.simulation.replication.history import History
from tests.simulation.simulator import Counts, EventLog
from tests.simulation.transactions.checker import SentRecord, TransactionChecker, TransactionCounts
from tests.simulation.world import Process

DELIVERY_LIMIT: Final = 6
"""Number of deliveries of a record of a share group."""


class _Leader(NamedTuple):
    """A leader of one partition in one epoch."""

    process: Process
    partition: TransactionPartition
    epoch: LeaderEpoch


class PipelineWork:
    """The work of a pipeline, whose runs are its group: what they have sent, and what has become visible.

    `goal` returns the end of the input.
    """

    def __init__(
        self, group_id: str, source: TransactionPartition, goal: Callable[[], int], checker: "CoordinatorChecker"
    ) -> None:
        self.group_id = group_id
        self.source = source
        self.goal = goal
        self.inputs: dict[tuple[str, SentRecord], int] = {}
        """The offset of the input of each record, by transaction and record."""
        self.acknowledged = 0
        """The offset of the last commit that a run knows."""
        self._sent = 0
        self._outputs: dict[int, str] = {}
        self._checker = checker

    def on_fetched(self, offset: int, floor: int) -> None:
        """Check a fetched offset; `floor` was acknowledged before the request."""
        possible = {each: "sent" for each in range(floor, self._sent + 1)} | ({} if floor else {-1: "none"})
        self._checker.on_offset_fetched(self.group_id, offset, possible)

    def on_commit_sent(self, offset: int) -> None:
        self._sent = max(self._sent, offset)

    def on_commit_acknowledged(self, offset: int) -> None:
        self._checker.counts.add("pipeline commits")
        self.acknowledged = max(self.acknowledged, offset)

    def on_visible(self, name: str, record: SentRecord) -> None:
        """Check a committed output record."""
        offset = self.inputs.get((name, record))
        if offset is None:
            return
        former = self._outputs.setdefault(offset, name)
        if former != name:
            self._checker.fail("PipelineIsExactlyOnce", f"{offset} is processed by {former}, and again by {name}")

    def finish(self) -> None:
        """Check that everything is processed."""
        missing = [offset for offset in range(self.acknowledged) if offset not in self._outputs]
        if missing:
            self._checker.fail("PipelineIsExactlyOnce", f"{missing} are below {self.acknowledged}, without output")


class Topics(Protocol):
    """The committed metadata of topics."""

    def name_of(self, topic_id: Uuid) -> str:
        """Return the name of a topic, or its id."""
        ...

    def share_epoch(self) -> int:
        """Return the leader epoch of the partition that share groups read."""
        ...


class CoordinatorChecker(TransactionChecker):
    """The transactions' checker, which writes to the common history."""

    def __init__(self, whole: EventLog, counts: Counts, now_ms: Callable[[], float], topics: Topics) -> None:
        super().__init__(TransactionCounts(), now_ms)
        self.counts = counts
        self.watched: set[str] = set()
        """The topics that transactions write to."""
        self.histories: Mapping[ReplicaName, History] = {}
        """The committed batches of the internal topics and of the applications' topics."""
        self.pipeline: PipelineWork | None = None
        self.is_void = False
        """Whether committed records are lost."""
        self._differences = ""
        """How the last load from a snapshot differs from a replay of the whole log."""
        self.owners = OwnerChecker(counts, self.fail_unless_void, topics.name_of)
        self.shares = ClusterShareChecker(counts, now_ms, DELIVERY_LIMIT, topics.share_epoch, self.fail_unless_void)
        self.decisions = DecisionChecker(self.fail_unless_void)
        self._history_ends: dict[ReplicaName, int] = {}
        self._whole = whole
        self._ends: dict[TransactionPartition, int] = {}
        self._seen: dict[_Leader, tuple[int, int]] = {}

    def note(self, text: str) -> None:
        self._whole.note(text)

    # Partitions

    def on_broker_event(self, node: Node) -> None:
        """Check the partitions that a broker leads, or believes to lead."""
        broker = node.broker
        if self._differences:  # found in a task, which would hide the violation
            self.fail("SnapshotLoadsEqualReplays", self._differences)
        self._find_losses()
        coordinators = getattr(broker, "coordinators", None)
        if coordinators is not None:
            coordinators.shares.partitions.observe()
        self.shares.raise_failure()
        if broker is None or broker.data is None or self.is_void:
            return
        hosted = [each for topic in broker.data.partitions.by_id.values() for each in topic.partitions.values()]
        with node.disk.inspected():
            for partition in hosted:  # first: markers may follow in the same event
                self.decisions.observe(partition)
        for partition in hosted:
            if partition.topic in self.watched and isinstance(partition.role, LeaderRole):
                with node.disk.inspected():
                    self._check(_Leader(broker.process, _name(partition), partition.role.epoch), partition.log)

    def _find_losses(self) -> None:
        for name, history in self.histories.items():
            end, before = history.end, self._history_ends.get(name, 0)
            if end != before:
                self._history_ends[name] = end
                if end < before:
                    self.give_up(f"{name} has lost committed records")

    def give_up(self, reason: str) -> None:
        """Promise nothing from now on."""
        if not self.is_void:
            self.is_void = True
            self.counts.add("histories without promises")
            self.note(f"transactions and offsets are not checked any more: {reason}")

    def fail_unless_void(self, invariant: str, text: str) -> None:
        """Fail, if anything is promised still."""
        if not self.is_void:
            self.fail(invariant, text)

    def _check(self, leader: _Leader, log: Log) -> None:
        now, before = (log.high_watermark, log.last_stable_offset), self._seen.get(leader)
        if now == before:
            return
        self._seen[leader] = now
        high_watermark, stable = now
        if before is not None and stable < before[1]:
            self.fail("StableOffsetIsTrue", f"{leader.partition}: back from {before[1]} to {stable} in {leader.epoch}")
        name = leader.partition
        if high_watermark < self._ends.get(name, 0):
            undecided = self.first_open(name)  # a restarted leader does not know which markers are replicated
            if undecided is not None and stable > undecided:
                self.fail("StableOffsetIsTrue", f"{name}: {stable} on a leader behind, but {undecided} is undecided")
            return
        self._add_committed(name, log)
        self.on_high_watermark(name, log)

    def _add_committed(self, name: TransactionPartition, log: Log) -> None:
        """Add the batches that a leader has committed."""
        start, end = self._ends.get(name, 0), log.high_watermark
        while start < end:
            found = inspection.read(log, start, end)
            assert found.data, f"{name} has no records from {start} to {end}"
            for position, header in iter_headers(found.data):
                start = header.next_offset
                if header.is_control:
                    self.decisions.on_marker(name, header, memoryview(found.data), position)
                    self.on_marker(name, header.producer_id, header.base_offset)
                elif header.is_transactional:
                    self.on_data(name, header.producer_id, header.base_offset)
                elif name.topic == GROUP_OFFSETS_TOPIC:
                    self.owners.on_batch(_events(iter_records(found.data, position)))
        self._ends[name] = end

    def _first_undecided(self, partition: TransactionPartition, log: Log) -> int:
        """Return the first committed record that is undecided; after a restart, markers of the log alone count too.

        A leader that was stopped cleanly does not know which of its markers are replicated, as in Kafka. The decisions
        are committed by then, so that a new leader gets equal markers.
        """
        undecided = super()._first_undecided(partition, log)
        if log.last_stable_offset <= undecided:
            return undecided
        opened: dict[int, int] = {}
        while undecided < log.log_end_offset:
            found = inspection.read(log, undecided, log.log_end_offset)
            for _, header in iter_headers(found.data):
                undecided = header.next_offset
                if header.is_control:
                    opened.pop(header.producer_id, None)
                elif header.is_transactional:
                    opened.setdefault(header.producer_id, header.base_offset)
        return min(opened.values(), default=undecided)

    def _label(self, partition: TransactionPartition, record: FullRecord) -> str:
        if partition.topic != GROUP_OFFSETS_TOPIC:
            return super()._label(partition, record)
        assert record.key is not None
        event = decode_record(record.key, record.value)
        assert isinstance(event, OffsetCommitted), event
        return event.value.metadata

    def unstable(self) -> list[TransactionPartition]:
        """Return the partitions with committed records that are not stable."""
        return [name for name, end in self._ends.items() if self._history(name).consumed < end]

    def _on_visible(self, name: str, record: SentRecord) -> None:
        is_offset = record.partition.topic == GROUP_OFFSETS_TOPIC
        if is_offset and record in self._visible.get(name, ()):
            return  # a repeated TxnOffsetCommit, which changes nothing
        super()._on_visible(name, record)
        if self.pipeline is not None:
            self.pipeline.on_visible(name, record)

    def finish(self) -> None:
        super().finish()
        if self.pipeline is not None:
            self.pipeline.finish()

    # Snapshots

    def on_snapshot_made(self) -> None:
        self.counts.add("coordinator snapshots")

    def on_snapshot_load(self, differences: Sequence[str]) -> None:
        self.counts.add("coordinators loaded from snapshots")
        if differences and not self.is_void:
            self._differences = "; ".join(differences)

    # Offsets

    def on_offset_fetched(self, group_id: str, offset: int, possible: Mapping[int, str]) -> None:
        """Check a fetched offset; `possible` are the offsets that the group can have, with the reason."""
        self.counts.add("offsets fetched")
        if offset not in possible and not self.is_void:
            self.fail(
                "CommittedOffsetsStay", f"{group_id} is at {offset}, possible is {dict(sorted(possible.items()))}"
            )


def _events(records: Iterable[FullRecord]) -> Iterator[object]:
    """Yield what records of `__consumer_offsets` say."""
    for record in records:
        assert record.key is not None
        yield decode_record(record.key, record.value)


def _name(partition: Partition) -> TransactionPartition:
    return TransactionPartition(partition.topic, partition.index)
