"""Members of one group that changes its protocol: classic members and members of KIP-848 side by side.

The group is a classic one while it has classic members only. The first other member makes it a consumer group, and the
departure of the last one makes it a classic group again. All members commit offsets.
"""

from collections.abc import Iterable
from random import Random
from typing import TYPE_CHECKING, Final

from broker.groups.subscription import CONSUMER_PROTOCOL_TYPE
from protocol.compiler import decode, encode_bytes
from protocol.errors import ErrorCode
from protocol.messages.common_records import (
    ConsumerProtocolAssignment,
    ConsumerProtocolAssignmentTopicPartition,
    ConsumerProtocolSubscription,
)
from protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from tests.simulation.cluster.coordinators.members import ClassicMember, ConsumerMember, GroupMember
from tests.simulation.cluster.coordinators.offsets import fetch_offset
from tests.simulation.cluster.coordinators.owners import OwnerChecker
from tests.simulation.cluster.coordinators.services import WireServices
from tests.simulation.transactions.clients import Application, Program

if TYPE_CHECKING:
    from broker.transactions.state import TransactionPartition
    from tests.simulation.cluster.coordinators.checker import CoordinatorChecker

MIGRATING: Final = "migrating"
"""The id of the group."""
_COMMIT_VERSION: Final = 9
_VERSION: Final = bytes(2)
_NOTHING_COMMITTED: Final = -1


class MemberCommits:
    """The offsets of one partition that the members of the group commit, as their clients know them.

    Each commit has an offset of its own. A request without response may be executed at any later time.
    """

    def __init__(self, subject: "TransactionPartition", checker: "CoordinatorChecker") -> None:
        self.subject = subject
        self._checker = checker
        self._next = 0
        self._possible: dict[int, str] = {_NOTHING_COMMITTED: "nothing is committed"}

    def send(self) -> int:
        """Return the offset of the next commit."""
        self._next += 1
        self._possible[self._next] = "unanswered"
        return self._next

    def on_answer(self, offset: int, code: ErrorCode) -> None:
        """Note the response to a commit. A time-out leaves the outcome open."""
        if code is ErrorCode.NONE:
            late = {
                each: reason for each, reason in self._possible.items() if reason == "unanswered" and each != offset
            }
            self._possible = {offset: "acknowledged", **late}
        elif code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.STALE_MEMBER_EPOCH, ErrorCode.ILLEGAL_GENERATION):
            del self._possible[offset]

    def on_fetched(self, offset: int) -> None:
        """Check an offset that the coordinator has returned."""
        self._checker.on_offset_fetched(MIGRATING, offset, self._possible)


class MemberReader(Application):
    """Fetches the group's offset once all members are stable."""

    def __init__(self, services: WireServices, commits: MemberCommits) -> None:
        self._wires = services
        self._commits = commits
        super().__init__(services)

    def _run(self) -> Program:
        offset = yield from fetch_offset(self._wires, MIGRATING, self._commits.subject)
        self._commits.on_fetched(offset)


def _commit(member: GroupMember, commits: MemberCommits, generation: int) -> Program:
    """Commit an offset if the member owns the partition."""
    topic, index = commits.subject
    mine = member.ownership
    if (topic, index) not in mine.owned:
        return
    offset = 0

    def make() -> OffsetCommitRequest:
        nonlocal offset
        offset = commits.send()
        partitions = [OffsetCommitRequestPartition(index, offset)]
        topics = [OffsetCommitRequestTopic(topic, partitions=partitions)]
        return OffsetCommitRequest(MIGRATING, generation, mine.member_id, topics=topics)

    def read(response: OffsetCommitResponse) -> None:
        commits.on_answer(offset, ErrorCode(response.topics[0].partitions[0].error_code))

    yield member.wires.request(member.wires.group_partition(MIGRATING), make, _COMMIT_VERSION, read, may_stray=False)


class MigratingClassicMember(ClassicMember):
    """A classic consumer whose metadata the coordinator reads. It gives up everything before it joins again."""

    protocol_type = CONSUMER_PROTOCOL_TYPE
    protocol = "range"
    commits: MemberCommits

    def _metadata(self) -> bytes:
        topics = sorted({topic for topic, _ in self._partitions})
        return _VERSION + encode_bytes(ConsumerProtocolSubscription(topics=topics), 0)

    def _encoded(self, indexes: Iterable[int]) -> bytes:
        owned: dict[str, list[int]] = {}
        for index in indexes:
            topic, partition = self._partitions[index]
            owned.setdefault(topic, []).append(partition)
        assigned = [ConsumerProtocolAssignmentTopicPartition(*each) for each in owned.items()]
        return _VERSION + encode_bytes(ConsumerProtocolAssignment(assigned_partitions=assigned), 0)

    def _decoded(self, assignment: bytes) -> Iterable[tuple[str, int]]:
        if not assignment:
            return
        message, _ = decode(ConsumerProtocolAssignment, assignment, 0, len(_VERSION))
        for topic in message.assigned_partitions:
            for partition in topic.partitions:
                yield topic.topic, partition

    def _between_heartbeats(self) -> Program:
        if self._rng.random() < 0.3:
            yield from _commit(self, self.commits, self.ownership.generation)


class MigratingConsumerMember(ConsumerMember):
    """A member of KIP-848 that commits offsets."""

    commits: MemberCommits

    def _between_heartbeats(self) -> Program:
        if self._rng.random() < 0.3:
            yield from _commit(self, self.commits, self._epoch)


MigratingMember = MigratingClassicMember | MigratingConsumerMember
_KINDS: Final = (MigratingClassicMember, MigratingConsumerMember)


def migrating_member(
    partitions: Iterable[tuple[str, int]],
    services: WireServices,
    rng: Random,
    owners: OwnerChecker,
    commits: MemberCommits,
) -> MigratingMember:
    """Return a member of a random kind."""
    member = rng.choice(_KINDS)(MIGRATING, partitions, services, rng, owners)
    member.ownership.migrates = True
    member.commits = commits
    return member


def is_stable(members: Iterable[GroupMember], partitions: Iterable[tuple[str, int]]) -> bool:
    """Whether the members own all partitions, each one member."""
    owned = [partition for member in members for partition in member.ownership.owned]
    return sorted(owned) == sorted(partitions)
