"""Subscriptions by regular expression: when to look up the matching topics, and what a look-up changes.

Matching takes time, so a heartbeat only asks for it: the driver evaluates the expressions elsewhere and returns the
result as a command. All expressions of a group are looked up together. A look-up starts, at most one per group at a
time and one per 10 s, when

1. an expression has no result yet, or
2. topics have been created since the last result, or
3. the last result is older than `group.consumer.regex.refresh.interval.ms`.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

from broker.coordination.shard import CoordinatorResult
from broker.coordination.timers import CoordinatorClock
from broker.groups.consumer.environment import REGEX_BATCH_INTERVAL_MS, ConsumerGroupEnvironment
from broker.groups.consumer.group import ConsumerGroup
from broker.groups.consumer.member import ConsumerGroupMember
from broker.groups.consumer.records import (
    ConsumerGroupRecord,
    ResolvedRegex,
    epoch_written,
    regex_removed,
    regex_resolved,
)
from broker.groups.consumer.table import ConsumerGroupTable
from broker.groups.consumer.topics import metadata_hash


class RegexLookup(NamedTuple):
    """A group's expressions, whose topics must be looked up."""

    group_id: str
    regexes: frozenset[str]


class RegexSubscriptions:
    """Keeps the results of a shard's expressions. `newest_topic_offset` is the metadata offset of the last creation."""

    def __init__(
        self, groups: ConsumerGroupTable, environment: ConsumerGroupEnvironment, clock: CoordinatorClock
    ) -> None:
        self._groups = groups
        self._environment = environment
        self._clock = clock
        self._running: set[str] = set()
        self._due: list[RegexLookup] = []
        self.newest_topic_offset = -1

    def take_due(self) -> list[RegexLookup]:
        """Return the look-ups to start, each once."""
        due, self._due = self._due, []
        return due

    def update(
        self,
        group: ConsumerGroup,
        before: ConsumerGroupMember | None,
        after: ConsumerGroupMember,
        records: list[ConsumerGroupRecord],
    ) -> bool:
        """Apply a member's change of expression. Return whether the group epoch must be incremented for it."""
        old, new = "" if before is None else before.topic_regex, after.topic_regex
        if old == new:
            if new:
                self._look_up_if_due(group, frozenset((new,)), without="")
            return False
        is_last = bool(old) and group.counts.regex_count(old) == 1
        if is_last and old in group.regexes:
            records.append(regex_removed(group.group_id, old))
        is_known = bool(new) and group.counts.regex_count(new) > 0
        if new:
            self._look_up_if_due(group, frozenset((new,)), without=old if is_last else "", is_new=not is_known)
        return True

    def resolve(self, group_id: str, results: Mapping[str, ResolvedRegex] | None) -> CoordinatorResult[Any, None]:
        """Write the results of a look-up; None when it failed, after which the next heartbeat may start another."""
        self._running.discard(group_id)
        group = self._groups.get(group_id)
        if group is None or results is None:
            return CoordinatorResult(None)
        found = {regex: result for regex, result in results.items() if group.counts.regex_count(regex)}
        has_changed = any(
            (former.topics if (former := group.regexes.get(regex)) is not None else frozenset()) != result.topics
            for regex, result in found.items()
        )
        records = [regex_resolved(group_id, regex, result) for regex, result in found.items()]
        if has_changed:
            subscriptions = group.counts.subscriptions
            names = frozenset[str]().union(
                *(
                    own | (found[regex].topics if regex in found else group.topics_of((own, regex)))
                    for own, regex in subscriptions
                )
            )
            new_hash = metadata_hash(self._environment.topics(), names)
            records.append(epoch_written(group_id, group.epoch + 1, new_hash))
        return CoordinatorResult(None, records)

    def _look_up_if_due(self, group: ConsumerGroup, new: frozenset[str], *, without: str, is_new: bool = False) -> None:
        if group.group_id in self._running:
            return
        times = [each.resolved_ms for each in group.regexes.values()] or [0]
        last_version = min((each.version for each in group.regexes.values()), default=-1)
        now_ms = self._clock.now_ms()
        if now_ms <= max(times) + REGEX_BATCH_INTERVAL_MS:
            return
        regexes = frozenset(regex for _, regex in group.counts.subscriptions if regex) - {without} | new
        is_due = (
            is_new
            or any(regex not in group.regexes for regex in regexes)
            or last_version < self.newest_topic_offset
            or now_ms > min(times) + self._environment.regex_refresh_interval_ms
        )
        if is_due:
            self._running.add(group.group_id)
            self._due.append(RegexLookup(group.group_id, regexes))
