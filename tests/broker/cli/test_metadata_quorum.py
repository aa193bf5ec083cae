"""The command metadata-quorum: description, changes of voters, snapshots."""

import json
import time
from pathlib import Path

import pytest

from broker.cli.main import run
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.add_raft_voter import AddRaftVoterRequest, AddRaftVoterResponse
from protocol.messages.create_metadata_snapshot import CreateMetadataSnapshotResponse
from protocol.messages.describe_cluster import DescribeClusterBroker, DescribeClusterRequest, DescribeClusterResponse
from protocol.messages.describe_quorum import (
    DescribeQuorumResponse,
    DescribeQuorumResponsePartitionData,
    DescribeQuorumResponseTopicData,
    Listener,
    Node,
    ReplicaState,
)
from protocol.messages.remove_raft_voter import RemoveRaftVoterRequest, RemoveRaftVoterResponse
from protocol.primitives import ZERO_UUID, uuid_from_text
from tests.broker.cli.conftest import Ottla
from tests.support.fakes.fake_broker import FakeBroker

CLUSTER_ID = "5UGSfPCiS0KcqzV2IZCXIA"
OWN, OTHER = "tYrn9BBZTvC6MCd6h0jY6A", "JEXY6aqzQY-32P5TStzaFg"
NOW_MS = 1_000_000


@pytest.fixture(autouse=True)
def quorum(broker: FakeBroker) -> None:
    """A quorum of voters 1 and 2, with leader 2, and an observer."""
    partition = DescribeQuorumResponsePartitionData(
        leader_id=2,
        leader_epoch=5,
        high_watermark=90,
        current_voters=[
            ReplicaState(1, uuid_from_text(OWN), 95, NOW_MS - 40, NOW_MS - 50),
            ReplicaState(2, uuid_from_text(OTHER), 100, NOW_MS - 1, NOW_MS - 1),
        ],
        observers=[ReplicaState(7, ZERO_UUID, 80, -1, -1)],
    )
    nodes = [Node(1, [Listener("CONTROLLER", "h1", 9093)]), Node(2, [Listener("CONTROLLER", "h2", 9093)])]
    topics = [DescribeQuorumResponseTopicData("__cluster_metadata", [partition])]
    broker.answer(ApiKey.DESCRIBE_QUORUM, lambda _: DescribeQuorumResponse(topics=topics, nodes=nodes))
    this = DescribeClusterBroker(2, "127.0.0.1", broker.port)
    broker.answer(
        ApiKey.DESCRIBE_CLUSTER,
        lambda _: DescribeClusterResponse(cluster_id=CLUSTER_ID, controller_id=2, brokers=[this]),
    )


def test_status_prints_kafkas_summary(ottla: Ottla) -> None:
    assert ottla("metadata-quorum", "describe", "--status").lines == [
        f"ClusterId:              {CLUSTER_ID}",
        "LeaderId:               2",
        "LeaderEpoch:            5",
        "HighWatermark:          90",
        "MaxFollowerLag:         5",
        "MaxFollowerLagTimeMs:   49",
        f'CurrentVoters:          [{{"id": 1, "directoryId": "{OWN}", "endpoints": ["CONTROLLER://h1:9093"]}}, '
        f'{{"id": 2, "directoryId": "{OTHER}", "endpoints": ["CONTROLLER://h2:9093"]}}]',
        'CurrentObservers:       [{"id": 7}]',
    ]


def test_status_as_json(ottla: Ottla) -> None:
    document = json.loads(ottla("metadata-quorum", "describe", "--status", "--json").out)
    assert document["clusterId"] == CLUSTER_ID
    assert (document["leaderId"], document["leaderEpoch"], document["highWatermark"]) == (2, 5, 90)
    assert [voter["id"] for voter in document["currentVoters"]] == [1, 2]
    assert document["currentObservers"] == [{"id": 7}]


def test_replication_prints_columns_with_the_leader_first(ottla: Ottla) -> None:
    assert ottla("metadata-quorum", "describe", "--replication").out.split("\n")[:2] == [
        "NodeId\tDirectoryId           \tLogEndOffset\tLag\tLastFetchTimestamp\tLastCaughtUpTimestamp\tStatus  \t",
        f"2     \t{OTHER}\t100         \t0  \t999999            \t999999               \tLeader  \t",
    ]
    rows = json.loads(ottla("metadata-quorum", "describe", "--replication", "--json").out)
    assert [(row["nodeId"], row["lag"], row["status"]) for row in rows] == [
        (2, 0, "Leader"),
        (1, 5, "Follower"),
        (7, 20, "Observer"),
    ]


def test_human_readable_times_are_relative(ottla: Ottla, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "time", lambda: NOW_MS / 1000)
    lines = ottla("metadata-quorum", "describe", "--replication", "--human-readable").lines
    assert "\t40 ms ago" in lines[2]
    assert "\t-1 " in lines[3]


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["describe"], 2, "exactly one action: --status or --replication"),
        (["describe", "--status", "--human-readable"], 2, "--human-readable requires --replication"),
        (["--bootstrap-controller", "h:1", "describe", "--status"], 2, "exclude each other"),
        (["remove-controller", "-i", "-1", "-d", OWN], 1, "Invalid negative --controller-id: -1"),
        (["remove-controller", "-i", "1", "-d", "x"], 1, "Failed to parse --controller-directory-id"),
        (["add-controller"], 1, "You must supply the configuration file of the controller"),
    ],
)
def test_invalid_arguments_are_refused(arguments: list[str], code: int, message: str, ottla: Ottla) -> None:
    outcome = ottla("metadata-quorum", *arguments)
    assert outcome.code == code
    assert message in outcome.err


def test_bootstrap_controller_finds_the_active_controller(
    broker: FakeBroker, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["metadata-quorum", "--bootstrap-controller", broker.address, "describe", "--status"]) == 0
    assert "LeaderId:               2" in capsys.readouterr().out
    assert {request.endpoint_type for request in broker.received(DescribeClusterRequest)} == {2}


def test_missing_leader_is_reported(broker: FakeBroker, ottla: Ottla, tmp_path: Path) -> None:
    (tmp_path / "c").write_text("default.api.timeout.ms=1\n")
    answer = DescribeQuorumResponse(error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER, error_message=None)
    broker.answer(ApiKey.DESCRIBE_QUORUM, lambda _: answer)
    outcome = ottla("metadata-quorum", "--command-config", str(tmp_path / "c"), "describe", "--status")
    assert (outcome.code, outcome.err.count("\n")) == (1, 1)


class TestAddController:
    @pytest.fixture
    def config(self, tmp_path: Path) -> str:
        path = tmp_path / "controller.properties"
        path.write_text(
            "process.roles=controller\nnode.id=3\ncontroller.listener.names=CONTROLLER\n"
            "listeners=CONTROLLER://h3:19093\ncontroller.quorum.bootstrap.servers=h1:9093\n"
            f"log.dirs={tmp_path / 'data'}\n"
        )
        return str(path)

    def format(self, config: str) -> str:
        assert run(["storage", "format", "-c", config, "-t", CLUSTER_ID, "-N"]) == 0
        meta = (Path(config).parent / "data" / "meta.properties").read_text()
        return meta.partition("directory.id=")[2].partition("\n")[0]

    def test_request_has_the_controllers_id_directory_and_listeners(
        self, broker: FakeBroker, ottla: Ottla, config: str
    ) -> None:
        directory_id = self.format(config)
        broker.answer(ApiKey.ADD_RAFT_VOTER, lambda _: AddRaftVoterResponse())
        outcome = ottla("metadata-quorum", "--command-config", config, "add-controller")
        assert outcome.lines[-1] == (
            f"Added controller 3 with directory id {directory_id} and endpoints: CONTROLLER://h3:19093"
        )
        (request,) = broker.received(AddRaftVoterRequest)
        assert (request.cluster_id, request.voter_id) == (CLUSTER_ID, 3)
        assert request.voter_directory_id == uuid_from_text(directory_id)
        assert [(each.name, each.host, each.port) for each in request.listeners] == [("CONTROLLER", "h3", 19093)]

    def test_dry_run_changes_nothing(self, broker: FakeBroker, ottla: Ottla, config: str) -> None:
        self.format(config)
        outcome = ottla("metadata-quorum", "--command-config", config, "add-controller", "--dry-run")
        assert outcome.lines[-1].startswith("DRY RUN of adding controller 3 with directory id ")
        assert broker.received(AddRaftVoterRequest) == []

    def test_unformatted_controller_cannot_be_added(self, ottla: Ottla, config: str) -> None:
        outcome = ottla("metadata-quorum", "--command-config", config, "add-controller")
        assert outcome.code == 1
        assert "run `ottla storage format`" in outcome.err

    def test_leaders_refusal_is_reported(self, broker: FakeBroker, ottla: Ottla, config: str) -> None:
        self.format(config)
        refusal = AddRaftVoterResponse(0, ErrorCode.DUPLICATE_VOTER, "node 3 is a voter already")
        broker.answer(ApiKey.ADD_RAFT_VOTER, lambda _: refusal)
        outcome = ottla("metadata-quorum", "--command-config", config, "add-controller")
        assert (outcome.code, outcome.err) == (1, "Error: node 3 is a voter already\n")


def test_remove_controller(broker: FakeBroker, ottla: Ottla) -> None:
    broker.answer(ApiKey.REMOVE_RAFT_VOTER, lambda _: RemoveRaftVoterResponse())
    outcome = ottla("metadata-quorum", "remove-controller", "-i", "1", "-d", OWN)
    assert outcome.out == f"Removed KRaft controller 1 with directory id {OWN}\n"
    (request,) = broker.received(RemoveRaftVoterRequest)
    assert (request.cluster_id, request.voter_id, request.voter_directory_id) == (CLUSTER_ID, 1, uuid_from_text(OWN))


def test_snapshot_is_created_on_the_addressed_node(broker: FakeBroker, ottla: Ottla) -> None:
    broker.answer(ApiKey.CREATE_METADATA_SNAPSHOT, lambda _: CreateMetadataSnapshotResponse(end_offset=42, epoch=7))
    assert ottla("metadata-quorum", "snapshot").out == "SnapshotId: 00000000000000000042-0000000007\n"
    assert json.loads(ottla("metadata-quorum", "snapshot", "--json").out) == {
        "endOffset": 42,
        "epoch": 7,
        "file": "00000000000000000042-0000000007.checkpoint",
    }
