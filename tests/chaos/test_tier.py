"""Checkers of tiered topics, and faults of their store."""

import random
import threading
from pathlib import Path

import pytest

from protocol.ids import BrokerId, LeaderEpoch
from protocol.primitives import Uuid
from storage.tiered.segment_metadata import RemoteSegment, RemoteSegmentId, SegmentEpoch, TopicIdPartition
from tests.chaos.checker import Anomaly, Findings
from tests.chaos.copy_watch import NOT_A_LEADER, verdict
from tests.chaos.network import Loopback
from tests.chaos.store_faults import Kind, StoreFaults
from tests.chaos.tier import BOUNDED, Tier, loads
from tests.chaos.tier_checks import chain_faults, gaps, retention_faults
from tests.chaos.tier_run import of_faults, of_findings

PARTITION = TopicIdPartition(Uuid(bytes(15) + b"\x01"), "t", 0)


def segment(first: int, last: int, *epochs: tuple[int, int]) -> RemoteSegment:
    return RemoteSegment(
        id=RemoteSegmentId(PARTITION, Uuid(first.to_bytes(16, "big"))),
        start_offset=first,
        end_offset=last,
        max_timestamp_ms=0,
        broker_id=BrokerId(1),
        event_timestamp_ms=0,
        size_bytes=100,
        leader_epochs=tuple(SegmentEpoch(LeaderEpoch(number), at) for number, at in epochs),
    )


# Copies and the last stable offset


@pytest.mark.parametrize(
    "answers", [(10, NOT_A_LEADER, NOT_A_LEADER), (10, None, None), (3, 10, NOT_A_LEADER)], ids=str
)
def test_copy_below_any_last_stable_offset_is_correct(answers: tuple[int | None, ...]) -> None:
    assert verdict(9, answers) is True


def test_copy_ending_at_the_last_stable_offset_is_wrong() -> None:
    assert verdict(10, (10, NOT_A_LEADER, 4)) is False


@pytest.mark.parametrize("answers", [(3, None, NOT_A_LEADER), (NOT_A_LEADER,) * 3, (None, None, None)], ids=str)
def test_copy_is_undecided_without_all_answers(answers: tuple[int | None, ...]) -> None:
    """A copy is undecided, also while no broker leads."""
    assert verdict(9, answers) is None


# Epochs, gaps, starts

EPOCHS = [(0, 0), (2, 5), (3, 8)]


def test_segments_with_the_leaders_epochs_are_correct() -> None:
    assert chain_faults([segment(0, 6, (0, 0), (2, 5)), segment(7, 9, (2, 7), (3, 8))], EPOCHS, 0) == []


@pytest.mark.parametrize("epochs", [((0, 0),), ((0, 0), (2, 4)), ((0, 0), (1, 3), (2, 5)), ((1, 0), (2, 5))], ids=str)
def test_segments_with_other_epochs_are_wrong(epochs: tuple[tuple[int, int], ...]) -> None:
    [fault] = chain_faults([segment(0, 6, *epochs)], EPOCHS, 0)
    assert "the leader ((0, 0), (2, 5))" in fault


def test_epochs_below_log_start_are_not_compared() -> None:
    """The leader has truncated its checkpoint at the log start offset."""
    epochs = [(2, 6), (3, 8)]
    assert chain_faults([segment(0, 6, (0, 0), (2, 5)), segment(7, 9, (2, 7), (3, 8))], epochs, 6) == []
    assert chain_faults([segment(0, 6, (0, 0), (2, 5))], epochs, 7) == [], "a segment below the log start is compared"
    assert len(chain_faults([segment(0, 6, (0, 0))], epochs, 6)) == 1


def test_gaps_between_remote_and_local_log_are_reported() -> None:
    segments = [segment(5, 9, (0, 5)), segment(0, 4, (0, 0))]
    assert gaps("t-0", segments, 0, 10) == []
    assert gaps("t-0", segments, 3, 10) == []
    assert gaps("t-0", segments, 0, 11) == ["t-0: neither remote nor local from 10 to 11"]
    assert gaps("t-0", segments[:1], 0, 10) == ["t-0: no remote segment from 0 to 5"]
    assert gaps("t-0", [], 4, 4) == []


def test_retention_keeps_its_minimum() -> None:
    assert retention_faults("t-0", kept=9, start=5, asked=5, least=10) == [], "DeleteRecords counts as retention"
    assert retention_faults("t-0", kept=10, start=6, asked=5, least=10) == []
    assert len(retention_faults("t-0", kept=9, start=6, asked=5, least=10)) == 1


# Output


def test_clean_checker_prints_one_line() -> None:
    assert of_faults("tiered-copies", "7 copies", []).lines == ["tiered-copies          0 bad (7 copies)"]


def test_counter_examples_follow_the_count() -> None:
    findings = Findings()
    findings.add(Anomaly.LOST_WRITE, "offset 4")
    findings.add(Anomaly.POLL_SKIP, "offset 5")
    found = of_findings("tiered-log", "10 offsets", {"t": findings}, lambda anomaly: anomaly is Anomaly.LOST_WRITE)
    assert found.lines == ["tiered-log             1 bad (10 offsets)", "  lost-write: t offset 4"]


def test_only_acks_1_loads_permit_losses() -> None:
    assert [load.topic for load in loads() if load.rules.lossy] == [load.topic for load in loads() if load.acks == "1"]
    assert [load.topic for load in loads() if load.rules.bounded] == [BOUNDED]


# The store


def test_store_without_a_server_is_a_directory(tmp_path: Path) -> None:
    with Tier(tmp_path, Loopback(3), seed=1, refusal="go is not on PATH") as tier:
        assert tier.proxy is None
        assert tier.node_settings["remote.log.storage.manager.class.name"] == "local"
        assert tier.node_settings["rsm.config.storage.root"] == str(tmp_path / "remote")


def test_each_store_fault_is_undone() -> None:
    done, enough = [], threading.Event()

    def note(what: str) -> None:
        done.append(what)
        if len(done) == 6:
            enough.set()

    gone = Kind("gone", lambda: note("gone"), lambda: note("no gone"), (0, 0))
    faults = StoreFaults(lambda: [gone], random.Random(1), rest_s=(0, 0))
    faults.start()
    assert enough.wait(20)
    faults.stop()
    assert done[:6] == ["gone", "no gone"] * 3
    assert done[-1] == "no gone"
    assert {fault.kind for fault in faults.done} == {"gone"}


def test_failing_store_fault_ends_all_faults() -> None:
    def fail() -> None:
        raise OSError("no more")

    faults = StoreFaults(lambda: [Kind("gone", fail, fail, (0, 0))], random.Random(1), rest_s=(0, 0))
    faults.start()
    faults.join()
    assert faults.error == "store faults were aborted: no more"
