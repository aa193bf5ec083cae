"""The commands verifiable-producer and verifiable-consumer."""

import json
from collections.abc import Callable

import pytest

from protocol.errors import ErrorCode
from protocol.records.builder import Record, build_batch
from tests.broker.cli.conftest import Ottla, Outcome
from tests.broker.cli.test_console_consumer import FakeGroup
from tests.support.clients.partition_states import until
from tests.support.fakes.fake_broker import FakeBroker
from tests.support.fakes.fake_logs import FakeLogs

Events = list[dict[str, object]]


@pytest.fixture
def logs(broker: FakeBroker) -> FakeLogs:
    broker.topics = {"t": 1}
    return FakeLogs(broker)


@pytest.fixture
def group(broker: FakeBroker) -> FakeGroup:
    return FakeGroup(broker)


def events(outcome: Outcome) -> Events:
    """Return the events without their times."""
    found: Events = [json.loads(line) for line in outcome.lines]
    for event in found:
        assert isinstance(event.pop("timestamp"), int)
    return found


@pytest.mark.usefixtures("logs")
class TestProducer:
    def test_every_record_is_reported_with_its_offset(self, ottla: Ottla) -> None:
        begun, *sent, ended, totals = events(ottla("verifiable-producer", "--topic", "t", "--max-messages", "3"))
        assert (begun["name"], ended["name"]) == ("startup_complete", "shutdown_complete")
        assert sent == [
            {
                "name": "producer_send_success",
                "key": None,
                "value": str(number),
                "topic": "t",
                "partition": 0,
                "offset": number,
            }
            for number in range(3)
        ]
        assert (totals["name"], totals["sent"], totals["acked"], totals["target_throughput"]) == ("tool_data", 3, 3, -1)

    def test_keys_prefix_and_times(self, ottla: Ottla, logs: FakeLogs) -> None:
        options = ("--value-prefix", "7", "--repeating-keys", "2", "--message-create-time", "5", "--acks", "0")
        sent = events(ottla("verifiable-producer", "--topic", "t", "--max-messages", "3", *options))[1:-2]
        assert [(event["key"], event["value"], event["offset"]) for event in sent] == [
            ("0", "7.0", -1),
            ("1", "7.1", -1),
            ("0", "7.2", -1),
        ]
        until(lambda: len(logs.records("t", 0)) == 3)  # no response says that they have arrived
        assert [record.timestamp for record in logs.records("t", 0)] == [5, 6, 7]

    def test_refused_records_are_reported_and_the_run_goes_on(self, ottla: Ottla, logs: FakeLogs) -> None:
        logs.refusals = [ErrorCode.MESSAGE_TOO_LARGE]
        options = ("--max-messages", "2", "--throughput", "1000")
        sent = events(ottla("verifiable-producer", "--topic", "t", *options))[1:-2]
        assert [event["name"] for event in sent] == ["producer_send_error", "producer_send_success"]
        assert sent[0]["exception"] == "MESSAGE_TOO_LARGE"


Append = Callable[[int], None]


@pytest.fixture
def append(logs: FakeLogs) -> Append:
    def numbered(count: int) -> None:
        logs.append("t", 0, build_batch([Record(0, None, b"%d" % number, ()) for number in range(count)]))

    return numbered


@pytest.mark.usefixtures("group")
class TestConsumer:
    def test_events_of_a_run(self, ottla: Ottla, append: Append, group: FakeGroup) -> None:
        append(6)
        printed = events(ottla("verifiable-consumer", "--topic", "t", "--group-id", "g", "--max-messages", "5"))
        here: dict[str, object] = {"topic": "t", "partition": 0}
        assert printed == [
            {"name": "startup_complete"},
            {"name": "partitions_assigned", "partitions": [here]},
            {
                "name": "records_consumed",
                "count": 6,
                "partitions": [here | {"count": 5, "minOffset": 0, "maxOffset": 4}],
            },
            {"name": "offsets_committed", "offsets": [here | {"offset": 5}], "success": True},
            {"name": "partitions_revoked", "partitions": [here]},
            {"name": "shutdown_complete"},
        ]
        assert group.committed == {("t", 0): 5}

    def test_verbose_reports_records_and_autocommit_is_silent(
        self, ottla: Ottla, append: Append, group: FakeGroup
    ) -> None:
        append(2)
        options = ("--max-messages", "2", "--verbose", "--enable-autocommit")
        printed = events(ottla("verifiable-consumer", "--topic", "t", "--group-id", "g", *options))
        assert [event["name"] for event in printed][2:5] == ["record_data", "record_data", "records_consumed"]
        assert printed[2]["value"] == "0"
        assert "offsets_committed" not in [event["name"] for event in printed]
        assert group.committed == {("t", 0): 2}

    def test_rebalance_revokes_and_assigns(self, ottla: Ottla, append: Append, group: FakeGroup) -> None:
        append(3)
        group.heartbeats = [ErrorCode.REBALANCE_IN_PROGRESS]
        config = ("--session-timeout", "6000", "--max-messages", "3")
        printed = events(ottla("verifiable-consumer", "--topic", "t", "--group-id", "g", *config))
        assert [event["name"] for event in printed].count("partitions_assigned") in (1, 2)

    def test_no_reset_policy_needs_committed_offsets(self, ottla: Ottla, append: Append) -> None:
        append(1)
        options = ("--max-messages", "1", "--reset-policy", "none")
        outcome = ottla("verifiable-consumer", "--topic", "t", "--group-id", "g", *options)
        assert outcome.code == 1
        assert "no committed offset" in outcome.err

    @pytest.mark.parametrize(
        "options",
        [("--group-protocol", "CONSUMER"), ("--group-remote-assignor", "x"), ("--assignment-strategy", "a.Sticky")],
    )
    def test_unsupported_options_fail(self, ottla: Ottla, options: tuple[str, str]) -> None:
        assert ottla("verifiable-consumer", "--topic", "t", "--group-id", "g", *options).code == 1
