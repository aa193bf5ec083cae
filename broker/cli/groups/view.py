"""Descriptions of classic and consumer groups in one form, from the API that serves the group."""

from collections.abc import Sequence
from dataclasses import field

from broker.client import Client, Connection, raise_for
from protocol.api_keys import ApiKey
from protocol.compiler import decode
from protocol.errors import DecodeError, ErrorCode, KafkaError
from protocol.lazy_dataclass import lazy_dataclass
from protocol.messages import consumer_group_describe as modern
from protocol.messages import describe_groups as classic
from protocol.messages.common_records import ConsumerProtocolAssignment
from protocol.messages.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse
from storage.directories.checkpoints import TopicPartition

DEAD = "Dead"
EMPTY = "Empty"
CONSUMER_PROTOCOL = "consumer"
VERSION_BYTES = 2


@lazy_dataclass(slots=True)
class MemberDescription:
    """A member. `epoch` and `target` are those of the consumer protocol (KIP-848), None in classic groups."""

    id: str
    instance_id: str | None
    client_id: str
    host: str
    assignment: list[TopicPartition] = field(default_factory=list)
    epoch: int | None = None
    target: list[TopicPartition] | None = None


@lazy_dataclass(slots=True)
class GroupDescription:
    """A group. `epoch` and `target_epoch` are None in classic groups; `coordinator` is (node id, host, port)."""

    id: str
    kind: str
    state: str
    assignor: str
    coordinator: tuple[int, str, int]
    members: list[MemberDescription]
    epoch: int | None = None
    target_epoch: int | None = None


def list_groups(client: Client, states: Sequence[str] = (), types: Sequence[str] = ()) -> list[ListedGroup]:
    """List consumer groups, and groups without a protocol type, of all brokers. Raises KafkaError."""
    return [each for each in listed_groups(client, states, types) if each.protocol_type in ("", CONSUMER_PROTOCOL)]


def listed_groups(client: Client, states: Sequence[str], types: Sequence[str]) -> list[ListedGroup]:
    """List the groups in one of the states and of one of the types, of all brokers. Raises KafkaError."""
    groups: dict[str, ListedGroup] = {}
    for broker in client.metadata([]).brokers:
        request = ListGroupsRequest(states_filter=list(states), types_filter=list(types))
        response = client.node(broker.node_id).call(request, ListGroupsResponse)
        raise_for(response.error_code, "groups")
        groups |= {group.group_id: group for group in response.groups}
    return list(groups.values())


def describe_group(client: Client, group_id: str) -> GroupDescription:
    """Describe a group and its members. Raises KafkaError(GROUP_ID_NOT_FOUND) if the group does not exist."""
    connection, coordinator = coordinator_of(client, group_id)
    return _modern(connection, group_id, coordinator) or _classic(connection, group_id, coordinator)


def coordinator_of(client: Client, group_id: str) -> tuple[Connection, tuple[int, str, int]]:
    """Return a connection to the group's coordinator, and its node id, host and port. Raises KafkaError."""
    connection = client.coordinator(group_id)
    node = next((b for b in client.metadata([]).brokers if (b.host, b.port) == connection.endpoint), None)
    return connection, (-1 if node is None else node.node_id, connection.endpoint.host, connection.endpoint.port)


def _modern(connection: Connection, group_id: str, coordinator: tuple[int, str, int]) -> GroupDescription | None:
    """Return None if the broker does not serve the consumer protocol, or the group does not use it."""
    if not connection.serves(ApiKey.CONSUMER_GROUP_DESCRIBE):
        return None
    response = connection.call(
        modern.ConsumerGroupDescribeRequest(group_ids=[group_id]), modern.ConsumerGroupDescribeResponse
    )
    found = response.groups[0]
    if found.error_code in (ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.UNSUPPORTED_VERSION):
        return None
    raise_for(found.error_code, f"group {group_id!r}", found.error_message)
    return GroupDescription(
        id=group_id,
        kind="Consumer",
        state=found.group_state,
        assignor=found.assignor_name,
        coordinator=coordinator,
        members=[_modern_member(member) for member in found.members],
        epoch=found.group_epoch,
        target_epoch=found.assignment_epoch,
    )


def _modern_member(member: modern.Member) -> MemberDescription:
    return MemberDescription(
        id=member.member_id,
        instance_id=member.instance_id,
        client_id=member.client_id,
        host=member.client_host,
        assignment=_flat(member.assignment),
        epoch=member.member_epoch,
        target=_flat(member.target_assignment),
    )


def _flat(assignment: modern.Assignment) -> list[TopicPartition]:
    return sorted(TopicPartition(t.topic_name, p) for t in assignment.topic_partitions for p in t.partitions)


def _classic(connection: Connection, group_id: str, coordinator: tuple[int, str, int]) -> GroupDescription:
    response = connection.call(classic.DescribeGroupsRequest(groups=[group_id]), classic.DescribeGroupsResponse)
    found = response.groups[0]
    raise_for(found.error_code, f"group {group_id!r}", found.error_message)
    if found.group_state == DEAD:
        raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} not found.")
    return GroupDescription(
        id=group_id,
        kind="Classic",
        state=found.group_state,
        assignor=found.protocol_data,
        coordinator=coordinator,
        members=[
            MemberDescription(
                m.member_id, m.group_instance_id, m.client_id, m.client_host, read_assignment(m.member_assignment)
            )
            for m in found.members
        ],
    )


def read_assignment(data: bytes) -> list[TopicPartition]:
    """Decode a classic member's assignment; [] during a rebalance or for another protocol."""
    if len(data) < VERSION_BYTES:
        return []
    version = min(int.from_bytes(data[:VERSION_BYTES], "big", signed=True), ConsumerProtocolAssignment.MAX_VERSION)
    try:
        assignment, _ = decode(ConsumerProtocolAssignment, data, version, VERSION_BYTES)
    except DecodeError:
        return []
    return sorted(TopicPartition(t.topic, p) for t in assignment.assigned_partitions for p in t.partitions)
