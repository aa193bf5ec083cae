"""What a follower or an observer tells the leader of itself now and then, between two fetches (`membership.py`)."""

from broker.quorum.elections import QuorumElections
from broker.quorum.identity import NO_NODE, Instant
from broker.quorum.membership.requests import auto_join, update_of_entry
from broker.quorum.membership.voters import VoterNode
from broker.quorum.messages import (
    AddVoterRequest,
    ChangeVotersResponse,
    RemoveVoterRequest,
    UpdateVoterRequest,
)
from broker.quorum.replica import QuorumReplica
from broker.quorum.request_manager import InFlightRequest
from broker.quorum.state import FollowerState, ObserverState
from protocol.errors import ErrorCode

Report = AddVoterRequest | RemoveVoterRequest | UpdateVoterRequest


class Reports:
    """One at a time and in the leader's one slot, so a fetch waits while a report is answered."""

    def __init__(self, replica: QuorumReplica, elections: QuorumElections) -> None:
        self._replica = replica
        self._elections = elections
        self._told_epoch = NO_NODE

    def due(self, role: FollowerState | ObserverState, now: Instant) -> Report | None:
        """What to tell now; then, and if there is nothing to tell, it is looked at again after a while."""
        if now.monotonic_ms < role.report_at:
            return None
        role.report_at = self._replica.report_deadline(now)
        return self._update() if isinstance(role, FollowerState) else self._join()

    def _update(self) -> UpdateVoterRequest | None:
        replica, control = self._replica, self._replica.control
        return update_of_entry(
            self._own,
            control.voters,
            control.kraft_version,
            cluster_id=replica.settings.cluster_id,
            epoch=replica.term.epoch,
            told_epoch=self._told_epoch,
        )

    def _join(self) -> Report | None:
        settings, control = self._replica.settings, self._replica.control
        if not settings.auto_join or not settings.can_vote:
            return None
        return auto_join(self._own, control.voters, control.kraft_version, cluster_id=settings.cluster_id)

    @property
    def _own(self) -> VoterNode:
        settings = self._replica.settings
        return VoterNode(settings.key, settings.listeners, settings.versions)

    def on_response(
        self, flight: InFlightRequest, request: Report, response: ChangeVotersResponse, now: Instant
    ) -> None:
        """A refusal is left until the next time; the leader's state may allow it then."""
        if not self._elections.learn_leader(response.leader, now):
            self._replica.requests.failed(flight.to_id, now)
        elif response.error is ErrorCode.NONE and isinstance(request, UpdateVoterRequest):
            self._told_epoch = request.epoch
