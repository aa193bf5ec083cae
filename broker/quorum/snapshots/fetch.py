"""Fetching a snapshot from the leader, page after page, in place of a log that it has not got any more (KIP-630).

1. A fetch is answered with a snapshot id; fetching the log pauses.
2. Pages go to a `.part` file at their position.
3. When all is there, the driver checks the file and puts it in its place, durably.
4. The log is emptied and starts, and ends, where the snapshot ends; fetching goes on from there.

Until step 4 the node votes with its log as it was. A change of role before step 3 throws the pages away.
"""

from broker.quorum.control_history import IncompatibleVoters
from broker.quorum.elections import QuorumElections
from broker.quorum.identity import Instant, SnapshotId
from broker.quorum.messages import FetchSnapshotRequest, FetchSnapshotResponse
from broker.quorum.ready import DiscardPart, FinishPart, WritePart
from broker.quorum.replica import QuorumReplica
from broker.quorum.request_manager import InFlightRequest
from broker.quorum.settings import ControlRecord, StoredSnapshot
from broker.quorum.state import FollowerState, LeaderState, ObserverState, Role
from protocol.errors import ErrorCode


class SnapshotFetch:
    def __init__(self, replica: QuorumReplica, elections: QuorumElections) -> None:
        self._replica = replica
        self._elections = elections
        self._wanted: SnapshotId | None = None
        self._position = 0
        self._checked: SnapshotId | None = None
        self._resume_at = 0.0
        replica.on_leaving.append(self._on_leaving)

    @property
    def is_being_checked(self) -> bool:
        """All pages are there and the driver looks at them: nothing is fetched meanwhile."""
        return self._checked is not None

    @property
    def resume_at(self) -> float:
        """Until then nothing is fetched, because a snapshot was no good; a monotonic time."""
        return self._resume_at

    def is_idle(self, now: Instant) -> bool:
        """Whether all fetching waits: for a check, or because the last one failed."""
        return self.is_being_checked or now.monotonic_ms < self._resume_at

    def is_under_way(self, snapshot_id: SnapshotId) -> bool:
        """Whether pages of this one are there already."""
        return self._wanted == snapshot_id and self._position > 0

    def is_missing(self, snapshot_id: SnapshotId) -> bool:
        """Whether it stands for what this node has not, and contradicts nothing that it knows to be committed."""
        replica = self._replica
        return snapshot_id.end_offset >= max(1, replica.high_watermark or 0) and replica.log.lacks(snapshot_id)

    def begin(self, snapshot_id: SnapshotId) -> bool:
        """The leader has this in place of the log. False if it is nothing that is missing: then something is wrong.

        It may be of an earlier epoch than the own last records, which then never counted.
        """
        if not self.is_missing(snapshot_id):
            return False
        if self._wanted != snapshot_id:
            self._discard()
            self._wanted, self._position = snapshot_id, 0
        return True

    def give_up(self) -> None:
        """What there is of one is thrown away: it is got elsewhere."""
        self._discard()

    def finish_import(self, snapshot_id: SnapshotId, size: int) -> None:
        """All of it came from elsewhere, and lies aside: as if its last page were there."""
        self._discard()
        self._replica.out.log.append(FinishPart(snapshot_id, size, is_imported=True))
        self._checked = snapshot_id

    def next_request(self) -> FetchSnapshotRequest | None:
        """For the next page; None if no snapshot is being fetched."""
        if self._wanted is None:
            return None
        settings = self._replica.settings
        return FetchSnapshotRequest(
            settings.cluster_id,
            self._replica.key,
            self._replica.term.epoch,
            self._wanted,
            self._position,
            settings.fetch_snapshot_max_bytes,
        )

    def on_response(
        self, in_flight: InFlightRequest, request: FetchSnapshotRequest, response: FetchSnapshotResponse, now: Instant
    ) -> None:
        replica = self._replica
        is_current = self._elections.learn_leader(response.leader, now, by_leader=response.error is ErrorCode.NONE)
        if not is_current or not isinstance(replica.role, FollowerState | ObserverState) or self._wanted is None:
            replica.requests.failed(in_flight.to_id, now)
            return
        if (request.snapshot_id, request.position) != (self._wanted, self._position):
            return
        if response.error is not ErrorCode.NONE:
            if response.error in (ErrorCode.SNAPSHOT_NOT_FOUND, ErrorCode.POSITION_OUT_OF_RANGE):
                self._discard()  # the next fetch learns which one there is now
            replica.requests.failed(in_flight.to_id, now)
            return
        replica.on_leader_response(now)
        if self._take_page(response):
            replica.requests.succeeded(in_flight.to_id)
        else:
            replica.protocol_violations += 1
            replica.requests.failed(in_flight.to_id, now)

    def _take_page(self, page: FetchSnapshotResponse) -> bool:
        """A page that is not the one asked for is asked for again; of a snapshot that is shorter than its pages nothing
        is kept.
        """
        wanted, end = self._wanted, self._position + len(page.data)
        if wanted is None or page.snapshot_id != wanted or page.position != self._position or not page.data:
            return False
        if end > page.size:
            self._discard()
            return False
        self._replica.out.log.append(WritePart(wanted, self._position, page.data))
        self._position = end
        if end == page.size:
            self._replica.out.log.append(FinishPart(wanted, end))
            self._wanted, self._checked = None, wanted
        return True

    def on_checked(
        self, snapshot_id: SnapshotId, stored: StoredSnapshot | None, control: tuple[ControlRecord, ...], now: Instant
    ) -> None:
        """The driver has looked at the file: it is in place, or (None) it is no good and gone.

        It is used whatever the role has become, because it is on disk; except by a leader, which has all of it.
        """
        if self._checked != snapshot_id:
            return
        self._checked = None
        replica, role = self._replica, self._replica.role
        replica.on_leader_response(now)
        if stored is None:
            self._reject(now)
        elif not isinstance(role, LeaderState) and replica.log.lacks(stored.id):
            self._start_at(stored, control, now)

    def _start_at(self, stored: StoredSnapshot, control: tuple[ControlRecord, ...], now: Instant) -> None:
        try:
            self._replica.start_at(stored, control)
        except IncompatibleVoters:
            self._reject(now)
            return
        self._replica.control_changed(now)
        self._replica.raise_high_watermark(stored.id.end_offset, now)

    def _reject(self, now: Instant) -> None:
        """It is no good. After a pause there may be a better one; without it, this one would come again and again."""
        self._replica.protocol_violations += 1
        self._resume_at = now.monotonic_ms + self._replica.settings.fetch_timeout_ms // 4

    def _discard(self) -> None:
        if self._wanted is not None:
            if self._position:
                self._replica.out.log.append(DiscardPart(self._wanted))
            self._wanted = None

    def _on_leaving(self, _before: Role) -> None:
        self._discard()
        self._resume_at = 0.0
