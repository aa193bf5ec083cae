"""The command console-consumer: reads, output formats, and group membership."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from broker.cli.console.formatting import LineWriter
from broker.cli.console.range_assignor import assign_ranges
from broker.cli.shared.failure import CommandFailed
from protocol.api_keys import ApiKey
from protocol.compiler import encode_bytes
from protocol.errors import ErrorCode
from protocol.messages.common_records import ConsumerProtocolSubscription
from protocol.messages.fetch import AbortedTransaction, FetchRequest
from protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse, JoinGroupResponseMember
from protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse
from protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from protocol.messages.offset_fetch import (
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
)
from protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from protocol.records.batch import TimestampType, parse_header
from protocol.records.builder import Record, build_batch
from protocol.records.control import ControlType, end_transaction_marker
from protocol.records.reader import iter_records
from storage.directories.checkpoints import TopicPartition
from tests.broker.cli.conftest import Ottla, Outcome
from tests.support.fakes.fake_broker import FakeBroker
from tests.support.fakes.fake_logs import FakeLogs

Consume = Callable[..., Outcome]


@pytest.fixture
def logs(broker: FakeBroker) -> FakeLogs:
    broker.topics = {"t": 2}
    return FakeLogs(broker)


@pytest.fixture
def consume(ottla: Ottla) -> Consume:
    """Return a function that runs the command until its limit, or until no more records arrive."""

    def call(*arguments: str, topic: str = "t") -> Outcome:
        patience = "10000" if "--max-messages" in arguments else "1"
        return ottla("console-consumer", "--topic", topic, "--timeout-ms", patience, *arguments)

    return call


def _batch(*values: str, codec: int = 0) -> bytes:
    return build_batch([Record(1000, None, value.encode()) for value in values], codec=codec)


def _total(outcome: Outcome) -> int:
    return int(outcome.err.split("Processed a total of ")[1].split()[0])


def test_from_beginning_reads_all_records(logs: FakeLogs, consume: Consume) -> None:
    logs.append("t", 0, _batch("a", "b"))
    logs.append("t", 1, _batch("c"))
    outcome = consume("--from-beginning")
    assert (outcome.code, outcome.lines) == (0, ["a", "b", "c"])
    assert outcome.err == "Processed a total of 3 messages\n"


def test_consumer_starts_at_the_end_by_default(logs: FakeLogs, consume: Consume) -> None:
    logs.append("t", 0, _batch("a"))
    assert consume() == (0, "", "Processed a total of 0 messages\n")


def test_max_messages_limits_the_records(logs: FakeLogs, consume: Consume) -> None:
    logs.append("t", 0, _batch("a", "b", "c"))
    assert consume("--from-beginning", "--max-messages", "2").lines == ["a", "b"]
    assert consume("--from-beginning", "--max-messages", "0").lines == []


@pytest.mark.parametrize(
    ("offset", "expected"), [("1", ["b", "c"]), ("earliest", ["a", "b", "c"]), ("latest", []), ("99", [])]
)
def test_partition_is_read_from_an_offset(offset: str, expected: list[str], logs: FakeLogs, consume: Consume) -> None:
    logs.append("t", 1, _batch("a", "b", "c"))
    assert consume("--partition", "1", "--offset", offset).lines == expected


def test_missing_partition_is_reported(logs: FakeLogs, consume: Consume) -> None:
    assert "topic t has no partition 5." in consume("--partition", "5").err


def test_include_reads_matching_topics(broker: FakeBroker, logs: FakeLogs, ottla: Ottla) -> None:
    broker.topics = {"t1": 1, "t2": 1, "u": 1}
    for topic in broker.topics:
        logs.append(topic, 0, _batch(topic))
    outcome = ottla("console-consumer", "--include", "t.", "--from-beginning", "--timeout-ms", "1")
    assert outcome.lines == ["t1", "t2"]


def test_records_of_every_codec_are_read(logs: FakeLogs, consume: Consume) -> None:
    for codec in range(5):
        logs.append("t", 0, _batch(f"codec {codec}", codec=codec))
    assert consume("--from-beginning").lines == [f"codec {codec}" for codec in range(5)]


def test_position_out_of_range_resets_to_the_log_start(logs: FakeLogs, consume: Consume) -> None:
    for value in "abc":
        logs.append("t", 0, _batch(value))
    logs.fetch_refusals = [ErrorCode.OFFSET_OUT_OF_RANGE]
    logs.start["t", 0] = 2
    assert consume("--from-beginning", "--max-messages", "1").lines == ["c"]


def test_moved_leader_is_found_again(broker: FakeBroker, logs: FakeLogs, consume: Consume) -> None:
    logs.append("t", 0, _batch("a"))
    logs.fetch_refusals = [ErrorCode.NOT_LEADER_OR_FOLLOWER]
    assert consume("--from-beginning", "--max-messages", "1").lines == ["a"]
    assert len(broker.received(FetchRequest)) == 2


def test_other_errors_are_reported(logs: FakeLogs, consume: Consume) -> None:
    logs.fetch_refusals = [ErrorCode.TOPIC_AUTHORIZATION_FAILED]
    outcome = consume("--from-beginning")
    assert outcome.code == 1
    assert ErrorCode.TOPIC_AUTHORIZATION_FAILED.message in outcome.err


def test_corrupt_batch_is_reported(logs: FakeLogs, consume: Consume) -> None:
    damaged = bytearray(_batch("abc"))
    damaged[-2] ^= 1
    logs.append("t", 0, bytes(damaged))
    outcome = consume("--from-beginning")
    assert outcome.code == 1
    assert "t-0: the checksum of the batch at offset 0 is wrong" in outcome.err


def test_read_committed_skips_aborted_transactions(logs: FakeLogs, consume: Consume) -> None:
    """Producer 1 aborts, producer 2 commits, producer 1 commits."""

    def data(value: str, producer: int) -> bytes:
        record = [Record(1, None, value.encode())]
        return build_batch(record, producer_id=producer, producer_epoch=0, base_sequence=0, transactional=True)

    for batch in (
        data("aborted", 1),
        data("kept", 2),
        end_transaction_marker(ControlType.ABORT, 1, 0, 0, 1),
        end_transaction_marker(ControlType.COMMIT, 2, 0, 0, 1),
        data("later", 1),
        end_transaction_marker(ControlType.COMMIT, 1, 0, 0, 1),
    ):
        logs.append("t", 0, batch)
    logs.aborted["t", 0] = [AbortedTransaction(1, 0)]
    assert consume("--from-beginning").lines == ["aborted", "kept", "later"]
    assert consume("--from-beginning", "--isolation-level", "read_committed").lines == ["kept", "later"]


def test_all_parts_of_a_record_are_printed(logs: FakeLogs, consume: Consume) -> None:
    logs.append("t", 1, build_batch([Record(5, b"k", b"v", [("h", b"1"), ("i", None)]), Record(-1, None, None)]))
    parts = ("timestamp", "partition", "offset", "epoch", "headers", "key")
    properties = [argument for part in parts for argument in ("--property", f"print.{part}=true")]
    assert consume("--from-beginning", *properties, "--property", "key.separator=|").lines == [
        "CreateTime:5|Partition:1|Offset:0|Epoch:0|h:1,i:null|k|v",
        "NO_TIMESTAMP|Partition:1|Offset:1|Epoch:0|NO_HEADERS|null|null",
    ]


def test_records_are_printed_as_json(logs: FakeLogs, consume: Consume) -> None:
    logs.append("t", 1, build_batch([Record(5, "ü".encode(), b"\xff", [("h", b"1"), ("i", None)])]))
    assert json.loads(consume("--from-beginning", "--json").out) == {
        "topic": "t",
        "partition": 1,
        "offset": 0,
        "leaderEpoch": 0,
        "timestamp": 5,
        "timestampType": "CreateTime",
        "headers": [{"name": "h", "value": "1"}, {"name": "i", "value": None}],
        "key": "ü",
        "valueBase64": "/w==",
    }


def test_deserializers_convert_values(logs: FakeLogs, consume: Consume, tmp_path: Path) -> None:
    logs.append("t", 0, build_batch([Record(1, b"\0\0\0\x07", (2**40).to_bytes(8, "big"))]))
    (tmp_path / "formatter.properties").write_text("print.key=true\nkey.separator=\\:\n")
    outcome = consume(
        *("--from-beginning", "--formatter-config", str(tmp_path / "formatter.properties")),
        *("--key-deserializer", "org.apache.kafka.common.serialization.IntegerDeserializer"),
        *("--value-deserializer", "LongDeserializer"),
    )
    assert outcome.lines == [f"7:{2**40}"]


def test_undecodable_value_is_reported(logs: FakeLogs, consume: Consume) -> None:
    logs.append("t", 0, _batch("short", "exactly8"))
    arguments = ["--from-beginning", "--value-deserializer", "LongDeserializer"]
    assert consume(*arguments).code == 1
    skipping = consume(*arguments, "--skip-message-on-error")
    assert (skipping.code, len(skipping.lines), _total(skipping)) == (0, 1, 1)


def test_no_op_formatter_only_counts(logs: FakeLogs, consume: Consume) -> None:
    logs.append("t", 0, _batch("a", "b"))
    outcome = consume("--from-beginning", "--formatter", "org.apache.kafka.tools.consumer.NoOpMessageFormatter")
    assert (outcome.out, _total(outcome)) == ("", 2)


def test_log_append_time_is_printed() -> None:
    batch = build_batch([Record(9, None, b"v")], timestamp_type=TimestampType.LOG_APPEND_TIME)
    writer = LineWriter.from_properties({"print.timestamp": "true"})
    (record,) = iter_records(batch)
    assert writer.line(TopicPartition("t", 0), parse_header(batch), record) == b"LogAppendTime:9\tv\n"


@pytest.mark.parametrize("properties", [{"print.keys": "true"}, {"print.key": "maybe"}, {"key.deserializer": "a.B"}])
def test_invalid_formatter_properties_are_refused(properties: dict[str, str]) -> None:
    with pytest.raises(CommandFailed):
        LineWriter.from_properties(properties)


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["--topic", "t", "--include", "t"],
        ["--topic", "t", "--offset", "1"],
        ["--include", "t", "--partition", "1"],
        ["--topic", "t", "--partition", "1", "--group", "g"],
        ["--topic", "t", "--partition", "1", "--offset", "1", "--from-beginning"],
        ["--topic", "t", "--partition", "1", "--offset", "soon"],
    ],
)
def test_wrong_usage_is_refused(arguments: list[str], ottla: Ottla) -> None:
    assert ottla("console-consumer", *arguments).code == 2


class FakeGroup:
    """A group with the broker as coordinator and the member under test as leader."""

    def __init__(self, broker: FakeBroker) -> None:
        self.broker = broker
        self.committed: dict[tuple[str, int], int] = {}
        self.heartbeats: list[ErrorCode] = []
        self.others: list[JoinGroupResponseMember] = []
        self.generation = 0
        broker.answer(ApiKey.JOIN_GROUP, self.join)
        broker.answer(ApiKey.SYNC_GROUP, self.sync)
        broker.answer(ApiKey.HEARTBEAT, self.heartbeat)
        broker.answer(ApiKey.LEAVE_GROUP, lambda _: LeaveGroupResponse())
        broker.answer(ApiKey.OFFSET_FETCH, lambda _: self.fetch())
        broker.answer(ApiKey.OFFSET_COMMIT, self.commit)

    def join(self, request: JoinGroupRequest) -> JoinGroupResponse:
        if not request.member_id:
            return JoinGroupResponse(error_code=ErrorCode.MEMBER_ID_REQUIRED, member_id="me")
        self.generation += 1
        members = [JoinGroupResponseMember("me", None, request.protocols[0].metadata), *self.others]
        return JoinGroupResponse(
            generation_id=self.generation, protocol_name="range", leader="me", member_id="me", members=members
        )

    def sync(self, request: SyncGroupRequest) -> SyncGroupResponse:
        mine = next(a.assignment for a in request.assignments if a.member_id == request.member_id)
        return SyncGroupResponse(assignment=mine)

    def heartbeat(self, request: HeartbeatRequest) -> HeartbeatResponse:
        return HeartbeatResponse(error_code=self.heartbeats.pop(0) if self.heartbeats else 0)

    def fetch(self) -> OffsetFetchResponse:
        topics = [
            OffsetFetchResponseTopics(name=topic, partitions=[OffsetFetchResponsePartitions(partition, offset)])
            for (topic, partition), offset in self.committed.items()
        ]
        return OffsetFetchResponse(groups=[OffsetFetchResponseGroup("g", topics)])

    def commit(self, request: OffsetCommitRequest) -> OffsetCommitResponse:
        assert (request.member_id, request.generation_id_or_member_epoch) == ("me", self.generation)
        self.committed |= {
            (t.name, p.partition_index): p.committed_offset for t in request.topics for p in t.partitions
        }
        return OffsetCommitResponse()


@pytest.fixture
def group(broker: FakeBroker) -> FakeGroup:
    return FakeGroup(broker)


def test_member_joins_reads_commits_and_leaves(
    broker: FakeBroker, logs: FakeLogs, group: FakeGroup, consume: Consume
) -> None:
    logs.append("t", 0, _batch("a", "b"))
    logs.append("t", 1, _batch("c"))
    assert consume("--group", "g", "--from-beginning").lines == ["a", "b", "c"]
    assert group.committed == {("t", 0): 2, ("t", 1): 1}
    assert [member.member_id for member in broker.received(LeaveGroupRequest)[0].members] == ["me"]


def test_member_starts_at_the_committed_offset(logs: FakeLogs, group: FakeGroup, consume: Consume) -> None:
    logs.append("t", 0, _batch("a", "b", "c"))
    group.committed = {("t", 0): 1}
    assert consume("--group", "g", "--from-beginning", "--max-messages", "1").lines == ["b"]
    assert group.committed == {("t", 0): 2, ("t", 1): 0}


def test_only_printed_records_are_committed(logs: FakeLogs, group: FakeGroup, consume: Consume) -> None:
    logs.append("t", 0, _batch("a", "b", "c"))
    consume("--group", "g", "--from-beginning", "--max-messages", "2")
    assert group.committed[("t", 0)] == 2


def test_auto_commit_can_be_disabled(broker: FakeBroker, logs: FakeLogs, group: FakeGroup, consume: Consume) -> None:
    logs.append("t", 0, _batch("a"))
    consume("--group", "g", "--from-beginning", "--consumer-property", "enable.auto.commit=false")
    assert broker.received(OffsetCommitRequest) == []


def test_group_leader_assigns_partitions_to_all_members(
    broker: FakeBroker, logs: FakeLogs, group: FakeGroup, consume: Consume
) -> None:
    subscription = b"\0\1" + encode_bytes(ConsumerProtocolSubscription(topics=["t"]), 1)
    group.others = [JoinGroupResponseMember("another", None, subscription)]
    logs.append("t", 0, _batch("theirs"))
    logs.append("t", 1, _batch("mine"))
    assert consume("--group", "g", "--from-beginning").lines == ["mine"]
    assert [a.member_id for a in broker.received(SyncGroupRequest)[0].assignments] == ["me", "another"]


@pytest.mark.parametrize(
    ("code", "member_ids", "lines"),
    [
        (ErrorCode.REBALANCE_IN_PROGRESS, ["", "me", "me"], ["a", "b"]),
        (ErrorCode.UNKNOWN_MEMBER_ID, ["", "me", "", "me"], ["a", "a"]),
        (ErrorCode.ILLEGAL_GENERATION, ["", "me", "me"], ["a", "a"]),
    ],
)
def test_member_rejoins_after_a_rebalance(
    code: ErrorCode,
    member_ids: list[str],
    lines: list[str],
    broker: FakeBroker,
    logs: FakeLogs,
    group: FakeGroup,
    ottla: Ottla,
) -> None:
    logs.append("t", 0, _batch("a"))
    group.heartbeats = [code]
    arguments = ["--topic", "t", "--group", "g", "--from-beginning", "--consumer-property", "heartbeat.interval.ms=0"]

    def produce_after_the_rebalance(request: JoinGroupRequest) -> JoinGroupResponse:
        if group.generation:
            logs.append("t", 0, _batch("b"))
        return FakeGroup.join(group, request)

    broker.answer(ApiKey.JOIN_GROUP, produce_after_the_rebalance)
    assert ottla("console-consumer", *arguments, "--max-messages", "2").lines == lines
    assert [request.member_id for request in broker.received(JoinGroupRequest)] == member_ids
    assert all(request.group_id == "g" for request in broker.received(HeartbeatRequest))


def test_lost_commit_does_not_fail_the_command(
    broker: FakeBroker, logs: FakeLogs, group: FakeGroup, consume: Consume
) -> None:
    logs.append("t", 0, _batch("a"))
    refused = OffsetCommitResponsePartition(0, ErrorCode.REBALANCE_IN_PROGRESS)
    failed = OffsetCommitResponse(topics=[OffsetCommitResponseTopic(name="t", partitions=[refused])])
    broker.answer(ApiKey.OFFSET_COMMIT, lambda _: failed)
    assert consume("--group", "g", "--from-beginning").code == 0


def test_coordinator_error_is_reported(broker: FakeBroker, logs: FakeLogs, group: FakeGroup, consume: Consume) -> None:
    broker.answer(ApiKey.JOIN_GROUP, lambda _: JoinGroupResponse(error_code=ErrorCode.GROUP_MAX_SIZE_REACHED))
    outcome = consume("--group", "g")
    assert outcome.code == 1
    assert ErrorCode.GROUP_MAX_SIZE_REACHED.message in outcome.err


@pytest.mark.parametrize(
    ("subscriptions", "counts", "expected"),
    [
        ({"a": ["t"]}, {"t": 3}, {"a": ["t-0", "t-1", "t-2"]}),
        ({"b": ["t"], "a": ["t"]}, {"t": 3}, {"a": ["t-0", "t-1"], "b": ["t-2"]}),
        ({"a": ["t"], "b": ["t"], "c": ["t"]}, {"t": 2}, {"a": ["t-0"], "b": ["t-1"], "c": []}),
        ({"a": ["t", "u"], "b": ["u"]}, {"t": 1, "u": 2}, {"a": ["t-0", "u-0"], "b": ["u-1"]}),
        ({"a": ["gone"]}, {}, {"a": []}),
    ],
)
def test_range_assignor_assigns_contiguous_ranges(
    subscriptions: dict[str, list[str]], counts: dict[str, int], expected: dict[str, list[str]]
) -> None:
    assignment: dict[str, list[TopicPartition]] = assign_ranges(subscriptions, counts)
    assert {member: [str(p) for p in partitions] for member, partitions in assignment.items()} == expected
