"""The checker finds every anomaly in a small history, and none in a clean one."""

import pytest

from tests.chaos.checker import Anomaly, Checker, Findings, Rules
from tests.chaos.events import Acked, Began, Ended, Failed, Polled, Renumbered, Strange, Truncated

STRICT = Rules()
LOSSY = Rules(lossy=True, zombie_ms=1000)


class History:
    """One partition, two producers, two consumers. Times are given where they matter."""

    def __init__(self, rules: Rules = STRICT) -> None:
        self.checker = Checker(partitions=1, producers=2, consumers=2, rules=rules)

    def ack(self, sequence: int, offset: int, count: int = 1, producer: int = 0, at_ms: int = 0) -> "History":
        self.checker.acked(producer, Acked(at_ms, 0, offset, count, sequence))
        return self

    def fail(self, sequence: int, count: int = 1, producer: int = 0) -> "History":
        self.checker.failed(producer, Failed(0, 0, count, sequence, "timed out"))
        return self

    def poll(
        self,
        offset: int,
        count: int,
        sequence: int,
        *,
        producer: int = 0,
        epoch: int = 1,
        consumers: tuple[int, ...] = (0, 1),
        at_ms: int = 0,
    ) -> "History":
        for consumer in consumers:
            self.checker.polled(consumer, Polled(at_ms, 0, offset, count, producer, sequence, epoch))
        return self

    def cut(self, position: int, resumed_at: int, consumers: tuple[int, ...] = (0, 1)) -> "History":
        for consumer in consumers:
            self.checker.truncated(consumer, Truncated(0, 0, position, resumed_at))
        return self

    def final(self, *runs: tuple[int, int, int, int, int], end: int | None = None) -> Findings:
        """Read runs of (offset, count, producer, sequence, epoch) finally, and return the verdict."""
        for offset, count, producer, sequence, epoch in runs:
            self.checker.final(Polled(0, 0, offset, count, producer, sequence, epoch))
        last = max((offset + count for offset, count, *_ in runs), default=0)
        self.checker.final(Ended(0, 0, last if end is None else end))
        return self.checker.verdict()


def only(anomaly: Anomaly, count: int = 1) -> dict[Anomaly, int]:
    return {anomaly: count}


def found(findings: Findings) -> dict[Anomaly, int]:
    assert findings.is_clean == (not findings.counts)
    assert all(findings.examples[anomaly] for anomaly in findings.counts)
    return dict(findings.counts)


# Clean histories


def test_clean_history_has_no_anomaly() -> None:
    history = History().ack(0, 0, 3).ack(0, 3, 2, producer=1).poll(0, 3, 0).poll(3, 2, 0, producer=1)
    findings = history.final((0, 3, 0, 0, 1), (3, 2, 1, 0, 1))
    assert found(findings) == {}
    assert findings.acknowledged == 5


def test_polls_may_precede_acknowledgements_and_group_records_otherwise() -> None:
    history = History().poll(0, 4, 0).poll(4, 2, 4).ack(0, 0).ack(1, 1, 3).ack(4, 4, 2)
    assert found(history.final((0, 2, 0, 0, 1), (2, 4, 0, 2, 1))) == {}


def test_acknowledgement_without_an_offset_counts() -> None:
    assert found(History().ack(0, -1).poll(0, 1, 0).final((0, 1, 0, 0, 1))) == {}
    assert found(History().ack(0, -1).final()) == only(Anomaly.LOST_WRITE)


def test_failed_record_may_be_in_the_log() -> None:
    history = History().fail(0, 2).ack(2, 1).poll(0, 1, 1).poll(1, 1, 2)
    findings = history.final((0, 1, 0, 1, 1), (1, 1, 0, 2, 1))
    assert found(findings) == {}
    assert (findings.failed, findings.failures) == (2, {"timed out": 2})


# Jepsen's six anomalies


def test_lost_write_that_a_consumer_read() -> None:
    history = History().ack(0, 0, 3).poll(0, 3, 0)
    assert found(history.final((0, 1, 0, 0, 1), (2, 1, 0, 2, 1))) == only(Anomaly.LOST_WRITE)


def test_adjacent_anomalies_give_one_example() -> None:
    history = History().ack(0, 0, 9).poll(0, 9, 0)
    findings = history.final((0, 2, 0, 0, 1), (5, 1, 0, 5, 1))
    assert found(findings) == only(Anomaly.LOST_WRITE, 6)
    assert [each.split(":")[0] for each in findings.examples[Anomaly.LOST_WRITE]] == [
        "partition 0 offset 2",
        "partition 0 offset 6",
    ]


def test_lost_write_that_no_consumer_read() -> None:
    history = History().ack(0, 0, 2).poll(0, 1, 0)
    assert found(history.final((0, 1, 0, 0, 1))) == only(Anomaly.LOST_WRITE)


def test_duplicate() -> None:
    history = History().ack(0, 0).poll(0, 1, 0).poll(1, 1, 0)
    findings = history.final((0, 1, 0, 0, 1), (1, 1, 0, 0, 1))
    assert findings.counts[Anomaly.DUPLICATE] == 1  # however many consumers read it


def test_duplicate_of_acknowledged_offset_and_log() -> None:
    history = History().ack(0, 1).poll(0, 1, 0)
    assert Anomaly.DUPLICATE in found(history.final((0, 1, 0, 0, 1)))


def test_two_records_acknowledged_at_one_offset() -> None:
    history = History().ack(0, 0).ack(0, 0, producer=1).poll(0, 1, 0)
    assert found(history.final((0, 1, 0, 0, 1))) == {Anomaly.INCONSISTENT_OFFSETS: 1, Anomaly.LOST_WRITE: 1}


def test_consumers_read_different_records_at_one_offset() -> None:
    history = History().ack(0, 0).fail(1).poll(0, 1, 0, consumers=(0,)).poll(0, 1, 1, consumers=(1,))
    findings = history.final((0, 1, 0, 0, 1))
    assert found(findings) == {Anomaly.INCONSISTENT_OFFSETS: 1, Anomaly.UNSEEN: 1}


def test_record_changes_its_epoch() -> None:
    history = History().ack(0, 0).poll(0, 1, 0, epoch=1)
    assert found(history.final((0, 1, 0, 0, 2))) == only(Anomaly.INCONSISTENT_OFFSETS)


@pytest.mark.parametrize("again", [0, 1])
def test_poll_repeats_an_offset(again: int) -> None:
    history = History().ack(0, 0, 2).poll(0, 2, 0).poll(again, 1, again, consumers=(1,))
    assert found(history.final((0, 2, 0, 0, 1))) == only(Anomaly.NONMONOTONIC_POLL)


def test_poll_skips_a_record() -> None:
    history = History().ack(0, 0, 3).poll(0, 3, 0, consumers=(0,))
    history.poll(0, 1, 0, consumers=(1,)).poll(2, 1, 2, consumers=(1,))
    assert found(history.final((0, 3, 0, 0, 1))) == {Anomaly.POLL_SKIP: 1, Anomaly.UNSEEN: 1}


def test_poll_skips_the_first_record() -> None:
    history = History().fail(0).ack(1, 1).poll(1, 1, 1)
    assert found(history.final((0, 1, 0, 0, 1), (1, 1, 0, 1, 1))) == only(Anomaly.POLL_SKIP, 2)


def test_offsets_without_records_are_not_skipped() -> None:
    history = History().ack(0, 0).ack(1, 2).poll(0, 1, 0).poll(2, 1, 1)
    assert found(history.final((0, 1, 0, 0, 1), (2, 1, 0, 1, 1))) == {}


def test_unseen_record() -> None:
    history = History().ack(0, 0, 2).poll(0, 2, 0, consumers=(0,)).poll(0, 1, 0, consumers=(1,))
    assert found(history.final((0, 2, 0, 0, 1))) == only(Anomaly.UNSEEN)


def test_incomplete_final_reading_leaves_records_unseen() -> None:
    history = History().ack(0, 0).poll(0, 1, 0)
    assert found(history.checker.verdict()) == only(Anomaly.UNSEEN)


# Further anomalies


def test_reordered_records() -> None:
    history = History().ack(1, 0).ack(0, 1).poll(0, 1, 1).poll(1, 1, 0)
    assert found(history.final((0, 1, 0, 1, 1), (1, 1, 0, 0, 1))) == only(Anomaly.REORDERED)


def test_record_that_no_producer_sent() -> None:
    history = History().ack(0, 0).poll(0, 2, 0)
    assert found(history.final((0, 2, 0, 0, 1))) == only(Anomaly.UNKNOWN_RECORD)


def test_record_of_an_unknown_producer() -> None:
    history = History().poll(0, 1, 0, producer=7, consumers=(0,))
    history.checker.strange(Strange(0, 0, 1, "a value of 3 bytes"))
    assert found(history.final()) == only(Anomaly.UNKNOWN_RECORD, 2)


def test_records_of_an_unfinished_producer_are_not_unknown() -> None:
    history = History().poll(0, 1, 0)
    history.checker.final(Polled(0, 0, 0, 1, 0, 0, 1))
    assert history.checker.verdict(all_sent=False).is_clean


def test_epochs_decrease_along_the_log() -> None:
    history = History().ack(0, 0, 2).poll(0, 1, 0, epoch=2).poll(1, 1, 1, epoch=1)
    assert found(history.final((0, 1, 0, 0, 2), (1, 1, 0, 1, 1))) == only(Anomaly.EPOCH_REGRESSION)


def test_truncation_without_permitted_losses() -> None:
    history = History().ack(0, 0).poll(0, 1, 0).cut(1, 0, consumers=(1,)).poll(0, 1, 0, consumers=(1,))
    assert found(history.final((0, 1, 0, 0, 1))) == only(Anomaly.TRUNCATION)


# Permitted losses


def test_suffix_overwritten_by_a_later_epoch_is_permitted() -> None:
    history = History(LOSSY).ack(0, 0, 4).poll(0, 3, 0, epoch=1)  # 3 was acknowledged and never polled
    history.cut(3, 2).ack(0, 2, 2, producer=1).poll(2, 2, 0, producer=1, epoch=2)
    findings = history.final((0, 2, 0, 0, 1), (2, 2, 1, 0, 2))
    assert found(findings) == {}
    assert (findings.permitted_losses, findings.loss_windows, findings.truncations) == (2, 1, {0: 1, 1: 1})


def test_suffix_beyond_the_end_of_a_later_epoch_is_permitted() -> None:
    history = (
        History(LOSSY).ack(0, 0, 5).poll(0, 1, 0, epoch=1).ack(0, 1, producer=1).poll(1, 1, 0, producer=1, epoch=2)
    )
    findings = history.final((0, 1, 0, 0, 1), (1, 1, 1, 0, 2))
    assert found(findings) == {}
    assert findings.permitted_losses == 4


def test_loss_within_an_epoch_is_not_permitted() -> None:
    history = History(LOSSY).ack(0, 0, 3).poll(0, 3, 0, epoch=1).cut(3, 1).ack(0, 1, producer=1)
    findings = history.final((0, 1, 0, 0, 1), (1, 1, 1, 0, 1), (2, 1, 0, 2, 1))
    assert found(findings)[Anomaly.LOST_WRITE] == 1
    assert found(findings)[Anomaly.INCONSISTENT_OFFSETS] >= 1


def test_loss_of_a_record_of_the_remaining_epoch_is_not_permitted() -> None:
    history = History(LOSSY).ack(0, 0, 2).poll(0, 2, 0, epoch=1).cut(2, 1)
    assert found(history.final((0, 1, 0, 0, 1)))[Anomaly.LOST_WRITE] == 1


def test_loss_without_a_later_epoch_is_not_permitted() -> None:
    assert found(History(LOSSY).ack(0, 0).final()) == only(Anomaly.LOST_WRITE)


@pytest.mark.parametrize(("acked_ms", "expected"), [(1500, {}), (2500, only(Anomaly.LOST_WRITE))])
def test_old_leader_may_acknowledge_for_a_limited_time(acked_ms: int, expected: dict[Anomaly, int]) -> None:
    history = History(LOSSY).ack(0, 0, producer=1).poll(0, 1, 0, producer=1, epoch=2, at_ms=1000)
    history.ack(0, 0, at_ms=acked_ms)
    assert found(history.final((0, 1, 1, 0, 2))) == expected


def test_consumer_misses_a_truncation() -> None:
    history = History(LOSSY).ack(0, 0, 2).poll(0, 2, 0, epoch=1).cut(2, 1, consumers=(0,))
    history.ack(0, 1, 2, producer=1).poll(1, 2, 0, producer=1, epoch=2, consumers=(0,))
    history.poll(2, 1, 1, producer=1, epoch=2, consumers=(1,))
    findings = history.final((0, 1, 0, 0, 1), (1, 2, 1, 0, 2))
    assert found(findings) == {Anomaly.UNDETECTED_TRUNCATION: 1, Anomaly.UNSEEN: 1}


def test_consumer_resets_above_the_truncation() -> None:
    history = History(LOSSY).ack(0, 0, 3).poll(0, 3, 0, epoch=1).cut(3, 1, consumers=(0,)).cut(3, 2, consumers=(1,))
    history.ack(0, 1, 2, producer=1).poll(1, 1, 0, producer=1, epoch=2, consumers=(0,)).poll(
        2, 1, 1, producer=1, epoch=2
    )
    findings = history.final((0, 1, 0, 0, 1), (1, 2, 1, 0, 2))
    assert found(findings) == {Anomaly.UNDETECTED_TRUNCATION: 1, Anomaly.UNSEEN: 1}


def test_poll_from_an_old_leader_is_a_permitted_loss() -> None:
    history = History(LOSSY).ack(0, 0, producer=1).poll(0, 1, 0, producer=1, epoch=2, consumers=(0,))
    history.ack(0, 0).poll(0, 1, 0, epoch=1, consumers=(1,)).cut(1, 0, consumers=(1,))
    history.poll(0, 1, 0, producer=1, epoch=2, consumers=(1,))
    findings = history.final((0, 1, 1, 0, 2))
    assert found(findings) == {}
    assert findings.permitted_losses == 1


def test_duplicate_is_an_anomaly_even_with_permitted_losses() -> None:
    history = History(LOSSY).ack(0, 0).poll(0, 1, 0).poll(1, 1, 0, epoch=2)
    assert Anomaly.DUPLICATE in found(history.final((0, 1, 0, 0, 1), (1, 1, 0, 0, 2)))


def test_duplicates_without_idempotence_are_permitted() -> None:
    history = History(Rules(lossy=True, idempotent=False)).ack(0, 0, 2).poll(0, 2, 0).poll(2, 1, 0)
    findings = history.final((0, 2, 0, 0, 1), (2, 1, 0, 0, 1))
    assert found(findings) == {}
    assert findings.permitted_repeats > 0


def test_unacknowledged_records_may_be_repeated_in_another_producer_epoch() -> None:
    history = History().ack(0, 0, 2).poll(0, 3, 0).poll(3, 1, 2)
    history.checker.renumbered(0, Renumbered(0, 0, 1, 2))
    history.ack(2, 3)
    findings = history.final((0, 3, 0, 0, 1), (3, 1, 0, 2, 1))
    assert found(findings) == {}
    assert findings.permitted_repeats == 2  # one duplicate, and the order of its copy


def test_acknowledged_records_may_not_be_repeated_in_another_producer_epoch() -> None:
    history = History().ack(0, 0, 3).poll(0, 3, 0).poll(3, 1, 1)
    history.checker.renumbered(0, Renumbered(0, 0, 1, 2))
    assert found(history.final((0, 3, 0, 0, 1), (3, 1, 0, 1, 1))) == {Anomaly.DUPLICATE: 1, Anomaly.REORDERED: 1}


# Rereaders, and bounded logs

GAPLESS = Rules(gapless=True)
BOUNDED = Rules(gapless=True, bounded=True)


class Rereading:
    """One partition, one producer, no consumer, and one rereader."""

    def __init__(self, rules: Rules = GAPLESS, acknowledged: int = 10) -> None:
        self.checker = Checker(partitions=1, producers=1, consumers=0, rules=rules, rereaders=1)
        self.checker.acked(0, Acked(0, 0, 0, acknowledged, 0))
        self.checker.failed(0, Failed(0, 0, 10 - acknowledged, acknowledged, "timed out"))

    def read(self, start: int, *runs: tuple[int, int]) -> "Rereading":
        """Read runs of (offset, count) in one pass."""
        self.checker.began(0, Began(0, 0, start))
        for offset, count in runs:
            self.checker.polled(0, Polled(0, 0, offset, count, 0, offset, 1))
        return self

    def final(self, start: int, *runs: tuple[int, int], end: int = 10) -> Findings:
        self.checker.final(Began(0, 0, start))
        for offset, count in runs:
            self.checker.final(Polled(0, 0, offset, count, 0, offset, 1))
        self.checker.final(Ended(0, 0, end))
        return self.checker.verdict()


def test_rereader_restarts_at_the_log_start() -> None:
    findings = Rereading().read(0, (0, 7)).read(0, (0, 3), (3, 7)).final(0, (0, 10))
    assert found(findings) == {}
    assert (findings.reread, findings.kept) == (17, 10)


def test_rereader_may_stop_before_the_end() -> None:
    rereading = Rereading().read(0, (0, 2))
    rereading.checker.final(Ended(0, 0, 10))
    assert rereading.checker.lag() == 0
    assert found(Rereading().read(0, (0, 2)).final(0, (0, 10))) == {}


def test_rereader_skips_or_repeats_a_record() -> None:
    assert found(Rereading().read(0, (0, 2), (3, 7)).final(0, (0, 10))) == only(Anomaly.POLL_SKIP)
    assert found(Rereading().read(0, (0, 2), (1, 9)).final(0, (0, 10))) == only(Anomaly.NONMONOTONIC_POLL)
    assert found(Rereading().read(0, (2, 8)).final(0, (0, 10))) == only(Anomaly.POLL_SKIP)


def test_rereading_returns_another_record() -> None:
    rereading = Rereading().read(0, (0, 10))
    rereading.checker.began(0, Began(0, 0, 0))
    rereading.checker.polled(0, Polled(0, 0, 0, 1, 0, 5, 1))
    assert Anomaly.INCONSISTENT_OFFSETS in found(rereading.final(0, (0, 10)))


def test_unbounded_log_starts_at_0() -> None:
    assert found(Rereading().read(4, (4, 6)).final(0, (0, 10))) == only(Anomaly.LOG_START, 2), "late, then decreasing"
    assert found(Rereading().final(4, (4, 6))) == {Anomaly.LOG_START: 1, Anomaly.LOST_WRITE: 4}


def test_bounded_log_may_lose_only_its_beginning() -> None:
    assert found(Rereading(BOUNDED).read(0, (0, 10)).read(4, (4, 6)).final(6, (6, 4))) == {}
    assert found(Rereading(BOUNDED).final(6, (6, 3), end=9)) == only(Anomaly.LOST_WRITE)


def test_log_start_of_a_bounded_log_never_decreases() -> None:
    assert found(Rereading(BOUNDED).read(4, (4, 6)).final(3, (3, 7))) == only(Anomaly.LOG_START)


def test_log_with_a_hole() -> None:
    findings = Rereading(acknowledged=5).final(0, (0, 5), (7, 3))
    assert found(findings) == only(Anomaly.HOLE), "the record at offset 5 is unknown"
    assert found(Rereading(acknowledged=5).final(0, (0, 5))) == only(Anomaly.HOLE), "the reading ends before 10"


def test_every_anomaly_is_covered_by_these_tests() -> None:
    with open(__file__) as source:
        text = source.read()
    assert [anomaly for anomaly in Anomaly if f"Anomaly.{anomaly.name}" not in text] == []


def test_checker_holds_a_million_records_in_little_memory() -> None:
    checker = Checker(partitions=1, producers=1, consumers=1, rules=Rules())
    for at in range(0, 1_000_000, 1000):
        checker.acked(0, Acked(0, 0, at, 1000, at))
        checker.polled(0, Polled(0, 0, at, 1000, 0, at, 1))
        checker.final(Polled(0, 0, at, 1000, 0, at, 1))
    checker.final(Ended(0, 0, 1_000_000))
    assert checker.verdict().is_clean
    assert checker.records == 1_000_000
