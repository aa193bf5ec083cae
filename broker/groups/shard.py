"""One partition of `__consumer_offsets` as a state machine: the groups it coordinates and their offsets.

Joins the operations of this package behind the interface that the runtime drives. Holds no rules of its own.
"""

from collections.abc import Callable, Collection
from dataclasses import replace
from typing import Final

from broker.coordination.shard import CoordinatorResult
from broker.coordination.snapshot_records import KeptRecord
from broker.coordination.timers import CoordinatorClock, TimerQueue
from broker.groups.answers import join_refused, sync_refused
from broker.groups.attempt import JoinAttempt
from broker.groups.commit import OffsetCommit
from broker.groups.config import GroupConfig
from broker.groups.consumer.environment import ConsumerGroupEnvironment
from broker.groups.consumer.groups import ConsumerGroups
from broker.groups.consumer.offsets import check_consumer_fetch
from broker.groups.deletion import Deletions
from broker.groups.describe import describe_group, list_groups
from broker.groups.directory import GroupDirectory
from broker.groups.expiry import OffsetExpiry
from broker.groups.fetch import OffsetFetch
from broker.groups.heartbeat import Heartbeat
from broker.groups.join import JoinGroup
from broker.groups.leave import LeaveGroup
from broker.groups.metrics import GroupMetrics
from broker.groups.offsets import OffsetStore
from broker.groups.rebalance import NOTHING, Outcome, Rebalances
from broker.groups.records import GroupEvent, decode_record
from broker.groups.replay import ParkedOffsets, Replay
from broker.groups.share.environment import ShareGroupEnvironment
from broker.groups.share.group import ShareGroup
from broker.groups.share.groups import ShareGroups
from broker.groups.share.timers import ShareSessionExpired
from broker.groups.share.validation import refuse_share_group
from broker.groups.state import Transition, can_rebalance
from broker.groups.streams.environment import StreamsGroupEnvironment
from broker.groups.streams.group import StreamsGroup
from broker.groups.streams.groups import StreamsGroups
from broker.groups.streams.offsets import check_streams_fetch
from broker.groups.streams.timers import StreamsGroupCause
from broker.groups.sync import SyncGroup, SyncReply
from broker.groups.table import GroupTable
from broker.groups.timers import (
    DeletedTopicsDue,
    ExpiryDue,
    GroupCause,
    GroupTimers,
    InitialDelayOver,
    JoinPhaseOver,
    SessionExpired,
    SyncPhaseOver,
)
from broker.groups.transactional_commit import TransactionalOffsetCommit
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.delete_groups import DeletableGroupResult
from protocol.messages.describe_groups import DescribedGroup
from protocol.messages.heartbeat import HeartbeatRequest
from protocol.messages.leave_group import LeaveGroupResponse, MemberIdentity
from protocol.messages.list_groups import ListedGroup
from protocol.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from protocol.messages.offset_delete import OffsetDeleteRequest, OffsetDeleteResponse
from protocol.messages.offset_fetch import OffsetFetchRequestGroup, OffsetFetchResponseGroup
from protocol.messages.sync_group import SyncGroupRequest
from protocol.messages.txn_offset_commit import TxnOffsetCommitRequest, TxnOffsetCommitResponse

_DOWNGRADED: Final = "it was a consumer group until now"

_PARKED_RETRY_MS: Final = 100
"""Pause before the offsets of deleted topics are looked up again, while offsets are parked."""


class GroupShard:
    """The groups of one partition. `new_uuid` supplies the random part of member ids.

    `consumer`, `streams` and `share` hold the settings and look-ups of these groups; without them, they know no topics.
    """

    def __init__(
        self,
        config: GroupConfig,
        clock: CoordinatorClock,
        new_uuid: Callable[[], str],
        consumer: ConsumerGroupEnvironment | None = None,
        streams: StreamsGroupEnvironment | None = None,
        share: ShareGroupEnvironment | None = None,
    ) -> None:
        self.metrics = GroupMetrics()
        self.parking = ParkedOffsets(self._replay_parked)
        self.groups = GroupTable(self.metrics, self.parking.replay_group)
        self.offsets = OffsetStore(self.metrics, self.parking.replay_group)
        self._config = config
        self._clock = clock
        self._queue: TimerQueue[GroupCause] = TimerQueue(clock.monotonic_ms)
        self._timers = GroupTimers(self._queue)
        self._rebalances = Rebalances(self.groups, self._timers, config, clock)
        environment = consumer or ConsumerGroupEnvironment()
        self.consumer_groups = ConsumerGroups(
            self.groups,
            environment,
            self._queue,
            clock,
            new_uuid,
            self._adopt_downgraded,
            is_other=lambda group_id: group_id in self.streams_groups.table or group_id in self.share_groups.table,
        )
        self.streams_groups = StreamsGroups(
            self.groups,
            streams or StreamsGroupEnvironment(),
            self._queue,
            is_other=lambda group_id: group_id in self.consumer_groups.table or group_id in self.share_groups.table,
        )
        self.share_groups = ShareGroups(
            share or ShareGroupEnvironment(),
            self._queue,
            clock,
            is_other=lambda group_id: self.all_groups.find(group_id) is not None,
        )
        self.all_groups = GroupDirectory(
            self.groups, self.consumer_groups.table, self.streams_groups.table, self.share_groups.table
        )
        self._replay = Replay(self.all_groups, self.offsets)
        self._join = JoinGroup(self.groups, self._rebalances, self._timers, config, clock, new_uuid)
        self._sync = SyncGroup(self.groups, self._rebalances, self._timers, self.metrics, clock)
        self._heartbeat = Heartbeat(self.groups, self._timers)
        self._leave = LeaveGroup(self.groups, self._rebalances, self._timers)
        self._commit = OffsetCommit(self.all_groups, self._timers, config, self.metrics, clock)
        self._transactional_commit = TransactionalOffsetCommit(self.all_groups, config, self.metrics, clock)
        self._fetch = OffsetFetch(self.offsets)
        self._deletions = Deletions(self.all_groups, self.offsets, self.metrics)
        self._expiry = OffsetExpiry(self.all_groups, self.offsets, self._timers, config, self.metrics, clock)

    # Interface of every shard.

    @property
    def timers(self) -> TimerQueue[GroupCause]:
        return self._queue

    def decode(self, key: bytes, value: bytes | None) -> GroupEvent | None:
        return decode_record(key, value)

    def replay(self, event: GroupEvent, offset: int, producer_id: int) -> None:
        self._replay.apply(event, offset, producer_id)

    def _replay_parked(self, record: KeptRecord) -> None:
        event = decode_record(record.key, record.value)
        if event is not None:
            self._replay.apply(event, record.offset, record.producer_id)

    def replay_end_transaction(self, producer_id: int, committed: bool) -> None:
        self.offsets.end_transaction(producer_id, committed)

    def on_timer(self, cause: GroupCause) -> Outcome:
        match cause:
            case SessionExpired(group_id, member_id):
                return self._rebalances.on_session_expired(group_id, member_id)
            case InitialDelayOver(group_id, delay_ms, remaining_ms):
                return self._rebalances.on_initial_delay_over(group_id, delay_ms, remaining_ms)
            case JoinPhaseOver(group_id):
                return self._rebalances.on_join_phase_over(group_id)
            case SyncPhaseOver(group_id, generation):
                return self._rebalances.on_sync_phase_over(group_id, generation)
            case DeletedTopicsDue(topics):
                return self.on_topics_deleted(set(topics))
            case ExpiryDue():
                return self._expiry.run(cause)
            case ShareSessionExpired():
                return self.share_groups.on_timer(cause)
            case _ if isinstance(cause, StreamsGroupCause):
                return self.streams_groups.on_timer(cause)
            case _:
                return self.consumer_groups.on_timer(cause)

    def on_loaded(self) -> None:
        """Give every member a new session, shrink groups that exceed a size limit set meanwhile, and start the
        rebalances that former coordinators owe.
        """
        self._expiry.start()
        self.consumer_groups.on_loaded()
        self.streams_groups.on_loaded()
        self.share_groups.on_loaded()
        for group in self.groups:
            for member in group.members.values():
                self._timers.renew_session(group, member)
            if len(group.members) > self._config.group_max_size:
                self._rebalances.prepare(group, "the group is over group.max.size")
            elif group.awaits_rebalance:
                self._rebalances.prepare(group, _DOWNGRADED)

    def on_unloaded(self) -> None:
        self._queue.clear()
        for group in self.groups:
            self.groups.move(group, Transition.UNLOADED, self._clock.now_ms())
            for member in group.members.values():
                group.answer_join(member, join_refused(ErrorCode.NOT_COORDINATOR, member.member_id))
                group.answer_sync(member, sync_refused(ErrorCode.NOT_COORDINATOR))

    # Requests.

    def join_group(self, attempt: JoinAttempt) -> Outcome:
        group = self.all_groups.modern(attempt.group_id)
        if isinstance(group, ShareGroup):
            attempt.refuse(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
            return NOTHING
        if group is None or (group.is_empty and attempt.member_id):
            return self._join.run(attempt)
        if isinstance(group, StreamsGroup):
            if not group.is_empty:
                attempt.refuse(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
                return NOTHING
            tombstones = self.streams_groups.give_way(group)
        else:
            if not group.is_empty:
                return self.consumer_groups.classic_requests.join(group, attempt)
            tombstones = self.consumer_groups.give_way(group)
        outcome = self._join.run(attempt)
        return replace(outcome, records=[*tombstones, *outcome.records], replayed=False)

    def sync_group(self, request: SyncGroupRequest, reply: SyncReply) -> Outcome:
        group = self.consumer_groups.table.get(request.group_id)
        if group is None:
            return self._sync.run(request, reply)
        return self.consumer_groups.classic_requests.sync(group, request, reply)

    def heartbeat(self, request: HeartbeatRequest) -> CoordinatorResult[GroupEvent, ErrorCode]:
        group = self.consumer_groups.table.get(request.group_id)
        if group is None:
            return CoordinatorResult(self._heartbeat.run(request))
        return CoordinatorResult(self.consumer_groups.classic_requests.heartbeat(group, request))

    def leave_group(
        self, group_id: str, leavers: list[MemberIdentity]
    ) -> CoordinatorResult[GroupEvent, LeaveGroupResponse]:
        group = self.consumer_groups.table.get(group_id)
        if group is None:
            return self._leave.run(group_id, leavers)
        return self.consumer_groups.classic_requests.leave(group, leavers)

    def commit_offsets(
        self, request: OffsetCommitRequest, api_version: int
    ) -> CoordinatorResult[GroupEvent, OffsetCommitResponse]:
        return self._commit.run(request, api_version)

    def commit_transactional_offsets(
        self, request: TxnOffsetCommitRequest
    ) -> CoordinatorResult[GroupEvent, TxnOffsetCommitResponse]:
        """Run in the producer's transaction."""
        return self._transactional_commit.run(request)

    def fetch_offsets(
        self, request: OffsetFetchRequestGroup, require_stable: bool
    ) -> CoordinatorResult[GroupEvent, OffsetFetchResponseGroup]:
        group = self.all_groups.modern(request.group_id)
        if isinstance(group, ShareGroup):
            refuse_share_group(group)
        if isinstance(group, StreamsGroup):
            check_streams_fetch(group, request.member_id, request.member_epoch)
        elif group is not None:
            check_consumer_fetch(group, request.member_id, request.member_epoch)
        return CoordinatorResult(self._fetch.run(request, require_stable))

    def delete_offsets(self, request: OffsetDeleteRequest) -> CoordinatorResult[GroupEvent, OffsetDeleteResponse]:
        return self._deletions.delete_offsets(request)

    def delete_group(self, group_id: str) -> CoordinatorResult[GroupEvent, DeletableGroupResult]:
        return self._deletions.delete_group(group_id)

    def list_groups(
        self, states: Collection[str], types: Collection[str]
    ) -> CoordinatorResult[GroupEvent, list[ListedGroup]]:
        if not self.parking.is_empty:  # groups without members are known by their offsets alone
            raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        return CoordinatorResult(list_groups(self.all_groups, states, types))

    def describe_group(self, group_id: str, api_version: int) -> CoordinatorResult[GroupEvent, DescribedGroup]:
        return CoordinatorResult(describe_group(self.all_groups, group_id, api_version))

    def on_topics_deleted(self, topics: set[str]) -> Outcome:
        if self.parking.is_empty:
            return self._deletions.on_topics_deleted(topics)
        due = DeletedTopicsDue(frozenset(topics))
        self._queue.schedule(f"deleted topics {sorted(topics)}", _PARKED_RETRY_MS, due)
        return NOTHING

    def _adopt_downgraded(self, group_id: str) -> Outcome:
        """Start the sessions of a group that was a consumer group, and let its members rejoin if one has left."""
        group = self.groups.get(group_id)
        if group is None or not can_rebalance(group.state):
            return NOTHING
        for member in group.members.values():
            self._timers.renew_session(group, member)
        return self._rebalances.prepare(group, _DOWNGRADED) if group.awaits_rebalance else NOTHING
