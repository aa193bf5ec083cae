"""Members of share groups: joining, assignment, sessions, fencing, and failover."""

from collections.abc import Callable, Mapping, Sequence

import pytest

from broker.config.errors import ConfigError
from broker.groups.consumer.assignment import Assignment
from broker.groups.consumer.assignors.assignor import AssignorFailed
from broker.groups.share.assignor import SimpleAssignor
from broker.node.share_groups import load_share_assignor
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.share_group_heartbeat import ShareGroupHeartbeatRequest
from protocol.primitives import Uuid
from tests.broker.groups.share.share_group_harness import CALLER, RETRY_MS, SESSION_MS, ShareGroupHarness, assigned


@pytest.fixture
def harness() -> ShareGroupHarness:
    return ShareGroupHarness(t=2, u=1)


def refusal(command: Callable[[], object]) -> ErrorCode:
    with pytest.raises(KafkaError) as caught:
        command()
    return caught.value.code


def test_member_gets_partitions_once_they_are_initialized(harness: ShareGroupHarness) -> None:
    joined = harness.beat("a", 0, "t")
    assert (joined.member_epoch, assigned(joined), joined.heartbeat_interval_ms) == (1, {}, 5_000)
    assert harness.pending is not None
    assert (harness.pending.state_epoch, len(harness.pending.topics)) == (1, 1)
    waiting = harness.beat("a", 1)
    assert (waiting.member_epoch, assigned(waiting)) == (1, None)
    harness.initialize()
    reached = harness.beat("a", 1)
    assert (reached.member_epoch, assigned(reached)) == (2, {"t": [0, 1]})
    assert assigned(harness.beat("a", 2)) is None
    assert assigned(harness.beat("a", 2, "t")) == {"t": [0, 1]}


class FirstMemberTakesAll:
    """An assignor of a user; the first member by its id gets all partitions."""

    name = "first"

    def assign(
        self,
        subscriptions: Mapping[str, frozenset[Uuid]],
        partitions: Mapping[Uuid, Sequence[int]],
        former: Mapping[str, Assignment],
    ) -> Mapping[str, Assignment]:
        if len(subscriptions) > 2:
            raise AssignorFailed("two members at most")
        return {min(subscriptions): {topic_id: frozenset(indexes) for topic_id, indexes in partitions.items()}}


def test_assignor_of_the_settings_decides(harness: ShareGroupHarness) -> None:
    harness.assignor = FirstMemberTakesAll()
    harness.reload()
    harness.join("b", "t")
    assert assigned(harness.beat("b", 1)) == {"t": [0, 1]}
    harness.join("a", "t")
    assert assigned(harness.beat("b", 2)) == {}
    assert harness.groups.describe("g").response.assignor_name == "first"
    end = len(harness.log)
    assert refusal(lambda: harness.join("c", "t")) is ErrorCode.UNKNOWN_SERVER_ERROR
    assert len(harness.log) == end


def test_assignor_is_loaded_by_name_or_path() -> None:
    for name in ("simple", "org.apache.kafka.coordinator.group.assignor.SimpleAssignor"):
        assert isinstance(load_share_assignor([name]), SimpleAssignor)
    assert load_share_assignor([f"{__name__}:FirstMemberTakesAll"]).name == "first"
    for names in (["simple", "simple"], ["best"], ["missing.module:Assignor"]):
        with pytest.raises(ConfigError, match=r"group\.share\.assignors"):
            load_share_assignor(names)


def test_settled_group_writes_nothing(harness: ShareGroupHarness) -> None:
    harness.join("a", "t")
    harness.beat("a", 1)
    end = len(harness.log)
    harness.beat("a", 2)
    harness.beat("a", 2)
    assert (len(harness.log), harness.pending) == (end, None)


def test_members_share_the_partitions(harness: ShareGroupHarness) -> None:
    harness.join("a", "t")
    harness.beat("a", 1)
    second = harness.join("b", "t")
    first = harness.beat("a", 2)
    assert (assigned(first), assigned(second)) == ({"t": [0]}, {"t": [1]})
    assert first.member_epoch == second.member_epoch == 3


def test_new_topics_of_a_member_are_initialized(harness: ShareGroupHarness) -> None:
    harness.join("a", "t")
    harness.beat("a", 1)
    assert assigned(harness.beat("a", 2, "t", "u")) == {"t": [0, 1]}
    harness.initialize()
    assert assigned(harness.beat("a", 3)) == {"t": [0, 1], "u": [0]}


def test_new_partitions_are_initialized(harness: ShareGroupHarness) -> None:
    harness.join("a", "t")
    harness.beat("a", 1)
    harness.topics.put("t", 3)
    harness.groups.on_topics_changed(["t"])
    harness.beat("a", 2)
    harness.initialize()
    assert assigned(harness.beat("a", 3)) == {"t": [0, 1, 2]}


def test_initialization_without_answer_is_repeated(harness: ShareGroupHarness) -> None:
    harness.beat("a", 0, "t")
    harness.pending = None
    harness.beat("a", 1)
    assert harness.pending is None
    harness.advance(RETRY_MS)
    harness.beat("a", 1)
    assert harness.pending is not None


def test_failed_initialization_is_repeated_at_once(harness: ShareGroupHarness) -> None:
    harness.beat("a", 0, "t")
    assert harness.pending is not None
    harness.carry_out(harness.groups.on_initialization_failed("g", harness.pending.topics))
    harness.pending = None
    harness.beat("a", 1)
    assert harness.pending is not None


def test_leaving_member_gives_its_partitions_to_the_others(harness: ShareGroupHarness) -> None:
    harness.join("a", "t")
    harness.join("b", "t")
    left = harness.beat("b", -1)
    assert (left.member_id, left.member_epoch) == ("b", -1)
    epoch = harness.group.current("a").epoch
    assert assigned(harness.beat("a", epoch)) == {"t": [0, 1]}
    assert refusal(lambda: harness.beat("b", -1)) is ErrorCode.UNKNOWN_MEMBER_ID


def test_silent_member_is_removed(harness: ShareGroupHarness) -> None:
    harness.join("a", "t")
    harness.advance(SESSION_MS - 1)
    harness.beat("a", 1)
    harness.advance(SESSION_MS - 1)
    assert harness.group.members
    harness.advance(1)
    assert harness.group.is_empty


def test_epochs_are_fenced(harness: ShareGroupHarness) -> None:
    harness.join("a", "t")
    harness.beat("a", 1)
    assert harness.beat("a", 1).member_epoch == 2
    assert refusal(lambda: harness.beat("a", 3)) is ErrorCode.FENCED_MEMBER_EPOCH
    harness.beat("a", 2, "u")
    assert refusal(lambda: harness.beat("a", 1)) is ErrorCode.FENCED_MEMBER_EPOCH


def test_unknown_groups_and_members_are_refused(harness: ShareGroupHarness) -> None:
    assert refusal(lambda: harness.beat("a", 1)) is ErrorCode.GROUP_ID_NOT_FOUND
    assert refusal(lambda: harness.beat("a", -1)) is ErrorCode.GROUP_ID_NOT_FOUND
    harness.join("a", "t")
    assert refusal(lambda: harness.beat("b", 1)) is ErrorCode.UNKNOWN_MEMBER_ID
    harness.others.add("other")
    assert refusal(lambda: harness.beat("a", 0, "t", group_id="other")) is ErrorCode.GROUP_ID_NOT_FOUND


def test_full_group_refuses_new_members(harness: ShareGroupHarness) -> None:
    for index in range(harness.max_size):
        harness.join(f"m{index}", "t")
    assert refusal(lambda: harness.beat("late", 0, "t")) is ErrorCode.GROUP_MAX_SIZE_REACHED
    harness.beat("m0", 0, "t")


@pytest.mark.parametrize(
    ("member_id", "epoch", "names", "group_id", "rack_id"),
    [
        ("", 0, ("t",), "g", None),
        ("m" * 37, 0, ("t",), "g", None),
        ("a", 0, (), "g", None),
        ("a", -2, ("t",), "g", None),
        ("a", 0, ("t",), " ", None),
        ("a", 0, ("t",), "g", " "),
    ],
)
def test_malformed_requests_are_refused(
    harness: ShareGroupHarness,
    member_id: str,
    epoch: int,
    names: tuple[str, ...],
    group_id: str,
    rack_id: str | None,
) -> None:
    code = refusal(lambda: harness.beat(member_id, epoch, *names, group_id=group_id, rack_id=rack_id))
    assert code is ErrorCode.INVALID_REQUEST


def test_group_survives_failover(harness: ShareGroupHarness) -> None:
    harness.join("a", "t", "u")
    harness.beat("a", 1)
    before = harness.groups.describe("g").response
    harness.reload()
    assert harness.groups.describe("g").response == before
    assert harness.group.partitions.initialized.keys() == {
        each.topic_id for each in before.members[0].assignment.topic_partitions
    }
    end = len(harness.log)
    assert harness.beat("a", 2).member_epoch == 2
    assert len(harness.log) == end
    harness.advance(SESSION_MS)
    assert harness.group.is_empty


def test_session_goes_on_when_the_departure_is_not_written() -> None:
    harness = ShareGroupHarness(t=1)
    harness.join("a", "t")
    harness.groups.heartbeat(ShareGroupHeartbeatRequest("g", "a", -1), CALLER)
    harness.advance(SESSION_MS + 1)
    assert harness.group.is_empty
