"""Workloads of the coordinators: transactions, read_committed consumption, rebalances, offset commits, share groups."""

import statistics
import time
import uuid
from random import Random
from typing import TypeVar

import confluent_kafka

from protocol.compiler import encode_bytes
from protocol.errors import ErrorCode
from protocol.messages import Message
from protocol.messages.common_records import ConsumerProtocolSubscription
from protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatRequestTopicPartitions,
    ConsumerGroupHeartbeatResponse,
)
from protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity
from protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from protocol.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from protocol.messages.share_fetch import (
    AcknowledgementBatch,
    FetchPartition,
    FetchTopic,
    ShareFetchRequest,
    ShareFetchResponse,
)
from protocol.messages.share_group_heartbeat import ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse
from protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment, SyncGroupResponse
from protocol.primitives import Uuid
from protocol.records.builder import Record, build_batch
from tests.benchmarks.scripts import Call, Script, ScriptRunner
from tests.benchmarks.sides import Side
from tests.benchmarks.workloads import HIGHER, LOWER, Consume, delete_topic, new_topic
from tests.support.clients.replicated_load import create_topic as create_partitioned_topic

NOT_READY = frozenset(
    (
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.CONCURRENT_TRANSACTIONS,
    )
)
NEW_TOPIC = frozenset((ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.NOT_LEADER_OR_FOLLOWER))
RETRY_S = 0.002
R = TypeVar("R", bound=Message)


def received(answer: Message | None, expected: type[R]) -> R:
    assert isinstance(answer, expected)
    return answer


def find_coordinator(key: str, kind: int) -> Script:
    """Wait until the coordinator of a group (0) or a transactional id (1) exists."""
    while True:
        answer = received(
            (yield Call(FindCoordinatorRequest("", kind, [key]), 4, FindCoordinatorResponse)), FindCoordinatorResponse
        )
        if answer.coordinators[0].error_code == 0:
            return
        yield 0.05


class TransactionalProduce:
    """Transactions of 100 records of 100 bytes per second, each producer with one request in flight, and the time from
    EndTxn to its response. Transaction version 2: two requests a transaction.
    """

    RECORDS, SIZE = 100, 100
    TOTAL = 2_000

    def __init__(self, producers: int) -> None:
        self._producers = producers
        self._interval_s = 0.0
        """Time between the starts of two transactions of a producer."""
        self._random = Random(1)
        self._name = f"transactional produce, {producers} producers"
        self.figures = {
            self._name: ("1/s", HIGHER),
            f"{self._name}, broker CPU": ("us", LOWER),
            f"{self._name}, commit p50": ("ms", LOWER),
            f"{self._name}, commit p99": ("ms", LOWER),
        }

    def run(self, side: Side) -> dict[str, float]:
        """Run once."""
        return dict(zip(self.figures, self.measure(side), strict=True))

    def measure(self, side: Side) -> tuple[float, float, float, float]:
        """Return transactions per second, microseconds of the broker's processor time each, and two percentiles of the
        commits in milliseconds.
        """
        latencies: list[float] = []
        each = self.TOTAL // self._producers
        with new_topic(side, "transactions") as topic:
            names = [f"bench-{uuid.uuid4().hex}" for _ in range(self._producers)]
            sessions: dict[str, tuple[int, int]] = {}
            ScriptRunner(side.bootstrap, (self._session(name, sessions) for name in names)).run()
            runner = ScriptRunner(
                side.bootstrap, (self._transactions(name, topic, each, sessions[name], latencies) for name in names)
            )
            cpu = side.cpu_s()
            started = runner.run()
            took, used = time.monotonic() - started, side.cpu_s() - cpu
        count = each * self._producers
        hundredths = statistics.quantiles(latencies, n=100)
        return count / took, used * 1e6 / count, hundredths[49], hundredths[98]

    @staticmethod
    def _session(name: str, sessions: dict[str, tuple[int, int]]) -> Script:
        yield from find_coordinator(name, 1)
        while True:
            call = Call(InitProducerIdRequest(name, 60_000), 4, InitProducerIdResponse)
            answer = received((yield call), InitProducerIdResponse)
            if answer.error_code not in NOT_READY:
                assert answer.error_code == 0, answer
                sessions[name] = answer.producer_id, answer.producer_epoch
                return
            yield 0.05

    def _transactions(
        self, name: str, topic: str, count: int, producer: tuple[int, int], latencies: list[float]
    ) -> Script:
        records = [Record(int(time.time() * 1000), None, b"x" * self.SIZE)] * self.RECORDS
        begun_s = time.monotonic() + self._random.random() * self._interval_s
        for number in range(count):
            if (pause_s := begun_s + number * self._interval_s - time.monotonic()) > 0:
                yield pause_s
            batch = build_batch(
                records, producer_id=producer[0], producer_epoch=producer[1], base_sequence=0, transactional=True
            )
            data = [TopicProduceData(topic, partition_data=[PartitionProduceData(0, batch)])]
            while True:
                produced = received(
                    (yield Call(ProduceRequest(name, -1, 30_000, data), 12, ProduceResponse)), ProduceResponse
                )
                code = produced.responses[0].partition_responses[0].error_code
                if code not in NOT_READY | NEW_TOPIC:
                    break
                yield RETRY_S
            assert code == 0, produced
            begun = time.perf_counter()
            while True:
                ended = received((yield Call(EndTxnRequest(name, *producer, True), 5, EndTxnResponse)), EndTxnResponse)
                if ended.error_code not in NOT_READY:
                    break
                yield RETRY_S
            assert ended.error_code == 0, ended
            latencies.append((time.perf_counter() - begun) * 1000)
            producer = ended.producer_id, ended.producer_epoch


class PacedTransactions(TransactionalProduce):
    """The time from EndTxn to its response at a rate that both brokers sustain, from 10 producers.

    In a closed loop the faster broker has more transactions in the same time, and each waits for the others.
    """

    RATE, TOTAL = 200, 1_000

    def __init__(self) -> None:
        super().__init__(10)
        self._interval_s = self._producers / self.RATE
        name = f"{self.RATE} transactions per second"
        self.figures = {
            f"{name}, commit p50": ("ms", LOWER),
            f"{name}, commit p99": ("ms", LOWER),
            f"{name}, broker CPU": ("us", LOWER),
        }

    def run(self, side: Side) -> dict[str, float]:
        """Run once."""
        _, cpu, p50, p99 = self.measure(side)
        return dict(zip(self.figures, (p50, p99, cpu), strict=True))


class ConsumeCommitted(Consume):
    """MB/s of committed records with read_committed; every tenth transaction of the topic is aborted."""

    RECORDS = 1_000

    def __init__(self, size: int, count: int) -> None:
        super().__init__(size, count)
        self._rate, self._cost = f"read_committed consume {size} B", f"read_committed consume {size} B, broker CPU"
        self.figures = {self._rate: ("MB/s", HIGHER), self._cost: ("ms/MB", LOWER)}

    def _fill(self, side: Side, topic: str) -> None:
        settings = {"transactional.id": f"fill-{topic}", "linger.ms": 5, "queue.buffering.max.messages": 1_000_000}
        producer = confluent_kafka.Producer({"bootstrap.servers": side.bootstrap, **settings})
        producer.init_transactions(60)
        for number in range(self._count // self.RECORDS * 10 // 9 + 1):
            producer.begin_transaction()
            for _ in range(self.RECORDS):
                producer.produce(topic, b"x" * self._size)
            if number % 10 == 9:
                producer.flush()
                producer.abort_transaction(60)
            else:
                producer.commit_transaction(60)


class OffsetCommits:
    """Offset commits per second of one partition each, by 20 groups without members, and the processor time."""

    GROUPS, EACH = 20, 500

    def __init__(self) -> None:
        self.figures = {"offset commits": ("1/s", HIGHER), "offset commit, broker CPU": ("us", LOWER)}

    def run(self, side: Side) -> dict[str, float]:
        """Run once."""
        with new_topic(side, "commits") as topic:
            names = [f"bench-{uuid.uuid4().hex}" for _ in range(self.GROUPS)]
            ScriptRunner(side.bootstrap, (self._commits(name, topic, 1) for name in names)).run()
            runner = ScriptRunner(side.bootstrap, (self._commits(name, topic, self.EACH) for name in names))
            cpu = side.cpu_s()
            started = runner.run()
            took, used = time.monotonic() - started, side.cpu_s() - cpu
        count = self.GROUPS * self.EACH
        return dict(zip(self.figures, (count / took, used * 1e6 / count), strict=True))

    @staticmethod
    def _commits(group: str, topic: str, count: int) -> Script:
        if count == 1:
            yield from find_coordinator(group, 0)
        done = 0
        while done < count:
            partition = OffsetCommitRequestPartition(0, committed_offset=done)
            request = OffsetCommitRequest(group, topics=[OffsetCommitRequestTopic(topic, partitions=[partition])])
            answer = received((yield Call(request, 8, OffsetCommitResponse)), OffsetCommitResponse)
            code = answer.topics[0].partitions[0].error_code
            if code in NOT_READY:
                yield 0.05
                continue
            assert code == 0, answer
            done += 1


class Rebalance:
    """Seconds from the first request of all members of a new group, at once, until all are in one generation and each
    partition has an owner. Members send a heartbeat ten times a second; there are as many partitions as members.
    """

    HEARTBEAT_S = 0.1

    def __init__(self, members: int, protocol: str) -> None:
        self._members = members
        self._is_consumer = protocol == "consumer"
        self._name = f"rebalance of {members} members, {protocol} protocol"
        self.figures = {self._name: ("s", LOWER), f"{self._name}, broker CPU": ("s", LOWER)}
        self._topics: set[str] = set()
        self._generations: dict[str, int] = {}
        self._owned: dict[str, int] = {}
        self._stable_at = 0.0

    def run(self, side: Side) -> dict[str, float]:
        """Run once."""
        topic = f"members-{self._members}"
        if side.name not in self._topics:
            if (
                topic
                not in confluent_kafka.admin.AdminClient({"bootstrap.servers": side.bootstrap})
                .list_topics(timeout=30)
                .topics
            ):
                create_partitioned_topic(side.bootstrap, topic, self._members, 1)
            self._topics.add(side.name)
        group = f"bench-{uuid.uuid4().hex}"
        ScriptRunner(side.bootstrap, [find_coordinator(group, 0)]).run()
        self._generations.clear()
        self._owned.clear()
        member = self._consumer_member if self._is_consumer else self._classic_member
        self._stable_at = 0.0
        runner = ScriptRunner(side.bootstrap, (member(group, topic, f"{number}") for number in range(self._members)))
        cpu = side.cpu_s()
        started = runner.run()
        return dict(zip(self.figures, (self._stable_at - started, side.cpu_s() - cpu), strict=True))

    def _settle(self, member: str, generation: int, owned: int) -> None:
        self._generations[member], self._owned[member] = generation, owned
        is_whole = len(self._generations) == self._members == sum(self._owned.values())
        if is_whole and len(set(self._generations.values())) == 1 and not self._stable_at:
            self._stable_at = time.monotonic()

    def _classic_member(self, group: str, topic: str, name: str) -> Script:
        metadata = b"\0\0" + encode_bytes(ConsumerProtocolSubscription(topics=[topic]), 0)
        member_id = ""
        while not self._stable_at:
            join = JoinGroupRequest(
                group, 45_000, 300_000, member_id, None, "consumer", [JoinGroupRequestProtocol("range", metadata)]
            )
            joined = received((yield Call(join, 5, JoinGroupResponse)), JoinGroupResponse)
            member_id = joined.member_id or member_id
            if joined.error_code:
                assert joined.error_code in NOT_READY | {
                    ErrorCode.MEMBER_ID_REQUIRED,
                    ErrorCode.REBALANCE_IN_PROGRESS,
                }, joined
                continue
            is_leader = joined.leader == member_id
            shares = (
                [SyncGroupRequestAssignment(each.member_id, b"x" * 64) for each in joined.members] if is_leader else []
            )
            sync = SyncGroupRequest(group, joined.generation_id, member_id, None, None, None, shares)
            synced = received((yield Call(sync, 3, SyncGroupResponse)), SyncGroupResponse)
            code = synced.error_code
            if code == 0:
                self._settle(name, joined.generation_id, 1)
            while code == 0 and not self._stable_at:
                yield self.HEARTBEAT_S
                beat = HeartbeatRequest(group, joined.generation_id, member_id)
                code = received((yield Call(beat, 3, HeartbeatResponse)), HeartbeatResponse).error_code
            assert code in (ErrorCode.NONE, ErrorCode.REBALANCE_IN_PROGRESS), code
        leave = LeaveGroupRequest(group, "", [MemberIdentity(member_id)])
        yield Call(leave, 3, LeaveGroupResponse)

    def _consumer_member(self, group: str, topic: str, name: str) -> Script:
        member_id, epoch = str(uuid.uuid4()), 0
        owned: list[ConsumerGroupHeartbeatRequestTopicPartitions] | None = []
        while not self._stable_at:
            request = ConsumerGroupHeartbeatRequest(group, member_id, epoch)
            if epoch == 0:
                request.rebalance_timeout_ms, request.subscribed_topic_names = 300_000, [topic]
            request.topic_partitions = owned
            answer = received((yield Call(request, 1, ConsumerGroupHeartbeatResponse)), ConsumerGroupHeartbeatResponse)
            if answer.error_code in NOT_READY:
                yield 0.01
                continue
            assert answer.error_code == 0, answer
            epoch, owned = answer.member_epoch, None
            if answer.assignment is not None:
                assigned = answer.assignment.topic_partitions
                owned = [
                    ConsumerGroupHeartbeatRequestTopicPartitions(each.topic_id, each.partitions) for each in assigned
                ]
                self._settle(name, epoch, sum(len(each.partitions) for each in assigned))
            else:
                self._settle(name, epoch, self._owned.get(name, 0))
            yield 0.0 if owned is not None else self.HEARTBEAT_S
        yield Call(ConsumerGroupHeartbeatRequest(group, member_id, -1), 1, ConsumerGroupHeartbeatResponse)


class ShareGroup:
    """Records of 100 bytes that a new share group acquires and acknowledges per second: one member for each of ten
    partitions, each share fetch acknowledges the records of the one before.
    """

    MEMBERS, RECORDS, SIZE, AT_ONCE = 10, 100_000, 100, 500
    GROUP_CONFIG, ACCEPT = 32, 1

    def __init__(self) -> None:
        self.figures = {"share group, acknowledged records": ("1/s", HIGHER), "share group, broker CPU": ("us", LOWER)}
        self._done_at = 0.0

    def run(self, side: Side) -> dict[str, float]:
        """Run once."""
        group = topic = f"shared-{uuid.uuid4().hex}"
        create_partitioned_topic(side.bootstrap, topic, self.MEMBERS, 1)
        self._fill(side, topic)
        members = [str(uuid.uuid4()) for _ in range(self.MEMBERS)]
        topic_ids: list[Uuid] = []
        ScriptRunner(side.bootstrap, [self._join(group, topic, members[0], topic_ids)]).run()
        runner = ScriptRunner(
            side.bootstrap,
            (self._share(group, member, topic_ids[0], number) for number, member in enumerate(members)),
        )
        cpu = side.cpu_s()
        started = runner.run()
        took, used = self._done_at - started, side.cpu_s() - cpu
        delete_topic(side, topic)
        return dict(zip(self.figures, (self.RECORDS / took, used * 1e6 / self.RECORDS), strict=True))

    def _fill(self, side: Side, topic: str) -> None:
        producer = confluent_kafka.Producer({"bootstrap.servers": side.bootstrap, "batch.num.messages": self.AT_ONCE})
        for number in range(self.RECORDS):
            producer.produce(topic, b"x" * self.SIZE, partition=number // self.AT_ONCE % self.MEMBERS)
            if number % 10_000 == 0:
                assert producer.flush(60) == 0
        assert producer.flush(60) == 0

    def _join(self, group: str, topic: str, member: str, topic_ids: list[Uuid]) -> Script:
        """Begin at the first record, and join until the group knows the state of all partitions."""
        change = AlterConfigsResource(
            self.GROUP_CONFIG, group, [AlterableConfig("share.auto.offset.reset", 0, "earliest")]
        )
        call = Call(IncrementalAlterConfigsRequest([change]), 1, IncrementalAlterConfigsResponse)
        altered = received((yield call), IncrementalAlterConfigsResponse)
        assert altered.responses[0].error_code == 0, altered
        yield from find_coordinator(group, 0)
        epoch, count = 0, 0
        while count < self.MEMBERS:
            beat = ShareGroupHeartbeatRequest(group, member, epoch, None, [topic])
            answer = received((yield Call(beat, 1, ShareGroupHeartbeatResponse)), ShareGroupHeartbeatResponse)
            assert answer.error_code in NOT_READY | {ErrorCode.NONE}, answer
            epoch = answer.member_epoch or epoch
            assigned = [] if answer.assignment is None else answer.assignment.topic_partitions
            topic_ids[:] = [each.topic_id for each in assigned]
            count = sum(len(each.partitions) for each in assigned)
            yield 0.05

    def _share(self, group: str, member: str, topic_id: Uuid, partition: int) -> Script:
        session_epoch, remaining, held = 0, self.RECORDS // self.MEMBERS, list[AcknowledgementBatch]()
        while remaining:
            topics = [FetchTopic(topic_id, [FetchPartition(partition, 0, held)])]
            request = ShareFetchRequest(
                group, member, session_epoch, 500, 1, 1 << 20, self.AT_ONCE, self.AT_ONCE, topics=topics
            )
            answer = received((yield Call(request, 1, ShareFetchResponse)), ShareFetchResponse)
            assert answer.error_code == 0, answer
            session_epoch += 1
            found = [each for topic in answer.responses for each in topic.partitions]
            if any(each.error_code in NEW_TOPIC | NOT_READY for each in found):
                yield RETRY_S
                continue
            assert all(each.error_code == each.acknowledge_error_code == 0 for each in found), found
            remaining -= sum(each.last_offset - each.first_offset + 1 for each in held)
            held = [
                AcknowledgementBatch(each.first_offset, each.last_offset, [self.ACCEPT])
                for data in found
                for each in data.acquired_records
            ]
        self._done_at = time.monotonic()
