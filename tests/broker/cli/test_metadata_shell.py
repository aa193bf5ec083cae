"""The command metadata-shell: Kafka's output for Kafka's snapshot, shell commands, and a live cluster."""

import io
import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from broker.cli.main import run
from broker.cli.shell.commands import Shell, ShellError, ShellExit
from broker.cli.shell.nodes import root
from broker.metadata.image.delta import MetadataDelta
from broker.metadata.image.metadata_image import EMPTY_IMAGE, MetadataImage, Provenance
from broker.metadata.image.records import MetadataRecord, encode_record
from broker.metadata.snapshot.codec import image_batches
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.ids import LeaderEpoch
from protocol.messages.fetch import FetchableTopicResponse, FetchRequest, FetchResponse, PartitionData, SnapshotId
from protocol.messages.fetch_snapshot import (
    FetchSnapshotRequest,
    FetchSnapshotResponse,
    FetchSnapshotResponsePartitionSnapshot,
    FetchSnapshotResponseTopicSnapshot,
)
from protocol.messages.metadata_records import (
    AccessControlEntryRecord,
    ClientQuotaRecord,
    DelegationTokenRecord,
    EntityData,
    FeatureLevelRecord,
    TopicRecord,
)
from protocol.primitives import uuid_from_text, uuid_to_text
from tests.broker.cli.conftest import Ottla
from tests.support.fakes.batches import data_batch
from tests.support.fakes.fake_broker import FakeBroker

RECORDED = Path(__file__).parent / "kafka_shell"
"""A snapshot of Apache Kafka 4.2, and the output of its shell for `tree /` and `find /`."""

SNAPSHOT = RECORDED / "00000000000000000184-0000000001.checkpoint"
TOPIC = "__cluster_metadata"
OWN, OTHER = uuid_from_text("tYrn9BBZTvC6MCd6h0jY6A"), uuid_from_text("JEXY6aqzQY-32P5TStzaFg")


def of_snapshot(*command: str) -> int:
    return run(["metadata-shell", "--snapshot", str(SNAPSHOT), *command])


def image_of(*records: MetadataRecord, offset: int = 9) -> MetadataImage:
    delta = MetadataDelta(EMPTY_IMAGE)
    delta.replay_all(records)
    return delta.apply(Provenance(offset, LeaderEpoch(3), 1_700_000_000_000))


def lines(shell: Shell, *words: str) -> list[str]:
    return list(shell.run(words))


@pytest.fixture
def shell() -> Shell:
    tree = root(image_of(FeatureLevelRecord("metadata.version", 29), TopicRecord("t", OWN), TopicRecord("u", OTHER)))
    return Shell(lambda: tree)


class TestAgainstKafka:
    def test_tree_equals_kafkas_output(self, capsys: pytest.CaptureFixture[str]) -> None:
        """Only hidden secrets, the program's version and the provenance differ."""
        assert of_snapshot("tree", "/") == 0
        actual, kafkas = capsys.readouterr().out.splitlines(), (RECORDED / "tree.txt").read_text().splitlines()
        different = [line for line, other in zip(actual, kafkas, strict=True) if line != other]
        hidden = [line for line in different if "[redacted]" in line]
        assert [line.strip()[:20] for line in hidden] == ["ScramCredentialData("]
        different = [line for line in different if line not in hidden]
        assert different[0] == "    offset 183, epoch 1, time 2026-11-21T11:43:35.350Z[UTC]"
        assert len(different) == 3

    def test_find_equals_kafkas_output(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert of_snapshot("find", "/") == 0
        assert capsys.readouterr().out == (RECORDED / "find.txt").read_text()

    def test_ls_lists_several_directories_by_name(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert of_snapshot("ls", "image/topics/byName/*") == 0
        assert capsys.readouterr().out == "alpha:\n0\n1\nid\nname\n\nbeta:\n0\n1\nid\nname\n"


def test_quotas_acls_and_tokens_are_printed() -> None:
    image = image_of(
        ClientQuotaRecord(
            [EntityData("user", "a(b)"), EntityData("client-id", None)], "producer_byte_rate", 1.5, False
        ),
        AccessControlEntryRecord(OWN, 2, "t", 3, "User:a", "*", 3, 3),
        DelegationTokenRecord(owner="User:o", requester="User:q", renewers=["User:r"], token_id="tok"),
    )
    shell = Shell(lambda: root(image))
    assert lines(shell, "cat", r"/image/clientQuotas/clientId()_user(a\(b\))/producer_byte_rate") == ["1.5"]
    assert lines(shell, "cat", "/image/acls/byId/*") == [
        "StandardAcl[resourceType=TOPIC, resourceName=t, patternType=LITERAL, principal=User:a, host=*, "
        "operation=READ, permissionType=ALLOW]"
    ]
    assert lines(shell, "cat", "/image/delegationToken/tok")[0].startswith("DelegationTokenData(tokenId=tok, owner=Us")
    assert lines(shell, "cat", "/image/provenance") == ["offset 9, epoch 3, time 2023-11-14T22:13:20Z[UTC]"]


class TestDocuments:
    def test_document_maps_paths_to_content(self, shell: Shell) -> None:
        assert shell.document(["ls", "/image/topics/byName", "/image/provenance"]) == {
            "/image/topics/byName": ["t", "u"],
            "/image/provenance": None,
        }
        assert shell.document(["cat", "/image/topics/byName/*/name"]) == {
            "/image/topics/byName/t/name": "t",
            "/image/topics/byName/u/name": "u",
        }
        assert shell.document(["tree", "/image/topics/byName/t"]) == {
            "/image/topics/byName/t": {"id": uuid_to_text(OWN), "name": "t"}
        }
        assert shell.document(["find", "/image/topics/byName/t"]) == lines(shell, "find", "/image/topics/byName/t")

    @pytest.mark.parametrize("words", [["cat"], ["cat", "/image"], ["ls", "/image", "/nope"]])
    def test_document_with_an_error_raises(self, shell: Shell, words: list[str]) -> None:
        with pytest.raises(ShellError):
            shell.document(words)

    def test_json_option_prints_a_document(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert of_snapshot("--json", "ls", "/") == 0
        assert json.loads(capsys.readouterr().out) == {"/": ["image", "local"]}
        assert of_snapshot("--json") == 2


class TestCommands:
    def test_cd_changes_the_directory(self, shell: Shell) -> None:
        assert lines(shell, "pwd") == ["/"]
        lines(shell, "cd", "image/topics/byName/../byName")
        assert lines(shell, "pwd") == ["/image/topics/byName"]
        assert lines(shell, "ls") == ["t", "u"]
        assert lines(shell, "cat", "t/name", "./u/name") == ["t", "u"]
        lines(shell, "cd")
        assert lines(shell, "pwd") == ["/"]

    def test_wildcards_match_names(self, shell: Shell) -> None:
        assert lines(shell, "cat", "/image/topics/by*/?/name") == ["t", "u"]
        assert lines(shell, "find", "/image/topics/byName/[t]") == [
            "/image/topics/byName/t",
            "/image/topics/byName/t/id",
            "/image/topics/byName/t/name",
        ]

    @pytest.mark.parametrize(
        ("command", "message"),
        [
            (["cat", "/nope"], "cat: /nope: No such file or directory."),
            (["cat", "/image"], "cat: /image: Is a directory"),
            (["cat"], "cat: name a file."),
            (["cd", "/image/provenance"], "cd: /image/provenance: not a directory."),
            (["cd", "a", "b"], "cd: too many arguments."),
            (["ls", "/x*"], "ls: /x*: No such file or directory."),
            (["frob"], "invalid choice: 'frob'"),
            (["man"], "man: name a command."),
            (["man", "frob"], "man: unknown command frob."),
            (["history", "x"], "history: x is not a number."),
        ],
    )
    def test_invalid_command_raises(self, command: Sequence[str], message: str, shell: Shell) -> None:
        with pytest.raises(ShellError) as failed:
            lines(shell, *command)
        assert str(failed.value).startswith(message)

    def test_output_precedes_the_error(self, shell: Shell) -> None:
        printed: list[str] = []
        with pytest.raises(ShellError, match="/nope"):
            printed.extend(shell.run(["cat", "/nope", "/image/topics/byName/t/name"]))
        assert list(_until_error(shell, ["cat", "/nope", "/image/topics/byName/t/name"])) == ["t"]

    def test_help_history_and_exit(self, shell: Shell) -> None:
        assert any(line.startswith("tree ") for line in lines(shell, "help"))
        assert lines(shell, "man", "pwd") == ["pwd: print the current directory."]
        assert lines(shell, "history", "2") == ["    2  man pwd", "    3  history 2"]
        for word in ("exit", "quit"):
            with pytest.raises(ShellExit):
                lines(shell, word)

    def test_paths_are_completed(self, shell: Shell) -> None:
        assert shell.complete("/image/top") == ["/image/topics/"]
        assert shell.complete("image/topics/byName/") == ["image/topics/byName/t/", "image/topics/byName/u/"]
        assert shell.complete("/image/prov") == ["/image/provenance"]
        assert shell.complete("/nope/x") == []


def _until_error(shell: Shell, words: Sequence[str]) -> list[str]:
    printed = []
    try:
        for line in shell.run(words):
            printed.append(line)  # noqa: PERF402  lines before the error are kept
    except ShellError:
        pass
    return printed


class TestProgram:
    def test_commands_are_read_from_a_pipe(
        self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        monkeypatch.setattr("sys.stdin", io.StringIO("cd /image\n\ncat nope\n'open\npwd\nexit\nls\n"))
        assert of_snapshot() == 0
        captured = capsys.readouterr()
        assert captured.out == "/image\n"
        assert captured.err == "cat: nope: No such file or directory.\nNo closing quotation.\n"

    def test_failed_command_exits_with_1(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert of_snapshot("cat", "/nope") == 1
        assert capsys.readouterr().err == "Error: cat: /nope: No such file or directory.\n"

    def test_invalid_snapshot_is_reported(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        (tmp_path / "cut.checkpoint").write_bytes(SNAPSHOT.read_bytes()[:-10])
        assert run(["metadata-shell", "--snapshot", str(tmp_path / "cut.checkpoint"), "ls"]) == 1
        assert run(["metadata-shell", "--snapshot", str(tmp_path / "absent"), "ls"]) == 1
        err = capsys.readouterr().err.splitlines()
        assert "is not a complete snapshot" in err[0]
        assert "No such file or directory" in err[1]

    def test_snapshot_and_cluster_exclude_each_other(self) -> None:
        assert run(["metadata-shell", "--snapshot", "f", "--bootstrap-server", "h:1", "ls"]) == 2


class Live:
    """A broker that serves the metadata log: a snapshot below `start`, then batches."""

    def __init__(self, broker: FakeBroker, snapshot: bytes = b"", start: int = 0) -> None:
        self.snapshot = snapshot
        self.start = start
        self.batches: list[tuple[int, bytes]] = []
        self.end = start
        broker.topics[TOPIC] = 1
        broker.answer(ApiKey.FETCH, self.fetch, (4, 12))
        broker.answer(ApiKey.FETCH_SNAPSHOT, self.page)

    def append(self, *records: MetadataRecord) -> None:
        frames = [encode_record(record, 0) for record in records]
        self.batches.append((self.end, data_batch(frames, base_offset=self.end, epoch=3, timestamp_ms=1)))
        self.end += len(records)

    def fetch(self, request: FetchRequest) -> FetchResponse:
        offset = request.topics[0].partitions[0].fetch_offset
        answer = PartitionData(0, high_watermark=self.end, log_start_offset=self.start)
        if offset < self.start:
            answer.error_code, answer.snapshot_id = ErrorCode.OFFSET_OUT_OF_RANGE, SnapshotId(self.start, 3)
        else:
            found = [data for base, data in self.batches if base >= offset]
            answer.records = found[0] if found else b""  # one batch per response
        return FetchResponse(responses=[FetchableTopicResponse(TOPIC, partitions=[answer])])

    def page(self, request: FetchSnapshotRequest) -> FetchSnapshotResponse:
        wanted = request.topics[0].partitions[0]
        data = self.snapshot[wanted.position : wanted.position + 50]
        answer = FetchSnapshotResponsePartitionSnapshot(size=len(self.snapshot), unaligned_records=data)
        if wanted.position >= len(self.snapshot):
            answer.error_code = ErrorCode.POSITION_OUT_OF_RANGE
        return FetchSnapshotResponse(topics=[FetchSnapshotResponseTopicSnapshot(TOPIC, [answer])])


class TestLive:
    def test_log_is_read_from_its_start(self, broker: FakeBroker, ottla: Ottla) -> None:
        live = Live(broker)
        live.append(FeatureLevelRecord("metadata.version", 29), TopicRecord("t", OWN))
        live.append(TopicRecord("u", OTHER))
        assert ottla("metadata-shell", "ls", "/image/topics/byName").lines == ["t", "u"]
        assert ottla("metadata-shell", "cat", "/image/provenance").out.startswith("offset 2, epoch 3,")

    def test_snapshot_is_fetched_if_the_log_start_is_higher(self, broker: FakeBroker, ottla: Ottla) -> None:
        image = image_of(FeatureLevelRecord("metadata.version", 29), TopicRecord("t", OWN))
        live = Live(broker, b"".join(image_batches(image, None)), start=10)
        live.append(TopicRecord("u", OTHER))
        assert ottla("metadata-shell", "ls", "/image/topics/byName").lines == ["t", "u"]
        assert ottla("metadata-shell", "cat", "/image/provenance").out.startswith("offset 10, epoch 3,")

    def test_corrupt_snapshot_is_reported(self, broker: FakeBroker, ottla: Ottla) -> None:
        Live(broker, b"x" * 100, start=10)
        outcome = ottla("metadata-shell", "ls")
        assert outcome.code == 1
        assert outcome.err.startswith(f"Error: the snapshot of {TOPIC}: ")

    def test_each_command_reads_the_latest_metadata(
        self, broker: FakeBroker, ottla: Ottla, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        live = Live(broker)
        live.append(TopicRecord("t", OWN))

        class Slowly(io.StringIO):
            def readline(self, size: int = -1) -> str:  # type: ignore[override]  # the base class accepts None
                line = super().readline(size)
                if line.startswith("cat"):
                    live.append(TopicRecord("u", OTHER))
                return line

        monkeypatch.setattr("sys.stdin", Slowly("ls /image/topics/byName\ncat /image/topics/byName/u/name\n"))
        assert ottla("metadata-shell").lines == ["t", "u"]

    def test_cluster_without_the_metadata_topic_is_reported(self, broker: FakeBroker, ottla: Ottla) -> None:
        outcome = ottla("metadata-shell", "ls")
        assert outcome.code == 1
        assert outcome.err.count("\n") == 1
