"""The command get-offsets, and its filters of partitions."""

import json

import click
import pytest

from broker.cli.admin.partition_filter import filter_of_rules
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from storage.directories.checkpoints import TopicPartition
from tests.broker.cli.conftest import Ottla
from tests.support.fakes.fake_broker import FakeBroker


class Offsets:
    """Answers ListOffsets: 10 + partition for the latest offset, the time itself for any other time."""

    def __init__(self, broker: FakeBroker) -> None:
        self.errors: dict[int, ErrorCode] = {}
        broker.topics = {"orders": 3, "users": 1, "__consumer_offsets": 1}
        broker.internal = {"__consumer_offsets"}
        broker.answer(ApiKey.LIST_OFFSETS, self.answer)

    def answer(self, request: ListOffsetsRequest) -> ListOffsetsResponse:
        topics = []
        for topic in request.topics:
            found = [
                ListOffsetsPartitionResponse(
                    p.partition_index,
                    self.errors.get(p.partition_index, ErrorCode.NONE),
                    offset=10 + p.partition_index if p.timestamp == -1 else p.timestamp,
                )
                for p in topic.partitions
            ]
            topics.append(ListOffsetsTopicResponse(topic.name, found))
        return ListOffsetsResponse(topics=topics)


@pytest.fixture
def offsets(broker: FakeBroker) -> Offsets:
    return Offsets(broker)


@pytest.mark.parametrize(
    ("rules", "accepted"),
    [
        ("t", ["t-0", "t-1", "t-2", "t-3"]),
        ("t:2", ["t-2"]),
        ("t:1-3", ["t-1", "t-2"]),
        ("t:2-", ["t-2", "t-3"]),
        ("t:-1", ["t-0"]),
        (":3", ["t-3", "u-3"]),
        ("t:0,u:1", ["t-0", "u-1"]),
        ("[tu]:0", ["t-0", "u-0"]),
        ("t:3-1", []),
    ],
)
def test_rules_accept_partitions(rules: str, accepted: list[str]) -> None:
    partitions = [TopicPartition(topic, index) for topic in "tu" for index in range(4)]
    assert [str(each) for each in partitions if filter_of_rules(rules)(each)] == accepted


@pytest.mark.parametrize("rules", ["t:x", "t:1:2", "t:1-2-3", "(:1"])
def test_malformed_rules_are_refused(rules: str) -> None:
    with pytest.raises(click.UsageError, match="--topic-partitions"):
        filter_of_rules(rules)


@pytest.mark.usefixtures("offsets")
class TestGetOffsets:
    def test_all_partitions_have_their_latest_offset(self, ottla: Ottla) -> None:
        assert ottla("get-offsets").lines == [
            "__consumer_offsets:0:10",
            "orders:0:10",
            "orders:1:11",
            "orders:2:12",
            "users:0:10",
        ]

    def test_topic_and_partitions_select(self, ottla: Ottla) -> None:
        assert ottla("get-offsets", "--topic", "ord.*", "--partitions", "0,2").lines == ["orders:0:10", "orders:2:12"]

    def test_internal_topics_can_be_left_out(self, ottla: Ottla) -> None:
        assert "__consumer_offsets" not in ottla("get-offsets", "--exclude-internal-topics").out

    def test_names_of_times_are_sent_as_numbers(self, ottla: Ottla, broker: FakeBroker) -> None:
        for name, number in (("earliest", -2), ("max-timestamp", -3), ("-5", -5), ("77", 77)):
            ottla("get-offsets", "--topic", "users", "--time", name)
            assert broker.received(ListOffsetsRequest)[-1].topics[0].partitions[0].timestamp == number

    def test_partitions_without_an_offset_for_the_time_are_left_out(self, ottla: Ottla) -> None:
        outcome = ottla("get-offsets", "--topic", "users", "--time", "latest-tiered", "--json")
        assert outcome.code == 0
        assert json.loads(outcome.out) == [{"topic": "users", "partition": 0, "offset": -5}]

    def test_failed_partitions_are_skipped_with_a_message(self, ottla: Ottla, offsets: Offsets) -> None:
        offsets.errors[1] = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        outcome = ottla("get-offsets", "--topic", "orders")
        assert outcome.lines == ["orders:0:10", "orders:2:12"]
        assert outcome.err.startswith("Skip getting offsets for topic-partition orders-1 due to error: ")

    def test_unmatched_filters_fail(self, ottla: Ottla) -> None:
        outcome = ottla("get-offsets", "--topic", "nothing")
        assert (outcome.code, outcome.out) == (1, "")
        assert "no partition matches" in outcome.err

    @pytest.mark.parametrize(
        "options",
        [("--time", "soon"), ("--partitions", "x"), ("--topic", "t", "--topic-partitions", "t"), ("--topic", "(")],
    )
    def test_bad_options_are_refused(self, ottla: Ottla, options: tuple[str, ...]) -> None:
        assert ottla("get-offsets", *options).code == 2

    def test_old_broker_without_the_time_is_named(self, ottla: Ottla, broker: FakeBroker) -> None:
        broker.versions[ApiKey.LIST_OFFSETS] = (1, 7)
        outcome = ottla("get-offsets", "--time", "earliest-local")
        assert outcome.code == 1
        assert "upgrade the broker" in outcome.err
