"""Group membership in the classic protocol, with the range assignor and eager rebalancing.

A member joins, receives its assignment, sends heartbeats between polls, and rejoins after a rebalance. There is no
thread: the caller runs `keep_alive` at least once per heartbeat interval, and a consumer that stops polling is removed
from the group.
"""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence

from broker.cli.console.range_assignor import assign_ranges
from broker.cli.groups.view import CONSUMER_PROTOCOL, VERSION_BYTES, read_assignment
from broker.cli.shared.offsets import LAST_VERSION_WITH_NAMES, by_topic, check_commit, commit_request, committed_offsets
from broker.client import Client, ClientError, Connection, raise_for
from protocol.compiler import decode, encode_bytes
from protocol.errors import DecodeError, ErrorCode, KafkaError
from protocol.lazy_dataclass import lazy_dataclass
from protocol.messages.common_records import (
    ConsumerProtocolAssignment,
    ConsumerProtocolAssignmentTopicPartition,
    ConsumerProtocolSubscription,
)
from protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from protocol.messages.join_group import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
    JoinGroupResponseMember,
)
from protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity
from protocol.messages.offset_commit import OffsetCommitResponse
from protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment, SyncGroupResponse
from storage.directories.checkpoints import TopicPartition

RANGE = "range"
PROTOCOL_VERSION = 1
"""Version of subscriptions and assignments, sufficient for eager assignors."""

JOIN_GRACE_MS = 5_000
PURPOSE = "group"

REJOIN_ERRORS = frozenset({ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.ILLEGAL_GENERATION, ErrorCode.UNKNOWN_MEMBER_ID})


@lazy_dataclass(frozen=True, slots=True)
class MemberSettings:
    """Settings of a member, in ms, with the defaults of Kafka's consumer."""

    group: str
    instance_id: str | None = None
    session_timeout_ms: int = 45_000
    rebalance_timeout_ms: int = 300_000
    heartbeat_interval_ms: int = 3_000


class GroupMembership:
    """The membership of this consumer in one group."""

    def __init__(
        self, client: Client, settings: MemberSettings, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._client = client
        self._settings = settings
        self._monotonic = monotonic
        self._member_id = ""
        self._generation = -1
        self._heartbeat_due = 0.0

    def join(self, topics: Sequence[str]) -> list[TopicPartition]:
        """Join the group, again after interrupted rebalances, and return the assignment."""
        while True:
            try:
                return self._client.retrying(lambda: self._join(topics))
            except KafkaError as error:
                if error.code not in REJOIN_ERRORS:
                    raise
                self._reset_after(error.code)

    def committed(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the committed offsets of `partitions`; partitions without a commit are missing."""
        offsets = self._client.retrying(lambda: committed_offsets(self._client, self._settings.group))
        return {partition: offsets[partition][0] for partition in partitions if partition in offsets}

    def keep_alive(self) -> bool:
        """Send a heartbeat when one is due. Return False if the member must rejoin."""
        if self._monotonic() < self._heartbeat_due:
            return True
        self._heartbeat_due = self._monotonic() + self._settings.heartbeat_interval_ms / 1000
        code = self._client.retrying(self._heartbeat)
        if code in REJOIN_ERRORS:
            self._reset_after(code)
            return False
        return True

    def commit(self, offsets: Mapping[TopicPartition, int]) -> bool:
        """Commit as this member. Return False after a rebalance: another member may read the records again."""
        if not offsets:
            return True
        if self._generation < 0:
            return False
        try:
            self._client.retrying(lambda: self._commit(offsets))
        except KafkaError as error:
            if error.code not in REJOIN_ERRORS:
                raise
            return False
        return True

    def leave(self) -> None:
        """Leave the group. A static member stays until its session times out."""
        if not self._member_id or self._settings.instance_id is not None:
            return
        request = LeaveGroupRequest(group_id=self._settings.group, members=[MemberIdentity(self._member_id)])
        try:
            coordinator = self._coordinator()
            if coordinator.version_of(LeaveGroupRequest.API_KEY) < 3:
                request = LeaveGroupRequest(group_id=self._settings.group, member_id=self._member_id)
            coordinator.call(request, LeaveGroupResponse)
        except (ClientError, KafkaError):
            return  # The session times out.
        self._reset_after(ErrorCode.UNKNOWN_MEMBER_ID)

    def _reset_after(self, code: ErrorCode) -> None:
        """Reset generation and member id after one of REJOIN_ERRORS. In a rebalance, the member can still commit."""
        if code is not ErrorCode.REBALANCE_IN_PROGRESS:
            self._generation = -1
        if code is ErrorCode.UNKNOWN_MEMBER_ID:
            self._member_id = ""

    def _coordinator(self) -> Connection:
        return self._client.coordinator(self._settings.group, purpose=PURPOSE)

    def _join(self, topics: Sequence[str]) -> list[TopicPartition]:
        coordinator = self._coordinator()
        joined = self._send_join(coordinator, topics)
        if joined.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            self._member_id = joined.member_id
            joined = self._send_join(coordinator, topics)
        raise_for(joined.error_code, f"group {self._settings.group!r}")
        self._member_id, self._generation = joined.member_id, joined.generation_id
        is_leader = joined.leader == joined.member_id and not joined.skip_assignment
        assignments = self._assignments(joined.members) if is_leader else []
        request = SyncGroupRequest(
            group_id=self._settings.group,
            generation_id=self._generation,
            member_id=self._member_id,
            group_instance_id=self._settings.instance_id,
            protocol_type=CONSUMER_PROTOCOL,
            protocol_name=joined.protocol_name,
            assignments=assignments,
        )
        synced = coordinator.call(request, SyncGroupResponse, timeout_ms=self._rebalance_timeout_ms)
        raise_for(synced.error_code, f"group {self._settings.group!r}")
        self._heartbeat_due = self._monotonic() + self._settings.heartbeat_interval_ms / 1000
        return read_assignment(synced.assignment)

    @property
    def _rebalance_timeout_ms(self) -> int:
        """Timeout of a JoinGroup or SyncGroup request, which waits for the other members."""
        return self._settings.rebalance_timeout_ms + JOIN_GRACE_MS

    def _send_join(self, coordinator: Connection, topics: Sequence[str]) -> JoinGroupResponse:
        subscription = ConsumerProtocolSubscription(topics=sorted(topics))
        request = JoinGroupRequest(
            group_id=self._settings.group,
            session_timeout_ms=self._settings.session_timeout_ms,
            rebalance_timeout_ms=self._settings.rebalance_timeout_ms,
            member_id=self._member_id,
            group_instance_id=self._settings.instance_id,
            protocol_type=CONSUMER_PROTOCOL,
            protocols=[JoinGroupRequestProtocol(RANGE, _versioned(encode_bytes(subscription, PROTOCOL_VERSION)))],
        )
        return coordinator.call(request, JoinGroupResponse, timeout_ms=self._rebalance_timeout_ms)

    def _assignments(self, members: Sequence[JoinGroupResponseMember]) -> list[SyncGroupRequestAssignment]:
        """Compute the assignment of all members, as the group's leader."""
        subscriptions = {member.member_id: _subscribed(member.metadata) for member in members}
        wanted = sorted({topic for topics in subscriptions.values() for topic in topics})
        counts = {topic.name or "": len(topic.partitions) for topic in self._client.metadata(wanted).topics}
        return [
            SyncGroupRequestAssignment(member, _encoded_assignment(partitions))
            for member, partitions in assign_ranges(subscriptions, counts).items()
        ]

    def _heartbeat(self) -> ErrorCode:
        request = HeartbeatRequest(
            group_id=self._settings.group,
            generation_id=self._generation,
            member_id=self._member_id,
            group_instance_id=self._settings.instance_id,
        )
        code = ErrorCode(self._coordinator().call(request, HeartbeatResponse).error_code)
        if code not in REJOIN_ERRORS:
            raise_for(code, f"group {self._settings.group!r}")
        return code

    def _commit(self, offsets: Mapping[TopicPartition, int]) -> None:
        request = commit_request(self._settings.group, offsets, generation=self._generation, member_id=self._member_id)
        request.group_instance_id = self._settings.instance_id
        check_commit(self._coordinator().call(request, OffsetCommitResponse, highest=LAST_VERSION_WITH_NAMES))


def _versioned(body: bytes) -> bytes:
    return PROTOCOL_VERSION.to_bytes(VERSION_BYTES, "big") + body


def _subscribed(metadata: bytes) -> list[str]:
    """Decode a subscription's topics; [] if it is invalid, so that other members can continue."""
    version = min(
        int.from_bytes(metadata[:VERSION_BYTES], "big", signed=True), ConsumerProtocolSubscription.MAX_VERSION
    )
    try:
        return decode(ConsumerProtocolSubscription, metadata, version, VERSION_BYTES)[0].topics
    except DecodeError:
        return []


def _encoded_assignment(partitions: Sequence[TopicPartition]) -> bytes:
    assignment = ConsumerProtocolAssignment(
        assigned_partitions=[
            ConsumerProtocolAssignmentTopicPartition(topic, [p.partition for p in group])
            for topic, group in by_topic(partitions).items()
        ]
    )
    return _versioned(encode_bytes(assignment, PROTOCOL_VERSION))
