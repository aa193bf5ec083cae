"""A read-only view of a replica for users of the quorum: roles, offsets, voters and versions."""

from collections.abc import Mapping
from typing import Final

from broker.quorum.identity import Instant, LeaderAndEpoch
from broker.quorum.leadership import QuorumLeadership
from broker.quorum.membership.voter_changes import VoterChanges
from broker.quorum.membership.voters import VoterSet
from broker.quorum.messages import LeaderHint
from broker.quorum.replica import QuorumReplica
from broker.quorum.state import (
    CandidateState,
    FollowerState,
    LeaderState,
    ObserverState,
    ProspectiveState,
    ResignedState,
    UnattachedState,
)
from protocol.ids import BrokerId, LeaderEpoch, Offset

_ROLE_NAMES: Final[Mapping[type, str]] = {
    UnattachedState: "unattached",
    ProspectiveState: "prospective",
    CandidateState: "candidate",
    LeaderState: "leader",
    FollowerState: "follower",
    ObserverState: "observer",
    ResignedState: "resigned",
}


class QuorumFacts:
    """The present state of a `QuorumCore`, which may be ahead of the disk."""

    def __init__(self, replica: QuorumReplica, leadership: QuorumLeadership, changes: VoterChanges) -> None:
        self._replica = replica
        self._leadership = leadership
        self._changes = changes

    @property
    def node_id(self) -> BrokerId:
        return self._replica.key.id

    # Role and leader

    @property
    def role(self) -> str:
        """The role for metrics and logs: unattached, prospective, candidate, leader, follower, observer or resigned."""
        return _ROLE_NAMES[type(self._replica.role)]

    @property
    def epoch(self) -> LeaderEpoch:
        return self._replica.term.epoch

    @property
    def leader(self) -> LeaderAndEpoch:
        """The leader known to this node; the node itself from its won election on."""
        role, term = self._replica.role, self._replica.term
        return LeaderAndEpoch(None if isinstance(role, ResignedState) else term.leader_id, term.epoch)

    def hears_leader(self, now: Instant) -> bool:
        """Whether this node leads, or its leader has responded within the fetch timeout.

        A voter whose own disk delays its fetches still counts as hearing its leader.
        """
        replica, role = self._replica, self._replica.role
        if not isinstance(role, FollowerState | ObserverState):
            return isinstance(role, LeaderState)
        awaits_sync = replica.settings.can_vote and replica.log.synced_end < replica.log.end
        return replica.term.leader_id is not None and (now.monotonic_ms < role.fetch_deadline or awaits_sync)

    @property
    def leader_hint(self) -> LeaderHint:
        """The leader and its listeners as named in responses."""
        return self._replica.hint

    @property
    def protocol_violations(self) -> int:
        """The number of received messages that no correct peer sends."""
        return self._replica.protocol_violations

    # Log

    @property
    def high_watermark(self) -> Offset | None:
        """The end offset of the committed records; None while unknown."""
        return self._replica.high_watermark

    @property
    def log_start_offset(self) -> Offset:
        return self._replica.log.start

    @property
    def log_end_offset(self) -> Offset:
        """The offset of the next append; on the leader it includes accumulated records that are not written yet."""
        is_leader = isinstance(self._replica.role, LeaderState)
        return self._leadership.next_offset if is_leader else self._replica.log.end

    @property
    def log_end_epoch(self) -> LeaderEpoch:
        """The epoch of the last record, possibly one that only a snapshot contains; 0 if the log never had a record."""
        return self._replica.log.last_epoch

    @property
    def log_bytes(self) -> int:
        """The approximate size of the log."""
        return self._replica.log.bytes

    def epoch_before(self, offset: Offset) -> LeaderEpoch | None:
        """Return the epoch of the record that precedes an offset; None if the log does not contain it."""
        return self._replica.log.epoch_before(offset)

    # Voters

    @property
    def kraft_version(self) -> int:
        """The latest kraft.version in the log, committed or not."""
        return self._replica.control.kraft_version

    @property
    def voters(self) -> VoterSet:
        """The latest voters in the log, committed or not."""
        return self._replica.voters

    @property
    def voter_ids(self) -> tuple[BrokerId, ...]:
        return self._replica.voters.ids

    @property
    def is_voter(self) -> bool:
        return self._replica.voters.has(self._replica.key)

    @property
    def is_changing_voters(self) -> bool:
        """Whether this node is the leader and a voter change is in progress or not committed."""
        return isinstance(self._replica.role, LeaderState) and self._changes.is_pending

    @property
    def ignores_static_voters(self) -> bool:
        """Whether a voters record overrides `controller.quorum.voters`, so the key can be removed (KIP-853)."""
        replica = self._replica
        return bool(replica.settings.static_voters) and replica.control.voters_offset is not None
