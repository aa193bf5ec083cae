"""Reconciliation: the steps of one member from its current assignment to the target assignment (KIP-848).

Each heartbeat may take one step. A partition goes from one member to another only after the former owner has named its
owned partitions without it, so no partition ever has two owners.

    assigned' = assigned ∩ target
    revoke    = assigned − assigned'
    add       = target − assigned' − partitions that other members hold (assigned, or not yet given up)

| state | condition | step |
|---|---|---|
| STABLE | at the target epoch | none |
| STABLE, UNRELEASED | else | compute with the current epoch |
| UNREVOKED | owned partitions unknown, or one of `revoking` is still owned | none, but topics that the request unsubscribes from become part of `revoking` |
| UNREVOKED | else | compute with the current epoch + 1 |
| UNKNOWN (written by a later version) | the member owns partitions, or does not say | FENCED_MEMBER_EPOCH |
| UNKNOWN | else | compute with the target epoch |

| compute, first row that applies | next state | epoch | assigned | revoking |
|---|---|---|---|---|
| one of `revoke` is still owned (or owned partitions unknown) | UNREVOKED | as given | assigned' | revoke |
| another member holds a target partition | UNRELEASED | target | assigned' + add | none |
| otherwise | STABLE | target | assigned' + add | none |
"""  # noqa: E501  rows of a table

from collections.abc import Callable, Container
from dataclasses import replace

from broker.groups.consumer.assignment import NO_PARTITIONS, Assignment, overlap, union
from broker.groups.consumer.member import MemberAssignment, ReconciliationState
from protocol.errors import ErrorCode, KafkaError
from protocol.primitives import Uuid

IsHeldByOther = Callable[[Uuid, int], bool]
"""Whether another member owns the partition, or has not given it up yet."""


def next_assignment(
    current: MemberAssignment,
    target_epoch: int,
    target: Assignment,
    owned: Assignment | None,
    is_held_by_other: IsHeldByOther,
    new_subscription: Container[Uuid] | None = None,
) -> MemberAssignment:
    """Return the member's next assignment; the current one if there is no step.

    `owned` are the partitions that the client names as its own, None when it did not; `new_subscription` the topics of
    a member whose subscription the request changes. Raise KafkaError FENCED_MEMBER_EPOCH for a member in an unknown
    state.
    """
    match current.state:
        case ReconciliationState.STABLE if current.epoch == target_epoch:
            return current
        case ReconciliationState.UNREVOKED_PARTITIONS:
            if owned is None or overlap(owned, current.revoking):
                return current if new_subscription is None else _without_topics(current, new_subscription)
            epoch = current.epoch + 1
        case ReconciliationState.UNKNOWN:
            if owned is None or owned:
                raise KafkaError(
                    ErrorCode.FENCED_MEMBER_EPOCH,
                    "The consumer group member is in a unknown state. The member must abandon all its partitions"
                    " and rejoin.",
                )
            epoch = target_epoch
        case _:
            epoch = current.epoch
    return _compute(current, epoch, target_epoch, target, owned, is_held_by_other)


def _compute(
    current: MemberAssignment,
    epoch: int,
    target_epoch: int,
    target: Assignment,
    owned: Assignment | None,
    is_held_by_other: IsHeldByOther,
) -> MemberAssignment:
    kept: dict[Uuid, frozenset[int]] = {}
    revoke: dict[Uuid, frozenset[int]] = {}
    for topic_id, partitions in current.assigned.items():
        wanted = target.get(topic_id, frozenset())
        if partitions & wanted:
            kept[topic_id] = partitions & wanted
        if partitions - wanted:
            revoke[topic_id] = partitions - wanted
    if revoke and (owned is None or overlap(owned, revoke)):
        return MemberAssignment(epoch, current.epoch, ReconciliationState.UNREVOKED_PARTITIONS, kept, revoke)
    has_unreleased = False
    for topic_id, wanted in target.items():
        missing = wanted - kept.get(topic_id, frozenset())
        free = frozenset(partition for partition in missing if not is_held_by_other(topic_id, partition))
        has_unreleased |= len(free) < len(missing)
        if free:
            kept[topic_id] = kept.get(topic_id, frozenset()) | free
    state = ReconciliationState.UNRELEASED_PARTITIONS if has_unreleased else ReconciliationState.STABLE
    return MemberAssignment(target_epoch, current.epoch, state, kept, NO_PARTITIONS)


def _without_topics(current: MemberAssignment, subscribed: Container[Uuid]) -> MemberAssignment:
    """Return the assignment with all partitions of other topics to be revoked."""
    foreign = {topic_id: each for topic_id, each in current.assigned.items() if topic_id not in subscribed}
    if not foreign:
        return current
    kept = {topic_id: each for topic_id, each in current.assigned.items() if topic_id in subscribed}
    return replace(current, assigned=kept, revoking=union(current.revoking, foreign))
