"""Metrics of remote storage in BrokerTopicMetrics (KIP-405, KIP-930), by topic and in total.

`topics.py` counts remote reads, and replicas that start after remote segments, with the other traffic of a topic.

Counters are integers that the working code adds to. Gauges are sums over partitions, adjusted with every change instead
of counted at a scrape; the copy lag and the use of retention limits are computed at a scrape, because they also change
while no task runs.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import field, fields, replace
from enum import Enum
from operator import attrgetter
from typing import NamedTuple, Protocol

from broker.clock import Clock, SystemClock
from broker.metrics.family import Family, Kind, Sample, counter, gauge
from broker.metrics.quota_use import QuotaUse
from protocol.lazy_dataclass import lazy_dataclass

_PREFIX = "kafka_server_brokertopicmetrics_"
_MANAGER = "kafka_log_remote_remotelogmanager_"
_POOLS = (
    "kafka_log_remote_remotestoragethreadpool_",
    "org_apache_kafka_storage_internals_log_remotestoragethreadpool_",  # deprecated (KIP-1100)
)
_QUOTAS = "kafka_server_remotelogmanager_"
_PURGATORY = "kafka_server_delayedoperationpurgatory_"
_FIRST_NAMES: Mapping[str, str] = {
    "remotereadrequests": "remotefetchrequests",
    "remotebytesin": "remotefetchbytes",
    "remotereaderror": "remotefetcherrors",
    "remotebytesout": "remotecopybytes",
    "remotewriteerror": "remotecopyerrors",
}
"""Names that KIP-405 gave to some meters, before KIP-930."""


class CopyLagFigures(NamedTuple):
    """Closed segments that are not in remote storage yet."""

    bytes: int = 0
    segments: int = 0


NO_COPY_LAG = CopyLagFigures()


class CopyBlock(Enum):
    """Reason why a segment that may be copied is not; the value is a label of a metric."""

    QUOTA = "quota"
    """remote.log.manager.copy.max.bytes.per.second is used up."""
    BANDWIDTH = "bandwidth"
    """As many copies are in progress as the threads and the bandwidth to the store allow."""
    STORE = "store"
    """The last attempt failed, and the next one waits."""
    DAMAGED_SEGMENT = "damaged_segment"
    """The local segment does not pass its checksums."""
    CUSTOM_METADATA = "custom_metadata"
    """Remote storage returned more custom metadata than allowed; an operator has to raise the limit."""


class RetentionUse(NamedTuple):
    """The size of a tiered log beside its limits (KIP-1257). A limit of 0 or less is none.

    `bytes` counts each offset once, whether it is local, remote or both; `local_bytes` is the log on the local disk.
    """

    bytes: int
    retention_bytes: int
    local_bytes: int
    local_retention_bytes: int

    @property
    def percent(self) -> int:
        """The size in percent of retention.bytes; 0 without a limit."""
        return 100 * self.bytes // self.retention_bytes if self.retention_bytes > 0 else 0

    @property
    def local_percent(self) -> int:
        """The local size in percent of local.retention.bytes; 0 without a limit."""
        return 100 * self.local_bytes // self.local_retention_bytes if self.local_retention_bytes > 0 else 0


class DeleteLagFigures(NamedTuple):
    """Remote segments that are to be deleted, of one partition or a topic."""

    bytes: int = 0
    segments: int = 0


NO_DELETE_LAG = DeleteLagFigures()


class PartitionRemoteGauges(NamedTuple):
    """The share of one partition, led by this broker, in the gauges."""

    log_metadata_count: int = 0
    log_size_bytes: int = 0
    log_size_computation_ms: int = 0
    missing_offsets: int = 0
    given_up_offsets: int = 0
    dirty_bytes: int = 0


NO_GAUGES = PartitionRemoteGauges()


@lazy_dataclass(slots=True, eq=False)
class RemoteMeters:
    """Counts of one topic since its first use on this broker; `gauges` is the sum over its partitions.

    `copy_lags` and `delete_lags` read the lags of each partition led here, `retention` its size beside its limits. All
    change while the tasks wait for the store, so they are computed when they are asked for.
    """

    copy_bytes: int = 0
    copy_requests: int = 0
    copy_errors: int = 0
    corrupt_segments: int = 0
    delete_requests: int = 0
    delete_errors: int = 0
    compaction_read_bytes: int = 0
    compaction_written_bytes: int = 0
    compaction_errors: int = 0
    gauges: PartitionRemoteGauges = field(default=NO_GAUGES)
    copy_lags: dict[int, Callable[[], CopyLagFigures]] = field(default_factory=dict)
    delete_lags: dict[int, Callable[[], DeleteLagFigures]] = field(default_factory=dict)
    retention: dict[int, Callable[[], RetentionUse]] = field(default_factory=dict)

    @property
    def copy_lag(self) -> CopyLagFigures:
        """The sum over the partitions, as of now."""
        lags = [read() for read in self.copy_lags.values()]
        return CopyLagFigures(sum(lag.bytes for lag in lags), sum(lag.segments for lag in lags))

    @property
    def delete_lag(self) -> DeleteLagFigures:
        """The sum over the partitions, as of now."""
        lags = [read() for read in self.delete_lags.values()]
        return DeleteLagFigures(sum(lag.bytes for lag in lags), sum(lag.segments for lag in lags))

    def move(self, before: PartitionRemoteGauges, now: PartitionRemoteGauges) -> None:
        """Replace the share of one partition in the sum."""
        self.gauges = PartitionRemoteGauges(
            *(sum - old + new for sum, old, new in zip(self.gauges, before, now, strict=True))
        )


_COUNTERS = {
    "copy_bytes": ("remotecopybytes", "Bytes of segments copied to remote storage"),
    "copy_requests": ("remotecopyrequests", "Started copies of segments to remote storage"),
    "copy_errors": ("remotecopyerrors", "Failed copies of segments to remote storage"),
    "corrupt_segments": (
        "remotecopycorruptsegments",
        "Copies that were given up because the local segment is damaged",
    ),
    "delete_requests": ("remotedeleterequests", "Started deletions of segments in remote storage"),
    "delete_errors": ("remotedeleteerrors", "Failed deletions of segments in remote storage"),
    "compaction_read_bytes": ("remotecompactionreadbytes", "Bytes of remote segments that were compacted"),
    "compaction_written_bytes": ("remotecompactionwrittenbytes", "Bytes of remote segments written by compaction"),
    "compaction_errors": ("remotecompactionerrors", "Compactions of remote segments that failed"),
}
_LAGS = {
    "copy_lag.bytes": ("remotecopylagbytes", "Bytes of closed segments that are not in remote storage yet"),
    "copy_lag.segments": ("remotecopylagsegments", "Closed segments that are not in remote storage yet"),
    "delete_lag.bytes": ("remotedeletelagbytes", "Bytes of remote segments that are to be deleted"),
    "delete_lag.segments": ("remotedeletelagsegments", "Remote segments that are to be deleted"),
}
_GAUGES = {
    "log_metadata_count": ("remotelogmetadatacount", "Remote segments in the metadata"),
    "log_size_bytes": ("remotelogsizebytes", "Bytes in remote storage"),
    "log_size_computation_ms": ("remotelogsizecomputationtime", "Milliseconds of the computation of the size"),
    "missing_offsets": (
        "remotelogmissingoffsets",
        "Offsets at the start of logs that neither local nor remote storage has",
    ),
    "given_up_offsets": ("remoteloggivenupoffsets", "Offsets above the log start that an operator gave up"),
    "dirty_bytes": ("remotelogdirtybytes", "Bytes in remote storage that are yet to be compacted"),
}


class RemoteStorageMetrics:
    """Meters by topic. Call `topic(name)` for existing topics only. Counts of a deleted topic stay in the totals."""

    __slots__ = ("_gone", "_topics", "blocked_copies", "copies_at_once", "copy_quota", "refused_deletions")

    def __init__(self, clock: Clock | None = None, quota_window_ms: int = 11_000) -> None:
        """Create the meters; `quota_window_ms` is `remote.log.manager.copy.quota.window.num` times `….size.seconds`."""
        self._gone = RemoteMeters()
        self._topics: dict[str, RemoteMeters] = {}
        self.copy_quota = QuotaUse(clock or SystemClock(), quota_window_ms)
        """Use of remote.log.manager.copy.max.bytes.per.second."""
        self.copies_at_once: Callable[[], int] = lambda: 0
        """Number of copies at once that threads and bandwidth allow; set by the remote log manager."""
        self.blocked_copies: Callable[[], Mapping[CopyBlock, int]] = dict
        """Number of partitions led here whose next copy waits, by reason; set by the remote log manager."""
        self.refused_deletions = 0
        """Rounds of deletion or compaction that were refused because a later leader is known."""

    def topic(self, name: str) -> RemoteMeters:
        """Return the meters of a topic, created at the first call."""
        meters = self._topics.get(name)
        if meters is None:
            meters = self._topics[name] = RemoteMeters()
        return meters

    def remove(self, name: str) -> None:
        """End the series of a topic that this node no longer has."""
        meters = self._topics.pop(name, None)
        if meters is not None:
            for counter in _COUNTERS:
                setattr(self._gone, counter, getattr(self._gone, counter) + getattr(meters, counter))

    def total(self, counter: str) -> int:
        """Return the sum of a counter over all topics, deleted ones included."""
        value_of: Callable[[RemoteMeters], int] = attrgetter(counter)
        return value_of(self._gone) + sum(map(value_of, self._topics.values()))

    @property
    def copy_lag(self) -> CopyLagFigures:
        """The sum over all topics, as of now."""
        lags = [meters.copy_lag for meters in self._topics.values()]
        return CopyLagFigures(sum(lag.bytes for lag in lags), sum(lag.segments for lag in lags))

    def families(self) -> list[Family]:
        """Return one family per name: the total without label, then every topic."""
        counters = [
            self._family(f"{_PREFIX}{name}_total", text, "counter", attrgetter(key))
            for key, (name, text) in _COUNTERS.items()
        ]
        gauges = [
            self._family(f"{_PREFIX}{name}", text, "gauge", attrgetter(f"gauges.{key}"))
            for key, (name, text) in _GAUGES.items()
        ]
        lags = [self._lag_family(f"{_PREFIX}{name}", text, attrgetter(key)) for key, (name, text) in _LAGS.items()]
        retention = [
            self._retention_family(
                "retentionsizeinpercent",
                "Size of a tiered log, local and remote, in percent of retention.bytes; 0 without a limit",
                attrgetter("percent"),
            ),
            self._retention_family(
                "localretentionsizeinpercent",
                "Local size of a tiered log in percent of local.retention.bytes; 0 without a limit",
                attrgetter("local_percent"),
            ),
        ]
        return counters + lags + gauges + retention

    def _retention_family(self, name: str, text: str, value_of: "attrgetter[int]") -> Family:
        def read() -> Iterable[Sample]:
            for topic, meters in list(self._topics.items()):
                for partition, use in list(meters.retention.items()):
                    yield Sample(value_of(use()), {"topic": topic, "partition": str(partition)})

        return Family(f"{_MANAGER}{name}", text, "gauge", read)

    def _lag_family(self, name: str, text: str, value_of: "attrgetter[int]") -> Family:
        def read() -> Iterable[Sample]:
            lags = [(topic, value_of(meters)) for topic, meters in self._topics.items()]
            yield Sample(sum(lag for _, lag in lags))
            for topic, lag in lags:
                yield Sample(lag, {"topic": topic})

        return Family(name, text, "gauge", read)

    def _family(self, name: str, text: str, kind: Kind, value_of: "attrgetter[int]") -> Family:
        def read() -> Iterable[Sample]:
            topics = list(self._topics.items())
            yield Sample(value_of(self._gone) + sum(value_of(meters) for _, meters in topics))
            for topic, meters in topics:
                yield Sample(value_of(meters), {"topic": topic})

        return Family(name, text, kind, read)


assert {each.name for each in fields(RemoteMeters)} == {*_COUNTERS, "gauges", "copy_lags", "delete_lags", "retention"}
assert set(PartitionRemoteGauges._fields) == set(_GAUGES)


class ReadFigures(Protocol):
    """Counts of remote reads since the start; see `broker.fetch.remote_reads.reads`."""

    @property
    def requests(self) -> int: ...

    @property
    def expired(self) -> int: ...

    @property
    def read_ms(self) -> float: ...


class LookUpFigures(Protocol):
    """Counts of lookups by timestamp; see `broker.runtime.remote_log.offsets`."""

    @property
    def expired(self) -> Mapping[tuple[str, int], int]:
        """Timed-out lookups, by topic and partition."""
        ...

    @property
    def waiting(self) -> int:
        """Lookups in progress."""
        ...


def under_first_names(families: Iterable[Family]) -> list[Family]:
    """Return the meters that KIP-405 named differently, under those names."""
    by_name = {family.name: family for family in families}
    return [
        replace(by_name[f"{_PREFIX}{now}_total"], name=f"{_PREFIX}{first}_total", help=f"The same as {now}_total")
        for first, now in _FIRST_NAMES.items()
    ]


def _of_quota(name: str, group: str, what: str, use: QuotaUse) -> list[Family]:
    return [
        gauge(
            f"{_QUOTAS}remote_{name}_throttle_time_avg",
            f"Milliseconds that a {what} waited for its quota recently",
            lambda: use.wait_avg_ms,
        ),
        gauge(
            f"{_QUOTAS}remote_{name}_throttle_time_max",
            f"Most milliseconds that a {what} waited for its quota recently",
            lambda: use.wait_max_ms,
        ),
        gauge(
            f"kafka_server_{group}_byte_rate",
            f"Bytes per second that count towards the quota of a {what}",
            lambda: use.bytes_per_second,
        ),
    ]


def _of_purgatory(name: str, text: str, reads: Callable[[], int], look_ups: Callable[[], int]) -> Family:
    def read() -> Iterable[Sample]:
        yield Sample(reads(), {"delayedOperation": "RemoteFetch"})
        yield Sample(look_ups(), {"delayedOperation": "RemoteListOffsets"})

    return Family(f"{_PURGATORY}{name}", text, "gauge", read)


def skipped_holes_family(read: Callable[[], int]) -> Family:
    """Return the counter of holes in remote logs."""
    text = "Holes in remote logs that consumers skipped: records that are lost or were given up"
    return counter("ottla_remote_skipped_holes_total", text, read)


def follower_reads_family(read: Callable[[], int]) -> Family:
    """Return the counter of reads that the local log of a follower answered."""
    text = "Reads of lost or damaged remote records that the local log of a follower answered"
    return counter("ottla_remote_reads_from_followers_total", text, read)


def remote_families(
    reads: ReadFigures,
    *,
    open_reads: Callable[[], int],
    fetch_quota: QuotaUse,
    copies: RemoteStorageMetrics,
    look_ups: LookUpFigures,
    copier_idle: Callable[[], float],
    reader_idle: Callable[[], float],
    reader_queue: Callable[[], int],
    index_cache_bytes: Callable[[], int],
) -> list[Family]:
    """Return the families of a node's own remote work, under Kafka's names (KIP-405, KIP-956, KIP-1018, KIP-1075)."""

    def read_times() -> Iterable[Sample]:
        yield Sample(reads.requests, suffix="_count")
        yield Sample(reads.read_ms, suffix="_sum")

    def expired_look_ups() -> Iterable[Sample]:
        expired = dict(look_ups.expired)
        yield Sample(sum(expired.values()))
        for (topic, partition), count in expired.items():
            yield Sample(count, {"topic": topic, "partition": str(partition)})

    return [
        gauge(f"{_MANAGER}remotelogmanagertasksavgidlepercent", "Idle part of the threads that copy", copier_idle),
        Family(
            f"{_MANAGER}remotelogreaderfetchrateandtimems",
            "Milliseconds of a read from remote storage",
            "summary",
            read_times,
        ),
        *(
            gauge(f"{pool}remotelogreaderavgidlepercent", "Idle part of the threads that read", reader_idle)
            for pool in _POOLS
        ),
        *(
            gauge(f"{pool}remotelogreadertaskqueuesize", "Reads that wait for a thread", reader_queue)
            for pool in _POOLS
        ),
        counter(
            "kafka_server_delayedremotefetchmetrics_expires_total",
            "Fetches that timed out before remote storage responded",
            lambda: reads.expired,
        ),
        Family(
            "kafka_server_delayedremotelistoffsetsmetrics_expires_total",
            "Lookups by timestamp that timed out before remote storage responded",
            "counter",
            expired_look_ups,
        ),
        *(
            _of_purgatory(name, text, open_reads, lambda: look_ups.waiting)
            for name, text in (
                ("purgatorysize", "Remote reads and lookups in the purgatory"),
                ("numdelayedoperations", "Remote reads and lookups that requests wait for"),
            )
        ),
        *_of_quota("copy", "rlmcopy", "copy", copies.copy_quota),
        *_of_quota("fetch", "rlmfetch", "read", fetch_quota),
        gauge(
            "ottla_remote_copies_limit",
            "Segments that may be copied at once: the copier threads, fewer while bandwidth to the store is short",
            lambda: copies.copies_at_once(),
        ),
        gauge(
            "ottla_remote_index_cache_bytes",
            "Disk space that cached indexes of remote segments take",
            index_cache_bytes,
        ),
    ]
