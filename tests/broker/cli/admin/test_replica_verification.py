"""The command replica-verification, and its comparison of batches."""

import json
import re

import pytest

from broker.cli.admin.replica_verification import Copy, compare
from broker.cli.shared.failure import CommandFailed
from protocol.ids import LeaderEpoch
from protocol.records.batch import patch
from protocol.records.builder import Record, build_batch
from storage.directories.checkpoints import TopicPartition
from tests.broker.cli.conftest import Ottla
from tests.support.fakes.fake_broker import FakeBroker
from tests.support.fakes.fake_logs import FakeLogs

HERE = TopicPartition("t", 0)


def batches(*values: str) -> bytes:
    """Return one batch for each text, with a record for each letter."""
    end, found = 0, b""
    for text in values:
        batch = bytearray(build_batch([Record(0, None, letter.encode(), ()) for letter in text]))
        patch(batch, 0, end, LeaderEpoch(0))
        end += len(text)
        found += bytes(batch)
    return found


class TestCompare:
    def test_equal_copies_advance_to_the_end(self) -> None:
        copies = [Copy(node, 3, batches("a", "bc")) for node in (1, 2)]
        assert compare(HERE, 0, copies) == (3, 2, [])

    def test_batches_at_and_above_the_high_watermark_are_left_out(self) -> None:
        copies = [Copy(1, 3, batches("a", "bc")), Copy(2, 2, batches("a", "xx"))]
        assert compare(HERE, 0, copies) == (1, 1, [])

    def test_copy_that_is_behind_is_no_difference(self) -> None:
        assert compare(HERE, 0, [Copy(1, 3, batches("a", "bc")), Copy(2, 3, batches("a"))]) == (1, 1, [])

    def test_different_content_is_found_and_passed(self) -> None:
        position, _, findings = compare(HERE, 0, [Copy(1, 2, batches("a", "b")), Copy(2, 2, batches("x", "b"))])
        assert position == 2
        (finding,) = findings
        assert re.match(r" has unmatched checksum at offset 0; replica 1's checksum \d+; replica 2's", finding.text)
        assert not finding.is_final

    def test_different_offsets_end_the_comparison(self) -> None:
        position, _, findings = compare(HERE, 0, [Copy(1, 2, batches("a", "b")), Copy(2, 2, batches("ab"))])
        assert position == 0
        assert findings[0].text == ": replica 1's offset 0 doesn't match replica 2's offset 1"
        assert findings[0].is_final

    def test_malformed_batches_are_named(self) -> None:
        with pytest.raises(CommandFailed, match="t-0 on broker 2"):
            compare(HERE, 0, [Copy(1, 1, batches("a")), Copy(2, 1, b"\1" * 80)])


class TestCommand:
    @pytest.fixture
    def logs(self, broker: FakeBroker) -> FakeLogs:
        broker.topics = {"t": 1}
        logs = FakeLogs(broker)
        logs.append("t", 0, batches("abc"))
        return logs

    @pytest.mark.usefixtures("logs")
    def test_one_pass_reports_the_lag(self, ottla: Ottla) -> None:
        outcome = ottla("replica-verification", "--time", "-2", "--once")
        assert outcome.code == 0
        started, report = (re.sub(r"^[0-9 :,-]+: ", "", line) for line in outcome.lines)
        assert started == "verification process is started"
        assert report == "max lag is 0 for partition t-0 at offset 3 among 1 partitions"

    @pytest.mark.usefixtures("logs")
    def test_json(self, ottla: Ottla) -> None:
        outcome = ottla("replica-verification", "--time", "-2", "--once", "--json")
        assert json.loads(outcome.out) == {"partitions": 1, "differences": []}

    @pytest.mark.usefixtures("logs")
    def test_unmatched_topics_fail(self, ottla: Ottla) -> None:
        assert ottla("replica-verification", "--topics-include", "x").code == 1
        assert ottla("replica-verification", "--topics-include", "(").code == 2
