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

After recovery:

- NothingLeftOver: no copy or deletion is unfinished, and no segment is unreferenced; there is no object without
  metadata, and, except for objects lost by the store, no metadata without objects.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

from protocol.primitives import Uuid
from storage.log import Log
from storage.tiered.catalog.segment_spans import spans_of
from storage.tiered.format.object_keys import ObjectSuffix
from storage.tiered.lifecycle.copying import lineage_of
from storage.tiered.segment_metadata import RemoteSegment, SegmentEpoch, SegmentState, SegmentUpdate
from tests.simulation.remote_log.state import PARTITION, RECORDS, SEGMENT_BYTES, State
from tests.support.fakes.batches import iter_all_records


class Found(NamedTuple):
    """A record and the leader epoch of its batch."""

    offset: int
    epoch: int
    value: bytes


def records_of(batches: bytes) -> Iterator[Found]:
    for header, record in iter_all_records(batches):
        yield Found(record.offset, header.leader_epoch, bytes(record.value or b""))


class Checker:
    def __init__(self, state: State) -> None:
        self._state = state
        self._contents: dict[Uuid, list[Found]] = {}
        self._checked_epoch = (0, -1)
        self._checked_to = 0
        self._checked: set[tuple[Uuid, int, int]] = set()

    def check(self) -> None:
        """Check all brokers after an event."""
        state = self._state
        if state.found is not None:
            raise state.found
        for server in state.servers:
            if server.is_up and server.broker.has_ended:
                state.violated("NobodyEnds", f"{server.id} ended by itself: {server.broker.failure!r}")
        self._check_manifests()
        if state.leader is not None:
            self._note_checked_epoch(state.leader.id, state.epoch)
            log, readable = state.leader.log, state.readable
            self.check_remote(log, readable.start, log.local_log_start_offset, "Readable", "cannot be read")
            self._check_local(log, max(readable.start, log.local_log_start_offset, self._checked_to), readable.stop)
            self._checked_to = readable.stop

    def _note_checked_epoch(self, leader: int, epoch: int) -> None:
        """Remember checked ranges of a leader epoch: leaders do not truncate, and segments do not change."""
        if self._checked_epoch != (leader, epoch):
            self._checked_epoch, self._checked_to = (leader, epoch), 0
            self._checked.clear()

    def _check_local(self, log: Log, offset: int, end: int) -> None:
        while offset < end:
            found = log.read(offset, 1, log.log_end_offset)
            offset = self.check_records(log, list(records_of(bytes(found.data))), offset, found.next_offset)

    def check_remote(self, log: Log, first: int, end: int, invariant: str, what: str) -> None:
        """Check that finished segments hold all of [first, end), once, and as written."""
        cache, offset = self._state.bucket.metadata.cache(PARTITION), first
        while offset < end:
            epoch = log.epochs.epoch_for_offset(offset)
            segment = None if epoch is None else cache.segment_for(epoch, offset)
            if segment is None and (epoch, offset) in self._state.written_off:
                offset += 1
                continue
            if segment is None:
                self._state.violated(invariant, f"offset {offset} of epoch {epoch} {what}: {log}")
            # Records that were below the log start when copied count up to the first epoch of the records that were
            # not.
            last = min(end - 1, lineage_of(log).agreed_end(replace(segment, start_offset=offset)))
            if not (self._state.weather.has(segment) or self._state.weather.has_lost(segment)):
                self._state.violated(invariant, f"offset {offset} of epoch {epoch} {what}: {log}, {segment}")
            self._check_content(log, segment, offset, last)
            offset = last + 1

    def _check_content(self, log: Log, segment: RemoteSegment, first: int, last: int) -> None:
        key = (segment.id.id, first, last)
        if key not in self._checked and self._state.weather.has(segment):
            self._check_epochs(log, segment, first, last)
            self.check_records(log, self._content(segment), first, last + 1)
            self._checked.add(key)

    def _content(self, segment: RemoteSegment) -> list[Found]:
        """Return a segment's records; objects do not change under their ids."""
        found = self._contents.get(segment.id.id)
        if found is None:
            found = list(records_of(self._state.weather.truth(segment)))
            self._contents[segment.id.id] = found
        return found

    def check_records(self, log: Log, found: list[Found], first: int, end: int) -> int:
        """Check that the records contain [first, end) of `log`, once and in order; return `end`."""
        expected = first
        for record in found:
            if not first <= record.offset < end:
                continue
            if record.offset != expected:
                self._state.violated("Readable", f"offset {record.offset} follows instead of {expected}")
            self._check_record(log, record)
            expected += 1
        if expected != end:
            self._state.violated("Readable", f"no records after {expected - 1}, up to {end}")
        return end

    def _check_record(self, log: Log, record: Found) -> None:
        epoch = log.epochs.epoch_for_offset(record.offset)
        if record.epoch != epoch:
            self._state.violated("EpochsMatch", f"offset {record.offset} is of epoch {record.epoch}, not {epoch}")
        value = self._state.written.get((record.epoch, record.offset))
        if value is not None and record.value != value:
            self._state.violated("Readable", f"offset {record.offset} is {record.value!r} instead of {value!r}")

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
        for key in memory.keys():  # noqa: SIM118  it is no mapping
            if key.endswith(ObjectSuffix.MANIFEST.value):
                stem = key.removesuffix(ObjectSuffix.MANIFEST.value)
                missing = [each for each in ObjectSuffix if memory.info(stem + each.value) is None]
                if missing and not self._state.weather.lost_any(stem + each.value for each in missing):
                    self._state.violated("ManifestsStandForSegments", f"{keys.parse(key)} lacks {missing}")

    # ---- ---- checks of actions

    def check_copy(self, segment: RemoteSegment) -> None:
        """Check a segment that is about to be copied."""
        state = self._state
        server = state.servers[segment.broker_id - 1]
        state.counts.add("copies")
        state.note(f"{server.id} copies {segment.start_offset}-{segment.end_offset}")
        if server is state.leader and segment.end_offset >= server.log.last_stable_offset:
            text = f"{segment} is copied, the last stable offset is {server.log.last_stable_offset}"
            state.violated("BelowLastStable", text)

    def check_start(self, log: Log) -> None:
        """Check a raised log start offset; by size only where nothing else may have raised it."""
        state, by_size = self._state, self._state.config.retention_bytes
        state.gone_below = max(state.gone_below, log.log_start_offset)
        state.note(f"log start of {log}")
        if by_size < 0 or state.config.retention_ms >= 0 or log.log_start_offset <= state.trimmed_to:
            return
        left = log.log_end_offset - log.log_start_offset
        bytes_a_record = SEGMENT_BYTES / (RECORDS * 3)
        if (left + 6 * RECORDS) * bytes_a_record < by_size / 2:
            state.violated("SizeIsKept", f"{left} records are left of {log}, of which retention keeps {by_size} bytes")

    def note_deletion(self, update: SegmentUpdate) -> None:
        """Record that a leader deletes a segment of a diverging log, which that log's replica then lacks."""
        state = self._state
        if update.state is SegmentState.DELETE_FINISHED:
            state.counts.add("remote deletions")
        segment = state.bucket.metadata.cache(PARTITION).get(update.id.id)
        if update.state is not SegmentState.DELETE_STARTED or segment is None or update.broker_id < 1:
            return
        agreed = lineage_of(state.servers[update.broker_id - 1].log).agreed_end(segment)
        starts = [*segment.leader_epochs[1:], SegmentEpoch(-1, segment.end_offset + 1)]
        for (epoch, start), (_, end) in zip(segment.leader_epochs, starts, strict=True):
            state.written_off |= {(epoch, offset) for offset in range(max(start, agreed + 1), end)}

    # ---- ---- checks after recovery

    def check_nothing_left_over(self) -> None:
        state = self._state
        assert state.leader is not None
        log, segments = state.leader.log, state.bucket.segments()
        if log.log_start_offset < log.local_log_start_offset:
            start = log.log_start_offset
            self.check_remote(log, start, start + 1, "Readable", "is the log start offset")
        if unfinished := [each for each in segments if each.state is not SegmentState.COPY_FINISHED]:
            state.violated("NothingLeftOver", f"begun and never ended: {unfinished}")
        self._check_objects(segments)
        links = spans_of(segments, lineage_of(log), log.log_start_offset)
        if useless := {segment.id for segment in segments} - {link.segment.id for link in links}:
            state.violated("NothingLeftOver", f"unreferenced: {[each for each in segments if each.id in useless]}")

    def _check_objects(self, segments: list[RemoteSegment]) -> None:
        weather = self._state.weather
        expected = {weather.keys.key(segment, suffix) for segment in segments for suffix in ObjectSuffix}
        found = set(weather.memory.keys())
        if orphans := found - expected:
            self._state.violated("NothingLeftOver", f"objects without metadata: {sorted(orphans)}")
        if missing := {key for key in expected - found if not weather.lost_any([key])}:
            self._state.violated("NothingLeftOver", f"metadata without objects: {sorted(missing)}")
