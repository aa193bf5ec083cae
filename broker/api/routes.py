"""The table of APIs that clients find on a broker: which are served, and who answers them.

ApiVersions is computed from the same table, so what is advertised cannot drift from what is handled. An API that is not
a row here does not exist for clients. Versions are those of the schemas unless a row says otherwise.
"""

from collections.abc import Callable
from dataclasses import dataclass

from broker.api.alter_configs import AlterConfigsHandler
from broker.api.alter_partition_reassignments import AlterPartitionReassignmentsHandler
from broker.api.api_versions import ApiVersionsHandler
from broker.api.config_changes import OwnConfigCheck
from broker.api.controller_gateway import ControllerGateway
from broker.api.create_partitions import CreatePartitionsHandler
from broker.api.create_topics import CreateTopicsHandler
from broker.api.delete_groups import DeleteGroupsHandler
from broker.api.delete_records import DeleteRecordsHandler
from broker.api.delete_topics import DeleteTopicsHandler
from broker.api.describe_cluster import DescribeClusterHandler
from broker.api.describe_configs import DescribeConfigsHandler
from broker.api.describe_groups import DescribeGroupsHandler
from broker.api.describe_log_dirs import DescribeLogDirsHandler
from broker.api.describe_producers import DescribeProducersHandler
from broker.api.describe_topic_partitions import DescribeTopicPartitionsHandler
from broker.api.elect_leaders import ElectLeadersHandler
from broker.api.fetch import FetchHandler
from broker.api.find_coordinator import CoordinatorType, FindCoordinatorHandler
from broker.api.heartbeat import HeartbeatHandler
from broker.api.incremental_alter_configs import IncrementalAlterConfigsHandler
from broker.api.init_producer_id import InitProducerIdHandler, ProducerIdSource
from broker.api.join_group import JoinGroupHandler
from broker.api.leave_group import LeaveGroupHandler
from broker.api.list_config_resources import ListConfigResourcesHandler
from broker.api.list_groups import ListGroupsHandler
from broker.api.list_offsets import ListOffsetsHandler
from broker.api.list_partition_reassignments import ListPartitionReassignmentsHandler
from broker.api.metadata import MetadataHandler, TopicCreator
from broker.api.metadata_source import ControllerSource, MetadataSource
from broker.api.offset_commit import OffsetCommitHandler
from broker.api.offset_delete import OffsetDeleteHandler
from broker.api.offset_fetch import OffsetFetchHandler
from broker.api.offset_for_leader_epoch import OffsetForLeaderEpochHandler
from broker.api.produce import ProduceHandler
from broker.api.route import Route, route
from broker.api.sync_group import SyncGroupHandler
from broker.api.update_features import FixedKraftVersion, KraftVersionUpgrade, UpdateFeaturesHandler
from broker.clock import Clock
from broker.config.broker_config import BrokerConfig
from broker.metadata.image import MetadataImage
from broker.runtime.fetch_sessions import FetchSessions
from broker.runtime.group_coordinator import GROUP_METADATA_TOPIC, GroupCoordinator
from broker.runtime.io_thread import BlockingIo
from broker.runtime.logger_levels import LoggerLevels
from broker.runtime.partitions import Partitions
from broker.runtime.waiters import Deadlines, Loop
from protocol.api_keys import ApiKey
from storage.files import FileSystem
from storage.log_dirs import LogDirs


@dataclass(frozen=True, slots=True)
class Services:
    """What handlers work with.

    `config` gives the configuration with its dynamic layers as they are now. `creating_controller` is the controller
    for what creates partitions: it answers when they can be used here. Without `kraft_upgrade` kraft.version is fixed.
    """

    cluster_id: str
    node_id: int
    kraft_version: int
    config: Callable[[], BrokerConfig]
    clock: Clock
    loop: Loop
    deadlines: Deadlines
    io: BlockingIo
    metadata: MetadataSource
    controller: ControllerGateway
    creating_controller: ControllerGateway
    active_controller: ControllerSource
    topic_creator: TopicCreator | None
    create_internal_topic: Callable[[str], None]
    partitions: Partitions
    log_dirs: LogDirs
    fs: FileSystem
    fetch_sessions: FetchSessions
    groups: GroupCoordinator
    producer_ids: ProducerIdSource
    loggers: LoggerLevels
    kraft_upgrade: KraftVersionUpgrade | None = None


def broker_routes(services: Services) -> tuple[Route, ...]:
    """The routes of a client listener."""
    s = services
    config = s.config()
    partitions, groups, controller, metadata = s.partitions, s.groups, s.controller, s.metadata
    own = OwnConfigCheck(s.node_id, s.config)
    kraft_upgrade = s.kraft_upgrade or FixedKraftVersion(s.kraft_version)
    internal = {CoordinatorType.GROUP: GROUP_METADATA_TOPIC}
    api_versions = ApiVersionsHandler(lambda: table, metadata, kraft_version=s.kraft_version)

    def image() -> MetadataImage:
        return metadata.image

    fetch = FetchHandler(
        partitions, s.fetch_sessions, s.deadlines, s.loop, s.io, s.clock, max_bytes=config.fetch_max_bytes
    )
    describe_configs = DescribeConfigsHandler(metadata, node_id=s.node_id, config=s.config, loggers=s.loggers)
    topic_partitions = DescribeTopicPartitionsHandler(metadata, partition_limit=config.max_request_partition_size_limit)
    metadata_handler = MetadataHandler(metadata, s.active_controller, cluster_id=s.cluster_id, creator=s.topic_creator)
    table = (
        # Old librdkafka decides by the mere presence of version 0 which codecs a broker knows; Kafka says so too.
        route(ApiKey.PRODUCE, ProduceHandler(partitions, s.deadlines, s.loop), advertised_min_version=0),
        route(ApiKey.FETCH, fetch),
        route(ApiKey.LIST_OFFSETS, ListOffsetsHandler(partitions)),
        route(ApiKey.METADATA, metadata_handler),
        route(ApiKey.OFFSET_COMMIT, OffsetCommitHandler(groups, image)),
        route(ApiKey.OFFSET_FETCH, OffsetFetchHandler(groups, image)),
        route(ApiKey.FIND_COORDINATOR, FindCoordinatorHandler(image, internal, s.create_internal_topic)),
        route(ApiKey.JOIN_GROUP, JoinGroupHandler(groups)),
        route(ApiKey.HEARTBEAT, HeartbeatHandler(groups)),
        route(ApiKey.LEAVE_GROUP, LeaveGroupHandler(groups)),
        route(ApiKey.SYNC_GROUP, SyncGroupHandler(groups)),
        route(ApiKey.DESCRIBE_GROUPS, DescribeGroupsHandler(groups)),
        route(ApiKey.LIST_GROUPS, ListGroupsHandler(groups)),
        route(ApiKey.API_VERSIONS, api_versions, unsupported_version=api_versions.unsupported),
        route(ApiKey.CREATE_TOPICS, CreateTopicsHandler(s.creating_controller)),
        route(ApiKey.DELETE_TOPICS, DeleteTopicsHandler(controller, enabled=config.delete_topic_enable)),
        route(ApiKey.DELETE_RECORDS, DeleteRecordsHandler(partitions, s.deadlines, s.loop)),
        route(ApiKey.INIT_PRODUCER_ID, InitProducerIdHandler(s.producer_ids)),
        route(ApiKey.OFFSET_FOR_LEADER_EPOCH, OffsetForLeaderEpochHandler(partitions)),
        route(ApiKey.DESCRIBE_CONFIGS, describe_configs),
        route(ApiKey.ALTER_CONFIGS, AlterConfigsHandler(controller, metadata, own)),
        route(ApiKey.DESCRIBE_LOG_DIRS, DescribeLogDirsHandler(s.log_dirs, s.fs, s.io)),
        route(ApiKey.CREATE_PARTITIONS, CreatePartitionsHandler(s.creating_controller)),
        route(ApiKey.DELETE_GROUPS, DeleteGroupsHandler(groups)),
        route(ApiKey.ELECT_LEADERS, ElectLeadersHandler(controller)),
        route(ApiKey.INCREMENTAL_ALTER_CONFIGS, IncrementalAlterConfigsHandler(controller, metadata, own, s.loggers)),
        route(ApiKey.ALTER_PARTITION_REASSIGNMENTS, AlterPartitionReassignmentsHandler(controller)),
        route(ApiKey.LIST_PARTITION_REASSIGNMENTS, ListPartitionReassignmentsHandler(controller)),
        route(ApiKey.OFFSET_DELETE, OffsetDeleteHandler(groups, image)),
        route(ApiKey.UPDATE_FEATURES, UpdateFeaturesHandler(controller, kraft_upgrade)),
        route(ApiKey.DESCRIBE_CLUSTER, DescribeClusterHandler(metadata, s.active_controller, cluster_id=s.cluster_id)),
        route(ApiKey.DESCRIBE_PRODUCERS, DescribeProducersHandler(partitions)),
        route(ApiKey.LIST_CONFIG_RESOURCES, ListConfigResourcesHandler(metadata)),
        route(ApiKey.DESCRIBE_TOPIC_PARTITIONS, topic_partitions),
    )
    return table
