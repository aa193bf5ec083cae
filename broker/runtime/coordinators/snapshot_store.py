"""The snapshots of coordinators' partitions, as files beside the segments of the log.

A snapshot only saves time. A replica writes its own from its own log, below the high watermark, and a snapshot counts
only if the log holds the record before its end in the same leader epoch. Without a snapshot, or with a damaged one, the
whole log is replayed.
"""

import asyncio
from functools import partial
from typing import Final, NamedTuple

from broker.clock import Clock
from broker.coordination.snapshot_records import Manifest, read_manifest
from broker.logs import EventLog
from broker.runtime.loop.io_thread import BlockingIo
from broker.runtime.partitions.partition import Partition
from protocol.ids import LeaderEpoch
from protocol.primitives import uuid_to_text
from protocol.records.batch import NO_SEQUENCE, BatchHeader
from storage.errors import DamagedSnapshot
from storage.files import FileSystem
from storage.log import Log
from storage.log_snapshots import (
    CheckpointId,
    FileRawSnapshotWriter,
    SnapshotFileCheck,
    SnapshotFiles,
    checkpoint_name,
    view_batches,
)

_SLICE_MS: Final = 1.0

_log = EventLog(__name__)


class SnapshotBatch(NamedTuple):
    """A data batch. `bucket` is None for records that are replayed at once."""

    bucket: int | None
    header: BatchHeader
    data: memoryview


class CoordinatorSnapshot(NamedTuple):
    """A snapshot that is checked from end to end; the batches stay valid after its removal."""

    id: CheckpointId
    manifest: Manifest
    record_count: int
    batches: list[SnapshotBatch]


class SnapshotStore:
    """Finds, checks and removes snapshots. `io` runs blocking work."""

    def __init__(self, files: FileSystem, io: BlockingIo, clock: Clock) -> None:
        self._fs = files
        self.io = io
        self._clock = clock

    async def newest(self, partition: Partition) -> CoordinatorSnapshot | None:
        """Return the newest snapshot that the log of the partition agrees with; None without one that is whole."""
        files = self._files(partition)
        try:
            ids = await self.io.submit(files.ids)
        except OSError:
            return None  # the replica is removed, or its directory fails
        for id in reversed(ids):
            if not agrees(partition.log, id):
                continue
            try:
                view = await self.io.submit(partial(files.view, id))
                return await self._checked(view, id, partition)
            except (DamagedSnapshot, OSError) as error:
                _log.warning("A coordinator's snapshot is ignored", partition=str(partition), error=str(error))
        return None

    async def begin(self, partition: Partition, id: CheckpointId) -> FileRawSnapshotWriter:
        """Begin to write a snapshot. Raise OSError."""
        return await self.io.submit(partial(self._files(partition).begin, id))

    async def remove_all_but(self, partition: Partition, kept: CheckpointId) -> None:
        """Remove the other snapshots of a partition, and parts that a crash has left. Raise OSError."""
        await self.io.submit(partial(_remove_all_but, self._files(partition), kept))

    def _files(self, partition: Partition) -> SnapshotFiles:
        return SnapshotFiles(self._fs, partition.log.directory)

    async def _checked(self, view: memoryview, id: CheckpointId, partition: Partition) -> CoordinatorSnapshot:
        """Check every batch, in slices. Raise DamagedSnapshot."""
        check = SnapshotFileCheck(id)
        manifest: Manifest | None = None
        batches: list[SnapshotBatch] = []
        record_count = 0
        slice_end_ms = self._clock.monotonic_ms() + _SLICE_MS
        for data in view_batches(view, id):
            if self._clock.monotonic_ms() >= slice_end_ms:
                await asyncio.sleep(0)
                slice_end_ms = self._clock.monotonic_ms() + _SLICE_MS
            header = check.take(data)
            if header is None:
                continue
            if manifest is None:
                manifest = _checked_manifest(data, id, partition)
                continue
            sequence = header.base_sequence
            batches.append(SnapshotBatch(None if sequence == NO_SEQUENCE else sequence, header, data))
            record_count += header.record_count
        check.finish()
        if manifest is None:
            raise DamagedSnapshot(checkpoint_name(id), "the snapshot has no manifest")
        return CoordinatorSnapshot(id, manifest, record_count, batches)


def agrees(log: Log, id: CheckpointId) -> bool:
    """Whether the log continues the history of a snapshot."""
    return log.log_start_offset <= id.end_offset and holds(log, id.end_offset, id.epoch)


def holds(log: Log, end_offset: int, epoch: LeaderEpoch) -> bool:
    """Whether the record before an offset is in the log, or was before a compaction, in this leader epoch."""
    return 0 < end_offset <= log.log_end_offset and log.epochs.epoch_for_offset(end_offset - 1) == epoch


def _checked_manifest(batch: memoryview, id: CheckpointId, partition: Partition) -> Manifest:
    """Return the manifest in a batch. Raise DamagedSnapshot if it belongs to another partition."""
    manifest = read_manifest(batch)
    if manifest is None:
        raise DamagedSnapshot(checkpoint_name(id), "the format of the snapshot is unknown")
    if (manifest.topic_id, manifest.partition) != (uuid_to_text(partition.topic_id), partition.index):
        raise DamagedSnapshot(checkpoint_name(id), "the snapshot belongs to another partition")
    return manifest


def _remove_all_but(files: SnapshotFiles, kept: CheckpointId) -> None:
    for id in files.ids():
        if id != kept:
            files.remove(id)
    files.remove_leftovers()
