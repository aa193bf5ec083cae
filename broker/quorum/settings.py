"""The input of a replica at start: its identity and limits, and the recovered content of its disk."""

from typing import NamedTuple

from broker.quorum.identity import KRaftVersions, Listeners, ReplicaKey, SnapshotId, SocketAddress
from broker.quorum.ready import ElectionState
from protocol.ids import BrokerId, LeaderEpoch, Offset
from protocol.lazy_dataclass import lazy_dataclass
from protocol.messages.common_records import VotersRecord

DEFAULT_MAX_OBSERVERS = 10_000
MAX_BATCH_BYTES = 8 * 1024 * 1024
"""The largest batch that Kafka's readers accept. Single metadata changes are far smaller."""


class StaticVoter(NamedTuple):
    """An entry of `controller.quorum.voters`."""

    id: BrokerId
    endpoint: SocketAddress


@lazy_dataclass(frozen=True, slots=True, kw_only=True)
class QuorumSettings:
    """Kafka's configuration keys without the prefixes `controller.quorum.` and `metadata.log.`; times in ms.

    `key` is this node's id and directory id. `can_vote` is true for nodes with the controller role: they may become
    voters, sync before every fetch, and may join the voters automatically (`auto_join`). `listeners` are the node's own
    controller listeners, none for a broker; `default_listener` is the first of `controller.listener.names`.
    `import_timeout_ms` is 0 without an object store for snapshot imports. `import_min_records` is the smallest log of a
    leader without a snapshot for which an empty replica tries an import: a smaller log is fetched faster.
    `max_observers` is the number of observers whose progress a leader tracks.
    """

    key: ReplicaKey
    cluster_id: str
    can_vote: bool
    listeners: Listeners = ()
    default_listener: str = "CONTROLLER"
    versions: KRaftVersions = KRaftVersions()
    static_voters: tuple[StaticVoter, ...] = ()
    bootstrap: tuple[SocketAddress, ...] = ()
    election_timeout_ms: int = 1_000
    fetch_timeout_ms: int = 2_000
    election_backoff_max_ms: int = 1_000
    append_linger_ms: int = 25
    request_timeout_ms: int = 2_000
    retry_backoff_ms: int = 20
    auto_join: bool = False
    fetch_max_bytes: int = 1024 * 1024
    fetch_snapshot_max_bytes: int = 1024 * 1024
    fetch_max_wait_ms: int = 500
    observer_session_timeout_ms: int = 300_000
    max_observers: int = DEFAULT_MAX_OBSERVERS
    start_offset_lag_time_max_ms: int = 604_800_000
    retention_bytes: int = 104_857_600
    retention_ms: int = 604_800_000
    trim_interval_ms: int = 60_000
    import_timeout_ms: int = 0
    import_min_records: int = 10_000


class EpochEntry(NamedTuple):
    """An entry of the leader epoch cache: an epoch and its start offset."""

    epoch: LeaderEpoch
    start_offset: Offset


class StoredSnapshot(NamedTuple):
    """A snapshot on disk. `timestamp_ms` is from its header: the append time of the last record it contains."""

    id: SnapshotId
    size: int
    timestamp_ms: int


class ControlRecord(NamedTuple):
    """A change of kraft.version or of the voters (exactly one is not None) and the offset of its record.

    Changes from a snapshot have the offset of the snapshot's last record; changes from the 0-0 snapshot have -1.
    """

    offset: Offset
    kraft_version: int | None
    voters: VotersRecord | None


@lazy_dataclass(frozen=True, slots=True)
class Recovered:
    """The content of the disk after recovery, all of it synced. `election` is None without a quorum-state file.

    `snapshots` are in the order of their ids, without the 0-0 snapshot. `control` is in the order of offsets, from the
    newest snapshot (or the 0-0 snapshot) to the log end. `log_bytes` is the size of all segments.
    """

    election: ElectionState | None
    log_start_offset: Offset
    log_end_offset: Offset
    epochs: tuple[EpochEntry, ...]
    snapshots: tuple[StoredSnapshot, ...]
    control: tuple[ControlRecord, ...]
    log_bytes: int = 0
