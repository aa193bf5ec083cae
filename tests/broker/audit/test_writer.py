"""The file of the audit log."""

import json
import stat
import threading
from pathlib import Path

from broker.audit.writer import AuditWriter
from broker.bounded_log import BoundedLog


class StuckFile:
    """A file whose first write waits until it is released."""

    def __init__(self) -> None:
        self.data = b""
        self.entered = threading.Event()
        self.released = threading.Event()

    def write(self, data: bytes) -> None:
        self.entered.set()
        assert self.released.wait(10)
        self.data += data

    def close(self) -> None: ...


def test_lines_are_written_in_order_by_stop(tmp_path: Path) -> None:
    writer = AuditWriter(BoundedLog(tmp_path / "audit", mode=0o640), 5000, lambda: 0)
    writer.start()
    for number in range(2000):
        writer.put(b"%d\n" % number)
    writer.stop()
    assert (tmp_path / "audit").read_text().split() == [str(number) for number in range(2000)]
    assert stat.S_IMODE((tmp_path / "audit").stat().st_mode) == 0o640


def test_full_queue_drops_and_the_file_says_so() -> None:
    file = StuckFile()
    writer = AuditWriter(file, 2, lambda: 0)
    writer.start()
    writer.put(b"0\n")
    assert file.entered.wait(10)
    for number in range(1, 6):
        writer.put(b"%d\n" % number)
    file.released.set()
    writer.stop()
    assert writer.dropped == 3
    lines = file.data.splitlines()
    assert lines[:3] == [b"0", b"1", b"2"]
    assert json.loads(lines[3]) == {"time": "1970-01-01T00:00:00.000Z", "dropped": 3}
    assert [sample.value for family in writer.families() for sample in family.read()] == [3]
