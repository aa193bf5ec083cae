"""ListGroups and DescribeGroups: the administrator's view of groups."""

from collections.abc import Collection

from broker.groups.classic import ClassicGroup
from broker.groups.consumer.describe import CONSUMER_GROUP_TYPE, listed
from broker.groups.directory import GroupDirectory
from broker.groups.member import ClassicGroupMember
from broker.groups.share.describe import SHARE_GROUP_TYPE, listed_share_group
from broker.groups.state import GroupState
from broker.groups.streams.describe import STREAMS_GROUP_TYPE, listed_streams_group
from protocol.errors import ErrorCode
from protocol.messages.describe_groups import DescribedGroup, DescribedGroupMember
from protocol.messages.list_groups import ListedGroup

CLASSIC_GROUP_TYPE = "classic"
_GROUP_TYPES = frozenset((CLASSIC_GROUP_TYPE, CONSUMER_GROUP_TYPE, STREAMS_GROUP_TYPE, SHARE_GROUP_TYPE))


def reports_missing_groups(api_version: int) -> bool:
    """Whether a missing group is an error; earlier versions describe it as Dead (KIP-1043)."""
    return api_version >= 6


def list_groups(groups: GroupDirectory, states: Collection[str], types: Collection[str]) -> list[ListedGroup]:
    """Return the groups in one of the states and of one of the types, in any case; an empty filter accepts all."""
    wanted_states = {state.strip().lower() for state in states}
    wanted_types = {each.lower() for each in types} or _GROUP_TYPES
    found: list[ListedGroup] = []
    if CLASSIC_GROUP_TYPE in wanted_types:
        found.extend(map(_listed, groups.classic))
    if CONSUMER_GROUP_TYPE in wanted_types:
        found.extend(map(listed, groups.consumer))
    if STREAMS_GROUP_TYPE in wanted_types:
        found.extend(map(listed_streams_group, groups.streams))
    if SHARE_GROUP_TYPE in wanted_types:
        found.extend(map(listed_share_group, groups.share))
    if "not_ready" in wanted_states:  # Kafka's own filter knows the state of streams groups by this name only
        wanted_states.add("notready")
    return [each for each in found if not wanted_states or each.group_state.lower() in wanted_states]


def describe_group(groups: GroupDirectory, group_id: str, api_version: int) -> DescribedGroup:
    """Describe one classic group. Members' metadata and assignments are shown only in a Stable group."""
    group = groups.classic.get(group_id)
    if group is None:
        is_other = groups.modern(group_id) is not None
        return _missing(group_id, api_version, "is not a classic group" if is_other else "not found")
    is_stable = group.state is GroupState.STABLE
    return DescribedGroup(
        group_id=group_id,
        group_state=group.state.value,
        protocol_type=group.protocol_type or "",
        protocol_data=group.protocol or "" if is_stable else "",
        members=[_described(member, group.protocol if is_stable else None) for member in group.members.values()],
    )


def _missing(group_id: str, api_version: int, reason: str) -> DescribedGroup:
    described = DescribedGroup(group_id=group_id, group_state=GroupState.DEAD.value)
    if reports_missing_groups(api_version):
        described.error_code = ErrorCode.GROUP_ID_NOT_FOUND
        described.error_message = f"Group {group_id} {reason}."
    return described


def _listed(group: ClassicGroup) -> ListedGroup:
    return ListedGroup(
        group_id=group.group_id,
        protocol_type=group.protocol_type or "",
        group_state=group.state.value,
        group_type=CLASSIC_GROUP_TYPE,
    )


def _described(member: ClassicGroupMember, protocol: str | None) -> DescribedGroupMember:
    return DescribedGroupMember(
        member_id=member.member_id,
        group_instance_id=member.instance_id,
        client_id=member.client_id,
        client_host=member.client_host,
        member_metadata=b"" if protocol is None else member.metadata(protocol),
        member_assignment=member.assignment,
    )
