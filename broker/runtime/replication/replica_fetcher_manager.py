"""The assignment of follower replicas to fetchers (Kafka's ReplicaFetcherManager).

Each leader has at most `num.replica.fetchers` fetchers, each with its own connection and session. Kafka's formula maps
a replica to a fetcher, so that the partitions of a topic are spread evenly. A fetcher exists while it has replicas.
"""

from collections.abc import Callable
from functools import lru_cache
from typing import Final

from broker.coordination.partitioner import java_string_hash
from broker.logs import EventLog
from broker.metadata.image.delta import MetadataDelta
from broker.metadata.image.metadata_image import MetadataImage
from broker.metrics.fetchers import FetcherFigures
from broker.net.peer import SocketAddress
from broker.replication.fetch_plan import FetcherSettings, Sender
from broker.replication.fetch_state import FetchPhase, PartitionKey
from broker.replication.fetcher import FetcherCore
from broker.replication.replication_quota import ReplicationQuota
from broker.runtime.controller.metadata_cache import ImageSource
from broker.runtime.loop.runtime import Runtime
from broker.runtime.replication.fetch_transport import FetchTransport
from broker.runtime.replication.follower_replica import FollowerReplica
from broker.runtime.replication.remote_log_aux_state import RemoteLogSource
from broker.runtime.replication.replica_fetcher import ReplicaFetcher

_HASHES_KEPT: Final = 4096
_INTS: Final = 1 << 32
_SIGN: Final = 1 << 31

_log: Final = EventLog("broker.fetchers")


class ReplicaFetcherManager:
    """All fetchers of a node. Implements FetcherManager.

    `sender` returns this broker's id and the epoch of its present registration, `fetcher_count` the present value of
    `num.replica.fetchers`; `listener` is the name of the inter-broker listener. Install as a metadata publisher after
    the configuration and after the `ReplicationThrottles` that own `quota`, or changes of either go unnoticed.

    Without remote storage (`use_remote_storage`), a replica whose next records are in remote storage only retries with
    back-off.
    """

    def __init__(
        self,
        runtime: Runtime,
        transport: FetchTransport,
        metadata: ImageSource,
        sender: Callable[[], Sender],
        *,
        listener: str,
        settings: FetcherSettings,
        fetcher_count: Callable[[], int],
        quota: ReplicationQuota | None = None,
    ) -> None:
        self._runtime = runtime
        self._transport = transport
        self._metadata = metadata
        self._sender = sender
        self._listener = listener
        self._settings = settings
        self._fetcher_count = fetcher_count
        self._quota = quota
        self._remote: RemoteLogSource | None = None
        self._count = fetcher_count()
        self._fetchers: dict[tuple[int, int], ReplicaFetcher] = {}
        self._by_key: dict[PartitionKey, ReplicaFetcher] = {}
        self._is_removal_due = False
        self._is_closed = False
        self._not_begun: dict[PartitionKey, FollowerReplica] | None = {}
        """The replicas to fetch for after `begin`; None from then on."""

    # ---- following

    def use_remote_storage(self, remote: RemoteLogSource) -> None:
        """Build remote log auxiliary state from now on. Call before the first fetch."""
        assert not self._fetchers, "existing fetchers know no remote storage"
        self._remote = remote

    def follow(self, replica: FollowerReplica) -> None:
        """Fetch for a replica from its present leader, in its present leader epoch. Idempotent."""
        key = (replica.topic_id, replica.index)
        if self._not_begun is not None:
            self._not_begun[key] = replica
            return
        leader_id = replica.leader_id
        endpoint = None if leader_id is None or self._is_closed else self._endpoint(leader_id)
        if leader_id is None or endpoint is None:
            self.unfollow(replica)
            return
        fetcher = self._fetcher(leader_id, fetcher_index(replica.topic, replica.index, self._count), endpoint)
        present = self._by_key.get(key)
        if present is not None and present is not fetcher:
            self._remove(key)
        self._by_key[key] = fetcher
        fetcher.add(replica)

    def unfollow(self, replica: FollowerReplica) -> None:
        """Fetch no more for a replica."""
        key = (replica.topic_id, replica.index)
        if self._not_begun is not None:
            self._not_begun.pop(key, None)
        self._remove(key)

    def begin(self) -> None:
        """Fetch from now on. Call once the broker is registered.

        Without a broker epoch, the leader could mistake this broker for its former incarnation (KIP-903).
        """
        assert self._sender().broker_epoch >= 0, "followers must not fetch before the broker is registered"
        not_begun, self._not_begun = self._not_begun, None
        for replica in (not_begun or {}).values():
            self.follow(replica)

    def figures(self) -> list[FetcherFigures]:
        """Return the values of the metrics."""
        return [fetcher.figures() for fetcher in self.fetchers()]

    def fetchers(self) -> list[ReplicaFetcher]:
        """Return all present fetchers."""
        return list(self._fetchers.values())

    def close(self) -> None:
        """Stop fetching."""
        self._is_closed = True
        for fetcher in self.fetchers():
            fetcher.close()
        self._fetchers.clear()
        self._by_key.clear()

    # ---- metadata

    def on_metadata(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """Apply changed configurations. Roles and endpoints arrive through `follow`."""
        if delta.configs is None or self._is_closed:
            return
        if self._quota is not None:
            for fetcher in self.fetchers():
                fetcher.core.replicas.on_quota_changed()
                fetcher.wake()
        count = self._fetcher_count()
        if count != self._count:
            self._resize(count)

    def _resize(self, count: int) -> None:
        """Assign the replicas to fetchers anew, except those that truncate or build: they stay until the next role."""
        self._count = count
        for fetcher in self.fetchers():
            for followed in fetcher.core.replicas.all():
                if followed.phase not in (FetchPhase.TRUNCATING, FetchPhase.BUILDING, FetchPhase.FAILED):
                    self.follow(followed.partition)

    # ---- fetchers

    def _endpoint(self, broker_id: int) -> SocketAddress | None:
        broker = self._metadata.image.brokers.get(broker_id)
        found = None if broker is None else broker.endpoints.get(self._listener)
        if found is None:
            _log.warning("The leader has no endpoint for the listener", leader=broker_id, listener=self._listener)
            return None
        return SocketAddress(found.host, found.port)

    def _fetcher(self, leader_id: int, index: int, endpoint: SocketAddress) -> ReplicaFetcher:
        fetcher = self._fetchers.get((leader_id, index))
        if fetcher is None:
            core: FetcherCore[FollowerReplica] = FetcherCore(self._settings, self._quota)
            fetcher = self._fetchers[leader_id, index] = ReplicaFetcher(
                self._runtime, leader_id, index, endpoint, core, self._sender, self._transport, self._remote
            )
        elif fetcher.endpoint != endpoint:
            fetcher.change_endpoint(endpoint)
        return fetcher

    def _remove(self, key: PartitionKey) -> None:
        fetcher = self._by_key.pop(key, None)
        if fetcher is not None:
            fetcher.remove(key)
            if not len(fetcher.core.replicas):
                self._remove_idle_soon()

    def _remove_idle_soon(self) -> None:
        """Remove idle fetchers later: the same metadata delta may give them replicas again."""
        if not self._is_removal_due:
            self._is_removal_due = True
            self._runtime.loop.call_soon(self._remove_idle)

    def _remove_idle(self) -> None:
        self._is_removal_due = False
        for name, fetcher in tuple(self._fetchers.items()):
            if not len(fetcher.core.replicas):
                fetcher.close()
                del self._fetchers[name]


_hash_of = lru_cache(_HASHES_KEPT)(java_string_hash)


def fetcher_index(topic: str, partition: int, count: int) -> int:
    """Return the number of a partition's fetcher, in Java's 32-bit arithmetic (Kafka's AbstractFetcherManager)."""
    value = (31 * _hash_of(topic) + partition) % _INTS
    number = _INTS - value if value > _SIGN else value
    return 0 if number == _SIGN else number % count
