"""What a replica of the metadata log is told at start: who it is, its limits, and what its disk held."""

from dataclasses import dataclass
from typing import NamedTuple

from broker.quorum.identity import KRaftVersions, Listeners, ReplicaKey, SnapshotId, SocketAddress
from broker.quorum.ready import ElectionState
from protocol.messages.common_records import VotersRecord

MAX_BATCH_BYTES = 8 * 1024 * 1024
"""No reader takes a larger batch, and no single change of metadata comes near it."""


class StaticVoter(NamedTuple):
    """An entry of `controller.quorum.voters`."""

    id: int
    endpoint: SocketAddress


@dataclass(frozen=True, slots=True, kw_only=True)
class QuorumSettings:
    """Keys of Kafka's by their names (`controller.quorum.` and `metadata.log.` left off), times in ms.

    `key.id` and `key.directory_id` are this node's own. `can_vote` is true for nodes with the controller role: they may
    become voters, sync before every fetch, and may join by themselves (`auto_join`). `listeners` are the node's own
    controller listeners, none for a broker; `default_listener` is the first of `controller.listener.names`.
    `import_timeout_ms` is 0 where there is no store to import snapshots from. `import_min_records` is what a leader
    without a snapshot must have for an empty replica to look there: fewer are sent faster than a store is asked.
    """

    key: ReplicaKey
    cluster_id: str
    can_vote: bool
    listeners: Listeners = ()
    default_listener: str = "CONTROLLER"
    versions: KRaftVersions = KRaftVersions()  # noqa: RUF009  immutable
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
    start_offset_lag_time_max_ms: int = 604_800_000
    retention_bytes: int = 104_857_600
    retention_ms: int = 604_800_000
    trim_interval_ms: int = 60_000
    import_timeout_ms: int = 0
    import_min_records: int = 10_000


class EpochEntry(NamedTuple):
    """An entry of the leader epoch cache: the first offset of an epoch."""

    epoch: int
    start_offset: int


class StoredSnapshot(NamedTuple):
    """A snapshot in place. `timestamp_ms` is its header's: the append time of the last record it stands for."""

    id: SnapshotId
    size: int
    timestamp_ms: int


class ControlRecord(NamedTuple):
    """A change of kraft.version or of the voters (exactly one is not None) and the offset of its record.

    Those out of a snapshot have the offset of the snapshot's last contained record, those of the 0-0 snapshot -1.
    """

    offset: int
    kraft_version: int | None
    voters: VotersRecord | None


@dataclass(frozen=True, slots=True)
class Recovered:
    """What the disk held, mended. `election` is None if there is no quorum-state; everything else is synced.

    `snapshots` are in the order of their ids, the 0-0 one left out. `control` is in the order of offsets, from the
    newest snapshot (or the 0-0 one) to the end of the log. `log_bytes` is the size of all segments.
    """

    election: ElectionState | None
    log_start_offset: int
    log_end_offset: int
    epochs: tuple[EpochEntry, ...]
    snapshots: tuple[StoredSnapshot, ...]
    control: tuple[ControlRecord, ...]
    log_bytes: int = 0
