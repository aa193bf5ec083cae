"""APIs that are one command of the controller each: request in, command on the active controller, response out.

A row pairs the request class with the method of `Controller` that answers it; every such API has the same handler.
"""

from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Final, TypeVar

from broker.api.pipeline.authorization import Authorizer, require_authorizer
from broker.api.pipeline.permission import (
    ALTER_CLUSTER,
    ALTER_CONFIGS_OF_CLUSTER,
    CLUSTER_ACTION,
    DESCRIBE_CLUSTER,
    Requirement,
)
from broker.api.serving.context import RequestContext
from broker.api.serving.controller_gateway import ControllerGateway
from broker.api.serving.route import Forwarding, Route, route
from broker.metadata.controller.controller import Controller
from broker.metadata.controller.result import CommandResult
from broker.metrics.controller import HeartbeatDeadline
from broker.runtime.controller.broker_watch import BrokerWatch
from broker.runtime.controller.channel import allocate_producer_ids
from protocol.api_keys import ApiKey
from protocol.ids import BrokerEpoch, BrokerId
from protocol.lazy_dataclass import lazy_dataclass
from protocol.messages import Message
from protocol.messages.allocate_producer_ids import AllocateProducerIdsRequest
from protocol.messages.alter_client_quotas import AlterClientQuotasRequest
from protocol.messages.alter_partition import AlterPartitionRequest
from protocol.messages.alter_partition_reassignments import AlterPartitionReassignmentsRequest
from protocol.messages.alter_user_scram_credentials import AlterUserScramCredentialsRequest
from protocol.messages.assign_replicas_to_dirs import AssignReplicasToDirsRequest
from protocol.messages.broker_heartbeat import BrokerHeartbeatRequest
from protocol.messages.broker_registration import BrokerRegistrationRequest
from protocol.messages.controller_registration import ControllerRegistrationRequest
from protocol.messages.create_acls import CreateAclsRequest
from protocol.messages.delete_acls import DeleteAclsRequest
from protocol.messages.elect_leaders import ElectLeadersRequest
from protocol.messages.list_partition_reassignments import ListPartitionReassignmentsRequest
from protocol.messages.unregister_broker import UnregisterBrokerRequest

Q = TypeVar("Q", bound=Message)
R = TypeVar("R", bound=Message)

Precondition = Callable[[Any, RequestContext], object]
"""Called with the request before the command is submitted; may raise KafkaError."""


@lazy_dataclass(frozen=True, slots=True)
class ControllerCommand:
    """One API that is a command; `run` gets the controller, the request and the controller's time in ms."""

    key: ApiKey
    run: Callable[[Controller, Any, int], CommandResult[Message]]
    permission: Requirement
    needs_authorizer: bool = False


def _command(
    request: type[Q],
    run: Callable[[Controller, Q], CommandResult[R]],
    permission: Requirement,
    *,
    needs_authorizer: bool = False,
) -> ControllerCommand:
    def run_untimed(controller: Controller, message: Q, _now_ms: int) -> CommandResult[R]:
        return run(controller, message)

    return ControllerCommand(ApiKey(request.API_KEY), run_untimed, permission, needs_authorizer)


def _timed_command(
    request: type[Q], run: Callable[[Controller, Q, int], CommandResult[R]], permission: Requirement
) -> ControllerCommand:
    return ControllerCommand(ApiKey(request.API_KEY), run, permission)


MEMBER_COMMANDS: Final = (
    # Versions 0-4 (KIP-631): 1 migrations from ZooKeeper, 2 log directories (KIP-858), 3 the broker epoch of a clean
    # shutdown, 4 features whose lowest level is 0 (KIP-584).
    _timed_command(
        BrokerRegistrationRequest,
        lambda controller, request, now_ms: controller.register_broker(request, now_ms=now_ms),
        CLUSTER_ACTION,
    ),
    # Versions 0-2 (KIP-631): 1 failed log directories (KIP-858), 2 directories that accept no new replicas (KIP-1066),
    # which the controller does not read yet.
    _timed_command(
        BrokerHeartbeatRequest,
        lambda controller, request, now_ms: controller.heartbeat(request, now_ms=now_ms),
        CLUSTER_ACTION,
    ),
    # Version 0 (KIP-919): endpoints and supported features of a controller.
    _command(ControllerRegistrationRequest, Controller.register_controller, CLUSTER_ACTION),
    # Versions 2-3 (KIP-497): a leader changes the in-sync replicas; 3 names the broker epoch of each replica, so that a
    # former registration of a broker cannot enter the set (KIP-903).
    _command(AlterPartitionRequest, Controller.alter_partitions, CLUSTER_ACTION),
    # Version 0 (KIP-858): the log directory of each replica of a broker.
    _command(AssignReplicasToDirsRequest, Controller.assign_directories, CLUSTER_ACTION),
    # Version 0 (KIP-730): the next block of producer ids.
    _timed_command(
        AllocateProducerIdsRequest,
        lambda controller, request, now_ms: allocate_producer_ids(request)(controller, now_ms),
        CLUSTER_ACTION,
    ),
)
"""Commands of brokers and other controllers, sent to the active controller directly."""

ADMIN_COMMANDS: Final = (
    # Versions 1-3 (KIP-140, KIP-290); one result per entry, and per filter.
    _command(CreateAclsRequest, Controller.create_acls, ALTER_CLUSTER, needs_authorizer=True),
    _command(DeleteAclsRequest, Controller.delete_acls, ALTER_CLUSTER, needs_authorizer=True),
    # Versions 0-2: preferred leaders (KIP-183), from version 1 on unclean elections too (KIP-460).
    _command(ElectLeadersRequest, Controller.elect_leaders, ALTER_CLUSTER),
    # Versions 0-1 (KIP-455): version 1 can forbid a change of the replication factor (KIP-860).
    _command(AlterPartitionReassignmentsRequest, Controller.alter_reassignments, ALTER_CLUSTER),
    # Version 0 (KIP-455): only the active controller has the latest state.
    _command(ListPartitionReassignmentsRequest, Controller.list_reassignments, DESCRIBE_CLUSTER),
    # Versions 0-1 (KIP-546); one result per entity.
    _command(AlterClientQuotasRequest, Controller.alter_client_quotas, ALTER_CONFIGS_OF_CLUSTER),
    # Version 0 (KIP-554): passwords arrive salted.
    _command(AlterUserScramCredentialsRequest, Controller.alter_scram_credentials, ALTER_CLUSTER),
    # Version 0 (KIP-631). The controller does not check that the broker is gone: a running broker registers again.
    _command(UnregisterBrokerRequest, Controller.unregister_broker, ALTER_CLUSTER),
)
"""Commands of administrators, which brokers forward."""

COMMANDS: Final = {command.key: command for command in (*MEMBER_COMMANDS, *ADMIN_COMMANDS)}
"""All commands by API key."""


class CommandHandler:
    """Answers requests of one API with the result of its command."""

    def __init__(
        self, command: ControllerCommand, controller: ControllerGateway, precondition: Precondition | None = None
    ) -> None:
        self._run = command.run
        self._controller = controller
        self._precondition = precondition

    def __call__(self, request: Message, context: RequestContext) -> Awaitable[Message]:
        if self._precondition is not None:
            self._precondition(request, context)
        run = self._run
        return self._controller.submit(lambda controller, now_ms: run(controller, request, now_ms))


def member_routes(
    controller: ControllerGateway, watch: BrokerWatch | None, deadline: HeartbeatDeadline | None
) -> Iterable[Route]:
    """Yield the rows of MEMBER_COMMANDS. `watch` notes the connection that each heartbeat comes from."""

    def note_connection(request: BrokerHeartbeatRequest, context: RequestContext) -> None:
        if watch is not None:
            watch.on_heartbeat(BrokerId(request.broker_id), BrokerEpoch(request.broker_epoch), context.connection)

    for command in MEMBER_COMMANDS:
        is_heartbeat = command.key is ApiKey.BROKER_HEARTBEAT
        handler = CommandHandler(command, controller, note_connection if is_heartbeat else None)
        timed = _timed(handler, deadline) if is_heartbeat and deadline is not None else handler
        yield route(command.key, timed, command.permission)


def _timed(
    handler: CommandHandler, deadline: HeartbeatDeadline
) -> Callable[[Message, RequestContext], Awaitable[Message]]:
    return lambda request, context: deadline.watch(handler(request, context))


def admin_routes(controller: ControllerGateway, authorizer: Authorizer | None) -> Iterable[Route]:
    """Yield the rows of ADMIN_COMMANDS."""
    for command in ADMIN_COMMANDS:
        yield route(
            command.key,
            CommandHandler(command, controller, authorizer_check(authorizer) if command.needs_authorizer else None),
            command.permission,
            forwarding=Forwarding.TO_CONTROLLER,
        )


def authorizer_check(authorizer: Authorizer | None) -> Precondition:
    """Return a precondition that raises KafkaError SECURITY_DISABLED without an authorizer."""
    return lambda _request, _context: require_authorizer(authorizer)
