"""The store of a reading: what it has of a topic, its indexes, and who aborted. Blocks; what it asks for several
partitions it asks in a few threads.
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
    chain_in,
    deciding,
    links_of,
    slices_of,
    told_of,
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
"""Manifests and indexes asked for at a time: each is a round trip to the store."""

_NOBODY: Final = -1


class TieredBucket(NamedTuple):
    """The store, how objects are named there, and what knows how to read them."""

    store: ObjectStore
    keys: ObjectKeys
    storage: RemoteStorageManager


def bucket_of(options: Options) -> TieredBucket:
    """Raises InvalidOption for settings that name no storage."""
    if options.directory and not OsFileSystem().is_directory(options.directory):
        raise InvalidOption(f"uri: there is no directory {options.directory}.")
    try:
        return opened(options.storage_name, options.storage_settings)
    except ValueError as error:
        raise InvalidOption(f"rsm.*: {error}") from error


@lru_cache(maxsize=4)
def opened(name: str, settings: tuple[tuple[str, str], ...]) -> TieredBucket:
    """One for all tasks of a process: connections to S3 are dear, and safe to share. Raises ValueError."""
    context = RemoteStorageContext(fs=OsFileSystem(), cache_directory="", broker_id=_NOBODY, cluster_id="")
    store, keys, _ = open_object_store(name, dict(settings), context, local_root="")
    return TieredBucket(store, keys, load_remote_storage(name, dict(settings), context, local_root="").manager)


def plan(options: Options) -> list[SegmentRange]:
    """All that is to be read, in order. Raises InvalidOption, RecordsMissing, ObjectStoreError, RemoteStorageError."""
    return plan_in(bucket_of(options), options)


def plan_in(bucket: TieredBucket, options: Options) -> list[SegmentRange]:
    """As `plan`, of a bucket that is open. The manifests of the partitions that are wanted are read, the indexes of
    the last segment of each, and more of them where there were transactions, or where segments are cut.
    """
    try:
        return _plan_in(bucket, options)
    except (RecordsMissing, RemoteResourceNotFound):  # perhaps what was listed went, or was replaced, since then
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
    """Of the topics that may be meant."""
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
        """As many indexes are asked for as are needed: once everything wanted was decided, later ones tell nothing."""
        found: list[AbortedTxn] = []
        left = deciding(chain, links)
        while left and all(txn.last_stable_offset <= links[-1].last for txn in found):
            some, left = left[:READERS], left[READERS:]
            told = self._threads.map(partial(aborted_in, self._storage), [link.segment for link in some])
            for link, aborted in zip(some, told, strict=True):
                found += told_of(link, aborted)
        return found


def _splits(storage: RemoteStorageManager, max_bytes: int, link: SegmentSpan) -> list[int]:
    """Offsets behind every `max_bytes` of a segment; an entry of the index has the last offset of a batch."""
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
    """Transactions open where the copied log ends are decided by markers that are on the brokers' disks alone."""
    try:
        content = storage.read_index(last, IndexKind.PRODUCER_SNAPSHOT)
    except RemoteResourceNotFound:
        return EVERYTHING
    state = ProducerState.decode("the producers of a segment", content, last.end_offset + 1)
    return min(state.open_transactions, default=EVERYTHING)
