"""Rules about transactions, groups and remote storage. Pure."""

from collections.abc import Iterator
from typing import Final

from broker.cli.diagnosis.facts import REBALANCING, BrokerFacts, ClusterFacts
from broker.cli.diagnosis.finding import ClusterFinding, Severity, bytes_text, counted, duration_text, listed

REBALANCE_MS_MAX: Final = 10_000
"""Time between two samples, both within a rebalance, from which a group counts as never finishing it."""
COPY_LAG_SEGMENTS_MAX: Final = 10
"""Segments that may wait to be copied on one broker: a roll of many partitions at once leaves a few."""


def work_findings(now: ClusterFacts, before: ClusterFacts | None) -> Iterator[ClusterFinding]:
    """Yield the findings about the work that clients and background tasks do."""
    yield from _hanging(now)
    if before is not None:
        yield from _rebalancing(now, before)
    yield from _remote_failures(now, before)
    yield from _remote_lag(now, before)


def _hanging(facts: ClusterFacts) -> Iterator[ClusterFinding]:
    if not facts.hanging:
        return
    found = sorted(facts.hanging, key=lambda each: each.last_timestamp_ms)
    names = [f"{each.partition} from offset {each.start_offset}" for each in found]
    oldest = duration_text(facts.time_ms - found[0].last_timestamp_ms)
    topic, _, index = found[0].partition.rpartition("-")
    yield ClusterFinding(
        Severity.CRITICAL,
        "hanging-transactions",
        f"partition {found[0].partition}" if len(found) == 1 else counted(len(found), "transaction"),
        f"{counted(len(found), 'open transaction')} that no coordinator will end: {listed(names)}; the oldest was last "
        f"written {oldest} ago. Consumers with isolation.level=read_committed stop there, and compaction does too.",
        "Abort each in its partition.",
        f"ottla transactions abort --topic {topic} --partition {index} --start-offset {found[0].start_offset}",
        len(found),
        names,
    )


def _rebalancing(now: ClusterFacts, before: ClusterFacts) -> Iterator[ClusterFinding]:
    elapsed_ms = now.time_ms - before.time_ms
    if elapsed_ms < REBALANCE_MS_MAX:
        return
    earlier = {group.id for group in before.groups if group.state in REBALANCING}
    stuck = sorted(group for group in now.groups if group.state in REBALANCING and group.id in earlier)
    if not stuck:
        return
    names = [f'"{group.id}" ({group.state})' for group in stuck]
    verb = "has" if len(stuck) == 1 else "have"
    yield ClusterFinding(
        Severity.WARNING,
        "stuck-rebalance",
        f'group "{stuck[0].id}"' if len(stuck) == 1 else counted(len(stuck), "group"),
        f"{counted(len(stuck), 'group')} {verb} been within a rebalance for {duration_text(elapsed_ms)} or longer: "
        f"{listed(names)}. Members of classic groups receive no records meanwhile.",
        "Look for a member that does not join again: records whose processing takes longer than max.poll.interval.ms, "
        "or members that come and go. The rebalance ends without the member after its rebalance timeout.",
        f"ottla consumer-groups --describe --members --group {stuck[0].id}",
        len(stuck),
        [group.id for group in stuck],
    )


def _remote_failures(now: ClusterFacts, before: ClusterFacts | None) -> Iterator[ClusterFinding]:
    """Yield brokers whose copies failed while segments still wait, and brokers whose reads fail at present."""
    copying = [
        broker
        for broker in now.live
        if broker.node and broker.node.remote_copy_errors > 0 and broker.node.remote_copy_lag_segments > 0
    ]
    if copying:
        errors = sum(broker.node.remote_copy_errors for broker in copying if broker.node)
        waiting = sum(broker.node.remote_copy_lag_segments for broker in copying if broker.node)
        size = sum(broker.node.remote_copy_lag_bytes for broker in copying if broker.node)
        yield ClusterFinding(
            Severity.CRITICAL,
            "remote-copy-failures",
            _brokers(copying),
            f"{_brokers(copying)[0].upper()}{_brokers(copying)[1:]}: {counted(errors, 'copy', 'copies')} to remote "
            f"storage failed since the start, and {counted(waiting, 'segment')} ({bytes_text(size)}) wait. Local logs "
            "grow until copies succeed.",
            "Look for the reason in the log of these brokers (logger storage.tiered): credentials, bucket, network.",
            "ottla remote describe",
            len(copying),
            [str(broker.id) for broker in copying],
        )
    failing = [
        broker
        for broker in now.live
        if (earlier := _earlier(broker, before)) is not None
        and broker.node is not None
        and earlier.node is not None
        and broker.node.remote_fetch_errors > earlier.node.remote_fetch_errors
        and broker.node.uptime_ms > earlier.node.uptime_ms
    ]
    if failing:
        yield ClusterFinding(
            Severity.CRITICAL,
            "remote-read-failures",
            _brokers(failing),
            f"Reads from remote storage fail at present on {_brokers(failing)}. Consumers of old records stop.",
            "Look for the reason in the log of these brokers, and compare bucket and metadata.",
            "ottla remote verify",
            len(failing),
            [str(broker.id) for broker in failing],
        )


def _remote_lag(now: ClusterFacts, before: ClusterFacts | None) -> Iterator[ClusterFinding]:
    """Yield brokers with a long queue of segments that does not become shorter. Failed copies have a finding."""
    found = []
    for broker in now.live:
        node, earlier = broker.node, _earlier(broker, before)
        if node is None or node.remote_copy_errors > 0 or node.remote_copy_lag_segments < COPY_LAG_SEGMENTS_MAX:
            continue
        if earlier is None or earlier.node is None or earlier.node.remote_copy_lag_bytes <= node.remote_copy_lag_bytes:
            found.append(broker)
    if found:
        segments = sum(broker.node.remote_copy_lag_segments for broker in found if broker.node)
        size = sum(broker.node.remote_copy_lag_bytes for broker in found if broker.node)
        yield ClusterFinding(
            Severity.WARNING,
            "remote-copy-lag",
            _brokers(found),
            f"{counted(segments, 'segment')} ({bytes_text(size)}) on {_brokers(found)} wait to be copied to remote "
            "storage, and the queue does not become shorter.",
            "Raise remote.log.manager.copier.thread.pool.size, or remote.log.manager.copy.max.bytes.per.second if it "
            "limits the copies.",
            "ottla remote describe",
            len(found),
            [str(broker.id) for broker in found],
        )


def _earlier(broker: BrokerFacts, before: ClusterFacts | None) -> BrokerFacts | None:
    return None if before is None else next((each for each in before.brokers if each.id == broker.id), None)


def _brokers(found: list[BrokerFacts]) -> str:
    ids = [broker.id for broker in found]
    return f"broker {ids[0]}" if len(ids) == 1 else f"brokers {listed(ids)}"
