"""The removal of members, on their own request or at the end of a timeout, and the end of the initial delay."""

from logging import getLogger
from typing import Any

from broker.coordination.shard import CoordinatorResult
from broker.groups.streams.group import StreamsGroup
from broker.groups.streams.records import streams_epoch_written, streams_member_removed
from broker.groups.streams.table import StreamsGroupTable
from broker.groups.streams.timers import (
    StreamsGroupCause,
    StreamsGroupTimers,
    StreamsInitialDelayOver,
    StreamsSessionExpired,
    TaskRevocationOverdue,
)
from broker.groups.streams.update import STANDBY_CONFIG, target_records
from protocol.errors import ErrorCode

_log = getLogger(__name__)

_NOTHING: CoordinatorResult[Any, None] = CoordinatorResult(None)
_REASONS = {
    StreamsSessionExpired: "its session has expired",
    TaskRevocationOverdue: "it has not given up tasks in time",
}


class StreamsDepartures:
    """Removes members and increments the group epoch, so that the next heartbeat computes a new target."""

    def __init__(self, groups: StreamsGroupTable, timers: StreamsGroupTimers) -> None:
        self._groups = groups
        self._timers = timers

    def on_timer(self, cause: StreamsGroupCause) -> CoordinatorResult[Any, None]:
        """Remove a member whose time is over, or assign the tasks of a group whose initial delay is over."""
        group = self._groups.get(cause.group_id)
        if group is None:
            return _NOTHING
        if isinstance(cause, StreamsInitialDelayOver):
            return _assign_delayed(group)
        if cause.member_id not in group.members:
            return _NOTHING
        if isinstance(cause, TaskRevocationOverdue) and group.current(cause.member_id).epoch != cause.member_epoch:
            return _NOTHING
        _log.info("member removed group=%s member=%s: %s", group.group_id, cause.member_id, _REASONS[type(cause)])
        return self.remove(group, cause.member_id)

    def remove(self, group: StreamsGroup, member_id: str) -> CoordinatorResult[Any, None]:
        """Remove the member. Its timers run on until that is committed."""
        epoch = streams_epoch_written(
            group.group_id,
            group.epoch + 1,
            group.metadata_hash,
            group.validated_topology_epoch,
            group.assignment_configs,
        )

        def on_outcome(_: ErrorCode) -> CoordinatorResult[Any, None]:
            present = self._groups.get(group.group_id)
            if present is None or member_id not in present.members:
                self._timers.end_member(group.group_id, member_id)
            return _NOTHING

        records = [*streams_member_removed(group.group_id, member_id), epoch]
        return CoordinatorResult(None, records, on_outcome=on_outcome)


def _assign_delayed(group: StreamsGroup) -> CoordinatorResult[Any, None]:
    """Compute the first target assignment of a group; the next heartbeat does so where the topics are unknown yet."""
    if group.is_empty or group.configured is None or group.epoch <= group.target_epoch:
        return _NOTHING
    standby_count = int(group.assignment_configs.get(STANDBY_CONFIG, "0"))
    records, _ = target_records(group, group.members, group.configured, group.epoch, standby_count)
    return CoordinatorResult(None, records)
