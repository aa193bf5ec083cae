"""Snapshots of materialized remote metadata: packed on the loop, written and read on the IO thread.

A snapshot saves a restart from reading the whole topic. A missing or corrupt snapshot, or one of another topic, is
ignored; a failed write is logged.
"""

import asyncio
from functools import partial
from typing import Final

from broker.logs import EventLog
from broker.runtime.loop.io_thread import BlockingIo, IoBacklogFull
from broker.runtime.remote_metadata.tail import RemoteMetadataPartition
from protocol.primitives import Uuid
from storage.files import FileSystem
from storage.tiered.catalog.materialized_metadata import MaterializedMetadata
from storage.tiered.catalog.metadata_snapshot import (
    CorruptSnapshot,
    SnapshotPosition,
    pack_snapshot,
    read_snapshot,
    snapshot_path,
    write_snapshot,
)

_log: Final = EventLog("broker.tiered.metadata")

Restored = tuple[SnapshotPosition, MaterializedMetadata]


class MetadataSnapshots:
    """The snapshots in one directory, which is created when needed."""

    def __init__(self, fs: FileSystem, directory: str, io: BlockingIo) -> None:
        self._fs = fs
        self._directory = directory
        self._io = io

    def load(self, partition: int, topic_id: Uuid) -> "asyncio.Future[Restored | None]":
        """Return the snapshot of a metadata partition, if there is one of this topic."""
        return self._io.submit(partial(self._read, partition, topic_id))

    def save(self, tail: RemoteMetadataPartition, topic_id: Uuid) -> "asyncio.Future[bool] | None":
        """Write a snapshot unless it is up to date; the future returns whether it was written.

        Return None if there is nothing to write now, for instance for an empty partition.
        """
        if not tail.is_open or tail.is_applying or tail.next_offset in (0, tail.saved_offset):
            return None
        position = SnapshotPosition(topic_id, tail.partition, tail.next_offset, tail.last_epoch)
        body = pack_snapshot(position, tail.metadata)
        try:
            return self._io.submit(partial(self._write, tail.partition, body))
        except IoBacklogFull:
            return None

    def _read(self, partition: int, topic_id: Uuid) -> Restored | None:
        try:
            position, metadata = read_snapshot(self._fs, snapshot_path(self._directory, partition))
        except FileNotFoundError:
            return None
        except (CorruptSnapshot, OSError) as error:
            _log.warning("A snapshot of remote metadata is not used", partition=partition, reason=str(error))
            return None
        if (position.topic_id, position.partition) != (topic_id, partition):
            return None
        return position, metadata

    def _write(self, partition: int, body: list[bytes | bytearray | memoryview]) -> bool:
        try:
            self._fs.make_directory(self._directory)
            write_snapshot(self._fs, snapshot_path(self._directory, partition), body)
        except OSError as error:
            _log.warning("A snapshot of remote metadata cannot be written", partition=partition, reason=str(error))
            return False
        return True
