"""The rounds of one fetch request.

A round reads the targets that are due, in the order of the session, within the byte limits of the request. If the
result is not enough to answer, the request waits (`pending_fetch.py`) and the next round reads the targets that
changed. Records are never copied: results hold views of the log's own memory. Records that only remote storage holds
are read for consumers in the background (`remote_fetch.py`).

A consumer that names its rack may be redirected to a nearer replica (KIP-392). Followers outside of the in-sync set
get no records of listed partitions while the leader replication quota is exceeded (KIP-73).
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from broker.clock import Clock
from broker.fetch.quota import LeaderQuota
from broker.fetch.remote_fetch import RemoteFetch
from broker.fetch.replica_selector import RackAwareReplicaSelector
from broker.fetch.sessions import OpenFetch, SessionResponse
from broker.fetch.source import FetchSource, Readable
from broker.runtime.loop.waiters import Watches
from broker.runtime.partitions.metadata_topic import MetadataPartition
from broker.runtime.partitions.partition import Partition
from broker.runtime.partitions.partition_reads import FetchLimits, FetchParams, read, redirect
from broker.runtime.partitions.reads import UNKNOWN, FetchTarget, LogReadResult
from protocol.errors import ErrorCode
from protocol.primitives import Uuid
from storage.local_log import LogSlice

if TYPE_CHECKING:
    from broker.fetch.remote_reads.reads import RemoteReads


class FetchOptions(NamedTuple):
    """The parameters of a fetch request that apply to all its partitions.

    `listener` is the name of the listener that received the request. `uses_topic_ids` is true for Fetch 13 and later.
    `may_read` tells by topic name whether the reader is authorized; without it, it is. `rights` changes when the
    answers may have changed; a follower's `rights` also change when it may join an ISR, or no longer.
    """

    reader: FetchParams
    listener: str
    uses_topic_ids: bool
    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    may_read: Callable[[str], bool] | None = None
    rights: int = 0


class FetchTerms(NamedTuple):
    """The collaborators and limits that all fetches of a broker share.

    `max_bytes` is the broker's limit for a response (`fetch.max.bytes`). `replica_selector` is None if consumers are
    never redirected, `quota` if replication is not throttled, `remote_reads` if the broker has no remote storage.
    """

    clock: Clock
    max_bytes: int
    replica_selector: RackAwareReplicaSelector | None
    quota: LeaderQuota | None
    remote_reads: "RemoteReads | None"


class FetchRounds:
    """One fetch request: the results so far, and whether they are enough to answer."""

    __slots__ = (
        "_denied",
        "_is_urgent",
        "_max_bytes",
        "_min_bytes",
        "_reader",
        "_size_bytes",
        "_source",
        "_terms",
        "cold",
        "opened",
        "options",
        "remote",
        "results",
    )

    def __init__(self, opened: OpenFetch, options: FetchOptions, source: FetchSource, terms: FetchTerms) -> None:
        self.opened = opened
        self.options = options
        self._reader = options.reader
        self._source = source
        self._terms = terms
        self._max_bytes = min(options.max_bytes, terms.max_bytes)
        self._min_bytes = min(options.min_bytes, self._max_bytes)
        self.results: dict[FetchTarget, LogReadResult] = {}
        self.cold: list[tuple[Readable, LogSlice]] = []
        """Records of the last round that are not in memory, with their partitions."""
        self._size_bytes = 0
        self._is_urgent = False
        self.remote: RemoteFetch | None = None
        may_read = options.may_read
        self._denied = (
            None if may_read is None else _DeniedTopics(source, may_read, is_follower=options.reader.is_follower)
        )

    @property
    def size_bytes(self) -> int:
        """The bytes of records in the results."""
        return self._size_bytes

    @property
    def is_enough(self) -> bool:
        """Whether the request can be answered without waiting for more."""
        if self.remote is not None and not self._is_urgent:
            return self.remote.is_enough(self._size_bytes, self._min_bytes)
        return self._is_urgent or self._size_bytes >= self._min_bytes or not self.opened.targets

    @property
    def is_over(self) -> bool:
        """Whether the request must not wait any longer: the results are enough, or it allows no waiting."""
        return self.is_enough or (self.options.max_wait_ms <= 0 and not self.may_exceed_max_wait)

    @property
    def may_exceed_max_wait(self) -> bool:
        """Whether the response would be empty while a read from remote storage is under way (KIP-1018)."""
        return self.remote is not None and self.remote.is_awaited and not self._size_bytes

    def run(self, *, first: bool) -> None:
        """Read the targets that are due, in order, within the limits.

        A target without news rests until its partition changes. The limits do not apply to the first records of a
        response: a batch that is larger than the limits must still reach the reader.
        """
        room, targets = self._max_bytes, self.opened.targets
        self._size_bytes, self._is_urgent = 0, first and targets.judge_by(self.options.rights)
        self.cold.clear()
        due = targets.due()
        if self.remote is not None:
            self.remote.begin_round(due)
        for target in due:
            result = self._read(target, room, first=first)
            self.results[target] = result
            size_bytes = result.size_bytes
            if size_bytes:
                self._size_bytes += size_bytes
                room = max(0, room - size_bytes)
            self._is_urgent = self._is_urgent or result.is_urgent

    def watch(self) -> None:
        """Watch the targets that have some records, but not enough; resting targets are watched already."""
        for target in self.opened.targets.due():
            partition = self._source.find(target)
            if partition is not None:
                self.opened.targets.watch(target, self._bounds(partition))

    def report_remote_errors(self) -> None:
        """Put the errors of unfinished remote reads into the results; the next request tries these targets again."""
        if self.remote is not None:
            for target, error in self.remote.failures():
                self.results[target] = LogReadResult(error=error)
                self.opened.targets.recall(target)

    def settle(self) -> SessionResponse:
        """Close the request: update the session, count the records that are sent, and return what to list."""
        settled = self.opened.answer(self.results, int(self._terms.clock.monotonic_ms()))
        if self._size_bytes:
            for target in settled.listed:
                size_bytes = self.results[target].size_bytes
                if size_bytes:
                    self._count(target, size_bytes)
        if self.remote is not None:
            self._settle_remote(self.remote, settled.listed)
        return settled

    def withhold(self) -> SessionResponse:
        """Close the request with an empty response, because the client is throttled; the session stays valid."""
        return self.opened.withhold(self.results)

    def _settle_remote(self, remote: RemoteFetch, listed: Sequence[FetchTarget]) -> None:
        """Note what is delivered, and make refused targets due again: no watch would wake them."""
        remote.delivered(listed)
        for target in remote.refused:
            self.opened.targets.recall(target)

    def _read(self, target: FetchTarget, room: int, *, first: bool) -> LogReadResult:
        if self._denied is not None and self._denied.includes(target):
            return LogReadResult(error=ErrorCode.TOPIC_AUTHORIZATION_FAILED, aborted=())
        partition = self._source.find(target)
        traffic = self._source.partitions.traffic.elsewhere if partition is None else partition.traffic
        traffic.total_fetch_requests += first
        if partition is None:
            traffic.failed_fetch_requests += first
            return LogReadResult(error=self._absence(target), aborted=())
        limits = FetchLimits(min(target.max_bytes, room), min_one=not self._size_bytes)
        if isinstance(partition, MetadataPartition):
            result = partition.read(target, self._reader, limits)
        else:
            result = self._read_partition(partition, target, limits, first=first)
        if result.cold is not None:
            self.cold.append((partition, result.cold))
        if result.is_idle:
            self.opened.targets.rest(target, self._bounds(partition))
        elif result.error is not ErrorCode.NONE:
            if result.error is ErrorCode.OFFSET_MOVED_TO_TIERED_STORAGE and not self._reader.is_follower:
                result = self._read_remote(partition, target, limits, result)
            traffic.failed_fetch_requests += first and result.error is not ErrorCode.NONE
        return result

    def _read_remote(
        self, partition: Readable, target: FetchTarget, limits: FetchLimits, moved: LogReadResult
    ) -> LogReadResult:
        reads = self._terms.remote_reads
        if reads is None or isinstance(partition, MetadataPartition):
            return LogReadResult(error=ErrorCode.KAFKA_STORAGE_ERROR)
        if self.remote is None:
            self.remote = RemoteFetch(reads)
        result = self.remote.read(partition, target, self._reader, limits, moved)
        bounds = self.remote.bounds_of(target)
        if bounds is not None:
            self.opened.targets.rest(target, bounds)
        return result

    def _read_partition(
        self, partition: Partition, target: FetchTarget, limits: FetchLimits, *, first: bool
    ) -> LogReadResult:
        """Read from this replica, unless the reader is redirected or throttled."""
        selector, reader = self._terms.replica_selector, self._reader
        if selector is not None and reader.rack:
            replica = selector.replica_for(partition, target.fetch_offset, reader.rack, self.options.listener)
            if replica != UNKNOWN:
                return redirect(partition, target, replica)
        result = read(partition, target, reader, limits, is_first_look=first)
        if result.size_bytes and reader.is_follower and self._is_throttled(partition):
            return LogReadResult(
                ErrorCode.NONE, result.high_watermark, result.last_stable_offset, result.log_start_offset
            )
        return result

    def _is_throttled(self, partition: Partition) -> bool:
        """Whether the quota holds records back; never from an in-sync follower, which would fall out of the set."""
        quota = self._terms.quota
        return (
            quota is not None
            and quota.is_listed(partition.topic, partition.index)
            and not partition.isr_updater.is_in_sync(self._reader.broker_id)
            and quota.is_exceeded(self._terms.clock.monotonic_ms())
        )

    def _charge(self, partition: Partition, size_bytes: int) -> None:
        """Count records against the quota; those sent to in-sync followers count as well."""
        quota = self._terms.quota
        if quota is not None and quota.is_listed(partition.topic, partition.index):
            quota.record(size_bytes, self._terms.clock.monotonic_ms())

    def _count(self, target: FetchTarget, size_bytes: int) -> None:
        partition = self._source.find(target)
        traffic = self._source.partitions.traffic.elsewhere if partition is None else partition.traffic
        if self._reader.is_follower:
            traffic.replication_bytes_out += size_bytes
            if isinstance(partition, Partition):
                self._charge(partition, size_bytes)
        else:
            traffic.bytes_out += size_bytes

    def _bounds(self, partition: Readable) -> tuple[Watches, ...]:
        if self._reader.is_follower and isinstance(partition, Partition):
            return partition.follower_bounds
        return partition.consumer_bounds

    def _absence(self, target: FetchTarget) -> ErrorCode:
        """Return the error of a target that this node does not serve."""
        image = self._source.topic_image(target)
        if image is None and self.options.uses_topic_ids:
            return ErrorCode.UNKNOWN_TOPIC_ID
        return self._source.partitions.absence_error(image, target.index)


class _DeniedTopics:
    """The topics that the reader of one request may not read; each is decided once."""

    __slots__ = ("_decided", "_is_follower", "_may_read", "_source")

    def __init__(self, source: FetchSource, may_read: Callable[[str], bool], *, is_follower: bool) -> None:
        self._source = source
        self._is_follower = is_follower
        self._may_read = may_read
        self._decided: dict[tuple[str, Uuid], bool] = {}

    def includes(self, target: FetchTarget) -> bool:
        """Whether the reader may not read the topic; to a consumer, an unknown id has its own error."""
        key = (target.topic, target.topic_id)
        denied = self._decided.get(key)
        if denied is None:
            image = None if target.topic else self._source.topic_image(target)
            name = target.topic or (None if image is None else image.name)
            denied = self._decided[key] = (name is not None or self._is_follower) and not self._may_read(name or "")
        return denied
