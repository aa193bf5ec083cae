"""Following: fetch from the leader, find it if it is not known, cut what diverges, append what is sound.

Theory. A fetch says where the own log ends, and so what is on the disk: it leaves after everything before it is synced.
One fetch is under way to the leader at a time, and an answer is taken only if the log still ends where the question
said; a late or doubled one changes nothing. A leader, or whoever answers in its name, is not trusted beyond what can be
checked: nothing below the high watermark or the log start is ever cut, and a bad batch is not appended. What cannot be
right is counted (`QuorumReplica.protocol_violations`), left alone, and asked for again after a pause.
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
from protocol.primitives import Buffer

MOST_BATCHES: Final = 4096
"""Taken of one answer. To check one takes 2 µs however small it is, and an idle leader writes them small: 8 MiB of
them, which leaders before KIP-1219 send, would stop the loop for 200 ms. What is left is fetched again, next.
"""


class Following:
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
        self._alternate_endpoint: int | None = None
        replica.on_leaving.append(self._on_leaving)

    # Acting

    def follow(self, role: FollowerState, now: Instant) -> None:
        """As a voter: a leader that is silent for too long may need a successor."""
        replica = self._replica
        if replica.is_shutting_down or self._snapshot.is_being_checked:
            return
        if now.monotonic_ms >= role.fetch_deadline:
            self._elections.become_prospective(now)
        elif not self._snapshot.is_idle(now):
            self._ask_leader(role, now)

    def observe(self, role: ObserverState, now: Instant) -> None:
        """As an observer: look for a leader that answers, wherever one might know it."""
        if self._snapshot.is_idle(now):
            return
        if self._replica.leader_listeners and now.monotonic_ms < role.fetch_deadline:
            self._ask_leader(role, now)
        else:
            self.search(now)

    def wait(self, now: Instant) -> None:
        """While a voter waits for its election timer, a leader may be found (KAFKA-17030)."""
        if isinstance(self._replica.role, UnattachedState) and not self._replica.is_shutting_down:
            self.search(now)

    def _ask_leader(self, role: FollowerState | ObserverState, now: Instant) -> None:
        replica = self._replica
        leader_id, endpoint = replica.term.leader_id, replica.leader_endpoint
        if leader_id is None or endpoint is None:
            self.search(now)
        elif replica.requests.is_ready(leader_id, now):
            request = self._reports.due(role, now) or self._next_request(now)
            if request is not None:
                replica.send(leader_id, endpoint, request)
        elif replica.requests.is_backing_off(leader_id, now):
            self.search(now)
        elif replica.requests.is_failing(leader_id):
            self._ask_at_door(now)

    def _next_request(self, now: Instant) -> Request | None:
        """For what is missing; None while an import brings it."""
        if self._import.is_busy:
            return self._import.next_request(now)
        return self._snapshot.next_request() or self._fetch_request()

    def _ask_at_door(self, now: Instant) -> bool:
        """Where the leader says that it listens it does not answer, but it has answered under another address: ask
        there, whatever is needed. False if there is no such address, or it is taken.
        """
        replica, door = self._replica, self._alternate_endpoint
        endpoint = None if door is None else dict(self._acquaintances()).get(door)
        if door is None or endpoint is None or not replica.requests.is_ready(door, now):
            return False
        request = self._next_request(now)
        if request is not None:
            replica.send(door, endpoint, request)
        return True

    def search(self, now: Instant) -> None:
        """Ask anybody who may know; whoever is not the leader answers who is."""
        replica = self._replica
        if replica.requests.is_any_busy or self._ask_at_door(now):
            return
        ready = [(to_id, to) for to_id, to in self._acquaintances() if replica.requests.is_ready(to_id, now)]
        if ready:
            to_id, to = ready[replica.random.randrange(len(ready))]
            replica.send(to_id, to, self._fetch_request())

    def _acquaintances(self) -> list[tuple[int, SocketAddress]]:
        """The bootstrap servers, which have negative ids, the leader last heard of, and the voters; not this node."""
        replica, leader_id, leads_at = self._replica, self._replica.term.leader_id, self._replica.leader_endpoint
        own = {each.endpoint for each in replica.settings.listeners}
        servers = [(-2 - index, endpoint) for index, endpoint in enumerate(replica.settings.bootstrap)]
        if leader_id is not None and leads_at is not None and leader_id not in replica.voters:
            servers.append((leader_id, leads_at))
        for voter_id in replica.voters.ids:
            endpoint = (leads_at if voter_id == leader_id else None) or replica.voter_endpoint(voter_id)
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

    # Hearing

    def on_fetch_response(
        self, flight: InFlightRequest, request: FetchRequest, response: FetchResponse, now: Instant
    ) -> None:
        replica = self._replica
        is_ours = self._elections.learn_leader(response.leader, now, by_leader=response.error is ErrorCode.NONE)
        role = replica.role
        if not is_ours or not isinstance(role, FollowerState | ObserverState) or response.error is not ErrorCode.NONE:
            replica.requests.failed(flight.to_id, now)
            self._alternate_endpoint = None if self._alternate_endpoint == flight.to_id else self._alternate_endpoint
            return
        self._alternate_endpoint = None if flight.to_id == replica.term.leader_id else flight.to_id
        is_import = self._import.is_own(request)
        position = (request.fetch_offset, request.last_fetched_epoch)
        if not is_import and position != (replica.log.end, replica.log.last_epoch):
            return
        if request.epoch != replica.term.epoch:  # asked before this node knew the epoch; ask again in it
            return
        replica.on_leader_response(now)
        if isinstance(role, FollowerState):
            role.fetches_from = flight.to
        if self._import.on_fetched(request, response, now) if is_import else self._take(response, request, now):
            replica.requests.succeeded(flight.to_id)
        else:
            replica.protocol_violations += 1
            replica.requests.failed(flight.to_id, now)

    def on_refusal(self, flight: InFlightRequest, now: Instant) -> None:
        """Nobody listens any more where the leader answered: its process has ended, and a vote need not wait.

        Only an address that has answered in this epoch can say so: what a leader advertises may be wrong.
        """
        role = self._replica.role
        if isinstance(role, FollowerState) and flight.to == role.fetches_from:
            self._elections.on_leader_process_ended(role, now)

    def _take(self, response: FetchResponse, request: FetchRequest, now: Instant) -> bool:
        """Does what the answer says; False if no leader could say so."""
        if self._import.is_busy:
            return True
        if response.diverging is not None:
            return self._truncate(response.diverging, now)
        if response.snapshot_id is not None:
            return self._take_snapshot(response, response.snapshot_id, now)
        if self._import.begin(response, now):
            return True
        is_sound = self._append(response.records, request.epoch, now)
        self._learn_high_watermark(response.high_watermark, now)
        self._trimming.on_leader_start(response.log_start_offset)
        return is_sound

    def _take_snapshot(self, response: FetchResponse, snapshot_id: SnapshotId, now: Instant) -> bool:
        """From the store, if there is one that may have it; or from the leader."""
        if not self._snapshot.is_under_way(snapshot_id) and self._import.begin(response, now):
            return True
        return self._snapshot.begin(snapshot_id)

    def _truncate(self, diverging: LogPosition, now: Instant) -> bool:
        """Cut what differs. Epochs may go without a record: a deposed leader's last one may have been empty."""
        replica = self._replica
        if diverging.epoch < 0 or diverging.end_offset < 0:
            return False
        offset, before = replica.log.truncation_offset(diverging), replica.position
        newest = replica.log.newest_snapshot
        if offset < max(replica.high_watermark or 0, replica.log.start, newest.end_offset if newest else 0):
            return False
        replica.truncate_to(offset)
        replica.control_changed(now)
        return replica.position < before

    def _append(self, records: Buffer, epoch: int, now: Instant) -> bool:
        """Appends the sound batches, up to MOST_BATCHES; False if there is none although there are batches."""
        replica, view = self._replica, memoryview(records)
        run: list[CheckedBatch] = []
        position = 0
        checked = checked_batches(view, replica.log.end, replica.log.last_epoch, epoch)
        for batch in islice(checked, MOST_BATCHES):
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
        """Whether the changes in it may follow what the log says so far; if so, they count from now on."""
        history = self._replica.history
        try:
            for record in batch.control:
                history.append(record)
        except IncompatibleVoters:
            history.truncate_to(batch.header.base_offset)
            return False
        return True

    def _write(self, view: memoryview, run: list[CheckedBatch]) -> None:
        """Batches of one epoch, as they are."""
        replica, first, last = self._replica, run[0], run[-1].header
        data = view[first.position : run[-1].position + last.size]
        replica.out.log.append(Append(data, last.next_offset, last.leader_epoch))
        replica.out.must_sync = replica.out.must_sync or replica.settings.can_vote
        replica.log.append(last.next_offset, last.leader_epoch, len(data))

    def _learn_high_watermark(self, offset: int, now: Instant) -> None:
        """What the leader says, as far as the own log reaches."""
        known = min(offset, self._replica.log.end)
        if known >= 0:
            self._replica.raise_high_watermark(known, now)

    def _on_leaving(self, _before: Role) -> None:
        self._alternate_endpoint = None
