"""Which fetcher keeps which replica up with its leader.

For each leader there are `num.replica.fetchers` fetchers at most, each with a connection and a session of its own. A
replica's is found by Kafka's formula, so that a topic's partitions are spread evenly. Fetchers come with their first
replica and go with their last. What a fetcher says and does is `replica_fetcher.py`'s.
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
from broker.runtime.loop.waiters import Deadlines, Loop
from broker.runtime.replication.fetch_transport import FetchTransport
from broker.runtime.replication.follower_replica import FollowerReplica
from broker.runtime.replication.remote_log_aux_state import RemoteLogSource
from broker.runtime.replication.replica_fetcher import ReplicaFetcher

_HASHES_KEPT: Final = 4096
_INTS: Final = 1 << 32
_SIGN: Final = 1 << 31

_log: Final = EventLog("broker.fetchers")


class ReplicaFetcherManager:
    """All fetchers of a node: a FetcherManager for `Partitions`.

    `listener` is the name of the listener between brokers, `broker_epoch` that of this node's registration now,
    `fetcher_count` the present `num.replica.fetchers`. Install it as a metadata publisher too, after the configuration
    and the `ReplicationThrottles` that keep `quota`, or changes of either are not noticed. `tier` is None where remote
    storage is off: replicas whose leader has what they need there alone then ask again and again.
    """

    def __init__(
        self,
        broker_id: int,
        transport: FetchTransport,
        metadata: ImageSource,
        loop: Loop,
        deadlines: Deadlines,
        *,
        listener: str,
        settings: FetcherSettings,
        fetcher_count: Callable[[], int],
        broker_epoch: Callable[[], int],
        quota: ReplicationQuota | None = None,
        tier: RemoteLogSource | None = None,
    ) -> None:
        self._broker_id = broker_id
        self._transport = transport
        self._metadata = metadata
        self._loop = loop
        self._deadlines = deadlines
        self._listener = listener
        self._settings = settings
        self._fetcher_count = fetcher_count
        self._broker_epoch = broker_epoch
        self._quota = quota
        self._tier = tier
        self._count = fetcher_count()
        self._fetchers: dict[tuple[int, int], ReplicaFetcher] = {}
        self._by_key: dict[PartitionKey, ReplicaFetcher] = {}
        self._is_sweep_due = False
        self._is_closed = False
        self._held: dict[PartitionKey, FollowerReplica] | None = {}

    # ---- following

    def use_remote_storage(self, tier: RemoteLogSource) -> None:
        """Begin replicas behind what is in remote storage, from now on. Before the first fetch."""
        assert not self._fetchers, "fetchers that fetch already know of no remote storage"
        self._tier = tier

    def follow(self, replica: FollowerReplica) -> None:
        """Fetch for a replica from the leader, and in the epoch, that it names now. Being told twice does no harm."""
        key = (replica.topic_id, replica.index)
        if self._held is not None:
            self._held[key] = replica
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
        """Fetch for a replica no more."""
        key = (replica.topic_id, replica.index)
        if self._held is not None:
            self._held.pop(key, None)
        self._remove(key)

    def begin(self) -> None:
        """Fetch from now on; until then replicas are only noted. To be called once the broker is registered: without an
        epoch it would count as the broker that it was in its life before (KIP-903).
        """
        assert self._broker_epoch() >= 0, "who fetches without an epoch may be taken for another life of the broker"
        held, self._held = self._held, None
        for partition in (held or {}).values():
            self.follow(partition)

    def figures(self) -> list[FetcherFigures]:
        """What metrics show."""
        return [fetcher.figures() for fetcher in self.fetchers()]

    def fetchers(self) -> list[ReplicaFetcher]:
        """All there are now."""
        return list(self._fetchers.values())

    def close(self) -> None:
        """Follow nobody any more."""
        self._is_closed = True
        for fetcher in self.fetchers():
            fetcher.close()
        self._fetchers.clear()
        self._by_key.clear()

    # ---- metadata

    def on_metadata(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """Take over what configurations changed. Roles and addresses come through `follow`."""
        if delta.configs is None or self._is_closed:
            return
        if self._quota is not None:
            for fetcher in self.fetchers():
                fetcher.core.on_quota_changed()
                fetcher.wake()
        count = self._fetcher_count()
        if count != self._count:
            self._resize(count)

    def _resize(self, count: int) -> None:
        """Spread the replicas anew; one that is being cut or built stays where it is until it is told of again."""
        self._count = count
        for fetcher in self.fetchers():
            for followed in fetcher.core.members():
                if followed.phase not in (FetchPhase.TRUNCATING, FetchPhase.BUILDING, FetchPhase.FAILED):
                    self.follow(followed.partition)

    # ---- fetchers

    def _endpoint(self, broker_id: int) -> SocketAddress | None:
        broker = self._metadata.image.brokers.get(broker_id)
        found = None if broker is None else broker.endpoints.get(self._listener)
        if found is None:
            _log.warning("A leader cannot be reached", leader=broker_id, listener=self._listener)
            return None
        return SocketAddress(found.host, found.port)

    def _fetcher(self, leader_id: int, index: int, endpoint: SocketAddress) -> ReplicaFetcher:
        fetcher = self._fetchers.get((leader_id, index))
        if fetcher is None:
            fetcher = self._fetchers[leader_id, index] = ReplicaFetcher(
                leader_id,
                index,
                endpoint,
                FetcherCore(self._settings, self._quota),
                self._sender,
                self._transport,
                self._loop,
                self._deadlines,
                self._tier,
            )
        elif fetcher.endpoint != endpoint:
            fetcher.move(endpoint)
        return fetcher

    def _sender(self) -> Sender:
        return Sender(self._broker_id, self._broker_epoch())

    def _remove(self, key: PartitionKey) -> None:
        fetcher = self._by_key.pop(key, None)
        if fetcher is not None:
            fetcher.remove(key)
            if not len(fetcher.core):
                self._sweep_soon()

    def _sweep_soon(self) -> None:
        """Its last replica may be the first of a new reign, in the same change of the metadata."""
        if not self._is_sweep_due:
            self._is_sweep_due = True
            self._loop.call_soon(self._sweep)

    def _sweep(self) -> None:
        self._is_sweep_due = False
        for name, fetcher in tuple(self._fetchers.items()):
            if not len(fetcher.core):
                fetcher.close()
                del self._fetchers[name]


_hash_of = lru_cache(_HASHES_KEPT)(java_string_hash)


def fetcher_index(topic: str, partition: int, count: int) -> int:
    """The fetcher of a partition, by Java's arithmetic of 32 bits (Kafka's AbstractFetcherManager)."""
    value = (31 * _hash_of(topic) + partition) % _INTS
    number = _INTS - value if value > _SIGN else value
    return 0 if number == _SIGN else number % count
