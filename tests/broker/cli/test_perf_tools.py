"""The commands producer-perf and consumer-perf, and their statistics."""

import re
from pathlib import Path

import pytest

from broker.cli.perf.consumption import Consumed, TimeFormat, interval_line, total_line
from broker.cli.perf.latency import LatencyStats
from broker.cli.perf.pacing import Pacer
from broker.cli.perf.payloads import file_payload, random_payload
from broker.cli.shared.failure import CommandFailed
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopicResult,
)
from protocol.messages.api_versions import ApiVersion, ApiVersionsResponse, FinalizedFeatureKey
from protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from protocol.messages.produce import ProduceRequest
from tests.broker.cli.conftest import Ottla
from tests.support.fakes.fake_broker import FakeBroker
from tests.support.fakes.fake_logs import PRODUCER_ID, FakeLogs

ONE_MB = 1024 * 1024
RATE = r"[0-9.]+ records/sec \([0-9.]+ MB/sec\)"
TOTAL = (
    rf"{RATE}, [0-9.]+ ms avg latency, [0-9.]+ ms max latency,"
    r" \d+ ms 50th, \d+ ms 95th, \d+ ms 99th, \d+ ms 99\.9th\."
)
LOAD = ("--topic", "t", "--num-records", "10", "--throughput", "-1", "--payload-monotonic")


@pytest.fixture
def logs(broker: FakeBroker) -> FakeLogs:
    broker.topics = {"t": 1}
    return FakeLogs(broker)


class TestLatencyStats:
    def test_window_and_total(self) -> None:
        stats = LatencyStats(4, 1000, 0)
        assert stats.record(10, ONE_MB, 500) is None
        assert stats.record(30, ONE_MB, 1000) == (
            "2 records sent, 2.0 records/sec (2.00 MB/sec), 20.0 ms avg latency, 30.0 ms max latency."
        )
        stats.record(20, ONE_MB, 1500)
        stats.record(40, ONE_MB, 1600)
        assert stats.total(2000) == (
            "4 records sent, 2.000000 records/sec (2.00 MB/sec), 25.00 ms avg latency, 40.00 ms max latency,"
            " 30 ms 50th, 40 ms 95th, 40 ms 99th, 40 ms 99.9th."
        )

    def test_steady_state_is_named(self) -> None:
        stats = LatencyStats(1, 1000, 0, is_steady=True)
        stats.record(1, 1, 1)
        assert stats.total(1000).startswith("1 steady state records sent, ")


class TestPacer:
    def test_sleeps_are_saved_up(self) -> None:
        slept: list[float] = []
        pacer = Pacer(1000, 0.0, slept.append)
        pacer.wait(1, 0.0)
        assert slept == []
        pacer.wait(3, 0.0)
        assert slept == [0.003]

    def test_negative_rate_is_no_limit(self) -> None:
        Pacer(-1, 0.0, lambda _: pytest.fail("a sleep")).wait(1_000_000, 0.0)


class TestPayloads:
    def test_random_values_have_the_size_and_repeat(self) -> None:
        values = random_payload(50)
        first = values(0)
        assert re.fullmatch(rb"[A-Z]{50}", first)
        assert random_payload(50)(0) == first != values(1)

    def test_values_of_a_file(self, tmp_path: Path) -> None:
        (tmp_path / "values").write_text("one,two,")
        values = file_payload(str(tmp_path / "values"), ",")
        assert {values(number) for number in range(50)} == {b"one", b"two"}

    def test_empty_and_missing_files_are_refused(self, tmp_path: Path) -> None:
        (tmp_path / "empty").touch()
        with pytest.raises(CommandFailed, match="empty"):
            file_payload(str(tmp_path / "empty"), "\n")
        with pytest.raises(CommandFailed, match="cannot read"):
            file_payload(str(tmp_path / "missing"), "\n")


class TestProducerPerf:
    def test_records_are_sent_and_reported(self, logs: FakeLogs, ottla: Ottla) -> None:
        (line,) = ottla("producer-perf", *LOAD).lines
        assert re.fullmatch(f"10 records sent, {TOTAL}", line)
        assert [record.value for record in logs.records("t", 0)] == [b"%d" % number for number in range(10)]

    def test_steady_state_excludes_the_warmup(self, logs: FakeLogs, ottla: Ottla) -> None:
        lines = ottla("producer-perf", *LOAD, "--warmup-records", "4").lines
        assert lines[0].startswith("Warmup first 4 records.")
        assert lines[1] == "In steady state."
        assert re.fullmatch(f"6 steady state records sent, {TOTAL}", lines[-1])

    def test_one_option_takes_several_properties(self, broker: FakeBroker, logs: FakeLogs, ottla: Ottla) -> None:
        assert ottla("producer-perf", *LOAD, "--producer-props", "acks=1", "batch.size=1").code == 0
        requests = broker.received(ProduceRequest)
        assert [request.acks for request in requests] == [1] * 10

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            (("--record-size", "5"), "exactly one of --record-size"),
            (("--warmup-records", "10"), "must be fewer than --num-records"),
            (("--throughput", "0"), "must not be 0"),
        ],
    )
    def test_wrong_usage(self, arguments: tuple[str, ...], message: str, ottla: Ottla) -> None:
        outcome = ottla("producer-perf", *LOAD, *arguments)
        assert outcome.code == 2
        assert message in outcome.err

    def test_transactions_need_all_acks(self, logs: FakeLogs, ottla: Ottla) -> None:
        outcome = ottla("producer-perf", *LOAD, "--transactional-id", "x", "--command-property", "acks=1")
        assert (outcome.code, outcome.err) == (1, "Error: transactions need acks=all.\n")


class TestTransactions:
    """A coordinator that grants every transaction, after CONCURRENT_TRANSACTIONS for the first end."""

    @pytest.fixture(autouse=True)
    def coordinator(self, broker: FakeBroker, logs: FakeLogs) -> None:
        refusals = [ErrorCode.CONCURRENT_TRANSACTIONS]

        def end(request: EndTxnRequest) -> EndTxnResponse:
            code = refusals.pop() if refusals else ErrorCode.NONE
            return EndTxnResponse(0, code, request.producer_id, request.producer_epoch + 1)

        def add(request: AddPartitionsToTxnRequest) -> AddPartitionsToTxnResponse:
            results = [
                AddPartitionsToTxnTopicResult(
                    topic.name, [AddPartitionsToTxnPartitionResult(index) for index in topic.partitions]
                )
                for topic in request.v3_and_below_topics
            ]
            return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=results)

        broker.answer(ApiKey.END_TXN, end)
        broker.answer(ApiKey.ADD_PARTITIONS_TO_TXN, add)

    def commit_each_record(self, ottla: Ottla) -> None:
        options = ("--transactional-id", "load", "--transaction-duration-ms", "1", "--throughput", "200")
        assert ottla("producer-perf", *LOAD, *options).code == 0

    def test_version_2_has_an_epoch_for_each_transaction(
        self, broker: FakeBroker, logs: FakeLogs, ottla: Ottla
    ) -> None:
        def versions(_: object) -> ApiVersionsResponse:
            keys = [ApiVersion(key, low, high) for key, (low, high) in sorted(broker.versions.items())]
            return ApiVersionsResponse(
                api_keys=keys, finalized_features=[FinalizedFeatureKey("transaction.version", 2, 2)]
            )

        broker.answer(ApiKey.API_VERSIONS, versions)
        self.commit_each_record(ottla)
        headers = logs.headers("t", 0)
        assert all(header.is_transactional and header.producer_id == PRODUCER_ID for header in headers)
        assert len({header.producer_epoch for header in headers}) > 1
        assert {header.base_sequence for header in headers if header.producer_epoch} == {0}
        assert broker.received(AddPartitionsToTxnRequest) == []
        assert all(request.committed for request in broker.received(EndTxnRequest))

    def test_version_1_adds_partitions_first(self, broker: FakeBroker, logs: FakeLogs, ottla: Ottla) -> None:
        self.commit_each_record(ottla)
        ends = broker.received(EndTxnRequest)
        assert len(broker.received(AddPartitionsToTxnRequest)) == len(ends) - 1, "one end was repeated"
        assert {header.producer_epoch for header in logs.headers("t", 0)} == {0}
        sequences = [header.base_sequence for header in logs.headers("t", 0)]
        assert sequences == sorted(set(sequences))


class TestConsumption:
    BEGUN = Consumed(1000, 0, 0, 0)
    ENDED = Consumed(3000, 500, 4 * ONE_MB, 1000)
    TIMES = TimeFormat("SSS")

    def test_total_line(self) -> None:
        line = total_line(self.BEGUN, self.ENDED, self.TIMES)
        assert line == "000, 000, 4.0000, 2.0000, 500, 250.0000, 1000, 1000, 4.0000, 500.0000"

    def test_interval_line_has_totals_and_rates_since_the_former(self) -> None:
        later = Consumed(4000, 700, 6 * ONE_MB, 1000)
        line = interval_line(self.ENDED, later, self.TIMES)
        assert line == "000, 0, 6.0000, 2.0000, 700, 200.0000, 0, 1000, 2.0000, 200.0000"

    def test_interval_within_a_rebalance_has_no_fetch_rate(self) -> None:
        assert interval_line(self.BEGUN, Consumed(2000, 1, 1, 1000), self.TIMES).endswith(", 1000, 0, 0.0000, 0.0000")


class TestTimeFormat:
    def test_pattern_of_the_default(self) -> None:
        text = TimeFormat("yyyy-MM-dd HH:mm:ss:SSS").format(1_700_000_000_123)
        assert re.fullmatch(r"2023-11-1[45] \d\d:\d\d:\d\d:123", text)

    def test_quoted_text_stays(self) -> None:
        assert TimeFormat("'at %'SSS").format(7) == "at %007"

    def test_other_letters_are_refused(self) -> None:
        with pytest.raises(ValueError, match="'EEE'"):
            TimeFormat("EEE")


class TestConsumerPerf:
    def test_wrong_usage(self, ottla: Ottla) -> None:
        assert "Exactly one of --topic and --include" in ottla("consumer-perf", "--num-records", "1").err
        outcome = ottla("consumer-perf", "--num-records", "1", "--topic", "t", "--date-format", "EEE")
        assert "--date-format: 'EEE'" in outcome.err
