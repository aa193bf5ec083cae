"""Steps of one member; `t` and `u` are topics, a string such as "t0 t1" an assignment."""

import pytest

from broker.groups.consumer.assignment import Assignment, assignment_from
from broker.groups.consumer.member import MemberAssignment, ReconciliationState
from broker.groups.consumer.reconciliation import next_assignment
from protocol.errors import ErrorCode, KafkaError
from protocol.primitives import Uuid

STABLE = ReconciliationState.STABLE
UNREVOKED = ReconciliationState.UNREVOKED_PARTITIONS
UNRELEASED = ReconciliationState.UNRELEASED_PARTITIONS
UNKNOWN = ReconciliationState.UNKNOWN


def topic(name: str) -> Uuid:
    return Uuid(name.encode().rjust(16, b"-"))


def parts(text: str) -> Assignment:
    return assignment_from((topic(each[0]), int(each[1:])) for each in text.split())


def member(state: ReconciliationState, epoch: int, assigned: str, revoking: str = "") -> MemberAssignment:
    return MemberAssignment(epoch, epoch - 1, state, parts(assigned), parts(revoking))


@pytest.mark.parametrize(
    ("current", "target_epoch", "target", "owned", "held", "expected"),
    [
        # At the target.
        (member(STABLE, 3, "t0"), 3, "t0", "t0", "", (STABLE, 3, "t0", "")),
        # A new target.
        (member(STABLE, 3, "t0"), 4, "t0", None, "", (STABLE, 4, "t0", "")),
        (member(STABLE, 3, "t0"), 4, "t0 t1", None, "", (STABLE, 4, "t0 t1", "")),
        (member(STABLE, 3, "t0"), 5, "t0 t1 t2", None, "t2", (UNRELEASED, 5, "t0 t1", "")),
        (member(STABLE, 3, "t0"), 4, "t0 t1", None, "t1", (UNRELEASED, 4, "t0", "")),
        (member(STABLE, 3, "t0 t1"), 4, "t0 u0", None, "", (UNREVOKED, 3, "t0", "t1")),
        (member(STABLE, 3, "t0 t1"), 4, "t0 u0", "t0 t1", "", (UNREVOKED, 3, "t0", "t1")),
        (member(STABLE, 3, "t0 t1"), 4, "t0 u0", "t0", "", (STABLE, 4, "t0 u0", "")),
        # Partitions to give up.
        (member(UNREVOKED, 3, "t0", "t1"), 4, "t0 u0", None, "", (UNREVOKED, 3, "t0", "t1")),
        (member(UNREVOKED, 3, "t0", "t1"), 4, "t0 u0", "t0 t1", "", (UNREVOKED, 3, "t0", "t1")),
        (member(UNREVOKED, 3, "t0", "t1"), 4, "t0 u0", "t0", "", (STABLE, 4, "t0 u0", "")),
        (member(UNREVOKED, 3, "t0", "t1"), 4, "t0 u0", "", "u0", (UNRELEASED, 4, "t0", "")),
        # The next target takes more: one epoch further, then on to revoke again.
        (member(UNREVOKED, 3, "t0", "t1"), 6, "u0", "t0", "", (UNREVOKED, 4, "", "t0")),
        # Waiting for other members.
        (member(UNRELEASED, 4, "t0"), 4, "t0 t1", None, "t1", (UNRELEASED, 4, "t0", "")),
        (member(UNRELEASED, 4, "t0"), 4, "t0 t1", None, "", (STABLE, 4, "t0 t1", "")),
        (member(UNRELEASED, 4, "t0"), 5, "t1", None, "t1", (UNREVOKED, 4, "", "t0")),
        # A state of a later version.
        (member(UNKNOWN, 4, "t0"), 5, "t0 t1", "", "", (STABLE, 5, "t0 t1", "")),
    ],
)
def test_step(
    current: MemberAssignment,
    target_epoch: int,
    target: str,
    owned: str | None,
    held: str,
    expected: tuple[ReconciliationState, int, str, str],
) -> None:
    held_parts = parts(held)
    following = next_assignment(
        current,
        target_epoch,
        parts(target),
        None if owned is None else parts(owned),
        lambda topic_id, partition: partition in held_parts.get(topic_id, ()),
    )
    state, epoch, assigned, revoking = expected
    assert (following.state, following.epoch) == (state, epoch)
    assert following.assigned == parts(assigned)
    assert following.revoking == parts(revoking)


def test_unsubscribed_topics_are_revoked_while_other_partitions_still_are() -> None:
    current = member(UNREVOKED, 3, "t0 u0", "t1")
    following = next_assignment(current, 4, parts("t0"), parts("t0 t1 u0"), lambda *_: False, {topic("t")})
    assert following == member(UNREVOKED, 3, "t0", "t1 u0")


@pytest.mark.parametrize("owned", [None, "t0"])
def test_member_in_an_unknown_state_must_drop_its_partitions(owned: str | None) -> None:
    with pytest.raises(KafkaError) as error:
        next_assignment(
            member(UNKNOWN, 3, "t0"), 4, parts("t0"), None if owned is None else parts(owned), lambda *_: False
        )
    assert error.value.code is ErrorCode.FENCED_MEMBER_EPOCH
