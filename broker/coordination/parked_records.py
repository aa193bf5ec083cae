"""Records that a shard has not replayed yet: the buckets of a snapshot, with what the log holds after it.

A shard with parked records is in service at once. Each use of an owner replays the bucket of the owner first, and the
driver replays the others in the background.
"""

from collections.abc import Iterator, Mapping, Sequence

from broker.coordination.log_fold import Bucket, bucket_of, merged
from broker.coordination.snapshot_records import KeptRecord, read_kept
from protocol.primitives import Buffer
from protocol.records.batch import parse_header


class ParkedRecords:
    """Buckets of records by owner. `batches` are those of the snapshot, `later` is the fold of the log after it."""

    def __init__(self, bucket_count: int, batches: Mapping[int, Sequence[Buffer]], later: Mapping[int, Bucket]) -> None:
        self._bucket_count = bucket_count
        self._batches = dict(batches)
        self._later = dict(later)

    @property
    def is_empty(self) -> bool:
        return not self._batches and not self._later

    def take(self, owner: bytes) -> Iterator[KeptRecord]:
        """Remove the bucket of an owner, and return its records. Raise MalformedRecords in the iteration."""
        return self._take(bucket_of(owner, self._bucket_count))

    def take_large(self, limit: int) -> Iterator[KeptRecord]:
        """Remove the buckets with more than `limit` records, and return their records."""
        for bucket in [bucket for bucket in self._batches.keys() | self._later.keys() if self._size(bucket) > limit]:
            yield from self._take(bucket)

    def take_any(self) -> Iterator[KeptRecord]:
        """Remove some bucket, and return its records; none are left when the parked records are empty."""
        bucket = next(iter(self._batches or self._later), None)
        return iter(()) if bucket is None else self._take(bucket)

    def _size(self, bucket: int) -> int:
        earlier = sum(parse_header(batch).record_count for batch in self._batches.get(bucket, ()))
        return earlier + len(self._later.get(bucket, ()))

    def _take(self, bucket: int) -> Iterator[KeptRecord]:
        batches, later = self._batches.pop(bucket, ()), self._later.pop(bucket, {})
        earlier = (record for batch in batches for record in read_kept(batch, parse_header(batch)))
        return merged(earlier, later)
