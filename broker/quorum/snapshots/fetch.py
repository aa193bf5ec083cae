"""Fetching a snapshot from the leader in pages, when the leader's log no longer has the records (KIP-630).

1. The response to a fetch names a snapshot id; log fetches pause.
2. Pages are written to a `.part` file at their position.
3. After the last page the driver checks and renames the file, durably.
4. The log is emptied and starts and ends at the snapshot's end offset; log fetches continue from there.

Until step 4 the node votes with its previous log. A role change before step 3 discards the pages.
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
    """The fetch of one snapshot at a time."""

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
        """Whether the driver checks a complete snapshot; no fetch is sent meanwhile."""
        return self._checked is not None

    @property
    def resume_at(self) -> float:
        """The monotonic time until which no fetch is sent, after an invalid snapshot."""
        return self._resume_at

    def is_idle(self, now: Instant) -> bool:
        """Whether all fetches pause, for a check or after an invalid snapshot."""
        return self.is_being_checked or now.monotonic_ms < self._resume_at

    def is_under_way(self, snapshot_id: SnapshotId) -> bool:
        """Whether pages of this snapshot were already received."""
        return self._wanted == snapshot_id and self._position > 0

    def is_missing(self, snapshot_id: SnapshotId) -> bool:
        """Whether the snapshot has records that this log lacks and contradicts no record known to be committed."""
        replica = self._replica
        return snapshot_id.end_offset >= max(1, replica.high_watermark or 0) and replica.log.lacks(snapshot_id)

    def begin(self, snapshot_id: SnapshotId) -> bool:
        """Start to fetch a snapshot named by the leader. Return False if this node does not need the snapshot.

        Its epoch may be earlier than that of the own last records, which are uncommitted in that case.
        """
        if not self.is_missing(snapshot_id):
            return False
        if self._wanted != snapshot_id:
            self._discard()
            self._wanted, self._position = snapshot_id, 0
        return True

    def give_up(self) -> None:
        """Discard received pages, because an import loads the snapshot."""
        self._discard()

    def finish_import(self, snapshot_id: SnapshotId, size: int) -> None:
        """Check and install an imported snapshot, as after the last page of a fetch."""
        self._discard()
        self._replica.out.log.append(FinishPart(snapshot_id, size, is_imported=True))
        self._checked = snapshot_id

    def next_request(self) -> FetchSnapshotRequest | None:
        """Return the request for the next page; None if no snapshot is being fetched."""
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
                self._discard()  # the next fetch returns the id of the present snapshot
            replica.requests.failed(in_flight.to_id, now)
            return
        replica.on_leader_response(now)
        if self._write_page(response):
            replica.requests.succeeded(in_flight.to_id)
        else:
            replica.protocol_violations += 1
            replica.requests.failed(in_flight.to_id, now)

    def _write_page(self, page: FetchSnapshotResponse) -> bool:
        """Write the requested page. Return False for another page, or for a page that exceeds the snapshot's size."""
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
        """Install a checked snapshot; None if it was invalid and deleted.

        A snapshot on disk is installed in any role except leader, which already has the records.
        """
        if self._checked != snapshot_id:
            return
        self._checked = None
        replica, role = self._replica, self._replica.role
        replica.restart_fetch_timer(now)
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
        """Reject an invalid snapshot and pause, so that the same snapshot is not fetched again at once."""
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
