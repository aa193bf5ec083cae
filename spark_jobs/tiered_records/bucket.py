"""The store of a reading: what it has of a topic, its indexes, and who aborted. Blocks; what it asks for several
partitions it asks in a few threads.
"""

import struct
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from typing import Final

from protocol.primitives import uuid_to_text
from spark_jobs.tiered_records.bounds import EVERYTHING
from spark_jobs.tiered_records.options import InvalidOption, Options
from spark_jobs.tiered_records.planning import Slice, Transactions, links_of, slices_of
from storage.files import OsFileSystem
from storage.index import offset as offset_index
from storage.index import time as time_index
from storage.index import transaction as transaction_index
from storage.index.transaction import AbortedTxn
from storage.producer_state import ProducerState
from storage.tiered.bucket_inventory import BucketReader, PartitionInventory, recency
from storage.tiered.bucket_listing import StoredPartition, walk
from storage.tiered.errors import RemoteResourceNotFound
from storage.tiered.loading import load_remote_storage, open_object_store
from storage.tiered.remote_storage import IndexKind, RemoteStorageContext, RemoteStorageManager
from storage.tiered.segment_chain import Link
from storage.tiered.segment_metadata import RemoteSegment

READERS: Final = 16
"""Manifests and indexes asked for at a time: each is a round trip to the store."""

_NOBODY: Final = -1


@contextmanager
def storage_of(options: Options) -> Iterator[RemoteStorageManager]:
    """Raises InvalidOption for settings that name no storage."""
    try:
        loaded = load_remote_storage(options.storage_name, dict(options.storage_settings), _context(), local_root="")
    except ValueError as error:
        raise InvalidOption(f"rsm.*: {error}.") from error
    try:
        yield loaded.manager
    finally:
        loaded.manager.close()


def plan(options: Options) -> list[Slice]:
    """All that is to be read, in order. Raises InvalidOption, RecordsMissing, ObjectStoreError, RemoteStorageError."""
    with storage_of(options) as storage, ThreadPoolExecutor(READERS) as threads:
        opened = open_object_store(options.storage_name, dict(options.storage_settings), _context(), local_root="")
        try:
            reader = BucketReader(opened.store, opened.keys, storage, threads.map)
            stored = [
                each for each in walk(opened.store, opened.keys, options.topic) if isinstance(each, StoredPartition)
            ]
            planning = _Planning(options, storage, threads)
            return [
                part
                for each in sorted(_of_one_topic(stored, options), key=lambda found: found.partition.partition)
                if options.bounds.wants(each.partition.partition)
                for part in planning.slices(reader.inventory(each))
            ]
        finally:
            opened.store.close()


class _Planning:
    def __init__(self, options: Options, storage: RemoteStorageManager, threads: ThreadPoolExecutor) -> None:
        self._options = options
        self._storage = storage
        self._threads = threads

    def slices(self, inventory: PartitionInventory) -> list[Slice]:
        options = self._options
        links = links_of(inventory, options.bounds, may_miss=options.may_miss)
        transactions = self._transactions(inventory, links) if options.is_committed_only and links else Transactions()
        splits = self._threads.map(partial(_splits, self._storage, options.max_partition_bytes), links)
        return list(slices_of(links, options.bounds, transactions, splits))

    def _transactions(self, inventory: PartitionInventory, links: Sequence[Link]) -> Transactions:
        """Markers come after the records they decide: those of all later segments are looked at too."""
        first = min(link.first for link in links)
        later = [each for each in inventory.needed if each.end_offset >= first and not each.txn_index_empty]
        aborted = {txn for found in self._threads.map(partial(_aborted, self._storage), later) for txn in found}
        ordered = sorted(aborted, key=lambda txn: txn.last_offset)
        return Transactions(ordered, _undecided_from(self._storage, max(inventory.needed, key=recency)))


def first_position(storage: RemoteStorageManager, part: Slice) -> int:
    """Where in the segment to start looking for the first record of a slice."""
    segment, first = part.segment, part.first
    if part.from_ms > 0:
        first = max(first, _offset_before(storage, segment, part.from_ms))
    if first <= segment.start_offset:
        return 0
    relative = first - segment.start_offset
    entries = offset_index.ENTRY.iter_unpack(_whole(storage.read_index(segment, IndexKind.OFFSET), offset_index.ENTRY))
    return max((position for offset, position in entries if offset <= relative), default=0)


def _offset_before(storage: RemoteStorageManager, segment: RemoteSegment, timestamp_ms: int) -> int:
    """No record before this offset has that timestamp or a later one: entries hold the highest so far."""
    content = _whole(storage.read_index(segment, IndexKind.TIME), time_index.ENTRY)
    before = [relative for highest, relative in time_index.ENTRY.iter_unpack(content) if highest < timestamp_ms]
    return segment.start_offset + max(before, default=0)


def _splits(storage: RemoteStorageManager, max_bytes: int, link: Link) -> list[int]:
    """Offsets behind every `max_bytes` of a segment; an entry of the index has the last offset of a batch."""
    segment = link.segment
    if segment.size_bytes <= max_bytes:
        return []
    content = _whole(storage.read_index(segment, IndexKind.OFFSET), offset_index.ENTRY)
    splits, following = [], max_bytes
    for relative, position in offset_index.ENTRY.iter_unpack(content):
        if position >= following:
            splits.append(segment.start_offset + relative)
            following = position + max_bytes
    return splits


def _aborted(storage: RemoteStorageManager, segment: RemoteSegment) -> list[AbortedTxn]:
    try:
        content = storage.read_index(segment, IndexKind.TRANSACTION)
    except RemoteResourceNotFound:
        return []
    entries = transaction_index.ENTRY.iter_unpack(_whole(content, transaction_index.ENTRY))
    return [AbortedTxn(*fields[1:]) for fields in entries]


def _undecided_from(storage: RemoteStorageManager, last: RemoteSegment) -> int:
    """Transactions open where the copied log ends are decided by markers that are on the brokers' disks alone."""
    try:
        content = storage.read_index(last, IndexKind.PRODUCER_SNAPSHOT)
    except RemoteResourceNotFound:
        return EVERYTHING
    state = ProducerState.decode("the producers of a segment", content, last.end_offset + 1)
    return min(state.open_transactions, default=EVERYTHING)


def _whole(content: bytes, entry: struct.Struct) -> bytes:
    return content[: len(content) - len(content) % entry.size]


def _of_one_topic(stored: Sequence[StoredPartition], options: Options) -> Sequence[StoredPartition]:
    """Raises InvalidOption where there is none, or where several have the name and no id says which is meant."""
    ids = sorted({uuid_to_text(each.partition.topic_id) for each in stored})
    if options.topic_id is None and len(ids) > 1:
        raise InvalidOption(f"The store has several topics called {options.topic}: topicId must be {' or '.join(ids)}.")
    wanted = [each for each in stored if options.topic_id in (None, each.partition.topic_id)]
    if not wanted:
        which = options.topic if options.topic_id is None else f"{options.topic}-{uuid_to_text(options.topic_id)}"
        raise InvalidOption(f"The store has nothing of topic {which}.")
    return wanted


def _context() -> RemoteStorageContext:
    return RemoteStorageContext(fs=OsFileSystem(), cache_directory="", broker_id=_NOBODY, cluster_id="")
