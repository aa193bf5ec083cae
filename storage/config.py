"""The configuration of one log: Kafka's topic keys in snake_case, with Kafka's defaults (reference: LogConfig).

Types and defaults only. The broker owns sources, descriptions and checks of the values.
"""

from collections.abc import Mapping
from dataclasses import field
from enum import StrEnum
from types import MappingProxyType

from protocol.lazy_dataclass import lazy_dataclass
from protocol.records.compression import Codec

MAX_LONG = 2**63 - 1
INHERITED = -2
"""Value of local retention that means the total retention."""
_DAY_MS = 24 * 60 * 60 * 1000


class CleanupPolicy(StrEnum):
    DELETE = "delete"
    COMPACT = "compact"


class MessageTimestampType(StrEnum):
    CREATE_TIME = "CreateTime"
    LOG_APPEND_TIME = "LogAppendTime"


class CompressionType(StrEnum):
    """Values of `compression.type`: keep the producer's codec, or use one codec for the whole log."""

    PRODUCER = "producer"
    UNCOMPRESSED = "uncompressed"
    GZIP = "gzip"
    SNAPPY = "snappy"
    LZ4 = "lz4"
    ZSTD = "zstd"


_CODEC_OF: Mapping[CompressionType, Codec | None] = MappingProxyType(
    {
        CompressionType.PRODUCER: None,
        CompressionType.UNCOMPRESSED: Codec.NONE,
        CompressionType.GZIP: Codec.GZIP,
        CompressionType.SNAPPY: Codec.SNAPPY,
        CompressionType.LZ4: Codec.LZ4,
        CompressionType.ZSTD: Codec.ZSTD,
    }
)


@lazy_dataclass(frozen=True, slots=True, kw_only=True)
class LogConfig:
    """An immutable configuration, replaced as a whole. Sizes in bytes, `_ms` in milliseconds, -1 for "no limit" as in
    Kafka.
    """

    segment_bytes: int = 1024 * 1024 * 1024
    segment_ms: int = 7 * _DAY_MS
    segment_jitter_ms: int = 0
    segment_index_bytes: int = 10 * 1024 * 1024
    index_interval_bytes: int = 4096
    preallocate: bool = False
    flush_messages: int = MAX_LONG
    flush_ms: int = MAX_LONG
    cleanup_policy: frozenset[CleanupPolicy] = frozenset({CleanupPolicy.DELETE})
    retention_bytes: int = -1
    retention_ms: int = 7 * _DAY_MS
    local_retention_bytes: int = -2
    local_retention_ms: int = -2
    remote_storage_enable: bool = False
    remote_log_copy_disable: bool = False
    remote_log_delete_on_disable: bool = False
    remote_copy_lag_ms: int = 0
    remote_copy_lag_bytes: int = -1
    file_delete_delay_ms: int = 60_000
    delete_retention_ms: int = _DAY_MS
    min_compaction_lag_ms: int = 0
    max_compaction_lag_ms: int = MAX_LONG
    min_cleanable_dirty_ratio: float = 0.5
    max_message_bytes: int = 1024 * 1024 + 12
    compression_type: CompressionType = CompressionType.PRODUCER
    compression_gzip_level: int = -1
    compression_lz4_level: int = 9
    compression_zstd_level: int = 3
    message_timestamp_type: MessageTimestampType = MessageTimestampType.CREATE_TIME
    message_timestamp_before_max_ms: int = MAX_LONG
    message_timestamp_after_max_ms: int = 60 * 60 * 1000
    min_insync_replicas: int = 1
    unclean_leader_election_enable: bool = False
    follower_replication_throttled_replicas: tuple[str, ...] = ()
    leader_replication_throttled_replicas: tuple[str, ...] = ()
    verify_transactions: bool = False
    """Whether the first batch of a transaction needs a guard from `Log.start_verification` (KIP-890); a setting of the
    broker, not of the topic.
    """

    # Derived values that the append path needs for every batch.
    is_compacted: bool = field(init=False, repr=False, compare=False)
    target_codec: Codec | None = field(init=False, repr=False, compare=False)
    target_level: int | None = field(init=False, repr=False, compare=False)
    is_log_append_time: bool = field(init=False, repr=False, compare=False)
    has_timestamp_bounds: bool = field(init=False, repr=False, compare=False)
    roll_ms: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        derived = {
            "is_compacted": CleanupPolicy.COMPACT in self.cleanup_policy,
            "target_codec": _CODEC_OF[self.compression_type],
            "target_level": self._target_level(),
            "is_log_append_time": self.message_timestamp_type is MessageTimestampType.LOG_APPEND_TIME,
            "has_timestamp_bounds": self.message_timestamp_before_max_ms < MAX_LONG
            or self.message_timestamp_after_max_ms < MAX_LONG,
            "roll_ms": self._roll_ms(),
        }
        for name, value in derived.items():
            object.__setattr__(self, name, value)

    @property
    def is_deleting(self) -> bool:
        """Whether retention by size and time applies."""
        return CleanupPolicy.DELETE in self.cleanup_policy

    @property
    def total_retention_ms(self) -> int:
        """How long records stay in the log; -1 for ever, as in a log with compaction alone."""
        return self.retention_ms if self.is_deleting else -1

    @property
    def total_retention_bytes(self) -> int:
        """How many bytes stay on the local disk and in remote storage; -1 for all."""
        return self.retention_bytes if self.is_deleting else -1

    @property
    def effective_local_retention_ms(self) -> int:
        """How long records with a copy in remote storage stay on the local disk (KIP-405); -1 for ever."""
        return self.total_retention_ms if self.local_retention_ms == INHERITED else self.local_retention_ms

    @property
    def effective_local_retention_bytes(self) -> int:
        """How many bytes with a copy in remote storage stay on the local disk; -1 for all."""
        return self.total_retention_bytes if self.local_retention_bytes == INHERITED else self.local_retention_bytes

    def _target_level(self) -> int | None:
        levels = {
            CompressionType.GZIP: self.compression_gzip_level,
            CompressionType.LZ4: self.compression_lz4_level,
            CompressionType.ZSTD: self.compression_zstd_level,
        }
        return levels.get(self.compression_type)

    def _roll_ms(self) -> int:
        """A compacted log must close segments soon enough for the cleaner to keep max.compaction.lag.ms."""
        if CleanupPolicy.COMPACT in self.cleanup_policy:
            return min(self.segment_ms, self.max_compaction_lag_ms)
        return self.segment_ms
