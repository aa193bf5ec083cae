"""A lagging consumer as a process: reads from the first offset at a given rate, repeatedly.

`python -m tests.benchmarks.tiered.old_reader BOOTSTRAP TOPIC PARTITIONS MB_PER_SECOND` prints, line by line, the
number of bytes read so far.
"""

import contextlib
import subprocess
import sys
import time
from collections.abc import Iterator

from confluent_kafka import Consumer, TopicPartition

REPORT_S = 0.5
TOO_LATE_S = 1.0


class OldReader:
    """The process, as seen by its parent."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self._process = process

    def await_reading(self) -> None:
        """Wait until it has read something."""
        assert self._process.stdout is not None
        while not int(self._process.stdout.readline() or -1):
            pass

    def stop(self) -> float:
        """Stop it; return the megabytes read."""
        self._process.terminate()
        lines = self._process.communicate()[0].split()
        return int(lines[-1]) / 1e6 if lines else 0.0


@contextlib.contextmanager
def reading(bootstrap: str, topic: str, partitions: int, mb_per_s: float) -> Iterator[OldReader]:
    """Run a reader within the context, from its first record on."""
    command = [
        sys.executable,
        "-m",
        "tests.benchmarks.tiered.old_reader",
        bootstrap,
        topic,
        str(partitions),
        str(mb_per_s),
    ]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    reader = OldReader(process)
    try:
        reader.await_reading()
        yield reader
    finally:
        process.kill()
        process.wait()


def main() -> None:
    """Read until killed."""
    bootstrap, topic, partitions, rate = sys.argv[1], sys.argv[2], int(sys.argv[3]), float(sys.argv[4])
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "behind",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "queued.max.messages.kbytes": 8192,
            "log_level": 0,
        }
    )
    consumer.assign([TopicPartition(topic, number, 0) for number in range(partitions)])
    begin = report = time.monotonic()
    read = 0
    while True:
        for message in consumer.consume(1000, timeout=0.1):
            if message.error() is None:
                read += len(message)
            else:  # the end of a partition
                consumer.seek(TopicPartition(topic, message.partition(), 0))
        now = time.monotonic()
        if now >= report:
            print(read, flush=True)
            report = now + REPORT_S
        ahead_s = read / rate / 1e6 - (now - begin)
        if ahead_s < -TOO_LATE_S:  # a missed interval is not made up for
            begin -= ahead_s + TOO_LATE_S
        time.sleep(max(0.0, ahead_s))


if __name__ == "__main__":
    main()
