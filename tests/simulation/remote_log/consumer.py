"""A consumer of remote records through the leader's own segment reader; it continues at its position or seeks.

It reads the right records or gets an error, and never skips an offset.
"""

from typing import cast

from broker.runtime.partitions.partition import Partition
from broker.runtime.remote_log.locations import RemoteLocations, SegmentMissing
from protocol.records.errors import MalformedBatch, MalformedRecords
from storage.tiered.errors import CorruptRemoteData, RemoteMetadataNotReady, RemoteStorageError
from storage.tiered.segments.reading import ReadRange, RemoteBatches
from tests.simulation.remote_log.checker import Checker
from tests.simulation.remote_log.state import Server, State

_ERRORS = (RemoteStorageError, RemoteMetadataNotReady, SegmentMissing)


class Consumer:
    def __init__(self, state: State, checker: Checker) -> None:
        self._state = state
        self._checker = checker
        self._position = 0

    def poll(self) -> None:
        """Fetch once, if a leader has remote records."""
        leader = self._state.leader
        if leader is None or leader.is_dying:
            return
        readable = self._state.readable
        remote = range(readable.start, min(leader.log.local_log_start_offset, readable.stop))
        if not remote:
            return
        if self._position not in remote or self._state.random.random() < 0.1:
            self._position = self._state.random.choice(remote)
        try:
            batches = self._read(leader, self._position, remote.stop)
        except _ERRORS as error:
            self._state.counts.add("remote reads that failed")
            self._state.counts.add("corrupt data noticed", int(isinstance(error, CorruptRemoteData)))
            if self._state.random.random() < 0.2:
                self._position = self._state.random.choice(remote)
            return
        self._take(leader, batches)

    def read_all(self) -> None:
        """Read every offset after recovery, except for losses of the store."""
        leader = self._state.leader
        assert leader is not None
        cache = self._state.bucket.metadata.cache(leader.broker.replica().id)
        offset, end = self._state.readable.start, leader.log.local_log_start_offset
        while offset < end:
            epoch = leader.log.epochs.epoch_for_offset(offset)
            segment = None if epoch is None else cache.segment_for(epoch, offset)
            self._position = offset
            try:
                self._take(leader, self._read(leader, offset, end))
                offset = self._position
            except (RemoteStorageError, SegmentMissing) as error:
                if segment is not None and self._state.weather.has_lost(segment):
                    offset = segment.end_offset + 1
                elif (epoch, offset) in self._state.written_off or self._checker.is_unrecorded(leader.log, offset):
                    offset += 1
                else:
                    self._state.violated("Readable", f"offset {offset} cannot be read by a consumer: {error}")

    def _read(self, leader: Server, offset: int, end: int) -> RemoteBatches:
        """Read with the broker's own classes."""
        partition = cast(Partition, leader.broker.replica())  # provides all that the reader uses
        located = RemoteLocations(leader.broker.metadata).locate(partition, offset)
        upper = min(located.last_offset + 1, leader.log.high_watermark)
        size = self._state.random.choice([1, 500, 10_000])
        return leader.reader.batches(located.segment, ReadRange(offset, upper, size))

    def _take(self, leader: Server, batches: RemoteBatches) -> None:
        self._state.counts.add("remote reads")
        if batches.next_offset > self._position:
            try:
                leader_log, data = leader.log, bytes(batches.data)
                self._position = self._checker.check_bytes(leader_log, data, self._position, batches.next_offset)
            except (MalformedBatch, MalformedRecords) as error:
                self._state.violated("Readable", f"damaged records at {self._position} reach a consumer: {error}")
