"""Limits of online migration; `tests/scenarios/consumer_groups/migration*.txt` show how it goes."""

import pytest

from broker.groups.caller import Caller
from broker.groups.consumer.assignment import assignment_from
from broker.groups.consumer.embedded_protocol import assignment_bytes, embedded_assignment, embedded_subscription
from broker.groups.consumer.environment import ConsumerGroupEnvironment, MigrationPolicy
from broker.groups.member import SupportedProtocol
from broker.groups.state import GroupState
from protocol.compiler import encode_bytes
from protocol.errors import DecodeError, ErrorCode, KafkaError
from protocol.messages.common_records import ConsumerProtocolSubscription, ConsumerProtocolSubscriptionTopicPartition
from protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from tests.support.harnesses.consumer_group_harness import ConsumerGroupHarness, partition_names, topic_id_of
from tests.support.harnesses.group_harness import subscription


def harness_with(policy: str = "bidirectional", **limits: int) -> ConsumerGroupHarness:
    return ConsumerGroupHarness(
        environment=ConsumerGroupEnvironment(migration_policy=MigrationPolicy(policy), **limits)  # type: ignore[arg-type]
    )


def leave_without_commit(harness: ConsumerGroupHarness, name: str) -> None:
    """Let a member of the consumer protocol leave; the records of its departure stay uncommitted."""
    harness.log.holds_commits = True
    request = ConsumerGroupHeartbeatRequest("g", name, -1)
    harness.start_later(lambda shard: shard.consumer_groups.heartbeat(request, Caller(name, "/h", 1)))


def group_types(harness: ConsumerGroupHarness) -> list[str]:
    return [group.group_type for group in harness.list_groups()]


@pytest.mark.parametrize(
    ("policy", "limits", "protocols"),
    [
        ("disabled", {}, {"range": subscription("t")}),
        ("downgrade", {}, {"range": subscription("t")}),
        ("bidirectional", {"max_size": 1}, {"range": subscription("t")}),
        ("bidirectional", {}, {"range": b"\x00\x01not a subscription"}),
    ],
)
def test_classic_group_that_cannot_be_upgraded_stays(
    policy: str, limits: dict[str, int], protocols: dict[str, bytes]
) -> None:
    harness = harness_with(policy, **limits)
    harness.stable_group("c", "d", protocols=protocols)
    with pytest.raises(KafkaError) as error:
        harness.beat("a")
    assert error.value.code is ErrorCode.GROUP_ID_NOT_FOUND
    assert group_types(harness) == ["classic"]
    assert harness.heartbeat("c") is ErrorCode.NONE


def test_group_of_another_protocol_type_is_not_upgraded() -> None:
    harness = harness_with()
    harness.join("c", protocol_type="connect")
    with pytest.raises(KafkaError) as error:
        harness.beat("a")
    assert error.value.code is ErrorCode.GROUP_ID_NOT_FOUND


@pytest.mark.parametrize(
    ("policy", "limits"), [("disabled", {}), ("upgrade", {}), ("bidirectional", {"classic_max_size": 0})]
)
def test_consumer_group_that_cannot_be_downgraded_stays(policy: str, limits: dict[str, int]) -> None:
    harness = harness_with(policy, **limits)
    harness.beat("a")
    harness.join("c")
    harness.leave_group_of("a")
    assert group_types(harness) == ["consumer"]
    assert harness.heartbeat("c") is ErrorCode.REBALANCE_IN_PROGRESS


def test_group_whose_last_member_leaves_is_not_downgraded() -> None:
    harness = harness_with()
    harness.beat("a")
    harness.leave_group_of("a")
    assert group_types(harness) == ["consumer"]


def test_upgrade_whose_write_fails_leaves_the_classic_group() -> None:
    harness = harness_with()
    harness.stable_group("c", protocols={"range": subscription("t")})
    harness.log.fail_next = ErrorCode.NOT_ENOUGH_REPLICAS
    with pytest.raises(KafkaError):
        harness.beat("a")
    assert group_types(harness) == ["classic"]
    assert harness.heartbeat("c") is ErrorCode.NONE


def test_write_that_ends_after_the_upgrade_is_not_counted() -> None:
    harness = harness_with()
    harness.client("c", protocols={"range": subscription("t")})
    harness.join("c")
    harness.advance(10)
    harness.log.holds_commits = True
    harness.sync("c", {"c": b""})
    request = ConsumerGroupHeartbeatRequest("g", "a", 0, None, None, 60_000, ["t"], topic_partitions=[])
    harness.start_later(lambda shard: shard.consumer_groups.heartbeat(request, Caller("a", "/h", 1)))
    harness.log.holds_commits = False
    harness.log.commit()
    harness.loop.run_soon()
    assert set(harness.shard.metrics.groups.values()) == {0}
    assert group_types(harness) == ["consumer"]


def test_upgraded_group_survives_a_failover() -> None:
    harness = harness_with()
    harness.client("c", protocols={"range": subscription("t")})
    harness.join("c", session_ms=20_000)
    harness.advance(10)
    harness.beat("a")
    harness.restart()
    assert harness.consumer_group.counts.classic == 1
    harness.advance(19)
    assert len(harness.consumer_group.members) == 2
    harness.advance(2)
    assert list(harness.consumer_group.members) == ["a"]


@pytest.mark.parametrize(
    ("protocol_type", "protocols"),
    [
        ("connect", {"range": subscription("t")}),
        ("consumer", {"sticky": subscription("t")}),
        ("consumer", {"range": b"\x00"}),
    ],
)
def test_classic_member_needs_a_common_protocol(protocol_type: str, protocols: dict[str, bytes]) -> None:
    harness = harness_with()
    harness.beat("a")
    harness.join("c", protocols={"range": subscription("t")})
    with pytest.raises(KafkaError) as error:
        harness.join("d", protocol_type=protocol_type, protocols=protocols)
    assert error.value.code is ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def test_full_group_refuses_a_classic_member() -> None:
    harness = harness_with(max_size=1)
    harness.beat("a")
    with pytest.raises(KafkaError) as error:
        harness.join("c")
    assert error.value.code is ErrorCode.GROUP_MAX_SIZE_REACHED


def test_failed_write_refuses_the_join() -> None:
    harness = harness_with()
    harness.beat("a")
    harness.join("c", follow_up=False)
    harness.log.fail_next = ErrorCode.NOT_ENOUGH_REPLICAS
    assert harness.join("c").error is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert harness.join("c").error is ErrorCode.NONE


def test_join_phase_before_an_upgrade_does_not_end_the_generation_after_a_downgrade() -> None:
    harness = harness_with()
    for name in "cd":
        harness.client(name, protocols={"range": subscription("t")})
        harness.join(name, session_ms=100_000, rebalance_ms=60_000)
        harness.advance(10)
    assert harness.state() is GroupState.PREPARING_REBALANCE
    harness.beat("a")
    harness.advance(24)
    harness.beat("a")
    harness.advance(24)
    leave_without_commit(harness, "a")
    harness.advance(3)
    assert (harness.state(), len(harness.group.members)) == (GroupState.STABLE, 2)


def test_session_before_an_upgrade_does_not_end_the_member_during_a_downgrade() -> None:
    harness = harness_with()
    harness.client("c", protocols={"range": subscription("t")})
    harness.join("c", session_ms=20_000)
    harness.advance(15)
    harness.beat("a")
    harness.advance(7)
    leave_without_commit(harness, "a")
    harness.advance(2)
    assert len(harness.group.members) == 1


def test_rebalance_after_a_downgrade_survives_a_failover() -> None:
    harness = harness_with()
    harness.beat("a")
    harness.client("c", protocols={"range": subscription("t")})
    harness.join("c", session_ms=100_000)
    leave_without_commit(harness, "a")
    assert harness.group.awaits_rebalance
    for _ in range(2):
        harness.log.holds_commits = False
        harness.restart()
        assert harness.heartbeat("c") is ErrorCode.REBALANCE_IN_PROGRESS


@pytest.mark.parametrize("is_settled", [True, False])
def test_static_successor_of_the_last_consumer_rebalances_an_unsettled_group(is_settled: bool) -> None:
    harness = harness_with()
    harness.beat("a", instance_id="i")
    if not is_settled:
        harness.join("d", protocols={"range": subscription("t")}, session_ms=100_000)
        assert harness.consumer_group.target("d-1") != harness.consumer_group.current("d-1").assigned
    harness.join("s", instance_id="i", protocols={"range": subscription("t")}, follow_up=False)
    assert group_types(harness) == ["classic"]
    assert harness.state() is (GroupState.STABLE if is_settled else GroupState.PREPARING_REBALANCE)
    owned = {
        member_id: partition_names(embedded_assignment(member.assignment, harness.topics))
        for member_id, member in harness.group.members.items()
    }
    successor = harness.client("s").member_id
    assert owned == {successor: {"t0", "t1", "t2", "t3"}} | ({} if is_settled else {"d-1": set()})


def test_join_that_is_committed_late_has_a_session() -> None:
    harness = harness_with()
    harness.beat("a")
    harness.join("c", follow_up=False)
    harness.log.holds_commits = True
    refused = harness.join("c")
    harness.advance(harness.config.offsets_commit_timeout_ms / 1000)
    assert refused.error is ErrorCode.COORDINATOR_NOT_AVAILABLE
    harness.log.holds_commits = False
    harness.log.commit()
    assert harness.consumer_group.counts.classic == 1
    harness.advance(10.1)
    assert harness.consumer_group.counts.classic == 0


@pytest.mark.parametrize("version", range(5))
def test_embedded_subscriptions_of_all_versions_are_read(version: int) -> None:
    topics = harness_with().topics
    known = min(version, 3)
    message = ConsumerProtocolSubscription(topics=["t"], rack_id="r" if known == 3 else None)
    if known:
        message.owned_partitions = [ConsumerProtocolSubscriptionTopicPartition("t", [0, 2])]
    metadata = version.to_bytes(2, "big") + encode_bytes(message, known)
    found = embedded_subscription([SupportedProtocol("range", metadata)], topics)
    assert found.topics == {"t"}
    assert found.owned == ({topic_id_of("t"): {0, 2}} if known else {})
    assert found.rack_id == ("r" if known == 3 else None)
    assigned = assignment_from([(topic_id_of("t"), 1), (topic_id_of("gone"), 0)])
    encoded = assignment_bytes(assigned, SupportedProtocol("range", metadata), topics)
    assert int.from_bytes(encoded[:2], "big") == known
    assert embedded_assignment(encoded, topics) == {topic_id_of("t"): {1}}


@pytest.mark.parametrize("data", [b"\x00", b"\xff\xff", b"\x00\x01", b"\x00\x01\x00\x00\x00\x05"])
def test_malformed_embedded_protocol_is_refused(data: bytes) -> None:
    topics = harness_with().topics
    with pytest.raises(DecodeError):
        embedded_subscription([SupportedProtocol("range", data)], topics)
    with pytest.raises(DecodeError):
        embedded_assignment(data, topics)
