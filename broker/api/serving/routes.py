"""The table of APIs of a broker's client listeners.

ApiVersions is computed from the table, so that advertised and handled versions cannot differ. An API without a row does
not exist for clients. Versions are those of the schemas unless a row says otherwise. Rows that only the active
controller can answer come from `controller_routes.forwarded_routes`.
"""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from broker.api.cluster.alter_replica_log_dirs import AlterReplicaLogDirsHandler
from broker.api.cluster.api_versions import ApiVersionsHandler
from broker.api.cluster.describe_cluster import DescribeClusterHandler
from broker.api.cluster.describe_log_dirs import DescribeLogDirsHandler
from broker.api.cluster.describe_node import DescribeNodeHandler, NodeDescription
from broker.api.cluster.get_telemetry_subscriptions import GetTelemetrySubscriptionsHandler
from broker.api.cluster.push_telemetry import PushTelemetryHandler
from broker.api.cluster.update_features import KraftVersionUpgrade
from broker.api.configs.alter_configs import AlterConfigsHandler
from broker.api.configs.describe_client_quotas import DescribeClientQuotasHandler
from broker.api.configs.describe_configs import DescribeConfigsHandler
from broker.api.configs.incremental_alter_configs import IncrementalAlterConfigsHandler
from broker.api.configs.list_config_resources import ListConfigResourcesHandler
from broker.api.groups.consumer_group_describe import ConsumerGroupDescribeHandler
from broker.api.groups.consumer_group_heartbeat import ConsumerGroupHeartbeatHandler
from broker.api.groups.delete_groups import DeleteGroupsHandler
from broker.api.groups.describe_groups import DescribeGroupsHandler
from broker.api.groups.find_coordinator import CoordinatorType, FindCoordinatorHandler
from broker.api.groups.heartbeat import HeartbeatHandler
from broker.api.groups.join_group import JoinGroupHandler
from broker.api.groups.leave_group import LeaveGroupHandler
from broker.api.groups.list_groups import ListGroupsHandler
from broker.api.groups.offset_commit import OffsetCommitHandler
from broker.api.groups.offset_delete import OffsetDeleteHandler
from broker.api.groups.offset_fetch import OffsetFetchHandler
from broker.api.groups.streams_group_describe import StreamsGroupDescribeHandler
from broker.api.groups.streams_group_heartbeat import StreamsGroupHeartbeatHandler
from broker.api.groups.sync_group import SyncGroupHandler
from broker.api.pipeline import permission as needs
from broker.api.pipeline.authorization import Authorizer
from broker.api.pipeline.quota import FetchQuota
from broker.api.quorum.create_metadata_snapshot import CreateMetadataSnapshotHandler, SnapshotCutter
from broker.api.quorum.fetch_public_snapshot import FetchPublicSnapshotHandler
from broker.api.records.delete_records import DeleteRecordsHandler
from broker.api.records.describe_producers import DescribeProducersHandler
from broker.api.records.fetch import FetchHandler
from broker.api.records.list_offsets import ListOffsetsHandler
from broker.api.records.offset_for_leader_epoch import OffsetForLeaderEpochHandler
from broker.api.records.produce import ProduceHandler
from broker.api.security.describe_acls import DescribeAclsHandler
from broker.api.security.describe_delegation_token import DescribeDelegationTokenHandler
from broker.api.security.describe_user_scram_credentials import DescribeUserScramCredentialsHandler
from broker.api.security.sasl_session import refuse_handshake, refuse_token
from broker.api.serving.config_changes import BrokerConfigCheck, TlsCheck
from broker.api.serving.controller_gateway import ControllerGateway
from broker.api.serving.controller_routes import forwarded_routes
from broker.api.serving.creation_wait import CreatedPartitionsWait, CreationWaitHandler
from broker.api.serving.forwarding import BrokerStep, RequestForwarder, broker_rows
from broker.api.serving.internal_topics import InternalTopicCreation
from broker.api.serving.metadata_source import ControllerSource, MetadataSource
from broker.api.serving.quorum_peer import QuorumPeer
from broker.api.serving.route import Route, route
from broker.api.share.alter_share_group_offsets import AlterShareGroupOffsetsHandler
from broker.api.share.delete_share_group_offsets import DeleteShareGroupOffsetsHandler
from broker.api.share.delete_share_group_state import DeleteShareGroupStateHandler
from broker.api.share.describe_share_group_offsets import DescribeShareGroupOffsetsHandler
from broker.api.share.initialize_share_group_state import InitializeShareGroupStateHandler
from broker.api.share.read_share_group_state import ReadShareGroupStateHandler
from broker.api.share.read_share_group_state_summary import ReadShareGroupStateSummaryHandler
from broker.api.share.share_acknowledge import ShareAcknowledgeHandler
from broker.api.share.share_fetch import ShareFetchHandler
from broker.api.share.share_group_describe import ShareGroupDescribeHandler
from broker.api.share.share_group_heartbeat import ShareGroupHeartbeatHandler
from broker.api.share.write_share_group_state import WriteShareGroupStateHandler
from broker.api.topics.create_topics import CreateTopicsHandler
from broker.api.topics.describe_topic_partitions import DescribeTopicPartitionsHandler
from broker.api.topics.metadata import AutoTopicCreator, MetadataHandler
from broker.api.transactions.add_offsets_to_txn import AddOffsetsToTxnHandler
from broker.api.transactions.add_partitions_to_txn import AddPartitionsToTxnHandler
from broker.api.transactions.describe_transactions import DescribeTransactionsHandler
from broker.api.transactions.end_txn import EndTxnHandler
from broker.api.transactions.init_producer_id import InitProducerIdHandler
from broker.api.transactions.list_transactions import ListTransactionsHandler
from broker.api.transactions.txn_offset_commit import TxnOffsetCommitHandler
from broker.api.transactions.write_txn_markers import WriteTxnMarkersHandler
from broker.config.broker_config import BrokerConfig
from broker.fetch.replica_selector import RACK_AWARE_SELECTOR, RackAwareReplicaSelector
from broker.fetch.service import FetchService
from broker.fetch.sessions import FetchSessions
from broker.fetch.share.service import ShareFetchService
from broker.metadata.image.features import SHARE_VERSION
from broker.metadata.image.metadata_image import MetadataImage
from broker.metadata.image.topic_names import SHARE_STATE_TOPIC, TRANSACTION_STATE_TOPIC
from broker.runtime.controller.loggers import ProcessLoggers
from broker.runtime.coordinators.group_coordinator import GROUP_METADATA_TOPIC, GroupCoordinator
from broker.runtime.coordinators.share_coordinator import ShareCoordinator
from broker.runtime.coordinators.share_group_coordinator import ShareGroupCoordinator
from broker.runtime.coordinators.transaction_coordinator import ProducerIdSource, TransactionCoordinator
from broker.runtime.coordinators.transaction_verifier import TransactionVerifier
from broker.runtime.loop.runtime import Runtime
from broker.runtime.partitions.metadata_topic import ClusterMetadataTopic
from broker.runtime.partitions.offset_lookup import RemoteLookups
from broker.runtime.partitions.registry import Partitions
from broker.runtime.replication.throttles import ReplicationThrottles
from broker.runtime.share.share_partitions import SharePartitions
from broker.share.sessions import ShareSessions
from broker.telemetry.client_metrics import ClientMetrics
from protocol.api_keys import ApiKey
from protocol.lazy_dataclass import lazy_dataclass
from storage.directories.log_dirs import LogDirs

if TYPE_CHECKING:
    from broker.fetch.remote_reads.reads import RemoteReads


@lazy_dataclass(frozen=True, slots=True)
class BrokerServices:
    """Collaborators of a broker's handlers.

    `config` returns the configuration with its current dynamic layers. `controller` is this node's, active or not;
    `forwarder` finds the active one. `metadata_topic` is None where clients may not read `__cluster_metadata`. Without
    `kraft_upgrade` kraft.version is fixed, without `authorizer` everything is allowed, and without `remote_reads` and
    `remote_offsets` there is no remote storage.
    """

    cluster_id: str
    node_id: int
    kraft_version: Callable[[], int]
    config: Callable[[], BrokerConfig]
    runtime: Runtime
    metadata: MetadataSource
    controller: ControllerGateway
    forwarder: RequestForwarder
    created_partitions: CreatedPartitionsWait
    active_controller: ControllerSource
    topic_creator: AutoTopicCreator | None
    create_internal_topic: Callable[[str], None]
    partitions: Partitions
    log_dirs: LogDirs
    fetch_sessions: FetchSessions
    throttles: ReplicationThrottles
    fetch_quota: FetchQuota
    client_metrics: ClientMetrics
    groups: GroupCoordinator
    share_groups: ShareGroupCoordinator
    verifier: TransactionVerifier
    transactions: TransactionCoordinator
    share_states: ShareCoordinator
    shares: SharePartitions
    share_sessions: ShareSessions
    producer_ids: ProducerIdSource
    loggers: ProcessLoggers
    metadata_topic: ClusterMetadataTopic | None
    snapshots: SnapshotCutter
    node: NodeDescription
    kraft_upgrade: KraftVersionUpgrade | None = None
    quorum: QuorumPeer | None = None
    remote_reads: "RemoteReads | None" = None
    remote_offsets: RemoteLookups | None = None
    authorizer: Authorizer | None = None
    tls: TlsCheck | None = None

    def image(self) -> MetadataImage:
        """Return the latest published image."""
        return self.metadata.image


def broker_routes(services: BrokerServices) -> tuple[Route, ...]:
    """Return the rows of a client listener."""
    s = services
    api_versions = ApiVersionsHandler(
        lambda: table,
        s.metadata,
        kraft_version=s.kraft_version,
        controller_versions=s.forwarder.controller_versions,
    )
    table: tuple[Route, ...] = (
        route(
            ApiKey.API_VERSIONS,
            api_versions,
            needs.BEFORE_AUTHENTICATION,
            unsupported_version=api_versions.unsupported,
        ),
        route(ApiKey.SASL_HANDSHAKE, refuse_handshake, needs.BEFORE_AUTHENTICATION),
        route(ApiKey.SASL_AUTHENTICATE, refuse_token, needs.BEFORE_AUTHENTICATION),
        *_record_routes(s),
        *_metadata_routes(s),
        *_group_routes(s),
        *_transaction_routes(s),
        *_share_group_routes(s),
        *_share_state_routes(s),
        *_share_routes(s),
        *_admin_routes(s),
        *broker_rows(forwarded_routes(s), s.forwarder, _broker_steps(s)),
    )
    return table


def _record_routes(s: BrokerServices) -> tuple[Route, ...]:
    """Return the rows about the records of partitions."""
    config, partitions = s.config(), s.partitions
    selects_by_rack = config.replica_selector_class == RACK_AWARE_SELECTOR
    fetches = FetchService(
        partitions,
        s.fetch_sessions,
        s.runtime,
        max_bytes=config.fetch_max_bytes,
        metadata_topic=s.metadata_topic,
        replica_selector=RackAwareReplicaSelector(s.image, s.runtime.clock) if selects_by_rack else None,
        quota=s.throttles.leader,
        remote_reads=s.remote_reads,
    )
    fetch_snapshot = FetchPublicSnapshotHandler(s.metadata, s.metadata_topic, s.runtime.io, cluster_id=s.cluster_id)
    init_producer_id = needs.WRITE_TRANSACTIONAL_ID | needs.IDEMPOTENT_WRITE | needs.WRITE_TOPIC
    return (
        route(
            ApiKey.PRODUCE,
            ProduceHandler(partitions, s.runtime, s.verifier),
            needs.WRITE_TOPIC,
            # Old librdkafka derives a broker's codecs from the presence of version 0, so Kafka advertises it too.
            advertised_min_version=0,
        ),
        route(ApiKey.FETCH, FetchHandler(fetches, s.fetch_quota), needs.READ_TOPIC | needs.CLUSTER_ACTION),
        route(
            ApiKey.LIST_OFFSETS,
            ListOffsetsHandler(partitions, s.metadata_topic, s.remote_offsets),
            needs.DESCRIBE_TOPIC,
        ),
        route(
            ApiKey.OFFSET_FOR_LEADER_EPOCH,
            OffsetForLeaderEpochHandler(partitions, s.metadata_topic),
            needs.CLUSTER_ACTION | needs.DESCRIBE_TOPIC,
        ),
        route(ApiKey.DELETE_RECORDS, DeleteRecordsHandler(partitions, s.runtime), needs.DELETE_TOPIC),
        route(ApiKey.DESCRIBE_PRODUCERS, DescribeProducersHandler(partitions), needs.READ_TOPIC),
        route(
            ApiKey.INIT_PRODUCER_ID,
            InitProducerIdHandler(s.producer_ids, s.transactions),
            init_producer_id,
            serves_unstable=config.unstable_api_versions_enable,
        ),
        route(ApiKey.FETCH_SNAPSHOT, fetch_snapshot, needs.READ_TOPIC),
        route(
            ApiKey.WRITE_TXN_MARKERS,
            WriteTxnMarkersHandler(partitions, s.groups, s.runtime, lambda: s.config().request_timeout_ms),
            needs.ALTER_CLUSTER | needs.CLUSTER_ACTION,
        ),
    )


def _metadata_routes(s: BrokerServices) -> tuple[Route, ...]:
    """Return the rows that read cluster metadata."""
    metadata = MetadataHandler(
        s.metadata,
        s.active_controller,
        cluster_id=s.cluster_id,
        creator=s.topic_creator,
        metadata_topic=s.metadata_topic,
    )
    describe_topic_partitions = DescribeTopicPartitionsHandler(
        s.metadata, partition_limit=s.config().max_request_partition_size_limit, metadata_topic=s.metadata_topic
    )
    describe_cluster = DescribeClusterHandler(s.metadata, s.active_controller, cluster_id=s.cluster_id)
    return (
        route(ApiKey.METADATA, metadata, needs.DESCRIBE_TOPIC),
        route(ApiKey.DESCRIBE_TOPIC_PARTITIONS, describe_topic_partitions, needs.DESCRIBE_TOPIC),
        route(ApiKey.DESCRIBE_CLUSTER, describe_cluster, needs.FILTERS_OPERATIONS),
    )


def _group_routes(s: BrokerServices) -> tuple[Route, ...]:
    """Return the rows of the group coordinator."""
    groups = s.groups
    find_coordinator = FindCoordinatorHandler(
        s.image,
        {
            CoordinatorType.GROUP: GROUP_METADATA_TOPIC,
            CoordinatorType.TRANSACTION: TRANSACTION_STATE_TOPIC,
            CoordinatorType.SHARE: SHARE_STATE_TOPIC,
        },
        s.create_internal_topic,
    )
    creation = InternalTopicCreation(
        s.forwarder, CreateTopicsHandler(s.controller), s.runtime, lambda: s.config().request_timeout_ms
    )
    offset_commit = OffsetCommitHandler(groups, s.image, s.metadata_topic)
    offset_fetch = OffsetFetchHandler(groups, s.image, s.metadata_topic)
    offset_delete = OffsetDeleteHandler(groups, s.image, s.metadata_topic)
    any_coordinator = needs.DESCRIBE_GROUP | needs.DESCRIBE_TRANSACTIONAL_ID | needs.CLUSTER_ACTION
    return (
        route(ApiKey.FIND_COORDINATOR, find_coordinator, any_coordinator),
        route(ApiKey.JOIN_GROUP, JoinGroupHandler(groups), needs.READ_GROUP),
        route(ApiKey.SYNC_GROUP, SyncGroupHandler(groups), needs.READ_GROUP),
        route(ApiKey.HEARTBEAT, HeartbeatHandler(groups), needs.READ_GROUP),
        route(ApiKey.LEAVE_GROUP, LeaveGroupHandler(groups), needs.READ_GROUP),
        route(ApiKey.OFFSET_COMMIT, offset_commit, needs.READ_GROUP & needs.READ_TOPIC),
        route(
            ApiKey.TXN_OFFSET_COMMIT,
            TxnOffsetCommitHandler(groups, s.image, s.metadata_topic),
            needs.WRITE_TRANSACTIONAL_ID & needs.READ_GROUP & needs.READ_TOPIC,
        ),
        route(ApiKey.OFFSET_FETCH, offset_fetch, needs.DESCRIBE_GROUP & needs.DESCRIBE_TOPIC),
        route(ApiKey.OFFSET_DELETE, offset_delete, needs.DELETE_GROUP & needs.READ_TOPIC),
        route(ApiKey.DESCRIBE_GROUPS, DescribeGroupsHandler(groups), needs.DESCRIBE_GROUP),
        route(ApiKey.LIST_GROUPS, ListGroupsHandler(groups), needs.DESCRIBE_CLUSTER | needs.DESCRIBE_GROUP),
        route(ApiKey.DELETE_GROUPS, DeleteGroupsHandler(groups, s.share_groups), needs.DELETE_GROUP),
        route(
            ApiKey.CONSUMER_GROUP_HEARTBEAT,
            ConsumerGroupHeartbeatHandler(groups.consumer_groups),
            needs.READ_GROUP & needs.DESCRIBE_TOPIC,
        ),
        route(
            ApiKey.CONSUMER_GROUP_DESCRIBE,
            ConsumerGroupDescribeHandler(groups.consumer_groups),
            needs.DESCRIBE_GROUP & needs.DESCRIBE_TOPIC,
        ),
        route(
            ApiKey.STREAMS_GROUP_HEARTBEAT,
            StreamsGroupHeartbeatHandler(groups.streams_groups, creation),
            needs.READ_GROUP & needs.DESCRIBE_TOPIC,
        ),
        route(
            ApiKey.STREAMS_GROUP_DESCRIBE,
            StreamsGroupDescribeHandler(groups.streams_groups),
            needs.DESCRIBE_GROUP & needs.DESCRIBE_TOPIC,
        ),
    )


def _transaction_routes(s: BrokerServices) -> tuple[Route, ...]:
    """Return the rows of the transaction coordinator."""
    transactions, writes = s.transactions, needs.WRITE_TRANSACTIONAL_ID
    add_offsets = AddOffsetsToTxnHandler(transactions, s.groups.partition_count)
    return (
        route(
            ApiKey.ADD_PARTITIONS_TO_TXN,
            AddPartitionsToTxnHandler(transactions, s.image),
            writes | needs.WRITE_TOPIC | needs.CLUSTER_ACTION,
        ),
        route(ApiKey.ADD_OFFSETS_TO_TXN, add_offsets, writes & needs.READ_GROUP),
        route(ApiKey.END_TXN, EndTxnHandler(transactions), writes),
        route(ApiKey.DESCRIBE_TRANSACTIONS, DescribeTransactionsHandler(transactions), needs.DESCRIBE_TRANSACTIONAL_ID),
        route(ApiKey.LIST_TRANSACTIONS, ListTransactionsHandler(transactions), needs.DESCRIBE_TRANSACTIONAL_ID),
    )


def _share_routes(s: BrokerServices) -> tuple[Route, ...]:
    """Return the rows of share groups at partition leaders."""
    shares = ShareFetchService(s.partitions, s.shares, s.share_sessions, s.runtime, s.remote_reads)
    reads = needs.READ_GROUP & needs.READ_TOPIC

    def is_served() -> bool:
        return s.image().features.levels.get(SHARE_VERSION, 0) >= 1

    fetch = ShareFetchHandler(shares, s.config().fetch_max_bytes, is_served, s.fetch_quota)
    return (
        route(ApiKey.SHARE_FETCH, fetch, reads),
        route(ApiKey.SHARE_ACKNOWLEDGE, ShareAcknowledgeHandler(shares, is_served), reads),
    )


def _share_group_routes(s: BrokerServices) -> tuple[Route, ...]:
    """Return the rows of share groups at the group coordinator."""
    groups, describes = s.share_groups, needs.DESCRIBE_GROUP & needs.DESCRIBE_TOPIC
    return (
        route(
            ApiKey.SHARE_GROUP_HEARTBEAT,
            ShareGroupHeartbeatHandler(groups),
            needs.READ_GROUP & needs.DESCRIBE_TOPIC,
        ),
        route(ApiKey.SHARE_GROUP_DESCRIBE, ShareGroupDescribeHandler(groups), describes),
        route(ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS, DescribeShareGroupOffsetsHandler(groups), describes),
        route(
            ApiKey.ALTER_SHARE_GROUP_OFFSETS,
            AlterShareGroupOffsetsHandler(groups),
            needs.READ_GROUP & needs.READ_TOPIC,
        ),
        route(
            ApiKey.DELETE_SHARE_GROUP_OFFSETS,
            DeleteShareGroupOffsetsHandler(groups),
            needs.DELETE_GROUP & needs.READ_TOPIC,
        ),
    )


def _share_state_routes(s: BrokerServices) -> tuple[Route, ...]:
    """Return the rows of the share coordinator, which brokers call."""
    states, brokers = s.share_states, needs.CLUSTER_ACTION
    return (
        route(ApiKey.INITIALIZE_SHARE_GROUP_STATE, InitializeShareGroupStateHandler(states), brokers),
        route(ApiKey.READ_SHARE_GROUP_STATE, ReadShareGroupStateHandler(states), brokers),
        route(ApiKey.WRITE_SHARE_GROUP_STATE, WriteShareGroupStateHandler(states), brokers),
        route(ApiKey.DELETE_SHARE_GROUP_STATE, DeleteShareGroupStateHandler(states), brokers),
        route(ApiKey.READ_SHARE_GROUP_STATE_SUMMARY, ReadShareGroupStateSummaryHandler(states), brokers),
    )


def _admin_routes(s: BrokerServices) -> tuple[Route, ...]:
    """Return the rows of administrators that this broker answers itself."""
    config, metadata = s.config(), s.metadata
    describe_configs = DescribeConfigsHandler(
        metadata,
        node_id=s.node_id,
        config=s.config,
        loggers=s.loggers,
        metadata_is_readable=s.metadata_topic is not None,
    )
    describe_tokens = DescribeDelegationTokenHandler(metadata, secret=config.delegation_token_secret_key)
    log_dirs = DescribeLogDirsHandler(s.log_dirs, s.runtime)
    get_telemetry_subscriptions = GetTelemetrySubscriptionsHandler(s.client_metrics, s.runtime.clock)
    push_telemetry = PushTelemetryHandler(s.client_metrics, s.runtime.clock)
    alter_log_dirs = AlterReplicaLogDirsHandler(s.partitions, s.log_dirs)
    return (
        route(ApiKey.DESCRIBE_CONFIGS, describe_configs, needs.DESCRIBE_CONFIGS_OF_ANY),
        route(ApiKey.LIST_CONFIG_RESOURCES, ListConfigResourcesHandler(metadata), needs.DESCRIBE_CONFIGS_OF_CLUSTER),
        route(ApiKey.DESCRIBE_CLIENT_QUOTAS, DescribeClientQuotasHandler(metadata), needs.DESCRIBE_CONFIGS_OF_CLUSTER),
        route(ApiKey.DESCRIBE_ACLS, DescribeAclsHandler(metadata, s.authorizer), needs.DESCRIBE_CLUSTER),
        route(
            ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS,
            DescribeUserScramCredentialsHandler(metadata),
            needs.DESCRIBE_CLUSTER,
        ),
        route(ApiKey.DESCRIBE_DELEGATION_TOKEN, describe_tokens, needs.DESCRIBE_TOKEN | needs.DESCRIBE_TOKENS_OF_USER),
        route(ApiKey.DESCRIBE_LOG_DIRS, log_dirs, needs.DESCRIBE_CLUSTER),
        route(ApiKey.ALTER_REPLICA_LOG_DIRS, alter_log_dirs, needs.ALTER_CLUSTER),
        route(ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, get_telemetry_subscriptions, needs.ANY_CLIENT),
        route(ApiKey.PUSH_TELEMETRY, push_telemetry, needs.ANY_CLIENT),
        route(ApiKey.CREATE_METADATA_SNAPSHOT, CreateMetadataSnapshotHandler(s.snapshots), needs.ALTER_CLUSTER),
        route(ApiKey.DESCRIBE_NODE, DescribeNodeHandler(s.node), needs.DESCRIBE_CLUSTER),
    )


def _broker_steps(s: BrokerServices) -> Mapping[ApiKey, BrokerStep]:
    """Return the parts of forwarded APIs that the receiving broker does itself, by key."""
    own = BrokerConfigCheck(s.node_id, s.config, s.tls)
    return {
        ApiKey.CREATE_TOPICS: lambda rest: CreationWaitHandler(rest, s.created_partitions),
        ApiKey.CREATE_PARTITIONS: lambda rest: CreationWaitHandler(rest, s.created_partitions),
        ApiKey.ALTER_CONFIGS: lambda rest: AlterConfigsHandler(rest, s.metadata, own),
        ApiKey.INCREMENTAL_ALTER_CONFIGS: lambda rest: IncrementalAlterConfigsHandler(rest, s.metadata, own, s.loggers),
    }
