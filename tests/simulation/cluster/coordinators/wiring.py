"""The coordinators of one simulated broker, over its partitions of the internal topics, composed as in the product."""

import asyncio
from collections.abc import Callable, Coroutine
from random import Random
from typing import TYPE_CHECKING, Any, Final, cast

from broker.api.groups.consumer_group_heartbeat import ConsumerGroupHeartbeatHandler
from broker.api.groups.heartbeat import HeartbeatHandler
from broker.api.groups.join_group import JoinGroupHandler
from broker.api.groups.leave_group import LeaveGroupHandler
from broker.api.groups.offset_commit import OffsetCommitHandler
from broker.api.groups.offset_fetch import OffsetFetchHandler
from broker.api.groups.sync_group import SyncGroupHandler
from broker.api.records.produce import ProduceHandler
from broker.api.serving.context import RequestContext
from broker.api.transactions.add_offsets_to_txn import AddOffsetsToTxnHandler
from broker.api.transactions.add_partitions_to_txn import AddPartitionsToTxnHandler
from broker.api.transactions.end_txn import EndTxnHandler
from broker.api.transactions.init_producer_id import InitProducerIdHandler
from broker.api.transactions.txn_offset_commit import TxnOffsetCommitHandler
from broker.api.transactions.write_txn_markers import WriteTxnMarkersHandler
from broker.config.broker_config import BrokerConfig
from broker.groups.config import GroupConfig
from broker.groups.consumer.environment import ConsumerGroupEnvironment, MemberIntervals
from broker.groups.replay import GROUP_FOLD
from broker.groups.shard import GroupShard
from broker.groups.share.environment import ShareGroupEnvironment
from broker.metadata.image.delta import MetadataDelta
from broker.metadata.image.metadata_image import MetadataImage
from broker.net.peer import Done, PeerUnavailable, SocketAddress
from broker.node.transactions import build_transactions
from broker.runtime.controller.channel import ControllerChannel
from broker.runtime.controller.producer_ids import ControllerBlocks, ProducerIds
from broker.runtime.coordinators.cluster_topics import ImageTopics
from broker.runtime.coordinators.consumer_group_coordinator import ConsumerGroupCoordinator
from broker.runtime.coordinators.group_coordinator import GROUP_METADATA_TOPIC, GroupCoordinator
from broker.runtime.coordinators.hosted_shard import WriteLimits
from broker.runtime.coordinators.loopback import LoopbackPeers
from broker.runtime.coordinators.offset_transactions import OffsetTransactions
from broker.runtime.coordinators.own_verification import OwnVerification
from broker.runtime.coordinators.partition_log import PartitionLog
from broker.runtime.coordinators.shard_loader import ShardLoader
from broker.runtime.coordinators.shard_runtime import ShardRuntime
from broker.runtime.coordinators.streams_group_coordinator import StreamsGroupCoordinator
from broker.runtime.coordinators.transaction_verifier import TransactionVerifier, VerifierSettings
from broker.runtime.loop.runtime import Runtime
from broker.runtime.replication.fetch_transport import Unanswered
from protocol.ids import BrokerId
from protocol.messages import Message
from protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest
from protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from protocol.messages.end_txn import EndTxnRequest
from protocol.messages.heartbeat import HeartbeatRequest
from protocol.messages.init_producer_id import InitProducerIdRequest
from protocol.messages.join_group import JoinGroupRequest
from protocol.messages.leave_group import LeaveGroupRequest
from protocol.messages.offset_commit import OffsetCommitRequest
from protocol.messages.offset_fetch import OffsetFetchRequest
from protocol.messages.produce import ProduceRequest
from protocol.messages.sync_group import SyncGroupRequest
from protocol.messages.txn_offset_commit import TxnOffsetCommitRequest
from protocol.messages.write_txn_markers import WriteTxnMarkersRequest
from protocol.primitives import Uuid
from tests.simulation.cluster.coordinators.members import HEARTBEAT_MS, SESSION_MS
from tests.simulation.cluster.coordinators.shares import BrokerShares
from tests.simulation.cluster.coordinators.snapshots import Snapshots
from tests.simulation.replication.network import LISTENER, Connection, Outcome, Wires
from tests.simulation.world import Process, SimulatedIo

if TYPE_CHECKING:
    from tests.simulation.cluster.broker import ClusterBroker
    from tests.simulation.replication.data_part import DataPart

TIMEOUT_MS: Final = 1_500
"""Time that brokers give each other, and writes of coordinators until they are committed."""
_RETRY_BACKOFF_MS: Final = 20
_RETRY_BACKOFF_MAX_MS: Final = 100
_LINGER_MS: Final = (-1, -1, -1, 0, 50, 300)
"""Linger times of group coordinators. Leaders and in-sync replicas change while records wait for their append."""
_GROUP_CONFIG: Final = GroupConfig(
    offsets_commit_timeout_ms=TIMEOUT_MS, group_min_session_timeout_ms=SESSION_MS, group_initial_rebalance_delay_ms=100
)

Handlers = dict[type, Callable[[Any, RequestContext], Any]]


class WirePeers:
    """Implements ClosablePeers over simulated connections."""

    def __init__(self, wires: Wires, process: Process, client_id: str) -> None:
        self._wires = wires
        self._process = process
        self._client_id = client_id
        self._open: dict[SocketAddress, Connection] = {}

    def send(
        self,
        endpoint: SocketAddress,
        request: Message,
        done: Done,
        *,
        timeout_ms: float,
        versions: tuple[int, int] | None = None,
    ) -> None:
        def settle(outcome: Outcome) -> None:
            done(PeerUnavailable(outcome.reason) if isinstance(outcome, Unanswered) else outcome)

        connection = self._open.get(endpoint)
        if connection is None:
            connection = self._open[endpoint] = Connection(
                self._wires, self._process, endpoint, self._client_id, timeout_ms
            )
        connection.ask(request, type(request).MAX_VERSION if versions is None else versions[1], settle)

    def close(self) -> None:
        """Close all connections."""
        for connection in self._open.values():
            connection.close()


class BrokerCoordinators:
    """The transaction coordinator and the group coordinator of a broker. A MetadataPublisher."""

    def __init__(self, broker: "ClusterBroker", data: "DataPart") -> None:
        process = broker.process
        self._broker = broker
        self._data = data
        self._random = Random(f"coordinators {broker.node.id} {broker.node.starts}")
        self._linger_ms = Random(f"linger {broker.seed} {broker.node.id} {broker.node.starts}").choice(_LINGER_MS)
        self._runtime = Runtime(
            clock=process,
            loop=process,
            io=broker.io,
            files=broker.node.disk,
            deadlines=data.deadlines,
            spawn=process.spawn,
        )
        config = _config(broker.node.id)
        checker = broker.coordinator_checker
        assert checker is not None
        snapshot_io = SimulatedIo(process, self._random, inline_share=0.5, delay_ms=5.0)
        self._snapshots = Snapshots(self._runtime, snapshot_io, data.partitions, checker)
        channel, lifecycle = broker.controller_path("producer-ids"), broker.lifecycle
        assert isinstance(channel, ControllerChannel)
        assert lifecycle is not None
        self._producer_ids = ProducerIds(ControllerBlocks(channel, lifecycle, broker.node.id))
        self.verifier = TransactionVerifier(
            self._runtime,
            WirePeers(broker.around.wires, process, "verifier"),
            self._image,
            LISTENER,
            lambda: VerifierSettings(TIMEOUT_MS, _RETRY_BACKOFF_MS, _RETRY_BACKOFF_MAX_MS),
            broker.node.id,
        )
        self.groups = self._build_groups()
        self._markers = WriteTxnMarkersHandler(data.partitions, self.groups, self._runtime, lambda: TIMEOUT_MS)
        self.transactions = build_transactions(
            self._runtime,
            config,
            data.partitions,
            self._image,
            self._build_marker_peers(),
            self._producer_ids,
            self._snapshots.store,
        )
        self.verifier.own = OwnVerification(self.transactions, self._image)
        self.shares = BrokerShares(
            self._runtime, config, data.partitions, self._image, self._connect, self._snapshots.store, checker.shares
        )
        for shards in (self.groups._runtime, self.transactions._shards, self.shares.states._shards):
            self._snapshots.watch(shards)

    def _connect(self, purpose: str) -> WirePeers:
        return WirePeers(self._broker.around.wires, self._broker.process, purpose)

    def _build_marker_peers(self) -> LoopbackPeers:
        broker = self._broker

        def write(request: Message) -> Message | Coroutine[Any, Any, Message]:
            assert isinstance(request, WriteTxnMarkersRequest)
            return self._markers.write_own(request)

        wires = WirePeers(broker.around.wires, broker.process, "markers")
        loop = cast(asyncio.AbstractEventLoop, broker.process)
        return LoopbackPeers(loop, wires, lambda address: address == broker.node.endpoint, write)

    def _image(self) -> MetadataImage:
        return self._broker.cache.image

    def _build_groups(self) -> GroupCoordinator:
        runtime, partitions = self._runtime, self._data.partitions
        intervals = MemberIntervals(SESSION_MS, HEARTBEAT_MS)
        environment = ConsumerGroupEnvironment(
            topics=lambda: ImageTopics(self._image()), intervals=lambda _group_id: intervals
        )
        share = ShareGroupEnvironment(
            initialize_retry_interval_ms=500,
            topics=lambda: ImageTopics(self._image()),
            intervals=lambda _group_id: intervals,
        )
        shards = ShardRuntime[GroupShard](
            runtime,
            GROUP_METADATA_TOPIC,
            lambda: GroupShard(
                _GROUP_CONFIG, runtime.clock, lambda: str(Uuid(self._random.randbytes(16))), environment, share=share
            ),
            lambda partition: PartitionLog(
                partitions.hosted(GROUP_METADATA_TOPIC, partition), runtime.io, snapshots=self._snapshots.store
            ),
            WriteLimits(self._linger_ms, _GROUP_CONFIG.offsets_commit_timeout_ms),
            ShardLoader(runtime.clock, 1_000, GROUP_FOLD),
        )
        return GroupCoordinator(
            shards,
            _GROUP_CONFIG,
            self._offsets_partition_count,
            BrokerId(self._broker.node.id),
            runtime.loop,
            OffsetTransactions(GROUP_METADATA_TOPIC, partitions, self.verifier, runtime.clock),
            ConsumerGroupCoordinator(runtime, shards, self._offsets_partition_count, self._image, lambda: True),
            StreamsGroupCoordinator(shards, self._offsets_partition_count, lambda: False),
        )

    def _offsets_partition_count(self) -> int:
        topic = self._image().topics.by_name(GROUP_METADATA_TOPIC)
        return 1 if topic is None else topic.partition_count

    def handlers(self) -> Handlers:
        """Return the handlers of the coordinators' APIs, and of Produce with verification of transactions."""
        return {
            ProduceRequest: ProduceHandler(self._data.partitions, self._runtime, self.verifier),
            InitProducerIdRequest: InitProducerIdHandler(self._producer_ids, self.transactions),
            AddPartitionsToTxnRequest: AddPartitionsToTxnHandler(self.transactions, self._image),
            AddOffsetsToTxnRequest: AddOffsetsToTxnHandler(self.transactions, self._offsets_partition_count),
            EndTxnRequest: EndTxnHandler(self.transactions),
            WriteTxnMarkersRequest: self._markers,
            TxnOffsetCommitRequest: TxnOffsetCommitHandler(self.groups, self._image),
            OffsetCommitRequest: OffsetCommitHandler(self.groups, self._image),
            OffsetFetchRequest: OffsetFetchHandler(self.groups, self._image),
            JoinGroupRequest: JoinGroupHandler(self.groups),
            SyncGroupRequest: SyncGroupHandler(self.groups),
            HeartbeatRequest: HeartbeatHandler(self.groups),
            LeaveGroupRequest: LeaveGroupHandler(self.groups),
            ConsumerGroupHeartbeatRequest: ConsumerGroupHeartbeatHandler(self.groups.consumer_groups),
            **self.shares.handlers(self.groups._runtime, self._offsets_partition_count),
        }

    def start(self) -> None:
        """Load what this broker leads, in the order of the product."""
        for coordinator in (self.groups, self.transactions, self.shares.states):
            self._data.partitions.roles.add_listener(coordinator)
            self._broker.process.spawn(coordinator.run())
        self._broker.process.spawn(self._snapshots.run())

    def on_metadata(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """Apply changes of leadership."""
        self.groups.on_metadata(delta, image)
        self.transactions.on_metadata(delta, image)
        self.shares.states.on_metadata(delta, image)

    def close(self) -> None:
        """Stop coordinating."""
        self.transactions.close()
        self.shares.states.close()
        self.groups.close()


def _config(node_id: int) -> BrokerConfig:
    return BrokerConfig(
        {
            "process.roles": "broker",
            "node.id": str(node_id),
            "controller.quorum.bootstrap.servers": "localhost:9093",
            "controller.listener.names": "CONTROLLER",
            "listeners": f"{LISTENER}://:9092",
            "log.dirs": "/data",
            "share.coordinator.snapshot.update.records.per.snapshot": "5",
            "share.coordinator.state.topic.prune.interval.ms": "1000",
            "share.coordinator.write.timeout.ms": str(TIMEOUT_MS),
            "request.timeout.ms": str(TIMEOUT_MS),
            "transaction.abort.timed.out.transaction.cleanup.interval.ms": "500",
            "transaction.state.log.load.buffer.size": "1000",
        }
    )
