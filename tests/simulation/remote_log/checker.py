"""Invariants of a tiered log, checked against disks, metadata and the store, by the names in violations.

After every event:

- Readable: every offset from the leader's log start offset to its high watermark exists exactly once, locally or in a
  finished segment, with the record written by the leader of its epoch. Consumers read that record or get an error;
  records lost by the store give an error. Excepted are offsets below the log start offset of a former leader, once a
  replica has led that may not have known it, and records deleted by a leader of a diverging log.
- EpochsMatch: the epochs of the records in a segment equal those in its metadata and those of the leader.
- BelowLastStable: no copy begins at or above the last stable offset.
- NotDroppedBeforeCopied: a local segment is deleted only if a finished segment has it, or below the log start offset.
- SizeIsKept: retention by size keeps at least the configured size.
- ManifestsStandForSegments: every manifest belongs to a complete segment.
- NobodyEnds: no broker ends by itself.
- FinishedSegmentsStay: no object of a finished segment is written again.
- LaterEpochsStay: no broker begins to delete a segment with records of a later leader epoch than its own.
- DeposedLeadersDeleteNothing: a deposed leader begins to delete no finished segment, some time after its successor has
  written its log start object.
- RunningCopiesStay: nobody but the copier deletes a segment whose upload makes progress, as long as clocks agree.
- UploadsCount: in a calm history a copier does not delete a segment whose upload has ended well.
- CollectionsKeepRecords: a collection removes no segment without metadata that has the only copy of a record, by leader
  epoch and offset, above all log start offsets.
- LogStartsAreDurable: before the deletion of a finished segment below its log start offset, a leader has that offset
  on the disk, synced.

After recovery:

- NothingLeftOver: no copy or deletion is unfinished, and no segment is unreferenced; there is no object without
  metadata, and, except for objects lost by the store, no metadata without objects.
"""

import asyncio
from dataclasses import replace
from typing import NamedTuple

from protocol.ids import LeaderEpoch
from protocol.primitives import Uuid
from protocol.records.errors import MalformedBatch, MalformedRecords
from storage.directories.checkpoints import LOG_START_OFFSET_FILE
from storage.log import Log
from storage.retention import Expired, SegmentDeletionReason
from storage.tiered.catalog.segment_spans import spans_of
from storage.tiered.format.log_start_object import LOG_START_STEM
from storage.tiered.format.object_keys import ObjectSuffix
from storage.tiered.lifecycle.copying import CopyBacklog, lineage_of
from storage.tiered.segment_metadata import RemoteSegment, SegmentEpoch, SegmentState, SegmentUpdate
from tests.simulation.remote_log.metadata import PARTITION
from tests.simulation.remote_log.state import RECORDS, SEGMENT_BYTES, Server, State, records_of
from tests.support.fakes.batches import iter_all_records
from tests.support.fakes.memory_files import _Directory, _FileNode

_LENGTH_PREFIX = 12
_IN_FLIGHT_S = 120.0
"""Longest time from a decision to its events, in a store that is slow."""


class Found(NamedTuple):
    """The offsets and the epoch of a batch; `wrong` describes a record that its leader did not write."""

    first: int
    last: int
    epoch: int
    wrong: str


class BatchReader:
    """Reader of batches that compares each distinct batch with the written records once."""

    def __init__(self, written: dict[tuple[int, int], bytes]) -> None:
        self._written = written
        self._known: dict[bytes, Found] = {}

    def batches(self, data: bytes) -> list[Found]:
        """Return the batches of some log bytes. Raises MalformedBatch, MalformedRecords."""
        found, position = [], 0
        while position < len(data):
            end = position + _LENGTH_PREFIX + int.from_bytes(data[position + 8 : position + _LENGTH_PREFIX])
            batch = data[position : max(end, position + _LENGTH_PREFIX)]
            known = self._known.get(batch)
            if known is None:
                known = self._known[batch] = self._read(batch)
            found.append(known)
            position += len(batch)
        return found

    def _read(self, batch: bytes) -> Found:
        wrong, offsets, epoch = "", [], -1
        for header, record in iter_all_records(batch):
            epoch, value = header.leader_epoch, bytes(record.value or b"")
            expected = self._written.get((epoch, record.offset))
            if expected is not None and value != expected:
                wrong = f"offset {record.offset} is {value!r} instead of {expected!r}"
            offsets.append(record.offset)
        if offsets != list(range(offsets[0], offsets[0] + len(offsets))):
            wrong = f"the offsets of a batch are {offsets}"
        return Found(offsets[0], offsets[-1], epoch, wrong)


class Checker:
    def __init__(self, state: State) -> None:
        self._state = state
        self._reader = BatchReader(state.written)
        self._contents: dict[Uuid, list[Found]] = {}
        self._checked_epoch = (0, -1)
        self._checked_to = 0
        self._checked: set[tuple[Uuid, int, int]] = set()
        self._manifests_version = -1
        self._seen_remotely: tuple[object, ...] = ()
        self._claims: dict[int, float] = {}

    def check(self) -> None:
        """Check all brokers after an event."""
        state = self._state
        if state.found is not None:
            raise state.found
        for server in state.servers:
            if server.is_up and server.broker.has_ended:
                state.violated("NobodyEnds", f"{server.id} ended by itself: {server.broker.failure!r}")
        self._check_manifests()
        if state.leader is not None and state.leader.log.failure is None:
            self._note_checked_epoch(state.leader.id, state.epoch)
            log, readable = state.leader.log, state.readable
            self._check_readable_remotely(log, readable.start)
            self._check_local(log, max(readable.start, log.local_log_start_offset, self._checked_to), readable.stop)
            self._checked_to = readable.stop

    def _check_readable_remotely(self, log: Log, start: int) -> None:
        """Check the remote part of the log, unless it is as in the last check."""
        state, end = self._state, log.local_log_start_offset
        seen = (
            state.epoch,
            start,
            end,
            len(log.epochs.entries),
            id(state.bucket.metadata.caches.get(PARTITION)),
            len(state.bucket.metadata.events),
            state.weather.version,
            len(state.written_off),
            len(state.unrecorded),
            state.is_recovered,
        )
        if seen != self._seen_remotely:
            self.check_remote(log, start, end, "Readable", "cannot be read")
            self._seen_remotely = seen

    def _note_checked_epoch(self, leader: int, epoch: int) -> None:
        """Remember checked ranges of a leader epoch: leaders do not truncate, and segments do not change."""
        if self._checked_epoch != (leader, epoch):
            self._checked_epoch, self._checked_to = (leader, epoch), 0
            self._checked.clear()

    def _check_local(self, log: Log, offset: int, end: int) -> None:
        leader = self._state.leader
        assert leader is not None
        if offset >= end:
            return
        rotten = [rot.offsets for rot in leader.present_rot()] if leader.rotten else []
        while offset < end:
            inside = next((offsets for offsets in rotten if offset in offsets), None)
            if inside is not None:
                offset = inside.stop
                continue
            found = log.read(offset, SEGMENT_BYTES, log.log_end_offset)
            if any(offsets.start < found.next_offset and offset < offsets.stop for offsets in rotten):
                found = log.read(offset, 1, log.log_end_offset)  # the batch at `offset` alone: later ones may not parse
            following = min(found.next_offset, end)
            offset = self.check_records(log, self._reader.batches(bytes(found.data)), offset, following)

    def check_remote(self, log: Log, first: int, end: int, invariant: str, what: str) -> None:
        """Check that finished segments hold all of [first, end), once, and as written."""
        cache, offset = self._state.bucket.metadata.cache(PARTITION), first
        lineage = lineage_of(log)
        while offset < end:
            epoch = log.epochs.epoch_for_offset(offset)
            segment = None if epoch is None else cache.segment_for(epoch, offset)
            if segment is None and ((epoch, offset) in self._state.written_off or self.is_unrecorded(log, offset)):
                offset += 1
                continue
            if segment is None:
                self._state.violated(invariant, f"offset {offset} of epoch {epoch} {what}: {log}")
            # Records that were below the log start when copied count up to the first epoch of the records that were
            # not.
            last = min(end - 1, lineage.agreed_end(replace(segment, start_offset=offset)))
            if not (self._state.weather.has(segment) or self._state.weather.has_lost(segment)):
                self._state.violated(invariant, f"offset {offset} of epoch {epoch} {what}: {log}, {segment}")
            self._check_content(log, segment, offset, last)
            offset = last + 1

    def is_unrecorded(self, log: Log, offset: int) -> bool:
        """Whether an offset is in a segment without metadata that an operator can recover, or that the store lost."""
        near = [each for each in self._state.unrecorded if each.start_offset <= offset <= each.end_offset]
        if not near:
            return False
        weather, lineage = self._state.weather, lineage_of(log)
        return any(
            (weather.has_lost(each) or (weather.has(each) and not self._state.is_recovered))
            and offset <= lineage.agreed_end(each)
            for each in near
        )

    def _check_content(self, log: Log, segment: RemoteSegment, first: int, last: int) -> None:
        key = (segment.id.id, first, last)
        if key not in self._checked and self._state.weather.has(segment) and not self._state.weather.has_lost(segment):
            self._check_epochs(log, segment, first, last)
            self.check_records(log, self._content(segment), first, last + 1)
            self._checked.add(key)

    def _content(self, segment: RemoteSegment) -> list[Found]:
        """Return a segment's records; objects do not change under their ids."""
        found = self._contents.get(segment.id.id)
        if found is None:
            try:
                found = self._reader.batches(self._state.weather.truth(segment))
            except (MalformedBatch, MalformedRecords) as error:
                self._state.violated("Readable", f"{segment} has damaged records: {error}")
            self._contents[segment.id.id] = found
        return found

    def check_bytes(self, log: Log, data: bytes, first: int, end: int) -> int:
        """Check log bytes as `check_records`. Raises MalformedBatch, MalformedRecords."""
        return self.check_records(log, self._reader.batches(data), first, end)

    def check_records(self, log: Log, found: list[Found], first: int, end: int) -> int:
        """Check that the batches contain [first, end) of `log`, once and in order; return `end`."""
        expected = first
        for batch in found:
            if batch.last < first or batch.first >= end:
                continue
            if batch.first != expected and not batch.first <= expected == first:
                self._state.violated("Readable", f"offset {batch.first} follows instead of {expected}")
            if batch.wrong:
                self._state.violated("Readable", batch.wrong)
            for offset in (expected, min(batch.last, end - 1)):
                epoch = log.epochs.epoch_for_offset(offset)
                if batch.epoch != epoch:
                    self._state.violated("EpochsMatch", f"offset {offset} is of epoch {batch.epoch}, not {epoch}")
            expected = batch.last + 1
        if expected < end:
            self._state.violated("Readable", f"no records after {expected - 1}, up to {end}")
        return end

    def _check_epochs(self, log: Log, segment: RemoteSegment, first: int, last: int) -> None:
        """Check that the epochs in a segment's metadata equal the leader's."""
        epochs_in_metadata = [(epoch, max(start, first)) for epoch, start in segment.leader_epochs if start <= last]
        while len(epochs_in_metadata) > 1 and epochs_in_metadata[1][1] <= first:
            epochs_in_metadata.pop(0)
        for epoch, start in epochs_in_metadata:
            if log.epochs.epoch_for_offset(start) != epoch:
                self._state.violated("EpochsMatch", f"{segment} has epoch {epoch} at {start}, which {log} lacks")

    def _check_manifests(self) -> None:
        """Check that segments with lost objects have no manifest."""
        memory, keys = self._state.weather.memory, self._state.weather.keys
        if memory.version == self._manifests_version:
            return
        self._manifests_version = memory.version
        for key in memory.keys():  # noqa: SIM118  it is no mapping
            if key.endswith(ObjectSuffix.MANIFEST.value):
                stem = key.removesuffix(ObjectSuffix.MANIFEST.value)
                missing = [each for each in ObjectSuffix if memory.info(stem + each.value) is None]
                if missing and not self._is_excused(stem, missing):
                    self._state.violated("ManifestsStandForSegments", f"{keys.parse(key)} lacks {missing}")

    def _is_excused(self, stem: str, missing: list[ObjectSuffix]) -> bool:
        """Whether the store lost the missing objects, or the manifest appeared after the segment was given up."""
        weather = self._state.weather
        is_late = stem + ObjectSuffix.MANIFEST.value in weather.memory.landed
        return is_late or weather.lost_any(stem + each.value for each in missing)

    # ---- ---- checks of actions

    def check_put(self, key: str) -> None:
        """Check an object that is about to appear in the store."""
        state = self._state
        if LOG_START_STEM in key:
            self._claims.setdefault(int(key.rpartition("-")[2]), asyncio.get_running_loop().time())
            return
        parsed = state.weather.keys.parse(key)
        if parsed is None:
            return
        segment = state.bucket.metadata.cache(PARTITION).get(parsed.id.id)
        if segment is not None and segment.state is SegmentState.COPY_FINISHED:
            state.violated("FinishedSegmentsStay", f"{key} is written again")

    def _is_fenced(self, epoch: int) -> bool:
        """Whether a later leader's log start object has been in the store for a while."""
        before_s = asyncio.get_running_loop().time() - _IN_FLIGHT_S
        return any(later > epoch and claimed_s < before_s for later, claimed_s in self._claims.items())

    def check_copy(self, segment: RemoteSegment) -> None:
        """Check a segment that is about to be copied."""
        state = self._state
        server = state.servers[segment.broker_id - 1]
        state.counts.add("copies")
        state.note(f"{server.id} copies {segment.start_offset}-{segment.end_offset}")
        if server is state.leader and segment.end_offset >= server.log.last_stable_offset:
            text = f"{segment} is copied, the last stable offset is {server.log.last_stable_offset}"
            state.violated("BelowLastStable", text)

    def check_start(self, server: Server, log: Log) -> None:
        """Check a raised log start offset; by size only where nothing else may have raised it."""
        state, by_size = self._state, self._state.config.retention_bytes
        state.note(f"log start of {log} on {server.id}")
        known, state.gone_below = state.gone_below, max(state.gone_below, log.log_start_offset)
        if server is not state.leader:
            if self._is_fenced(server.replica.leader_epoch):
                state.violated("DeposedLeadersDeleteNothing", f"{server.id} raises the log start of {log}")
            state.log_start_may_be_unknown = True
        if by_size < 0 or state.config.retention_ms >= 0 or log.log_start_offset <= max(state.trimmed_to, known):
            return
        left = log.log_end_offset - log.log_start_offset
        bytes_a_record = SEGMENT_BYTES / (RECORDS * 3)
        if (left + 6 * RECORDS) * bytes_a_record < by_size / 2:
            state.violated("SizeIsKept", f"{left} records are left of {log}, of which retention keeps {by_size} bytes")

    def check_update(self, update: SegmentUpdate) -> None:
        """Check an event that a broker publishes about a segment."""
        state = self._state
        if update.state is SegmentState.DELETE_FINISHED:
            state.counts.add("remote deletions")
        segment = state.bucket.metadata.cache(PARTITION).get(update.id.id)
        if update.state is not SegmentState.DELETE_STARTED or segment is None:
            return
        if segment.state is SegmentState.COPY_STARTED:
            self._check_copy_deletion(update, segment)
        if update.broker_id < 1:
            return
        state.deleted |= records_of(segment)
        server = state.server(update.broker_id)
        state.note(f"{server.id} deletes {segment.start_offset}-{segment.end_offset} {segment.state.name}")
        if segment.state is SegmentState.COPY_FINISHED:
            self._check_deletion(server, segment)
        elif segment.broker_id != server.id:
            self._check_later_epochs(server, segment)
        if server is state.leader:
            self._write_off(server, segment)

    def _check_deletion(self, server: Server, segment: RemoteSegment) -> None:
        self._check_later_epochs(server, segment)
        state, log = self._state, server.log
        if server.replica.is_leader and server is not state.leader and self._is_fenced(server.replica.leader_epoch):
            state.violated("DeposedLeadersDeleteNothing", f"{server.id} deletes {segment}")
        decided_s = asyncio.get_running_loop().time() - _IN_FLIGHT_S
        is_trimmed_since = segment.end_offset < state.trimmed_to and state.trimmed_s > decided_s
        if segment.end_offset < log.log_start_offset and not is_trimmed_since:
            durable = _durable_log_start(server)
            if durable <= segment.end_offset:
                text = f"{server.id} deletes {segment} for log start {log.log_start_offset}; {durable} is on its disk"
                state.violated("LogStartsAreDurable", text)

    def _check_copy_deletion(self, update: SegmentUpdate, segment: RemoteSegment) -> None:
        """Check the deletion of a segment whose copy has not finished."""
        state, copier = self._state, self._state.server(segment.broker_id)
        is_running = copier.is_up and not copier.is_dying
        if state.has_clock_steps or not is_running:
            return
        if update.broker_id != copier.id:
            if segment.id.id in copier.uplink.running:
                state.violated("RunningCopiesStay", f"{update.broker_id} deletes {segment}")
        elif segment.id.id in copier.uplink.uploaded and state.weather.is_calm and not copier.present_rot():
            self._check_wasted_upload(copier, segment)

    def _check_wasted_upload(self, copier: Server, segment: RemoteSegment) -> None:
        if segment.end_offset >= max(copier.log.log_start_offset, copier.log.local_log_start_offset):
            self._state.violated("UploadsCount", f"{copier.id} deletes {segment}")

    def _check_later_epochs(self, server: Server, segment: RemoteSegment) -> None:
        if segment.leader_epochs[-1].epoch > server.replica.leader_epoch:
            text = f"{server.id}, of epoch {server.replica.leader_epoch}, deletes {segment}"
            self._state.violated("LaterEpochsStay", text)

    def _write_off(self, server: Server, segment: RemoteSegment) -> None:
        """Record that a leader deletes a segment of a diverging log, which that log's replica then lacks."""
        agreed = lineage_of(server.log).agreed_end(segment)
        starts = [*segment.leader_epochs[1:], SegmentEpoch(LeaderEpoch(-1), segment.end_offset + 1)]
        for (epoch, start), (_, end) in zip(segment.leader_epochs, starts, strict=True):
            self._state.written_off |= {(epoch, offset) for offset in range(max(start, agreed + 1), end)}

    def check_local_deletions(self, server: Server, deleted: list[Expired]) -> None:
        """Check local segments that retention deleted."""
        state, log = self._state, server.log
        for expired in deleted:
            for segment in expired.segments:
                state.counts.add("local deletions")
                if expired.reason is not SegmentDeletionReason.BELOW_LOG_START:
                    end = min(other.base_offset for other in log.segments if other.base_offset > segment.base_offset)
                    first = max(segment.base_offset, log.log_start_offset, state.gone_below)
                    self.check_remote(log, first, end, "NotDroppedBeforeCopied", f"left the disk of {server.id}")

    # ---- ---- checks after recovery

    def check_nothing_left_over(self, *, strictly: bool) -> None:
        """Check that nothing is unfinished; strictly, after a collection, also that no late object is left."""
        state = self._state
        assert state.leader is not None
        log, segments = state.leader.log, state.bucket.segments()
        if log.log_start_offset < log.local_log_start_offset:
            start = log.log_start_offset
            self.check_remote(log, start, start + 1, "Readable", "is the log start offset")
        if unfinished := [each for each in segments if each.state is not SegmentState.COPY_FINISHED]:
            state.violated("NothingLeftOver", f"begun and never ended: {unfinished}")
        self._check_objects(segments, strictly=strictly)
        links = spans_of(segments, lineage_of(log), log.log_start_offset)
        if useless := {segment.id for segment in segments} - {link.segment.id for link in links}:
            state.violated("NothingLeftOver", f"unreferenced: {[each for each in segments if each.id in useless]}")
        self._check_backlog(state.leader)
        self._check_retention(state.leader, [link.segment for link in links])

    def _check_backlog(self, leader: Server) -> None:
        """Check that every closed, stable segment is copied."""
        log = leader.log
        for segment in CopyBacklog(log).at(log.highest_remote_offset).segments:
            end = log.segments.end_of(segment, log.log_end_offset)
            if end <= log.last_stable_offset:
                self._state.violated("EverythingIsCopied", f"{segment.base_offset}-{end - 1} of {log} on {leader.id}")

    def _check_retention(self, leader: Server, segments: list[RemoteSegment]) -> None:
        """Check that retention by time and size has been applied."""
        state, config, log = self._state, self._state.config, leader.log
        latest_ms = leader.clock.now_ms() - config.retention_ms - 5 * state.settings.task_interval_ms
        if config.retention_ms >= 0 and (old := [each for each in segments if each.max_timestamp_ms < latest_ms]):
            state.violated("EverythingExpires", f"{log}: {old}")
        bytes_a_record = SEGMENT_BYTES / (RECORDS * 3)
        size = (log.high_watermark - log.log_start_offset) * bytes_a_record
        if config.retention_bytes >= 0 and segments and size > 2 * config.retention_bytes + 4 * SEGMENT_BYTES:
            state.violated("EverythingExpires", f"{log} has some {size} bytes, the limit is {config.retention_bytes}")

    def _check_objects(self, segments: list[RemoteSegment], *, strictly: bool) -> None:
        weather = self._state.weather
        expected = {key for segment in segments for key in weather.keys_of(segment)}
        found = {key for key in weather.memory.keys() if LOG_START_STEM not in key}  # noqa: SIM118  it is no mapping
        excused = set() if strictly else weather.memory.landed | self._unrecorded_keys()
        if orphans := {key for key in found - expected - excused if not self._is_damaged(key)}:
            self._state.violated("NothingLeftOver", f"objects without metadata: {sorted(orphans)}")
        if missing := {key for key in expected - found if not weather.lost_any([key])}:
            self._state.violated("NothingLeftOver", f"metadata without objects: {sorted(missing)}")

    def _unrecorded_keys(self) -> set[str]:
        return {key for segment in self._state.unrecorded for key in self._state.weather.keys_of(segment)}

    def _is_damaged(self, key: str) -> bool:
        """Whether an object of the same segment is lost or rotten: the segment may be kept for an operator."""
        stem = next((key.removesuffix(each.value) for each in ObjectSuffix if key.endswith(each.value)), key)
        return self._state.weather.lost_any(stem + each.value for each in ObjectSuffix)


def _durable_log_start(server: Server) -> int:
    """Return the log start offset in the checkpoint as the disk has it after the worst power loss; 0 if none."""
    directory = server.broker.fs._find("d")
    assert isinstance(directory, _Directory)
    node = directory.durable.get(LOG_START_OFFSET_FILE)
    if not isinstance(node, _FileNode):
        return 0
    lines = bytes(node.durable).decode().splitlines()[2:]
    return max((int(line.rsplit(" ", 1)[1]) for line in lines), default=0)
