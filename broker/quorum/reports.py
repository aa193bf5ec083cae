"""Periodic AddVoter, RemoveVoter and UpdateVoter requests of a replica about itself (`membership.requests`)."""

from broker.quorum.elections import QuorumElections
from broker.quorum.identity import NO_EPOCH, Instant
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
    """Sends one report at a time. The leader handles one request of this node at a time, so the next fetch waits."""

    def __init__(self, replica: QuorumReplica, elections: QuorumElections) -> None:
        self._replica = replica
        self._elections = elections
        self._updated_epoch = NO_EPOCH

    def due(self, role: FollowerState | ObserverState, now: Instant) -> Report | None:
        """Return the report to send now, if the timer has expired and there is one. Restart an expired timer."""
        if now.monotonic_ms < role.update_voter_at:
            return None
        role.update_voter_at = self._replica.timeouts.update_voter_deadline(now)
        return self._update() if isinstance(role, FollowerState) else self._join()

    def _update(self) -> UpdateVoterRequest | None:
        replica, control = self._replica, self._replica.control
        return update_of_entry(
            self._own,
            control.voters,
            control.kraft_version,
            cluster_id=replica.settings.cluster_id,
            epoch=replica.term.epoch,
            updated_epoch=self._updated_epoch,
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
        self, in_flight: InFlightRequest, request: Report, response: ChangeVotersResponse, now: Instant
    ) -> None:
        """Process the response. After an error the next report retries."""
        if not self._elections.learn_leader(response.leader, now):
            self._replica.requests.failed(in_flight.to_id, now)
        elif response.error is ErrorCode.NONE and isinstance(request, UpdateVoterRequest):
            self._updated_epoch = request.epoch
