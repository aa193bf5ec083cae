"""Produce, key 0 (`broker.api.records.produce`)."""

from collections.abc import Coroutine

import pytest

from broker.api.records.produce import ADMIN_CLIENT_ID, ProduceHandler
from broker.api.serving.produced_batch import only_batch
from broker.net.request import CloseConnection
from broker.replication.leader import FollowerFetch
from broker.runtime.partitions.refused_sequences import NOTE_MS
from broker.runtime.partitions.transaction_marker import WritableMarker, append_marker
from protocol.errors import ErrorCode, KafkaError
from protocol.ids import BrokerEpoch, BrokerId, LeaderEpoch
from protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from protocol.primitives import ZERO_UUID, Buffer, Uuid
from protocol.records.compression import Codec
from storage.config import CleanupPolicy, LogConfig, MessageTimestampType
from tests.support.harnesses.data_plane import Answer, DataPlane, batch, topic_id

LATEST = 13


@pytest.fixture
def node() -> DataPlane:
    return DataPlane()


def produce(
    node: DataPlane,
    records: Buffer | None,
    *,
    acks: int = 1,
    version: int = 12,
    topic: str = "t",
    identity: Uuid = ZERO_UUID,
    index: int = 0,
    timeout_ms: int = 1000,
    client_id: str = "client",
    transactional_id: str | None = None,
) -> Answer[ProduceResponse]:
    request = ProduceRequest(
        transactional_id, acks, timeout_ms, [TopicProduceData(topic, identity, [PartitionProduceData(index, records)])]
    )
    return send(node, request, version, client_id)


def send(
    node: DataPlane, request: ProduceRequest, version: int = 12, client_id: str = "client"
) -> Answer[ProduceResponse]:
    handler = ProduceHandler(node.partitions, node.runtime, node.verifier)
    return Answer(handler(request, node.context(version, client_id=client_id)))


def entry(answer: Answer[ProduceResponse]) -> PartitionProduceResponse:
    return answer.value.responses[0].partition_responses[0]


def follow(node: DataPlane, broker_id: int, offset: int) -> None:
    node.partition().on_follower_fetch(FollowerFetch(BrokerId(broker_id), BrokerEpoch(-1), LeaderEpoch(-1), offset, 0))


class TestRefusedFirstBatch:
    """Several requests of an idempotent producer arrive while the partition comes into service."""

    @staticmethod
    def send(
        node: DataPlane,
        handler: ProduceHandler,
        sequence: int,
        *,
        acks: int = -1,
        epoch: int = 0,
        is_corrupt: bool = False,
    ) -> ErrorCode:
        records = batch(producer_id=5, producer_epoch=epoch, sequence=sequence)
        records[-1] ^= is_corrupt
        request = ProduceRequest(
            None, acks, 1000, [TopicProduceData("t", ZERO_UUID, [PartitionProduceData(0, records)])]
        )
        return ErrorCode(entry(Answer(handler(request, node.context(12)))).error_code)

    @pytest.fixture
    def handler(self, node: DataPlane) -> ProduceHandler:
        return ProduceHandler(node.partitions, node.runtime, node.verifier)

    def test_second_batch_waits_for_a_first_one_that_another_leader_was_to_take(
        self, node: DataPlane, handler: ProduceHandler
    ) -> None:
        identity = node.create_topic(replicas=(1, 2), leader=2)
        assert self.send(node, handler, 0, acks=1) is ErrorCode.NOT_LEADER_OR_FOLLOWER
        node.elect(identity, 1)
        assert self.send(node, handler, 1, acks=1) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        assert node.partition().log.log_end_offset == 0
        assert self.send(node, handler, 0, acks=1) is ErrorCode.NONE
        assert self.send(node, handler, 1, acks=1) is ErrorCode.NONE

    def test_second_batch_waits_for_a_first_one_to_an_unknown_topic(
        self, node: DataPlane, handler: ProduceHandler
    ) -> None:
        assert self.send(node, handler, 0) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        node.create_topic()
        assert self.send(node, handler, 1) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        assert self.send(node, handler, 0) is ErrorCode.NONE

    def test_second_batch_waits_for_a_first_one_that_lacked_replicas(
        self, node: DataPlane, handler: ProduceHandler
    ) -> None:
        node.create_topic(replicas=(1, 2), isr=(1,), config=LogConfig(min_insync_replicas=2))
        assert self.send(node, handler, 0) is ErrorCode.NOT_ENOUGH_REPLICAS
        assert self.send(node, handler, 1, acks=1) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER

    def test_second_batch_waits_for_a_first_one_that_arrived_corrupt(
        self, node: DataPlane, handler: ProduceHandler
    ) -> None:
        node.create_topic()
        assert self.send(node, handler, 0, is_corrupt=True) is ErrorCode.CORRUPT_MESSAGE
        assert self.send(node, handler, 1) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        assert self.send(node, handler, 0) is ErrorCode.NONE

    def test_later_epoch_of_the_producer_starts_again(self, node: DataPlane, handler: ProduceHandler) -> None:
        assert self.send(node, handler, 0) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        node.create_topic()
        assert self.send(node, handler, 0, epoch=1) is ErrorCode.NONE
        assert self.send(node, handler, 1, epoch=1) is ErrorCode.NONE

    def test_refusal_is_forgotten_once_the_producer_must_have_given_up(
        self, node: DataPlane, handler: ProduceHandler
    ) -> None:
        assert self.send(node, handler, 0) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        node.create_topic()
        node.advance_ms(NOTE_MS - 1)
        assert self.send(node, handler, 1) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        node.advance_ms(1)
        assert self.send(node, handler, 1) is ErrorCode.NONE


class TestAppending:
    def test_batch_gets_its_offset(self, node: DataPlane) -> None:
        node.create_topic()
        node.produce(b"before")
        one = entry(produce(node, batch(b"a", b"b")))
        assert (one.error_code, one.base_offset, one.log_append_time_ms, one.log_start_offset) == (0, 1, -1, 0)
        assert node.partition().log.log_end_offset == 3

    def test_log_append_time_is_returned(self, node: DataPlane) -> None:
        node.create_topic(config=LogConfig(message_timestamp_type=MessageTimestampType.LOG_APPEND_TIME))
        assert entry(produce(node, batch())).log_append_time_ms == node.clock.now_ms()

    def test_topics_are_named_by_id_from_version_13_on(self, node: DataPlane) -> None:
        identity = node.create_topic()
        answer = produce(node, batch(), version=LATEST, topic="", identity=identity)
        assert entry(answer).base_offset == 0
        assert answer.value.responses[0].topic_id == identity
        unknown = entry(produce(node, batch(), version=LATEST, topic="", identity=topic_id(99)))
        assert unknown.error_code == ErrorCode.UNKNOWN_TOPIC_ID
        missing = entry(produce(node, batch(), version=LATEST, topic="", identity=identity, index=7))
        assert missing.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    def test_each_partition_has_its_own_result(self, node: DataPlane) -> None:
        node.create_topic("t", 2)
        data = [PartitionProduceData(0, batch()), PartitionProduceData(9, batch()), PartitionProduceData(1, b"")]
        response = send(node, ProduceRequest(None, 1, 0, [TopicProduceData("t", ZERO_UUID, data)])).value
        outcomes = [(one.index, one.error_code, one.base_offset) for one in response.responses[0].partition_responses]
        assert outcomes == [
            (0, 0, 0),
            (9, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1),
            (1, ErrorCode.INVALID_RECORD, -1),
        ]

    def test_retried_batch_gets_its_first_offset(self, node: DataPlane) -> None:
        node.create_topic()
        for _ in range(2):
            again = entry(produce(node, batch(timestamp=77, producer_id=5, producer_epoch=0, sequence=0)))
            assert again.base_offset == 0
        assert again.log_append_time_ms == 77, "a duplicate has the timestamp of the first batch, as in Kafka"
        gap = entry(produce(node, batch(producer_id=5, producer_epoch=0, sequence=9)))
        assert gap.error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        assert (gap.error_message, gap.log_start_offset) == (None, 0)

    def test_invalid_records_are_listed(self, node: DataPlane) -> None:
        node.create_topic(config=LogConfig(message_timestamp_before_max_ms=1000))
        one = entry(produce(node, batch(b"a", b"b", timestamp=5)))
        assert one.error_code == ErrorCode.INVALID_TIMESTAMP
        assert [bad.batch_index for bad in one.record_errors] == [0, 1]
        assert one.error_message is not None
        assert node.partition().log.log_end_offset == 0

    @pytest.mark.parametrize(
        ("config", "records", "error"),
        [
            (LogConfig(max_message_bytes=10), batch(), ErrorCode.MESSAGE_TOO_LARGE),
            (LogConfig(segment_bytes=70), batch(b"x" * 100), ErrorCode.RECORD_LIST_TOO_LARGE),
        ],
    )
    def test_topic_limits_apply(self, node: DataPlane, config: LogConfig, records: bytearray, error: ErrorCode) -> None:
        node.create_topic(config=config)
        refused = entry(produce(node, records))
        assert (refused.error_code, refused.log_start_offset) == (error, -1)

    def test_unframeable_data_has_a_message(self, node: DataPlane) -> None:
        node.create_topic()
        unknown = batch()
        unknown[16] = 3
        refused = entry(produce(node, unknown))
        assert refused.error_code == ErrorCode.CORRUPT_MESSAGE
        assert refused.error_message

    def test_topic_without_partitions_is_left_out(self, node: DataPlane) -> None:
        node.create_topic()
        assert send(node, ProduceRequest(None, 1, 1000, [TopicProduceData("t")])).value.responses == []

    def test_traffic_is_counted(self, node: DataPlane) -> None:
        node.create_topic(config=LogConfig(max_message_bytes=200))
        size, large = len(batch(b"a", b"b")), batch(b"x" * 300)
        produce(node, batch(b"a", b"b"))
        produce(node, large)
        produce(node, batch(), topic="unknown")
        traffic = node.partitions.traffic.topic("t")
        assert (traffic.total_produce_requests, traffic.failed_produce_requests) == (2, 1)
        assert (traffic.messages_in, traffic.bytes_in, traffic.bytes_rejected) == (2, size, len(large))
        assert node.partitions.traffic.elsewhere.failed_produce_requests == 1


class TestRefusals:
    def test_unknown_topic_is_refused(self, node: DataPlane) -> None:
        assert entry(produce(node, batch())).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    @pytest.mark.parametrize("acks", [-2, 2, 100])
    def test_invalid_acks_are_refused(self, node: DataPlane, acks: int) -> None:
        node.create_topic()
        assert entry(produce(node, batch(), acks=acks)).error_code == ErrorCode.INVALID_REQUIRED_ACKS
        assert node.partition().log.log_end_offset == 0

    def test_batch_is_checked_before_acks_and_the_topic_before_the_batch(self, node: DataPlane) -> None:
        node.create_topic()
        assert entry(produce(node, b"", acks=7)).error_code == ErrorCode.INVALID_RECORD
        unknown = entry(produce(node, b"", acks=7, topic="unknown"))
        assert unknown.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    def test_internal_topics_accept_the_admin_client_alone(self, node: DataPlane) -> None:
        compacted = LogConfig(cleanup_policy=frozenset({CleanupPolicy.COMPACT}))
        node.create_topic("__consumer_offsets", config=compacted)
        refused = entry(produce(node, batch(), topic="__consumer_offsets"))
        assert refused.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
        allowed = entry(produce(node, batch(), topic="__consumer_offsets", client_id=ADMIN_CLIENT_ID))
        assert allowed.error_code == 0

    def test_transactional_batches_need_a_transactional_id(self, node: DataPlane) -> None:
        node.create_topic("t", 2)
        transactional = batch(producer_id=1, producer_epoch=0, sequence=0, transactional=True)
        data = [PartitionProduceData(0, batch()), PartitionProduceData(1, transactional)]
        response = send(node, ProduceRequest(None, 1, 0, [TopicProduceData("t", ZERO_UUID, data)])).value
        codes = {one.error_code for one in response.responses[0].partition_responses}
        assert codes == {ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED}
        assert node.partition().log.log_end_offset == 0

    def test_failed_disk_is_a_storage_error(self, node: DataPlane) -> None:
        node.create_topic()
        node.memory.fail("write", path_part="t-0")
        assert entry(produce(node, batch())).error_code == ErrorCode.KAFKA_STORAGE_ERROR
        node.loop.run_soon()
        assert entry(produce(node, batch())).error_code == ErrorCode.KAFKA_STORAGE_ERROR


class TestTransactions:
    """KIP-890: the coordinator confirms a partition before its first batch of a transaction."""

    @pytest.fixture
    def node(self) -> DataPlane:
        node = DataPlane()
        node.create_topic(config=LogConfig(verify_transactions=True))
        node.create_topic("__transaction_state", 3)
        return node

    @staticmethod
    def start(
        node: DataPlane,
        *,
        version: int = 11,
        acks: int = 1,
        sequence: int = 0,
        epoch: int = 0,
        transactional_id: str = "mine",
    ) -> Answer[ProduceResponse]:
        """Send the batch of a transaction."""
        records = batch(producer_id=5, producer_epoch=epoch, sequence=sequence, transactional=True)
        data = [TopicProduceData("t", ZERO_UUID, [PartitionProduceData(0, records)])]
        handler = ProduceHandler(node.partitions, node.runtime, node.verifier)
        handled = handler(ProduceRequest(transactional_id, acks, 1000, data), node.context(version))
        return node.run(handled) if isinstance(handled, Coroutine) else Answer(handled)

    def test_first_batch_waits_for_the_coordinator(self, node: DataPlane) -> None:
        waiting = self.start(node)
        assert waiting.is_waiting
        (asked,) = node.coordinators.asked
        assert asked.endpoint == ("host-1", 9001)
        request = node.coordinators.confirm()
        (transaction,) = request.transactions
        assert (transaction.transactional_id, transaction.producer_id, transaction.verify_only) == ("mine", 5, True)
        node.loop.run_soon()
        assert (entry(waiting).error_code, entry(waiting).base_offset) == (0, 0)
        again = self.start(node, sequence=1)
        assert entry(again).base_offset == 1, "the transaction is open"
        assert not node.coordinators.asked

    def test_partition_is_added_for_clients_of_transaction_version_2(self, node: DataPlane) -> None:
        waiting = self.start(node, version=12, acks=-1)
        assert not node.coordinators.confirm().transactions[0].verify_only
        node.loop.run_soon()
        assert entry(waiting).error_code == 0

    @pytest.mark.parametrize(
        ("version", "code", "expected"),
        [
            (11, ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.NOT_ENOUGH_REPLICAS),
            (11, ErrorCode.NOT_COORDINATOR, ErrorCode.NOT_ENOUGH_REPLICAS),
            (11, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_ENOUGH_REPLICAS),
            (11, ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH),
            (11, ErrorCode.TRANSACTION_ABORTABLE, ErrorCode.TRANSACTION_ABORTABLE),
            (10, ErrorCode.TRANSACTION_ABORTABLE, ErrorCode.INVALID_TXN_STATE),
            (12, ErrorCode.INVALID_PRODUCER_ID_MAPPING, ErrorCode.INVALID_PRODUCER_ID_MAPPING),
        ],
    )
    def test_refusal_of_the_coordinator_is_translated(
        self, node: DataPlane, version: int, code: ErrorCode, expected: ErrorCode
    ) -> None:
        waiting = self.start(node, version=version)
        node.coordinators.confirm(code)
        node.loop.run_soon()
        assert entry(waiting).error_code == expected
        assert node.partition().log.log_end_offset == 0

    def test_lost_coordinator_makes_the_client_retry(self, node: DataPlane) -> None:
        waiting = self.start(node)
        node.coordinators.disconnect()
        node.loop.run_soon()
        assert entry(waiting).error_code == ErrorCode.NOT_ENOUGH_REPLICAS
        assert entry(waiting).error_message

    def test_missing_coordinator_makes_the_client_retry(self) -> None:
        node = DataPlane()
        node.create_topic(config=LogConfig(verify_transactions=True))
        assert entry(self.start(node)).error_code == ErrorCode.NOT_ENOUGH_REPLICAS

    def test_addition_is_repeated_while_the_last_transaction_ends(self, node: DataPlane) -> None:
        waiting = self.start(node, version=12)
        node.coordinators.confirm(ErrorCode.CONCURRENT_TRANSACTIONS)
        node.advance_ms(20)
        node.coordinators.confirm()
        node.loop.run_soon()
        assert entry(waiting).error_code == 0

    def test_repetition_is_limited(self, node: DataPlane) -> None:
        waiting = self.start(node, version=12)
        questions = 0
        while waiting.is_waiting:
            questions += 1
            node.coordinators.confirm(ErrorCode.CONCURRENT_TRANSACTIONS)
            node.loop.run_soon()
            node.advance_ms(20)
        assert entry(waiting).error_code == ErrorCode.CONCURRENT_TRANSACTIONS
        assert questions == 6

    @pytest.mark.parametrize("busy", [True, False])
    def test_late_marker_of_the_former_transaction_does_not_void_the_next_one(
        self, node: DataPlane, busy: bool
    ) -> None:
        """The client may begin its next transaction before the leader has the marker of the former one."""
        waiting = self.start(node, version=12)
        node.coordinators.confirm()
        node.loop.run_soon()
        assert entry(waiting).error_code == 0
        waiting = self.start(node, version=12, epoch=1)
        append_marker(node.partition(), WritableMarker(5, 1, True, 0, transaction_version=2), 0)
        node.coordinators.confirm(ErrorCode.CONCURRENT_TRANSACTIONS if busy else ErrorCode.NONE)
        node.loop.run_soon()
        node.advance_ms(20)
        node.coordinators.confirm()
        node.loop.run_soon()
        assert entry(waiting).error_code == 0
        assert node.partition().log.producers.has_open_transaction(5, 1)

    def test_transaction_that_was_aborted_meanwhile_is_not_opened_again(self, node: DataPlane) -> None:
        waiting = self.start(node, version=12)
        append_marker(node.partition(), WritableMarker(5, 1, False, 0, transaction_version=2), 0)
        node.coordinators.confirm()
        node.loop.run_soon()
        assert entry(waiting).error_code == ErrorCode.INVALID_PRODUCER_EPOCH
        assert node.partition().log.last_stable_offset == 1

    def test_first_batch_of_version_2_begins_with_sequence_0(self, node: DataPlane) -> None:
        waiting = self.start(node, version=12, sequence=4)
        node.coordinators.confirm()
        node.loop.run_soon()
        assert entry(waiting).error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER

    def test_first_transaction_of_version_2_continues_the_sequence_of_version_1(self, node: DataPlane) -> None:
        waiting = self.start(node)
        node.coordinators.confirm()
        node.loop.run_soon()
        assert entry(waiting).error_code == 0
        append_marker(node.partition(), WritableMarker(5, 0, is_commit=True, coordinator_epoch=0), 0)
        waiting = self.start(node, version=12, sequence=1)
        node.coordinators.confirm()
        node.loop.run_soon()
        assert entry(waiting).error_code == 0

    def test_outdated_epoch_is_refused_without_a_question(self, node: DataPlane) -> None:
        waiting = self.start(node, epoch=3)
        node.coordinators.confirm()
        node.loop.run_soon()
        assert entry(waiting).error_code == 0
        assert entry(self.start(node, epoch=2)).error_code == ErrorCode.INVALID_PRODUCER_EPOCH
        assert not node.coordinators.asked

    def test_disabled_verification_asks_only_to_add(self, node: DataPlane) -> None:
        node.create_topic("u", config=LogConfig())
        node.partition().configure(LogConfig())
        assert entry(self.start(node, version=11)).error_code == 0
        assert self.start(node, version=12, epoch=1).is_waiting

    def test_abandoned_request_does_not_disturb_the_answer(self, node: DataPlane) -> None:
        self.start(node).cancel()
        node.loop.run_soon()
        node.coordinators.confirm()
        node.loop.run_soon()
        assert node.partition().log.log_end_offset == 0
        assert not node.loop.failures

    def test_batches_of_two_producers_are_refused(self, node: DataPlane) -> None:
        data = [
            PartitionProduceData(0, batch(producer_id=number, producer_epoch=0, sequence=0, transactional=True))
            for number in (5, 6)
        ]
        request = ProduceRequest("mine", 1, 1000, [TopicProduceData("t", ZERO_UUID, data)])
        response = send(node, request).value
        codes = {one.error_code for one in response.responses[0].partition_responses}
        assert codes == {ErrorCode.INVALID_PRODUCER_ID_MAPPING}

    def test_produce_without_acknowledgement_closes_the_connection(self, node: DataPlane) -> None:
        waiting = self.start(node, acks=0)
        node.coordinators.disconnect()
        node.loop.run_soon()
        with pytest.raises(CloseConnection):
            waiting.value  # noqa: B018


class TestLeaderHints:
    """KIP-951: a refusal names the current leader."""

    def test_refusal_names_the_leader_and_its_endpoint(self, node: DataPlane) -> None:
        node.register_broker(2)
        node.create_topic(replicas=(1, 2), leader=2)
        response = produce(node, batch()).value
        one = response.responses[0].partition_responses[0]
        assert one.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert (one.current_leader.leader_id, one.current_leader.leader_epoch) == (2, 0)
        assert [(n.node_id, n.host, n.port, n.rack) for n in response.node_endpoints] == [(2, "host-2", 9002, "rack-2")]

    def test_old_versions_and_successes_have_no_hint(self, node: DataPlane) -> None:
        node.register_broker(2)
        node.create_topic(replicas=(1, 2), leader=2)
        assert produce(node, batch(), version=9).value.node_endpoints == []
        assert entry(produce(node, batch(), version=9)).current_leader.leader_id == -1

    def test_hint_without_leader_has_the_epoch_alone(self, node: DataPlane) -> None:
        node.create_topic(replicas=(1, 2), leader=-1)
        response = produce(node, batch()).value
        assert response.responses[0].partition_responses[0].current_leader.leader_id == -1
        assert response.node_endpoints == []


class TestAcks:
    def test_acks_0_has_no_response(self, node: DataPlane) -> None:
        node.create_topic()
        assert produce(node, batch(), acks=0).value is None
        assert node.partition().log.log_end_offset == 1

    def test_failed_acks_0_closes_the_connection(self, node: DataPlane) -> None:
        with pytest.raises(CloseConnection):
            produce(node, batch(), acks=0)

    def test_acks_all_is_answered_at_once_without_followers(self, node: DataPlane) -> None:
        node.create_topic()
        answer = produce(node, batch(), acks=-1)
        assert not answer.is_waiting
        assert entry(answer).error_code == 0

    def test_acks_all_waits_for_the_in_sync_replicas(self, node: DataPlane) -> None:
        node.create_topic(replicas=(1, 2))
        answer = produce(node, batch(b"a", b"b"), acks=-1)
        assert answer.is_waiting
        follow(node, 2, 1)
        assert answer.is_waiting
        follow(node, 2, 2)
        assert (entry(answer).error_code, entry(answer).base_offset) == (0, 0)
        assert len(node.deadlines) == 0

    def test_waiting_request_lets_the_next_one_begin(self, node: DataPlane) -> None:
        node.create_topic(replicas=(1, 2))
        context = node.context(12)
        request = ProduceRequest(None, -1, 1000, [TopicProduceData("t", ZERO_UUID, [PartitionProduceData(0, batch())])])
        ProduceHandler(node.partitions, node.runtime, node.verifier)(request, context)
        assert context.request.is_applied

    def test_waiting_request_holds_no_records(self, node: DataPlane) -> None:
        node.create_topic(replicas=(1, 2))
        context, data = node.context(12), PartitionProduceData(0, batch())
        context.request.body = memoryview(b"frame")
        request = ProduceRequest(None, -1, 1000, [TopicProduceData("t", ZERO_UUID, [data])])
        ProduceHandler(node.partitions, node.runtime, node.verifier)(request, context)
        assert data.records is None
        assert len(context.request.body) == 0

    def test_timeout_is_reported_and_keeps_appended_batches(self, node: DataPlane) -> None:
        node.create_topic(replicas=(1, 2))
        answer = produce(node, batch(), acks=-1, timeout_ms=500)
        node.advance_ms(499)
        assert answer.is_waiting
        node.advance_ms(1)
        assert (entry(answer).error_code, entry(answer).base_offset) == (ErrorCode.REQUEST_TIMED_OUT, 0)
        follow(node, 2, 1)
        assert node.partition().log.high_watermark == 1

    def test_change_of_leader_ends_the_wait_with_a_hint(self, node: DataPlane) -> None:
        node.register_broker(2)
        identity = node.create_topic(replicas=(1, 2))
        answer = produce(node, batch(), acks=-1)
        node.elect(identity, 2)
        one = entry(answer)
        assert one.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert (one.current_leader.leader_id, one.current_leader.leader_epoch) == (2, 1)

    def test_slow_partition_delays_the_whole_response(self, node: DataPlane) -> None:
        node.create_topic("fast")
        node.create_topic("t", replicas=(1, 2))
        topics = [
            TopicProduceData("fast", ZERO_UUID, [PartitionProduceData(0, batch())]),
            TopicProduceData("t", ZERO_UUID, [PartitionProduceData(0, batch()), PartitionProduceData(5, batch())]),
        ]
        answer = send(node, ProduceRequest(None, -1, 1000, topics))
        assert answer.is_waiting
        follow(node, 2, 1)
        codes = [one.error_code for topic in answer.value.responses for one in topic.partition_responses]
        assert codes == [0, 0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]

    def test_batch_below_min_insync_replicas_is_not_appended(self, node: DataPlane) -> None:
        identity = node.create_topic(replicas=(1, 2, 3), config=LogConfig(min_insync_replicas=2))
        node.change_isr(identity, 1)
        assert entry(produce(node, batch(), acks=-1)).error_code == ErrorCode.NOT_ENOUGH_REPLICAS
        assert node.partition().log.log_end_offset == 0

    def test_disconnected_peer_is_not_answered(self, node: DataPlane) -> None:
        node.create_topic(replicas=(1, 2))
        answer = produce(node, batch(), acks=-1)
        answer.cancel()
        follow(node, 2, 1)
        node.advance_ms(2000)
        assert node.loop.failures == []

    def test_acks_1_waits_for_a_configured_flush(self, node: DataPlane) -> None:
        node.create_topic(config=LogConfig(flush_messages=1))
        node.io.is_held = True
        answer = produce(node, batch())
        assert answer.is_waiting
        node.io.release()
        node.loop.run_soon()
        assert entry(answer).error_code == 0


class TestFraming:
    """Exactly one complete batch of magic 2 for a partition."""

    def refusal(self, records: Buffer | None, version: int = 12) -> ErrorCode:
        with pytest.raises(KafkaError) as error:
            only_batch(records, version)
        return error.value.code

    def test_one_batch_is_accepted(self) -> None:
        one = batch()
        assert only_batch(one, 12) is one

    @pytest.mark.parametrize("records", [None, b"", bytes(11), batch()[:-1], batch() + batch()])
    def test_no_batch_or_several_are_refused(self, records: Buffer | None) -> None:
        assert self.refusal(records) is ErrorCode.INVALID_RECORD

    def test_incomplete_second_batch_is_ignored(self) -> None:
        assert only_batch(batch() + batch()[:40], 12) == batch()

    def test_unframeable_data_is_refused(self) -> None:
        short = batch()
        short[8:12] = (13).to_bytes(4, "big")
        assert self.refusal(short) is ErrorCode.CORRUPT_MESSAGE
        unknown = batch()
        unknown[16] = 3
        assert self.refusal(unknown) is ErrorCode.CORRUPT_MESSAGE

    @pytest.mark.parametrize("magic", [0, 1])
    def test_old_formats_are_refused(self, magic: int) -> None:
        old = batch()
        old[16] = magic
        assert self.refusal(old) is ErrorCode.INVALID_RECORD

    def test_zstd_needs_a_version_with_zstd(self) -> None:
        compressed = batch(b"a" * 100, codec=Codec.ZSTD)
        assert self.refusal(compressed, version=6) is ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
        assert only_batch(compressed, 7) is compressed

    def test_unknown_codec_fails_in_old_versions(self) -> None:
        odd = batch()
        odd[22] |= 5
        assert self.refusal(odd, version=6) is ErrorCode.UNKNOWN_SERVER_ERROR
        assert only_batch(odd, 7) is odd
