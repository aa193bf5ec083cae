"""The command dump-log, compared with the output of Kafka's tool on files of Apache Kafka, and on corrupt files."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from broker.cli.dump.batches import BatchOptions, dump_batches
from broker.cli.main import run
from protocol.records.batch import HEADER_SIZE
from protocol.records.builder import Record, build_batch
from protocol.records.control import ControlType, control_batch
from tests.wire.kafka_dumps import CASES, FILES, digest, expected_digests

LOG = "00000000000000000000.log"
EXPECTED = expected_digests()


@pytest.fixture
def kafka_files(monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(FILES)
    return FILES


@pytest.mark.parametrize("arguments", CASES)
def test_output_equals_kafkas_tool(arguments: str, kafka_files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["dump-log", *arguments.split()]) == 0
    assert digest(capsys.readouterr().out) == EXPECTED[arguments]


def test_json_is_one_document_per_line(kafka_files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run(["dump-log", "--files", f"tx-0/{LOG}", "--print-data-log", "--json"])
    documents = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [document["kind"] for document in documents[:4]] == ["batch", "record", "batch", "record"]
    assert documents[1]["key"] == "k1"
    assert documents[3]["control"] == {"type": "endTxnMarker", "data": "COMMIT coordinatorEpoch: 0"}
    assert {document["file"] for document in documents} == {f"tx-0/{LOG}"}


def test_json_keeps_decoded_messages_as_objects(kafka_files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run(["dump-log", "--files", "bootstrap.checkpoint", "--cluster-metadata-decoder", "--json"])
    documents = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    payloads = [document["payload"] for document in documents if document.get("payload")]
    assert payloads[0] == {
        "type": "FEATURE_LEVEL_RECORD",
        "version": 0,
        "data": {"name": "metadata.version", "featureLevel": 29},
    }


def test_text_files_are_printed_unchanged(kafka_files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["dump-log", "--files", "tx-0/leader-epoch-checkpoint,__cluster_metadata-0/quorum-state"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[:3] == ["Dumping tx-0/leader-epoch-checkpoint", "0", "2"]
    assert '"leaderId":1' in lines[-1]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("nosuch.log", "cannot read nosuch.log: No such file or directory."),
        ("tx-0", "cannot read tx-0: Is a directory."),
        ("dumps.json", "dumps.json: the name belongs to no known file type of a log directory."),
    ],
)
def test_file_that_cannot_be_dumped_is_reported(
    name: str, message: str, kafka_files: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["dump-log", "--files", name]) == 1
    assert capsys.readouterr().err == f"Error: {message}\n"


def test_files_is_required_and_decoders_exclude_each_other(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["dump-log"]) == 2
    assert run(["dump-log", "--files", "x.log", "--offsets-decoder", "--transaction-log-decoder"]) == 2
    assert "The decoder options exclude each other; give one." in capsys.readouterr().err


def test_log_whose_name_is_not_an_offset_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "x.log").write_bytes(b"")
    assert run(["dump-log", "--files", str(tmp_path / "x.log")]) == 1
    assert "must begin with the file's base offset" in capsys.readouterr().err


def _copy(tmp_path: Path, name: str) -> Path:
    target = tmp_path / name
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(FILES / name, target)
    return target


def test_truncated_batch_is_reported_after_complete_batches(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = _copy(tmp_path, f"tx-0/{LOG}")
    log.write_bytes(log.read_bytes()[:-5])
    assert run(["dump-log", "--files", str(log)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert sum(line.startswith("baseOffset") for line in lines) == 11
    assert lines[-2:] == [
        "The batch at position 848 is truncated: 78 bytes",
        f"Found 73 invalid bytes at the end of {log}",
    ]


def test_preallocated_zeros_are_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = _copy(tmp_path, f"g-2/{LOG}")
    log.write_bytes(log.read_bytes() + bytes(200))
    run(["dump-log", "--files", str(log)])
    assert capsys.readouterr().out.splitlines()[-1] == f"Found 200 invalid bytes at the end of {log}"


def test_wrong_checksum_does_not_stop_the_dump(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = _copy(tmp_path, f"tx-0/{LOG}")
    data = bytearray(log.read_bytes())
    data[70] ^= 1
    log.write_bytes(data)
    run(["dump-log", "--files", str(log)])
    valid = [line.rpartition("isvalid: ")[2] for line in capsys.readouterr().out.splitlines() if "isvalid" in line]
    assert valid == ["false"] + ["true"] * 11


def test_records_that_do_not_decompress_are_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    batch = bytearray(build_batch([Record(1, b"k", b"v" * 100)], codec=1))
    batch[HEADER_SIZE : HEADER_SIZE + 4] = b"\0\0\0\0"
    log = tmp_path / LOG
    log.write_bytes(batch)
    assert run(["dump-log", "--files", str(log), "--print-data-log"]) == 0
    assert "| the records of the batch at offset 0 cannot be decoded" in capsys.readouterr().out


def test_undecodable_records_are_reported_in_place(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = tmp_path / LOG
    log.write_bytes(build_batch([Record(1, None, b"\x01\x7f\x00"), Record(1, b"\x7f\xff", b"")]))
    run(["dump-log", "--files", str(log), "--cluster-metadata-decoder"])
    assert "Error at 0, skipping. record type 127 is unknown" in capsys.readouterr().out
    run(["dump-log", "--files", str(log), "--offsets-decoder"])
    assert 'key: {"type":"32767","data":"unknown"} payload: unknown' in capsys.readouterr().out


def test_unknown_control_record_is_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    batch = bytearray(control_batch([(ControlType.SNAPSHOT_FOOTER, b"\0\0\0")], 5))
    batch[HEADER_SIZE + 8] = 99  # the low byte of the type, in the record's key
    (tmp_path / LOG).write_bytes(batch)
    run(["dump-log", "--files", str(tmp_path / LOG), "--deep-iteration"])
    out = capsys.readouterr().out
    assert "isvalid: false" in out
    assert "controlType: UNKNOWN" in out


def test_index_that_differs_from_its_log_is_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _copy(tmp_path, f"d-0/{LOG}")
    index = _copy(tmp_path, "d-0/00000000000000000000.index")
    data = bytearray(index.read_bytes())
    data[3] = 29
    index.write_bytes(data)
    run(["dump-log", "--files", str(index), "--verify-index-only"])
    assert capsys.readouterr().out.splitlines()[1:] == [
        f"Mismatches in :{index}",
        "  Index offset: 29, log offset: 30",
    ]


def test_time_index_out_of_order_is_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    index = _copy(tmp_path, "d-0/00000000000000000000.timeindex")
    data = index.read_bytes()
    index.write_bytes(data[12:24] + data[:12])
    run(["dump-log", "--files", str(index), "--verify-index-only"])
    assert "Found timestamps out of order in" in capsys.readouterr().out


def test_preallocated_zeros_are_not_index_entries(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    index = _copy(tmp_path, "d-0/00000000000000000000.timeindex")
    entries = len(index.read_bytes()) // 12
    index.write_bytes(index.read_bytes() + bytes(4096 - 4096 % 12))
    run(["dump-log", "--files", str(index)])
    assert len(capsys.readouterr().out.splitlines()) == 1 + entries


def test_sanity_check_fails_on_a_fragment(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    index = _copy(tmp_path, "d-0/00000000000000000000.index")
    index.write_bytes(index.read_bytes()[:-3])
    run(["dump-log", "--files", str(index), "--index-sanity-check"])
    assert "failed sanity check: 333 bytes are not a multiple of 8" in capsys.readouterr().out


def test_corrupt_producer_snapshot_is_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    snapshot = _copy(tmp_path, "d-0/00000000000000000583.snapshot")
    data = bytearray(snapshot.read_bytes())
    data[20] ^= 1
    snapshot.write_bytes(data)
    assert run(["dump-log", "--files", str(snapshot)]) == 0
    assert "is corrupt: its checksum is" in capsys.readouterr().out
    snapshot.write_bytes(data[:50])
    assert run(["dump-log", "--files", str(snapshot)]) == 1
    assert "ends after 0 of 7 producers." in capsys.readouterr().err


class _Counting:
    """A file that records the largest read."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("rb")
        self.largest = 0

    def read(self, size: int, /) -> bytes:
        self.largest = max(self.largest, size)
        return self._file.read(size)

    def fileno(self) -> int:
        return self._file.fileno()

    def close(self) -> None:
        self._file.close()


def test_log_is_read_batch_by_batch() -> None:
    file = _Counting(FILES / "d-0" / LOG)
    entries = list(dump_batches(file, "x", BatchOptions()))
    file.close()
    assert len(entries) > 40
    assert file.largest < 1000


def test_dump_log_does_not_import_the_node() -> None:
    code = (
        "import sys, broker.cli.dump_log; print([m for m in sys.modules if m in ('broker.app', 'asyncio', 'socket')])"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout == "[]\n"
