"""Share groups in the simulated cluster: the share coordinator and the share partitions of one broker, and members."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, cast

from broker.api.share.initialize_share_group_state import InitializeShareGroupStateHandler
from broker.api.share.read_share_group_state import ReadShareGroupStateHandler
from broker.api.share.share_acknowledge import ShareAcknowledgeHandler
from broker.api.share.share_fetch import ShareFetchHandler
from broker.api.share.share_group_heartbeat import ShareGroupHeartbeatHandler
from broker.api.share.write_share_group_state import WriteShareGroupStateHandler
from broker.config.broker_config import BrokerConfig
from broker.fetch.share.service import ShareFetchService
from broker.groups.shard import GroupShard
from broker.metadata.image.metadata_image import MetadataImage
from broker.metrics.share import ShareFigures
from broker.net.peer import NetworkClient
from broker.node.share_state import build_share_coordinator
from broker.runtime.coordinators.shard_runtime import ShardRuntime
from broker.runtime.coordinators.share_group_coordinator import ShareGroupCoordinator
from broker.runtime.coordinators.share_state_client import ShareStateClient
from broker.runtime.coordinators.snapshot_store import SnapshotStore
from broker.runtime.loop.runtime import Runtime
from broker.runtime.partitions.partition import Partition
from broker.runtime.partitions.registry import Partitions
from broker.runtime.share.led_share_partition import LedSharePartition, ShareServices
from broker.runtime.share.persister import SharePersister
from broker.runtime.share.share_partitions import SharePartitions
from broker.share.records import AcknowledgementBatch, AcquireRequest, FetchedBatches, ShareLimits
from broker.share.sessions import ShareSessions
from broker.share.settings import OffsetReset, ResetTarget, ShareGroupSettings
from protocol.errors import ErrorCode
from protocol.messages.initialize_share_group_state import InitializeShareGroupStateRequest
from protocol.messages.read_share_group_state import ReadShareGroupStateRequest
from protocol.messages.share_acknowledge import ShareAcknowledgeRequest
from protocol.messages.share_fetch import ShareFetchRequest
from protocol.messages.share_group_heartbeat import ShareGroupHeartbeatRequest
from protocol.messages.write_share_group_state import WriteShareGroupStateRequest
from tests.simulation.cluster.coordinators.checker import DELIVERY_LIMIT
from tests.simulation.cluster.coordinators.share_checker import ClusterShareChecker
from tests.simulation.replication.network import LISTENER

if TYPE_CHECKING:
    from tests.simulation.cluster.coordinators.wiring import Handlers, WirePeers

LOCK_MS: Final = 900
_MAX_LOCKS: Final = 100
_MAX_SESSIONS: Final = 100
_SETTINGS: Final = ShareGroupSettings(
    ShareLimits(DELIVERY_LIMIT, _MAX_LOCKS), LOCK_MS, reads_committed=False, reset=OffsetReset(ResetTarget.EARLIEST)
)


class BrokerShares:
    """The share coordinator and the share partitions of a broker process, composed as in the product."""

    def __init__(
        self,
        runtime: Runtime,
        config: BrokerConfig,
        partitions: Partitions,
        image: Callable[[], MetadataImage],
        connect: "Callable[[str], WirePeers]",
        snapshots: SnapshotStore,
        checker: ClusterShareChecker,
    ) -> None:
        self.states = build_share_coordinator(runtime, config, partitions, image, snapshots)
        delete_records = self.states._delete_records

        def prune(partition: int, offset: int) -> None:
            checker.on_pruned(partition, offset)
            delete_records(partition, offset)

        self.states._delete_records = prune
        timeout_ms: Callable[[], int] = lambda: config.request_timeout_ms  # noqa: E731
        persister = SharePersister(runtime, connect("share states"), image, LISTENER, timeout_ms)
        services = ShareServices(runtime, persister, lambda _group_id: _SETTINGS, ShareFigures())
        self.partitions = _WitnessedPartitions(services, checker)
        self._service = ShareFetchService(partitions, self.partitions, ShareSessions(_MAX_SESSIONS), runtime)
        self._state_client = ShareStateClient(
            runtime, cast(NetworkClient, connect("share groups")), image, LISTENER, timeout_ms, _create_nothing
        )
        self._runtime = runtime
        self._image = image

    def handlers(self, shards: ShardRuntime[GroupShard], partition_count: Callable[[], int]) -> "Handlers":
        """Return the handlers of share groups, over the shards of the group coordinator."""
        groups = ShareGroupCoordinator(
            self._runtime, shards, partition_count, self._image, _is_served, self._state_client
        )
        return {
            ShareGroupHeartbeatRequest: ShareGroupHeartbeatHandler(groups),
            ShareFetchRequest: ShareFetchHandler(self._service, 10_000, _is_served),
            ShareAcknowledgeRequest: ShareAcknowledgeHandler(self._service, _is_served),
            InitializeShareGroupStateRequest: InitializeShareGroupStateHandler(self.states),
            ReadShareGroupStateRequest: ReadShareGroupStateHandler(self.states),
            WriteShareGroupStateRequest: WriteShareGroupStateHandler(self.states),
        }


class _WitnessedPartitions(SharePartitions):
    """Share partitions whose acquisitions and acknowledgements reach the checker."""

    def __init__(self, services: ShareServices, checker: ClusterShareChecker) -> None:
        super().__init__(services)
        self._checker = checker
        self._watched: set[LedSharePartition] = set()

    def open(self, group_id: str, partition: Partition) -> LedSharePartition:
        found = super().open(group_id, partition)
        if found not in self._watched:
            self._watched = {each for each in self._watched if each.error is ErrorCode.NONE} | {found}
            _watch(found, self._checker)
        return found

    def observe(self) -> None:
        """Check all share partitions in service."""
        for each in self._watched:
            self._checker.observe_led(each)


def _watch(led: LedSharePartition, checker: ClusterShareChecker) -> None:
    acquire, acknowledge, release = led.acquire, led.acknowledge, led.release_member

    def acquire_and_note(request: AcquireRequest, fetched: FetchedBatches) -> Any:
        acquired = acquire(request, fetched)
        checker.on_led_acquired(led, request.member_id, acquired, LOCK_MS)
        return acquired

    def acknowledge_and_note(member_id: str, batches: tuple[AcknowledgementBatch, ...]) -> Any:
        start = 0 if led.state is None else led.state.start_offset
        result = acknowledge(member_id, batches)
        checker.on_led_acknowledged(led, member_id, start, batches, result)
        return result

    def release_and_note(member_id: str) -> Any:
        result = release(member_id)
        checker.on_led_released(led, member_id, result)
        return result

    led.acquire = acquire_and_note  # type: ignore[method-assign]
    led.acknowledge = acknowledge_and_note  # type: ignore[assignment, method-assign]
    led.release_member = release_and_note  # type: ignore[method-assign]


def _is_served() -> bool:
    return True


def _create_nothing(_topic: str) -> None:
    """Do nothing: the internal topics exist."""
