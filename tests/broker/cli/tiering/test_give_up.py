"""`ottla remote give-up`, against a directory as the bucket and a fake broker."""

import json

import pytest

from protocol.ids import LeaderEpoch
from protocol.primitives import uuid_to_text
from storage.tiered.format.object_keys import ObjectSuffix
from storage.tiered.segment_metadata import RemoteSegment, SegmentState
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


def states(harness: RemoteCommandHarness) -> list[SegmentState]:
    return [each.state for each in harness.known().get(harness.partition()).segments.segments()]


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
    assert states(harness) == [SegmentState.COPY_FINISHED, SegmentState.DELETE_STARTED, SegmentState.COPY_FINISHED]
    known = harness.known().get(harness.partition()).segments
    assert [known.is_given_up(LeaderEpoch(0), offset) for offset in (9, 10, 19, 20)] == [False, True, True, False]
    assert remote("give-up", *PARTITION, "--yes").lines == ["0 segments lost"]


def test_damaged_segment_is_given_up_by_its_id(
    harness: RemoteCommandHarness, remote: Remote, segments: list[RemoteSegment]
) -> None:
    path = harness.root / harness.keys.key(segments[2], ObjectSuffix.LOG)
    path.write_bytes(path.read_bytes()[:-1] + b"!")
    outcome = remote("give-up", *PARTITION, "--segment", uuid_to_text(segments[2].id.id), "--yes")
    assert (outcome.code, outcome.lines[-1]) == (0, "1 segments given up")
    assert states(harness) == [SegmentState.COPY_FINISHED, SegmentState.COPY_FINISHED, SegmentState.DELETE_STARTED]


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
