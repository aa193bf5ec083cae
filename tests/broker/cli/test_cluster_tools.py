"""The commands broker-api-versions, log-dirs and delete-records."""

import json
from pathlib import Path

import pytest

from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.api_versions import (
    ApiVersion,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)
from protocol.messages.delete_records import (
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)
from protocol.messages.describe_cluster import DescribeClusterBroker, DescribeClusterResponse
from protocol.messages.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)
from tests.broker.cli.conftest import Ottla
from tests.support.fakes.fake_broker import NODE_ID, FakeBroker


@pytest.fixture
def known_apis(broker: FakeBroker) -> None:
    """Serve a rack, an API with a future version only, and an unknown API."""
    described = DescribeClusterBroker(NODE_ID, "127.0.0.1", broker.port, "r1")
    broker.answer(ApiKey.DESCRIBE_CLUSTER, lambda _: DescribeClusterResponse(brokers=[described]))
    keys = [
        ApiVersion(ApiKey.PRODUCE, 0, 2),
        ApiVersion(ApiKey.METADATA, 0, 99),
        ApiVersion(ApiKey.API_VERSIONS, 0, 4),
        ApiVersion(ApiKey.DESCRIBE_CLUSTER, 1, 1),
        ApiVersion(999, 0, 1),
    ]
    response = ApiVersionsResponse(
        api_keys=keys,
        supported_features=[SupportedFeatureKey("metadata.version", 7, 29)],
        finalized_features=[FinalizedFeatureKey("metadata.version", 28, 28)],
    )
    broker.answer(ApiKey.API_VERSIONS, lambda _: response)


@pytest.mark.usefixtures("known_apis")
def test_api_versions_print_usable_versions(broker: FakeBroker, ottla: Ottla) -> None:
    lines = ottla("broker-api-versions").lines
    assert lines[0] == f"127.0.0.1:{broker.port} (id: {NODE_ID} rack: r1 isFenced: false) -> ("
    assert lines[1] == "\tProduce(0): 0 to 2 [unusable],"
    assert lines[2] == "\tFetch(1): UNSUPPORTED,"
    assert "\tMetadata(3): 0 to 99 [usable: 13]," in lines
    assert "\tDescribeCluster(60): 1 [usable: 1]," in lines
    assert lines[-2:] == ["\tUNKNOWN(999): 0 to 1 [unusable]", ")"]


@pytest.mark.usefixtures("known_apis")
def test_api_versions_as_json(ottla: Ottla) -> None:
    (document,) = json.loads(ottla("broker-api-versions", "--json").out)
    assert (document["id"], document["rack"]) == (NODE_ID, "r1")
    assert {"key": 3, "name": "Metadata", "minVersion": 0, "maxVersion": 99, "usable": 13} in document["apis"]
    assert document["apis"][0]["usable"] is None
    assert document["supportedFeatures"] == {"metadata.version": [7, 29]}
    assert document["finalizedFeatures"] == {"metadata.version": 28}


@pytest.fixture
def log_dirs(broker: FakeBroker) -> FakeBroker:
    broker.topics = {"t": 1, "u": 2}

    def describe(request: DescribeLogDirsRequest) -> DescribeLogDirsResponse:
        wanted = {topic.topic for topic in request.topics} if request.topics is not None else {"t", "u"}
        topics = [DescribeLogDirsTopic(name, [DescribeLogDirsPartition(0, 10, 1, False)]) for name in sorted(wanted)]
        offline = DescribeLogDirsResult(ErrorCode.KAFKA_STORAGE_ERROR, "/gone")
        return DescribeLogDirsResponse(results=[DescribeLogDirsResult(0, "/data", topics), offline])

    broker.answer(ApiKey.DESCRIBE_LOG_DIRS, describe)
    return broker


@pytest.mark.usefixtures("log_dirs")
def test_log_dirs(ottla: Ottla) -> None:
    outcome = ottla("log-dirs", "--describe", "--topic-list", "t,nosuch")
    assert outcome.lines[:2] == [
        "Querying brokers for log directories information",
        f"Received log directory information from brokers {NODE_ID}",
    ]
    expected = {
        "brokers": [
            {
                "broker": NODE_ID,
                "logDirs": [
                    {
                        "partitions": [{"partition": "t-0", "size": 10, "offsetLag": 1, "isFuture": False}],
                        "error": None,
                        "logDir": "/data",
                    },
                    {"partitions": [], "error": ErrorCode.KAFKA_STORAGE_ERROR.message, "logDir": "/gone"},
                ],
            }
        ],
        "version": 1,
    }
    assert json.loads(outcome.lines[2]) == expected
    assert json.loads(ottla("log-dirs", "--describe", "--topic-list", "t", "--json").out) == expected


def test_log_dirs_of_all_topics(log_dirs: FakeBroker, ottla: Ottla) -> None:
    ottla("log-dirs", "--describe")
    assert log_dirs.received(DescribeLogDirsRequest)[0].topics is None


@pytest.mark.usefixtures("log_dirs")
def test_log_dirs_of_unknown_brokers_fail(ottla: Ottla) -> None:
    outcome = ottla("log-dirs", "--describe", "--broker-list", "1,5")
    assert outcome.code == 1
    assert "do not exist from --broker-list: 5. Current existent brokers: 1" in outcome.err
    assert ottla("log-dirs", "--describe", "--broker-list", "x").code == 1
    assert ottla("log-dirs").code == 2


@pytest.fixture
def offsets_file(tmp_path: Path) -> Path:
    return tmp_path / "offsets.json"


def _partitions(*rows: tuple[str, int, int]) -> str:
    return json.dumps({"version": 1, "partitions": [{"topic": t, "partition": p, "offset": o} for t, p, o in rows]})


@pytest.fixture
def deleting(broker: FakeBroker) -> FakeBroker:
    broker.topics = {"t": 2}

    def delete(request: DeleteRecordsRequest) -> DeleteRecordsResponse:
        topics = [
            DeleteRecordsTopicResult(
                topic.name,
                [
                    DeleteRecordsPartitionResult(p.partition_index, p.offset)
                    if p.offset < 100
                    else DeleteRecordsPartitionResult(p.partition_index, -1, ErrorCode.OFFSET_OUT_OF_RANGE)
                    for p in topic.partitions
                ],
            )
            for topic in request.topics
        ]
        return DeleteRecordsResponse(topics=topics)

    broker.answer(ApiKey.DELETE_RECORDS, delete)
    return broker


@pytest.mark.usefixtures("deleting")
def test_delete_records(ottla: Ottla, offsets_file: Path) -> None:
    offsets_file.write_text(_partitions(("t", 1, 7), ("t", 0, 0)))
    outcome = ottla("delete-records", "--offset-json-file", str(offsets_file))
    assert outcome == (
        0,
        "Executing records delete operation\nRecords delete operation completed:\n"
        "partition: t-0\tlow_watermark: 0\npartition: t-1\tlow_watermark: 7\n",
        "",
    )


@pytest.mark.usefixtures("deleting")
def test_delete_records_reports_each_failed_partition(ottla: Ottla, offsets_file: Path) -> None:
    offsets_file.write_text(_partitions(("t", 0, 7), ("t", 1, 100), ("t", 9, 1)))
    outcome = ottla("delete-records", "--offset-json-file", str(offsets_file), "--json")
    assert outcome.code == 1
    assert [(row["partition"], row["lowWatermark"], row["error"]) for row in json.loads(outcome.out)] == [
        (0, 7, None),
        (1, None, "OFFSET_OUT_OF_RANGE"),
        (9, None, "UNKNOWN_TOPIC_OR_PARTITION"),
    ]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (_partitions(("t", 0, 1), ("t", 0, 2)), "contains duplicate topic partitions: t-0"),
        ('{"version": 2, "partitions": []}', "version 2 is not supported"),
        ("[]", "is not an offset JSON file"),
        ("{", "is not an offset JSON file"),
        ('{"partitions": [{"topic": "t"}]}', "is not an offset JSON file"),
    ],
)
def test_invalid_offset_file_is_refused(content: str, message: str, ottla: Ottla, offsets_file: Path) -> None:
    offsets_file.write_text(content)
    outcome = ottla("delete-records", "--offset-json-file", str(offsets_file))
    assert outcome.code == 1
    assert message in outcome.err


def test_missing_offset_file_is_reported(ottla: Ottla, offsets_file: Path) -> None:
    outcome = ottla("delete-records", "--offset-json-file", str(offsets_file))
    assert outcome.err == f"Error: cannot read {offsets_file}: No such file or directory.\n"


def test_unreachable_broker_is_reported(ottla: Ottla, broker: FakeBroker) -> None:
    broker.__exit__(None, None, None)
    outcome = ottla("log-dirs", "--describe")
    assert (outcome.code, outcome.out) == (1, "")
    assert outcome.err.startswith(f"Error: cannot connect to {broker.address}: Connection refused. Start a broker")


@pytest.mark.parametrize("name", ["nosuch.properties", "."])
def test_unreadable_command_config_is_reported(name: str, ottla: Ottla) -> None:
    outcome = ottla("log-dirs", "--describe", "--command-config", name)
    assert outcome.code == 1
    assert outcome.err.startswith(f"Error: cannot read {name}: ")
