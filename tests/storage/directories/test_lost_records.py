"""Log directories whose logs have lost flushed records to rot."""

import logging
from random import Random

import pytest

from broker.node.data import report_losses
from protocol.ids import LeaderEpoch
from protocol.primitives import Uuid
from protocol.records.builder import Record, build_batch
from storage.config import LogConfig
from storage.directories.checkpoints import TopicPartition
from storage.directories.log_dirs import LogDirs
from storage.files import read_file, write_file
from tests.support.fakes.memory_files import MemoryFileSystem

NOW_MS = 1_700_000_000_000
T0, T1 = (TopicPartition("t", number) for number in range(2))
FILE = "a/t-1/00000000000000000000.log"


def loaded(fs: MemoryFileSystem) -> LogDirs:
    dirs = LogDirs.open(fs, ["a"], lambda directory, logs: None)
    dirs.adopt("MkU3OEVBNTcwNTJENDM2Qg", 1, lambda: Uuid(bytes(15) + b"\x07"))
    dirs.load(lambda topic: LogConfig(), now_ms=NOW_MS)
    return dirs


@pytest.mark.parametrize("clean", [True, False])
def test_loss_of_flushed_records_is_reported_and_hides_the_former_broker_epoch(
    clean: bool, caplog: pytest.LogCaptureFixture
) -> None:
    fs = MemoryFileSystem()
    dirs = loaded(fs)
    for partition in (T0, T1):
        log = dirs.create(partition, LogConfig(), now_ms=NOW_MS, topic_id=Uuid(bytes(15) + b"\x01"))
        for _ in range(3):
            log.append_as_leader(bytearray(build_batch([Record(NOW_MS, b"k", b"v")])), LeaderEpoch(0), now_ms=NOW_MS)
        dirs.checkpoints.make_durable(log)
    if clean:
        dirs.close(broker_epoch=17)
        dirs.unlock()
    else:
        fs.crash(Random(1))
    write_file(fs, FILE, read_file(fs, FILE)[:-1], sync=True)

    dirs = loaded(fs)
    assert dirs.previous_broker_epoch == -1
    ((partition, lost),) = dirs.losses
    assert (partition, lost.first_offset, lost.end_offset, lost.path) == (T1, 2, 3, FILE)
    with caplog.at_level(logging.ERROR, "broker.storage"):
        report_losses(dirs.losses)
    (line,) = caplog.records
    assert line.__dict__["fields"] | {"position": 0} == {
        "partition": "t-1", "offset": 2, "last_offset": 2, "file": FILE, "position": 0
    }  # fmt: skip

    dirs.close(broker_epoch=18)
    dirs.unlock()
    again = loaded(fs)
    assert (again.losses, again.previous_broker_epoch) == ([], 18)
