"""Snapshots of what the metadata topic says, between the loop and the disk: packed here, written and read by a thread.

They spare a restart the reading of the topic, and are worth no more: one that is missing, broken or of another topic is
passed over, and a disk that takes none is told of and does not matter.
"""

import asyncio
from functools import partial
from typing import Final

from broker.logs import EventLog
from broker.runtime.loop.io_thread import BlockingIo, IoBacklogFull
from broker.runtime.remote_metadata.tail import MetadataTail
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
    """The snapshots in one directory, which is made when it is needed."""

    def __init__(self, fs: FileSystem, directory: str, io: BlockingIo) -> None:
        self._fs = fs
        self._directory = directory
        self._io = io

    def load(self, partition: int, topic_id: Uuid) -> "asyncio.Future[Restored | None]":
        """The snapshot of a partition of the metadata topic, if there is one of that very topic."""
        return self._io.submit(partial(self._read, partition, topic_id))

    def save(self, tail: MetadataTail, topic_id: Uuid) -> "asyncio.Future[bool] | None":
        """Write one unless it is there already; whether it is written. None where there is nothing to do now, such as
        for a partition that nothing was ever written to."""
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
