"""Remote storage in memory for tests of readers: segments of arbitrary batches, recorded calls, injected failures.

`tests.support.fakes.memory_remote_storage` is for tests that copy and delete.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from protocol.ids import BrokerId, LeaderEpoch
from protocol.primitives import Uuid
from protocol.records.batch import parse_header
from storage.config import LogConfig
from storage.files import FileSystem, read_file
from storage.index.transaction import AbortedTxn
from storage.log import Log
from storage.segment import LogSegment
from storage.tiered.catalog.lineage import epochs_of
from storage.tiered.errors import RemoteResourceNotFound
from storage.tiered.remote_storage import IndexKind, SegmentFiles
from storage.tiered.segment_metadata import (
    RemoteSegment,
    RemoteSegmentId,
    SegmentEpoch,
    SegmentState,
    SegmentUpdate,
    TopicIdPartition,
)
from tests.support.fakes.memory_files import MemoryFileSystem
from tests.support.fakes.memory_remote_metadata import RemoteMetadataLog

INDEX_EVERY_BATCH = LogConfig(index_interval_bytes=0)


@dataclass
class RemoteFiles:
    """Implements RemoteStorageManager. `failures` are raised by the next calls, one each; `reads` records all calls.

    `pieces_before` is the number of pieces of a read before it fails. While it `is_down`, every call raises the first
    of the failures.
    """

    logs: dict[Uuid, bytes] = field(default_factory=dict)
    indexes: dict[tuple[Uuid, IndexKind], bytes] = field(default_factory=dict)
    piece_bytes: int = 100
    failures: list[Exception] = field(default_factory=list)
    pieces_before: int = 0
    reads: list[tuple[str, int]] = field(default_factory=list)
    pieces_given: int = 0
    is_down: bool = False

    # ---- RemoteStorageManager

    def copy_segment(self, segment: RemoteSegment, files: SegmentFiles) -> bytes | None:
        self.logs[segment.id.id] = read_file(files.fs, files.log)
        self._put_index(segment, IndexKind.OFFSET, read_file(files.fs, files.offset_index))
        self._put_index(segment, IndexKind.TIME, read_file(files.fs, files.time_index))
        if files.transaction_index is not None:
            self._put_index(segment, IndexKind.TRANSACTION, read_file(files.fs, files.transaction_index))
        return None

    def read_segment(self, segment: RemoteSegment, first: int, last: int | None = None) -> Iterator[memoryview]:
        self.reads.append(("log", segment.start_offset))
        pieces_before = self.pieces_before
        failure = self._failure()
        if failure is not None and not pieces_before:
            raise failure
        if segment.id.id not in self.logs:
            raise RemoteResourceNotFound(str(segment.id))
        data = memoryview(self.logs[segment.id.id])
        data = data[first : len(data) if last is None else last + 1]

        def pieces() -> Iterator[memoryview]:
            for number, start in enumerate(range(0, len(data), self.piece_bytes)):
                if failure is not None and number >= pieces_before:
                    raise failure
                self.pieces_given += 1
                yield data[start : start + self.piece_bytes]

        return pieces()

    def read_index(self, segment: RemoteSegment, kind: IndexKind) -> bytes:
        self.reads.append((kind.value, segment.start_offset))
        failure = self._failure()
        if failure is not None:
            raise failure
        try:
            return self.indexes[segment.id.id, kind]
        except KeyError:
            raise RemoteResourceNotFound(f"{segment.id} {kind}") from None

    def read_soon(self, segment: RemoteSegment, first: int) -> None:
        """Do nothing: there is no cache."""

    def discard(self, segment: RemoteSegment) -> None:
        """Do nothing: there is no cache."""

    def location(self, segment: RemoteSegment) -> str:
        return str(segment.id)

    def delete_segment(self, segment: RemoteSegment) -> None:
        self.logs.pop(segment.id.id, None)
        for kind in IndexKind:
            self.indexes.pop((segment.id.id, kind), None)

    def close(self) -> None:
        """Do nothing: there are no resources."""

    def _failure(self) -> Exception | None:
        if self.is_down:
            return self.failures[0]
        return self.failures.pop(0) if self.failures else None

    def _put_index(self, segment: RemoteSegment, kind: IndexKind, content: bytes) -> None:
        self.indexes[segment.id.id, kind] = content

    # ---- stored segments

    def put(
        self,
        number: int,
        batches: Sequence[bytes],
        *,
        start_offset: int,
        end_offset: int,
        epochs: Sequence[tuple[int, int]] = (),
        aborted: Sequence[AbortedTxn] = (),
        partition: TopicIdPartition,
    ) -> RemoteSegment:
        """Store a segment of `batches`, indexed batch by batch, with epoch 0 unless given."""
        fs = MemoryFileSystem()
        fs.make_directory("/s")
        local = LogSegment.create(fs, "/s", start_offset, INDEX_EVERY_BATCH, created_ms=0)
        for batch in batches:
            header = parse_header(batch)
            local.append(batch, header.last_offset, header.max_timestamp)
        for txn in aborted:
            local.txn_index.append(txn)
        return self._store(fs, local, number, (start_offset, end_offset), epochs or [(0, start_offset)], partition)

    def upload(self, fs: FileSystem, log: Log, number: int, segment: LogSegment, topic_id: Uuid) -> RemoteSegment:
        """Store a closed segment of a log, with the log's epochs."""
        end = log.segments.end_of(segment, log.log_end_offset) - 1
        epochs = epochs_of(log.epochs.entries, segment.base_offset, end)
        partition = TopicIdPartition(topic_id, log.topic, log.partition)
        return self._store(fs, segment, number, (segment.base_offset, end), epochs, partition)

    def _store(
        self,
        fs: FileSystem,
        local: LogSegment,
        number: int,
        offsets: tuple[int, int],
        epochs: Sequence[tuple[int, int]],
        partition: TopicIdPartition,
    ) -> RemoteSegment:
        local.finish()
        aborted = local.path(".txnindex")
        remote = RemoteSegment(
            id=RemoteSegmentId(partition, Uuid(number.to_bytes(16, "big"))),
            start_offset=offsets[0],
            end_offset=offsets[1],
            max_timestamp_ms=local.max_timestamp_so_far.timestamp,
            broker_id=BrokerId(1),
            event_timestamp_ms=0,
            size_bytes=local.size,
            leader_epochs=tuple(SegmentEpoch(LeaderEpoch(number), at) for number, at in epochs),
            txn_index_empty=not fs.exists(aborted),
        )
        self.copy_segment(
            remote,
            SegmentFiles(
                fs=fs,
                log=local.path(".log"),
                offset_index=local.path(".index"),
                time_index=local.path(".timeindex"),
                transaction_index=aborted if fs.exists(aborted) else None,
                producer_snapshot=None,
                leader_epochs=b"",
            ),
        )
        return remote


def announce(metadata: RemoteMetadataLog, *segments: RemoteSegment) -> None:
    """Record segments as copied."""
    for segment in segments:
        cache = metadata.cache(segment.id.partition)
        cache.add(segment)
        cache.update(SegmentUpdate(segment.id, SegmentState.COPY_FINISHED, 0, BrokerId(1)))
