"""Log directories shared by Apache Kafka and Ottla: Kafka's tools accept Ottla's files, and each continues the
other's log.
"""

import re
import shutil
from pathlib import Path

import pytest

from protocol.ids import LeaderEpoch
from protocol.records.builder import Record, build_batch
from protocol.records.compression import Codec
from protocol.records.control import ControlType, end_transaction_marker
from storage.config import LogConfig
from storage.files import OsFileSystem
from storage.log import Log
from storage.producer_state import Origin
from tests.support.fakes.batches import iter_all_records
from tests.support.kafka.apache_kafka import apache_kafka, run_tool, unavailable_reason

pytestmark = pytest.mark.interop

NOW = 1_700_000_000_000
SMALL = LogConfig(segment_bytes=40_000, index_interval_bytes=1000)
DUMP = "kafka.tools.DumpLogSegments"
PRODUCER = "org.apache.kafka.tools.ConsoleProducer"
CONSUMER = "org.apache.kafka.tools.consumer.ConsoleConsumer"
TOPICS = "org.apache.kafka.tools.TopicCommand"


@pytest.fixture(autouse=True)
def require_kafka() -> None:
    if (reason := unavailable_reason()) is not None:
        pytest.skip(reason)


def opened(path: Path, *, clean: bool, config: LogConfig = SMALL) -> Log:
    return Log.open(OsFileSystem(), str(path), config, now_ms=NOW, clean_shutdown=clean)


def values(log: Log) -> list[str]:
    found: list[str] = []
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        part = log.read(offset, 1_000_000, log.log_end_offset)
        found += [(record.value or b"").decode() for _, record in iter_all_records(part.data)]
        offset = part.next_offset
    return found


def fill(log: Log) -> tuple[int, int]:
    """Append 300 batches of 5 records in every codec and 30 transactions, half aborted. Return (batches, records)."""
    for n in range(300):
        records = [Record(NOW + 3 * n + i, b"k%d" % n, b"v%d " % i * 20, [("h", b"x"), ("n", None)]) for i in range(5)]
        log.append_as_leader(build_batch(records, codec=n % 5), LeaderEpoch(n // 100), now_ms=NOW)
        if n % 10 == 0:
            data = build_batch(records[:1], producer_id=7, producer_epoch=0, base_sequence=n // 10, transactional=True)
            log.append_as_leader(data, LeaderEpoch(n // 100), now_ms=NOW)
            marker = end_transaction_marker(ControlType(n // 10 % 2), 7, 0, 3, NOW)
            log.append_as_leader(marker, LeaderEpoch(n // 100), now_ms=NOW, origin=Origin.COORDINATOR)
    return 360, 1560


@pytest.mark.parametrize("crashed", [False, True])
def test_kafkas_dump_tool_accepts_log_files(tmp_path: Path, crashed: bool) -> None:
    log = opened(tmp_path / "t-0", clean=True)
    batches, records = fill(log)
    if crashed:
        log.close(clean=False)
        log = opened(tmp_path / "t-0", clean=False)
    log.close()
    files = sorted(str(path) for path in (tmp_path / "t-0").iterdir() if path.name[0] == "0")
    dumped = run_tool(DUMP, "--deep-iteration", "--files", ",".join(files))
    assert dumped.count("isvalid: true") == len(re.findall("^baseOffset:", dumped, re.MULTILINE)) == batches
    assert len(re.findall(r"^\| offset:", dumped, re.MULTILINE)) == records
    assert not re.findall("mismatch|Found|corrupt|Non-", dumped)
    assert dumped.count("producerId: 7 firstOffset") == 15
    indexes = [path for path in files if path.endswith(("index",)) and not path.endswith("txnindex")]
    checked = run_tool(DUMP, "--index-sanity-check", "--files", ",".join(indexes))
    assert checked.count("passed sanity check") == len(indexes)


def test_kafka_and_ottla_continue_each_others_log(tmp_path: Path) -> None:
    settings = {
        "log.segment.bytes": "1048576",
        "log.index.interval.bytes": "512",
        # The records have old timestamps and must be read before retention is first applied.
        "log.initial.task.delay.ms": "3600000",
    }
    lines = [f"line {number} of a text" for number in range(3000)]
    directory = tmp_path / "data" / "shared-0"
    with apache_kafka(tmp_path, settings) as bootstrap:
        at = ("--bootstrap-server", bootstrap, "--topic", "shared")
        run_tool(TOPICS, *at, "--create", "--partitions", "1")
        for name in ("none", "gzip", "snappy", "lz4", "zstd"):
            run_tool(PRODUCER, *at, "--compression-codec", name, stdin="\n".join(lines) + "\n")
    copy = tmp_path / "copy" / "shared-0"
    shutil.copytree(directory, copy)

    log = opened(directory, clean=True, config=LogConfig())
    assert log.recovery.scanned_bytes == 0
    assert values(log) == lines * 5
    assert len(log.producers.entries) == 5
    kafkas_index = list(log.active_segment.offset_index)
    data = [Record(NOW, None, line.encode()) for line in lines]
    for codec in Codec:
        log.append_as_leader(build_batch(data, codec=codec), log.epochs.latest_epoch, now_ms=NOW)
    log.close()

    recovered = opened(copy, clean=False, config=LogConfig(index_interval_bytes=512))
    assert recovered.recovery.cut_bytes == 0
    assert values(recovered) == lines * 5
    assert list(recovered.active_segment.offset_index) == kafkas_index

    with apache_kafka(tmp_path, settings) as bootstrap:
        at = ("--bootstrap-server", bootstrap, "--topic", "shared")
        consumed = run_tool(
            CONSUMER, *at, "--from-beginning", "--max-messages", str(10 * len(lines)), "--timeout-ms", "120000"
        )
    assert consumed.splitlines() == lines * 10
