"""Metadata logs and snapshots of both implementations, as Apache Kafka's tools and Ottla's read them."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic

from broker.metadata.image.features import bootstrap_records
from broker.metadata.image.metadata_image import MetadataImage, Provenance
from broker.metadata.image.records import MetadataRecord
from broker.metadata.snapshot.codec import image_batches, read_snapshot
from protocol.ids import LeaderEpoch
from protocol.messages import metadata_records as messages
from protocol.messages.common_records import Endpoint, KRaftVersionFeature, VotersRecord, VotersRecordVoter
from protocol.primitives import Uuid
from protocol.records.compression import Codec
from protocol.records.quorum_control import ControlState
from storage.log_snapshots import CheckpointId, checkpoint_name
from tests.broker.metadata.histories import History, folded
from tests.broker.metadata.images import image_of
from tests.support.kafka.apache_kafka import run_tool, unavailable_reason
from tests.support.kafka.kraft_nodes import PATIENCE_S, KraftNode, KraftNodes, Make, until
from tests.support.kafka.tool_runner import KafkaTools
from tests.support.processes.ottla_node import run_ottla

pytestmark = pytest.mark.interop

DUMP = "kafka.tools.DumpLogSegments"
SECRETS = re.compile(r'"(salt|storedKey|serverKey)":"[^"]*"')
SHELL_SECRETS = re.compile(r"(salt|storedKey|serverKey)=[0-9a-f]+")
"""Fields that Kafka's tools print and Ottla's hide."""
SHELL = "org.apache.kafka.shell.MetadataShell"
TIME_MS = 1_700_000_000_000
PATIENT = {"request_timeout": PATIENCE_S}


@pytest.fixture(scope="module", autouse=True)
def tools(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaTools]:
    if (reason := unavailable_reason()) is not None:
        pytest.skip(reason)
    with KafkaTools(tmp_path_factory.mktemp("tools") / "log") as running:
        yield running


@pytest.fixture(params=list(Make))
def node(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[KraftNode]:
    """Return a combined node of the parametrized implementation with changes of every kind in its log."""
    often = {"metadata.log.max.record.bytes.between.snapshots": "4000"}
    with KraftNodes([KraftNode(tmp_path / "node", request.param, 1, "broker,controller", often)]) as nodes:
        nodes.format_dynamic("--add-scram", "SCRAM-SHA-256=[name=alice,password=secret]")
        (found,) = nodes.start().nodes
        change_metadata(found)
        until(lambda: found.snapshots, PATIENCE_S, nodes)
        found.terminate()
        yield found


def change_metadata(node: KraftNode) -> None:
    """Create, extend and delete topics; change configs and quotas."""
    admin = AdminClient({"bootstrap.servers": node.address})
    topics = [NewTopic(f"t{n}", 3, 1, config={"retention.ms": str(1000 + n)}) for n in range(20)]
    for each in admin.create_topics(topics, **PATIENT).values():
        each.result(PATIENCE_S)
    admin.create_partitions([NewPartitions("t1", 5)], **PATIENT)["t1"].result(PATIENCE_S)
    admin.delete_topics(["t2"], **PATIENT)["t2"].result(PATIENCE_S)
    quota = ("--entity-type", "users", "--entity-name", "bob", "--entity-type", "clients", "--entity-default")
    at = ("--bootstrap-server", node.address)
    run_tool("kafka.admin.ConfigCommand", *at, *quota, "--alter", "--add-config", "producer_byte_rate=1024")
    for n in range(20, 40):
        admin.create_topics([NewTopic(f"t{n}", 1, 1)], **PATIENT)[f"t{n}"].result(PATIENCE_S)


def test_both_tools_print_the_same_of_logs_and_snapshots(node: KraftNode, tools: KafkaTools) -> None:
    for path in [*node.segments, *node.snapshots, *node.metadata.glob("0" * 20 + "-*.checkpoint")]:
        assert_same_dumps(tools, path)
    newest = node.snapshots[-1]
    tree = shell_tree(newest)
    assert tree == own_shell_tree(newest)
    assert {"      alice:", "      t1:", "    TOPIC:t1:", "      retention.ms:"} <= set(tree)
    again = node.directory / newest.name
    read = read_snapshot(newest.read_bytes())
    image = image_of(read.records)._replace(provenance=Provenance(99, read.epoch, read.last_timestamp_ms))
    again.write_bytes(written(image, read.control))
    assert shell_tree(again) == tree, "Ottla's rewritten snapshot has another content"


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.ZSTD])
@pytest.mark.parametrize("seed", [1, 2])
def test_kafka_reads_a_snapshot_with_every_record_type(
    tmp_path: Path, tools: KafkaTools, seed: int, codec: Codec
) -> None:
    image = image_of(more_records(), folded(History(seed).batches))
    image = image._replace(provenance=Provenance(99, LeaderEpoch(3), TIME_MS))
    path = tmp_path / checkpoint_name(CheckpointId(100, LeaderEpoch(3)))
    path.write_bytes(written(image, voters(), codec))
    dumped = assert_same_dumps(tools, path)
    kinds = {re.sub("Record$", "", type(record.message).__name__) for record in image.write()}
    shown = {kind.replace("_", "").removesuffix("RECORD") for kind in re.findall(r'"type":"(\w+)"', dumped)}
    assert {kind.upper() for kind in kinds} <= shown
    assert len(kinds) == 11, "a snapshot must hold records of every kind"
    assert shell_tree(path) == own_shell_tree(path)


def more_records() -> list[MetadataRecord]:
    """Return records of kinds that random histories lack."""
    endpoint = messages.ControllerEndpoint("CONTROLLER", "127.0.0.1", 9093, 0)
    feature = messages.ControllerFeature("metadata.version", 7, 29)
    return [
        *(record.message for record in bootstrap_records()),
        messages.RegisterControllerRecord(3, Uuid(bytes(15) + b"\3"), False, [endpoint], [feature]),
        messages.ConfigRecord(resource_type=32, resource_name="a group", name="consumer.session.timeout.ms", value="9"),
        messages.UserScramCredentialRecord("zoë", 2, b"salt", b"stored", b"server", 8192),
    ]


def voters() -> ControlState:
    """Return the control state of a dynamic quorum of two voters."""
    entries = [
        VotersRecordVoter(each, Uuid(bytes(15) + bytes([each])), [Endpoint("CONTROLLER", "host", 9093)], versions())
        for each in (1, 2)
    ]
    return ControlState(1, VotersRecord(voters=entries))


def versions() -> KRaftVersionFeature:
    return KRaftVersionFeature(0, 1)


def written(image: MetadataImage, control: ControlState | None, codec: Codec = Codec.NONE) -> bytes:
    return b"".join(image_batches(image, control, codec=codec))


def assert_same_dumps(tools: KafkaTools, path: Path) -> str:
    """Check that both dump tools print the same and find no fault. Return the output of Kafka's."""
    options = ("--cluster-metadata-decoder", "--skip-record-metadata", "--files", str(path))
    code, dumped, errors = tools.run(DUMP, *options)
    assert code == 0, errors
    redacted = SECRETS.sub(r'"\1":"[redacted]"', dumped)
    assert run_ottla("dump-log", *options).stdout.splitlines() == redacted.splitlines()
    assert not re.findall("mismatch|corrupt|[Cc]ould not|Error|isvalid: false", dumped)
    assert dumped.count("isvalid: true") == len(re.findall("^baseOffset:", dumped, re.MULTILINE)) > 0
    return dumped


def shell_tree(path: Path) -> list[str]:
    """Return the tree of Kafka's shell. The shell does not wait for the snapshot, so retry while it shows nothing."""

    def attempt() -> str | None:
        tree = run_tool(SHELL, "--snapshot", str(path), "tree", "/")
        return None if "offset -1, epoch -1" in tree else tree

    return _comparable(SHELL_SECRETS.sub(r"\1=[redacted]", until(attempt, PATIENCE_S)))


def own_shell_tree(path: Path) -> list[str]:
    return _comparable(run_ottla("metadata-shell", "--snapshot", str(path), "tree", "/").stdout)


def _comparable(tree: str) -> list[str]:
    """Return the tree's lines without differences by design.

    Kafka's shell omits defaults from the names of quota entities, so that several share one name, prints brackets
    around tokens, and derives an image's end from the records in its file. Software versions differ.
    """
    image = re.sub(r"^  (clientQuotas|delegationToken):\n( {3,}.*\n)*", "", tree.partition("local:")[0], flags=re.M)
    return [line for line in image.splitlines() if not re.match(r"\s+offset \d+, epoch \d+, time ", line)]
