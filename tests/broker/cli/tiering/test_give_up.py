"""`ottla remote give-up`, against a directory as the bucket and a fake broker."""

import json

import pytest

from protocol.ids import BrokerId, LeaderEpoch
from protocol.primitives import uuid_to_text
from storage.tiered.format.object_keys import ObjectSuffix
from storage.tiered.segment_metadata import RemoteSegment, SegmentState, SegmentUpdate
from tests.broker.cli.tiering.conftest import Remote
from tests.broker.cli.tiering.harness import FOO_ID, RemoteCommandHarness

PARTITION = ("--topic", "foo", "--partition", "0")


@pytest.fixture
def segments(harness: RemoteCommandHarness) -> list[RemoteSegment]:
    """Three segments; the log of the second one is lost."""
    harness.topic("foo", FOO_ID, (0, 30, 29, 40))
    finished = [harness.finished(harness.partition(), start, start + 9) for start in (0, 10, 20)]
    harness.delete_objects(finished[1], ObjectSuffix.LOG)
    return finished


def segments_of(harness: RemoteCommandHarness) -> list[RemoteSegment]:
    return harness.known().get(harness.partition()).segments.segments()


def states(harness: RemoteCommandHarness) -> list[SegmentState]:
    """Return the states of all segments but marks."""
    return [each.state for each in segments_of(harness) if not each.is_given_up_mark]


def given_up(harness: RemoteCommandHarness) -> list[int]:
    """Return the offsets up to 40 that brokers skip."""
    known = harness.known().get(harness.partition()).segments
    return [offset for offset in range(40) if known.given_up_to(LeaderEpoch(0), offset) is not None]


def test_lost_segments_are_listed_and_kept_without_yes(
    harness: RemoteCommandHarness, remote: Remote, segments: list[RemoteSegment]
) -> None:
    outcome = remote("give-up", *PARTITION)
    assert outcome.code == 0
    assert "offsets 10-19" in outcome.lines[0]
    assert uuid_to_text(segments[1].id.id) in outcome.lines[0]
    assert outcome.lines[1] == "1 segments lost; repeat the command with --yes to give them up"
    assert states(harness) == [SegmentState.COPY_FINISHED] * 3


def test_json_has_the_lost_segments(remote: Remote, segments: list[RemoteSegment]) -> None:
    document = json.loads(remote("give-up", *PARTITION, "--json").out)
    assert document["givenUp"] is False
    [found] = document["segments"]
    assert (found["segmentId"], found["fault"]) == (uuid_to_text(segments[1].id.id), "missing log")


@pytest.mark.usefixtures("segments")
def test_lost_segment_is_given_up(harness: RemoteCommandHarness, remote: Remote) -> None:
    outcome = remote("give-up", *PARTITION, "--yes")
    assert (outcome.code, outcome.lines[-1]) == (0, "1 segments given up")
    lost, *_ = [each for each in segments_of(harness) if each.size_bytes and each.start_offset == 10]
    assert lost.state is SegmentState.DELETE_STARTED
    known = harness.known().get(harness.partition()).segments
    assert [known.given_up_to(LeaderEpoch(0), offset) is not None for offset in (9, 10, 19, 20)] == [
        False,
        True,
        True,
        False,
    ]
    assert remote("give-up", *PARTITION, "--yes").lines == ["0 segments lost"]


def test_damaged_segment_is_given_up_by_its_id(
    harness: RemoteCommandHarness, remote: Remote, segments: list[RemoteSegment]
) -> None:
    path = harness.root / harness.keys.key(segments[2], ObjectSuffix.LOG)
    path.write_bytes(path.read_bytes()[:-1] + b"!")
    outcome = remote("give-up", *PARTITION, "--segment", uuid_to_text(segments[2].id.id), "--yes")
    assert (outcome.code, outcome.lines[-1]) == (0, "1 segments given up")
    assert states(harness) == [SegmentState.COPY_FINISHED] * 2 + [SegmentState.DELETE_STARTED]


def test_intact_segment_is_not_given_up(
    harness: RemoteCommandHarness, remote: Remote, segments: list[RemoteSegment]
) -> None:
    outcome = remote("give-up", *PARTITION, "--segment", uuid_to_text(segments[0].id.id), "--yes")
    assert outcome.code == 1
    assert "lost or damaged" in outcome.err
    assert states(harness) == [SegmentState.COPY_FINISHED] * 3


@pytest.mark.usefixtures("segments")
def test_unknown_partition_is_refused(remote: Remote) -> None:
    assert remote("give-up", "--topic", "foo", "--partition", "7").code == 1
    assert remote("give-up", "--partition", "0").code == 2


RANGE = ("--from-offset", "10", "--to-offset", "19")


@pytest.mark.usefixtures("segments")
def test_given_up_offsets_outlive_the_deleted_segment(harness: RemoteCommandHarness, remote: Remote) -> None:
    """A broker that starts after the leader has ended the deletion still knows the hole."""
    remote("give-up", *PARTITION, "--yes")
    [lost] = [each for each in segments_of(harness) if each.size_bytes and each.start_offset == 10]
    harness.publish(SegmentUpdate(lost.id, SegmentState.DELETE_FINISHED, 0, BrokerId(1)))
    assert given_up(harness) == list(range(10, 20))


@pytest.mark.usefixtures("segments")
def test_offsets_of_a_lost_segment_are_given_up(harness: RemoteCommandHarness, remote: Remote) -> None:
    assert "repeat the command with --yes" in remote("give-up", *PARTITION, *RANGE).lines[-1]
    assert given_up(harness) == []
    outcome = remote("give-up", *PARTITION, *RANGE, "--yes")
    assert (outcome.code, outcome.lines[-2:]) == (0, ["offsets 10-19 given up", "1 segments given up"])
    assert given_up(harness) == list(range(10, 20))
    remote("give-up", *PARTITION, *RANGE, "--yes")
    assert len([each for each in segments_of(harness) if each.is_given_up_mark]) == 1, "repetition adds no mark"


def test_offsets_without_metadata_are_given_up(harness: RemoteCommandHarness, remote: Remote) -> None:
    harness.topic("foo", FOO_ID, (0, 30, 29, 40))
    for start in (0, 20):
        harness.finished(harness.partition(), start, start + 9)
    assert remote("give-up", *PARTITION, *RANGE, "--yes").code == 0
    assert given_up(harness) == list(range(10, 20))
    assert remote("verify", "--topic", "foo", "--grace-ms", "0").code == 0, "a mark is in order"
    remote("collect", "--topic", "foo", "--grace-ms", "0")
    assert given_up(harness) == list(range(10, 20)), "a mark is no leftover"


@pytest.mark.usefixtures("segments")
def test_readable_offsets_are_given_up_by_force_alone(harness: RemoteCommandHarness, remote: Remote) -> None:
    readable = ("--from-offset", "0", "--to-offset", "19")
    refused = remote("give-up", *PARTITION, *readable, "--yes")
    assert refused.code == 1
    assert "has offsets 0-9" in refused.err
    local = remote("give-up", *PARTITION, "--from-offset", "10", "--to-offset", "30", "--yes")
    assert local.code == 1
    assert "the local log of broker 1 begins at offset 30" in local.err
    assert given_up(harness) == []
    assert remote("give-up", *PARTITION, *readable, "--force", "--yes").code == 0
    assert given_up(harness) == list(range(20))
    assert states(harness) == [SegmentState.DELETE_STARTED, SegmentState.DELETE_STARTED, SegmentState.COPY_FINISHED]


@pytest.mark.usefixtures("segments")
def test_range_within_a_lost_segment_is_refused(harness: RemoteCommandHarness, remote: Remote) -> None:
    refused = remote("give-up", *PARTITION, "--from-offset", "12", "--to-offset", "19", "--force", "--yes")
    assert refused.code == 1
    assert "has offsets 10-19; name a range" in refused.err
    assert given_up(harness) == []


@pytest.mark.parametrize(
    ("first", "last", "epochs"),
    [(10, 19, [(2, 10), (5, 12)]), (12, 19, [(5, 12)]), (0, 11, [(0, 0), (2, 7)])],
)
def test_mark_has_the_leader_epochs_of_the_log(
    harness: RemoteCommandHarness, remote: Remote, first: int, last: int, epochs: list[tuple[int, int]]
) -> None:
    harness.topic("foo", FOO_ID, (0, 30, 29, 40))
    harness.finished(harness.partition(), 20, 29)
    harness.broker.epochs = [(0, 0), (2, 7), (5, 12), (6, 25)]
    assert remote("give-up", *PARTITION, "--from-offset", str(first), "--to-offset", str(last), "--yes").code == 0
    [mark] = [each for each in segments_of(harness) if each.is_given_up_mark]
    assert list(mark.leader_epochs) == epochs


def test_half_a_range_is_refused(remote: Remote) -> None:
    assert remote("give-up", *PARTITION, "--from-offset", "12").code == 2
    assert remote("give-up", *PARTITION, "--from-offset", "12", "--to-offset", "11").code == 2
    assert remote("give-up", *PARTITION, "--force").code == 2
