"""The table of APIs of a controller's listeners: for other controllers, for brokers, and for administrators (KIP-919).

Everything is served on every controller, active or not, and always: what only the active one can answer, the others
answer with NOT_CONTROLLER, by which whoever asks finds out. Fetch here is that of the metadata log's replicas alone.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

from broker.api.allocate_producer_ids import AllocateProducerIdsHandler
from broker.api.alter_partition import AlterPartitionHandler
from broker.api.api_versions import ApiVersionsHandler
from broker.api.assign_replicas_to_dirs import AssignReplicasToDirsHandler
from broker.api.begin_quorum_epoch import BeginQuorumEpochHandler
from broker.api.broker_heartbeat import BrokerHeartbeatHandler
from broker.api.broker_registration import BrokerRegistrationHandler
from broker.api.controller_registration import ControllerRegistrationHandler
from broker.api.create_metadata_snapshot import CreateMetadataSnapshotHandler, SnapshotCutter
from broker.api.describe_acls import DescribeAclsHandler
from broker.api.describe_configs import DescribeConfigsHandler
from broker.api.describe_controllers import DescribeControllersHandler
from broker.api.end_quorum_epoch import EndQuorumEpochHandler
from broker.api.envelope import EnvelopeHandler
from broker.api.fetch_snapshot import FetchSnapshotHandler
from broker.api.raft_fetch import RaftFetchHandler
from broker.api.serving.acl_support import HAS_AUTHORIZER
from broker.api.serving.controller_gateway import ControllerGateway
from broker.api.serving.forwardable_routes import forwardable_routes
from broker.api.serving.metadata_source import ControllerSource, MetadataSource
from broker.api.serving.quorum_peer import QuorumPeer
from broker.api.serving.route import Route, route
from broker.api.update_features import KraftVersionUpgrade
from broker.api.update_raft_voter import UpdateRaftVoterHandler
from broker.api.vote import VoteHandler
from broker.config.broker_config import BrokerConfig
from broker.quorum.wire.replication import FETCH_FROM
from broker.runtime.controller.broker_watch import BrokerWatch
from broker.runtime.controller.loggers import ProcessLoggers
from protocol.api_keys import ApiKey


@dataclass(frozen=True, slots=True)
class ControllerServices:
    """What the handlers of a controller's listeners work with.

    `controller` is this node's, active or not; `quorum` is its replica of the metadata log, and `metadata` has the
    committed image.
    """

    cluster_id: str
    node_id: int
    kraft_version: Callable[[], int]
    config: Callable[[], BrokerConfig]
    metadata: MetadataSource
    controller: ControllerGateway
    active_controller: ControllerSource
    quorum: QuorumPeer
    loggers: ProcessLoggers
    snapshots: SnapshotCutter
    kraft_upgrade: KraftVersionUpgrade | None = None
    watch: BrokerWatch | None = None


def controller_routes(services: ControllerServices) -> tuple[Route, ...]:
    """The routes of a controller's listeners."""
    s = services
    controller, metadata, quorum = s.controller, s.metadata, s.quorum
    api_versions = ApiVersionsHandler(lambda: table, metadata, kraft_version=s.kraft_version)
    forwardable = forwardable_routes(s)
    describe_configs = DescribeConfigsHandler(metadata, node_id=s.node_id, config=s.config, loggers=s.loggers)
    describe_controllers = DescribeControllersHandler(metadata, s.active_controller, cluster_id=s.cluster_id)
    table = (
        route(ApiKey.API_VERSIONS, api_versions, unsupported_version=api_versions.unsupported),
        # Replicas of the metadata log.
        replace(route(ApiKey.FETCH, RaftFetchHandler(quorum)), min_version=FETCH_FROM),
        route(ApiKey.FETCH_SNAPSHOT, FetchSnapshotHandler(quorum)),
        route(ApiKey.VOTE, VoteHandler(quorum)),
        route(ApiKey.BEGIN_QUORUM_EPOCH, BeginQuorumEpochHandler(quorum)),
        route(ApiKey.END_QUORUM_EPOCH, EndQuorumEpochHandler(quorum)),
        route(ApiKey.UPDATE_RAFT_VOTER, UpdateRaftVoterHandler(quorum)),
        # Members of the cluster.
        route(ApiKey.BROKER_REGISTRATION, BrokerRegistrationHandler(controller)),
        route(ApiKey.BROKER_HEARTBEAT, BrokerHeartbeatHandler(controller, s.watch)),
        route(ApiKey.CONTROLLER_REGISTRATION, ControllerRegistrationHandler(controller)),
        route(ApiKey.ALTER_PARTITION, AlterPartitionHandler(controller)),
        route(ApiKey.ASSIGN_REPLICAS_TO_DIRS, AssignReplicasToDirsHandler(controller)),
        route(ApiKey.ALLOCATE_PRODUCER_IDS, AllocateProducerIdsHandler(controller)),
        route(ApiKey.ENVELOPE, EnvelopeHandler(lambda: forwardable)),
        # Administrators, directly.
        route(ApiKey.DESCRIBE_CLUSTER, describe_controllers),
        route(ApiKey.DESCRIBE_CONFIGS, describe_configs),
        route(ApiKey.DESCRIBE_ACLS, DescribeAclsHandler(metadata, has_authorizer=HAS_AUTHORIZER)),
        route(ApiKey.CREATE_METADATA_SNAPSHOT, CreateMetadataSnapshotHandler(s.snapshots)),
        *forwardable,
    )
    return table
