"""The rebalance of a classic group, from one generation to the next.

1. `prepare`: heartbeats ask the members to rejoin, and parked SyncGroups get an error. For the first members of an
   empty group, a short delay follows instead, so that consumers that start together share one generation.
2. JoinGroups are parked. The phase ends when all members have rejoined and none is pending, or at the timeout.
3. `complete_join`: absent members are removed (static members stay, since their process may be restarting), a leader
   and a protocol are elected, the generation is incremented, and every JoinGroup is answered.
4. Members send SyncGroup (`sync.py`). Members that do not within the rebalance timeout are removed, and the group
   rebalances again.

Only the end of a rebalance is written to the log: an assignment, or that the group has become empty.
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
    """Runs the phases above for groups."""

    def __init__(self, groups: GroupTable, timers: GroupTimers, config: GroupConfig, clock: CoordinatorClock) -> None:
        self._groups = groups
        self._timers = timers
        self._config = config
        self._clock = clock

    def prepare_or_complete(self, group: ClassicGroup, reason: str) -> Outcome:
        """Start a rebalance after a change of members, or complete the current one if it waits for no member."""
        if can_rebalance(group.state):
            return self.prepare(group, reason)
        return self.maybe_complete_join(group)

    def prepare(self, group: ClassicGroup, reason: str) -> Outcome:
        """Start a rebalance: members must rejoin."""
        if group.state is GroupState.COMPLETING_REBALANCE:
            self.cancel_syncs(group, ErrorCode.REBALANCE_IN_PROGRESS)
        group.pending_syncs.clear()
        group.awaits_rebalance = False
        self._timers.end_sync_phase(group)
        is_initial = group.is_empty
        self._groups.move(group, Transition.REBALANCE, self._clock.now_ms())
        _log.info("rebalancing group=%s generation=%d reason=%s", group.group_id, group.generation, reason)
        if is_initial:
            self._start_initial_delay(group)
            return NOTHING
        if group.all_joined:
            return self.complete_join(group)
        self._timers.start_join_phase(group)
        return NOTHING

    def maybe_complete_join(self, group: ClassicGroup) -> Outcome:
        """End the join phase if all members have rejoined. An initial delay always runs to its end, for further
        members.
        """
        is_joining = group.state is GroupState.PREPARING_REBALANCE
        if is_joining and not group.was_empty and group.all_joined:
            return self.complete_join(group)
        return NOTHING

    def complete_join(self, group: ClassicGroup) -> Outcome:
        """End the join phase with the members that have rejoined."""
        self._timers.end_join_phase(group)
        self._drop_absent(group)
        if group.members and not group.elect_joined_leader():
            # Only static members are left and none has rejoined: wait for them until their sessions expire.
            self._timers.start_join_phase(group)
            return NOTHING
        group.generation += 1
        group.pending_syncs.clear()
        return self._start_generation(group) if group.members else self._become_empty(group)

    def on_initial_delay_over(self, group_id: str, delay_ms: int, remaining_ms: int) -> Outcome:
        """Wait once more if members joined during the delay and time remains; else complete the join phase."""
        group = self._joining(group_id)
        if group is None:
            return NOTHING
        if group.has_new_member and remaining_ms > 0:
            group.has_new_member = False
            next_delay_ms = min(self._config.group_initial_rebalance_delay_ms, remaining_ms)
            self._timers.start_initial_delay(group, next_delay_ms, max(remaining_ms - delay_ms, 0))
            return NOTHING
        return self.complete_join(group)

    def on_join_phase_over(self, group_id: str) -> Outcome:
        """End the join phase at its timeout."""
        group = self._joining(group_id)
        return NOTHING if group is None else self.complete_join(group)

    def on_sync_phase_over(self, group_id: str, generation: int) -> Outcome:
        """Remove members without a SyncGroup at the timeout."""
        group = self._groups.get(group_id)
        is_past = group is None or group.generation != generation or not can_rebalance(group.state)
        if group is None or is_past or not group.pending_syncs:
            return NOTHING
        late = list(group.pending_syncs)
        for member_id in late:
            self.drop(group, group.members[member_id])
        return self.prepare(group, f"no SyncGroup from {late}")

    def on_session_expired(self, group_id: str, member_id: str) -> Outcome:
        """Remove a member or a pending member whose session has expired."""
        group = self._groups.get(group_id)
        if group is None:
            return NOTHING
        if member_id in group.pending_joins:
            group.remove(member_id)
            return self._after_removal(group, "")
        member = group.members.get(member_id)
        if member is None or member.is_session_suspended:
            return NOTHING
        self.drop(group, member)
        return self._after_removal(group, f"session of {member_id} expired")

    def drop(self, group: ClassicGroup, member: ClassicGroupMember) -> None:
        """Remove the member. A parked request of it gets UNKNOWN_MEMBER_ID, after which the client may join as a new
        member.
        """
        self._timers.end_session(group, member.member_id)
        group.answer_join(member, join_refused(ErrorCode.UNKNOWN_MEMBER_ID))
        group.answer_sync(member, sync_refused(ErrorCode.UNKNOWN_MEMBER_ID))
        group.remove(member.member_id)

    def cancel_syncs(self, group: ClassicGroup, error: ErrorCode) -> None:
        """Discard the assignments of this generation, and answer parked SyncGroups with `error`."""
        for member in group.members.values():
            member.assignment = b""
            if group.answer_sync(member, sync_refused(error)):
                self._timers.renew_session(group, member)

    def _joining(self, group_id: str) -> ClassicGroup | None:
        """Return the group if it is in a join phase.

        A timer can outlive its phase: the group was a consumer group meanwhile, or the timer is due again because the
        record that ends the phase was not written.
        """
        group = self._groups.get(group_id)
        return group if group is not None and group.state is GroupState.PREPARING_REBALANCE else None

    def _after_removal(self, group: ClassicGroup, reason: str) -> Outcome:
        if reason and can_rebalance(group.state):
            return self.prepare(group, reason)
        if group.state is GroupState.PREPARING_REBALANCE and group.all_joined:
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
        self._groups.move(group, Transition.NO_MEMBERS_LEFT, self._clock.now_ms())
        # If this write fails, the log keeps the last generation with its members, which expire after a failover.
        return CoordinatorResult(None, [group_written(group, {})], replayed=False)
