"""A fold of a coordinator's log: the records that a snapshot at an offset needs, without decoding them.

The fold keeps the last record of each key with its offset, and the records of open transactions with their producer
ids: the compaction of the log below its end offset. A replay of the kept records, then of the log from `end_offset` on,
gives the state of a replay of the whole log.

A marker moves pending records among the committed ones, or drops them; the marker is not kept. A tombstone is kept
while an open transaction has a record of its key, because its replay removes the pending record too.

Records with an owner (the group of a committed offset) are kept in buckets by owner, where a tombstone stays as None:
an earlier snapshot may have a value of the key in the same bucket.
"""

from collections.abc import Callable, Iterable, Iterator
from heapq import merge
from operator import attrgetter
from typing import Final, NamedTuple, TypeAlias
from zlib import crc32

from broker.coordination.snapshot_records import KeptRecord

Bucket: TypeAlias = dict[bytes, tuple[int, bytes | None]]
"""Offset in the log and value by key; a value of None marks a removed key."""

_RECORDS_PER_BUCKET: Final = 128
_by_offset = attrgetter("offset")


class FoldRule(NamedTuple):
    """How the records of an internal topic replace each other.

    `owner_of` returns the owner of a key, None for keys outside of buckets. `extends` returns the key whose value a
    record completes, None for a record that replaces its own key. `parks`: a shard replays a bucket when it is needed.
    """

    owner_of: Callable[[bytes], bytes | None]
    extends: Callable[[bytes], bytes | None] | None = None
    parks: bool = False


def bucket_of(owner: bytes, bucket_count: int) -> int:
    """Return the bucket of an owner; `bucket_count` is a power of two."""
    return crc32(owner) & (bucket_count - 1)


def bucket_count_of(record_count: int) -> int:
    """Return the power of two that gives buckets of some hundred records."""
    return 1 << max(0, (record_count // _RECORDS_PER_BUCKET).bit_length() - 1)


class LogFold:
    """Folds the records of one partition; `end_offset` is the offset after the last one.

    Records of `kept` come from the fold of an earlier snapshot. `bucket_count` is a power of two.
    """

    def __init__(
        self, rule: FoldRule, bucket_count: int = 1, kept: Iterable[KeptRecord] = (), end_offset: int = 0
    ) -> None:
        self.end_offset = end_offset
        self.buckets: dict[int, Bucket] = {}
        self._rule = rule
        self.bucket_count = bucket_count
        self._last: dict[bytes, KeptRecord] = {}
        self._additions: dict[bytes, list[KeptRecord]] = {}
        self._tombstones: dict[bytes, int] = {}
        self._pending: dict[int, dict[bytes, KeptRecord]] = {}
        for record in kept:
            self.restore(record)

    def restore(self, record: KeptRecord) -> None:
        """Take over a record that an earlier fold has kept outside of its buckets."""
        if record.value is None:
            self._tombstones[record.key] = record.offset
        else:
            self._put(record)

    def add(self, record: KeptRecord) -> None:
        """Fold the next record of the log."""
        self.end_offset = record.offset + 1
        if record.value is None and record.producer_id < 0:
            self._remove(record)
        else:
            self._put(record)

    def add_owned(self, records: Iterable[tuple[int, bytes, bytes | None]]) -> list[tuple[int, bytes, bytes | None]]:
        """Fold records (offset, key, value) of the log outside of transactions, and return those without an owner.

        A load of a million offsets spends its time here.
        """
        owner_of, buckets, mask = self._rule.owner_of, self.buckets, self.bucket_count - 1
        others = []
        for record in records:
            offset, key, value = record
            owner = owner_of(key)
            if owner is None:
                others.append(record)
                continue
            index = crc32(owner) & mask
            bucket = buckets.get(index)
            if bucket is None:
                bucket = buckets[index] = {}
            bucket[key] = offset, value
            if value is None and self._pending and self._is_pending(key):
                self._tombstones[key] = offset
        return others

    def end_transaction(self, producer_id: int, committed: bool, offset: int) -> None:
        """Fold the marker of a producer's transaction, which is in the log at `offset`."""
        self.end_offset = offset + 1
        for key, record in self._pending.pop(producer_id, {}).items():
            if committed and record.offset > self._replaced_by(key):
                self._put(record._replace(producer_id=-1))
            if key in self._tombstones and not self._is_pending(key):
                del self._tombstones[key]

    def kept(self) -> Iterator[KeptRecord]:
        """Return the records outside of buckets in an order that a replay may follow."""
        additions = (record for records in self._additions.values() for record in records)
        return merge(self._last.values(), sorted(additions), self.open_transactions(), key=_by_offset)

    def open_transactions(self) -> list[KeptRecord]:
        """Return the pending records and the tombstones of their keys, by offset."""
        records = [KeptRecord(offset, key, None) for key, offset in self._tombstones.items()]
        for pending in self._pending.values():
            records.extend(pending.values())
        return sorted(records, key=_by_offset)

    def _put(self, record: KeptRecord) -> None:
        key = record.key
        if record.producer_id >= 0:
            self._pending.setdefault(record.producer_id, {})[key] = record
            return
        owner = self._rule.owner_of(key)
        if owner is not None:
            bucket = self.buckets.setdefault(bucket_of(owner, self.bucket_count), {})
            bucket[key] = record.offset, record.value
            return
        extended = None if self._rule.extends is None else self._rule.extends(key)
        if extended is None:
            self._last.pop(key, None)  # the order of the dictionary is that of the last writes
            self._last[key] = record
            self._additions.pop(key, None)
        elif extended in self._last:
            self._additions.setdefault(extended, []).append(record)

    def _remove(self, record: KeptRecord) -> None:
        key = record.key
        self._last.pop(key, None)
        self._additions.pop(key, None)
        owner = self._rule.owner_of(key)
        if owner is not None:
            self.buckets.setdefault(bucket_of(owner, self.bucket_count), {})[key] = record.offset, None
        if self._is_pending(key):
            self._tombstones[key] = record.offset

    def bucket_of(self, key: bytes) -> int:
        """Return the bucket of a key that has an owner."""
        owner = self._rule.owner_of(key)
        assert owner is not None, key
        return bucket_of(owner, self.bucket_count)

    def _replaced_by(self, key: bytes) -> int:
        """Return the offset of the last committed record of a key, −1 without one."""
        found = self._tombstones.get(key, -1)
        if (last := self._last.get(key)) is not None:
            found = max(found, last.offset)
        owner = self._rule.owner_of(key)
        if owner is not None:
            bucket = self.buckets.get(bucket_of(owner, self.bucket_count), {})
            found = max(found, bucket.get(key, (-1, None))[0])
        return found

    def _is_pending(self, key: bytes) -> bool:
        return any(key in pending for pending in self._pending.values())


def merged(earlier: Iterable[KeptRecord], later: Bucket) -> Iterator[KeptRecord]:
    """Yield the records of a bucket of an earlier snapshot and of a fold after it; the later record of a key counts."""
    outdated: set[bytes] = set()
    for record in earlier:
        offset = later.get(record.key, (-1, None))[0]
        if offset < record.offset:
            outdated.add(record.key)
            yield record
    for key, (offset, value) in later.items():
        if value is not None and key not in outdated:
            yield KeptRecord(offset, key, value)
