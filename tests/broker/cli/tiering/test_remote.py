"""`ottla remote`: describe, verify, collect and recover, against a directory as the bucket and a fake broker."""

import json
from dataclasses import replace

import pytest

from broker.cli.tiering.remote_partitions import age
from broker.cli.tiering.topic_recovery import SEGMENTS_PER_BATCH, batches
from protocol.errors import ErrorCode
from protocol.ids import BrokerId, LeaderEpoch
from protocol.messages.restore_topics import RestoreTopicsRequest
from protocol.primitives import Uuid, uuid_to_text
from protocol.records.builder import Record, build_batch
from storage.tiered.catalog.metadata_partitioner import metadata_partition
from storage.tiered.format.log_start_object import LogStartWriter
from storage.tiered.format.object_keys import ObjectSuffix
from storage.tiered.segment_metadata import (
    PartitionDelete,
    PartitionDeleteState,
    SegmentState,
    SegmentUpdate,
)
from tests.broker.cli.tiering.conftest import Remote
from tests.broker.cli.tiering.harness import (
    CLUSTER_ID,
    FOO_ID,
    METADATA_PARTITIONS,
    METADATA_TOPIC,
    SEGMENT_TIME_MS,
    RemoteCommandHarness,
)

OTHER_ID = Uuid(bytes(15) + b"\x67")
NOW = ("--grace-ms", "0")


def last(lines: list[str]) -> str:
    return lines[-1]


class TestDescribe:
    def test_json_reports_local_and_remote_bounds(self, harness: RemoteCommandHarness, remote: Remote) -> None:
        harness.topic("foo", FOO_ID, (2, 15, 19, 30), (0, 0, -1, 0))
        sizes = [harness.finished(harness.partition(), start, start + 9).size_bytes for start in (0, 10)]
        harness.publish(harness.copy(harness.partition(), 20, 29))
        [first, second] = json.loads(remote("describe", "--json").out)
        assert first == {
            "topic": "foo",
            "topicId": uuid_to_text(FOO_ID),
            "partition": 0,
            "exists": True,
            "logStartOffset": 2,
            "localLogStartOffset": 15,
            "highestRemoteOffset": 19,
            "logEndOffset": 30,
            "localBytes": 100,
            "remoteBytes": sum(sizes),
            "remoteStartOffset": 0,
            "remoteEndOffset": 19,
            "oldestTimestampMs": SEGMENT_TIME_MS,
            "newestTimestampMs": SEGMENT_TIME_MS,
            "segments": {"COPY_STARTED": 1, "COPY_FINISHED": 2},
        }
        assert (second["partition"], second["remoteBytes"], second["segments"]) == (1, 0, {})

    def test_text_reports_a_row_per_partition(self, harness: RemoteCommandHarness, remote: Remote) -> None:
        harness.topic("foo", FOO_ID, (2, 15, 19, 30))
        segment = harness.finished(harness.partition(), 0, 9)
        headings, row, total = remote("describe").lines
        assert headings.split()[:4] == ["TOPIC", "PARTITION", "LOG-START", "LOCAL-START"]
        assert row.split()[:10] == ["foo", "0", "2", "15", "19", "30", "100", str(segment.size_bytes), "1", "-"]
        assert total == f"1 partitions, 1 remote segments, {segment.size_bytes} bytes remote, 100 bytes local"

    def test_deleted_topic_is_marked_as_gone(self, harness: RemoteCommandHarness, remote: Remote) -> None:
        harness.finished(harness.partition(), 0, 9)
        [row] = json.loads(remote("describe", "--json").out)
        assert (row["exists"], row["logStartOffset"], row["remoteEndOffset"]) == (False, None, 9)

    def test_topic_option_selects_one_topic(self, harness: RemoteCommandHarness, remote: Remote) -> None:
        harness.topic("foo", FOO_ID, (0, 0, -1, 0))
        harness.topic("bar", OTHER_ID, (0, 0, -1, 0))
        assert [row["topic"] for row in json.loads(remote("describe", "--topic", "bar", "--json").out)] == ["bar"]

    def test_topic_that_cannot_be_tiered_is_left_out(self, harness: RemoteCommandHarness, remote: Remote) -> None:
        harness.topic("foo", FOO_ID, (0, 0, -1, 0))
        harness.topic("__consumer_offsets", OTHER_ID, (0, 0, -1, 0))
        assert [row["topic"] for row in json.loads(remote("describe", "--json").out)] == ["foo"]

    def test_from_bucket_works_without_a_cluster(self, harness: RemoteCommandHarness, remote: Remote) -> None:
        harness.copy(harness.partition(), 5, 9)
        harness.broker.hang_up()
        [row] = json.loads(remote("describe", "--from-bucket", "--json").out)
        assert (row["logStartOffset"], row["highestRemoteOffset"], row["segments"]) == (5, 9, {"COPY_FINISHED": 1})

    def test_missing_bucket_settings_are_reported(self, harness: RemoteCommandHarness, remote: Remote) -> None:
        harness.config.write_text("")
        outcome = remote("describe", "--from-bucket")
        assert outcome.code == 1
        assert "remote.log.storage.manager.class.name" in outcome.err

    @pytest.mark.parametrize(
        ("settings", "named"),
        [
            ("local", "rsm.config.storage.root"),
            ("s3", "rsm.config.storage.s3.bucket.name"),
            ("somewhere.Else", "remote.log.storage.manager.class.name"),
        ],
    )
    def test_invalid_bucket_settings_are_reported(
        self, harness: RemoteCommandHarness, remote: Remote, settings: str, named: str
    ) -> None:
        harness.config.write_text(f"remote.log.storage.manager.class.name={settings}\n")
        outcome = remote("describe", "--from-bucket")
        assert outcome.code == 1
        assert named in outcome.err

    @pytest.mark.parametrize(
        ("passed_ms", "shown"),
        [(0, "0s"), (59_999, "59s"), (60_000, "1m0s"), (3_600_000 * 25, "1d1h"), (-5, "0s"), (3_601_000, "1h0m")],
    )
    def test_age_has_two_units(self, passed_ms: int, shown: str) -> None:
        assert age(0, passed_ms) == shown


class TestVerify:
    def test_consistent_bucket_has_no_findings(self, harness: RemoteCommandHarness, remote: Remote) -> None:
        harness.topic("foo", FOO_ID, (0, 10, 19, 30))
        for start in (0, 10):
            harness.finished(harness.partition(), start, start + 9)
        outcome = remote("verify", "--deep")
        assert (outcome.code, outcome.lines, outcome.err) == (0, ["1 partitions: 2 live"], "")

    def test_every_finding_is_reported_and_fails_the_command(
        self, harness: RemoteCommandHarness, remote: Remote
    ) -> None:
        harness.topic("foo", FOO_ID, (0, 10, 19, 30))
        dangling = harness.finished(harness.partition(), 0, 9)
        harness.delete_objects(dangling, ObjectSuffix.LOG)
        harness.finished(harness.partition(), 10, 19)
        harness.copy(harness.partition(), 10, 19)
        harness.publish(harness.copy(harness.partition(), 20, 29))
        outcome = remote("verify", *NOW)
        assert outcome.code == 1
        assert [line.split(": ")[1] for line in outcome.lines[:3]] == ["dangling", "orphan", "abandoned copy"]
        assert "missing log" in outcome.lines[0]
        assert "`ottla remote give-up --topic foo --partition 0`" in outcome.lines[3]
        assert outcome.lines[4:] == ["1 partitions: 1 live, 1 orphan, 1 abandoned copy, 1 dangling"]
        assert outcome.err == "Error: 3 finding(s): bucket and metadata differ.\n"

    def test_json_has_all_findings(self, harness: RemoteCommandHarness, remote: Remote) -> None:
        harness.topic("foo", FOO_ID, (0, 10, 19, 30))
        segment = harness.finished(harness.partition(), 0, 9)
        harness.delete_objects(segment, ObjectSuffix.INDEXES)
        document = json.loads(remote("verify", "--json").out)
        [partition] = document["partitions"]
        assert partition["segments"] == {"dangling": 1}
        [finding] = partition["findings"]
        assert (finding["segmentId"], finding["missing"]) == (uuid_to_text(segment.id.id), ["indexes"])

    def test_deep_verify_finds_damage(self, harness: RemoteCommandHarness, remote: Remote) -> None:
        harness.topic("foo", FOO_ID, (0, 10, 19, 30))
        segment = harness.finished(harness.partition(), 0, 9)
        path = harness.root / harness.keys.key(segment, ObjectSuffix.LOG)
        damaged = bytearray(path.read_bytes())
        damaged[70] ^= 1
        path.write_bytes(damaged)
        assert remote("verify").code == 0
        outcome = remote("verify", "--deep")
        assert outcome.code == 1
        assert "damaged" in outcome.lines[0]

    def test_deep_verify_finds_wrong_metadata(self, harness: RemoteCommandHarness, remote: Remote) -> None:
        harness.topic("foo", FOO_ID, (0, 10, 19, 30))
        segment = harness.copy(harness.partition(), 0, 9)
        wrong = replace(segment, end_offset=8, size_bytes=segment.size_bytes + 1)
        harness.publish(wrong, SegmentUpdate(wrong.id, SegmentState.COPY_FINISHED, 1, BrokerId(1)))
        faults = [line.rpartition(": ")[2] for line in remote("verify", "--deep").lines[:-1]]
        assert "the manifest has another end offset than metadata" in faults
        assert "the manifest has another size bytes than metadata" in faults
        assert any("metadata say" in fault for fault in faults)
        assert "offset 0 is out of place" in faults

    def test_missing_metadata_topic_is_reported_with_a_remedy(
        self, harness: RemoteCommandHarness, remote: Remote
    ) -> None:
        del harness.broker.topics[METADATA_TOPIC]
        outcome = remote("verify")
        assert outcome.code == 1
        assert "ottla remote recover" in outcome.err


class TestCollect:
    @pytest.fixture(autouse=True)
    def leftovers(self, harness: RemoteCommandHarness) -> None:
        harness.topic("foo", FOO_ID, (0, 10, 19, 30))
        self.live = [harness.finished(harness.partition(), start, start + 9) for start in (0, 10)]
        harness.copy(harness.partition(), 0, 9)
        abandoned = harness.copy(harness.partition(), 20, 29)
        harness.publish(abandoned)
        harness.delete_objects(abandoned, ObjectSuffix.MANIFEST)

    def test_collect_removes_leftovers_and_keeps_live_segments(
        self, harness: RemoteCommandHarness, remote: Remote
    ) -> None:
        outcome = remote("collect", *NOW)
        assert (outcome.code, last(outcome.lines)) == (0, "2 segments and 0 other objects removed")
        live = sorted(harness.keys.key(segment, suffix) for segment in self.live for suffix in ObjectSuffix)
        assert harness.object_keys() == live
        assert [each.start_offset for each in harness.known().get(harness.partition()).segments.segments()] == [0, 10]
        assert remote("verify", "--deep", *NOW).code == 0
        assert remote("collect", *NOW).lines == ["0 segments and 0 other objects removed"]

    def test_dry_run_removes_nothing(self, harness: RemoteCommandHarness, remote: Remote) -> None:
        before = harness.object_keys()
        outcome = remote("collect", "--dry-run", *NOW)
        assert last(outcome.lines) == "2 segments and 0 other objects would be removed"
        assert harness.object_keys() == before

    def test_collect_keeps_objects_within_the_grace_period(self, harness: RemoteCommandHarness, remote: Remote) -> None:
        outcome = remote("collect")
        assert last(outcome.lines) == "0 segments and 0 other objects removed"

    def test_json_has_all_findings(self, harness: RemoteCommandHarness, remote: Remote) -> None:
        document = json.loads(remote("collect", "--json", *NOW).out)
        assert [each["finding"] for each in document["removed"]] == ["orphan", "abandoned copy"]

    def test_collect_removes_no_copied_segment_when_metadata_are_lost(
        self, harness: RemoteCommandHarness, remote: Remote
    ) -> None:
        harness.broker.log.clear()
        harness.broker.ends.clear()
        before = harness.object_keys()
        remote("collect", *NOW)
        expected = [key for key in before if "AAAAAAAAAAAAAAAAAAAABA" not in key]
        assert harness.object_keys() == expected, "segments with a manifest are kept"

    def test_gone_topic_is_removed_only_by_its_id(self, harness: RemoteCommandHarness, remote: Remote) -> None:
        gone = harness.partition(topic="old", topic_id=OTHER_ID)
        harness.finished(gone, 0, 9)
        harness.describe("old", OTHER_ID, 1)
        LogStartWriter(
            harness.store,
            harness.keys.partition(gone),
            leader_epoch=LeaderEpoch(1),
            cluster_id=CLUSTER_ID,
            broker_id=BrokerId(1),
            interval_ms=0,
        ).write(3, 0)
        assert remote("verify", "--topic", "old", *NOW).code == 1
        assert last(remote("collect", "--topic", "old", *NOW).lines) == "0 segments and 0 other objects removed"
        outcome = remote("collect", "--topic", "old", "--gone-topic", uuid_to_text(OTHER_ID), *NOW)
        assert last(outcome.lines) == "1 segments and 2 other objects removed"
        assert not [key for key in harness.object_keys() if "old-" in key]

    def test_existing_topic_is_refused_as_gone_topic(self, harness: RemoteCommandHarness, remote: Remote) -> None:
        outcome = remote("collect", "--gone-topic", uuid_to_text(FOO_ID))
        assert (outcome.code, outcome.err) == (
            1,
            "Error: --gone-topic: topics foo exist in the cluster.\n",
        )

    def test_topic_of_another_cluster_is_kept(self, harness: RemoteCommandHarness, remote: Remote) -> None:
        harness.copy(harness.partition(topic="theirs", topic_id=OTHER_ID), 0, 9)
        harness.describe("theirs", OTHER_ID, 1, cluster_id="elsewhere")
        before = [key for key in harness.object_keys() if "theirs" in key]
        remote("collect", "--gone-topic", uuid_to_text(OTHER_ID), *NOW)
        assert [key for key in harness.object_keys() if "theirs" in key] == before
        assert "belong to another cluster" in last(remote("verify", *NOW).lines)

    def test_topic_taken_over_belongs_to_this_cluster(self, harness: RemoteCommandHarness, remote: Remote) -> None:
        """The topic's description has the lost cluster's id until the new leader writes it."""
        harness.describe("foo", FOO_ID, 1, cluster_id="lost")
        assert last(remote("collect", *NOW).lines) == "2 segments and 0 other objects removed"

    def test_topic_created_during_the_audit_exists(self, harness: RemoteCommandHarness, remote: Remote) -> None:
        made = harness.partition(topic="new", topic_id=OTHER_ID)
        harness.finished(made, 0, 9)
        harness.broker.on_metadata_request = lambda: harness.topic("new", OTHER_ID, (0, 0, 9, 20))
        assert remote("verify", "--topic", "new").lines == ["1 partitions: 1 live"]


class TestRecover:
    def test_metadata_only_republishes_lost_events(self, harness: RemoteCommandHarness, remote: Remote) -> None:
        harness.topic("foo", FOO_ID, (0, 10, 19, 30))
        segments = [harness.finished(harness.partition(), start, start + 9) for start in (0, 10)]
        harness.broker.log.clear()
        harness.broker.ends.clear()
        assert remote("recover", "--metadata-only").code == 0
        known = harness.known().get(harness.partition()).segments.segments()
        assert [(each.id, each.state, each.size_bytes) for each in known] == [
            (each.id, SegmentState.COPY_FINISHED, each.size_bytes) for each in segments
        ]
        assert remote("verify", "--deep", *NOW).code == 0
        end = dict(harness.broker.ends)
        assert remote("recover", "--metadata-only").code == 0
        assert dict(harness.broker.ends) == end, "no events were missing"

    def test_lost_topic_is_restored(self, harness: RemoteCommandHarness, remote: Remote) -> None:
        harness.copy(harness.partition(1), 4, 9, [(0, 0), (6, 5)], producer_id=4_711)
        harness.describe("foo", FOO_ID, 2)
        harness.broker.bounds["foo"] = [(0, 0, -1, 0), (4, 10, 9, 10)]
        outcome = remote("recover", "--topic", "foo")
        assert (outcome.code, outcome.err) == (0, "")
        trial, request = harness.broker.received(RestoreTopicsRequest)
        assert (trial.validate_only, request.validate_only) == (True, False)
        [topic] = request.topics
        assert (topic.name, topic.topic_id, topic.replication_factor) == ("foo", FOO_ID, 1)
        assert topic.leader_epochs == [8, 8]
        assert request.min_next_producer_id == 4_712
        assert {each.name: each.value for each in topic.configs} == {
            "remote.storage.enable": "true",
            "retention.ms": "-1",
        }
        assert len(harness.known().get(harness.partition(1)).segments) == 1
        assert remote("recover", "--topic", "foo").lines == [f"foo ({uuid_to_text(FOO_ID)}): no events are missing"]

    def test_topics_of_a_lost_cluster_are_restored(self, harness: RemoteCommandHarness, remote: Remote) -> None:
        for name, topic_id in (("foo", FOO_ID), ("bar", OTHER_ID)):
            harness.copy(harness.partition(topic=name, topic_id=topic_id), 0, 9)
            harness.describe(name, topic_id, 1, cluster_id="lost")
            harness.broker.bounds[name] = [(0, 10, 9, 10)]
        refused = remote("recover", "--all-topics")
        assert refused.code == 1
        assert refused.err == "Error: not recovered: bar, foo.\n"
        assert "--from-cluster lost" in refused.out
        assert harness.broker.received(RestoreTopicsRequest) == []
        assert remote("recover", "--all-topics", "--from-cluster", "lost").code == 0
        assert sorted(harness.broker.topics) == [METADATA_TOPIC, "bar", "foo"]

    def test_dry_run_changes_nothing(self, harness: RemoteCommandHarness, remote: Remote) -> None:
        harness.copy(harness.partition(), 0, 9)
        harness.describe("foo", FOO_ID, 1)
        document = json.loads(remote("recover", "--topic", "foo", "--dry-run", "--json").out)
        [topic] = document["topics"]
        assert (topic["exists"], topic["missingEvents"]) == (False, 2)
        assert topic["partitions"][0]["nextOffset"] == 10
        assert harness.broker.received(RestoreTopicsRequest) == []
        assert not any(harness.broker.ends.values())

    def test_interrupted_recovery_continues(self, harness: RemoteCommandHarness, remote: Remote) -> None:
        """The interruption is after the publication of events."""
        harness.finished(harness.partition(), 0, 9)
        harness.describe("foo", FOO_ID, 1)
        harness.broker.bounds["foo"] = [(0, 10, 9, 10)]
        before = dict(harness.broker.ends)
        assert remote("recover", "--topic", "foo").code == 0
        assert dict(harness.broker.ends) == before
        assert harness.broker.ids["foo"] == FOO_ID

    def test_recovery_refused_by_the_controller_has_no_effect(
        self, harness: RemoteCommandHarness, remote: Remote
    ) -> None:
        harness.copy(harness.partition(), 0, 9)
        harness.describe("foo", FOO_ID, 1)
        harness.broker.refusal = (ErrorCode.INVALID_REPLICATION_FACTOR, "there are not so many brokers")
        outcome = remote("recover", "--topic", "foo")
        assert outcome.code == 1
        assert outcome.err.startswith("Error: there are not so many brokers. Start more brokers")
        assert not any(harness.broker.ends.values())

    def test_above_holes_gives_up_offsets_below_a_hole(self, harness: RemoteCommandHarness, remote: Remote) -> None:
        harness.copy(harness.partition(), 0, 9)
        harness.copy(harness.partition(), 20, 29)
        harness.describe("foo", FOO_ID, 1)
        harness.broker.bounds["foo"] = [(20, 30, 29, 30)]
        assert "--above-holes" in remote("recover", "--topic", "foo").out
        assert remote("recover", "--topic", "foo", "--above-holes").code == 0
        assert [key for key in harness.object_keys() if "log-start" in key] == [
            harness.keys.partition(harness.partition()) + "log-start-0000000004"
        ]

    def test_wrong_log_bounds_are_reported(
        self, harness: RemoteCommandHarness, remote: Remote, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("broker.cli.remote.VERIFY_TIMEOUT_S", 0)
        harness.copy(harness.partition(), 0, 9)
        harness.describe("foo", FOO_ID, 1)
        harness.broker.bounds["foo"] = [(0, 0, -1, 0)]
        outcome = remote("recover", "--topic", "foo")
        assert outcome.err == "Error: foo is restored, but foo-0 has offsets 0 to 0 instead of 0 to 10.\n"

    def test_topic_with_several_ids_needs_topic_id(self, harness: RemoteCommandHarness, remote: Remote) -> None:
        for topic_id in (FOO_ID, OTHER_ID):
            harness.copy(harness.partition(topic_id=topic_id), 0, 9)
            harness.describe("foo", topic_id, 1)
        harness.broker.bounds["foo"] = [(0, 10, 9, 10)]
        outcome = remote("recover", "--topic", "foo")
        assert outcome.code == 1
        assert uuid_to_text(OTHER_ID) in outcome.out
        assert remote("recover", "--topic", "foo", "--topic-id", uuid_to_text(OTHER_ID)).code == 0
        assert harness.broker.ids["foo"] == OTHER_ID

    def test_deleted_topic_is_not_restored(self, harness: RemoteCommandHarness, remote: Remote) -> None:
        harness.copy(harness.partition(), 0, 9)
        harness.publish(PartitionDelete(harness.partition(), PartitionDeleteState.MARKED, 0, BrokerId(1)))
        outcome = remote("recover", "--all-topics")
        assert outcome.code == 1
        assert "was deleted" in outcome.out

    def test_recover_needs_exactly_one_scope(self, remote: Remote) -> None:
        assert remote("recover").code == 2
        assert remote("recover", "--metadata-only", "--all-topics").code == 2

    def test_topic_without_data_cannot_be_recovered(self, remote: Remote) -> None:
        outcome = remote("recover", "--topic", "nope")
        assert (outcome.code, outcome.err) == (
            1,
            "Error: the bucket has no recoverable data of topic 'nope'.\n",
        )


class TestMetadataTopic:
    def test_reading_restarts_when_records_are_deleted_meanwhile(
        self, harness: RemoteCommandHarness, remote: Remote
    ) -> None:
        harness.topic("foo", FOO_ID, (0, 10, 9, 30))
        segment = harness.finished(harness.partition(), 0, 9)
        number = metadata_partition(harness.partition(), METADATA_PARTITIONS)
        harness.publish(segment, SegmentUpdate(segment.id, SegmentState.COPY_FINISHED, 1, BrokerId(1)))
        harness.broker.next_log_start[number] = 2
        outcome = remote("verify")
        assert outcome.lines == ["1 partitions: 1 live"]

    def test_undecodable_records_are_skipped(self, harness: RemoteCommandHarness, remote: Remote) -> None:
        harness.topic("foo", FOO_ID, (0, 10, 9, 30))
        for number in range(METADATA_PARTITIONS):
            harness.broker.append(number, build_batch([Record(0, None, b"?", ()), Record(0, None, None, ())]))
        harness.finished(harness.partition(), 0, 9)
        assert remote("verify").lines == ["1 partitions: 1 live"]


def test_events_of_a_segment_stay_in_one_batch(harness: RemoteCommandHarness) -> None:
    segment = harness.copy(harness.partition(), 0, 9)
    events = []
    for number in range(SEGMENTS_PER_BATCH + 1):
        identity = segment.id._replace(id=Uuid(number.to_bytes(16, "big")))
        events.append(SegmentUpdate(identity, SegmentState.DELETE_STARTED, 0, BrokerId(1)))
        events.append(SegmentUpdate(identity, SegmentState.DELETE_FINISHED, 0, BrokerId(1)))
    assert [len(batch) for batch in batches(events)] == [2 * SEGMENTS_PER_BATCH, 2]


@pytest.mark.parametrize("subcommand", [("describe",), ("verify",), ("collect",), ("recover", "--metadata-only")])
def test_custom_metadata_manager_is_refused(
    harness: RemoteCommandHarness, remote: Remote, subcommand: tuple[str, ...]
) -> None:
    done = remote(*subcommand, "--override", "remote.log.metadata.manager.class.name=theirs:Keeper")
    assert done.code == 1
    assert done.err.startswith("Error: remote.log.metadata.manager.class.name is theirs:Keeper; this command supports")
    assert not harness.broker.log
