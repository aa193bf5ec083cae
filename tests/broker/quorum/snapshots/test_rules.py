"""Snapshot trigger, log start offset and page positions (KIP-630, `broker.quorum.snapshots.rules`)."""

from math import inf
from random import Random

import pytest

from broker.quorum.settings import StoredSnapshot
from broker.quorum.snapshots.rules import (
    LogFacts,
    SlowReplicaWait,
    SnapshotReason,
    SnapshotTrigger,
    TriggerSettings,
    TrimRule,
    position_error,
)
from protocol.errors import ErrorCode
from tests.support.quorum_values import make_snapshot_id

HOUR = 3_600_000
NOW = 1_700_000_000_000


def trigger(*, ratio: float = 0.5, min_bytes: int = 1000, interval_ms: int = HOUR, records: int = 0) -> SnapshotTrigger:
    """Return a trigger whose last snapshot, with this number of records, was loaded at time 0."""
    made = SnapshotTrigger(TriggerSettings(min_changed_ratio=ratio, min_bytes=min_bytes, interval_ms=interval_ms), 0)
    if records:
        made.on_snapshot(records, 0)
    return made


# Snapshot trigger


def test_first_snapshot_is_due_by_bytes_alone() -> None:
    first = trigger()
    first.on_log_read(999)
    assert first.reason(0) is None
    first.on_log_read(1)
    assert first.reason(0) is SnapshotReason.CHANGES


def test_empty_snapshot_leaves_the_bytes_as_only_condition() -> None:
    empty = trigger()
    empty.begin(0)
    empty.end(0)
    empty.on_log_read(1000)
    assert empty.reason(0) is SnapshotReason.CHANGES


@pytest.mark.parametrize(
    ("size", "changed", "due"), [(999, 100, False), (1000, 49, False), (1000, 50, True), (5000, 200, True)]
)
def test_later_snapshots_need_bytes_and_changes(size: int, changed: int, due: bool) -> None:
    later = trigger(records=100)
    later.on_log_read(size)
    later.on_changed(changed)
    assert (later.reason(0) is SnapshotReason.CHANGES) is due


def test_additions_alone_do_not_make_a_snapshot_due() -> None:
    later = trigger(records=1, interval_ms=0)
    later.on_log_read(10**9)
    assert later.reason(1000 * HOUR) is None


def test_changes_below_the_minimum_bytes_do_not_make_a_snapshot_due() -> None:
    later = trigger(records=1)
    for _ in range(9):
        later.on_log_read(100)
        later.on_changed(1)
        assert later.reason(0) is None
    later.on_log_read(100)
    later.on_changed(1)
    assert later.reason(0) is SnapshotReason.CHANGES


def test_ratio_of_zero_leaves_the_bytes_as_only_condition() -> None:
    later = trigger(ratio=0.0, records=100)
    later.on_log_read(1000)
    assert later.reason(0) is SnapshotReason.CHANGES


def test_interval_makes_a_snapshot_due_after_new_commits() -> None:
    later = trigger(records=100)
    assert later.deadline == inf
    assert later.reason(2 * HOUR) is None
    later.on_log_read(1)
    assert later.deadline == HOUR
    assert later.reason(HOUR - 1) is None
    assert later.reason(HOUR) is SnapshotReason.TIME


def test_request_makes_a_snapshot_due() -> None:
    later = trigger(records=100, interval_ms=0)
    later.request()
    assert later.reason(0) is SnapshotReason.REQUEST
    later.begin(0)
    later.end(100)
    assert later.reason(0) is None


def test_changes_during_generation_count_for_the_next_snapshot() -> None:
    later = trigger(records=100)
    later.on_log_read(5000)
    later.on_changed(100)
    later.begin(10)
    later.on_log_read(1000)
    later.on_changed(50)
    later.request()
    assert later.reason(2 * HOUR) is None
    assert later.deadline == inf
    later.end(100)
    assert later.reason(10) is SnapshotReason.REQUEST
    later.begin(10)
    later.end(101)
    assert later.reason(10 + HOUR) is None


def test_changes_of_a_failed_snapshot_count_again() -> None:
    later = trigger(records=100)
    later.on_log_read(900)
    later.on_changed(40)
    later.begin(10)
    later.on_log_read(100)
    later.on_changed(10)
    later.fail()
    assert later.reason(10) is SnapshotReason.CHANGES


def test_loaded_snapshot_resets_the_trigger() -> None:
    later = trigger(records=1)
    later.on_log_read(5000)
    later.on_changed(100)
    later.on_snapshot(1000, 50)
    assert later.reason(50) is None
    later.on_log_read(1000)
    later.on_changed(499)
    assert later.reason(50) is None
    assert later.deadline == 50 + HOUR


@pytest.mark.parametrize("seed", range(50))
def test_trigger_agrees_with_a_list_of_all_events(seed: int) -> None:
    random = Random(seed)
    made, now = trigger(), 0.0
    since: list[tuple[int, int]] = []
    covered: list[tuple[int, int]] | None = None
    records, began, is_requested = 0, 0.0, False
    for _ in range(300):
        now += random.randrange(HOUR // 10)
        match random.randrange(8):
            case 0 if covered is not None:
                made.end(records := random.randrange(50))
                covered = None
            case 1 if covered is not None:
                made.fail()
                since, covered = covered + since, None
            case 2 if covered is None and made.reason(now):
                made.begin(now)
                covered, since, began, is_requested = since, [], now, False
            case 3 if random.random() < 0.1:
                made.request()
                is_requested = True
            case _:
                change = random.randrange(300), random.randrange(5)
                made.on_log_read(change[0])
                made.on_changed(change[1])
                since.append(change)
        size, changed = sum(each[0] for each in since), sum(each[1] for each in since)
        by_changes = size >= 1000 and (records == 0 or changed / records >= 0.5)
        by_time = size > 0 and now - began >= HOUR
        assert made.is_due(now) is (covered is None and (is_requested or by_changes or by_time))


# Log start offset


def snapshot(end: int, *, age_ms: int = 0, size: int = 10) -> StoredSnapshot:
    return StoredSnapshot(make_snapshot_id(end, 1), size, NOW - age_ms)


def rule(*, retention_bytes: int = 0, retention_ms: int = -1) -> TrimRule:
    """Return a rule whose retention by default deletes everything."""
    return TrimRule(retention_bytes=retention_bytes, retention_ms=retention_ms)


def log(*snapshots: StoredSnapshot, start: int = 0, end: int = 1000) -> LogFacts:
    """Return a log with one byte per offset."""
    return LogFacts(start, end, end - start, snapshots)


def on_leader(a_rule: TrimRule, facts: LogFacts, *live: int, waited_end: int = -1) -> int | None:
    found = a_rule.on_leader(facts, live, waited_end, NOW)
    return None if found is None else found.end_offset


def test_log_without_a_snapshot_is_not_trimmed() -> None:
    assert on_leader(rule(), log(), 1000, 1000) is None
    assert on_leader(rule(), log(snapshot(300), start=300), 1000) is None


@pytest.mark.parametrize(
    ("live", "start"), [((), 600), ((1000, 600), 600), ((1000, 599), 300), ((299, 1000), None), ((1000, -1), None)]
)
def test_leader_trims_to_a_snapshot_that_all_live_replicas_passed(live: tuple[int, ...], start: int | None) -> None:
    assert on_leader(rule(), log(snapshot(300), snapshot(600)), *live) == start


def test_leader_does_not_wait_below_the_waited_end() -> None:
    facts = log(snapshot(300), snapshot(600), snapshot(900))
    assert on_leader(rule(), facts, 0, waited_end=600) == 600
    assert on_leader(rule(), facts, 900, waited_end=600) == 900


def test_wait_for_slow_replicas_ends_after_the_lag_limit() -> None:
    wait = SlowReplicaWait(10 * HOUR)
    first, second = snapshot(300), snapshot(600)
    assert wait.waited_end([first], 5.0) == -1
    assert wait.waited_end([first, second], 5.0 + HOUR) == -1
    assert wait.waited_end([first, second], 4.0 + 10 * HOUR) == -1
    assert wait.waited_end([first, second], 5.0 + 10 * HOUR) == 300
    assert wait.waited_end([second], 5.0 + 11 * HOUR) == 600


def test_wait_for_slow_replicas_does_not_depend_on_the_wall_clock() -> None:
    """The header of a snapshot has the wall-clock time of its last record."""
    wait = SlowReplicaWait(10 * HOUR)
    old, ahead = snapshot(300, age_ms=100 * HOUR), snapshot(600, age_ms=-100 * HOUR)
    assert wait.waited_end([old, ahead], 0.0) == -1
    assert wait.waited_end([old, ahead], 10.0 * HOUR) == 600


def test_leader_trims_only_as_retention_requires() -> None:
    facts = log(snapshot(300), snapshot(600))
    assert on_leader(rule(retention_bytes=1020), facts) is None
    assert on_leader(rule(retention_bytes=1019), facts) == 300
    assert on_leader(rule(retention_bytes=720), facts) == 300, "700 of the log and 20 of snapshots are left"
    assert on_leader(rule(retention_bytes=719), facts) == 600


def test_retention_ms_applies_to_the_oldest_snapshot() -> None:
    old, young = snapshot(300, age_ms=2 * HOUR), snapshot(600, age_ms=1)
    by_age = rule(retention_bytes=-1, retention_ms=HOUR)
    assert on_leader(by_age, log(old, young, start=300)) == 600
    assert on_leader(by_age, log(young, start=0)) is None
    assert on_leader(by_age, log(old, start=0)) == 300
    assert on_leader(rule(retention_bytes=-1, retention_ms=2 * HOUR), log(old, young, start=300)) is None


def test_disabled_retention_trims_nothing() -> None:
    assert on_leader(rule(retention_bytes=-1), log(snapshot(300, age_ms=100 * HOUR))) is None


@pytest.mark.parametrize("seed", range(300))
def test_leader_trim_agrees_with_the_rules(seed: int) -> None:
    random = Random(seed)
    ends = sorted(random.sample(range(1, 1000), random.randrange(6)))
    snapshots = [
        snapshot(end, age_ms=(1000 - end) * random.choice([1, 1000]), size=random.randrange(300)) for end in ends
    ]
    start = random.choice([0, *ends])
    snapshots = [each for each in snapshots if each.id.end_offset >= start]
    facts = LogFacts(start, 1000, (1000 - start) * random.choice([1, 3]), snapshots)
    live = [random.choice([-1, 1000, random.randrange(1000)]) for _ in range(random.randrange(4))]
    waited_end = random.choice([-1, random.randrange(1000)])
    a_rule = rule(
        retention_bytes=random.choice([-1, 0, random.randrange(3000)]),
        retention_ms=random.choice([-1, random.randrange(1_000_000)]),
    )

    def may_reach(x: StoredSnapshot) -> bool:
        before = [each for each in snapshots if start < each.id.end_offset < x.id.end_offset]
        origin = before[-1].id.end_offset if before else start
        if x.id.end_offset > waited_end and any(end < x.id.end_offset for end in live):
            return False
        kept = sum(each.size for each in snapshots if each.id.end_offset >= origin)
        too_large = kept + facts.bytes * (1000 - origin) // (1000 - start) > a_rule.retention_bytes >= 0
        at_origin = [each for each in snapshots if each.id.end_offset == origin]
        oldest = NOW - (at_origin or [x])[0].timestamp_ms
        too_old = a_rule.retention_ms >= 0 and oldest > a_rule.retention_ms
        return (too_large or too_old) and all(may_reach(each) for each in before)

    reachable = [each.id for each in snapshots if each.id.end_offset > start and may_reach(each)]
    assert a_rule.on_leader(facts, live, waited_end, NOW) == (reachable[-1] if reachable else None)


@pytest.mark.parametrize(
    ("leader_start", "start"), [(-1, None), (0, None), (299, None), (300, 300), (599, 300), (600, 600), (5000, 600)]
)
def test_followers_trim_to_their_largest_snapshot_below_the_leaders_start(leader_start: int, start: int | None) -> None:
    found = rule(retention_bytes=-1).on_follower(log(snapshot(300), snapshot(600)), leader_start)
    assert (None if found is None else found.end_offset) == start


def test_followers_never_lower_the_log_start_offset() -> None:
    facts = log(snapshot(300), snapshot(600), start=300)
    assert rule().on_follower(facts, 300) is None
    assert rule().on_follower(log(), 900) is None


# Pages


@pytest.mark.parametrize(("position", "is_right"), [(-1, False), (0, True), (99, True), (100, False), (101, False)])
def test_page_position_must_be_within_the_snapshot(position: int, is_right: bool) -> None:
    assert position_error(position, 100) is (ErrorCode.NONE if is_right else ErrorCode.POSITION_OUT_OF_RANGE)
