"""The table of APIs that clients find on a broker: which are served, and who answers them.

ApiVersions is computed from the same table, so what is advertised cannot drift from what is handled. An API that is not
a row here does not exist for clients. Versions are those of the schemas unless a row says otherwise. What only the
active controller can answer is in `forwardable_routes.py`, and taken in from there.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

from broker.api.alter_configs import AlterConfigsHandler
from broker.api.alter_replica_log_dirs import AlterReplicaLogDirsHandler
from broker.api.api_versions import ApiVersionsHandler
from broker.api.create_metadata_snapshot import CreateMetadataSnapshotHandler, SnapshotCutter
from broker.api.delete_groups import DeleteGroupsHandler
from broker.api.delete_records import DeleteRecordsHandler
from broker.api.describe_acls import DescribeAclsHandler
from broker.api.describe_client_quotas import DescribeClientQuotasHandler
from broker.api.describe_cluster import DescribeClusterHandler
from broker.api.describe_configs import DescribeConfigsHandler
from broker.api.describe_delegation_token import DescribeDelegationTokenHandler
from broker.api.describe_groups import DescribeGroupsHandler
from broker.api.describe_log_dirs import DescribeLogDirsHandler
from broker.api.describe_producers import DescribeProducersHandler
from broker.api.describe_topic_partitions import DescribeTopicPartitionsHandler
from broker.api.describe_user_scram_credentials import DescribeUserScramCredentialsHandler
from broker.api.fetch import FetchHandler
from broker.api.fetch_public_snapshot import FetchPublicSnapshotHandler
from broker.api.find_coordinator import CoordinatorType, FindCoordinatorHandler
from broker.api.heartbeat import HeartbeatHandler
from broker.api.incremental_alter_configs import IncrementalAlterConfigsHandler
from broker.api.init_producer_id import InitProducerIdHandler, ProducerIdSource
from broker.api.join_group import JoinGroupHandler
from broker.api.leave_group import LeaveGroupHandler
from broker.api.list_config_resources import ListConfigResourcesHandler
from broker.api.list_groups import ListGroupsHandler
from broker.api.list_offsets import ListOffsetsHandler, RemoteLookups
from broker.api.metadata import AutoTopicCreator, MetadataHandler
from broker.api.offset_commit import OffsetCommitHandler
from broker.api.offset_delete import OffsetDeleteHandler
from broker.api.offset_fetch import OffsetFetchHandler
from broker.api.offset_for_leader_epoch import OffsetForLeaderEpochHandler
from broker.api.produce import ProduceHandler
from broker.api.serving.acl_support import HAS_AUTHORIZER
from broker.api.serving.config_changes import OwnConfigCheck
from broker.api.serving.controller_gateway import ControllerGateway
from broker.api.serving.fetch_remote import RemoteReading
from broker.api.serving.forwardable_routes import forwardable_routes
from broker.api.serving.forwarded import Forwarding, forwarded
from broker.api.serving.hosted import CreatedPartitionsWait, hosted
from broker.api.serving.metadata_source import ControllerSource, MetadataSource
from broker.api.serving.quorum_peer import QuorumPeer
from broker.api.serving.route import Route, route
from broker.api.sync_group import SyncGroupHandler
from broker.api.update_features import KraftVersionUpgrade
from broker.clock import Clock
from broker.config.broker_config import BrokerConfig
from broker.metadata.image.metadata_image import MetadataImage
from broker.runtime.controller.loggers import ProcessLoggers
from broker.runtime.coordinators.group_coordinator import GROUP_METADATA_TOPIC, GroupCoordinator
from broker.runtime.loop.io_thread import BlockingIo
from broker.runtime.loop.waiters import Deadlines, Loop
from broker.runtime.partitions.fetch_sessions import FetchSessions
from broker.runtime.partitions.metadata_topic import MetadataTopic
from broker.runtime.partitions.nearby_reads import RACK_AWARE_SELECTOR, NearbyReads
from broker.runtime.partitions.registry import Partitions
from broker.runtime.replication.throttles import ReplicationThrottles
from protocol.api_keys import ApiKey
from storage.directories.log_dirs import LogDirs
from storage.files import FileSystem


@dataclass(frozen=True, slots=True)
class Services:
    """What handlers work with.

    `config` gives the configuration with its dynamic layers as they are now. `controller` is this node's, active or
    not; `forwarding` finds the active one. `metadata_topic` is None where clients may not read `__cluster_metadata`.
    Without `kraft_upgrade` kraft.version is fixed, without the last two there is no remote storage.
    """

    cluster_id: str
    node_id: int
    kraft_version: Callable[[], int]
    config: Callable[[], BrokerConfig]
    clock: Clock
    loop: Loop
    deadlines: Deadlines
    io: BlockingIo
    metadata: MetadataSource
    controller: ControllerGateway
    forwarding: Forwarding
    hosting: CreatedPartitionsWait
    active_controller: ControllerSource
    topic_creator: AutoTopicCreator | None
    create_internal_topic: Callable[[str], None]
    partitions: Partitions
    log_dirs: LogDirs
    fs: FileSystem
    fetch_sessions: FetchSessions
    throttles: ReplicationThrottles
    groups: GroupCoordinator
    producer_ids: ProducerIdSource
    loggers: ProcessLoggers
    metadata_topic: MetadataTopic | None
    snapshots: SnapshotCutter
    kraft_upgrade: KraftVersionUpgrade | None = None
    quorum: QuorumPeer | None = None
    remote_reads: RemoteReading | None = None
    remote_offsets: RemoteLookups | None = None


def broker_routes(services: Services) -> tuple[Route, ...]:
    """The routes of a client listener."""
    s = services
    config = s.config()
    partitions, groups, metadata = s.partitions, s.groups, s.metadata
    internal = {CoordinatorType.GROUP: GROUP_METADATA_TOPIC}
    api_versions = ApiVersionsHandler(
        lambda: table,
        metadata,
        kraft_version=s.kraft_version,
        controller_versions=s.forwarding.controller_versions,
    )

    def image() -> MetadataImage:
        return metadata.image

    fetch = FetchHandler(
        partitions,
        s.fetch_sessions,
        s.deadlines,
        s.loop,
        s.io,
        s.clock,
        max_bytes=config.fetch_max_bytes,
        metadata_topic=s.metadata_topic,
        nearby=NearbyReads(image, s.clock) if config.replica_selector_class == RACK_AWARE_SELECTOR else None,
        quota=s.throttles.leader,
        remote=s.remote_reads,
    )
    describe_configs = DescribeConfigsHandler(
        metadata,
        node_id=s.node_id,
        config=s.config,
        loggers=s.loggers,
        metadata_is_readable=s.metadata_topic is not None,
    )
    topic_partitions = DescribeTopicPartitionsHandler(
        metadata, partition_limit=config.max_request_partition_size_limit, metadata_topic=s.metadata_topic
    )
    metadata_handler = MetadataHandler(
        metadata,
        s.active_controller,
        cluster_id=s.cluster_id,
        creator=s.topic_creator,
        metadata_topic=s.metadata_topic,
    )
    table = (
        # Old librdkafka decides by the mere presence of version 0 which codecs a broker knows; Kafka says so too.
        route(ApiKey.PRODUCE, ProduceHandler(partitions, s.deadlines, s.loop), advertised_min_version=0),
        route(ApiKey.FETCH, fetch),
        route(ApiKey.LIST_OFFSETS, ListOffsetsHandler(partitions, s.metadata_topic, s.remote_offsets)),
        route(ApiKey.METADATA, metadata_handler),
        route(ApiKey.OFFSET_COMMIT, OffsetCommitHandler(groups, image, s.metadata_topic)),
        route(ApiKey.OFFSET_FETCH, OffsetFetchHandler(groups, image, s.metadata_topic)),
        route(ApiKey.FIND_COORDINATOR, FindCoordinatorHandler(image, internal, s.create_internal_topic)),
        route(ApiKey.JOIN_GROUP, JoinGroupHandler(groups)),
        route(ApiKey.HEARTBEAT, HeartbeatHandler(groups)),
        route(ApiKey.LEAVE_GROUP, LeaveGroupHandler(groups)),
        route(ApiKey.SYNC_GROUP, SyncGroupHandler(groups)),
        route(ApiKey.DESCRIBE_GROUPS, DescribeGroupsHandler(groups)),
        route(ApiKey.LIST_GROUPS, ListGroupsHandler(groups)),
        route(ApiKey.API_VERSIONS, api_versions, unsupported_version=api_versions.unsupported),
        route(ApiKey.DELETE_RECORDS, DeleteRecordsHandler(partitions, s.deadlines, s.loop)),
        route(ApiKey.INIT_PRODUCER_ID, InitProducerIdHandler(s.producer_ids)),
        route(ApiKey.OFFSET_FOR_LEADER_EPOCH, OffsetForLeaderEpochHandler(partitions, s.metadata_topic)),
        route(ApiKey.DESCRIBE_ACLS, DescribeAclsHandler(metadata, has_authorizer=HAS_AUTHORIZER)),
        route(ApiKey.DESCRIBE_CONFIGS, describe_configs),
        route(ApiKey.ALTER_REPLICA_LOG_DIRS, AlterReplicaLogDirsHandler(partitions, s.log_dirs)),
        route(ApiKey.DESCRIBE_LOG_DIRS, DescribeLogDirsHandler(s.log_dirs, s.fs, s.io)),
        route(
            ApiKey.DESCRIBE_DELEGATION_TOKEN,
            DescribeDelegationTokenHandler(metadata, secret=config.delegation_token_secret_key),
        ),
        route(ApiKey.DELETE_GROUPS, DeleteGroupsHandler(groups)),
        route(ApiKey.OFFSET_DELETE, OffsetDeleteHandler(groups, image, s.metadata_topic)),
        route(ApiKey.DESCRIBE_CLIENT_QUOTAS, DescribeClientQuotasHandler(metadata)),
        route(ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, DescribeUserScramCredentialsHandler(metadata)),
        route(ApiKey.DESCRIBE_CLUSTER, DescribeClusterHandler(metadata, s.active_controller, cluster_id=s.cluster_id)),
        route(ApiKey.DESCRIBE_PRODUCERS, DescribeProducersHandler(partitions)),
        route(ApiKey.LIST_CONFIG_RESOURCES, ListConfigResourcesHandler(metadata)),
        route(ApiKey.DESCRIBE_TOPIC_PARTITIONS, topic_partitions),
        route(
            ApiKey.FETCH_SNAPSHOT, FetchPublicSnapshotHandler(metadata, s.metadata_topic, s.io, cluster_id=s.cluster_id)
        ),
        route(ApiKey.CREATE_METADATA_SNAPSHOT, CreateMetadataSnapshotHandler(s.snapshots)),
        *(_front(row, s) for row in forwardable_routes(s)),
    )
    return table


def _front(row: Route, services: Services) -> Route:
    """A row of the active controller as this broker's clients find it: forwarded, with what the broker does itself."""
    s = services
    row = forwarded(row, s.forwarding)
    own = OwnConfigCheck(s.node_id, s.config)
    match row.key:
        case ApiKey.CREATE_TOPICS | ApiKey.CREATE_PARTITIONS:
            return hosted(row, s.hosting)
        case ApiKey.ALTER_CONFIGS:
            return replace(row, handler=AlterConfigsHandler(row.handler, s.metadata, own))
        case ApiKey.INCREMENTAL_ALTER_CONFIGS:
            return replace(row, handler=IncrementalAlterConfigsHandler(row.handler, s.metadata, own, s.loggers))
        case _:
            return row
