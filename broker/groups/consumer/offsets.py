"""Checks of requests about a consumer group's offsets: members act under their member epoch."""

from broker.groups.consumer.group import ConsumerGroup
from broker.groups.consumer.member import ConsumerGroupMember
from protocol.errors import ErrorCode, KafkaError


def knows_member_epochs(api_version: int) -> bool:
    """Whether an OffsetCommit can be sent by a member of the consumer protocol (KIP-848)."""
    return api_version >= 9


def check_consumer_commit(group: ConsumerGroup, member_id: str, epoch: int, api_version: int) -> None:
    """Check that the caller may commit offsets now; without an epoch, into a group without members.

    Raise KafkaError: UNKNOWN_MEMBER_ID, UNSUPPORTED_VERSION; STALE_MEMBER_EPOCH, for a classic member
    ILLEGAL_GENERATION.
    """
    if epoch < 0 and group.is_empty:
        return
    member = group.member_or_raise(member_id)
    if member.classic is None and not knows_member_epochs(api_version):
        raise KafkaError(
            ErrorCode.UNSUPPORTED_VERSION,
            "OffsetCommit version 9 or above must be used by members using the modern group protocol",
        )
    _check_epoch(group, member, epoch, is_generation=member.classic is not None)


def check_transactional_commit(group: ConsumerGroup, member_id: str, epoch: int) -> None:
    """Check a commit within a transaction. Raise KafkaError: UNKNOWN_MEMBER_ID or ILLEGAL_GENERATION."""
    if epoch >= 0 or not group.is_empty:
        _check_epoch(group, group.member_or_raise(member_id), epoch, is_generation=True)


def check_consumer_fetch(group: ConsumerGroup, member_id: str | None, epoch: int) -> None:
    """Check the sender of an OffsetFetch; administrators name no member.

    Raise KafkaError: UNKNOWN_MEMBER_ID; STALE_MEMBER_EPOCH, for a classic member ILLEGAL_GENERATION.
    """
    if not member_id and epoch < 0:
        return
    member = group.member_or_raise(member_id or "")
    _check_epoch(group, member, epoch, is_generation=member.classic is not None)


def _check_epoch(group: ConsumerGroup, member: ConsumerGroupMember, epoch: int, *, is_generation: bool) -> None:
    known = group.current(member.member_id).epoch
    if epoch != known:
        raise KafkaError(
            ErrorCode.ILLEGAL_GENERATION if is_generation else ErrorCode.STALE_MEMBER_EPOCH,
            f"The received member epoch {epoch} does not match the expected member epoch {known}.",
        )
