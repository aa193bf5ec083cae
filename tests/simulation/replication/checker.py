"""Evaluation of the replication invariants after every event, by the content of disks instead of the replicas' own
state, and the last lines of the history.

Invariants, by the names in violations:

- LogsMatch: the same offset and epoch are the same bytes, after the same batch, on every replica (KIP-101).
- OneLeaderPerEpoch, HighWatermarkIsMonotonic: within a leader epoch.
- CommittedIsFinal: every replica's records from its log start offset to its high watermark are those that the first
  leader to commit them had. Below its log start offset a replica serves nothing and may differ: a log that ends exactly
  where the leader's log starts gets no diverging epoch below, since the leader no longer has those epochs, and
  continues after its own records. If a crash moves its log start offset back, these records count again. At the end,
  every log is checked as a whole.
- LeaderCompleteness: a leader elected from the in-sync or the eligible replicas has every committed record.
- StrongIsr: every in-sync replica, by the controller's state, has every record that a leader believes to be committed
  (KIP-320). Excepted is a replica that lost its disk or unsynced data and has not registered again.
- ToldIsFlushed: with `flush.messages` 1, a follower acknowledges only flushed records.
- OnlyDeletedRecordsGo: no log starts above the offset of DeleteRecords.
- MembersAreActive: no fenced or shutting down broker joins an ISR (KIP-841).
- AcknowledgedIsCommitted, NoDuplicates, AcknowledgedIsKnown: the guarantees of producers with acks=all and idempotence.
- ReadsEndAtHighWatermark: a follower serves consumers up to its high watermark (KIP-392).
- DeletedRecordsStayGone: no replica of a topic that was created again has a record of its predecessor, and no consumer
  reads one. The check covers acknowledged records, because producers send others again. Requests that name no topic id
  may still reach a broker that has not learned of the deletion.
- ConsistentReads: a consumer reads committed records only, and continues after the last one, or learns of a truncation.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from broker.metadata.image.metadata_image import MetadataImage
from broker.metadata.image.partition import NO_LEADER, PartitionRegistration
from broker.replication.leader import LeaderRole
from protocol.messages.fetch import PartitionData
from protocol.primitives import Uuid
from protocol.records.batch import BatchHeader, iter_headers
from tests.simulation.replication.broker import Node
from tests.simulation.replication.clients import ACKS_ALL, Read
from tests.simulation.replication.counts import ReplicationCounts
from tests.simulation.replication.deleted_records import DeletedRecords
from tests.simulation.replication.disk import ReplicaName
from tests.simulation.replication.history import History, Seen
from tests.simulation.replication.isr_checker import IsrChecker
from tests.simulation.simulator import EventLog
from tests.simulation.watched_disk import LoggedBatch

KEPT_LINES: Final = 600


class Checker(EventLog):
    """The witness of all disks, brokers and clients."""

    def __init__(self, nodes: Mapping[int, Node], now_ms: Callable[[], float]) -> None:
        super().__init__(ReplicationCounts(), now_ms, kept_lines=KEPT_LINES)
        self.histories: dict[ReplicaName, History] = {}
        self.lost: set[int] = set()
        """Nodes that lost data and have not registered again."""
        self._nodes = nodes
        self._seen: dict[tuple[int, ReplicaName], Seen] = {}
        self._held: dict[tuple[int, int, ReplicaName], tuple[int, int, int]] = {}
        self._registered: dict[ReplicaName, PartitionRegistration] = {}
        self._signatures: dict[ReplicaName, object] = {}
        self._idempotent: set[int] = set()
        self._crcs: set[int] = set()
        self._decided: MetadataImage | None = None
        self._committed: MetadataImage | None = None
        self._topic_ids: dict[ReplicaName, Uuid] = {}
        self._decided_ids: dict[ReplicaName, Uuid] = {}
        self._deleted_topics: set[Uuid] = set()
        self._deleted = DeletedRecords()
        self.topic_deleted: Callable[[ReplicaName], None] = lambda _: None
        """Called for each partition whose topic's deletion is committed."""
        self.isr: IsrChecker | None = None
        """Set by a simulation that also checks the times of in-sync sets."""

    # Disks

    def on_written(self, node_id: int, name: ReplicaName, batches: Sequence[LoggedBatch]) -> None:
        history = self.histories.get(name)
        if history is None or not batches:
            return
        if self._is_of_deleted_topic(node_id, name):
            self._deleted.note_written(name, batches)
            return
        previous = self._nodes[node_id].disk.ending_at(name, batches[0].base_offset)
        for batch in batches:
            before = None if previous is None else (previous.epoch, previous.base_offset)
            self._check_match(node_id, history, batch, before)
            previous = batch

    def _is_of_deleted_topic(self, node_id: int, name: ReplicaName) -> bool:
        """Whether a node that has not learned of a deletion still hosts the deleted partition."""
        broker = self._nodes[node_id].broker
        partition = None if broker is None else broker.partition(*name)
        return partition is not None and partition.topic_id in self._deleted_topics

    def _check_match(self, node_id: int, history: History, batch: LoggedBatch, before: tuple[int, int] | None) -> None:
        mismatch = history.note_written(batch, before)
        if mismatch is not None:
            what = f"{history.name} {batch.base_offset}..{batch.end_offset - 1} of epoch {batch.epoch}"
            self.fail("LogsMatch", f"node {node_id} has {what} {mismatch}")

    def on_removed(self, node_id: int, name: ReplicaName, batches: Sequence[LoggedBatch]) -> None:
        rest = self._nodes[node_id].disk.between(name, batches[-1].end_offset, 2**62)
        what = "trims" if rest else "truncations"
        self.counts.add(what)
        self.note(f"node {node_id} {what[:-1]}: {name} {batches[0].base_offset}..{batches[-1].end_offset - 1}")

    # Brokers

    def on_stop(self, node: Node) -> None:
        if self.isr is not None:
            self.isr.on_stop(node)
        for key in [key for key in self._seen if key[0] == node.id]:
            del self._seen[key]

    def on_loss(self, node: Node) -> None:
        """Record that the node lost its disk or unsynced data."""
        self.lost.add(node.id)

    def on_broker_event(self, node: Node) -> None:
        """Check a broker after an event."""
        broker = node.broker
        if broker is None or broker.data is None:
            self._check_members()
            return
        for topic in broker.data.partitions.by_id.values():
            for partition in topic.partitions.values():
                name = ReplicaName(partition.topic, partition.index)
                if name not in self.histories or partition.topic_id in self._deleted_topics:
                    continue
                log, role = partition.log, partition.role
                now = Seen(
                    isinstance(role, LeaderRole),
                    role.epoch,
                    log.high_watermark,
                    log.log_end_offset,
                    log.log_start_offset,
                )
                before = self._seen.get((node.id, name))
                if (
                    self.isr is not None
                    and isinstance(role, LeaderRole)
                    and (before is None or before[:2] != (True, role.epoch))
                ):
                    self.isr.on_new_epoch(node, name, role.isr.committed)
                if before is None:
                    self._check_old_records(node, name)
                if before != now:
                    self._seen[node.id, name] = now
                    self._on_replica(node, self.histories[name], before, now)
                if self.isr is not None and isinstance(role, LeaderRole):
                    self.isr.on_leader_event(node, name, partition, role)
        self._check_members()

    def _on_replica(self, node: Node, history: History, before: Seen | None, now: Seen) -> None:
        if now.is_leader:
            if before is None or not before.is_leader or before.leader_epoch != now.leader_epoch:
                self._on_new_epoch(node, history, now)
            elif now.high_watermark < before.high_watermark:
                self.fail(
                    "HighWatermarkIsMonotonic",
                    f"leader {node.id} of {history.name} in {now.leader_epoch} went from {before.high_watermark} to "
                    f"{now.high_watermark}",
                )
        if now.log_start_offset > history.deleted_to:
            self.fail(
                "OnlyDeletedRecordsGo",
                f"node {node.id} has {history.name} from {now.log_start_offset} on; deleted is what is below "
                f"{history.deleted_to}",
            )
        if now.leader_epoch < history.lineage_epoch or history.is_recovering:
            return
        if now.is_leader and now.high_watermark > history.end:
            self._commit(node, history, now)
        if history.promises and (before is None or before.committed != now.committed):
            self._check_final(node, history, now)

    def _on_new_epoch(self, node: Node, history: History, now: Seen) -> None:
        name, epoch = history.name, now.leader_epoch
        self.note(f"node {node.id} leads {name} in {epoch}, log {now.log_start_offset}..{now.log_end_offset}")
        if history.leaders.setdefault(epoch, node.id) != node.id:
            self.fail("OneLeaderPerEpoch", f"{node.id} and {history.leaders[epoch]} lead {name} in {epoch}")
        if node.id in self.lost or epoch < history.lineage_epoch:
            return
        if history.is_recovering:
            history.is_recovering = False
            lost = history.go_back(node.disk.between(name, 0, 2**62), now.log_start_offset, self._idempotent)
            self.counts.add("records lost to unclean elections", len(lost))
            self.note(f"{name} continues with the log of node {node.id}: {history.end}, {len(lost)} batches are lost")
        registration = self._registered[name]
        if (registration.leader, registration.leader_epoch) == (
            node.id,
            epoch,
        ):  # or the node only believes to be leader
            self._check_complete(node, history, "leads")

    def _commit(self, node: Node, history: History, now: Seen) -> None:
        """Extend the committed history: a leader reports a higher high watermark than any before."""
        found = node.disk.between(history.name, history.end, now.high_watermark)
        for batch in found:
            if batch.base_offset != history.end or batch.end_offset > now.high_watermark:
                self.fail(
                    "CommittedIsFinal",
                    f"leader {node.id} of {history.name} commits up to {now.high_watermark} and has "
                    f"{batch.base_offset}..{batch.end_offset - 1} behind {history.end}",
                )
            history.batches.append(batch)
            if batch.crc in self._idempotent and not history.note_idempotent(batch.crc):
                self.fail("NoDuplicates", f"{history.name} has a producer's batch again at {batch.base_offset}")
        if history.end != now.high_watermark:
            self.fail(
                "CommittedIsFinal",
                f"leader {node.id} of {history.name} has committed {now.high_watermark} and holds {history.end}",
            )

    def _check_final(self, node: Node, history: History, now: Seen) -> None:
        if now.high_watermark > history.end:
            self.fail(
                "CommittedIsFinal",
                f"node {node.id} has high watermark {now.high_watermark} of {history.name}, which no leader reported, "
                f"but {history.end}",
            )
        if now.high_watermark <= now.log_start_offset:
            return
        last = history.ending_at(now.high_watermark)
        own = node.disk.ending_at(history.name, now.high_watermark)
        if last is not None and own is not None and not own.is_same(last):
            self.fail(
                "CommittedIsFinal",
                f"node {node.id} has {history.name} {own.base_offset} of epoch {own.epoch} below its high watermark "
                f"{now.high_watermark}; committed was that of epoch {last.epoch}",
            )

    def check_served(self, node: Node, history: History, log_start_offset: int) -> None:
        """Check everything that the node's log holds from its start on, once the system has settled."""
        if not history.promises:
            return
        for batch in node.disk.between(history.name, log_start_offset, history.end):
            committed = history.at(batch.base_offset)
            if committed is None or not batch.is_same(committed):
                self.fail(
                    "CommittedIsFinal",
                    f"node {node.id} serves {history.name} {batch.base_offset} of epoch {batch.epoch} in the end; "
                    f"committed was {'nothing' if committed is None else f'that of epoch {committed.epoch}'}",
                )

    def on_acknowledged_offset(self, node: Node, name: ReplicaName, offset: int) -> None:
        """Check an acknowledgement: a follower reports an offset to its leader, and `flush.messages` is 1."""
        is_written = node.disk.ending_at(name, offset) is not None
        if is_written and offset > node.recovered.get(name, 0) and not node.disk.ending_at(name, offset, durable=True):
            self.fail("ToldIsFlushed", f"node {node.id} acknowledges {name} up to {offset} unflushed")

    def on_time(self) -> None:
        """Check what must happen within a time."""
        if self.isr is not None:
            self.isr.sweep(self._registered)

    # The controller

    def on_controller_event(self, decided: MetadataImage, committed: MetadataImage) -> None:
        """Check the controller after an event."""
        if decided is not self._decided:
            if self.isr is not None and self._decided is not None:
                self.isr.on_decided(self._decided, decided)
            self._decided = decided
            for name, history in self.histories.items():
                topic = decided.topics.by_name(name.topic)
                registration = None if topic is None else topic.partition(name.partition)
                before = self._registered.get(name)
                if topic is not None and self._decided_ids.setdefault(name, topic.id) != topic.id:
                    self._decided_ids[name], before = topic.id, None  # created again, maybe by another controller
                if registration is not None and registration is not before:
                    self._registered[name] = registration
                    if before is not None:
                        if self.isr is not None:
                            self.isr.on_registration(name, before, registration)
                        self._on_registration(history, before, registration)
                if self.isr is not None and registration is not None:
                    self.isr.on_fenced(name, registration, decided)
        if committed is not self._committed:
            self._committed = committed
            self._find_deletions(committed)
        for node_id in sorted(self.lost):
            broker, node = committed.brokers.get(node_id), self._nodes[node_id]
            if broker is not None and node.broker is not None and broker.incarnation_id == node.broker.incarnation_id:
                self.lost.discard(node_id)
                self._signatures.clear()
        self._check_members()

    def _on_registration(self, history: History, before: PartitionRegistration, now: PartitionRegistration) -> None:
        self.note(
            f"controller: {history.name} leader {now.leader} in {now.leader_epoch}, ISR {now.isr}"
            + (f", ELR {now.elr}" if now.elr else "")
            + (f", replicas {now.replicas}" if now.replicas != before.replicas else "")
        )
        joined = sorted(set(now.isr) - set(before.isr))
        if joined:
            self.counts.add("ISR expands")
            self._check_active(history, now, joined)
        if set(before.isr) - set(now.isr):
            self.counts.add("ISR shrinks")
        if (before.adding_replicas or before.removing_replicas) and not (now.adding_replicas or now.removing_replicas):
            self.counts.add("reassignments")
        if now.leader not in (before.leader, NO_LEADER):
            self.counts.add("elections")
        if now.isr and set(now.isr).isdisjoint((*before.isr, *before.elr)):
            self._on_unclean(history, before, now)
        elif now.leader not in (before.leader, NO_LEADER, *self.lost) and not history.is_recovering:
            self._check_complete(self._nodes[now.leader], history, "is elected for")

    def _check_active(self, history: History, now: PartitionRegistration, joined: list[int]) -> None:
        """Check the members that a leader adds. A member added by an election may be about to be unfenced. Without a
        leader, a cancelled reassignment keeps the first replica in the ISR in any state, as in Kafka.
        """
        assert self._decided is not None
        for member in joined:
            broker = self._decided.brokers.get(member)
            if now.leader not in (member, NO_LEADER) and (broker is None or not broker.is_active):
                self.fail("MembersAreActive", f"{member} joins the in-sync set of {history.name}, and is {broker}")

    def _on_unclean(self, history: History, before: PartitionRegistration, now: PartitionRegistration) -> None:
        """Record an unclean election: no replica known to be complete is left."""
        self.counts.add("unclean elections")
        self.note(f"{history.name}: unclean election")
        if history.is_clean and not before.last_known_elr:
            self.fail("LeaderCompleteness", f"{now.isr} are in sync for {history.name} and were not eligible")
        history.lineage_epoch, history.is_recovering = now.leader_epoch, True
        history.generation += 1

    # Contents of replicas

    def _check_members(self) -> None:
        """Check that every in-sync replica holds all committed records."""
        for name, history in self.histories.items():
            registration = self._registered.get(name)
            if registration is None or history.is_recovering:
                continue
            signature = (
                len(history.batches),
                history.generation,
                history.needed_from,
                registration,
                *(self._nodes[member].disk.removals for member in registration.isr),
            )
            if self._signatures.get(name) == signature:
                continue
            self._signatures[name] = signature
            for member in registration.isr:
                if member not in self.lost:
                    self._check_complete(self._nodes[member], history, "is in sync for", "StrongIsr")

    def _check_complete(self, node: Node, history: History, what: str, rule: str = "LeaderCompleteness") -> None:
        missing = self.first_missing(node, history)
        if missing is not None:
            own = node.disk.ending_at(history.name, missing.end_offset)
            has = "nothing" if own is None else f"that of epoch {own.epoch}"
            self.fail(
                rule,
                f"node {node.id} {what} {history.name}, of which {history.end} are committed, and has {has} in the "
                f"place of {missing.base_offset}..{missing.end_offset - 1} of epoch {missing.epoch}",
            )

    def first_missing(self, node: Node, history: History) -> LoggedBatch | None:
        """Return the first committed batch that a node's log lacks."""
        key = (node.id, node.lives, history.name)
        removals, generation, count = self._held.get(key, (-1, -1, 0))
        if removals != node.disk.removals or generation != history.generation:
            count = 0
        count = max(count, history.first_needed)
        needed = history.batches[count:]
        if needed:
            have = {batch.base_offset: batch for batch in node.disk.between(history.name, needed[0].base_offset, 2**62)}
            for batch in needed:
                own = have.get(batch.base_offset)
                if own is None or not own.is_same(batch):
                    return batch
                count += 1
        self._held[key] = node.disk.removals, history.generation, count
        return None

    # Topics

    def _find_deletions(self, committed: MetadataImage) -> None:
        for name in list(self.histories):
            topic_id = self._topic_ids.get(name)
            if topic_id is not None and committed.topics.by_id(topic_id) is None:
                self.on_topic_deleted(name, topic_id)
                self.topic_deleted(name)
            topic = committed.topics.by_name(name.topic)
            if topic is not None and topic.id not in self._deleted_topics:
                self._topic_ids[name] = topic.id

    def _check_old_records(self, node: Node, name: ReplicaName) -> None:
        """Check that a replica of a topic that was created again has no record of the deleted topic."""
        for batch in node.disk.between(name, 0, 2**62):
            if self._deleted.is_acknowledged(name, batch.crc):
                self.fail(
                    "DeletedRecordsStayGone",
                    f"node {node.id} hosts {name}, created again, with {batch.base_offset} of the deleted topic",
                )

    def on_topic_deleted(self, name: ReplicaName, topic_id: Uuid) -> None:
        """Forget a partition's history: a topic created again under the name starts without records."""
        self.note(f"{name} is deleted")
        self.counts.add("deleted partitions")
        self._topic_ids.pop(name, None)
        self._deleted_topics.add(topic_id)
        self._deleted.on_deleted(name, self.histories[name])
        if self.isr is not None:
            self.isr.on_topic_deleted(name)
        self.histories[name] = History(name, is_clean=self.histories[name].is_clean)
        self._registered.pop(name, None)
        self._signatures.pop(name, None)
        for seen in [key for key in self._seen if key[1] == name]:
            del self._seen[seen]
        for held in [key for key in self._held if key[2] == name]:
            del self._held[held]

    # Clients

    def on_deleted(self, name: ReplicaName, offset: int) -> None:
        """Record that a client deleted records below an offset."""
        self.histories[name].delete(offset)
        self.note(f"{name} has deleted records below {offset}")
        self.counts.add("deletions")

    def on_sent(self, name: ReplicaName, crc: int, *, is_idempotent: bool) -> bool:
        if crc in self._crcs:
            return False
        self._crcs.add(crc)
        if is_idempotent:
            self._idempotent.add(crc)
        return True

    def on_acknowledged(self, name: ReplicaName, crc: int, offset: int, acks: int) -> None:
        self.counts.add("acknowledged records")
        history = self.histories[name]
        if self._deleted.has(name, offset, crc):
            self._deleted.note_acknowledged(name, crc)  # by a broker that has not learned of the deletion
            return
        self._deleted.note_acknowledged_now(name, crc)
        if acks != ACKS_ALL or not history.promises:
            return
        if offset < 0:
            self.counts.add("duplicates without an offset")
            if not history.has_idempotent(crc):
                self.fail(
                    "AcknowledgedIsCommitted", f"a batch of {name} is a duplicate of a batch that is not committed"
                )
            return
        batch = history.at(offset)
        if batch is None or batch.crc != crc:
            what = "nothing" if batch is None else "another batch"
            self.fail("AcknowledgedIsCommitted", f"a batch is acknowledged at {offset} of {name}, where {what} is")

    def on_sequence_lost(self, name: ReplicaName, crc: int, leader_id: int) -> None:
        """Check a producer error. A leader that had to load producer state knows only the last batch, as Kafka's does:
        it may refuse batches that it has, or had and deleted, but not batches that it never had. A deposed leader does
        not know the records of its successor.
        """
        history = self.histories[name]
        self.counts.add("lost sequences")
        if not history.promises or name not in self._registered or leader_id != self._registered[name].leader:
            return
        had = [*self._nodes[leader_id].disk.between(name, 0, 2**62), *history.deleted]
        if all(batch.crc != crc for batch in had):
            self.fail("AcknowledgedIsKnown", f"a leader of {name} does not know what its producer sent before")

    def on_read(self, consumer: int, name: ReplicaName, header: BatchHeader, *, follows: Read | None) -> None:
        history = self.histories[name]
        self.counts.add("records read", header.record_count)
        what = f"consumer {consumer} reads {name} {header.base_offset} of epoch {header.leader_epoch}"
        written = history.written.get((header.leader_epoch, header.base_offset))
        if self._deleted.is_acknowledged(name, header.crc):
            self.fail("DeletedRecordsStayGone", f"{what} of the deleted topic")
        if written is None or written.crc != header.crc:
            self.fail("ConsistentReads", f"{what}, which no producer wrote")
        if history.promises:
            batch = history.at(header.base_offset)
            if batch is None or batch.crc != header.crc or batch.epoch != header.leader_epoch:
                self.fail("ConsistentReads", f"{what}, which is not committed")
        if follows is not None and written.before not in (None, (follows.epoch, follows.base_offset)):
            self.fail("ConsistentReads", f"{what} after {follows.base_offset} of {follows.epoch}, where it never was")

    def on_follower_read(self, consumer: int, name: ReplicaName, replica: int, data: PartitionData) -> None:
        self.counts.add("follower reads")
        *_, (_, last) = iter_headers(memoryview(data.records or b""))
        if last.next_offset > data.high_watermark:
            self.fail(
                "ReadsEndAtHighWatermark",
                f"consumer {consumer} gets {name} up to {last.next_offset} of follower {replica}, whose high watermark "
                f"is {data.high_watermark}",
            )

    def on_truncation_noticed(self, consumer: int, name: ReplicaName, position: int, offset: int) -> None:
        self.counts.add("truncations noticed")
        self.note(f"consumer {consumer} of {name} resets from {position} to {offset}")
        history = self.histories[name]
        if history.promises and offset < position and not self._deleted.concerns(name):
            self.fail("ConsistentReads", f"consumer {consumer} has to reset from {position} to {offset} of {name}")

    def on_out_of_range(self, consumer: int, name: ReplicaName, position: int, start: int) -> None:
        history = self.histories[name]
        self.note(f"consumer {consumer} of {name} at {position} is out of range, goes to {start}")
        if history.promises and position >= history.deleted_to and not self._deleted.concerns(name):
            self.fail("ConsistentReads", f"consumer {consumer} at {position} of {name} is out of range")
