"""The command storage: formatting and information."""

import base64
import hashlib
import json
from pathlib import Path

import pytest

from broker.cli.main import run
from broker.cli.node.scram_credential import scram_record
from broker.cli.storage import initial_records, parse_release
from broker.metadata.image.metadata_version import MetadataVersion
from broker.metadata.snapshot.codec import read_snapshot
from protocol.messages.metadata_records import FeatureLevelRecord, UserScramCredentialRecord
from protocol.primitives import uuid_from_text, uuid_to_text
from storage.directories.meta_properties import read_meta_properties
from storage.files import OsFileSystem

CLUSTER_ID = "5UGSfPCiS0KcqzV2IZCXIA"
OWN, OTHER = "tYrn9BBZTvC6MCd6h0jY6A", "JEXY6aqzQY-32P5TStzaFg"
VOTERS = "__cluster_metadata-0/00000000000000000000-0000000000.checkpoint"


@pytest.fixture
def config(tmp_path: Path) -> Path:
    """A combined node with two log directories and a static quorum."""
    return _write(tmp_path, "controller.quorum.voters=3@localhost:19093")


def _write(tmp_path: Path, quorum: str) -> Path:
    path = tmp_path / "server.properties"
    path.write_text(
        "process.roles=broker,controller\nnode.id=3\ncontroller.listener.names=CONTROLLER\n"
        "listeners=PLAINTEXT://localhost:19092,CONTROLLER://localhost:19093\n"
        f"log.dirs={tmp_path / 'a'},{tmp_path / 'b'}\n{quorum}\n"
    )
    return path


def _format(config: Path, *arguments: str, cluster_id: str = CLUSTER_ID) -> int:
    return run(["storage", "format", "-c", str(config), "-t", cluster_id, *arguments])


def _levels(path: Path) -> dict[str, int]:
    records = read_snapshot(path.read_bytes()).records
    return {record.name: record.feature_level for record in records if isinstance(record, FeatureLevelRecord)}


def test_random_uuid_prints_a_cluster_id(capsys: pytest.CaptureFixture[str]) -> None:
    ids = set()
    for _ in range(5):
        assert run(["storage", "random-uuid"]) == 0
        ids.add(capsys.readouterr().out.strip())
    assert len(ids) == 5
    assert all(len(uuid_from_text(text)) == 16 for text in ids)
    assert run(["storage", "random-uuid", "--json"]) == 0
    assert len(uuid_from_text(json.loads(capsys.readouterr().out)["uuid"])) == 16


def test_format_writes_meta_properties(config: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert _format(config) == 0
    assert capsys.readouterr().out.splitlines() == [
        f"Formatting metadata directory {tmp_path / 'a'} with metadata.version 4.2-IV1.",
        f"Formatting data directory {tmp_path / 'b'} with metadata.version 4.2-IV1.",
    ]
    found = [read_meta_properties(OsFileSystem(), str(tmp_path / name)) for name in "ab"]
    assert [(meta.cluster_id, meta.node_id) for meta in found if meta] == [(CLUSTER_ID, 3), (CLUSTER_ID, 3)]
    assert len({meta.directory_id for meta in found if meta}) == 2
    assert _levels(tmp_path / "a" / "bootstrap.checkpoint")["metadata.version"] == MetadataVersion.IV_4_2_1
    assert (tmp_path / "b" / "bootstrap.checkpoint").read_bytes() == (
        tmp_path / "a" / "bootstrap.checkpoint"
    ).read_bytes()
    assert not (tmp_path / "a" / VOTERS).exists()


def test_standalone_formats_a_dynamic_quorum_of_one(tmp_path: Path) -> None:
    config = _write(tmp_path, "controller.quorum.bootstrap.servers=localhost:19093")
    assert _format(config, "--standalone") == 0
    control = read_snapshot((tmp_path / "a" / VOTERS).read_bytes()).control
    meta = read_meta_properties(OsFileSystem(), str(tmp_path / "a"))
    assert control is not None
    assert control.voters is not None
    assert meta is not None
    (voter,) = control.voters.voters
    assert (control.kraft_version, voter.voter_id, voter.voter_directory_id) == (1, 3, meta.directory_id)
    assert [(e.name, e.host, e.port) for e in voter.endpoints] == [("CONTROLLER", "localhost", 19093)]


def test_formatted_directory_is_skipped(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _format(config)
    capsys.readouterr()
    assert _format(config) == 1
    assert "is already formatted" in capsys.readouterr().err
    assert _format(config, "--ignore-formatted") == 0
    assert capsys.readouterr().out == "All of the log directories are already formatted.\n"


def test_format_for_another_cluster_is_refused(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _format(config)
    assert _format(config, "-g", cluster_id="FwvoXlFiSyKpvTRKUtD4_Q") == 1
    assert f"belongs to cluster.id {CLUSTER_ID}" in capsys.readouterr().err


def test_release_version_and_features_determine_the_records(config: Path, tmp_path: Path) -> None:
    assert _format(config, "-r", "4.0", "-f", "group.version=0") == 0
    levels = _levels(tmp_path / "a" / "bootstrap.checkpoint")
    assert levels["metadata.version"] == MetadataVersion.IV_4_0_3
    assert "group.version" not in levels


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["-r", "9.9"], 1, "Unknown metadata.version 9.9."),
        (["-f", "nosuch=1"], 1, "Unsupported feature: nosuch."),
        (["-f", "group.version=9"], 1, "Feature group.version: level 9 is not supported; use 0 to 1."),
        (["-f", "kraft.version=1"], 1, "Cannot set kraft.version to 1 unless controller.quorum.voters is empty"),
        (["-r", "4.0", "-f", "metadata.version=29"], 2, "exclude each other"),
        (["--standalone"], 1, "You cannot specify controller.quorum.voters and format the node with"),
        (["-I", f"3@localhost:19093:{OWN}"], 1, "You cannot specify controller.quorum.voters and format the node with"),
        (["-N", "-s"], 2, "--standalone and --no-initial-controllers exclude each other."),
        (["-N", "-I", "x"], 2, "--no-initial-controllers and --initial-controllers exclude each other."),
        (["-S", "SCRAM-SHA-1=[name=a,password=b]"], 1, "The add-scram mechanism SCRAM-SHA-1 is not supported."),
        (["-S", "SCRAM-SHA-256=[password=b]"], 1, "You must supply 'name' to add-scram"),
        (["-S", "SCRAM-SHA-256=[name=a]"], 1, "You must supply one of 'password' or 'saltedpassword'"),
        (["-S", "SCRAM-SHA-256=[name=a,saltedpassword=YQ==]"], 1, "You must supply 'salt' with 'saltedpassword'"),
        (["-S", "SCRAM-SHA-256=[name=a,password=b,iterations=10]"], 1, "must be >= 4096 for add-scram"),
        (["-S", "SCRAM-SHA-256=[name=a,password=b,iterations=20000]"], 1, "must be <= 16384 for add-scram"),
        (["-S", "SCRAM-SHA-256=[name=a,password=b,colour=red]"], 1, "Unknown SCRAM configurations: colour"),
        (["-S", "SCRAM-SHA-256=[name=a,password=b,salt=?]"], 1, "The 'salt' of add-scram is not base64."),
        (["-S", "name=a"], 1, "--add-scram is not of the form"),
        (["-r", "3.5-IV0", "-S", "SCRAM-SHA-256=[name=a,password=b]"], 1, "SCRAM is only supported in"),
    ],
)
def test_invalid_format_options_are_refused(
    arguments: list[str], code: int, message: str, config: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert _format(config, *arguments) == code
    assert message in capsys.readouterr().err
    assert not (tmp_path / "a").exists()


def test_invalid_cluster_id_is_refused(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert _format(config, cluster_id="mine") == 1
    assert "Cluster ID string mine does not appear to be a valid UUID" in capsys.readouterr().err


def test_controller_requires_a_quorum(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert _format(_write(tmp_path, "controller.quorum.bootstrap.servers=localhost:19093")) == 1
    assert "you must specify one of the following: --standalone, --initial-c" in capsys.readouterr().err


def _dynamic(tmp_path: Path) -> Path:
    return _write(tmp_path, "controller.quorum.bootstrap.servers=localhost:19093")


def test_initial_controllers_are_voters_and_determine_the_directory_id(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    voters = f"4@[::1]:29093:{OTHER},3@localhost:19093:{OWN}"
    assert _format(_dynamic(tmp_path), "--initial-controllers", voters, "-f", "kraft.version=1") == 0
    assert "Formatting dynamic metadata voter directory" in capsys.readouterr().out
    control = read_snapshot((tmp_path / "a" / VOTERS).read_bytes()).control
    assert control is not None
    assert control.voters is not None
    assert control.kraft_version == 1
    assert [
        (v.voter_id, uuid_to_text(v.voter_directory_id), [(e.name, e.host, e.port) for e in v.endpoints])
        for v in control.voters.voters
    ] == [(3, OWN, [("CONTROLLER", "localhost", 19093)]), (4, OTHER, [("CONTROLLER", "::1", 29093)])]
    meta = read_meta_properties(OsFileSystem(), str(tmp_path / "a"))
    assert meta is not None
    assert meta.directory_id == uuid_from_text(OWN)


def test_other_node_stores_the_initial_controllers(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert _format(_dynamic(tmp_path), "-I", f"4@localhost:29093:{OTHER}") == 0
    assert "Formatting dynamic metadata directory" in capsys.readouterr().out
    assert (tmp_path / "a" / VOTERS).exists()


def test_node_without_initial_controllers_is_formatted_to_join(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert _format(_dynamic(tmp_path), "-N", "-f", "kraft.version=1") == 0
    assert f"Formatting metadata directory {tmp_path / 'a'}" in capsys.readouterr().out
    assert not (tmp_path / "a" / VOTERS).exists()
    assert (tmp_path / "a" / "bootstrap.checkpoint").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["-I", "junk"], "'junk' is not of the form ID@HOST:PORT:DIRECTORY."),
        (["-I", f"3@h:0:{OWN}"], "is not of the form"),
        (["-I", "3@h:1:short"], "'short' is not a directory id"),
        (["-I", ","], "--initial-controllers is empty"),
        (["-I", f"3@h:1:{OWN},3@h:2:{OTHER}"], "node id 3 was specified more than once"),
        (["-s", "-f", "kraft.version=0"], "Cannot set kraft.version to 0 if controller.quorum.voters is empty"),
        (["-N", "-f", "kraft.version=0"], "Cannot set kraft.version to 0 if controller.quorum.voters is empty"),
        (["-s", "-r", "3.8"], "A dynamic quorum requires metadata.version 3.9-IV0"),
    ],
)
def test_invalid_dynamic_quorum_options_are_refused(
    arguments: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert _format(_dynamic(tmp_path), *arguments) == 1
    assert message in capsys.readouterr().err
    assert not (tmp_path / "a").exists()


def test_scram_credentials_are_initial_records(config: Path, tmp_path: Path) -> None:
    """Apache Kafka 4.2 derives the same keys from this salt and password."""
    credential = 'SCRAM-SHA-512=[name=bob,iterations=4096,salt="MWx2NHBkbnc0ZndxN25vdGNxMTZzcXRo",password="pw"]'
    assert _format(config, "-S", credential, "-S", "SCRAM-SHA-256=[name=alice,password=secret]") == 0
    records = read_snapshot((tmp_path / "a" / "bootstrap.checkpoint").read_bytes()).records
    bob, alice = [record for record in records if isinstance(record, UserScramCredentialRecord)]
    assert (bob.name, bob.mechanism, bob.iterations) == ("bob", 2, 4096)
    assert bob.stored_key.hex().startswith("a48f36c66c14196c")
    assert bob.server_key.hex().startswith("792fe52bef9f6525")
    assert (alice.name, alice.mechanism, len(alice.salt), len(alice.stored_key)) == ("alice", 1, 20, 32)


def test_salted_password_is_used_unchanged() -> None:
    plain = scram_record("SCRAM-SHA-256=[name=a,salt=c2FsdA==,password=pw]").message
    salted = base64.b64encode(hashlib.pbkdf2_hmac("sha256", b"pw", b"salt", 4096)).decode()
    assert scram_record(f"SCRAM-SHA-256=[name=a,salt=c2FsdA==,saltedpassword={salted}]").message == plain


def test_directory_that_cannot_be_created_is_reported(
    tmp_path: Path, config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a").write_text("a file is in the way")
    assert _format(config) == 1
    assert capsys.readouterr().err.startswith("Error: ")


def test_info_prints_meta_properties(config: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _format(config)
    capsys.readouterr()
    assert run(["storage", "info", "-c", str(config)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[:3] == ["Found log directories:", f"  {tmp_path / 'a'}", f"  {tmp_path / 'b'}"]
    assert lines[4].startswith(f"Found metadata: {{cluster.id={CLUSTER_ID}, directory.id=")
    assert lines[4].endswith(", node.id=3, version=1}")


def test_info_of_an_unformatted_directory_fails(
    config: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["storage", "info", "-c", str(config), "--json"]) == 1
    captured = capsys.readouterr()
    assert json.loads(captured.out) == {
        "directories": [{"path": str(tmp_path / "a")}, {"path": str(tmp_path / "b")}],
        "problems": [f"{tmp_path / name} is not formatted." for name in "ab"],
    }
    assert captured.err == f"Error: {tmp_path / 'a'} is not formatted.\n"


@pytest.mark.parametrize("action", [["info"], ["format", "-t", CLUSTER_ID]])
def test_invalid_configuration_is_reported(
    action: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "c").write_text("process.roles=cook\nnode.id=1\n")
    assert run(["storage", *action, "-c", str(tmp_path / "c")]) == 1
    assert "process.roles" in capsys.readouterr().err


def test_release_parses_its_short_form() -> None:
    assert (parse_release("4.0"), parse_release("4.0-IV1")) == (MetadataVersion.IV_4_0_3, MetadataVersion.IV_4_0_1)


def test_feature_option_sets_the_metadata_version() -> None:
    version, records = initial_records(None, {"metadata.version": 21})
    assert version is MetadataVersion.IV_3_9_0
    assert [record.message for record in records] == [FeatureLevelRecord(name="metadata.version", feature_level=21)]
