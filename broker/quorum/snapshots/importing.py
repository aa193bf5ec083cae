"""Importing a snapshot from a store, in place of fetching one, or a long log, from the leader.

1. The leader answers a fetch with a snapshot id, or with the beginning of a long log to a replica that has nothing.
2. The store is asked for its newest snapshot that the leader's high watermark covers.
3. The leader is asked for the record before its end, as a consumer would ask: a batch that ends there, of the epoch in
   the snapshot's name, in the log of a leader whose high watermark is not below it, proves the id part of the committed
   history, for good and under any leader. For the id that the leader itself named no question is needed.
4. The snapshot is brought, checked against its manifest, and put aside.
5. From there on it is as if it had been fetched (`snapshot_fetch.py`): checked, put in place, and the log starts at it.

Until step 5 nothing of it is in the log's view: the node votes with its log as it was and tells nobody of another end.
Meanwhile the log is not fetched, but the leader is kept in touch with, a byte of its snapshot at a time, which Kafka's
leaders count as contact too. Whatever goes wrong, and at the latest after `import_timeout_ms` (that many times as the
snapshot's size is worth, `imports.py`), the leader is asked as ever, and the store left alone for `import_timeout_ms`.
A change of role ends steps 2 and 3; step 4 goes on, for what was proven stays so, unless this node comes to lead.
"""

from enum import Enum
from math import inf
from typing import Final

from broker.quorum.elections import QuorumElections
from broker.quorum.identity import Instant, ReplicaKey, SnapshotId
from broker.quorum.messages import FetchRequest, FetchResponse, FetchSnapshotRequest, FetchSnapshotResponse, Request
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
from protocol.primitives import Buffer
from protocol.records.batch import BatchHeader, parse_header
from protocol.records.errors import MalformedBatch

_CONSUMER: Final = ReplicaKey(-1)
"""Whose fetches say nothing of what a replica has."""
_TOUCHES: Final = 4
"""In a fetch timeout."""


class _Phase(Enum):
    IDLE = 0
    SEARCHING = 1
    PROVING = 2
    LOADING = 3


class SnapshotImport:
    def __init__(self, replica: QuorumReplica, elections: QuorumElections, fetch: SnapshotFetch) -> None:
        self._replica = replica
        self._elections = elections
        self._fetch = fetch
        self._stage = _Phase.IDLE
        self._serial = 0
        self._offered: SnapshotId | None = None
        """What the leader has in place of the log."""
        self._bounds = (0, 0)
        self._candidate = SnapshotId(0, 0)
        self._size = 0
        self._asked: Request | None = None
        self._touch_at = 0.0
        self._began_at = 0.0
        self._deadline = inf
        self._quiet_until = -inf
        replica.on_leaving.append(self._on_leaving)

    @property
    def is_busy(self) -> bool:
        """The log is not fetched meanwhile."""
        return self._stage is not _Phase.IDLE

    def deadline(self, now: Instant) -> float:
        """When `look` or the next touch is due, a monotonic time."""
        if not self.is_busy:
            return inf
        return min(self._deadline, self._touch_at if self._touch_at > now.monotonic_ms else inf)

    # Beginning

    def begin(self, response: FetchResponse, now: Instant) -> bool:
        """The leader answered so to a fetch of what is missing. False if it is to be fetched, as it would be without a
        store.
        """
        replica, settings = self._replica, self._replica.settings
        is_off = settings.import_timeout_ms <= 0 or replica.is_shutting_down or self._fetch.is_being_checked
        if is_off or now.monotonic_ms < self._quiet_until or not self._is_far(response):
            return False
        offered = response.snapshot_id
        most = max(response.high_watermark, 0 if offered is None else offered.end_offset)
        self._bounds = (self._least(response, most if offered is None else offered.end_offset), most)
        if self._bounds[0] > most:
            return False
        self._fetch.give_up()
        self._offered, self._began_at = offered, now.monotonic_ms
        self._deadline = now.monotonic_ms + settings.import_timeout_ms
        self._touch_at = now.monotonic_ms + settings.fetch_timeout_ms / _TOUCHES
        self._search()
        return True

    def _is_far(self, response: FetchResponse) -> bool:
        offered = response.snapshot_id
        if offered is not None:
            return self._fetch.is_missing(offered)
        return self._replica.log.end == 0 and response.high_watermark >= self._replica.settings.import_min_records

    def _least(self, response: FetchResponse, goal: int) -> int:
        """The leader must have what follows; and with less than half of what is missing, the leader had better be asked
        for all of it.
        """
        known = max(self._replica.log.start, self._replica.high_watermark or 0)
        return max(1, response.log_start_offset, known + (goal - known + 1) // 2)

    def _search(self) -> None:
        self._stage = _Phase.SEARCHING
        self._serial += 1
        least, most = self._bounds
        self._replica.out.imports.append(FindImport(self._serial, least, most, self._replica.term.epoch))

    # What the store says

    def on_outcome(self, outcome: ImportOutcome, now: Instant) -> None:
        if outcome.serial != self._serial or not self.is_busy:
            return
        match outcome:
            case ImportFound(snapshot_id=snapshot_id, size=size) if self._stage is _Phase.SEARCHING:
                self._size = size
                self._on_found(snapshot_id, now)
            case ImportLoaded(size=size) if self._stage is _Phase.LOADING:
                self._on_loaded(size, now)
            case ImportFailed(is_refused=is_refused) if self._stage is _Phase.LOADING:
                if is_refused and isinstance(self._replica.role, FollowerState | ObserverState):
                    self._search()
                else:
                    self._end(now)

    def _on_found(self, found: SnapshotId | None, now: Instant) -> None:
        if found is None or not self._is_of_use(found):
            self._end(now)
            return
        self._candidate = found
        if found == self._offered:
            self._load()
        elif self._offered is not None and found.end_offset == self._offered.end_offset:
            self._refuse(f"the leader's snapshot that ends there is of epoch {self._offered.epoch}")
        else:
            self._stage = _Phase.PROVING

    def _refuse(self, reason: str) -> None:
        """Of another history; there may be an older one that is not."""
        self._replica.out.imports.append(RefuseImport(self._candidate, reason))
        self._search()

    def _is_of_use(self, found: SnapshotId) -> bool:
        least, most = self._bounds
        is_within = least <= found.end_offset <= most and 0 <= found.epoch <= self._replica.term.epoch
        return is_within and self._fetch.is_missing(found)

    def _load(self) -> None:
        self._stage = _Phase.LOADING
        self._deadline = self._began_at + allowed_ms(self._replica.settings.import_timeout_ms, self._size)
        self._serial += 1
        self._replica.out.imports.append(LoadImport(self._serial, self._candidate))

    def _on_loaded(self, size: int, now: Instant) -> None:
        if isinstance(self._replica.role, LeaderState) or not self._fetch.is_missing(self._candidate):
            self._cancel()
        else:
            self._fetch.finish_import(self._candidate, size)
        self._end(now)

    # Asking the leader

    def next_request(self, now: Instant) -> Request | None:
        """The proof, or a sign of life when it is time for one; None if nothing is to be sent now."""
        if self._stage is _Phase.PROVING:
            self._asked = self._proof()
        elif now.monotonic_ms >= self._touch_at:
            self._asked = self._touch()
        else:
            return None
        self._touch_at = now.monotonic_ms + self._replica.settings.fetch_timeout_ms / _TOUCHES
        return self._asked

    def is_own(self, request: Request) -> bool:
        """Whether the answer to a request belongs here."""
        return request is self._asked

    def _proof(self) -> FetchRequest:
        """For the record before the candidate's end. A leader whose log starts just there knows the record before that
        one by the epoch of its snapshot alone.
        """
        replica, offered = self._replica, self._offered
        offset, last_epoch = self._candidate.end_offset - 1, self._candidate.epoch
        if offered is not None and offered.end_offset == offset:
            last_epoch = offered.epoch
        cluster_id, epoch = replica.settings.cluster_id, replica.term.epoch
        return FetchRequest(cluster_id, _CONSUMER, epoch, offset, last_epoch, max_wait_ms=0, max_bytes=1)

    def _touch(self) -> FetchRequest | FetchSnapshotRequest:
        replica, cluster_id, epoch = self._replica, self._replica.settings.cluster_id, self._replica.term.epoch
        if self._offered is not None:
            return FetchSnapshotRequest(cluster_id, replica.key, epoch, self._offered, 0, 1)
        return FetchRequest(
            cluster_id, replica.key, epoch, replica.log.end, replica.log.last_epoch, max_wait_ms=0, max_bytes=1
        )

    def on_fetched(self, request: FetchRequest, response: FetchResponse, now: Instant) -> bool:
        """The leader of this epoch answered a request of ours. False if no leader could say so."""
        self._asked = None
        if request.replica != _CONSUMER:
            self._offered = response.snapshot_id
            return True
        refusal, is_sound = self._judge(response)
        if refusal is not None:
            self._refuse(refusal)
        elif is_sound and len(response.records) and response.high_watermark >= self._candidate.end_offset:
            self._load()
        else:
            self._end(now)
        return is_sound

    def _judge(self, response: FetchResponse) -> tuple[str | None, bool]:
        """Why the candidate is not of the leader's history, and whether the answer makes sense at all."""
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
        """Takes the answer to a sign of life; False if the request was another's."""
        if not self.is_own(request):
            return False
        self._asked, replica = None, self._replica
        is_current = self._elections.learn_leader(response.leader, now, by_leader=response.error is ErrorCode.NONE)
        if is_current and isinstance(replica.role, FollowerState | ObserverState) and response.error is ErrorCode.NONE:
            replica.on_leader_response(now)
            replica.requests.succeeded(in_flight.to_id)
            return True
        if response.error in (ErrorCode.SNAPSHOT_NOT_FOUND, ErrorCode.POSITION_OUT_OF_RANGE):
            self._offered = None
        self._touch_at = now.monotonic_ms
        replica.requests.failed(in_flight.to_id, now)
        return True

    # Ending

    def poll(self, now: Instant) -> None:
        """It has taken too long, or is not wanted any more."""
        if not self.is_busy:
            return
        is_late = now.monotonic_ms >= self._deadline
        if is_late or self._replica.is_shutting_down or isinstance(self._replica.role, LeaderState):
            self._cancel(is_late=is_late)
            self._end(now)

    def _end(self, now: Instant) -> None:
        """The store has had its turn for a while."""
        self._rest()
        self._quiet_until = now.monotonic_ms + self._replica.settings.import_timeout_ms

    def _rest(self) -> None:
        self._stage, self._asked, self._offered = _Phase.IDLE, None, None
        self._deadline = inf

    def _cancel(self, *, is_late: bool = False) -> None:
        self._replica.out.imports.append(EndImport(self._serial, is_late))

    def _on_leaving(self, _before: Role) -> None:
        self._offered = self._asked = None
        if self._stage in (_Phase.SEARCHING, _Phase.PROVING):
            self._cancel()
            self._rest()


def _first_batch(records: Buffer) -> BatchHeader | None:
    try:
        return parse_header(records) if len(records) else None
    except MalformedBatch:
        return None
