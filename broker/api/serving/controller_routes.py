"""The table of APIs of a controller's listeners, for controllers, brokers and administrators (KIP-919).

`forwarded_routes` has the rows that clients reach through any broker (KIP-590); `controller_routes` has these and all
others. Every controller serves the whole table, active or not. An inactive controller answers NOT_CONTROLLER where only
the active one can answer, so that the sender looks for the active controller.
"""

from collections.abc import Callable
from typing import Protocol

from broker.api.cluster.api_versions import ApiVersionsHandler
from broker.api.cluster.describe_node import DescribeNodeHandler, NodeDescription
from broker.api.cluster.update_features import FixedKraftVersion, KraftVersionUpgrade, UpdateFeaturesHandler
from broker.api.configs.alter_configs import StoreConfigsHandler
from broker.api.configs.describe_configs import DescribeConfigsHandler
from broker.api.configs.incremental_alter_configs import LoggerControl, StoreConfigChangesHandler
from broker.api.pipeline import permission as needs
from broker.api.pipeline.authorization import Authorizer
from broker.api.pipeline.permission import Requirement, Unrestricted
from broker.api.quorum.controller_commands import admin_routes, member_routes
from broker.api.quorum.create_metadata_snapshot import CreateMetadataSnapshotHandler, SnapshotCutter
from broker.api.quorum.describe_controllers import DescribeControllersHandler
from broker.api.quorum.describe_quorum import DescribeQuorumHandler
from broker.api.quorum.envelope import EnvelopeHandler
from broker.api.quorum.quorum_requests import REPLICA_REQUESTS, VOTER_CHANGES, quorum_routes
from broker.api.security.create_delegation_token import CreateDelegationTokenHandler
from broker.api.security.describe_acls import DescribeAclsHandler
from broker.api.security.expire_delegation_token import ExpireDelegationTokenHandler
from broker.api.security.renew_delegation_token import RenewDelegationTokenHandler
from broker.api.security.sasl_session import refuse_handshake, refuse_token
from broker.api.serving.controller_gateway import ControllerGateway
from broker.api.serving.metadata_source import ControllerSource, MetadataSource
from broker.api.serving.quorum_peer import QuorumPeer
from broker.api.serving.route import Forwarding, Handler, Route, route
from broker.api.topics.create_partitions import CreatePartitionsHandler
from broker.api.topics.create_topics import CreateTopicsHandler
from broker.api.topics.delete_topics import DeleteTopicsHandler
from broker.api.topics.restore_topics import RestoreTopicsHandler
from broker.config.broker_config import BrokerConfig
from broker.metrics.controller import HeartbeatDeadline
from broker.runtime.controller.broker_watch import BrokerWatch
from broker.runtime.controller.loggers import ProcessLoggers
from protocol.api_keys import ApiKey
from protocol.lazy_dataclass import lazy_dataclass


class ForwardedServices(Protocol):
    """Collaborators of the handlers of forwarded rows.

    `controller` is this node's, active or not. Without `quorum` this node has no rows of the quorum. Without
    `authorizer` everything is allowed.
    """

    @property
    def node_id(self) -> int: ...

    @property
    def kraft_version(self) -> Callable[[], int]: ...

    @property
    def config(self) -> Callable[[], BrokerConfig]: ...

    @property
    def controller(self) -> ControllerGateway: ...

    @property
    def loggers(self) -> LoggerControl: ...

    @property
    def quorum(self) -> QuorumPeer | None: ...

    @property
    def kraft_upgrade(self) -> KraftVersionUpgrade | None: ...

    @property
    def authorizer(self) -> Authorizer | None: ...


@lazy_dataclass(frozen=True, slots=True)
class ControllerServices:
    """Collaborators of the handlers of a controller's listeners.

    `controller` is this node's, active or not; `quorum` is its replica of the metadata log, and `metadata` has the
    committed image. Without `authorizer` everything is allowed.
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
    node: NodeDescription
    kraft_upgrade: KraftVersionUpgrade | None = None
    watch: BrokerWatch | None = None
    heartbeat_deadline: HeartbeatDeadline | None = None
    authorizer: Authorizer | None = None


def forwarded_routes(services: ForwardedServices) -> tuple[Route, ...]:
    """Return the rows that brokers forward, with the handlers that run on the active controller."""
    s = services
    controller, config = s.controller, s.config()
    kraft_upgrade = s.kraft_upgrade or FixedKraftVersion(s.kraft_version())
    store_config_changes = StoreConfigChangesHandler(controller, s.loggers, node_id=s.node_id)

    def forwarded(key: ApiKey, handler: Handler, permission: Requirement | Unrestricted) -> Route:
        return route(key, handler, permission, forwarding=Forwarding.TO_CONTROLLER)

    return (
        forwarded(ApiKey.CREATE_TOPICS, CreateTopicsHandler(controller), needs.CREATE_CLUSTER | needs.CREATE_TOPIC),
        forwarded(
            ApiKey.DELETE_TOPICS,
            DeleteTopicsHandler(controller, enabled=config.delete_topic_enable),
            needs.DELETE_CLUSTER | needs.DELETE_TOPIC,
        ),
        forwarded(ApiKey.CREATE_PARTITIONS, CreatePartitionsHandler(controller), needs.ALTER_TOPIC),
        forwarded(ApiKey.ALTER_CONFIGS, StoreConfigsHandler(controller), needs.ALTER_CONFIGS_OF_ANY),
        forwarded(
            ApiKey.INCREMENTAL_ALTER_CONFIGS,
            store_config_changes,
            needs.ALTER_CONFIGS_OF_ANY | needs.CLUSTER_ACTION,  # a controller's loggers, as in Kafka
        ),
        forwarded(
            ApiKey.CREATE_DELEGATION_TOKEN, CreateDelegationTokenHandler(controller), needs.CREATE_TOKENS_OF_USER
        ),
        forwarded(ApiKey.RENEW_DELEGATION_TOKEN, RenewDelegationTokenHandler(controller), needs.TOKEN_OWNER),
        forwarded(ApiKey.EXPIRE_DELEGATION_TOKEN, ExpireDelegationTokenHandler(controller), needs.TOKEN_OWNER),
        forwarded(ApiKey.UPDATE_FEATURES, UpdateFeaturesHandler(controller, kraft_upgrade), needs.ALTER_CLUSTER),
        forwarded(ApiKey.RESTORE_TOPICS, RestoreTopicsHandler(controller), needs.CREATE_CLUSTER),
        *admin_routes(controller, s.authorizer),
        *(() if s.quorum is None else _forwarded_quorum_routes(s.quorum)),
    )


def _forwarded_quorum_routes(quorum: QuorumPeer) -> tuple[Route, ...]:
    """Return the rows that the quorum's leader answers, which is the active controller."""
    describe = route(
        ApiKey.DESCRIBE_QUORUM,
        DescribeQuorumHandler(quorum),
        needs.DESCRIBE_CLUSTER,
        forwarding=Forwarding.TO_CONTROLLER,
    )
    return (describe, *quorum_routes(VOTER_CHANGES, quorum))


def controller_routes(services: ControllerServices) -> tuple[Route, ...]:
    """Return the rows of a controller's listeners."""
    s = services
    api_versions = ApiVersionsHandler(lambda: table, s.metadata, kraft_version=s.kraft_version)
    describe_configs = DescribeConfigsHandler(s.metadata, node_id=s.node_id, config=s.config, loggers=s.loggers)
    describe_controllers = DescribeControllersHandler(s.metadata, s.active_controller, cluster_id=s.cluster_id)
    forwarded = forwarded_routes(s)
    table = (
        route(
            ApiKey.API_VERSIONS,
            api_versions,
            needs.BEFORE_AUTHENTICATION,
            unsupported_version=api_versions.unsupported,
        ),
        route(ApiKey.SASL_HANDSHAKE, refuse_handshake, needs.BEFORE_AUTHENTICATION),
        route(ApiKey.SASL_AUTHENTICATE, refuse_token, needs.BEFORE_AUTHENTICATION),
        *quorum_routes(REPLICA_REQUESTS, s.quorum),
        *member_routes(s.controller, s.watch, s.heartbeat_deadline),
        route(ApiKey.ENVELOPE, EnvelopeHandler(lambda: forwarded, s.authorizer), needs.CLUSTER_ACTION),
        # Requests of administrators that connect to a controller.
        route(ApiKey.DESCRIBE_CLUSTER, describe_controllers, needs.ALTER_CLUSTER),
        route(ApiKey.DESCRIBE_CONFIGS, describe_configs, needs.DESCRIBE_CONFIGS_OF_ANY),
        route(ApiKey.DESCRIBE_ACLS, DescribeAclsHandler(s.metadata, s.authorizer), needs.DESCRIBE_CLUSTER),
        route(ApiKey.CREATE_METADATA_SNAPSHOT, CreateMetadataSnapshotHandler(s.snapshots), needs.ALTER_CLUSTER),
        route(ApiKey.DESCRIBE_NODE, DescribeNodeHandler(s.node), needs.DESCRIBE_CLUSTER),
        *forwarded,
    )
    return table
