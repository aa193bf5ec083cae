"""The channels of a simulated broker to leaders and to the controller."""

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from broker.runtime.controller.controller_router import ControllerUnavailable
from broker.runtime.replication.fetch_transport import EpochEndsDone, FetchDone, OffsetsDone, Unanswered
from protocol.errors import ErrorCode, KafkaError
from protocol.messages import Message
from protocol.messages.alter_partition import AlterPartitionRequest
from protocol.messages.assign_replicas_to_dirs import AssignReplicasToDirsRequest
from protocol.messages.broker_heartbeat import BrokerHeartbeatRequest
from protocol.messages.broker_registration import BrokerRegistrationRequest
from protocol.messages.fetch import FetchRequest
from protocol.messages.list_offsets import ListOffsetsRequest
from protocol.messages.offset_for_leader_epoch import OffsetForLeaderEpochRequest
from tests.simulation.replication.metadata import CONTROLLER, Refusal
from tests.simulation.replication.network import Connection, Outcome

if TYPE_CHECKING:
    from tests.simulation.replication.broker import Broker

FETCH_VERSION: Final = 17
LIST_OFFSETS_VERSION: Final = 9
EPOCH_ENDS_VERSION: Final = 4
_CONTROLLER_VERSIONS: Final[dict[type, int]] = {
    BrokerRegistrationRequest: 4,
    BrokerHeartbeatRequest: 1,
    AlterPartitionRequest: 3,
    AssignReplicasToDirsRequest: 0,
}


class LeaderPath:
    """Implements LeaderConnection."""

    def __init__(self, connection: Connection, note_fetch: Callable[[FetchRequest], None]) -> None:
        self._connection = connection
        self._note_fetch = note_fetch

    def fetch(self, request: FetchRequest, done: FetchDone) -> None:
        self._note_fetch(request)
        self._connection.ask(request, FETCH_VERSION, done)

    def list_offsets(self, request: ListOffsetsRequest, done: OffsetsDone) -> None:
        self._connection.ask(request, LIST_OFFSETS_VERSION, done)

    def epoch_ends(self, request: OffsetForLeaderEpochRequest, done: EpochEndsDone) -> None:
        self._connection.ask(request, EPOCH_ENDS_VERSION, done)

    def close(self) -> None:
        self._connection.close()


class ControllerPath:
    """Implements MembershipChannel, AlterPartitionChannel and AssignmentChannel."""

    def __init__(self, broker: "Broker", name: str) -> None:
        self._process = broker.process
        around = broker.around
        self._connection = Connection(
            around.wires, broker.process, CONTROLLER, name, around.scenario.session_timeout_ms / 2
        )

    def register_broker(self, request: BrokerRegistrationRequest) -> "asyncio.Future[Any]":
        return self._ask(request)

    def heartbeat(self, request: BrokerHeartbeatRequest) -> "asyncio.Future[Any]":
        return self._ask(request)

    def alter_partitions(self, request: AlterPartitionRequest) -> "asyncio.Future[Any]":
        return self._ask(request)

    def assign_directories(self, request: AssignReplicasToDirsRequest) -> "asyncio.Future[Any]":
        return self._ask(request)

    def _ask(self, request: Message) -> "asyncio.Future[Any]":
        answer: asyncio.Future[Any] = self._process.create_future()

        def settle(outcome: Outcome) -> None:
            if answer.done():
                return
            match outcome:
                case Unanswered(reason):
                    answer.set_exception(ControllerUnavailable(reason))
                case Refusal(ErrorCode.NOT_CONTROLLER):
                    answer.set_exception(ControllerUnavailable("there is no active controller"))
                case Refusal(code):
                    answer.set_exception(KafkaError(code))
                case _:
                    answer.set_result(outcome)

        self._connection.ask(request, _CONTROLLER_VERSIONS[type(request)], settle)
        return answer
