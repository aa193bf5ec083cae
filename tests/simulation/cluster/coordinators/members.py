"""Members of consumer groups, of the classic protocol and of KIP-848, as clients run them."""

from collections.abc import Callable, Iterable
from random import Random
from typing import Any, Final

from protocol.errors import ErrorCode
from protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatRequestTopicPartitions,
    ConsumerGroupHeartbeatResponse,
)
from protocol.messages.heartbeat import HeartbeatRequest
from protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment, SyncGroupResponse
from protocol.primitives import Uuid, uuid_to_text
from tests.simulation.cluster.coordinators.owners import NOTHING, OwnerChecker, Ownership, by_topic
from tests.simulation.cluster.coordinators.services import WireServices
from tests.simulation.transactions.clients import Application, Program

SESSION_MS: Final = 1_500
HEARTBEAT_MS: Final = 300
_REBALANCE_MS: Final = 1_000
_RETRY_MS: Final = 80.0
_REJOIN: Final = (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.GROUP_ID_NOT_FOUND)
_JOIN_EPOCH: Final = 0
_LEAVE_EPOCH: Final = -1
_UNREAD: Final = "simulated"
"""A protocol type whose metadata the coordinator does not read."""


class GroupMember(Application):
    """A member of a group, which gives up its partitions when it ends. `partitions` are those of the group's topics."""

    def __init__(
        self,
        group_id: str,
        partitions: Iterable[tuple[str, int]],
        services: WireServices,
        rng: Random,
        owners: OwnerChecker,
    ) -> None:
        self.ownership = Ownership(group_id)
        self._partitions = tuple(partitions)
        self.wires = services
        self._rng = rng
        self._owners = owners
        self._leaves = rng.random() < 0.6
        owners.clients.append(self.ownership)
        super().__init__(services)

    def kill(self) -> None:
        self.ownership.give_up()
        self._owners.clients = [each for each in self._owners.clients if each is not self.ownership]
        super().kill()

    def _ask(self, make: Callable[[], Any], version: int) -> Program:
        """Send a request once; return the response, or None without one."""
        was_sent = was_answered = False

        def made() -> Any:
            nonlocal was_sent
            was_sent = True
            return make()

        def read(response: Any) -> Any:
            nonlocal was_answered
            was_answered = True
            code = ErrorCode(response.error_code)
            return code if code in self.wires.again else response

        partition = self.wires.group_partition(self.ownership.group_id)
        answer = yield self.wires.request(partition, made, version, read, may_stray=False)
        self.ownership.is_doubtful |= was_sent and not was_answered
        return None if isinstance(answer, ErrorCode) else answer

    def _between_heartbeats(self) -> Program:
        """Do the work of a client in the group."""
        yield from ()


class ClassicMember(GroupMember):
    """A member of a classic group: gives up everything before it joins again."""

    protocol_type = protocol = _UNREAD

    def _run(self) -> Program:
        while not self.is_stopping:
            yield from self._take_part()
            self.ownership.give_up()
        if self._leaves:
            identity = MemberIdentity(self.ownership.member_id)
            yield from self._ask(lambda: LeaveGroupRequest(self.ownership.group_id, members=[identity]), 5)

    def _take_part(self) -> Program:
        """Join, and stay for one generation."""
        joined: JoinGroupResponse | None = yield from self._ask(self._join_request, 9)
        if joined is None or not self._is_accepted(joined.error_code, joined.member_id):
            yield _RETRY_MS
            return
        self.ownership.member_id = joined.member_id
        synced: SyncGroupResponse | None = yield from self._ask(lambda: self._sync_request(joined), 5)
        if synced is None or not self._is_accepted(synced.error_code, ""):
            yield _RETRY_MS
            return
        self.ownership.generation = joined.generation_id
        self._owners.on_assigned(self.ownership, self._decoded(bytes(synced.assignment)))
        while not self.is_stopping:
            yield self._rng.random() * HEARTBEAT_MS
            yield from self._between_heartbeats()
            beat = yield from self._ask(self._heartbeat_request, 4)
            if beat is not None and not self._is_accepted(beat.error_code, ""):
                return

    def _is_accepted(self, error_code: int, given_id: str) -> bool:
        match ErrorCode(error_code):
            case ErrorCode.NONE:
                return True
            case ErrorCode.MEMBER_ID_REQUIRED:
                self.ownership.member_id = given_id
            case ErrorCode.UNKNOWN_MEMBER_ID:
                self.ownership.member_id = ""
            case code:
                assert code in (ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.ILLEGAL_GENERATION), code
        return False

    def _join_request(self) -> JoinGroupRequest:
        mine = self.ownership
        protocols = [JoinGroupRequestProtocol(self.protocol, self._metadata())]
        return JoinGroupRequest(
            mine.group_id, SESSION_MS, _REBALANCE_MS, mine.member_id, None, self.protocol_type, protocols
        )

    def _sync_request(self, joined: JoinGroupResponse) -> SyncGroupRequest:
        member_ids = [member.member_id for member in joined.members]
        assignments = [
            SyncGroupRequestAssignment(member_id, self._encoded(range(place, len(self._partitions), len(member_ids))))
            for place, member_id in enumerate(member_ids)
        ]
        return SyncGroupRequest(
            self.ownership.group_id,
            joined.generation_id,
            joined.member_id,
            protocol_type=self.protocol_type,
            protocol_name=self.protocol,
            assignments=assignments,
        )

    def _metadata(self) -> bytes:
        """Return the metadata of JoinGroup."""
        return b""

    def _encoded(self, indexes: Iterable[int]) -> bytes:
        """Return the assignment of the partitions with these places in `_partitions`."""
        return bytes(indexes)

    def _decoded(self, assignment: bytes) -> Iterable[tuple[str, int]]:
        """Return the partitions of an assignment."""
        return (self._partitions[index] for index in assignment)

    def _heartbeat_request(self) -> HeartbeatRequest:
        return HeartbeatRequest(self.ownership.group_id, self.ownership.generation, self.ownership.member_id)


class ConsumerMember(GroupMember):
    """A member of a consumer group (KIP-848): names its partitions in each heartbeat, without those to be revoked."""

    _epoch = _JOIN_EPOCH

    def _run(self) -> Program:
        self.ownership.member_id = uuid_to_text(Uuid(self._rng.randbytes(16)))
        while not self.is_stopping:
            response: ConsumerGroupHeartbeatResponse | None = yield from self._ask(self._request, 1)
            if response is None:
                yield _RETRY_MS
            elif not self._take(response):
                yield self._rng.random() * HEARTBEAT_MS
                yield from self._between_heartbeats()
        self.ownership.give_up()
        if self._leaves:
            self._epoch = _LEAVE_EPOCH
            yield from self._ask(self._request, 1)

    def _take(self, response: ConsumerGroupHeartbeatResponse) -> bool:
        """Apply a response; return whether the coordinator must learn of a change at once."""
        code = ErrorCode(response.error_code)
        if code in _REJOIN:
            self.ownership.give_up()
            self._epoch = _JOIN_EPOCH
            return False
        assert code is ErrorCode.NONE, (code, response.error_message)
        self._epoch = response.member_epoch
        if response.assignment is None:
            return False
        before = self.ownership.owned
        names = {self.wires.topic_id(topic): topic for topic, _ in self._partitions}
        assigned = [
            (names[each.topic_id], index) for each in response.assignment.topic_partitions for index in each.partitions
        ]
        self._owners.on_assigned(self.ownership, assigned)
        return bool(before - self.ownership.owned)

    def _request(self) -> ConsumerGroupHeartbeatRequest:
        owned = NOTHING if self._epoch <= _JOIN_EPOCH else self.ownership.owned
        return ConsumerGroupHeartbeatRequest(
            self.ownership.group_id,
            self.ownership.member_id,
            self._epoch,
            rebalance_timeout_ms=_REBALANCE_MS,
            subscribed_topic_names=sorted({topic for topic, _ in self._partitions}),
            topic_partitions=[
                ConsumerGroupHeartbeatRequestTopicPartitions(self.wires.topic_id(topic), indexes)
                for topic, indexes in by_topic(owned).items()
            ],
        )


MEMBERS: Final = {"classic": ClassicMember, "modern": ConsumerMember}
"""The kinds of members by the id of their group."""
