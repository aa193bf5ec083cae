"""A compacted topic in random histories: a producer of keyed records and tombstones, and the check of every log.

Invariants, by the names in violations:

- NewestValuesStay: the registered leader has, of each key, the newest acknowledged record or a later one. A tombstone
  may be gone after `delete.retention.ms`, and no older record of its key may remain. After the election of the last
  known leader only later records count: every replica has restarted uncleanly (KIP-966).
- LeaderCompleteness: no other election takes a replica that is neither in sync nor eligible.
- OffsetsKeepTheirRecords: a record of a leader epoch has the same key and value at its offset on every replica, always.
- LatestValuesConverge: at the end all live replicas have the same latest record of each key.

The logs are read from the disks. The history's other random sources stay as they are.
"""

from dataclasses import dataclass
from functools import partial
from math import inf
from random import Random
from typing import TYPE_CHECKING, Any, Final

from broker.metadata.image.partition import PartitionRegistration
from broker.runtime.replication.fetch_transport import Unanswered
from protocol.errors import ErrorCode
from protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from protocol.primitives import ZERO_UUID
from protocol.records.batch import iter_headers
from protocol.records.builder import Record, build_batch
from protocol.records.reader import iter_records
from tests.simulation.replication.broker import Node
from tests.simulation.replication.clients import ACKS_ALL, AGAIN_ELSEWHERE, Client
from tests.simulation.replication.disk import ReplicaName
from tests.simulation.replication.network import Outcome
from tests.simulation.replication.producers import PRODUCE_VERSION

if TYPE_CHECKING:
    from tests.simulation.replication.simulation import ReplicationSimulator

SHARE: Final = 0.2
"""Share of the histories with a compacted topic."""
NAME: Final = ReplicaName("compacted", 0)
CLIENT_ID: Final = 300
_KEYS: Final = tuple(b"key-%d" % number for number in range(5))
_TOMBSTONES: Final = 0.2
_PRODUCE_EVERY_MS: Final = 15.0
_LOOK_EVERY_MS: Final = 60.0
_CREATE_AGAIN: Final = 50
_DRIFT: Final = 1.15
_Latest = dict[bytes, tuple[int, bytes | None]]
"""The offset and value of the last record of each key."""


@dataclass(slots=True)
class _Tombstone:
    """A tombstone; `offset` is infinite until it is acknowledged."""

    sent_ms: float
    offset: float = inf


class _KeyedProducer(Client):
    """Sends one record at a time, without retries: `topic` learns of each record and of each acknowledgement."""

    def __init__(self, topic: "CompactedTopic", random: Random) -> None:
        simulation = topic.simulation
        timeout_ms = simulation.scenario.request_timeout_ms
        super().__init__(simulation, CLIENT_ID, NAME, random, timeout_ms=1.5 * timeout_ms, rate=1.0)
        self._topic = topic
        self._request_timeout_ms = int(timeout_ms)
        self.number = 0
        self._is_waiting = False
        self.is_closed = False
        self.slow_down(simulation.scenario.pace)

    def on_leader(self, *, is_new_epoch: bool) -> None:
        self._is_waiting = False
        self._send()

    def look(self) -> None:
        self._is_waiting = True
        super().look()

    def _send(self) -> None:
        if self.is_closed or self._is_waiting or self.leader is None:
            return
        self.number += 1
        key = self.random.choice(_KEYS)
        value = None if self.random.random() < _TOMBSTONES else b"%d" % self.number
        data = build_batch([Record(self.process.now_ms(), key, value)])
        self._topic.on_sent(key, value, self.number)
        request = ProduceRequest(
            acks=ACKS_ALL,
            timeout_ms=self._request_timeout_ms,
            topic_data=[TopicProduceData(name=NAME.topic, partition_data=[PartitionProduceData(0, bytearray(data))])],
        )
        self.ask(self.leader, request, PRODUCE_VERSION, partial(self._on_answer, key, value, self.number))

    def _on_answer(self, key: bytes, value: bytes | None, number: int, outcome: Outcome) -> None:
        if isinstance(outcome, Unanswered):
            self.look()
            return
        (entry,) = outcome.responses[0].partition_responses
        if entry.error_code == ErrorCode.NONE:
            self._topic.on_acknowledged(key, value, number, entry.base_offset)
        if ErrorCode(entry.error_code) in AGAIN_ELSEWHERE:
            self.look()
        else:
            self.later(self._send, (0.0, 2 * _PRODUCE_EVERY_MS))


class CompactedTopic:
    """The compacted topic of one history."""

    def __init__(self, simulation: "ReplicationSimulator") -> None:
        self.simulation = simulation
        self._random = Random(f"compaction {simulation.seed}")
        pace = simulation.scenario.pace
        self._retention_ms = int(self._random.choice((1_000, 3_600_000)) * pace)
        self._acknowledged: _Latest = {}
        self._registered: PartitionRegistration | None = None
        self._lost_to = 0
        """Records up to this number were sent before the last election of an incomplete leader."""
        self._tombstones: dict[bytes, dict[int, _Tombstone]] = {}
        """The tombstones of each key, by their number, except those before the last acknowledged value."""
        self._records: dict[tuple[int, int], tuple[bytes | None, bytes | None]] = {}
        """The key and value of each record, by leader epoch and offset."""
        self.producer = _KeyedProducer(self, Random(f"keyed producer {simulation.seed}"))

    def begin(self) -> None:
        self._create()
        self.producer.look()
        self._look_again()

    def end(self) -> None:
        self.producer.is_closed = True

    def _after(self, delay_ms: float, action: Any, *args: object) -> None:
        self.simulation.world.schedule(delay_ms * self.simulation.scenario.pace, action, *args)

    def _create(self, looks: int = 0) -> None:
        if self.simulation.topic_id(NAME.topic) != ZERO_UUID:
            return
        if looks % _CREATE_AGAIN == 0:
            configs = {
                "cleanup.policy": "compact",
                "min.insync.replicas": "2",
                "delete.retention.ms": str(self._retention_ms),
            }
            topic = CreatableTopic(
                name=NAME.topic,
                num_partitions=1,
                replication_factor=3,
                configs=[CreatableTopicConfig(key, value) for key, value in configs.items()],
            )
            request = CreateTopicsRequest(topics=[topic])
            self.simulation.service.command(lambda controller, _now: controller.create_topics(request), _nothing)
        self._after(20.0, self._create, looks + 1)

    # Work

    def on_sent(self, key: bytes, value: bytes | None, number: int) -> None:
        """Record a record whose outcome is unknown."""
        if value is None:
            self._tombstones.setdefault(key, {})[number] = _Tombstone(self.simulation.world.now_ms)

    def on_acknowledged(self, key: bytes, value: bytes | None, number: int, offset: int) -> None:
        """Record the acknowledged offset of a record."""
        tombstones = self._tombstones.setdefault(key, {})
        if value is None:
            tombstones[number].offset = offset
        else:
            self._tombstones[key] = {each: one for each, one in tombstones.items() if one.offset > offset}
        self.simulation.checker.counts.add("keyed records")
        if number > self._lost_to and offset > self._acknowledged.get(key, (-1, None))[0]:
            self._acknowledged[key] = (offset, value)

    # Checks

    def on_controller_event(self) -> None:
        """Find elections of replicas that are not known to be complete."""
        before, now = self._registered, self.registration
        self._registered = now
        if before is None or now is None or now is before or not now.isr:
            return
        if set(now.isr).isdisjoint((*before.isr, *before.elr)):
            if not before.last_known_elr:
                self._fail("LeaderCompleteness", f"{now.isr} are in sync and were not eligible")
            self._acknowledged.clear()
            self._lost_to = self.producer.number

    def _look_again(self) -> None:
        self._after(_LOOK_EVERY_MS, self._look_again)
        registration = self.registration
        node = None if registration is None else self.simulation.nodes.get(registration.leader)
        if registration is None or node is None or node.broker is None or node.id in self.simulation.checker.lost:
            return
        partition = node.broker.partition(*NAME)
        if partition is not None and partition.is_leader and partition.leader_epoch == registration.leader_epoch:
            self._check(node)

    @property
    def registration(self) -> PartitionRegistration | None:
        return self.simulation.registration(NAME)

    def _check(self, node: Node) -> _Latest:
        """Check a log; return the latest record of each key."""
        latest: _Latest = {}
        count = end = 0
        for content in node.disk.contents(NAME):
            for position, header in iter_headers(memoryview(content)):
                count, end = count + header.record_count, header.next_offset
                for record in iter_records(content, position):
                    known = self._records.setdefault((header.leader_epoch, record.offset), (record.key, record.value))
                    if known != (record.key, record.value):
                        self._fail(
                            "OffsetsKeepTheirRecords",
                            f"node {node.id} has {record.key!r} of epoch {header.leader_epoch} at {record.offset}, "
                            f"and another replica {known[0]!r}",
                        )
                    latest[bytes(record.key or b"")] = (record.offset, record.value)
        if count < end:
            self.simulation.checker.counts.add("checks of compacted logs")
        for key, (offset, value) in self._acknowledged.items():
            found = latest.get(key)
            if found is None and self._may_be_gone(key):
                continue
            if found is None or (found[0] < offset and not (value is None and self._may_be_gone(key))):
                what = "nothing" if found is None else f"the record at {found[0]}"
                self._fail("NewestValuesStay", f"node {node.id} has {what} of {key!r}, acknowledged at {offset}")
        return latest

    def _may_be_gone(self, key: bytes) -> bool:
        """Whether a tombstone of the key may have been removed.

        The first compaction writes the time of the removal into the batch, by the wall clock of its broker (KIP-534).
        After a step of a clock that time says nothing.
        """
        tombstones = self._tombstones.get(key, {}).values()
        if self.simulation.checker.counts.by_name["clock steps"]:
            return bool(tombstones)
        latest_ms = self.simulation.world.now_ms - self._retention_ms / _DRIFT
        return any(tombstone.sent_ms < latest_ms for tombstone in tombstones)

    def _fail(self, invariant: str, text: str) -> None:
        self.simulation.checker.fail(invariant, f"{text} of {NAME}")

    def unsettled_reason(self) -> str | None:
        """Return why the replicas have not settled; None if they have. Raises Violation if they differ then."""
        registration, dead = self.registration, self.simulation.peace.dead
        if registration is None:
            return f"{NAME} does not exist"
        live = set(registration.replicas) - dead
        if not registration.has_leader and not {*registration.isr, *registration.elr} - dead:
            return None
        if not registration.has_leader or set(registration.isr) != live:
            return f"{NAME} has the ISR {registration.isr} of live {sorted(live)}, leader {registration.leader}"
        nodes = [self.simulation.nodes[node_id] for node_id in sorted(live)]
        ends = {None if (log := _end_of(node)) is None else log for node in nodes}
        if None in ends or len(ends) > 1:
            return f"{NAME} ends at {ends}"
        found = {node.id: self._check(node) for node in nodes}
        first = found[nodes[0].id]
        for node_id, latest in found.items():
            for key in {*first, *latest}:
                if latest.get(key) != first.get(key) and not self._may_be_gone(key):
                    self._fail(
                        "LatestValuesConverge",
                        f"node {node_id} has {latest.get(key)} of {key!r}, node {nodes[0].id} {first.get(key)}",
                    )
        return None


def _end_of(node: Node) -> int | None:
    partition = None if node.broker is None else node.broker.partition(*NAME)
    return None if partition is None else partition.log.log_end_offset


def _nothing(_: object) -> None:
    """Ignore the result."""
