"""The table of APIs that the active controller answers for clients, whichever node they ask (KIP-590).

A row here is served on the controller's listeners, may come there in an envelope, and is served on every client
listener, from where it is forwarded. Throughout, the handler runs where the active controller is.
"""

from collections.abc import Callable
from typing import Protocol

from broker.api.add_raft_voter import AddRaftVoterHandler
from broker.api.alter_client_quotas import AlterClientQuotasHandler
from broker.api.alter_configs import StoreConfigsHandler
from broker.api.alter_partition_reassignments import AlterPartitionReassignmentsHandler
from broker.api.alter_user_scram_credentials import AlterUserScramCredentialsHandler
from broker.api.create_acls import CreateAclsHandler
from broker.api.create_delegation_token import CreateDelegationTokenHandler
from broker.api.create_partitions import CreatePartitionsHandler
from broker.api.create_topics import CreateTopicsHandler
from broker.api.delete_acls import DeleteAclsHandler
from broker.api.delete_topics import DeleteTopicsHandler
from broker.api.describe_quorum import DescribeQuorumHandler
from broker.api.elect_leaders import ElectLeadersHandler
from broker.api.expire_delegation_token import ExpireDelegationTokenHandler
from broker.api.incremental_alter_configs import LoggerControl, StoreConfigChangesHandler
from broker.api.list_partition_reassignments import ListPartitionReassignmentsHandler
from broker.api.remove_raft_voter import RemoveRaftVoterHandler
from broker.api.renew_delegation_token import RenewDelegationTokenHandler
from broker.api.restore_topics import RestoreTopicsHandler
from broker.api.serving.acl_support import HAS_AUTHORIZER
from broker.api.serving.controller_gateway import ControllerGateway
from broker.api.serving.quorum_peer import QuorumPeer
from broker.api.serving.route import Route, route
from broker.api.unregister_broker import UnregisterBrokerHandler
from broker.api.update_features import FixedKraftVersion, KraftVersionUpgrade, UpdateFeaturesHandler
from broker.config.broker_config import BrokerConfig
from protocol.api_keys import ApiKey


class AdminServices(Protocol):
    """What these handlers work with. `controller` is this node's, active or not; `quorum` None cannot be asked."""

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


def forwardable_routes(services: AdminServices) -> tuple[Route, ...]:
    """The rows as the controller itself answers them."""
    s = services
    controller, config = s.controller, s.config()
    kraft_upgrade = s.kraft_upgrade or FixedKraftVersion(s.kraft_version())
    return (
        route(ApiKey.CREATE_TOPICS, CreateTopicsHandler(controller)),
        route(ApiKey.DELETE_TOPICS, DeleteTopicsHandler(controller, enabled=config.delete_topic_enable)),
        route(ApiKey.CREATE_ACLS, CreateAclsHandler(controller, has_authorizer=HAS_AUTHORIZER)),
        route(ApiKey.DELETE_ACLS, DeleteAclsHandler(controller, has_authorizer=HAS_AUTHORIZER)),
        route(ApiKey.ALTER_CONFIGS, StoreConfigsHandler(controller)),
        route(ApiKey.CREATE_PARTITIONS, CreatePartitionsHandler(controller)),
        route(ApiKey.CREATE_DELEGATION_TOKEN, CreateDelegationTokenHandler(controller)),
        route(ApiKey.RENEW_DELEGATION_TOKEN, RenewDelegationTokenHandler(controller)),
        route(ApiKey.EXPIRE_DELEGATION_TOKEN, ExpireDelegationTokenHandler(controller)),
        route(ApiKey.ELECT_LEADERS, ElectLeadersHandler(controller)),
        route(ApiKey.INCREMENTAL_ALTER_CONFIGS, StoreConfigChangesHandler(controller, s.loggers, node_id=s.node_id)),
        route(ApiKey.ALTER_PARTITION_REASSIGNMENTS, AlterPartitionReassignmentsHandler(controller)),
        route(ApiKey.LIST_PARTITION_REASSIGNMENTS, ListPartitionReassignmentsHandler(controller)),
        route(ApiKey.ALTER_CLIENT_QUOTAS, AlterClientQuotasHandler(controller)),
        route(ApiKey.ALTER_USER_SCRAM_CREDENTIALS, AlterUserScramCredentialsHandler(controller)),
        route(ApiKey.UPDATE_FEATURES, UpdateFeaturesHandler(controller, kraft_upgrade)),
        route(ApiKey.UNREGISTER_BROKER, UnregisterBrokerHandler(controller)),
        route(ApiKey.RESTORE_TOPICS, RestoreTopicsHandler(controller)),
        *(() if s.quorum is None else _quorum_routes(s.quorum)),
    )


def _quorum_routes(quorum: QuorumPeer) -> tuple[Route, ...]:
    """What the quorum's leader answers, which is where the active controller is."""
    return (
        route(ApiKey.DESCRIBE_QUORUM, DescribeQuorumHandler(quorum)),
        route(ApiKey.ADD_RAFT_VOTER, AddRaftVoterHandler(quorum)),
        route(ApiKey.REMOVE_RAFT_VOTER, RemoveRaftVoterHandler(quorum)),
    )
