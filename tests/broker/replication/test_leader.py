"""The leader's rules of commits, admission and the ISR (`broker.replication.leader`)."""

from dataclasses import dataclass, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.replication.isr import CommittedIsr, IsrState, PendingExpand, PendingShrink, effective_min_isr
from broker.replication.leader import NEVER_MS, CommitTerms, FollowerFetch, FollowerProgress, LeaderRole
from protocol.errors import ErrorCode
from protocol.ids import BrokerEpoch, BrokerId, LeaderEpoch

LAG_MS = 30_000


def leader(
    isr: tuple[int, ...] = (1, 2, 3),
    replicas: tuple[int, ...] = (1, 2, 3),
    start: int = 0,
    pending: IsrState | None = None,
) -> LeaderRole:
    followers = {BrokerId(replica): FollowerProgress() for replica in replicas if replica != 1}
    return LeaderRole(
        BrokerId(1), LeaderEpoch(5), 0, start, replicas, pending or CommittedIsr(frozenset(isr)), followers
    )


def terms(min_isr: int = 1, now_ms: int = 0, eligible: frozenset[int] = frozenset()) -> CommitTerms:
    return CommitTerms(min_isr, now_ms, LAG_MS, lambda broker_id, epoch: broker_id in eligible)


@dataclass(slots=True)
class Session:
    """Implements FollowerContact."""

    last_contact_ms: int
    is_recalled: bool = False

    def recall(self) -> None:
        self.is_recalled = True


def fetch(broker_id: int, offset: int, *, leader_epoch: int = 5, broker_epoch: int = -1) -> FollowerFetch:
    return FollowerFetch(
        BrokerId(broker_id), BrokerEpoch(broker_epoch), LeaderEpoch(leader_epoch), offset, log_start_offset=0
    )


def everyone(broker_id: int, broker_epoch: int) -> bool:
    return True


class TestHighWatermark:
    def test_leader_without_followers_commits_its_log_end(self) -> None:
        assert leader((1,), (1,)).high_watermark(3, 10, terms(min_isr=2)) == 10

    def test_high_watermark_is_the_least_log_end_of_the_isr(self) -> None:
        one = leader()
        one.on_follower_fetch(fetch(2, 8), 10, 0, BrokerEpoch(-1))
        assert one.high_watermark(3, 10, terms()) == 3  # replica 3 has not fetched
        one.on_follower_fetch(fetch(3, 6), 10, 0, BrokerEpoch(-1))
        assert one.high_watermark(3, 10, terms()) == 6

    def test_high_watermark_never_falls(self) -> None:
        one = leader()
        for broker_id in (2, 3):
            one.on_follower_fetch(fetch(broker_id, 4), 10, 0, BrokerEpoch(-1))
        assert one.high_watermark(7, 10, terms()) == 7

    def test_high_watermark_does_not_move_below_min_insync_replicas(self) -> None:
        one = leader(isr=(1,))
        assert one.high_watermark(3, 10, terms(min_isr=2)) == 3
        assert one.high_watermark(3, 10, terms(min_isr=1, now_ms=LAG_MS + 1)) == 10

    def test_high_watermark_waits_for_a_caught_up_eligible_replica(self) -> None:
        one = leader(isr=(1, 2))
        one.on_follower_fetch(fetch(2, 10), 10, 0, BrokerEpoch(-1))
        one.on_follower_fetch(fetch(3, 7), 7, 0, BrokerEpoch(-1))  # caught up when the log ended at 7
        assert one.high_watermark(3, 10, terms(eligible=frozenset({3}))) == 7
        assert one.high_watermark(3, 10, terms(eligible=frozenset())) == 10
        assert one.high_watermark(3, 10, terms(now_ms=LAG_MS + 1, eligible=frozenset({3}))) == 10

    def test_high_watermark_does_not_wait_for_a_former_member_that_copies_the_log(self) -> None:
        """The broker restarts within the lag time, with an empty disk."""
        one = leader()
        for broker_id in (2, 3):
            one.on_follower_fetch(replace(fetch(broker_id, 100), contact=Session(1_900)), 100, 1_000, BrokerEpoch(-1))
        assert one.on_isr_confirmed(LeaderEpoch(5), 1, frozenset({1, 2}))
        one.on_append(100)
        one.on_follower_fetch(fetch(2, 110), 110, 2_000, BrokerEpoch(-1))
        eligible = frozenset({3})
        for offset, now_ms in ((0, 2_000), (60, 2_100)):
            one.on_follower_fetch(fetch(3, offset), 110, now_ms, BrokerEpoch(-1))
            assert one.high_watermark(100, 110, terms(now_ms=now_ms, eligible=eligible)) == 110
        one.on_follower_fetch(fetch(2, 115), 115, 2_200, BrokerEpoch(-1))
        one.on_follower_fetch(fetch(3, 112), 115, 2_200, BrokerEpoch(-1))  # has what the log held at its last fetch
        assert one.high_watermark(110, 115, terms(now_ms=2_200, eligible=eligible)) == 112

    def test_high_watermark_waits_for_proposed_members(self) -> None:
        one = leader(isr=(1, 2))
        one.on_follower_fetch(fetch(2, 4), 10, 0, BrokerEpoch(-1))
        one.isr = PendingShrink(frozenset({1, 2}), frozenset({2}))
        assert one.high_watermark(0, 10, terms(now_ms=LAG_MS + 1)) == 4
        one.isr = PendingExpand(frozenset({1}), 2)
        assert one.high_watermark(0, 10, terms(now_ms=LAG_MS + 1)) == 4

    @given(st.lists(st.integers(0, 20), min_size=2, max_size=2), st.integers(0, 20), st.sets(st.integers(2, 3)))
    def test_isr_members_have_all_committed_records(self, ends: list[int], log_end: int, members: set[int]) -> None:
        one = leader(isr=(1, *members))
        for broker_id, end in zip((2, 3), ends, strict=True):
            one.on_follower_fetch(fetch(broker_id, min(end, log_end)), log_end, 0, BrokerEpoch(-1))
        mark = one.high_watermark(0, log_end, terms(now_ms=LAG_MS + 1))
        assert mark <= log_end
        assert all(one.followers[BrokerId(member)].log_end_offset >= mark for member in members)

    def test_leader_has_committed_its_epoch_after_the_epochs_start(self) -> None:
        one = leader(start=12)
        assert not one.has_committed_own_epoch(11)
        assert one.has_committed_own_epoch(12)


class TestAdmission:
    @pytest.mark.parametrize(("configured", "replicas", "effective"), [(2, 3, 2), (2, 1, 1), (1, 3, 1)])
    def test_min_isr_is_limited_to_the_replica_count(self, configured: int, replicas: int, effective: int) -> None:
        assert effective_min_isr(configured, replicas) == effective

    def test_confirmed_members_count_for_admission_and_possible_ones_for_acknowledgement(self) -> None:
        one = leader(isr=(1,))
        one.isr = PendingExpand(frozenset({1}), 2)
        assert not one.has_enough_replicas(2)
        assert one.outcome_when_committed(2) == ErrorCode.NONE

    def test_too_few_members_after_commit_is_an_error(self) -> None:
        assert leader(isr=(1,)).outcome_when_committed(2) == ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND


class TestFollowerFetch:
    def test_unassigned_replica_with_an_epoch_gets_unknown_leader_epoch(self) -> None:
        assert leader().on_follower_fetch(fetch(9, 0), 0, 0, BrokerEpoch(-1)) == ErrorCode.UNKNOWN_LEADER_EPOCH
        unassigned = fetch(9, 0, leader_epoch=-1)
        assert leader().on_follower_fetch(unassigned, 0, 0, BrokerEpoch(-1)) == ErrorCode.NOT_LEADER_OR_FOLLOWER

    def test_fetch_of_a_former_registration_does_not_count(self) -> None:
        """KIP-903: the broker has registered again with epoch 8; its former process still fetches with 7."""
        one = leader()
        late = fetch(2, 10, broker_epoch=7)
        assert (
            one.on_follower_fetch(late, 10, 0, registered_broker_epoch=BrokerEpoch(8))
            == ErrorCode.NOT_LEADER_OR_FOLLOWER
        )
        assert one.followers[BrokerId(2)].log_end_offset == -1
        assert one.on_follower_fetch(fetch(2, 10, broker_epoch=8), 10, 0, BrokerEpoch(8)) == ErrorCode.NONE

    def test_reaching_the_previous_fetchs_log_end_is_caught_up_as_of_then(self) -> None:
        one = leader()
        one.on_follower_fetch(fetch(2, 5), 10, 1000, BrokerEpoch(-1))
        assert one.followers[BrokerId(2)].caught_up_ms == NEVER_MS
        one.on_follower_fetch(fetch(2, 10), 20, 2000, BrokerEpoch(-1))
        assert one.followers[BrokerId(2)].caught_up_ms == 1000
        one.on_follower_fetch(fetch(2, 20), 20, 3000, BrokerEpoch(-1))
        assert one.followers[BrokerId(2)].caught_up_ms == 3000

    def test_follower_without_lag_is_caught_up_until_the_next_append(self) -> None:
        """Incremental sessions leave idle partitions out, so an idle hour must not count as lag."""
        one = leader()
        session = Session(1000)
        for broker_id in (2, 3):
            one.on_follower_fetch(replace(fetch(broker_id, 10), contact=session), 10, 1000, BrokerEpoch(-1))
        session.last_contact_ms = 3_600_000
        assert one.propose_shrink(10, 3_600_000, LAG_MS) is None
        one.on_append(10)
        assert one.propose_shrink(20, 3_600_000 + LAG_MS, LAG_MS) is None
        proposed = one.propose_shrink(20, 3_600_001 + LAG_MS, LAG_MS)
        assert proposed is not None
        assert proposed.proposed == frozenset({1})

    def test_silent_follower_lags_from_its_last_contact_once_the_log_grows(self) -> None:
        one = leader()
        for broker_id in (2, 3):
            one.on_follower_fetch(replace(fetch(broker_id, 10), contact=Session(1000)), 10, 1000, BrokerEpoch(-1))
        assert one.propose_shrink(10, 3_600_000, LAG_MS) is None
        one.on_append(10)
        proposed = one.propose_shrink(20, 3_600_000, LAG_MS)
        assert proposed is not None
        assert proposed.proposed == frozenset({1})

    def test_late_fetch_of_an_abandoned_session_keeps_what_the_present_one_acknowledged(self) -> None:
        one = leader(isr=(1, 2), replicas=(1, 2))
        present = Session(1000)
        one.on_follower_fetch(replace(fetch(2, 10), contact=present), 10, 1000, BrokerEpoch(-1))
        present.last_contact_ms = 3_600_000
        one.on_follower_fetch(replace(fetch(2, 4), contact=Session(3_600_010)), 10, 3_600_010, BrokerEpoch(-1))
        assert present.is_recalled
        assert one.propose_shrink(10, 3_600_000 + LAG_MS, LAG_MS) is None
        assert one.propose_shrink(10, 3_600_001 + LAG_MS, LAG_MS) is not None

    def test_late_fetch_does_not_renew_a_follower_that_lagged(self) -> None:
        one = leader(isr=(1, 2), replicas=(1, 2))
        one.on_follower_fetch(replace(fetch(2, 10), contact=Session(3_600_000)), 15, 1000, BrokerEpoch(-1))
        one.on_follower_fetch(replace(fetch(2, 4), contact=Session(3_600_000)), 15, 3_600_000, BrokerEpoch(-1))
        assert one.followers[BrokerId(2)].caught_up_ms == NEVER_MS

    def test_lagging_follower_is_not_renewed_by_its_session(self) -> None:
        one = leader()
        one.on_follower_fetch(replace(fetch(2, 10), contact=Session(3_600_000)), 15, 1000, BrokerEpoch(-1))
        one.on_append(15)
        assert one.followers[BrokerId(2)].caught_up_ms == NEVER_MS


class TestIsr:
    def test_follower_at_the_high_watermark_and_epoch_start_is_proposed(self) -> None:
        one = leader(isr=(1, 2), start=5)
        one.on_follower_fetch(fetch(3, 5), 10, 0, BrokerEpoch(-1))
        proposed = one.propose_expand(BrokerId(3), 5, everyone)
        assert proposed == PendingExpand(frozenset({1, 2}), 3)
        assert one.isr == proposed

    @pytest.mark.parametrize(("offset", "high_watermark", "start"), [(4, 5, 0), (5, 5, 6)])
    def test_follower_behind_either_is_not_proposed(self, offset: int, high_watermark: int, start: int) -> None:
        one = leader(isr=(1, 2), start=start)
        one.on_follower_fetch(fetch(3, offset), 10, 0, BrokerEpoch(-1))
        assert one.propose_expand(BrokerId(3), high_watermark, everyone) is None

    def test_members_unassigned_and_ineligible_replicas_are_not_proposed(self) -> None:
        one = leader(isr=(1, 2))
        one.on_follower_fetch(fetch(3, 10), 10, 0, BrokerEpoch(-1))
        assert one.propose_expand(BrokerId(2), 0, everyone) is None
        assert one.propose_expand(BrokerId(9), 0, everyone) is None
        assert one.propose_expand(BrokerId(3), 0, lambda broker_id, epoch: False) is None

    def test_one_proposal_is_under_way_at_a_time(self) -> None:
        one = leader(isr=(1, 2))
        one.on_follower_fetch(fetch(3, 10), 10, 0, BrokerEpoch(-1))
        assert one.propose_expand(BrokerId(3), 0, everyone) is not None
        assert one.propose_expand(BrokerId(3), 0, everyone) is None
        assert one.propose_shrink(10, 10 * LAG_MS, LAG_MS) is None

    def test_members_that_lag_too_long_are_proposed_for_removal(self) -> None:
        one = leader()
        one.followers[BrokerId(3)].caught_up_ms = 0
        one.on_follower_fetch(fetch(2, 10), 10, LAG_MS, BrokerEpoch(-1))
        assert one.propose_shrink(10, LAG_MS, LAG_MS) is None
        proposed = one.propose_shrink(10, LAG_MS + 1, LAG_MS)
        assert proposed == PendingShrink(frozenset({1, 2, 3}), frozenset({3}))

    def test_lag_of_a_new_member_counts_from_the_fetch_by_which_it_joined(self) -> None:
        one = leader(isr=(1, 2))
        one.on_follower_fetch(fetch(2, 20), 20, 1_000, BrokerEpoch(-1))
        one.on_follower_fetch(fetch(3, 10), 20, 1_000, BrokerEpoch(-1))  # at the high watermark, behind the log end
        assert one.propose_expand(BrokerId(3), 10, everyone) is not None
        assert one.on_isr_confirmed(LeaderEpoch(5), 1, frozenset({1, 2, 3}))
        assert one.propose_shrink(20, 1_000 + LAG_MS, LAG_MS) is None
        assert one.propose_shrink(20, 1_001 + LAG_MS, LAG_MS) == PendingShrink(frozenset({1, 2, 3}), frozenset({3}))

    def test_controllers_answer_replaces_the_isr(self) -> None:
        one = leader(pending=PendingExpand(frozenset({1, 2}), 3))
        assert not one.on_isr_confirmed(LeaderEpoch(4), 9, frozenset({1}))
        assert not one.on_isr_confirmed(LeaderEpoch(5), -1, frozenset({1}))
        assert one.on_isr_confirmed(LeaderEpoch(5), 1, frozenset({1, 2, 3}))
        assert (one.isr, one.partition_epoch) == (CommittedIsr(frozenset({1, 2, 3})), 1)

    def test_refused_proposal_restores_the_isr(self) -> None:
        one = leader(pending=PendingExpand(frozenset({1, 2}), 3))
        one.on_isr_refused()
        assert one.isr == CommittedIsr(frozenset({1, 2}))


def test_proposal_has_the_broker_epoch_of_each_members_fetches() -> None:
    one = leader(isr=(1, 2))
    one.partition_epoch = 7
    one.on_follower_fetch(fetch(2, 10, broker_epoch=20), 10, 0, BrokerEpoch(20))
    one.on_follower_fetch(fetch(3, 10), 10, 0, BrokerEpoch(30))
    pending = one.propose_expand(BrokerId(3), 10, everyone)
    assert pending is not None
    proposal = one.proposal(pending, own_broker_epoch=BrokerEpoch(11))
    assert proposal.members == ((1, 11), (2, 20), (3, -1))
    assert (proposal.leader_epoch, proposal.partition_epoch) == (5, 7)


@pytest.mark.parametrize(
    ("isr", "min_isr", "expected"),
    [
        ((1, 2, 3), 2, (False, False, False)),
        ((1, 2), 2, (True, False, True)),
        ((1,), 2, (True, True, False)),
        ((1, 2, 3), 9, (False, False, True)),
    ],
)
def test_standing_follows_the_confirmed_isr(isr: tuple[int, ...], min_isr: int, expected: tuple[bool, ...]) -> None:
    assert leader(isr=isr).standing(min_isr) == (*expected, False)


def test_follower_without_fetches_is_not_caught_up_soon_after_clock_start() -> None:
    assert not FollowerProgress().is_caught_up(10, 5, LAG_MS)


def test_low_watermark_is_the_least_log_start_of_live_replicas() -> None:
    one = leader()
    one.followers[BrokerId(2)].log_start_offset = 3
    one.followers[BrokerId(3)].log_start_offset = 1
    assert one.low_watermark(7, lambda broker_id: True) == 1
    assert one.low_watermark(7, lambda broker_id: broker_id == 2) == 3
    assert one.low_watermark(7, lambda broker_id: False) == 7
