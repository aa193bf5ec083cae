"""Checks of requests about a streams group's offsets: members act under their member epoch.

A commit may name an earlier epoch, if the member has had the task of each partition since that epoch. A commit under
way while the member moves to a later epoch so counts, and no task is processed twice for it.
"""

from collections.abc import Callable

from broker.groups.consumer.offsets import knows_member_epochs
from broker.groups.streams.group import StreamsGroup
from protocol.errors import ErrorCode, KafkaError

CheckPartition = Callable[[str, int], None]
"""Checks that the sender may commit this topic's partition; raises KafkaError."""


def check_streams_commit(group: StreamsGroup, member_id: str, epoch: int, api_version: int) -> CheckPartition | None:
    """Check that the caller may commit offsets now; without an epoch, into a group without members.

    Return a check for each partition; None if all are accepted. Raise KafkaError: UNKNOWN_MEMBER_ID,
    UNSUPPORTED_VERSION, STALE_MEMBER_EPOCH.
    """
    if epoch < 0 and group.is_empty:
        return None
    group.member_or_raise(member_id)
    if not knows_member_epochs(api_version):
        raise KafkaError(
            ErrorCode.UNSUPPORTED_VERSION,
            "OffsetCommit version 9 or above must be used by members using the streams group protocol",
        )
    return _check(group, member_id, epoch, ErrorCode.STALE_MEMBER_EPOCH)


def check_streams_transaction(
    group: StreamsGroup, member_id: str, instance_id: str | None, epoch: int
) -> CheckPartition | None:
    """Check a commit within a transaction, as above. Raise KafkaError: UNKNOWN_MEMBER_ID or ILLEGAL_GENERATION.

    Old producers name neither member nor epoch, and are accepted.
    """
    if epoch < 0 and (group.is_empty or (not member_id and instance_id is None)):
        return None
    group.member_or_raise(member_id)
    return _check(group, member_id, epoch, ErrorCode.ILLEGAL_GENERATION)


def check_streams_fetch(group: StreamsGroup, member_id: str | None, epoch: int) -> None:
    """Check the sender of an OffsetFetch; administrators name no member.

    Raise KafkaError: UNKNOWN_MEMBER_ID or STALE_MEMBER_EPOCH.
    """
    if not member_id and epoch < 0:
        return
    known = group.current(group.member_or_raise(member_id or "").member_id).epoch
    if epoch != known:
        raise KafkaError(
            ErrorCode.STALE_MEMBER_EPOCH,
            f"The received member epoch {epoch} does not match the expected member epoch {known}.",
        )


def _check(group: StreamsGroup, member_id: str, epoch: int, error: ErrorCode) -> CheckPartition | None:
    current = group.current(member_id)
    if epoch == current.epoch:
        return None
    if epoch > current.epoch:
        raise KafkaError(error, f"Received member epoch {epoch} is newer than current member epoch {current.epoch}.")
    inputs = {} if group.topology is None else group.topology.inputs

    def check(topic: str, partition: int) -> None:
        subtopology = inputs.get(topic)
        if subtopology is None:
            raise KafkaError(error, f"Topic {topic} is not in the topology.")
        task = f"{subtopology}-{partition}"
        owned = (tasks.active.get(subtopology, {}).get(partition) for tasks in (current.assigned, current.revoking))
        since = next((each for each in owned if each is not None), None)
        if since is None:
            raise KafkaError(error, f"Task {task} is not assigned or pending revocation for member.")
        if epoch < since:
            text = f"Received member epoch {epoch} is older than assignment epoch {since} for task {task}."
            raise KafkaError(error, text)

    return check
