"""Readers of a subscription: whole topics or one partition without a group, or the assignment of a group member."""

import time
from collections.abc import Iterator

from broker.cli.console.fetcher import ConsumerRecord, Fetcher
from broker.cli.console.membership import GroupMembership, MemberSettings
from broker.cli.console.properties import is_true, number
from broker.cli.shared.cluster_view import topic_pattern
from broker.cli.shared.failure import CommandFailed
from broker.client import Client
from protocol.errors import ErrorCode
from protocol.lazy_dataclass import lazy_dataclass
from storage.directories.checkpoints import TopicPartition

NEW_TOPIC = frozenset({ErrorCode.UNKNOWN_TOPIC_OR_PARTITION})


@lazy_dataclass(frozen=True, slots=True)
class Subscription:
    """The partitions to read and their start. `partition` None: all; `start` applies where no offset is committed."""

    topic: str | None
    include: str | None
    partition: int | None
    start: int


class AssignedReader:
    """Reader of whole topics, or of one partition, without a group."""

    def __init__(self, client: Client, fetcher: Fetcher, subscription: Subscription) -> None:
        partitions = _partitions(client, subscription)
        fetcher.assign(dict.fromkeys(partitions, subscription.start))

    def keep_alive(self) -> None:
        """Do nothing: a reader without a group has no heartbeats."""

    def close(self) -> None:
        """Do nothing: a reader without a group holds no assignment."""


class GroupReader:
    """Reader of a group member's assignment. Commits by interval, before a rebalance, and at the end.

    `rebalance_s` is the time that all joins took.
    """

    def __init__(
        self,
        client: Client,
        fetcher: Fetcher,
        subscription: Subscription,
        settings: MemberSettings,
        consumer: dict[str, str],
    ) -> None:
        self.rebalance_s = 0.0
        self._fetcher = fetcher
        self._start = subscription.start
        self._topics = sorted({partition.topic for partition in _partitions(client, subscription)})
        self._member = GroupMembership(client, settings)
        self._commits = is_true(consumer, "enable.auto.commit", True)
        self._interval = number(consumer, "auto.commit.interval.ms", 5_000) / 1000
        self._commit_due = time.monotonic() + self._interval
        self._committed: dict[TopicPartition, int] = {}
        self._join()

    def keep_alive(self) -> None:
        """Send heartbeats and commits when they are due; rejoin when the group rebalances."""
        if time.monotonic() >= self._commit_due:
            self._commit()
        if not self._member.keep_alive():
            self._commit()
            self._join()

    def close(self) -> None:
        self._commit()
        self._member.leave()

    def _join(self) -> None:
        begun = time.monotonic()
        assigned = self._member.join(self._topics)
        self.rebalance_s += time.monotonic() - begun
        committed = self._member.committed(assigned)
        self._fetcher.assign({partition: committed.get(partition, self._start) for partition in assigned})
        self._committed = dict(committed)

    def _commit(self) -> None:
        self._commit_due = time.monotonic() + self._interval
        moved = {p: offset for p, offset in self._fetcher.positions.items() if self._committed.get(p) != offset}
        if self._commits and self._member.commit(moved):
            self._committed |= moved


def _partitions(client: Client, subscription: Subscription) -> list[TopicPartition]:
    """Return the partitions to read. Raises CommandFailed if the pattern or the partition matches nothing."""
    if subscription.include is not None:
        try:
            pattern = topic_pattern(subscription.include)
        except ValueError as error:
            raise CommandFailed(str(error)) from error
        topics = [topic for topic in client.metadata().topics if pattern.fullmatch(topic.name or "")]
    else:
        name = subscription.topic or ""
        topics = list(client.retrying(lambda: client.leaders([name], auto_create=True), NEW_TOPIC).values())
    found = [TopicPartition(t.name or "", p.partition_index) for t in topics for p in t.partitions]
    if subscription.partition is None:
        return found
    chosen = [partition for partition in found if partition.partition == subscription.partition]
    if not chosen:
        raise CommandFailed(f"topic {subscription.topic} has no partition {subscription.partition}.")
    return chosen


def member_settings(group: str, consumer: dict[str, str]) -> MemberSettings:
    return MemberSettings(
        group=group,
        instance_id=consumer.get("group.instance.id"),
        session_timeout_ms=number(consumer, "session.timeout.ms", 45_000),
        rebalance_timeout_ms=number(consumer, "max.poll.interval.ms", 300_000),
        heartbeat_interval_ms=number(consumer, "heartbeat.interval.ms", 3_000),
    )


def no_records() -> Iterator[ConsumerRecord]:
    """Wait as long as a poll, so that a member without partitions sends its heartbeats."""
    time.sleep(0.1)
    return iter(())
