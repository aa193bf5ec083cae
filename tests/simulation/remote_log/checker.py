"""Holds what a tiered log promises against what is on disks, in metadata and in the store. The names are those that
violations carry.

After every event:

- Readable: every offset from the leader's log start to its high watermark is there exactly once, here or in a finished
  segment, and is what was written there by the leader of its epoch. Consumers get that or an error: of what the store
  has lost, an error. Left out is what lies below where a former leader let the log begin, once a replica has led that
  may not have heard of it, and what a leader of another history did away with before this one came back.
- EpochsMatch: the epochs of what is read from a segment are those that metadata tell of it, and the leader's.
- BelowLastStable: no copy begins of anything at or above the last stable offset.
- NotDroppedBeforeCopied: nothing leaves a disk that is not in a finished segment, unless it is below the log start.
- SizeIsKept: retention by size leaves at least as much as it should.
- ManifestsStandForSegments: where there is a manifest, there is a whole segment.
- NobodyEnds: every broker is at work.

And when all is well again for a while:

- NothingLeftOver: no segment was begun and not ended, and none is of no use; there is no object without metadata, and,
  but for what the store has lost, no metadata without objects.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

from protocol.primitives import Uuid
from protocol.records.reader import iter_all_records
from storage.log import Log
from storage.tiered.catalog.segment_spans import spans_of
from storage.tiered.format.object_keys import ObjectSuffix
from storage.tiered.lifecycle.copying import lineage_of
from storage.tiered.segment_metadata import RemoteSegment, SegmentEpoch, SegmentState, SegmentUpdate
from tests.simulation.remote_log.state import PARTITION, RECORDS, SEGMENT_BYTES, State


class Found(NamedTuple):
    """A record, and the epoch that its batch says."""

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
        self._reign = (0, -1)
        self._checked_to = 0
        self._checked: set[tuple[Uuid, int, int]] = set()

    def check(self) -> None:
        """After an event."""
        state = self._state
        if state.found is not None:
            raise state.found
        for server in state.servers:
            if server.is_up and server.broker.has_ended:
                state.violated("NobodyEnds", f"{server.id} has ended by itself: {server.broker.failure!r}")
        self._check_manifests()
        if state.leader is not None:
            self._note_reign(state.leader.id, state.epoch)
            log, readable = state.leader.log, state.readable
            self.check_remote(log, readable.start, log.local_log_start_offset, "Readable", "cannot be read")
            self._check_local(log, max(readable.start, log.local_log_start_offset, self._checked_to), readable.stop)
            self._checked_to = readable.stop

    def _note_reign(self, leader: int, epoch: int) -> None:
        """What was right in a reign stays so: leaders do not cut their logs, and segments do not change."""
        if self._reign != (leader, epoch):
            self._reign, self._checked_to = (leader, epoch), 0
            self._checked.clear()

    def _check_local(self, log: Log, offset: int, end: int) -> None:
        while offset < end:
            found = log.read(offset, 1, log.log_end_offset)
            offset = self.check_records(log, list(records_of(bytes(found.data))), offset, found.next_offset)

    def check_remote(self, log: Log, first: int, end: int, invariant: str, what: str) -> None:
        """All of [first, end) is in finished segments, once, and is what was written."""
        cache, offset = self._state.bucket.metadata.cache(PARTITION), first
        while offset < end:
            epoch = log.epochs.epoch_for_offset(offset)
            segment = None if epoch is None else cache.segment_for(epoch, offset)
            if segment is None and (epoch, offset) in self._state.written_off:
                offset += 1
                continue
            if segment is None:
                self._state.violated(invariant, f"offset {offset} of epoch {epoch} {what}: {log}")
            # What was below the log's start when it was copied counts to the first epoch of what was not.
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
        """Objects do not change under their ids."""
        found = self._contents.get(segment.id.id)
        if found is None:
            found = list(records_of(self._state.weather.truth(segment)))
            self._contents[segment.id.id] = found
        return found

    def check_records(self, log: Log, found: list[Found], first: int, end: int) -> int:
        """[first, end) of `log` is among them, once and in order; returns `end`."""
        expected = first
        for record in found:
            if not first <= record.offset < end:
                continue
            if record.offset != expected:
                self._state.violated("Readable", f"offset {record.offset} comes where {expected} should")
            self._check_record(log, record)
            expected += 1
        if expected != end:
            self._state.violated("Readable", f"after {expected - 1} nothing comes, up to {end}")
        return end

    def _check_record(self, log: Log, record: Found) -> None:
        epoch = log.epochs.epoch_for_offset(record.offset)
        if record.epoch != epoch:
            self._state.violated("EpochsMatch", f"offset {record.offset} is of epoch {record.epoch}, not {epoch}")
        value = self._state.written.get((record.epoch, record.offset))
        if value is not None and record.value != value:
            self._state.violated("Readable", f"offset {record.offset} is {record.value!r} instead of {value!r}")

    def _check_epochs(self, log: Log, segment: RemoteSegment, first: int, last: int) -> None:
        """What metadata tell of the segment's epochs is what the leader knows."""
        told = [(epoch, max(start, first)) for epoch, start in segment.leader_epochs if start <= last]
        while len(told) > 1 and told[1][1] <= first:
            told.pop(0)
        for epoch, start in told:
            if log.epochs.epoch_for_offset(start) != epoch:
                self._state.violated("EpochsMatch", f"{segment} has epoch {epoch} at {start}, which {log} has not")

    def _check_manifests(self) -> None:
        """What the store has lost has no whole segment any more."""
        memory, keys = self._state.weather.memory, self._state.weather.keys
        for key in memory.keys():  # noqa: SIM118  it is no mapping
            if key.endswith(ObjectSuffix.MANIFEST.value):
                stem = key.removesuffix(ObjectSuffix.MANIFEST.value)
                missing = [each for each in ObjectSuffix if memory.info(stem + each.value) is None]
                if missing and not self._state.weather.lost_any(stem + each.value for each in missing):
                    self._state.violated("ManifestsStandForSegments", f"{keys.parse(key)} lacks {missing}")

    # ---- when something is done

    def check_copy(self, segment: RemoteSegment) -> None:
        """It is about to be copied."""
        state = self._state
        server = state.servers[segment.broker_id - 1]
        state.counts.add("copies")
        state.note(f"{server.id} copies {segment.start_offset}-{segment.end_offset}")
        if server is state.leader and segment.end_offset >= server.log.last_stable_offset:
            text = f"{segment} is copied, the last stable offset is {server.log.last_stable_offset}"
            state.violated("BelowLastStable", text)

    def check_start(self, log: Log) -> None:
        """A broker has let its log begin later. Only where nothing else may have moved the start, size tells."""
        state, by_size = self._state, self._state.config.retention_bytes
        state.gone_below = max(state.gone_below, log.log_start_offset)
        state.note(f"log start of {log}")
        if by_size < 0 or state.config.retention_ms >= 0 or log.log_start_offset <= state.trimmed_to:
            return
        left = log.log_end_offset - log.log_start_offset
        bytes_a_record = SEGMENT_BYTES / (RECORDS * 3)
        if (left + 6 * RECORDS) * bytes_a_record < by_size / 2:
            state.violated("SizeIsKept", f"{left} records are left of {log}, of which there were to be {by_size} bytes")

    def note_deletion(self, update: SegmentUpdate) -> None:
        """A leader for whom a segment is of another history does away with it. Should the history come back in another
        unclean election, that part of it is lost."""
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

    # ---- at the end

    def check_nothing_left_over(self) -> None:
        state = self._state
        assert state.leader is not None
        log, segments = state.leader.log, state.bucket.segments()
        if log.log_start_offset < log.local_log_start_offset:
            start = log.log_start_offset
            self.check_remote(log, start, start + 1, "Readable", "is where the log says it begins")
        if unfinished := [each for each in segments if each.state is not SegmentState.COPY_FINISHED]:
            state.violated("NothingLeftOver", f"begun and never ended: {unfinished}")
        self._check_objects(segments)
        links = spans_of(segments, lineage_of(log), log.log_start_offset)
        if useless := {segment.id for segment in segments} - {link.segment.id for link in links}:
            state.violated("NothingLeftOver", f"of no use: {[each for each in segments if each.id in useless]}")

    def _check_objects(self, segments: list[RemoteSegment]) -> None:
        weather = self._state.weather
        expected = {weather.keys.key(segment, suffix) for segment in segments for suffix in ObjectSuffix}
        found = set(weather.memory.keys())
        if orphans := found - expected:
            self._state.violated("NothingLeftOver", f"objects that nobody knows of: {sorted(orphans)}")
        if missing := {key for key in expected - found if not weather.lost_any([key])}:
            self._state.violated("NothingLeftOver", f"metadata without objects: {sorted(missing)}")
