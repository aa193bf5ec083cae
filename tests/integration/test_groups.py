"""Consumer groups of unmodified clients, across restarts, kills, log cleaning and offset expiry."""

import asyncio
import gc
import itertools
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import aiokafka
import confluent_kafka
import kafka
import pytest
from aiokafka.coordinator.assignors.range import RangePartitionAssignor
from confluent_kafka.admin import AdminClient, NewTopic

from broker.client import Client, ClientConfig, Connection, ConnectionLost, raise_for
from protocol.errors import ErrorCode
from protocol.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchResponse,
    OffsetFetchResponsePartitions,
)
from protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment, SyncGroupResponse
from tests.support.processes.changing_directory import total_bytes
from tests.support.processes.ottla_node import OttlaNode

# kafka-python leaves sockets to the garbage collector.
pytestmark = [pytest.mark.integration, pytest.mark.filterwarnings("ignore::ResourceWarning")]

TOPIC = "orders"
PARTITIONS = 6
GROUP_COUNT = 50
SEGMENT_BYTES = 1 << 20
COMMITS = 2000
"""Commits of six partitions for two groups: some 2 MB in the log, two segments."""

SESSION_MS = 300_000
"""Longer than any test: members of these tests send heartbeats only when the test needs one."""

# Two members that join one after the other are in the first generation together.
QUICK = {"group.initial.rebalance.delay.ms": "2000", "group.min.session.timeout.ms": "500"}
STOPS: dict[str, Callable[[OttlaNode], object]] = {"kill": OttlaNode.kill, "terminate": OttlaNode.terminate}


@pytest.fixture(autouse=True)
def _collect_garbage_of_clients() -> Iterator[None]:
    """Collect clients' garbage within the test whose warnings are filtered, not in a later test."""
    yield
    gc.collect()


@pytest.fixture
def node(tmp_path: Path) -> Iterator[OttlaNode]:
    with OttlaNode(tmp_path / "node", QUICK) as running:
        create_topic(running)
        yield running


def create_topic(node: OttlaNode, name: str = TOPIC) -> None:
    admin = AdminClient({"bootstrap.servers": node.bootstrap})
    for done in admin.create_topics([NewTopic(name, PARTITIONS, 1)]).values():
        done.result(20)


def until(condition: Callable[[], bool], what: str, timeout_s: float = 60) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, f"{what}: not within {timeout_s} s"
        time.sleep(0.02)


def coordinator_of(client: Client, group: str) -> Connection:
    """Return a connection to the group's coordinator, once it is elected and has loaded the group."""

    def connect_once() -> Connection:
        connection = client.coordinator(group)
        request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group, topics=[])])
        answer = connection.call(request, OffsetFetchResponse, highest=9).groups[0]
        raise_for(answer.error_code, group)
        return connection

    return client.retrying(connect_once)


# Single requests: the view of a client whose node stops and comes back.


class Member:
    """A group member with its own connection, so that its waiting requests delay no other member."""

    def __init__(self, node: OttlaNode, group: str, instance_id: str | None = None) -> None:
        self.node, self.group, self.instance_id = node, group, instance_id
        self.member_id, self.generation = "", -1
        self.connect()

    def connect(self) -> None:
        self._client = Client(ClientConfig.parse(self.node.bootstrap))
        self.coordinator = coordinator_of(self._client, self.group)

    def close(self) -> None:
        self._client.close()

    def send_join(self) -> None:
        self.coordinator.send(
            JoinGroupRequest(
                self.group, SESSION_MS, SESSION_MS, self.member_id, self.instance_id, "consumer",
                [JoinGroupRequestProtocol("range", b"metadata")],
            )
        )  # fmt: skip

    def joined(self) -> JoinGroupResponse:
        answer = self.coordinator.receive(JoinGroupResponse)
        if answer.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = answer.member_id
            self.send_join()
            answer = self.coordinator.receive(JoinGroupResponse)
        assert answer.error_code == 0
        self.member_id, self.generation = answer.member_id, answer.generation_id
        return answer

    def get_member_id(self) -> None:
        """Obtain a member id with a first JoinGroup request (KIP-394)."""
        self.send_join()
        self.member_id = self.coordinator.receive(JoinGroupResponse).member_id

    def sync(self, assignments: dict[str, bytes] | None = None) -> bytes:
        given = [SyncGroupRequestAssignment(member, data) for member, data in (assignments or {}).items()]
        request = SyncGroupRequest(
            self.group, self.generation, self.member_id, self.instance_id, "consumer", "range", given
        )
        answer = self.coordinator.call(request, SyncGroupResponse)
        assert answer.error_code == 0
        return answer.assignment

    def heartbeat(self) -> ErrorCode:
        request = HeartbeatRequest(self.group, self.generation, self.member_id, self.instance_id)
        return ErrorCode(self.coordinator.call(request, HeartbeatResponse).error_code)


def two_members_in_generation_one(node: OttlaNode, group: str) -> tuple[Member, Member]:
    leader, follower = Member(node, group), Member(node, group, "static-1")
    leader.get_member_id()
    leader.send_join()
    follower.send_join()
    if follower.joined().leader == follower.member_id:
        leader, follower = follower, leader
    leader.joined()
    leader.sync({leader.member_id: b"first", follower.member_id: b"second"})
    assert follower.sync() == b"second"
    return leader, follower


@pytest.mark.parametrize("stop", STOPS)
def test_members_keep_their_generation_across_a_restart(node: OttlaNode, stop: str) -> None:
    members = two_members_in_generation_one(node, "g")
    STOPS[stop](node)
    node.start()
    for member, assignment in zip(members, (b"first", b"second"), strict=True):
        member.connect()
        assert member.heartbeat() is ErrorCode.NONE
        assert member.sync() == assignment
        member.close()


def test_rebalance_interrupted_by_a_kill_restarts_from_the_last_generation(node: OttlaNode) -> None:
    leader, follower = two_members_in_generation_one(node, "g")
    newcomer = Member(node, "g")
    newcomer.get_member_id()
    newcomer.send_join()
    until(lambda: leader.heartbeat() is ErrorCode.REBALANCE_IN_PROGRESS, "the rebalance")
    follower.send_join()
    node.kill()
    node.start()
    for member in (leader, follower, newcomer):
        member.connect()
    assert leader.heartbeat() is ErrorCode.NONE
    assert leader.sync() == b"first"
    newcomer.member_id = ""  # the coordinator has dropped the member, which had no assignment
    newcomer.get_member_id()
    newcomer.send_join()
    until(lambda: leader.heartbeat() is ErrorCode.REBALANCE_IN_PROGRESS, "the second attempt")
    leader.send_join()
    follower.send_join()
    assert {member.joined().generation_id for member in (leader, follower, newcomer)} == {2}
    for member in (leader, follower, newcomer):
        member.close()


def commit(connection: Connection, group: str, offset: int, partitions: int = PARTITIONS) -> int:
    """Commit without a member id. Return the first error code."""
    each = [OffsetCommitRequestPartition(index, offset, 0, f"m{offset}") for index in range(partitions)]
    request = OffsetCommitRequest(group_id=group, topics=[OffsetCommitRequestTopic(name=TOPIC, partitions=each)])
    answer = connection.call(request, OffsetCommitResponse, highest=9)
    return max(each.error_code for topic in answer.topics for each in topic.partitions)


def committed(node: OttlaNode, group: str) -> dict[int, OffsetFetchResponsePartitions]:
    request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group, topics=None)], require_stable=True)
    with Client(ClientConfig.parse(node.bootstrap)) as client:
        answer = coordinator_of(client, group).call(request, OffsetFetchResponse, highest=9).groups[0]
    assert answer.error_code == 0
    return {each.partition_index: each for topic in answer.topics for each in topic.partitions}


def test_kill_loses_no_acknowledged_offset_commit(node: OttlaNode) -> None:
    groups = [f"group-{number}" for number in range(GROUP_COUNT)]
    acknowledged = dict.fromkeys(groups, -1)

    def commit_until_killed(mine: list[str]) -> None:
        with Client(ClientConfig.parse(node.bootstrap)) as client:
            for group in mine:
                coordinator = coordinator_of(client, group)  # one coordinator for all groups, once the last is loaded
            try:
                for offset in itertools.count():
                    for group in mine:
                        assert commit(coordinator, group, offset) == 0
                        acknowledged[group] = offset
            except ConnectionLost:
                return  # the node was killed

    threads = [threading.Thread(target=commit_until_killed, args=(groups[number::5],)) for number in range(5)]
    for thread in threads:
        thread.start()
    until(lambda: min(acknowledged.values()) >= 10, "ten commits of each group")
    node.kill()
    for thread in threads:
        thread.join()
    node.start()
    for group in groups:
        found = committed(node, group)
        assert len(found) == PARTITIONS
        for each in found.values():
            assert each.committed_offset >= acknowledged[group]
            assert (each.metadata, each.committed_leader_epoch) == (f"m{each.committed_offset}", 0)
        assert len({each.committed_offset for each in found.values()}) == 1, "a commit was stored partially"


def test_compaction_of_the_offsets_topic_keeps_the_latest_commits(tmp_path: Path) -> None:
    settings = {
        **QUICK,
        "offsets.topic.num.partitions": "1",
        "offsets.topic.segment.bytes": str(SEGMENT_BYTES),
        "log.cleaner.backoff.ms": "100",
        "log.cleaner.min.cleanable.ratio": "0.01",
        "ottla.coordinator.snapshot.interval.ms": "100",
        "ottla.coordinator.snapshot.min.new.records": "50",
    }
    with OttlaNode(tmp_path / "node", settings) as node:
        create_topic(node)
        log = node.data / "__consumer_offsets-0"
        leader, follower = two_members_in_generation_one(node, "members")
        with Client(ClientConfig.parse(node.bootstrap)) as client:
            for group in ("kept", "deleted"):
                coordinator = coordinator_of(client, group)
                for offset in range(COMMITS):
                    assert commit(coordinator, group, offset) == 0
            request = DeleteGroupsRequest(["deleted"])
            assert coordinator_of(client, "deleted").call(request, DeleteGroupsResponse).results[0].error_code == 0
        until(lambda: 0 < total_bytes(log.glob("*.log")) < SEGMENT_BYTES, "the cleaner")
        until(lambda: any(log.glob("*.checkpoint")), "a snapshot of the coordinator")
        node.kill()
        node.start()
        found = committed(node, "kept")
        (loaded,) = (line for line in node.log_text.splitlines() if "Loaded a coordinator" in line)
        assert int(loaded.rpartition("snapshot=")[2].split()[0]) > 0
        assert {index: (each.committed_offset, each.metadata) for index, each in found.items()} == {
            index: (COMMITS - 1, f"m{COMMITS - 1}") for index in range(PARTITIONS)
        }
        assert committed(node, "deleted") == {}
        for member, assignment in ((leader, b"first"), (follower, b"second")):
            member.connect()
            assert member.heartbeat() is ErrorCode.NONE
            assert member.sync() == assignment
            member.close()


def test_client_retention_time_expires_offsets_and_their_group(tmp_path: Path) -> None:
    """Use versions 2 to 4 of OffsetCommit, in which a client sets the retention time."""
    with OttlaNode(tmp_path / "node", {**QUICK, "offsets.retention.check.interval.ms": "200"}) as node:
        create_topic(node)
        with Client(ClientConfig.parse(node.bootstrap)) as client:
            topic = OffsetCommitRequestTopic(name=TOPIC, partitions=[OffsetCommitRequestPartition(0, 7)])
            for group, retention_ms in (("short", 400), ("long", 600_000)):
                request = OffsetCommitRequest(group_id=group, retention_time_ms=retention_ms, topics=[topic])
                answer = coordinator_of(client, group).call(request, OffsetCommitResponse, highest=4)
                assert answer.topics[0].partitions[0].error_code == 0
        until(lambda: committed(node, "short") == {}, "the expiry")
        node.kill()
        node.start()
        assert committed(node, "short") == {}
        assert committed(node, "long")[0].committed_offset == 7


# Client libraries.


class ConfluentMember:
    """A librdkafka consumer on its own thread that records its rebalances."""

    def __init__(self, node: OttlaNode, group: str, **config: str) -> None:
        self.events: list[tuple[str, int]] = []
        self.assigned: set[tuple[str, int]] = set()
        self.read: set[tuple[int, int]] = set()
        self._stop = threading.Event()
        self._consumer = confluent_kafka.Consumer(
            {
                "bootstrap.servers": node.bootstrap,
                "group.id": group,
                "auto.offset.reset": "earliest",
                "session.timeout.ms": 60_000,
                "heartbeat.interval.ms": 300,
                "partition.assignment.strategy": "range",
                "reconnect.backoff.max.ms": 200,
                "logger": _Silent(),
                **config,
            }
        )
        self._consumer.subscribe([TOPIC], on_assign=self._on_assign, on_revoke=self._on_revoke)
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _on_assign(self, _consumer: object, partitions: list[confluent_kafka.TopicPartition]) -> None:
        self.events.append(("assigned", len(partitions)))
        self.assigned |= {(each.topic, each.partition) for each in partitions}

    def _on_revoke(self, _consumer: object, partitions: list[confluent_kafka.TopicPartition]) -> None:
        self.events.append(("revoked", len(partitions)))
        self.assigned -= {(each.topic, each.partition) for each in partitions}

    def _run(self) -> None:
        while not self._stop.is_set():
            message = self._consumer.poll(0.05)
            if message is not None and message.error() is None:
                self.read.add((message.partition() or 0, message.offset() or 0))
        self._consumer.close()

    def close(self) -> None:
        self._stop.set()
        self._thread.join()


class _Silent:
    """A logger that drops messages of clients whose node is killed."""

    def log(self, *_: object) -> None:
        pass


def produce(node: OttlaNode, count: int) -> None:
    producer = confluent_kafka.Producer({"bootstrap.servers": node.bootstrap, "logger": _Silent()})
    for number in range(count):
        producer.produce(TOPIC, b"value", partition=number % PARTITIONS)
    assert producer.flush(60) == 0


@pytest.mark.parametrize("stop", STOPS)
def test_librdkafka_members_keep_their_assignment_across_a_restart(node: OttlaNode, stop: str) -> None:
    produce(node, 60)
    members = [ConfluentMember(node, "g") for _ in range(3)]
    try:
        until(lambda: all(len(each.assigned) == 2 for each in members), "an assignment")
        until(lambda: sum(len(each.read) for each in members) == 60, "sixty records")
        before = [list(each.events) for each in members]
        STOPS[stop](node)
        node.start()
        produce(node, 60)
        until(lambda: len(set().union(*(each.read for each in members))) == 120, "the records after the restart")
        assert [each.events for each in members] == before
    finally:
        for each in members:
            each.close()


class ConfluentSide:
    def __init__(self, node: OttlaNode, group: str) -> None:
        self._member = ConfluentMember(node, group)

    def assigned(self) -> set[tuple[str, int]]:
        return set(self._member.assigned)

    def close(self) -> None:
        self._member.close()


class KafkaPythonSide:
    def __init__(self, node: OttlaNode, group: str) -> None:
        self._assigned: set[tuple[str, int]] = set()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(node.bootstrap, group))
        self._thread.start()

    def _run(self, bootstrap: str, group: str) -> None:
        consumer = kafka.KafkaConsumer(
            TOPIC, bootstrap_servers=bootstrap, group_id=group, heartbeat_interval_ms=300, session_timeout_ms=60_000
        )
        while not self._stop.is_set():
            consumer.poll(50)
            self._assigned = {(each.topic, each.partition) for each in consumer.assignment()}
        consumer.close()

    def assigned(self) -> set[tuple[str, int]]:
        return self._assigned

    def close(self) -> None:
        self._stop.set()
        self._thread.join()


class AiokafkaSide:
    def __init__(self, node: OttlaNode, group: str) -> None:
        self._assigned: set[tuple[str, int]] = set()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run(node.bootstrap, group)))
        self._thread.start()

    async def _run(self, bootstrap: str, group: str) -> None:
        consumer = aiokafka.AIOKafkaConsumer(
            TOPIC, bootstrap_servers=bootstrap, group_id=group, heartbeat_interval_ms=300, session_timeout_ms=60_000,
            partition_assignment_strategy=[RangePartitionAssignor],
        )  # fmt: skip
        await consumer.start()
        while not self._stop.is_set():
            await consumer.getmany(timeout_ms=50)
            self._assigned = {(each.topic, each.partition) for each in consumer.assignment()}
        await consumer.stop()

    def assigned(self) -> set[tuple[str, int]]:
        return self._assigned

    def close(self) -> None:
        self._stop.set()
        self._thread.join()


def test_three_client_libraries_share_a_group(node: OttlaNode) -> None:
    everything = {(TOPIC, index) for index in range(PARTITIONS)}
    members = [side(node, "mixed") for side in (ConfluentSide, KafkaPythonSide, AiokafkaSide)]
    try:
        until(lambda: [len(each.assigned()) for each in members] == [2, 2, 2], "two partitions each")
        assert set().union(*(each.assigned() for each in members)) == everything
    finally:
        members.pop().close()
        until(lambda: [len(each.assigned()) for each in members] == [3, 3], "three each after one left")
        for each in members:
            each.close()
