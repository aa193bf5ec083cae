"""Importing a snapshot from an object store, instead of fetching a snapshot or a long log from the leader.

1. The leader responds to a fetch with a snapshot id, or with the start of a long log if the replica's log is empty.
2. The importer finds the newest snapshot in the store up to the leader's high watermark.
3. A consumer fetch asks the leader for the record before the snapshot's end offset. A batch that ends there with the
   snapshot's epoch, in the log of a leader whose high watermark is not below it, proves that the snapshot is part of
   the committed history, under any later leader. A snapshot id named by the leader itself needs no proof.
4. The importer loads the snapshot into a separate file and checks it against its manifest.
5. The snapshot is checked, installed, and replaces the log like a fetched one (`fetch.py`).

Until step 5 the log view is unchanged: the node votes with its previous log. Log fetches pause meanwhile. The replica
stays in contact with the leader by fetching single bytes of the leader's snapshot, which Kafka's leaders also count.
After any failure, and after the time limit (`allowed_ms` in `imports.py`), the replica fetches from the leader and does
not use the store for `import_timeout_ms`. A role change cancels steps 2 and 3. Step 4 continues, because the proof
stays valid, unless this node becomes leader.
"""

from enum import Enum
from math import inf
from typing import Final

from broker.quorum.elections import QuorumElections
from broker.quorum.identity import NO_NODE, Instant, ReplicaKey, SnapshotId
from broker.quorum.messages import (
    NO_SNAPSHOT,
    FetchRequest,
    FetchResponse,
    FetchSnapshotRequest,
    FetchSnapshotResponse,
    Request,
)
from broker.quorum.replica import QuorumReplica
from broker.quorum.request_manager import InFlightRequest
from broker.quorum.snapshots.fetch import SnapshotFetch
from broker.quorum.snapshots.imports import (
    EndImport,
    FindImport,
    ImportFailed,
    ImportFound,
    ImportLoaded,
    ImportOutcome,
    LoadImport,
    RefuseImport,
    allowed_ms,
)
from broker.quorum.state import FollowerState, LeaderState, ObserverState, Role
from protocol.errors import ErrorCode
from protocol.ids import Offset
from protocol.primitives import Buffer
from protocol.records.batch import BatchHeader, parse_header
from protocol.records.errors import MalformedBatch

_CONSUMER: Final = ReplicaKey(NO_NODE)
"""The replica key of fetches without tracked progress."""
_CONTACTS_PER_FETCH_TIMEOUT: Final = 4


class _Phase(Enum):
    IDLE = 0
    SEARCHING = 1
    PROVING = 2
    LOADING = 3


class SnapshotImport:
    """The import of one snapshot at a time."""

    def __init__(self, replica: QuorumReplica, elections: QuorumElections, fetch: SnapshotFetch) -> None:
        self._replica = replica
        self._elections = elections
        self._fetch = fetch
        self._phase = _Phase.IDLE
        self._serial = 0
        self._offered: SnapshotId | None = None
        """The snapshot id that the leader named."""
        self._bounds = (0, 0)
        self._candidate = NO_SNAPSHOT
        self._size = 0
        self._sent: Request | None = None
        self._contact_at = 0.0
        self._started_at = 0.0
        self._deadline = inf
        self._disabled_until = -inf
        replica.on_leaving.append(self._on_leaving)

    @property
    def is_busy(self) -> bool:
        """Whether an import is in progress, so that log fetches pause."""
        return self._phase is not _Phase.IDLE

    def deadline(self, now: Instant) -> float:
        """The monotonic time of the time limit or the next contact with the leader."""
        if not self.is_busy:
            return inf
        return min(self._deadline, self._contact_at if self._contact_at > now.monotonic_ms else inf)

    # Beginning

    def begin(self, response: FetchResponse, now: Instant) -> bool:
        """Start an import after a fetch response, if enabled and worthwhile. Return False to fetch from the leader."""
        replica, settings = self._replica, self._replica.settings
        is_off = settings.import_timeout_ms <= 0 or replica.is_shutting_down or self._fetch.is_being_checked
        if is_off or now.monotonic_ms < self._disabled_until or not self._is_far_behind(response):
            return False
        offered = response.snapshot_id
        most = max(response.high_watermark, 0 if offered is None else offered.end_offset)
        self._bounds = (self._least(response, most if offered is None else offered.end_offset), most)
        if self._bounds[0] > most:
            return False
        self._fetch.give_up()
        self._offered, self._started_at = offered, now.monotonic_ms
        self._deadline = now.monotonic_ms + settings.import_timeout_ms
        self._contact_at = now.monotonic_ms + settings.fetch_timeout_ms / _CONTACTS_PER_FETCH_TIMEOUT
        self._search()
        return True

    def _is_far_behind(self, response: FetchResponse) -> bool:
        offered = response.snapshot_id
        if offered is not None:
            return self._fetch.is_missing(offered)
        return self._replica.log.end == 0 and response.high_watermark >= self._replica.settings.import_min_records

    def _least(self, response: FetchResponse, goal: int) -> int:
        """Return the smallest useful end offset.

        The leader's log must continue from it, and the snapshot must cover at least half of the missing records.
        """
        known = max(self._replica.log.start, self._replica.high_watermark or 0)
        return max(1, response.log_start_offset, known + (goal - known + 1) // 2)

    def _search(self) -> None:
        self._phase = _Phase.SEARCHING
        self._serial += 1
        least, most = self._bounds
        self._replica.out.imports.append(FindImport(self._serial, least, most, self._replica.term.epoch))

    # Outcomes of the importer

    def on_outcome(self, outcome: ImportOutcome, now: Instant) -> None:
        if outcome.serial != self._serial or not self.is_busy:
            return
        match outcome:
            case ImportFound(snapshot_id=snapshot_id, size=size) if self._phase is _Phase.SEARCHING:
                self._size = size
                self._on_found(snapshot_id, now)
            case ImportLoaded(size=size) if self._phase is _Phase.LOADING:
                self._on_loaded(size, now)
            case ImportFailed(is_refused=is_refused) if self._phase is _Phase.LOADING:
                if is_refused and isinstance(self._replica.role, FollowerState | ObserverState):
                    self._search()
                else:
                    self._end(now)

    def _on_found(self, found: SnapshotId | None, now: Instant) -> None:
        if found is None or not self._is_useful(found):
            self._end(now)
            return
        self._candidate = found
        if found == self._offered:
            self._load()
        elif self._offered is not None and found.end_offset == self._offered.end_offset:
            self._refuse(f"the leader's snapshot that ends there is of epoch {self._offered.epoch}")
        else:
            self._phase = _Phase.PROVING

    def _refuse(self, reason: str) -> None:
        """Refuse a snapshot of another history, and find an older one."""
        self._replica.out.imports.append(RefuseImport(self._candidate, reason))
        self._search()

    def _is_useful(self, found: SnapshotId) -> bool:
        least, most = self._bounds
        is_within = least <= found.end_offset <= most and 0 <= found.epoch <= self._replica.term.epoch
        return is_within and self._fetch.is_missing(found)

    def _load(self) -> None:
        self._phase = _Phase.LOADING
        self._deadline = self._started_at + allowed_ms(self._replica.settings.import_timeout_ms, self._size)
        self._serial += 1
        self._replica.out.imports.append(LoadImport(self._serial, self._candidate))

    def _on_loaded(self, size: int, now: Instant) -> None:
        if isinstance(self._replica.role, LeaderState) or not self._fetch.is_missing(self._candidate):
            self._cancel()
        else:
            self._fetch.finish_import(self._candidate, size)
        self._end(now)

    # Requests to the leader

    def next_request(self, now: Instant) -> Request | None:
        """Return the proof request, or a due contact request; None if none is due."""
        if self._phase is _Phase.PROVING:
            self._sent = self._proof_request()
        elif now.monotonic_ms >= self._contact_at:
            self._sent = self._contact()
        else:
            return None
        self._contact_at = now.monotonic_ms + self._replica.settings.fetch_timeout_ms / _CONTACTS_PER_FETCH_TIMEOUT
        return self._sent

    def is_own(self, request: Request) -> bool:
        """Whether the request was sent by this import."""
        return request is self._sent

    def _proof_request(self) -> FetchRequest:
        """Return a fetch of the record that precedes the candidate snapshot's end offset.

        If the leader's log starts at that record, the epoch before it is that of the leader's snapshot.
        """
        replica, offered = self._replica, self._offered
        offset, last_epoch = Offset(self._candidate.end_offset - 1), self._candidate.epoch
        if offered is not None and offered.end_offset == offset:
            last_epoch = offered.epoch
        cluster_id, epoch = replica.settings.cluster_id, replica.term.epoch
        return FetchRequest(cluster_id, _CONSUMER, epoch, offset, last_epoch, max_wait_ms=0, max_bytes=1)

    def _contact(self) -> FetchRequest | FetchSnapshotRequest:
        replica, cluster_id, epoch = self._replica, self._replica.settings.cluster_id, self._replica.term.epoch
        if self._offered is not None:
            return FetchSnapshotRequest(cluster_id, replica.key, epoch, self._offered, 0, 1)
        return FetchRequest(
            cluster_id, replica.key, epoch, replica.log.end, replica.log.last_epoch, max_wait_ms=0, max_bytes=1
        )

    def on_fetched(self, request: FetchRequest, response: FetchResponse, now: Instant) -> bool:
        """Process the leader's response. Return False if no correct leader sends it."""
        self._sent = None
        if request.replica != _CONSUMER:
            self._offered = response.snapshot_id
            return True
        refusal, is_valid = self._judge(response)
        if refusal is not None:
            self._refuse(refusal)
        elif is_valid and len(response.records) and response.high_watermark >= self._candidate.end_offset:
            self._load()
        else:
            self._end(now)
        return is_valid

    def _judge(self, response: FetchResponse) -> tuple[str | None, bool]:
        """Return why the candidate is not of the leader's history (or None), and whether the response is valid."""
        end_offset, epoch = self._candidate
        if response.diverging is not None:
            other = response.diverging
            return f"in the leader's log epoch {other.epoch} ends at {other.end_offset}", True
        if response.snapshot_id is not None:
            other_id = response.snapshot_id
            return f"the leader has only its snapshot {other_id.end_offset}-{other_id.epoch} to hold against it", True
        header = _first_batch(response.records)
        if header is None or not header.base_offset < end_offset <= header.next_offset:
            return None, False
        if header.leader_epoch != epoch:
            return f"record {end_offset - 1} is of epoch {header.leader_epoch} in the leader's log", True
        if header.next_offset != end_offset:
            return f"it ends within the batch from {header.base_offset} to {header.next_offset - 1}", True
        return None, True

    def on_contact_response(
        self, in_flight: InFlightRequest, request: FetchSnapshotRequest, response: FetchSnapshotResponse, now: Instant
    ) -> bool:
        """Process the response to a contact request. Return False if this import did not send the request."""
        if not self.is_own(request):
            return False
        self._sent, replica = None, self._replica
        is_current = self._elections.learn_leader(response.leader, now, by_leader=response.error is ErrorCode.NONE)
        if is_current and isinstance(replica.role, FollowerState | ObserverState) and response.error is ErrorCode.NONE:
            replica.on_leader_response(now)
            replica.requests.succeeded(in_flight.to_id)
            return True
        if response.error in (ErrorCode.SNAPSHOT_NOT_FOUND, ErrorCode.POSITION_OUT_OF_RANGE):
            self._offered = None
        self._contact_at = now.monotonic_ms
        replica.requests.failed(in_flight.to_id, now)
        return True

    # Ending

    def poll(self, now: Instant) -> None:
        """Cancel the import after its time limit, on shutdown, and on a leader."""
        if not self.is_busy:
            return
        is_late = now.monotonic_ms >= self._deadline
        if is_late or self._replica.is_shutting_down or isinstance(self._replica.role, LeaderState):
            self._cancel(is_late=is_late)
            self._end(now)

    def _end(self, now: Instant) -> None:
        """End the import, and disable imports for the import timeout."""
        self._reset()
        self._disabled_until = now.monotonic_ms + self._replica.settings.import_timeout_ms

    def _reset(self) -> None:
        self._phase, self._sent, self._offered = _Phase.IDLE, None, None
        self._deadline = inf

    def _cancel(self, *, is_late: bool = False) -> None:
        self._replica.out.imports.append(EndImport(self._serial, is_late))

    def _on_leaving(self, _before: Role) -> None:
        self._offered = self._sent = None
        if self._phase in (_Phase.SEARCHING, _Phase.PROVING):
            self._cancel()
            self._reset()


def _first_batch(records: Buffer) -> BatchHeader | None:
    try:
        return parse_header(records) if len(records) else None
    except MalformedBatch:
        return None
