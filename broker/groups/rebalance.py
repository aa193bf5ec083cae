"""How a classic group gets from one generation to the next.

1. `prepare`: members are asked to join again (their heartbeats say so) and those who wait for an assignment are sent
   back. The first members of an empty group instead cause a short wait, so that a fleet that starts together shares one
   generation rather than one each.
2. Joins are parked. The phase ends when all members are in and none is pending, or when time is up.
3. `complete_join`: whoever did not come is dropped (static members stay, their process may be restarting), a leader and
   a protocol are chosen, the generation is counted up, and everybody is answered.
4. Members send SyncGroup (`sync.py`); those who do not within the rebalance timeout are dropped, and it starts over.

Nothing of this reaches the log but the end: an assignment, or that the group has become empty.
"""

from logging import getLogger

from broker.coordination.shard import CoordinatorResult
from broker.coordination.timers import CoordinatorClock
from broker.groups.answers import join_refused, joined, sync_refused
from broker.groups.classic import ClassicGroup
from broker.groups.config import GroupConfig
from broker.groups.member import ClassicGroupMember
from broker.groups.records import GroupEvent, group_written
from broker.groups.state import GroupState, Transition, can_rebalance
from broker.groups.table import GroupTable
from broker.groups.timers import GroupTimers
from protocol.errors import ErrorCode

Outcome = CoordinatorResult[GroupEvent, None]

NOTHING: Outcome = CoordinatorResult(None)

_log = getLogger(__name__)


class Rebalances:
    """Drives groups through the phases above."""

    def __init__(self, groups: GroupTable, timers: GroupTimers, config: GroupConfig, clock: CoordinatorClock) -> None:
        self._groups = groups
        self._timers = timers
        self._config = config
        self._clock = clock

    def prepare_or_complete(self, group: ClassicGroup, reason: str) -> Outcome:
        """Something about the members changed: start a rebalance, or see whether that ends the one under way."""
        if can_rebalance(group.state):
            return self.prepare(group, reason)
        return self.maybe_complete_join(group)

    def prepare(self, group: ClassicGroup, reason: str) -> Outcome:
        """Ask the members to join again."""
        if group.state is GroupState.COMPLETING_REBALANCE:
            self.cancel_syncs(group, ErrorCode.REBALANCE_IN_PROGRESS)
        group.pending_syncs.clear()
        self._timers.end_sync_phase(group)
        is_initial = group.is_empty
        self._groups.move(group, Transition.REBALANCE, self._clock.now_ms())
        _log.info("rebalancing group=%s generation=%d reason=%s", group.group_id, group.generation, reason)
        if is_initial:
            self._start_initial_delay(group)
            return NOTHING
        if group.everybody_joined:
            return self.complete_join(group)
        self._timers.start_join_phase(group)
        return NOTHING

    def maybe_complete_join(self, group: ClassicGroup) -> Outcome:
        """End the join phase if everybody is in. An initial one runs its course, for there may always be one more."""
        is_joining = group.state is GroupState.PREPARING_REBALANCE
        if is_joining and not group.was_empty and group.everybody_joined:
            return self.complete_join(group)
        return NOTHING

    def complete_join(self, group: ClassicGroup) -> Outcome:
        """End the join phase with those who are in."""
        self._timers.end_join_phase(group)
        self._drop_absent(group)
        if group.members and not group.elect_joined_leader():
            # Only static members are left and none came: wait for them until their sessions end.
            self._timers.start_join_phase(group)
            return NOTHING
        group.generation += 1
        group.pending_syncs.clear()
        return self._start_generation(group) if group.members else self._become_empty(group)

    def on_initial_delay_over(self, group_id: str, delay_ms: int, remaining_ms: int) -> Outcome:
        """Wait once more if somebody came meanwhile and there is time left; else go on with those who are there."""
        group = self._groups.get(group_id)
        if group is None:
            return NOTHING
        if group.has_new_member and remaining_ms > 0:
            group.has_new_member = False
            next_delay_ms = min(self._config.group_initial_rebalance_delay_ms, remaining_ms)
            self._timers.start_initial_delay(group, next_delay_ms, max(remaining_ms - delay_ms, 0))
            return NOTHING
        return self.complete_join(group)

    def on_join_phase_over(self, group_id: str) -> Outcome:
        """Time is up for joining."""
        group = self._groups.get(group_id)
        return NOTHING if group is None else self.complete_join(group)

    def on_sync_phase_over(self, group_id: str, generation: int) -> Outcome:
        """Time is up for SyncGroup: whoever owes one is dropped."""
        group = self._groups.get(group_id)
        is_past = group is None or group.generation != generation or not can_rebalance(group.state)
        if group is None or is_past or not group.pending_syncs:
            return NOTHING
        late = list(group.pending_syncs)
        for member_id in late:
            self.drop(group, group.members[member_id])
        return self.prepare(group, f"no SyncGroup from {late}")

    def on_session_expired(self, group_id: str, member_id: str) -> Outcome:
        """A member, or somebody who was about to become one, has not been heard of."""
        group = self._groups.get(group_id)
        if group is None:
            return NOTHING
        if member_id in group.pending_joins:
            group.remove(member_id)
            return self._after_removal(group, "")
        member = group.members.get(member_id)
        if member is None or member.keeps_its_session:
            return NOTHING
        self.drop(group, member)
        return self._after_removal(group, f"session of {member_id} expired")

    def drop(self, group: ClassicGroup, member: ClassicGroupMember) -> None:
        """Take the member out; if it is parked it learns that its id is no longer known, and may start afresh."""
        self._timers.end_session(group, member.member_id)
        group.answer_join(member, join_refused(ErrorCode.UNKNOWN_MEMBER_ID))
        group.answer_sync(member, sync_refused(ErrorCode.UNKNOWN_MEMBER_ID))
        group.remove(member.member_id)

    def cancel_syncs(self, group: ClassicGroup, error: ErrorCode) -> None:
        """Drop whatever was assigned in this generation and tell those who wait for it."""
        for member in group.members.values():
            member.assignment = b""
            if group.answer_sync(member, sync_refused(error)):
                self._timers.renew_session(group, member)

    def _after_removal(self, group: ClassicGroup, reason: str) -> Outcome:
        if reason and can_rebalance(group.state):
            return self.prepare(group, reason)
        if group.state is GroupState.PREPARING_REBALANCE and group.everybody_joined:
            return self.complete_join(group)
        return NOTHING

    def _start_initial_delay(self, group: ClassicGroup) -> None:
        group.has_new_member = False
        delay_ms = self._config.group_initial_rebalance_delay_ms
        self._timers.start_initial_delay(group, delay_ms, max(group.rebalance_timeout_ms - delay_ms, 0))

    def _drop_absent(self, group: ClassicGroup) -> None:
        absent = [each for each in group.members.values() if not each.awaits_join and not each.is_static]
        for member in absent:
            self.drop(group, member)

    def _start_generation(self, group: ClassicGroup) -> Outcome:
        group.protocol = group.elect_protocol()
        group.refresh_topics()
        self._groups.move(group, Transition.MEMBERS_JOINED, self._clock.now_ms())
        for member in group.members.values():
            group.answer_join(member, joined(group, member))
            member.is_new = False
            self._timers.renew_session(group, member)
            group.pending_syncs.add(member.member_id)
        self._timers.start_sync_phase(group)
        return NOTHING

    def _become_empty(self, group: ClassicGroup) -> Outcome:
        group.protocol = None
        group.refresh_topics()
        self._groups.move(group, Transition.NOBODY_JOINED, self._clock.now_ms())
        # Should this write fail, the log keeps the last generation with its members, who will time out after a
        # failover.
        return CoordinatorResult(None, [group_written(group, {})], replayed=False)
