"""ISR expansion and shrinking: a leader, its followers' fetches, and a controller that the test controls."""

from dataclasses import dataclass

import pytest

from broker.replication.isr import CommittedIsr, IsrState, PendingExpand, PendingShrink
from broker.replication.isr_changes import Confirmed
from broker.replication.leader import FollowerFetch
from broker.runtime.controller.controller_router import ControllerUnavailable
from broker.runtime.partitions.alter_partition_manager import RETRY_MS
from broker.runtime.partitions.isr_shrinking import PARTITIONS_PER_TURN, IsrShrinking
from broker.runtime.partitions.partition import ACKS_ALL, Partition
from broker.runtime.partitions.partition_reads import FetchLimits, FetchParams, read
from broker.runtime.partitions.reads import FetchIsolation, FetchTarget
from protocol.errors import ErrorCode, KafkaError
from protocol.ids import BrokerEpoch, BrokerId, LeaderEpoch
from protocol.messages.alter_partition import AlterPartitionResponse
from protocol.messages.metadata_records import (
    BrokerRegistrationChangeRecord,
    FenceBrokerRecord,
    UnfenceBrokerRecord,
)
from storage.config import LogConfig
from tests.support.harnesses.data_plane import DataPlane

LAG_MS = 30_000


@pytest.fixture
def node() -> DataPlane:
    plane = DataPlane()
    for broker in (2, 3):
        plane.register_broker(broker, epoch=10 * broker)
    return plane


def fetch(partition: Partition, broker: int, offset: int, *, epoch: int | None = None) -> ErrorCode:
    broker_epoch = 10 * broker if epoch is None else epoch
    return partition.on_follower_fetch(
        FollowerFetch(BrokerId(broker), BrokerEpoch(broker_epoch), LeaderEpoch(-1), offset, 0)
    )


def isr_of(partition: Partition) -> IsrState:
    return partition.leader_role.isr


def request_count(node: DataPlane) -> int:
    node.loop.run_soon()
    return len(node.controller.under_way)


class TestExpand:
    def test_caught_up_follower_is_proposed_and_joins(self, node: DataPlane) -> None:
        identity = node.create_topic(replicas=(1, 2, 3), isr=(1, 2))
        partition = node.partition()
        node.produce(b"a")
        fetch(partition, 2, 1)
        fetch(partition, 3, 1)
        assert request_count(node) == 1
        request, _ = node.controller.under_way[0]
        assert (request.broker_id, request.broker_epoch) == (1, 1)
        (topic,) = request.topics
        (one,) = topic.partitions
        assert topic.topic_id == identity
        assert (one.partition_index, one.leader_epoch, one.partition_epoch, one.leader_recovery_state) == (0, 0, 0, 0)
        assert [(m.broker_id, m.broker_epoch) for m in one.new_isr_with_epochs] == [(1, 1), (2, 20), (3, 30)]
        assert isr_of(partition) == PendingExpand(frozenset({1, 2}), 3)
        node.controller.answer()
        assert isr_of(partition) == CommittedIsr(frozenset({1, 2, 3}))
        assert partition.leader_role.partition_epoch == 1
        assert node.partitions.roles.figures.isr_expands == 1

    def test_follower_behind_is_not_proposed(self, node: DataPlane) -> None:
        node.create_topic(replicas=(1, 2, 3), isr=(1, 2))
        node.produce(b"a")
        fetch(node.partition(), 2, 1)
        fetch(node.partition(), 3, 0)
        assert not request_count(node)

    def test_follower_below_the_epoch_start_is_not_proposed(self, node: DataPlane) -> None:
        """KIP-320: the follower may still have to truncate records that this leader epoch lacks."""
        identity = node.create_topic(replicas=(1, 2, 3), isr=(1, 2))
        node.produce(b"a")
        node.elect(identity, 1)
        partition = node.partition()
        assert partition.leader_role.epoch_start_offset == 1
        fetch(partition, 3, 0)
        assert not request_count(node)
        fetch(partition, 3, 1)
        assert request_count(node)

    @pytest.mark.parametrize("how", ["fenced", "leaving", "unregistered"])
    def test_ineligible_broker_is_not_proposed(self, node: DataPlane, how: str) -> None:
        """KIP-320's zombie: the broker fetches, but the controller has fenced it."""
        node.create_topic(replicas=(1, 2, 3, 4), isr=(1, 2))
        if how == "fenced":
            node.apply(FenceBrokerRecord(id=3, epoch=30))
        elif how == "leaving":
            node.apply(BrokerRegistrationChangeRecord(broker_id=3, broker_epoch=30, in_controlled_shutdown=1))
        fetch(node.partition(), 4 if how == "unregistered" else 3, 0)
        assert not request_count(node)

    def test_broker_with_another_epoch_is_not_proposed(self, node: DataPlane) -> None:
        node.create_topic(replicas=(1, 2, 3), isr=(1, 2))
        assert fetch(node.partition(), 3, 0, epoch=29) is ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert fetch(node.partition(), 3, 0, epoch=31) is ErrorCode.NONE
        assert not request_count(node)

    def test_first_look_alone_lets_the_partition_of_a_fenced_follower_rest(self, node: DataPlane) -> None:
        """The rights of a fetch are those of its first look (`FetchOptions`)."""
        node.create_topic(replicas=(1, 2, 3), isr=(1, 2))
        node.apply(FenceBrokerRecord(id=3, epoch=30))
        partition = node.partition()
        target = FetchTarget("t", partition.topic_id, 0, 0, 1000)
        follower = FetchParams(
            FetchIsolation.LOG_END, needs_leader=True, broker_id=BrokerId(3), broker_epoch=BrokerEpoch(30)
        )
        assert read(partition, target, follower, FetchLimits(1000, True), is_first_look=True).is_idle
        assert not read(partition, target, follower, FetchLimits(1000, True), is_first_look=False).is_idle
        node.apply(UnfenceBrokerRecord(id=3, epoch=30))
        read(partition, target, follower, FetchLimits(1000, True), is_first_look=True)
        assert node.controller.answer() == [[1, 2, 3]]
        assert read(partition, target, follower, FetchLimits(1000, True), is_first_look=True).is_idle

    def test_proposed_member_counts_for_commits_and_not_for_admission(self, node: DataPlane) -> None:
        node.create_topic(replicas=(1, 2, 3), isr=(1, 2), config=LogConfig(min_insync_replicas=3))
        partition = node.partition()
        fetch(partition, 2, 0)
        fetch(partition, 3, 0)
        assert request_count(node)
        with pytest.raises(KafkaError):
            node.partition().append(bytearray(b""), ACKS_ALL)
        node.controller.answer()
        node.produce(b"a")
        fetch(partition, 2, 1)
        assert partition.log.high_watermark == 0
        fetch(partition, 3, 1)
        assert partition.log.high_watermark == 1


class TestShrink:
    def lagging(self, node: DataPlane) -> Partition:
        """Replica 3 has not fetched for longer than the lag time."""
        node.create_topic(replicas=(1, 2, 3))
        partition = node.partition()
        node.produce(b"a")
        node.clock.advance_ms(LAG_MS + 1)
        fetch(partition, 2, 1)
        return partition

    def test_lagging_member_is_removed_and_commits_resume(self, node: DataPlane) -> None:
        partition = self.lagging(node)
        acknowledged: list[ErrorCode] = []
        partition.when_acknowledged(1, ACKS_ALL, acknowledged.append)
        partition.isr_updater.shrink()
        assert isr_of(partition) == PendingShrink(frozenset({1, 2, 3}), frozenset({3}))
        assert partition.log.high_watermark == 0
        assert node.controller.answer() == [[1, 2]]
        assert (partition.log.high_watermark, acknowledged) == (1, [ErrorCode.NONE])
        assert node.partitions.roles.figures.isr_shrinks == 1

    def test_setting_the_wall_clock_removes_no_member(self, node: DataPlane) -> None:
        node.create_topic(replicas=(1, 2, 3))
        node.produce(b"a")
        node.clock.advance_ms(LAG_MS)
        node.clock.set_wall_ms(node.clock.now_ms() + 10 * LAG_MS)
        node.partition().isr_updater.shrink()
        assert not request_count(node)

    def test_silent_member_without_lag_stays(self, node: DataPlane) -> None:
        node.create_topic(replicas=(1, 2))
        fetch(node.partition(), 2, 0)
        node.clock.advance_ms(10 * LAG_MS)
        node.partition().isr_updater.shrink()
        assert not request_count(node)

    def test_no_second_proposal_while_one_is_under_way(self, node: DataPlane) -> None:
        partition = self.lagging(node)
        partition.isr_updater.shrink()
        partition.isr_updater.shrink()
        fetch(partition, 3, 1)
        assert request_count(node) == 1
        node.controller.answer()
        fetch(partition, 3, 1)
        assert node.controller.answer() == [[1, 2, 3]]

    def test_follower_proposes_nothing(self, node: DataPlane) -> None:
        node.create_topic(replicas=(1, 2, 3), leader=2)
        node.clock.advance_ms(LAG_MS + 1)
        node.partition().isr_updater.shrink()
        assert not request_count(node)


class TestAnswers:
    def expanding(self, node: DataPlane) -> Partition:
        node.create_topic(replicas=(1, 2, 3), isr=(1, 2))
        partition = node.partition()
        fetch(partition, 3, 0)
        return partition

    @pytest.mark.parametrize("error", [ErrorCode.OPERATION_NOT_ATTEMPTED, ErrorCode.INELIGIBLE_REPLICA])
    def test_refusal_restores_the_isr(self, node: DataPlane, error: ErrorCode) -> None:
        partition = self.expanding(node)
        node.controller.answer(error)
        assert isr_of(partition) == CommittedIsr(frozenset({1, 2}))
        assert node.partitions.roles.figures.failed_isr_updates == 1
        node.advance_ms(1000)
        assert not request_count(node)

    def test_refusal_unblocks_commits(self, node: DataPlane) -> None:
        partition = self.expanding(node)
        node.produce(b"a")
        node.clock.advance_ms(LAG_MS + 1)
        fetch(partition, 2, 1)
        assert partition.log.high_watermark == 0
        node.controller.answer(ErrorCode.INELIGIBLE_REPLICA)
        assert partition.log.high_watermark == 1

    @pytest.mark.parametrize("error", [ErrorCode.INVALID_UPDATE_VERSION, ErrorCode.FENCED_LEADER_EPOCH])
    def test_superseded_proposal_is_decided_by_metadata(self, node: DataPlane, error: ErrorCode) -> None:
        partition = self.expanding(node)
        node.controller.answer(error)
        assert isr_of(partition) == PendingExpand(frozenset({1, 2}), 3)
        node.advance_ms(1000)
        fetch(partition, 3, 0)
        assert not request_count(node)
        node.change_isr(partition.topic_id, 1)
        assert isr_of(partition) == CommittedIsr(frozenset({1}))

    def test_other_errors_are_retried(self, node: DataPlane) -> None:
        partition = self.expanding(node)
        node.controller.answer(ErrorCode.UNKNOWN_SERVER_ERROR)
        assert not request_count(node)
        node.advance_ms(RETRY_MS)
        assert node.controller.answer() == [[1, 2, 3]]
        assert isr_of(partition) == CommittedIsr(frozenset({1, 2, 3}))

    @pytest.mark.parametrize(
        "error", [KafkaError(ErrorCode.STALE_BROKER_EPOCH), ControllerUnavailable("no controller")]
    )
    def test_failed_request_is_repeated_without_limit(self, node: DataPlane, error: Exception) -> None:
        partition = self.expanding(node)
        for _ in range(5):
            _, answer = node.controller.take()
            answer.set_exception(error)
            node.loop.run_soon()
            assert not request_count(node)
            node.advance_ms(RETRY_MS)
        node.controller.answer()
        assert isr_of(partition) == CommittedIsr(frozenset({1, 2, 3}))

    def test_proposal_missing_from_the_response_is_sent_again(self, node: DataPlane) -> None:
        self.expanding(node)
        _, answer = node.controller.take()
        answer.set_result(AlterPartitionResponse())
        node.advance_ms(RETRY_MS)
        assert node.controller.answer() == [[1, 2, 3]]
        assert node.partitions.roles.figures.failed_isr_updates == 0

    def test_metadata_before_the_answer_voids_the_answer(self, node: DataPlane) -> None:
        partition = self.expanding(node)
        request, answer = node.controller.take()
        node.change_isr(partition.topic_id, 1)
        assert node.alter_partition_manager.pending_count == 0
        node.controller.under_way = [(request, answer)]
        node.controller.answer()
        assert isr_of(partition) == CommittedIsr(frozenset({1}))
        assert node.partitions.roles.figures.isr_expands == 0

    def test_outcome_of_a_void_proposal_is_ignored(self, node: DataPlane) -> None:
        partition = self.expanding(node)
        pending = partition.leader_role.isr
        assert isinstance(pending, PendingExpand)
        proposal = partition.leader_role.proposal(pending, BrokerEpoch(1))
        node.change_isr(partition.topic_id, 1)
        partition.isr_updater.on_isr_outcome(Confirmed(proposal, LeaderEpoch(0), 2, frozenset({1, 2, 3})))
        assert isr_of(partition) == CommittedIsr(frozenset({1}))

    def test_next_proposal_may_follow_a_void_one_under_way(self, node: DataPlane) -> None:
        partition = self.expanding(node)
        void = node.controller.take()
        node.change_isr(partition.topic_id, 1)
        fetch(partition, 2, 0)
        assert isr_of(partition) == PendingExpand(frozenset({1}), 2)
        node.controller.under_way = [void]
        assert node.controller.answer(ErrorCode.INVALID_UPDATE_VERSION) == [[1, 2, 3]]
        assert isr_of(partition) == PendingExpand(frozenset({1}), 2)
        assert node.controller.answer() == [[1, 2]]
        assert isr_of(partition) == CommittedIsr(frozenset({1, 2}))

    def test_metadata_that_repeats_the_answer_keeps_the_next_proposal(self, node: DataPlane) -> None:
        """The high watermark must not pass a replica that the controller has just admitted."""
        node.create_topic(replicas=(1, 2, 3), isr=(1,))
        partition = node.partition()
        fetch(partition, 2, 0)
        node.controller.answer()
        fetch(partition, 3, 0)
        node.change_isr(partition.topic_id, 1, 2)
        assert isr_of(partition) == PendingExpand(frozenset({1, 2}), 3)
        assert node.controller.answer() == [[1, 2, 3]]
        assert isr_of(partition) == CommittedIsr(frozenset({1, 2, 3}))

    def test_answer_after_lost_leadership_is_ignored(self, node: DataPlane) -> None:
        partition = self.expanding(node)
        under_way = node.controller.take()
        node.elect(partition.topic_id, 2)
        node.controller.under_way = [under_way]
        node.controller.answer()
        assert not partition.is_leader
        assert node.alter_partition_manager.pending_count == 0

    def test_deleted_topic_withdraws_its_proposal(self, node: DataPlane) -> None:
        partition = self.expanding(node)
        node.delete_topic(partition.topic_id)
        node.advance_ms(1000)
        assert node.alter_partition_manager.pending_count == 0

    def test_answer_of_another_leader_epoch_is_ignored(self, node: DataPlane) -> None:
        partition = self.expanding(node)
        request, answer = node.controller.take()
        request.topics[0].partitions[0].leader_epoch = 9
        node.controller.under_way = [(request, answer)]
        node.controller.answer()
        assert isr_of(partition) == PendingExpand(frozenset({1, 2}), 3)

    def test_proposals_of_one_iteration_share_a_request(self, node: DataPlane) -> None:
        node.create_topic("a", partitions=2, replicas=(1, 2), isr=(1,))
        node.create_topic("b", replicas=(1, 2), isr=(1,))
        for topic, index in (("a", 0), ("b", 0), ("a", 1)):
            fetch(node.partition(topic, index), 2, 0)
        request, _ = node.controller.take()
        assert [[p.partition_index for p in topic.partitions] for topic in request.topics] == [[0, 1], [0]]

    def test_closed_manager_sends_nothing(self, node: DataPlane) -> None:
        self.expanding(node)
        node.alter_partition_manager.close()
        assert not request_count(node)
        assert node.loop.live_timers == 0


class TestFigures:
    def test_change_in_metadata_before_the_answer_counts_once(self, node: DataPlane) -> None:
        identity = node.create_topic(replicas=(1, 2), isr=(1,))
        fetch(node.partition(), 2, 0)
        request = node.controller.take()
        node.change_isr(identity, 1, 2)
        assert node.partitions.roles.figures.isr_expands == 1
        node.controller.under_way = [request]
        node.controller.answer()
        assert node.partitions.roles.figures.isr_expands == 1

    def test_metrics_follow_every_change(self, node: DataPlane) -> None:
        figures = node.partitions.roles.figures

        def gauges() -> tuple[int, int, int, int, int]:
            return (
                figures.partition_count,
                figures.leader_count,
                figures.under_replicated,
                figures.under_min_isr,
                figures.at_min_isr,
            )

        identity = node.create_topic(replicas=(1, 2, 3), config=LogConfig(min_insync_replicas=2))
        assert gauges() == (1, 1, 0, 0, 0)
        node.change_isr(identity, 1, 2)
        assert gauges() == (1, 1, 1, 0, 1)
        node.change_isr(identity, 1)
        assert gauges() == (1, 1, 1, 1, 0)
        node.partition().configure(LogConfig(min_insync_replicas=1))
        assert gauges() == (1, 1, 1, 0, 1)
        fetch(node.partition(), 2, 0)
        assert gauges() == (1, 1, 1, 0, 1)
        node.controller.answer()
        assert gauges() == (1, 1, 1, 0, 0)
        node.elect(identity, 2)
        assert gauges() == (1, 0, 0, 0, 0)
        node.delete_topic(identity)
        assert gauges() == (0, 0, 0, 0, 0)

    def test_failed_directory_removes_its_partitions_from_the_metrics(self, node: DataPlane) -> None:
        node.create_topic(partitions=3, replicas=(1, 2), isr=(1,))
        node.memory.fail("write", path_part="t-0")
        with pytest.raises(KafkaError):
            node.produce(b"a")
        node.loop.run_soon()
        assert node.partitions.roles.figures.partition_count == 0
        assert node.partitions.roles.figures.under_replicated == 0
        assert not node.partitions.roles.replicated


@dataclass
class Looked:
    """Counts its checks."""

    times: int = 0

    def shrink(self) -> None:
        self.times += 1


class TestShrinkTimer:
    def test_led_replicated_partitions_are_checked_every_half_lag_time(self, node: DataPlane) -> None:
        node.create_topic("mine", replicas=(1, 2))
        node.create_topic("alone")
        node.create_topic("theirs", replicas=(1, 2), leader=2)
        assert [str(partition) for partition in node.partitions.roles.replicated] == ["mine-0"]
        shrinking = IsrShrinking(node.partitions.roles.isr_updaters, node.loop, node.deadlines, lag_time_max_ms=LAG_MS)
        shrinking.start()
        node.produce(b"a", topic="mine")
        node.advance_ms(LAG_MS)
        assert not request_count(node)
        node.advance_ms(LAG_MS // 2)
        assert node.controller.answer() == [[1]]

    def test_check_of_many_partitions_yields(self, node: DataPlane) -> None:
        led = [Looked() for _ in range(2 * PARTITIONS_PER_TURN + 1)]
        shrinking = IsrShrinking(lambda: led, node.loop, node.deadlines, lag_time_max_ms=LAG_MS)
        shrinking.start()
        node.loop.advance(LAG_MS / 2000)
        assert [one.times for one in led] == [1] * len(led)
        shrinking.close()
        node.advance_ms(LAG_MS)
        assert [one.times for one in led] == [1] * len(led)

    def test_closing_ends_a_check(self, node: DataPlane) -> None:
        shrinking: IsrShrinking

        class Closing(Looked):
            def shrink(self) -> None:
                super().shrink()
                shrinking.close()

        led = [Closing() for _ in range(PARTITIONS_PER_TURN + 1)]
        shrinking = IsrShrinking(lambda: led, node.loop, node.deadlines, lag_time_max_ms=LAG_MS)
        shrinking.start()
        node.advance_ms(LAG_MS)
        assert sum(one.times for one in led) <= PARTITIONS_PER_TURN + 1
