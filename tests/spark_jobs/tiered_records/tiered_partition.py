"""A log on disk with copies of its closed segments in a directory, as a broker makes them, and the expected records."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from protocol.ids import BrokerId, LeaderEpoch
from protocol.primitives import Uuid
from protocol.records.batch import parse_header
from protocol.records.builder import Record, build_batch, empty_batch
from protocol.records.compression import Codec
from protocol.records.control import ControlType, end_transaction_marker
from storage.config import LogConfig
from storage.files import OsFileSystem
from storage.log import Log
from storage.segment import LogSegment
from storage.tiered.lifecycle.copying import Backlog, CopyBacklog, closed, describe, files_of
from storage.tiered.loading.remote_storage import load_remote_storage
from storage.tiered.object_store import ObjectStore
from storage.tiered.remote_storage import RemoteStorageContext, RemoteStorageManager
from storage.tiered.segment_metadata import RemoteSegmentId, TopicIdPartition
from tests.storage.tiered.segments.segment_stores import segment_store

TOPIC = "orders"
PREFIX = "logs/"
TOPIC_ID = Uuid(bytes(15) + b"\x09")
BEGAN_MS = 1_700_000_000_000
INDEX_EVERY_BATCH = LogConfig(index_interval_bytes=1)


class ExpectedRecord(NamedTuple):
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None


class TieredPartitionHarness:
    """One partition; `records` are the appended records that were not aborted, by partition and offset."""

    def __init__(
        self,
        directory: Path,
        partition: int = 0,
        topic_id: Uuid = TOPIC_ID,
        storage: Mapping[str, str] | None = None,
        *,
        topic: str = TOPIC,
        store: ObjectStore | None = None,
        broker_id: int = 1,
    ) -> None:
        """Copy segments to `store`, or to a directory with `storage` settings."""
        self.bucket = directory / "bucket"
        self.partition = TopicIdPartition(topic_id, topic, partition)
        self._broker_id = broker_id
        self.fs = OsFileSystem()
        path = str(directory / f"{topic}-{partition}-{broker_id}")
        self.fs.make_directory(path)
        self.log = Log.open(self.fs, path, INDEX_EVERY_BATCH, now_ms=BEGAN_MS, clean_shutdown=True)
        self.records: dict[int, ExpectedRecord] = {}
        self._epoch = 0
        self._copied = 0
        self._pending: dict[int, list[ExpectedRecord]] = {}
        self._sequences: dict[int, int] = {}
        context = RemoteStorageContext(fs=self.fs, cache_directory="", broker_id=1, cluster_id="c")
        settings = {"storage.root": str(self.bucket), "key.prefix": PREFIX, **(storage or {})}
        self.storage: RemoteStorageManager = (
            load_remote_storage("local", settings, context, local_root="").manager
            if store is None
            else segment_store(store, {"key.prefix": PREFIX, **(storage or {})})
        )

    @property
    def end(self) -> int:
        return self.log.log_end_offset

    def bump_leader_epoch(self) -> None:
        self._epoch += 1

    def skip_to(self, offset: int) -> None:
        """Append a batch without records, as compaction leaves it."""
        made = build_batch(
            [Record(BEGAN_MS, None, None)] * (offset - self.end),
            base_offset=self.end,
            leader_epoch=LeaderEpoch(self._epoch),
        )
        self.log.append_as_follower(empty_batch(parse_header(made)), now_ms=BEGAN_MS)

    def append(self, count: int = 3, *, producer_id: int = -1, codec: int = Codec.NONE, size: int = 10) -> None:
        """Append a batch, in a transaction if there is a producer. The clock advances a millisecond per record."""
        base = self.end
        records = [
            Record(BEGAN_MS + offset, b"%d" % offset, None if offset % 7 == 5 else b"%d" % offset * size, [("h", b"1")])
            for offset in range(base, base + count)
        ]
        batch = build_batch(
            records,
            base_offset=base,
            leader_epoch=LeaderEpoch(self._epoch),
            codec=codec,
            producer_id=producer_id,
            producer_epoch=-1 if producer_id < 0 else 0,
            base_sequence=-1 if producer_id < 0 else self._sequence(producer_id, count),
            transactional=producer_id >= 0,
        )
        self.log.append_as_follower(batch, now_ms=BEGAN_MS)
        expected = [ExpectedRecord(base + at, each.timestamp, each.key, each.value) for at, each in enumerate(records)]
        if producer_id < 0:
            self.records |= {each.offset: each for each in expected}
        else:
            self._pending.setdefault(producer_id, []).extend(expected)

    def end_transaction(self, producer_id: int, type: ControlType) -> None:
        marker = bytearray(end_transaction_marker(type, producer_id, 0, 0, BEGAN_MS + self.end))
        marker[:8] = self.end.to_bytes(8, "big")
        marker[12:16] = self._epoch.to_bytes(4, "big")
        self.log.append_as_follower(bytes(marker), now_ms=BEGAN_MS)
        decided = self._pending.pop(producer_id)
        if type is ControlType.COMMIT:
            self.records |= {each.offset: each for each in decided}

    def roll(self, *, copies: bool = True, compacted_to: int | None = None) -> None:
        """Close the segment and copy it, optionally as if it had been compacted remotely."""
        self.log.roll(BEGAN_MS)
        self.log.flush()
        for local in list(self.log.segments)[self._copied : -1]:
            self._copied += 1
            if copies:
                self._copy(CopyBacklog(self.log).at(-1), local, compacted_to)

    def readable_records(self, *, committed: bool = True) -> list[ExpectedRecord]:
        """Return the records that a reader of the bucket should find of this partition."""
        found = [each for each in self.records.values() if each.offset < self.end]
        if not committed:
            found += [each for records in self._pending.values() for each in records]
        return sorted(found)

    def _sequence(self, producer_id: int, count: int) -> int:
        first = self._sequences.get(producer_id, 0)
        self._sequences[producer_id] = first + count
        return first

    def _copy(self, backlog: Backlog, local: LogSegment, compacted_to: int | None) -> None:
        facts = closed(self.log, local, backlog)
        number = self._broker_id << 16 | self._copied
        id = RemoteSegmentId(self.partition, Uuid(number.to_bytes(16, "big")))
        segment = describe(self.log, local, facts, id, broker_id=BrokerId(self._broker_id), now_ms=BEGAN_MS)
        segment = replace(segment, compacted_to=compacted_to)
        self.storage.copy_segment(segment, files_of(self.fs, self.log, local, facts))


def options_of(bucket: Path, **more: str) -> Mapping[str, str]:
    return {"uri": str(bucket), "rsm.key.prefix": PREFIX, "topic": TOPIC, **more}
