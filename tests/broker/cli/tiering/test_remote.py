"""`ottla remote`: describe, verify, collect, recover, against a bucket in a directory and a metadata topic of bytes."""

import json
from dataclasses import replace

import pytest

from broker.cli.tiering.remote_partitions import age
from broker.cli.tiering.topic_recovery import SEGMENTS_PER_BATCH, batches
from protocol.errors import ErrorCode
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
    def test_what_is_where(self, harness: RemoteCommandHarness, remote: Remote) -> None:
        harness.topic("foo", FOO_ID, (2, 15, 19, 30), (0, 0, -1, 0))
        sizes = [harness.finished(harness.partition(), start, start + 9).size_bytes for start in (0, 10)]
        harness.say(harness.copy(harness.partition(), 20, 29))
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

    def test_as_text(self, harness: RemoteCommandHarness, remote: Remote) -> None:
        harness.topic("foo", FOO_ID, (2, 15, 19, 30))
        segment = harness.finished(harness.partition(), 0, 9)
        headings, row, total = remote("describe").lines
        assert headings.split()[:4] == ["TOPIC", "PARTITION", "LOG-START", "LOCAL-START"]
        assert row.split()[:10] == ["foo", "0", "2", "15", "19", "30", "100", str(segment.size_bytes), "1", "-"]
        assert total == f"1 partitions, 1 remote segments, {segment.size_bytes} bytes remote, 100 bytes local"

    def test_topics_that_are_gone(self, harness: RemoteCommandHarness, remote: Remote) -> None:
        harness.finished(harness.partition(), 0, 9)
        [row] = json.loads(remote("describe", "--json").out)
        assert (row["exists"], row["logStartOffset"], row["remoteEndOffset"]) == (False, None, 9)

    def test_one_topic(self, harness: RemoteCommandHarness, remote: Remote) -> None:
        harness.topic("foo", FOO_ID, (0, 0, -1, 0))
        harness.topic("bar", OTHER_ID, (0, 0, -1, 0))
        assert [row["topic"] for row in json.loads(remote("describe", "--topic", "bar", "--json").out)] == ["bar"]

    def test_topics_that_never_have_remote_storage_are_left_out_whatever_their_default(
        self, harness: RemoteCommandHarness, remote: Remote
    ) -> None:
        harness.topic("foo", FOO_ID, (0, 0, -1, 0))
        harness.topic("__consumer_offsets", OTHER_ID, (0, 0, -1, 0))
        assert [row["topic"] for row in json.loads(remote("describe", "--json").out)] == ["foo"]

    def test_a_bucket_alone(self, harness: RemoteCommandHarness, remote: Remote) -> None:
        harness.copy(harness.partition(), 5, 9)
        harness.broker.hang_up()
        [row] = json.loads(remote("describe", "--from-bucket", "--json").out)
        assert (row["logStartOffset"], row["highestRemoteOffset"], row["segments"]) == (5, 9, {"COPY_FINISHED": 1})

    def test_a_bucket_must_be_named(self, harness: RemoteCommandHarness, remote: Remote) -> None:
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
    def test_settings_that_name_no_bucket(
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
    def test_ages_have_two_units(self, passed_ms: int, shown: str) -> None:
        assert age(0, passed_ms) == shown


class TestVerify:
    def test_all_in_order(self, harness: RemoteCommandHarness, remote: Remote) -> None:
        harness.topic("foo", FOO_ID, (0, 10, 19, 30))
        for start in (0, 10):
            harness.finished(harness.partition(), start, start + 9)
        outcome = remote("verify", "--deep")
        assert (outcome.code, outcome.lines, outcome.err) == (0, ["1 partitions: 2 live"], "")

    def test_every_finding_is_told_and_fails_the_command(self, harness: RemoteCommandHarness, remote: Remote) -> None:
        harness.topic("foo", FOO_ID, (0, 10, 19, 30))
        dangling = harness.finished(harness.partition(), 0, 9)
        harness.lose(dangling, ObjectSuffix.LOG)
        harness.finished(harness.partition(), 10, 19)
        harness.copy(harness.partition(), 10, 19)
        harness.say(harness.copy(harness.partition(), 20, 29))
        outcome = remote("verify", *NOW)
        assert outcome.code == 1
        assert [line.split(": ")[1] for line in outcome.lines[:3]] == ["dangling", "orphan", "abandoned copy"]
        assert "missing log" in outcome.lines[0]
        assert outcome.lines[3:] == ["1 partitions: 1 live, 1 orphan, 1 abandoned copy, 1 dangling"]
        assert outcome.err == "Error: 3 finding(s): bucket and metadata differ.\n"

    def test_as_json(self, harness: RemoteCommandHarness, remote: Remote) -> None:
        harness.topic("foo", FOO_ID, (0, 10, 19, 30))
        segment = harness.finished(harness.partition(), 0, 9)
        harness.lose(segment, ObjectSuffix.INDEXES)
        document = json.loads(remote("verify", "--json").out)
        [partition] = document["partitions"]
        assert partition["segments"] == {"dangling": 1}
        [finding] = partition["findings"]
        assert (finding["segmentId"], finding["missing"]) == (uuid_to_text(segment.id.id), ["indexes"])

    def test_damage_is_found_by_reading_everything(self, harness: RemoteCommandHarness, remote: Remote) -> None:
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

    def test_metadata_that_are_wrong_are_found_by_reading_everything(
        self, harness: RemoteCommandHarness, remote: Remote
    ) -> None:
        harness.topic("foo", FOO_ID, (0, 10, 19, 30))
        segment = harness.copy(harness.partition(), 0, 9)
        said = replace(segment, end_offset=8, size_bytes=segment.size_bytes + 1)
        harness.say(said, SegmentUpdate(said.id, SegmentState.COPY_FINISHED, 1, 1))
        faults = [line.rpartition(": ")[2] for line in remote("verify", "--deep").lines[:-1]]
        assert "the manifest has another end offset than metadata" in faults
        assert "the manifest has another size bytes than metadata" in faults
        assert any("metadata say" in fault for fault in faults)
        assert "offset 0 is out of place" in faults

    def test_without_a_metadata_topic_it_says_what_to_do(self, harness: RemoteCommandHarness, remote: Remote) -> None:
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
        harness.say(abandoned)
        harness.lose(abandoned, ObjectSuffix.MANIFEST)

    def test_what_is_left_over_goes_and_what_is_live_stays(self, harness: RemoteCommandHarness, remote: Remote) -> None:
        outcome = remote("collect", *NOW)
        assert (outcome.code, last(outcome.lines)) == (0, "2 segments and 0 other objects removed")
        live = sorted(harness.keys.key(segment, suffix) for segment in self.live for suffix in ObjectSuffix)
        assert harness.object_keys() == live
        assert [each.start_offset for each in harness.known().get(harness.partition()).segments.segments()] == [0, 10]
        assert remote("verify", "--deep", *NOW).code == 0
        assert remote("collect", *NOW).lines == ["0 segments and 0 other objects removed"]

    def test_a_dry_run_removes_nothing(self, harness: RemoteCommandHarness, remote: Remote) -> None:
        before = harness.object_keys()
        outcome = remote("collect", "--dry-run", *NOW)
        assert last(outcome.lines) == "2 segments and 0 other objects would be removed"
        assert harness.object_keys() == before

    def test_what_is_young_is_left_alone(self, harness: RemoteCommandHarness, remote: Remote) -> None:
        outcome = remote("collect")
        assert last(outcome.lines) == "0 segments and 0 other objects removed"

    def test_as_json(self, harness: RemoteCommandHarness, remote: Remote) -> None:
        document = json.loads(remote("collect", "--json", *NOW).out)
        assert [each["finding"] for each in document["removed"]] == ["orphan", "abandoned copy"]

    def test_lost_metadata_cost_no_data(self, harness: RemoteCommandHarness, remote: Remote) -> None:
        harness.broker.log.clear()
        harness.broker.ends.clear()
        before = harness.object_keys()
        remote("collect", *NOW)
        whole = [key for key in before if "AAAAAAAAAAAAAAAAAAAABA" not in key]
        assert harness.object_keys() == whole, "all but what never had a manifest"

    def test_a_gone_topic_goes_by_its_id_alone(self, harness: RemoteCommandHarness, remote: Remote) -> None:
        gone = harness.partition(topic="old", topic_id=OTHER_ID)
        harness.finished(gone, 0, 9)
        harness.describe("old", OTHER_ID, 1)
        LogStartWriter(
            harness.store,
            harness.keys.partition(gone),
            leader_epoch=1,
            cluster_id=CLUSTER_ID,
            broker_id=1,
            interval_ms=0,
        ).write(3, 0)
        assert remote("verify", "--topic", "old", *NOW).code == 1
        assert last(remote("collect", "--topic", "old", *NOW).lines) == "0 segments and 0 other objects removed"
        outcome = remote("collect", "--topic", "old", "--gone-topic", uuid_to_text(OTHER_ID), *NOW)
        assert last(outcome.lines) == "1 segments and 2 other objects removed"
        assert not [key for key in harness.object_keys() if "old-" in key]

    def test_a_topic_that_is_there_is_not_gone(self, harness: RemoteCommandHarness, remote: Remote) -> None:
        outcome = remote("collect", "--gone-topic", uuid_to_text(FOO_ID))
        assert (outcome.code, outcome.err) == (
            1,
            "Error: --gone-topic: topics foo exist in the cluster.\n",
        )

    def test_another_clusters_topic_is_not_touched(self, harness: RemoteCommandHarness, remote: Remote) -> None:
        harness.copy(harness.partition(topic="theirs", topic_id=OTHER_ID), 0, 9)
        harness.describe("theirs", OTHER_ID, 1, cluster_id="elsewhere")
        before = [key for key in harness.object_keys() if "theirs" in key]
        remote("collect", "--gone-topic", uuid_to_text(OTHER_ID), *NOW)
        assert [key for key in harness.object_keys() if "theirs" in key] == before
        assert "belong to another cluster" in last(remote("verify", *NOW).lines)

    def test_what_was_taken_over_is_ours(self, harness: RemoteCommandHarness, remote: Remote) -> None:
        """Until its new leader says so, the topic's description names the cluster that is lost."""
        harness.describe("foo", FOO_ID, 1, cluster_id="lost")
        assert last(remote("collect", *NOW).lines) == "2 segments and 0 other objects removed"

    def test_a_topic_that_was_made_meanwhile_is_there(self, harness: RemoteCommandHarness, remote: Remote) -> None:
        made = harness.partition(topic="new", topic_id=OTHER_ID)
        harness.finished(made, 0, 9)
        harness.broker.when_asked_again = lambda: harness.topic("new", OTHER_ID, (0, 0, 9, 20))
        assert remote("verify", "--topic", "new").lines == ["1 partitions: 1 live"]


class TestRecover:
    def test_lost_metadata(self, harness: RemoteCommandHarness, remote: Remote) -> None:
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
        assert dict(harness.broker.ends) == end, "nothing was missing any more"

    def test_a_lost_topic(self, harness: RemoteCommandHarness, remote: Remote) -> None:
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

    def test_a_lost_cluster(self, harness: RemoteCommandHarness, remote: Remote) -> None:
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

    def test_a_dry_run_changes_nothing(self, harness: RemoteCommandHarness, remote: Remote) -> None:
        harness.copy(harness.partition(), 0, 9)
        harness.describe("foo", FOO_ID, 1)
        document = json.loads(remote("recover", "--topic", "foo", "--dry-run", "--json").out)
        [topic] = document["topics"]
        assert (topic["exists"], topic["missingEvents"]) == (False, 2)
        assert topic["partitions"][0]["nextOffset"] == 10
        assert harness.broker.received(RestoreTopicsRequest) == []
        assert not any(harness.broker.ends.values())

    def test_a_recovery_that_was_cut_short_goes_on(self, harness: RemoteCommandHarness, remote: Remote) -> None:
        """Events were published, and nothing after."""
        harness.finished(harness.partition(), 0, 9)
        harness.describe("foo", FOO_ID, 1)
        harness.broker.bounds["foo"] = [(0, 10, 9, 10)]
        before = dict(harness.broker.ends)
        assert remote("recover", "--topic", "foo").code == 0
        assert dict(harness.broker.ends) == before
        assert harness.broker.ids["foo"] == FOO_ID

    def test_nothing_is_begun_that_the_controller_would_refuse(
        self, harness: RemoteCommandHarness, remote: Remote
    ) -> None:
        harness.copy(harness.partition(), 0, 9)
        harness.describe("foo", FOO_ID, 1)
        harness.broker.refusal = (ErrorCode.INVALID_REPLICATION_FACTOR, "there are not so many brokers")
        outcome = remote("recover", "--topic", "foo")
        assert (outcome.code, outcome.err) == (1, "Error: there are not so many brokers\n")
        assert not any(harness.broker.ends.values())

    def test_offsets_below_a_hole_are_given_up_when_told(self, harness: RemoteCommandHarness, remote: Remote) -> None:
        harness.copy(harness.partition(), 0, 9)
        harness.copy(harness.partition(), 20, 29)
        harness.describe("foo", FOO_ID, 1)
        harness.broker.bounds["foo"] = [(20, 30, 29, 30)]
        assert "--above-holes" in remote("recover", "--topic", "foo").out
        assert remote("recover", "--topic", "foo", "--above-holes").code == 0
        assert [key for key in harness.object_keys() if "log-start" in key] == [
            harness.keys.partition(harness.partition()) + "log-start-0000000004"
        ]

    def test_a_log_that_does_not_begin_where_it_should_is_told(
        self, harness: RemoteCommandHarness, remote: Remote, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("broker.cli.remote.VERIFY_TIMEOUT_S", 0)
        harness.copy(harness.partition(), 0, 9)
        harness.describe("foo", FOO_ID, 1)
        harness.broker.bounds["foo"] = [(0, 0, -1, 0)]
        outcome = remote("recover", "--topic", "foo")
        assert outcome.err == "Error: foo is restored, but foo-0 has offsets 0 to 0 instead of 0 to 10.\n"

    def test_of_several_incarnations_one_must_be_named(self, harness: RemoteCommandHarness, remote: Remote) -> None:
        for topic_id in (FOO_ID, OTHER_ID):
            harness.copy(harness.partition(topic_id=topic_id), 0, 9)
            harness.describe("foo", topic_id, 1)
        harness.broker.bounds["foo"] = [(0, 10, 9, 10)]
        outcome = remote("recover", "--topic", "foo")
        assert outcome.code == 1
        assert uuid_to_text(OTHER_ID) in outcome.out
        assert remote("recover", "--topic", "foo", "--topic-id", uuid_to_text(OTHER_ID)).code == 0
        assert harness.broker.ids["foo"] == OTHER_ID

    def test_a_deleted_topic_stays_deleted(self, harness: RemoteCommandHarness, remote: Remote) -> None:
        harness.copy(harness.partition(), 0, 9)
        harness.say(PartitionDelete(harness.partition(), PartitionDeleteState.MARKED, 0, 1))
        outcome = remote("recover", "--all-topics")
        assert outcome.code == 1
        assert "was deleted" in outcome.out

    def test_what_is_lost_must_be_said(self, remote: Remote) -> None:
        assert remote("recover").code == 2
        assert remote("recover", "--metadata-only", "--all-topics").code == 2

    def test_a_topic_of_which_there_is_nothing(self, remote: Remote) -> None:
        outcome = remote("recover", "--topic", "nope")
        assert (outcome.code, outcome.err) == (
            1,
            "Error: the bucket has no recoverable data of topic 'nope'.\n",
        )


class TestMetadataTopic:
    def test_records_that_were_removed_while_they_were_read_are_read_anew(
        self, harness: RemoteCommandHarness, remote: Remote
    ) -> None:
        harness.topic("foo", FOO_ID, (0, 10, 9, 30))
        segment = harness.finished(harness.partition(), 0, 9)
        number = metadata_partition(harness.partition(), METADATA_PARTITIONS)
        harness.say(segment, SegmentUpdate(segment.id, SegmentState.COPY_FINISHED, 1, 1))
        harness.broker.removed_meanwhile[number] = 2
        outcome = remote("verify")
        assert outcome.lines == ["1 partitions: 1 live"]

    def test_records_that_mean_nothing_are_passed_over(self, harness: RemoteCommandHarness, remote: Remote) -> None:
        harness.topic("foo", FOO_ID, (0, 10, 9, 30))
        for number in range(METADATA_PARTITIONS):
            harness.broker.append(number, build_batch([Record(0, None, b"?", ()), Record(0, None, None, ())]))
        harness.finished(harness.partition(), 0, 9)
        assert remote("verify").lines == ["1 partitions: 1 live"]


def test_events_of_a_segment_are_never_parted(harness: RemoteCommandHarness) -> None:
    segment = harness.copy(harness.partition(), 0, 9)
    events = []
    for number in range(SEGMENTS_PER_BATCH + 1):
        identity = segment.id._replace(id=Uuid(number.to_bytes(16, "big")))
        events.append(SegmentUpdate(identity, SegmentState.DELETE_STARTED, 0, 1))
        events.append(SegmentUpdate(identity, SegmentState.DELETE_FINISHED, 0, 1))
    assert [len(batch) for batch in batches(events)] == [2 * SEGMENTS_PER_BATCH, 2]


@pytest.mark.parametrize("subcommand", [("describe",), ("verify",), ("collect",), ("recover", "--metadata-only")])
def test_metadata_that_others_keep_are_left_alone(
    harness: RemoteCommandHarness, remote: Remote, subcommand: tuple[str, ...]
) -> None:
    done = remote(*subcommand, "--override", "remote.log.metadata.manager.class.name=theirs:Keeper")
    assert done.code == 1
    assert done.err.startswith("Error: remote.log.metadata.manager.class.name is theirs:Keeper; this command supports")
    assert not harness.broker.log
