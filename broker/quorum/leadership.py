"""Leading an epoch: write its first records, append, advance the high watermark, stay in contact with a majority.

Theory. A record is committed when a majority of the voters has it on disk and a record of the leader's own epoch is
committed as well: a longer log can still replace records of earlier epochs on a majority, so the high watermark moves
only beyond the first record of the own epoch (the Raft paper's figure 8; KAFKA-12619). The leader counts its own
records after their fsync, which `persisted` reports. Followers may receive records before that fsync, and commit them
without the leader's own copy.

A leader without fetches of a majority for one and a half fetch timeouts cannot commit and is probably replaced; it
resigns, so that its clients search for the new leader (KAFKA-15489).
"""

from collections.abc import Callable, Sequence
from math import inf

from broker.quorum import batches
from broker.quorum.appends import Appended, Appends, NotLeader
from broker.quorum.batches import TypedRecord
from broker.quorum.elections import QuorumElections
from broker.quorum.identity import NO_NODE, Instant, ReplicaKey
from broker.quorum.membership.voters import VoterNode, VoterSet
from broker.quorum.messages import BeginQuorumEpochRequest
from broker.quorum.progress import Progress
from broker.quorum.ready import Append
from broker.quorum.replica import QuorumReplica
from broker.quorum.settings import ControlRecord
from broker.quorum.state import LeaderState, Role, Term
from protocol.ids import EPOCH_ZERO, BrokerId, LeaderEpoch, Offset
from protocol.records.control import control_batch

CONTACT_TIMEOUTS = 1.5
"""Fetch timeouts without contact to a majority after which a leader resigns."""


class QuorumLeadership:
    """Acts while the replica's role is leader. Its own state ends with the role.

    The callbacks in `on_progress` run after the log end offset or the high watermark rose.
    """

    def __init__(self, replica: QuorumReplica, elections: QuorumElections) -> None:
        self._replica = replica
        self._elections = elections
        self._appends = Appends(EPOCH_ZERO, Offset(0), 0)
        self.on_progress: list[Callable[[], None]] = []
        self._expire_observers_at = 0.0
        replica.on_leaving.append(self._on_leaving)

    # Beginning and ending

    def begin(self, granted: frozenset[BrokerId], now: Instant) -> None:
        """Start the epoch after a won election, and append its first batch."""
        replica = self._replica
        progress = Progress(replica.key, replica.voters, now, replica.settings.max_observers)
        role = LeaderState(replica.log.end, granted, progress, self._quorum_deadline(progress, now))
        replica.become(role, Term(replica.term.epoch, replica.key.id, replica.term.voted))
        # Lingering saves fetch responses. Without followers, appends accumulate during an fsync anyway.
        linger_ms = 0 if replica.is_only_voter else replica.settings.append_linger_ms
        self._appends = Appends(replica.term.epoch, replica.log.end, linger_ms)
        self.append_control(self._first_records(granted), now)

    def _first_records(self, granted: frozenset[BrokerId]) -> list[TypedRecord]:
        """Return the LeaderChange record, and kraft.version and voters if they are not in the log or have changed.

        The first leader thus copies the content of the formatted 0-0 snapshot into the log.
        """
        replica, control = self._replica, self._replica.control
        records = [batches.leader_change(replica.key.id, control.voters.ids, granted)]
        if control.kraft_version >= 1:
            voters = self._with_own_entry(control.voters)
            if control.voters_offset is None or control.voters_offset < 0 or voters != control.voters:
                records += [batches.kraft_version(control.kraft_version), batches.voters(voters)]
        return records

    def _with_own_entry(self, voters: VoterSet) -> VoterSet:
        settings, own = self._replica.settings, voters.get(self._replica.key.id)
        if own is None:
            return voters
        return voters.updated(VoterNode(own.key, settings.listeners or own.listeners, settings.versions))

    def resign(self, now: Instant) -> None:
        """Resign, and name the other voters as successors, the largest log first."""
        role = self._replica.role
        if isinstance(role, LeaderState):
            self._elections.resign(role.progress.successors(), now)

    def _on_leaving(self, before: Role) -> None:
        """Drop accepted appends that were not written."""
        if isinstance(before, LeaderState):
            self._appends = Appends(EPOCH_ZERO, Offset(0), 0)

    # Appending

    @property
    def next_offset(self) -> Offset:
        """The offset that the next append gets."""
        return self._appends.next_offset

    def append(self, epoch: LeaderEpoch, frames: Sequence[bytes], now: Instant) -> Appended:
        """Accept framed records as one batch. Raise NotLeader, BatchTooLarge."""
        replica = self._replica
        if not isinstance(replica.role, LeaderState) or epoch != replica.term.epoch:
            raise NotLeader(f"node {replica.key.id} is not the leader of epoch {epoch}")
        return self._appends.add(frames, now)

    def append_control(self, records: Sequence[TypedRecord], now: Instant) -> Offset:
        """Write one control batch at once, after all accepted appends. Return the offset of its last record."""
        self._write_accumulated(now)
        replica = self._replica
        base_offset, epoch = replica.log.end, replica.term.epoch
        batch = control_batch(records, now.wall_ms, base_offset=base_offset, leader_epoch=epoch)
        self._write(batch, Offset(base_offset + len(records)))
        self._appends.next_offset = replica.log.end
        changes = batches.control_of(batch)
        if changes:
            self._apply(changes, now)
        return Offset(replica.log.end - 1)

    def _apply(self, changes: Sequence[ControlRecord], now: Instant) -> None:
        """Apply voters and kraft.version, which are in force from their append on, committed or not."""
        replica, role = self._replica, self._replica.role
        for change in changes:
            replica.history.append(change)
        replica.control_changed(now)
        if isinstance(role, LeaderState):
            role.progress.set_voters(replica.voters, now)
            role.begin_at = {to_id: at for to_id, at in role.begin_at.items() if to_id in replica.voters}
            if role.quorum_deadline == inf or role.progress.needs_no_contact:
                role.quorum_deadline = self._quorum_deadline(role.progress, now)

    def _write_accumulated(self, now: Instant) -> None:
        if self._appends.write_at is not None:
            end = self._appends.next_offset
            self._write(self._appends.take(now), end)

    def _write(self, data: bytes, end_offset: Offset) -> None:
        replica = self._replica
        epoch = replica.term.epoch
        replica.out.log.append(Append(data, end_offset, epoch))
        replica.out.must_sync = True
        replica.log.append(end_offset, epoch, len(data))
        self._notify_fetches()

    def _notify_fetches(self) -> None:
        for callback in self.on_progress:
            callback()

    # Committing

    def update_high_watermark(self, now: Instant) -> None:
        """Advance the high watermark after progress of a voter or of this node, and complete waiting fetches."""
        replica, role = self._replica, self._replica.role
        if not isinstance(role, LeaderState):
            return
        agreed = role.progress.agreed(Offset(replica.log.synced_end))
        if agreed > role.start_offset and replica.raise_high_watermark(agreed, now):
            self._notify_fetches()

    def on_replica_contact(self, replica_key: ReplicaKey, now: Instant) -> None:
        """Count a fetch of a replica. Contact with a majority extends the leader's deadline."""
        role = self._replica.role
        if isinstance(role, LeaderState) and role.progress.in_contact(replica_key):
            role.quorum_deadline = self._quorum_deadline(role.progress, now)

    # Role

    def poll_leader(self, role: LeaderState, now: Instant) -> None:
        if self._replica.is_shutting_down or now.monotonic_ms >= role.quorum_deadline:
            self.resign(now)
            return
        write_at = self._appends.write_at
        if write_at is not None and now.monotonic_ms >= write_at:
            self._write_accumulated(now)
        self._send_begin_quorum_epoch(role, now)
        if now.monotonic_ms >= self._expire_observers_at:
            self._expire_observers(role, now)

    def _expire_observers(self, role: LeaderState, now: Instant) -> None:
        """Remove observers whose session has expired."""
        session = self._replica.settings.observer_session_timeout_ms
        role.progress.expire_observers(now.monotonic_ms - session)
        self._expire_observers_at = now.monotonic_ms + session

    def _send_begin_quorum_epoch(self, role: LeaderState, now: Instant) -> None:
        """Send BeginQuorumEpoch to all other voters, repeatedly, because voters may be unreachable or restart."""
        replica = self._replica
        for voter in replica.voters:
            to_id, begin_at = voter.key.id, role.begin_at.get(voter.key.id, 0.0)
            if to_id == replica.key.id or now.monotonic_ms < begin_at or not replica.requests.is_ready(to_id, now):
                continue
            endpoint = replica.voters.address(to_id, replica.settings.default_listener)
            if endpoint is not None:
                role.begin_at[to_id] = now.monotonic_ms + replica.settings.fetch_timeout_ms / 2
                replica.send(to_id, endpoint, self._begin_request(voter))

    def _begin_request(self, voter: VoterNode) -> BeginQuorumEpochRequest:
        settings, term = self._replica.settings, self._replica.term
        return BeginQuorumEpochRequest(
            settings.cluster_id, term.leader_id or NO_NODE, term.epoch, voter.key, settings.listeners
        )

    def deadline(self, role: LeaderState) -> float:
        """The time at which `poll_leader` must run next if no other event occurs."""
        ready_at = self._replica.requests.ready_at
        waits = [role.quorum_deadline, *(max(at, ready_at(to_id)) for to_id, at in role.begin_at.items())]
        if self._appends.write_at is not None:
            waits.append(self._appends.write_at)
        return min(waits)

    def _quorum_deadline(self, progress: Progress, now: Instant) -> float:
        if progress.needs_no_contact:
            return inf
        return now.monotonic_ms + CONTACT_TIMEOUTS * self._replica.settings.fetch_timeout_ms
