"""The consumers of share groups: acquisition, acknowledgements, and the commands that print records and events."""

import json

import pytest

from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.messages import share_acknowledge as acknowledging
from protocol.messages import share_fetch as fetching
from protocol.messages.share_group_heartbeat import (
    Assignment,
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
    TopicPartitions,
)
from protocol.records.builder import Record, build_batch
from tests.broker.cli.conftest import Ottla
from tests.support.fakes.fake_broker import FakeBroker, topic_id

Acknowledged = list[tuple[int, int, int]]


class ShareBroker:
    """Delivers the records 0 to 3 of `t` once, as one acquired range from 0 to 5; offsets 4 and 5 are a gap."""

    def __init__(self, broker: FakeBroker) -> None:
        broker.topics = {"t": 1}
        self.acknowledged: Acknowledged = []
        self.epochs: list[int] = []
        self.member_epochs: list[int] = []
        self.errors: list[ErrorCode] = []
        self._delivered = False
        broker.answer(ApiKey.SHARE_GROUP_HEARTBEAT, self._beat)
        broker.answer(ApiKey.SHARE_FETCH, self._fetch)
        broker.answer(ApiKey.SHARE_ACKNOWLEDGE, self._acknowledge)

    def _beat(self, request: ShareGroupHeartbeatRequest) -> ShareGroupHeartbeatResponse:
        self.member_epochs.append(request.member_epoch)
        assigned = Assignment([TopicPartitions(topic_id("t"), [0])])
        return ShareGroupHeartbeatResponse(
            member_id=request.member_id, member_epoch=1, heartbeat_interval_ms=5000, assignment=assigned
        )

    def _fetch(self, request: fetching.ShareFetchRequest) -> fetching.ShareFetchResponse:
        if self.errors:
            return fetching.ShareFetchResponse(error_code=self.errors.pop(0))
        self.epochs.append(request.share_session_epoch)
        self._note(request.topics)
        partition = fetching.PartitionData(0, records=b"")
        if not self._delivered:
            self._delivered = True
            values = [Record(0, None, b"%d" % number, ()) for number in range(4)]
            partition.records = build_batch(values)
            partition.acquired_records = [fetching.AcquiredRecords(0, 5, 2)]
        return fetching.ShareFetchResponse(responses=[fetching.ShareFetchableTopicResponse(topic_id("t"), [partition])])

    def _acknowledge(self, request: acknowledging.ShareAcknowledgeRequest) -> acknowledging.ShareAcknowledgeResponse:
        self.epochs.append(request.share_session_epoch)
        self._note(request.topics)
        return acknowledging.ShareAcknowledgeResponse()

    def _note(self, topics: list[fetching.FetchTopic] | list[acknowledging.AcknowledgeTopic]) -> None:
        for topic in topics:
            for partition in topic.partitions:
                for batch in partition.acknowledgement_batches:
                    (kind,) = batch.acknowledge_types
                    self.acknowledged.append((batch.first_offset, batch.last_offset, kind))


@pytest.fixture(autouse=True)
def share(broker: FakeBroker) -> ShareBroker:
    return ShareBroker(broker)


READ = ("console-share-consumer", "--topic", "t", "--group", "g")


def test_records_are_accepted_up_to_the_end_of_the_range(ottla: Ottla, share: ShareBroker) -> None:
    outcome = ottla(*READ, "--max-messages", "4", "--property", "print.delivery=true")
    assert outcome.lines == [f"Delivery:2\t{number}" for number in range(4)]
    assert outcome.err == "Processed a total of 4 messages\n"
    assert share.acknowledged == [(0, 5, 1)]
    assert share.epochs == [0, -1]
    assert share.member_epochs == [0, -1]


@pytest.mark.parametrize(("option", "kind"), [("--release", 2), ("--reject", 3)])
def test_records_are_released_or_rejected(ottla: Ottla, share: ShareBroker, option: str, kind: int) -> None:
    ottla(*READ, "--max-messages", "4", option)
    assert share.acknowledged == [(0, 5, kind)]


def test_records_beyond_the_limit_are_not_acknowledged(ottla: Ottla, share: ShareBroker) -> None:
    assert ottla(*READ, "--max-messages", "2").lines == ["0", "1"]
    assert share.acknowledged == [(0, 1, 1)]


def test_unprintable_records_are_rejected(ottla: Ottla, share: ShareBroker) -> None:
    options = ("--max-messages", "4", "--value-deserializer", "LongDeserializer")
    assert ottla(*READ, *options, "--reject-message-on-error").code == 0
    assert share.acknowledged == [(0, 5, 3)]


def test_lost_session_is_opened_again(ottla: Ottla, share: ShareBroker) -> None:
    share.errors = [ErrorCode.SHARE_SESSION_NOT_FOUND]
    assert len(ottla(*READ, "--max-messages", "4").lines) == 4
    assert share.epochs == [0, -1]


def test_consumer_stops_without_records(ottla: Ottla) -> None:
    outcome = ottla(*READ, "--timeout-ms", "1", "--json", "--enable-systest-events")
    assert outcome.code == 0
    assert json.loads(outcome.lines[0])["deliveryCount"] == 2
    assert outcome.lines[-1] == "shutdown_complete"


def test_verifiable_consumer_reports_events(ottla: Ottla, share: ShareBroker) -> None:
    lines = ottla("verifiable-share-consumer", "--topic", "t", "--group-id", "g", "--max-messages", "4").lines
    events = [json.loads(line) for line in lines]
    assert [event["name"] for event in events] == [
        "startup_complete",
        "records_consumed",
        "offsets_acknowledged",
        "shutdown_complete",
    ]
    assert events[1]["partitions"] == [{"topic": "t", "partition": 0, "count": 4, "offsets": [0, 1, 2, 3]}]
    assert share.acknowledged == [(0, 5, 1)]
    assert share.epochs == [0, 1, -1]


def test_benchmark_prints_kafkas_columns(ottla: Ottla) -> None:
    header, line = ottla("share-consumer-perf", "--topic", "t", "--num-records", "4").lines
    assert header.startswith("start.time, end.time, data.consumed.in.MB, MB.sec, nMsg.sec, data.consumed.in.nMsg")
    assert line.split(", ")[5] == "4"


@pytest.mark.parametrize("options", [("--reject", "--release"), ("--timeout-ms", "0")])
def test_bad_options_are_refused(ottla: Ottla, options: tuple[str, str]) -> None:
    assert ottla(*READ, *options).code == 2
