"""Leader election and in-sync sets, rule by rule (KIP-631, KIP-704, KIP-858, KIP-966)."""

from collections.abc import Iterable
from typing import Any

import pytest

from broker.metadata.controller.partition_changes import Election, ElectionRules, PartitionChange
from broker.metadata.image.metadata_version import LATEST_METADATA_VERSION, MetadataVersion
from broker.metadata.image.partition import (
    LOST_DIRECTORY,
    NO_LEADER,
    UNASSIGNED_DIRECTORY,
    LeaderRecoveryState,
    PartitionRegistration,
)
from protocol.messages.metadata_records import PartitionChangeRecord, PartitionRecord
from tests.broker.metadata.images import directory_of, uuid

TOPIC = uuid(1)


def registration(**fields: Any) -> PartitionRegistration:
    replicas = fields.get("replicas", (1, 2, 3))
    fields.setdefault("directories", tuple(directory_of(broker) for broker in replicas))
    defaults: dict[str, Any] = {
        "replicas": replicas,
        "isr": replicas,
        "leader": 1,
        "leader_epoch": 5,
        "partition_epoch": 9,
    }
    return PartitionRegistration(**(defaults | fields))


def change(
    before: PartitionRegistration,
    *,
    alive: Iterable[int] = (1, 2, 3, 4),
    elr: bool = False,
    min_isr: int = 1,
    version: MetadataVersion = LATEST_METADATA_VERSION,
) -> PartitionChange:
    living = set(alive)
    return PartitionChange(
        before,
        topic_id=TOPIC,
        partition=0,
        rules=ElectionRules(version, elr),
        min_isr=min_isr,
        is_acceptable=living.__contains__,
        directory_for=directory_of,
    )


def some_record_of(change: PartitionChange) -> PartitionChangeRecord:
    record = record_of(change)
    assert record is not None
    return record


def record_of(change: PartitionChange) -> PartitionChangeRecord | None:
    built = change.build()
    if built is None:
        return None
    assert isinstance(built.message, PartitionChangeRecord)
    return built.message


def expected(**fields: Any) -> PartitionChangeRecord:
    return PartitionChangeRecord(topic_id=TOPIC, partition_id=0, **fields)


def test_unchanged_partition_writes_nothing() -> None:
    assert change(registration()).build() is None


def test_first_in_sync_replica_follows_a_lost_leader() -> None:
    built = change(registration(), alive=(2, 3))
    built.isr = (2, 3)
    assert record_of(built) == expected(isr=[2, 3], leader=2)


def test_replica_order_decides_elections() -> None:
    built = change(registration(replicas=(1, 3, 2), isr=(2, 3, 1)), alive=(2, 3))
    built.isr = (2, 3)
    record = record_of(built)
    assert record is not None
    assert record.leader == 3


def test_isr_shrink_keeps_leader_epoch_since_3_6() -> None:
    built = change(registration())
    built.isr = (1, 2)
    assert record_of(built) == expected(isr=[1, 2])
    older = change(registration(), version=MetadataVersion.IV_3_5_2)
    older.isr = (1, 2)
    assert record_of(older) == expected(isr=[1, 2], leader=1)


def test_last_in_sync_replica_stays_in_the_isr_without_elr() -> None:
    built = change(registration(replicas=(1,)), alive=())
    built.isr = ()
    assert record_of(built) == expected(leader=NO_LEADER)


def test_unclean_election_happens_only_on_request() -> None:
    before = registration(isr=(1,), leader=NO_LEADER)
    assert record_of(change(before, alive=(2, 3))) is None
    unclean = change(before, alive=(2, 3))
    unclean.election = Election.UNCLEAN
    assert record_of(unclean) == expected(isr=[2], leader=2, leader_recovery_state=LeaderRecoveryState.RECOVERING)


def test_unclean_election_prefers_a_clean_leader() -> None:
    built = change(registration(isr=(3,), leader=NO_LEADER))
    built.election = Election.UNCLEAN
    assert record_of(built) == expected(leader=3)


def test_preferred_election_needs_an_in_sync_replica() -> None:
    home = change(registration(leader=2))
    home.election = Election.PREFERRED
    assert record_of(home) == expected(leader=1)
    behind = change(registration(leader=2, isr=(2, 3)))
    behind.election = Election.PREFERRED
    assert record_of(behind) is None


def test_reassignment_completes_when_remaining_replicas_are_in_sync() -> None:
    before = registration(replicas=(4, 2, 3, 1), isr=(1, 2, 3), removing_replicas=(1,), adding_replicas=(4,))
    waiting = change(before)
    assert record_of(waiting) is None
    done = change(before)
    done.isr = (1, 2, 3, 4)
    assert record_of(done) == expected(
        isr=[2, 3, 4],
        leader=4,
        replicas=[4, 2, 3],
        removing_replicas=[],
        adding_replicas=[],
        directories=[directory_of(broker) for broker in (4, 2, 3)],
    )


def test_removed_replica_bumps_the_leader_epoch_of_the_same_leader() -> None:
    before = registration(replicas=(1, 2, 3), removing_replicas=(3,))
    built = change(before)
    record = record_of(built)
    assert record is not None
    assert (record.leader, record.replicas) == (1, [1, 2])
    assert before.merge(record).leader_epoch == 6


def test_new_replica_gets_its_brokers_directory() -> None:
    built = change(registration(replicas=(1, 2)))
    built.replicas = (1, 2, 4)
    record = record_of(built)
    assert record is not None
    assert record.directories == [directory_of(1), directory_of(2), directory_of(4)]


def test_moved_replica_changes_directories_alone() -> None:
    built = change(registration(replicas=(1, 2)))
    built.move_replica(2, LOST_DIRECTORY)
    assert record_of(built) == expected(directories=[directory_of(1), LOST_DIRECTORY])


class TestEligibleLeaders:
    """KIP-966; the cases with one replica are the records of Apache Kafka 4.2 at a stop and a kill of one broker."""

    def test_lone_replica_stays_eligible_when_its_broker_stops(self) -> None:
        built = change(registration(replicas=(1,)), alive=(), elr=True)
        built.isr = ()
        assert record_of(built) == expected(isr=[], leader=NO_LEADER, eligible_leader_replicas=[1], last_known_elr=[1])

    def test_eligible_replica_is_elected_cleanly_when_it_returns(self) -> None:
        before = registration(replicas=(1,), isr=(), leader=NO_LEADER, elr=(1,), last_known_elr=(1,))
        assert record_of(change(before, alive=(1,), elr=True)) == expected(
            isr=[1], leader=1, eligible_leader_replicas=[], last_known_elr=[]
        )

    def test_replica_is_not_eligible_after_unclean_shutdown(self) -> None:
        before = registration(replicas=(1,), isr=(), leader=NO_LEADER, elr=(1,), last_known_elr=(1,))
        built = change(before, alive=(), elr=True)
        built.unclean_shutdown_replicas = (1,)
        assert record_of(built) == expected(eligible_leader_replicas=[])

    def test_last_known_leader_is_elected_for_recovery(self) -> None:
        before = registration(replicas=(1,), isr=(), leader=NO_LEADER, last_known_elr=(1,))
        assert record_of(change(before, alive=(1,), elr=True)) == expected(
            isr=[1], leader=1, leader_recovery_state=LeaderRecoveryState.RECOVERING, last_known_elr=[]
        )

    def test_fenced_last_known_leader_is_not_elected(self) -> None:
        before = registration(replicas=(1, 2), isr=(), leader=NO_LEADER, last_known_elr=(1,))
        assert record_of(change(before, alive=(2,), elr=True)) is None

    def test_replica_leaving_the_isr_below_its_minimum_stays_eligible(self) -> None:
        built = change(registration(), elr=True, min_isr=2)
        built.isr = (1,)
        assert record_of(built) == expected(isr=[1], eligible_leader_replicas=[2, 3])

    def test_elr_is_cleared_when_the_isr_reaches_the_minimum(self) -> None:
        built = change(registration(isr=(1,), elr=(2, 3)), elr=True, min_isr=2)
        built.isr = (1, 2)
        assert record_of(built) == expected(isr=[1, 2], eligible_leader_replicas=[])

    def test_minimum_is_capped_by_the_replica_count(self) -> None:
        built = change(registration(replicas=(1, 2), isr=(1,), elr=(2,)), elr=True, min_isr=5)
        built.isr = (1, 2)
        assert record_of(built) == expected(isr=[1, 2], eligible_leader_replicas=[])

    def test_eligible_replica_is_elected_only_with_an_empty_isr(self) -> None:
        before = registration(isr=(1,), elr=(2, 3))
        behind = change(before, alive=(2, 3), elr=True, min_isr=2)
        assert record_of(behind) == expected(leader=NO_LEADER, last_known_elr=[1])
        empty_isr = change(before, alive=(2, 3), elr=True, min_isr=2)
        empty_isr.isr = ()
        assert record_of(empty_isr) == expected(isr=[2], leader=2, eligible_leader_replicas=[3, 1])

    def test_last_leader_is_recorded_before_the_isr_empties(self) -> None:
        leaderless = registration(replicas=(1, 2), isr=(1,), leader=NO_LEADER, last_known_elr=(1,))
        unclean = change(leaderless, alive=(), elr=True, min_isr=1)
        unclean.isr = ()
        unclean.unclean_shutdown_replicas = (1,)
        after = leaderless.merge(some_record_of(unclean))
        assert (after.isr, after.elr, after.last_known_elr) == ((), (), (1,))
        back = change(after, alive=(1,), elr=True, min_isr=1)
        assert some_record_of(back).leader == 1

    def test_leaderless_partition_keeps_its_last_known_leader(self) -> None:
        before = registration(replicas=(1, 2), isr=(), leader=NO_LEADER, elr=(2,), last_known_elr=(1,))
        built = change(before, alive=(), elr=True)
        built.replicas = (2,)
        assert some_record_of(built).last_known_elr is None


class TestMerge:
    def test_every_change_bumps_partition_epoch_and_elections_bump_leader_epoch(self) -> None:
        before = registration()
        updated = before.merge(expected(isr=[1]))
        assert (updated.leader_epoch, updated.partition_epoch, updated.isr) == (5, 10, (1,))
        same_leader = updated.merge(expected(leader=1))
        assert (same_leader.leader_epoch, same_leader.partition_epoch) == (6, 11)

    def test_replica_change_without_directories_keeps_known_directories(self) -> None:
        merged = registration(replicas=(1, 2)).merge(expected(replicas=[2, 4]))
        assert merged.directories == (directory_of(2), UNASSIGNED_DIRECTORY)

    def test_record_round_trip_keeps_the_registration(self) -> None:
        before = registration(elr=(2,), last_known_elr=(1,), removing_replicas=(1,), adding_replicas=(3,))
        record, version = before.to_record(TOPIC, 0, LATEST_METADATA_VERSION)
        assert version == 2
        assert isinstance(record, PartitionRecord)
        assert PartitionRegistration.from_record(record) == before

    def test_directory_of_a_broker_without_replica_raises(self) -> None:
        with pytest.raises(KeyError):
            registration().directory_of(9)
