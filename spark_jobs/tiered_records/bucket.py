"""The store of a read: segments of topics, their indexes, and aborted transactions. Blocks, and queries several
partitions in a few threads.
"""

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache, partial
from typing import Final, NamedTuple

from spark_jobs.tiered_records.bounds import EVERYTHING
from spark_jobs.tiered_records.options import InvalidOption, Options
from spark_jobs.tiered_records.planning import (
    RecordsMissing,
    SegmentRange,
    Transactions,
    aborted_in_span,
    chain_in,
    links_of,
    slices_of,
    spans_with_markers,
)
from spark_jobs.tiered_records.segment_indexes import aborted_in, offset_entries
from spark_jobs.tiered_records.topics import chosen
from storage.files import OsFileSystem
from storage.index.transaction import AbortedTxn
from storage.producer_state import ProducerState
from storage.tiered.bucket.inventory import BucketReader, PartitionInventory, recency
from storage.tiered.bucket.listing import StoredPartition, walk
from storage.tiered.catalog.segment_spans import SegmentSpan
from storage.tiered.errors import RemoteResourceNotFound
from storage.tiered.format.object_keys import ObjectKeys
from storage.tiered.loading.remote_storage import load_remote_storage, open_object_store
from storage.tiered.object_store import ObjectStore
from storage.tiered.remote_storage import IndexKind, RemoteStorageContext, RemoteStorageManager
from storage.tiered.segment_metadata import RemoteSegment

READERS: Final = 16
"""Concurrent reads of manifests and indexes: each is a round trip to the store."""

_NOBODY: Final = -1


class TieredBucket(NamedTuple):
    """The store, its object keys, and the remote storage manager that reads segments."""

    store: ObjectStore
    keys: ObjectKeys
    storage: RemoteStorageManager


def bucket_of(options: Options) -> TieredBucket:
    """Open the bucket of a read. Raises InvalidOption for settings without a valid storage."""
    if options.directory and not OsFileSystem().is_directory(options.directory):
        raise InvalidOption(f"uri: there is no directory {options.directory}.")
    try:
        return opened(options.storage_name, options.storage_settings)
    except ValueError as error:
        raise InvalidOption(f"rsm.*: {error}") from error


@lru_cache(maxsize=4)
def opened(name: str, settings: tuple[tuple[str, str], ...]) -> TieredBucket:
    """Return one bucket for all tasks of a process: S3 connections are expensive, and safe to share. Raises
    ValueError.
    """
    context = RemoteStorageContext(fs=OsFileSystem(), cache_directory="", broker_id=_NOBODY, cluster_id="")
    store, keys, _ = open_object_store(name, dict(settings), context, local_root="")
    return TieredBucket(store, keys, load_remote_storage(name, dict(settings), context, local_root="").manager)


def plan(options: Options) -> list[SegmentRange]:
    """Plan the read, in order. Raises InvalidOption, RecordsMissing, ObjectStoreError, RemoteStorageError."""
    return plan_in(bucket_of(options), options)


def plan_in(bucket: TieredBucket, options: Options) -> list[SegmentRange]:
    """Plan a read of an open bucket like `plan`.

    Reads the manifests of the matching partitions and the indexes of the last segment of each; more indexes only for
    transactions and divided segments.
    """
    try:
        return _plan_in(bucket, options)
    except (RecordsMissing, RemoteResourceNotFound):  # listed objects may have been removed or replaced
        return _plan_in(bucket, options)


def _plan_in(bucket: TieredBucket, options: Options) -> list[SegmentRange]:
    with ThreadPoolExecutor(READERS) as threads:
        reader = BucketReader(bucket.store, bucket.keys, bucket.storage, threads.map)
        planning = _Planning(options, bucket.storage, threads)
        return [
            part
            for each in chosen(_stored(bucket, options), options)
            if options.bounds.wants(each.partition.topic, each.partition.partition)
            for part in planning.slices(reader.inventory(each))
        ]


def _stored(bucket: TieredBucket, options: Options) -> Iterator[StoredPartition]:
    """Yield the partitions of topics that may match."""
    for name in options.topics or [None]:
        for each in walk(bucket.store, bucket.keys, name):
            if isinstance(each, StoredPartition) and options.names(each.partition.topic):
                yield each


class _Planning:
    def __init__(self, options: Options, storage: RemoteStorageManager, threads: ThreadPoolExecutor) -> None:
        self._options = options
        self._storage = storage
        self._threads = threads

    def slices(self, inventory: PartitionInventory) -> list[SegmentRange]:
        options = self._options
        chain = chain_in(inventory)
        links = links_of(inventory, chain, options.bounds, may_miss=options.may_miss)
        transactions = Transactions()
        if options.is_committed_only and links:
            last = max(inventory.needed, key=recency)
            transactions = Transactions(self._aborted(chain, links), _undecided_from(self._storage, last))
        splits = self._threads.map(partial(_splits, self._storage, options.max_partition_bytes), links)
        return list(slices_of(links, options.bounds, transactions, splits))

    def _aborted(self, chain: Sequence[SegmentSpan], links: Sequence[SegmentSpan]) -> list[AbortedTxn]:
        """Read as many indexes as needed: once every transaction is decided, later ones add nothing."""
        found: list[AbortedTxn] = []
        left = spans_with_markers(chain, links)
        while left and all(txn.last_stable_offset <= links[-1].last for txn in found):
            some, left = left[:READERS], left[READERS:]
            indexes = self._threads.map(partial(aborted_in, self._storage), [link.segment for link in some])
            for link, aborted in zip(some, indexes, strict=True):
                found += aborted_in_span(link, aborted)
        return found


def _splits(storage: RemoteStorageManager, max_bytes: int, link: SegmentSpan) -> list[int]:
    """Return an offset after every `max_bytes` of a segment; index entries hold the last offset of a batch."""
    segment = link.segment
    if segment.size_bytes <= max_bytes:
        return []
    splits, following = [], max_bytes
    for entry in offset_entries(storage, segment):
        if entry.position >= following:
            splits.append(entry.offset + 1)
            following = entry.position + max_bytes
    return splits


def _undecided_from(storage: RemoteStorageManager, last: RemoteSegment) -> int:
    """Return the first offset of transactions that are open at the end of the copied log: their markers are only on
    brokers.
    """
    try:
        content = storage.read_index(last, IndexKind.PRODUCER_SNAPSHOT)
    except RemoteResourceNotFound:
        return EVERYTHING
    state = ProducerState.decode("the producers of a segment", content, last.end_offset + 1)
    return min(state.open_transactions, default=EVERYTHING)
