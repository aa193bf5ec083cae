"""Fetching as a follower or observer: find the leader, truncate diverging records, append valid batches.

Theory. The fetch offset is the log end offset, and all records below it are on disk, because the fetch leaves after
their fsync. One fetch to the leader is in flight at a time. A response is used only if the log still ends at the fetch
offset, so a late or duplicate response has no effect. The sender of a response is not trusted beyond what can be
checked: no record below the high watermark or the log start offset is ever truncated, and an invalid batch is never
appended. Violations are counted (`QuorumReplica.protocol_violations`), ignored, and followed by another fetch after the
back-off.
"""

from itertools import islice
from typing import Final

from broker.quorum.batches import CheckedBatch, checked_batches
from broker.quorum.control_history import IncompatibleVoters
from broker.quorum.elections import QuorumElections
from broker.quorum.identity import Instant, LogPosition, SnapshotId, SocketAddress
from broker.quorum.messages import UNKNOWN_OFFSET, FetchRequest, FetchResponse, Request
from broker.quorum.ready import Append
from broker.quorum.replica import QuorumReplica
from broker.quorum.reports import Reports
from broker.quorum.request_manager import InFlightRequest
from broker.quorum.snapshots.fetch import SnapshotFetch
from broker.quorum.snapshots.importing import SnapshotImport
from broker.quorum.snapshots.trimming import Trimming
from broker.quorum.state import FollowerState, ObserverState, Role, UnattachedState
from protocol.errors import ErrorCode
from protocol.ids import BrokerId, LeaderEpoch, Offset
from protocol.primitives import Buffer

MAX_BATCHES: Final = 4096
"""Batches appended from one response; the next fetch gets the rest.

Validation takes 2 µs per batch of any size, and an idle leader writes small batches: 8 MiB of them, as sent by leaders
before KIP-1219, would block the event loop for 200 ms.
"""


class Following:
    """Sends fetches of a follower, observer or unattached voter, and processes the responses."""

    def __init__(
        self,
        replica: QuorumReplica,
        elections: QuorumElections,
        snapshot: SnapshotFetch,
        snapshot_import: SnapshotImport,
        reports: Reports,
        trimming: Trimming,
    ) -> None:
        self._replica = replica
        self._elections = elections
        self._snapshot = snapshot
        self._import = snapshot_import
        self._reports = reports
        self._trimming = trimming
        self._alternate_endpoint: BrokerId | None = None
        """The destination that last responded as leader under another address than the leader's own."""
        replica.on_leaving.append(self._on_leaving)

    @property
    def awaits_sync(self) -> bool:
        """Whether records that this voter appended are not on disk yet, so that no fetch may leave."""
        replica = self._replica
        return replica.settings.can_vote and replica.log.synced_end < replica.log.end

    # Roles

    def poll_follower(self, role: FollowerState, now: Instant) -> None:
        """Fetch as a voter. After the fetch timeout, become prospective, unless this node's own disk delays fetches."""
        replica = self._replica
        if replica.is_shutting_down or self._snapshot.is_being_checked:
            return
        if now.monotonic_ms >= role.fetch_deadline and not self.awaits_sync:
            self._elections.become_prospective(now)
        elif not self._snapshot.is_idle(now):
            self._send_to_leader(role, now)

    def poll_observer(self, role: ObserverState, now: Instant) -> None:
        """Fetch as an observer. After the fetch timeout, search for the leader."""
        if self._snapshot.is_idle(now):
            return
        is_in_time = now.monotonic_ms < role.fetch_deadline or self.awaits_sync
        if self._replica.leader.listeners and is_in_time:
            self._send_to_leader(role, now)
        else:
            self.search(now)

    def on_synced(self, now: Instant) -> None:
        """Restart the fetch timer: the next fetch waited for the fsync, and leaves now."""
        replica, role = self._replica, self._replica.role
        if not isinstance(role, FollowerState | ObserverState) or self.awaits_sync:
            return
        if isinstance(role, ObserverState) or not role.leader_ended:
            role.fetch_deadline = max(role.fetch_deadline, replica.timeouts.fetch_deadline(now))

    def poll_unattached(self, now: Instant) -> None:
        """Search for a leader while the election timer runs (KAFKA-17030)."""
        if not isinstance(self._replica.role, UnattachedState) or self._replica.is_shutting_down:
            return
        if not self._snapshot.is_being_checked:  # the fetch would name an end that the snapshot replaces
            self.search(now)

    def _send_to_leader(self, role: FollowerState | ObserverState, now: Instant) -> None:
        replica = self._replica
        leader_id, endpoint = replica.term.leader_id, replica.leader.address
        if leader_id is None or endpoint is None:
            self.search(now)
        elif replica.requests.is_ready(leader_id, now):
            request = self._reports.due(role, now) or self._next_request(now)
            if request is not None:
                replica.send(leader_id, endpoint, request)
        elif replica.requests.is_backing_off(leader_id, now):
            self.search(now)
        elif replica.requests.is_failing(leader_id):
            self._send_to_alternate(now)

    def _next_request(self, now: Instant) -> Request | None:
        """Return the next request for missing records or snapshot pages; None while an import loads them."""
        if self._import.is_busy:
            return self._import.next_request(now)
        return self._snapshot.next_request() or self._fetch_request()

    def _send_to_alternate(self, now: Instant) -> bool:
        """Send the next request to the address at which the leader responded, if its own listeners do not respond.

        Return False if there is no such address, or a request to it is in flight.
        """
        replica, alternate_id = self._replica, self._alternate_endpoint
        address = None if alternate_id is None else dict(self._known_nodes()).get(alternate_id)
        if alternate_id is None or address is None or not replica.requests.is_ready(alternate_id, now):
            return False
        request = self._next_request(now)
        if request is not None:
            replica.send(alternate_id, address, request)
        return True

    def search(self, now: Instant) -> None:
        """Send a fetch to a random known node. A node that is not the leader responds with the leader."""
        replica = self._replica
        if replica.requests.has_any_in_flight or self._send_to_alternate(now):
            return
        ready = [(to_id, to) for to_id, to in self._known_nodes() if replica.requests.is_ready(to_id, now)]
        if ready:
            to_id, to = ready[replica.random.randrange(len(ready))]
            replica.send(to_id, to, self._fetch_request())

    def _known_nodes(self) -> list[tuple[BrokerId, SocketAddress]]:
        """Return bootstrap servers (with negative ids), the last known leader, and the voters, except this node."""
        replica, leader_id, leader_address = self._replica, self._replica.term.leader_id, self._replica.leader.address
        own = {each.endpoint for each in replica.settings.listeners}
        servers = [(BrokerId(-2 - index), endpoint) for index, endpoint in enumerate(replica.settings.bootstrap)]
        if leader_id is not None and leader_address is not None and leader_id not in replica.voters:
            servers.append((leader_id, leader_address))
        for voter_id in replica.voters.ids:
            endpoint = (leader_address if voter_id == leader_id else None) or replica.voters.address(
                voter_id, replica.settings.default_listener
            )
            if endpoint is not None and voter_id != replica.key.id:
                servers.append((voter_id, endpoint))
        return [(to_id, endpoint) for to_id, endpoint in servers if endpoint not in own]

    def _fetch_request(self) -> FetchRequest:
        replica, settings = self._replica, self._replica.settings
        hwm = replica.high_watermark
        return FetchRequest(
            settings.cluster_id,
            replica.key,
            replica.term.epoch,
            replica.log.end,
            replica.log.last_epoch,
            settings.fetch_max_wait_ms,
            settings.fetch_max_bytes,
            UNKNOWN_OFFSET if hwm is None else hwm,
        )

    # Responses

    def on_fetch_response(
        self, in_flight: InFlightRequest, request: FetchRequest, response: FetchResponse, now: Instant
    ) -> None:
        replica = self._replica
        is_current = self._elections.learn_leader(response.leader, now, by_leader=response.error is ErrorCode.NONE)
        role = replica.role
        if (
            not is_current
            or not isinstance(role, FollowerState | ObserverState)
            or response.error is not ErrorCode.NONE
        ):
            replica.requests.failed(in_flight.to_id, now)
            self._alternate_endpoint = None if self._alternate_endpoint == in_flight.to_id else self._alternate_endpoint
            return
        self._alternate_endpoint = None if in_flight.to_id == replica.term.leader_id else in_flight.to_id
        is_import = self._import.is_own(request)
        position = (request.fetch_offset, request.last_fetched_epoch)
        if not is_import and position != (replica.log.end, replica.log.last_epoch):
            return
        if request.epoch != replica.term.epoch:  # sent before this node knew the epoch; the next fetch has the epoch
            return
        replica.on_leader_response(now)
        if isinstance(role, FollowerState):
            role.fetches_from = in_flight.to
        if self._import.on_fetched(request, response, now) if is_import else self._process(response, request, now):
            replica.requests.succeeded(in_flight.to_id)
        else:
            replica.protocol_violations += 1
            replica.requests.failed(in_flight.to_id, now)

    def on_refusal(self, in_flight: InFlightRequest, now: Instant) -> None:
        """Prepare an election when the leader's host refuses the connection: the leader's process has ended.

        Only the address of an earlier response in this epoch counts, because an advertised address may be wrong.
        """
        role = self._replica.role
        if isinstance(role, FollowerState) and in_flight.to == role.fetches_from:
            self._elections.on_leader_process_ended(role, now)

    def _process(self, response: FetchResponse, request: FetchRequest, now: Instant) -> bool:
        """Apply the response. Return False if no correct leader sends it."""
        if self._import.is_busy:
            return True
        if response.diverging is not None:
            return self._truncate(response.diverging, now)
        if response.snapshot_id is not None:
            return self._begin_snapshot(response, response.snapshot_id, now)
        if self._import.begin(response, now):
            return True
        is_valid = self._append(response.records, request.epoch, now)
        self._update_high_watermark(response.high_watermark, now)
        self._trimming.on_leader_start(response.log_start_offset)
        return is_valid

    def _begin_snapshot(self, response: FetchResponse, snapshot_id: SnapshotId, now: Instant) -> bool:
        """Import the snapshot from the object store if one is configured, or fetch it from the leader."""
        if not self._snapshot.is_under_way(snapshot_id) and self._import.begin(response, now):
            return True
        return self._snapshot.begin(snapshot_id)

    def _truncate(self, diverging: LogPosition, now: Instant) -> bool:
        """Truncate diverging records. An epoch may be removed without a record, if a deposed leader wrote none."""
        replica = self._replica
        if diverging.epoch < 0 or diverging.end_offset < 0:
            return False
        offset, before = replica.log.truncation_offset(diverging), replica.log.position
        newest = replica.log.newest_snapshot
        if offset < max(replica.high_watermark or 0, replica.log.start, newest.end_offset if newest else 0):
            return False
        replica.truncate_to(offset)
        replica.control_changed(now)
        return replica.log.position < before

    def _append(self, records: Buffer, epoch: LeaderEpoch, now: Instant) -> bool:
        """Append up to MAX_BATCHES valid batches. Return False if there are batches but the first is invalid."""
        replica, view = self._replica, memoryview(records)
        run: list[CheckedBatch] = []
        position = 0
        checked = checked_batches(view, replica.log.end, replica.log.last_epoch, epoch)
        for batch in islice(checked, MAX_BATCHES):
            if not self._note_control(batch):
                break
            if run and run[-1].header.leader_epoch != batch.header.leader_epoch:
                self._write(view, run)
                run = []
            run.append(batch)
            position = batch.position + batch.header.size
        if run:
            self._write(view, run)
        if replica.history.latest != replica.control:
            replica.control_changed(now)
        return position > 0 or not len(view)

    def _note_control(self, batch: CheckedBatch) -> bool:
        """Apply the voter and kraft.version changes of a batch. Return False if they may not follow the history."""
        history = self._replica.history
        try:
            for record in batch.control:
                history.append(record)
        except IncompatibleVoters:
            history.truncate_to(Offset(batch.header.base_offset))
            return False
        return True

    def _write(self, view: memoryview, run: list[CheckedBatch]) -> None:
        """Append unchanged batches of one epoch."""
        replica, first, last = self._replica, run[0], run[-1].header
        data = view[first.position : run[-1].position + last.size]
        end_offset, epoch = Offset(last.next_offset), LeaderEpoch(last.leader_epoch)
        replica.out.log.append(Append(data, end_offset, epoch))
        replica.out.must_sync = replica.out.must_sync or replica.settings.can_vote
        replica.log.append(end_offset, epoch, len(data))

    def _update_high_watermark(self, offset: Offset, now: Instant) -> None:
        """Raise the high watermark to the leader's, limited to the own log end offset."""
        known = min(offset, self._replica.log.end)
        if known >= 0:
            self._replica.raise_high_watermark(known, now)

    def _on_leaving(self, _before: Role) -> None:
        self._alternate_endpoint = None
