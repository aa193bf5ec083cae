"""The commands features, leader-election and reassign-partitions."""

import json
from pathlib import Path

import pytest

from broker.cli.features import release_levels
from broker.metadata.image.metadata_version import MetadataVersion
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)
from protocol.messages.api_versions import ApiVersion, ApiVersionsResponse, FinalizedFeatureKey, SupportedFeatureKey
from protocol.messages.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
)
from protocol.messages.incremental_alter_configs import IncrementalAlterConfigsRequest, IncrementalAlterConfigsResponse
from protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsResponse,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
)
from protocol.messages.update_features import UpdateFeaturesRequest, UpdateFeaturesResponse
from tests.broker.cli.conftest import Ottla
from tests.support.fakes.fake_broker import NODE_ID, FakeBroker


class TestFeatures:
    @pytest.fixture(autouse=True)
    def levels(self, broker: FakeBroker) -> None:
        broker.answer(ApiKey.UPDATE_FEATURES, lambda _: UpdateFeaturesResponse())

    def test_describe(self, broker: FakeBroker, ottla: Ottla) -> None:
        answer = ApiVersionsResponse(
            api_keys=[ApiVersion(ApiKey.API_VERSIONS, 0, 4)],
            supported_features=[
                SupportedFeatureKey("metadata.version", 7, 29),
                SupportedFeatureKey("group.version", 0, 1),
            ],
            finalized_features=[FinalizedFeatureKey("metadata.version", 28, 28)],
            finalized_features_epoch=53,
        )
        broker.answer(ApiKey.API_VERSIONS, lambda _: answer)
        assert ottla("features", "describe").lines == [
            "Feature: group.version\tSupportedMinVersion: 0\tSupportedMaxVersion: 1\t"
            "FinalizedVersionLevel: 0\tEpoch: 53",
            "Feature: metadata.version\tSupportedMinVersion: 3.3-IV3\tSupportedMaxVersion: 4.2-IV1\t"
            "FinalizedVersionLevel: 4.2-IV0\tEpoch: 53",
        ]
        document = json.loads(ottla("features", "describe", "--json").out)
        assert [row["finalizedVersionLevel"] for row in document["features"]] == [0, 28]

    @pytest.mark.parametrize(
        ("arguments", "message", "kind", "dry_run"),
        [
            (["upgrade", "--feature", "group.version=1"], "group.version was upgraded to 1.", 1, False),
            (["upgrade", "--feature", "group.version=1", "--dry-run"], "group.version can be upgraded to 1.", 1, True),
            (["downgrade", "--feature", "group.version=0"], "group.version was downgraded to 0.", 2, False),
            (["downgrade", "--metadata", "3.9", "--unsafe"], "metadata.version was downgraded to 21.", 3, False),
            (["disable", "--feature", "group.version"], "group.version was disabled.", 2, False),
        ],
    )
    def test_levels_are_changed(
        self, arguments: list[str], message: str, kind: int, dry_run: bool, broker: FakeBroker, ottla: Ottla
    ) -> None:
        assert ottla("features", *arguments).out == message + "\n"
        (request,) = broker.received(UpdateFeaturesRequest)
        assert [update.upgrade_type for update in request.feature_updates] == [kind]
        assert request.validate_only is dry_run

    def test_release_version_sets_all_levels(self, broker: FakeBroker, ottla: Ottla) -> None:
        outcome = ottla("features", "upgrade", "--release-version", "4.2")
        assert "metadata.version was upgraded to 29." in outcome.lines
        (request,) = broker.received(UpdateFeaturesRequest)
        levels = {update.feature: update.max_version_level for update in request.feature_updates}
        assert levels == release_levels(MetadataVersion.IV_4_2_1)

    def test_refused_update_fails_all_features(self, broker: FakeBroker, ottla: Ottla) -> None:
        refusal = UpdateFeaturesResponse(error_code=ErrorCode.INVALID_UPDATE_VERSION, error_message="No such level.")
        broker.answer(ApiKey.UPDATE_FEATURES, lambda _: refusal)
        outcome = ottla("features", "upgrade", "--feature", "group.version=9", "--feature", "x.version=1")
        assert outcome.lines == [
            "Could not upgrade group.version to 9. No such level.",
            "Could not upgrade x.version to 1. No such level.",
        ]
        assert (outcome.code, outcome.err) == (1, "Error: 2 out of 2 operation(s) failed.\n")

    def test_mappings_and_dependencies_are_printed(self, ottla: Ottla) -> None:
        assert ottla("features", "version-mapping", "--release-version", "4.0-IV3").lines == [
            "metadata.version=25 (4.0-IV3)",
            "eligible.leader.replicas.version=0",
            "group.version=1",
            "kraft.version=1",
            "share.version=0",
            "streams.version=0",
            "transaction.version=2",
        ]
        wanted = ["--feature", "eligible.leader.replicas.version=1", "--feature", "metadata.version=25"]
        assert ottla("features", "feature-dependencies", *wanted).lines == [
            "eligible.leader.replicas.version=1 requires:",
            "    metadata.version=23 (4.0-IV1)",
            "metadata.version=25 (4.0-IV3) has no dependencies.",
        ]
        assert json.loads(ottla("features", "feature-dependencies", *wanted, "--json").out) == [
            {"feature": "eligible.leader.replicas.version", "level": 1, "requires": {"metadata.version": 23}},
            {"feature": "metadata.version", "level": 25, "requires": {}},
        ]
        assert ottla("features", "feature-dependencies", "--feature", "nope=1").err == "Error: Unknown feature: nope\n"

    @pytest.mark.parametrize(
        "arguments",
        [
            ["upgrade"],
            ["upgrade", "--release-version", "4.2", "--feature", "group.version=1"],
            ["upgrade", "--feature", "group.version=x"],
            ["upgrade", "--feature", "a=1", "--feature", "a=2"],
        ],
    )
    def test_wrong_usage_is_refused(self, arguments: list[str], ottla: Ottla) -> None:
        assert ottla("features", *arguments).code == 2


class TestLeaderElection:
    def elect(self, broker: FakeBroker, *results: PartitionResult) -> None:
        answer = ElectLeadersResponse(replica_election_results=[ReplicaElectionResult("t", list(results))])
        broker.answer(ApiKey.ELECT_LEADERS, lambda _: answer)

    def test_outcome_of_each_partition_is_printed(self, broker: FakeBroker, ottla: Ottla) -> None:
        self.elect(
            broker,
            PartitionResult(0, 0, None),
            PartitionResult(1, ErrorCode.ELECTION_NOT_NEEDED, None),
            PartitionResult(2, ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE, "It is down."),
        )
        outcome = ottla("leader-election", "--election-type", "PREFERRED", "--all-topic-partitions")
        assert outcome.lines == [
            "Successfully completed leader election (PREFERRED) for partitions t-0",
            "Valid replica already elected for partitions t-1",
            "Error completing leader election (PREFERRED) for partition: t-2: It is down.",
        ]
        assert (outcome.code, outcome.err) == (1, "Error: 1 replica(s) could not be elected; see the errors above.\n")
        (request,) = broker.received(ElectLeadersRequest)
        assert (request.election_type, request.topic_partitions) == (0, None)

    def test_partition_and_file_select_partitions(self, broker: FakeBroker, ottla: Ottla, tmp_path: Path) -> None:
        self.elect(broker, PartitionResult(0, 0, None))
        ottla("leader-election", "--election-type", "unclean", "--topic", "t", "--partition", "0")
        (tmp_path / "p").write_text('{"partitions": [{"topic": "t", "partition": 1}, {"topic": "u", "partition": 0}]}')
        outcome = ottla(
            "leader-election", "--election-type", "unclean", "--path-to-json-file", str(tmp_path / "p"), "--json"
        )
        assert json.loads(outcome.out) == [{"topic": "t", "partition": 0, "error": None}]
        requested = [
            [(each.topic, each.partitions) for each in request.topic_partitions or ()]
            for request in broker.received(ElectLeadersRequest)
        ]
        assert requested == [[("t", [0])], [("t", [1]), ("u", [0])]]

    @pytest.mark.parametrize(
        ("content", "message"),
        [
            ("{", "does not list partitions"),
            ('{"partitions": []}', "partitions list cannot be empty"),
            ('{"partitions": [{"topic": "t", "partition": 1}, {"topic": "t", "partition": 1}]}', "duplicate"),
        ],
    )
    def test_invalid_file_is_refused(self, content: str, message: str, ottla: Ottla, tmp_path: Path) -> None:
        (tmp_path / "p").write_text(content)
        outcome = ottla("leader-election", "--election-type", "unclean", "--path-to-json-file", str(tmp_path / "p"))
        assert outcome.code == 1
        assert message in outcome.err

    def test_topic_requires_partition(self, ottla: Ottla) -> None:
        assert ottla("leader-election", "--election-type", "preferred", "--topic", "t").code == 2


class TestReassignPartitions:
    @pytest.fixture(autouse=True)
    def cluster(self, broker: FakeBroker) -> None:
        broker.topics["t"] = 2
        broker.answer(ApiKey.ALTER_PARTITION_REASSIGNMENTS, lambda _: AlterPartitionReassignmentsResponse())
        broker.answer(ApiKey.INCREMENTAL_ALTER_CONFIGS, lambda _: IncrementalAlterConfigsResponse())
        self.list_ongoing(broker)

    def list_ongoing(self, broker: FakeBroker, *ongoing: OngoingPartitionReassignment) -> None:
        topics = [OngoingTopicReassignment("t", list(ongoing))] if ongoing else []
        answer = ListPartitionReassignmentsResponse(topics=topics)
        broker.answer(ApiKey.LIST_PARTITION_REASSIGNMENTS, lambda _: answer)

    @pytest.fixture
    def wanted(self, tmp_path: Path) -> str:
        (tmp_path / "r").write_text(
            '{"version": 1, "partitions": ['
            '{"topic": "t", "partition": 0, "replicas": [2, 1], "log_dirs": ["any", "any"]}]}'
        )
        return str(tmp_path / "r")

    def test_execute(self, broker: FakeBroker, ottla: Ottla, wanted: str) -> None:
        outcome = ottla("reassign-partitions", "--execute", "--reassignment-json-file", wanted)
        assert outcome.lines == [
            "Current partition replica assignment",
            "",
            '{"version":1,"partitions":[{"topic":"t","partition":0,"replicas":[1],"log_dirs":["any"]}]}',
            "",
            "Save this to use as the --reassignment-json-file option during rollback",
            "Successfully started partition reassignment for t-0",
        ]
        (request,) = broker.received(AlterPartitionReassignmentsRequest)
        assert [(p.partition_index, p.replicas) for p in request.topics[0].partitions] == [(0, [2, 1])]

    def test_ongoing_reassignment_requires_additional(self, broker: FakeBroker, ottla: Ottla, wanted: str) -> None:
        self.list_ongoing(broker, OngoingPartitionReassignment(1, [1, 2], [2], []))
        outcome = ottla("reassign-partitions", "--execute", "--reassignment-json-file", wanted)
        assert "Cannot execute because there is an existing partition assignment." in outcome.err
        assert ottla("reassign-partitions", "--execute", "--additional", "--reassignment-json-file", wanted).code == 0

    def test_refusal_is_reported(self, broker: FakeBroker, ottla: Ottla, wanted: str) -> None:
        refused = ReassignablePartitionResponse(0, ErrorCode.INVALID_REPLICA_ASSIGNMENT, "broker 2 does not exist")
        answer = AlterPartitionReassignmentsResponse(responses=[ReassignableTopicResponse("t", [refused])])
        broker.answer(ApiKey.ALTER_PARTITION_REASSIGNMENTS, lambda _: answer)
        outcome = ottla("reassign-partitions", "--execute", "--reassignment-json-file", wanted)
        assert (outcome.code, outcome.err) == (
            1,
            "Error: Error reassigning partition(s): t-0: broker 2 does not exist\n",
        )

    def test_verify(self, broker: FakeBroker, ottla: Ottla, wanted: str, tmp_path: Path) -> None:
        def line(path: str) -> str:
            return ottla("reassign-partitions", "--verify", "--reassignment-json-file", path).lines[1]

        assert line(wanted).endswith("but replica set is 1 rather than 2,1.")
        self.list_ongoing(broker, OngoingPartitionReassignment(0, [2, 1, 3], [2], [3]))
        assert line(wanted) == "Reassignment of partition t-0 is still in progress."
        self.list_ongoing(broker, OngoingPartitionReassignment(0, [1, 3], [3], [1]))
        assert line(wanted) == "There is another reassignment of partition t-0 in progress."
        self.list_ongoing(broker)
        (tmp_path / "done").write_text('{"partitions": [{"topic": "t", "partition": 0, "replicas": [1]}]}')
        assert line(str(tmp_path / "done")) == "Reassignment of partition t-0 is completed."

    def test_throttle_is_set_by_execute_and_cleared_by_verify(
        self, broker: FakeBroker, ottla: Ottla, wanted: str, tmp_path: Path
    ) -> None:
        def changed() -> list[tuple[str, str, str | None]]:
            requests = broker.received(IncrementalAlterConfigsRequest)
            resources = [resource for request in requests for resource in request.resources]
            return [(each.resource_name, c.name, c.value) for each in resources for c in each.configs]

        outcome = ottla("reassign-partitions", "--execute", "--throttle", "100", "--reassignment-json-file", wanted)
        assert "The inter-broker throttle limit was set to 100 B/s" in outcome.lines
        topic = [
            ("t", "leader.replication.throttled.replicas", "0:1"),
            ("t", "follower.replication.throttled.replicas", "0:2"),
        ]
        rates = [(str(NODE_ID), f"{side}.replication.throttled.rate", "100") for side in ("leader", "follower")]
        assert changed() == topic + rates
        verify = ("reassign-partitions", "--verify", "--reassignment-json-file", wanted)
        self.list_ongoing(broker, OngoingPartitionReassignment(0, [2, 1], [2], []))
        assert "Clearing" not in ottla(*verify).out
        self.list_ongoing(broker)
        assert "Clearing" not in ottla(*verify, "--preserve-throttles").out
        assert changed() == topic + rates
        assert ottla(*verify).lines[-2:] == [
            f"Clearing broker-level throttles on broker {NODE_ID}",
            "Clearing topic-level throttles on topic t",
        ]
        assert changed()[4:] == [(name, key, None) for name, key, _ in rates + topic]

    def test_cancel(self, broker: FakeBroker, ottla: Ottla, wanted: str) -> None:
        cancel = ["reassign-partitions", "--cancel", "--reassignment-json-file", wanted]
        assert ottla(*cancel).lines[0] == "None of the specified partition reassignments are active."
        self.list_ongoing(broker, OngoingPartitionReassignment(0, [2, 1], [2], []))
        assert ottla(*cancel).lines[0] == "Successfully cancelled partition reassignment for: t-0"
        assert ottla(*cancel).lines[-1] == "Clearing topic-level throttles on topic t"
        request = broker.received(AlterPartitionReassignmentsRequest)[0]
        assert request.topics[0].partitions[0].replicas is None

    def test_list_prints_names(self, broker: FakeBroker, ottla: Ottla) -> None:
        assert ottla("reassign-partitions", "--list").out == "No partition reassignments found.\n"
        self.list_ongoing(broker, OngoingPartitionReassignment(0, [2, 1], [2], [1]))
        assert ottla("reassign-partitions", "--list").lines == [
            "Current partition reassignments:",
            "t-0: replicas: 2,1. adding: 2. removing: 1.",
        ]
        assert json.loads(ottla("reassign-partitions", "--list", "--json").out)[0]["addingReplicas"] == [2]

    def test_generate(self, ottla: Ottla, tmp_path: Path) -> None:
        (tmp_path / "t").write_text('{"topics": [{"topic": "t"}], "version": 1}')
        moves = ["--topics-to-move-json-file", str(tmp_path / "t"), "--broker-list"]
        lines = ottla("reassign-partitions", "--generate", *moves, str(NODE_ID)).lines
        assert lines[0] == "Current partition replica assignment"
        assert lines[3] == "Proposed partition reassignment configuration"
        assert lines[1] == lines[4]
        assert "Brokers 9 are not live brokers" in ottla("reassign-partitions", "--generate", *moves, "9").err

    @pytest.mark.parametrize(
        ("content", "message"),
        [
            ("[]", "is not a JSON object"),
            ('{"version": 2}', "version 2 is not supported"),
            ('{"partitions": []}', "cannot be empty"),
            ('{"partitions": [{"topic": "t", "partition": 0, "replicas": []}]}', "replica list cannot be empty"),
            ('{"partitions": [{"topic": "t", "partition": 0, "replicas": [1, 1]}]}', "duplicate entries"),
            ('{"partitions": [{"topic": "t", "partition": 0, "replicas": [1], "log_dirs": ["/d"]}]}', 'use "any"'),
        ],
    )
    def test_invalid_file_is_refused(self, content: str, message: str, ottla: Ottla, tmp_path: Path) -> None:
        (tmp_path / "r").write_text(content)
        outcome = ottla("reassign-partitions", "--execute", "--reassignment-json-file", str(tmp_path / "r"))
        assert outcome.code == 1
        assert message in outcome.err

    @pytest.mark.parametrize("arguments", [[], ["--execute"], ["--generate"], ["--list", "--additional"]])
    def test_wrong_usage_is_refused(self, arguments: list[str], ottla: Ottla) -> None:
        assert ottla("reassign-partitions", *arguments).code == 2
