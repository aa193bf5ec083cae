"""Leading: open the epoch, append, count who has what, stay in contact with a majority.

Theory. A record is committed when a majority of the voters has it on disk and the leader's own epoch has reached it:
records of earlier epochs on a majority can still be lost to a longer log, so the high watermark moves only beyond the
first record of the own epoch (the Raft paper's figure 8; KAFKA-12619). The leader counts its own records like anybody
else's: when they are synced, which is when `persisted` says so. Followers see nothing that is not synced here, because
answers leave after the sync.

A leader that a majority has not fetched from for one and a half fetch timeouts cannot commit and is probably replaced
already; it resigns, so that its clients look elsewhere (KAFKA-15489).
"""

from collections.abc import Callable, Sequence
from math import inf

from broker.quorum import batches
from broker.quorum.appends import Appended, Appends, NotLeader
from broker.quorum.batches import TypedRecord
from broker.quorum.elections import QuorumElections
from broker.quorum.identity import NO_NODE, Instant, ReplicaKey
from broker.quorum.membership.voters import VoterNode, VoterSet
from broker.quorum.messages import (
    BeginQuorumEpochRequest,
)
from broker.quorum.progress import Progress
from broker.quorum.ready import Append
from broker.quorum.replica import QuorumReplica
from broker.quorum.settings import ControlRecord
from broker.quorum.state import LeaderState, Role, Term
from protocol.records.control import control_batch

CONTACT_TIMEOUTS = 1.5
"""Fetch timeouts without a majority after which a leader resigns."""


class QuorumLeadership:
    """Acts on the replica while its role is Leader; what it holds besides ends with the role.

    `on_progress` is called when the log got longer or the high watermark rose.
    """

    def __init__(self, replica: QuorumReplica, elections: QuorumElections) -> None:
        self._replica = replica
        self._elections = elections
        self._appends = Appends(0, 0, 0)
        self.on_progress: list[Callable[[], None]] = []
        self._sweep_at = 0.0
        replica.on_leaving.append(self._on_leaving)

    # Beginning and ending

    def begin(self, granted: frozenset[int], now: Instant) -> None:
        """The election is won: open the epoch with its first batch."""
        replica = self._replica
        progress = Progress(replica.key, replica.voters)
        role = LeaderState(replica.log.end, granted, progress, self._quorum_deadline(progress, now))
        replica.become(role, Term(replica.term.epoch, replica.key.id, replica.term.voted))
        # Lingering spares others answers; alone, what comes while an fsync runs gathers for the next in any case.
        linger_ms = 0 if replica.is_only_voter else replica.settings.append_linger_ms
        self._appends = Appends(replica.term.epoch, replica.log.end, linger_ms)
        self.append_control(self._first_records(granted), now)

    def _first_records(self, granted: frozenset[int]) -> list[TypedRecord]:
        """Who leads; and, if the log does not say so yet, kraft.version, the voters, and what has changed of this one.

        So what formatting wrote into the 0-0 snapshot enters the log with the first leader.
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
        role = self._replica.role
        if isinstance(role, LeaderState):
            self._elections.resign(role.progress.successors(), now)

    def _on_leaving(self, before: Role) -> None:
        """What was accepted and not written is gone."""
        if isinstance(before, LeaderState):
            self._appends = Appends(0, 0, 0)

    # Appending

    @property
    def next_offset(self) -> int:
        """The offset that the next append gets."""
        return self._appends.next_offset

    def append(self, epoch: int, frames: Sequence[bytes], now: Instant) -> Appended:
        """Raises NotLeader, BatchTooLarge."""
        replica = self._replica
        if not isinstance(replica.role, LeaderState) or epoch != replica.term.epoch:
            raise NotLeader(f"node {replica.key.id} does not lead in epoch {epoch}")
        return self._appends.add(frames, now)

    def append_control(self, records: Sequence[TypedRecord], now: Instant) -> int:
        """One control batch, written at once behind what was accepted before. Returns the offset of its last record."""
        self._write_gathered(now)
        replica = self._replica
        base_offset, epoch = replica.log.end, replica.term.epoch
        batch = control_batch(records, now.wall_ms, base_offset=base_offset, leader_epoch=epoch)
        self._write(batch, base_offset + len(records))
        self._appends.next_offset = replica.log.end
        changes = batches.control_of(batch)
        if changes:
            self._apply(changes, now)
        return replica.log.end - 1

    def _apply(self, changes: Sequence[ControlRecord], now: Instant) -> None:
        """Voters and kraft.version count from their append on, committed or not."""
        replica, role = self._replica, self._replica.role
        for change in changes:
            replica.history.append(change)
        replica.control_changed(now)
        if isinstance(role, LeaderState):
            role.progress.set_voters(replica.voters)
            role.begin_at = {to_id: at for to_id, at in role.begin_at.items() if to_id in replica.voters}
            if role.quorum_deadline == inf or role.progress.needs_no_contact:
                role.quorum_deadline = self._quorum_deadline(role.progress, now)

    def _write_gathered(self, now: Instant) -> None:
        if self._appends.write_at is not None:
            end = self._appends.next_offset
            self._write(self._appends.take(now), end)

    def _write(self, data: bytes, end_offset: int) -> None:
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
        """Somebody got further, perhaps this node itself. Who waits for the high watermark to rise is answered."""
        replica, role = self._replica, self._replica.role
        if not isinstance(role, LeaderState):
            return
        agreed = role.progress.agreed(replica.synced_end)
        if agreed > role.start_offset and replica.raise_high_watermark(agreed, now):
            self._notify_fetches()

    def on_replica_contact(self, replica_key: ReplicaKey, now: Instant) -> None:
        """A replica asked for records or pages. If that makes a majority, the leader may go on."""
        role = self._replica.role
        if isinstance(role, LeaderState) and role.progress.in_contact(replica_key):
            role.quorum_deadline = self._quorum_deadline(role.progress, now)

    # Acting

    def lead(self, role: LeaderState, now: Instant) -> None:
        if self._replica.is_shutting_down or now.monotonic_ms >= role.quorum_deadline:
            self.resign(now)
            return
        write_at = self._appends.write_at
        if write_at is not None and now.monotonic_ms >= write_at:
            self._write_gathered(now)
        self._send_begin_quorum_epoch(role, now)
        if now.monotonic_ms >= self._sweep_at:
            self._sweep(role, now)

    def _sweep(self, role: LeaderState, now: Instant) -> None:
        """Forgets observers that do not come any more."""
        session = self._replica.settings.observer_session_timeout_ms
        role.progress.forget_silent(now.monotonic_ms - session)
        self._sweep_at = now.monotonic_ms + session

    def _send_begin_quorum_epoch(self, role: LeaderState, now: Instant) -> None:
        """To all other voters at once, and again and again: who was away does not know, who restarted has forgotten."""
        replica = self._replica
        for voter in replica.voters:
            to_id, begin_at = voter.key.id, role.begin_at.get(voter.key.id, 0.0)
            if to_id == replica.key.id or now.monotonic_ms < begin_at or not replica.requests.is_ready(to_id, now):
                continue
            endpoint = replica.voter_endpoint(to_id)
            if endpoint is not None:
                role.begin_at[to_id] = now.monotonic_ms + replica.settings.fetch_timeout_ms / 2
                replica.send(to_id, endpoint, self._begin_request(voter))

    def _begin_request(self, voter: VoterNode) -> BeginQuorumEpochRequest:
        settings, term = self._replica.settings, self._replica.term
        return BeginQuorumEpochRequest(
            settings.cluster_id, term.leader_id or NO_NODE, term.epoch, voter.key, settings.listeners
        )

    def deadline(self, role: LeaderState) -> float:
        """When `lead` has something to do, if nothing else happens."""
        ready_at = self._replica.requests.ready_at
        waits = [role.quorum_deadline, *(max(at, ready_at(to_id)) for to_id, at in role.begin_at.items())]
        if self._appends.write_at is not None:
            waits.append(self._appends.write_at)
        return min(waits)

    def _quorum_deadline(self, progress: Progress, now: Instant) -> float:
        if progress.needs_no_contact:
            return inf
        return now.monotonic_ms + CONTACT_TIMEOUTS * self._replica.settings.fetch_timeout_ms
