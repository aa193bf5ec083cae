"""A generated metadata log in a file, served with the Kafka protocol by a separate process, so that readers do not bear
the cost of serving.

`LogServer` starts the process and sets the committed part of the log; the process maps the file into memory.
"""

import mmap
import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import IO

from protocol.records.batch import iter_headers
from tests.benchmarks.metadata.pipeline import log_chunks
from tests.support.fakes.served_metadata_log import ServedMetadataLog


def write_log(path: Path, partitions: int, changes: int) -> None:
    """Write the log of `metadata_pipeline`; its first records do not depend on the number of changes after them."""
    with path.open("wb") as file:
        for chunk in log_chunks(partitions, changes):
            file.write(chunk)


class LogServer:
    """A context manager; `grow` commits all but the last batches of the file."""

    def __init__(self, path: Path) -> None:
        command = [sys.executable, "-m", __name__, str(path)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.address = self._told()

    def __enter__(self) -> "LogServer":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        _pipe(self._process.stdin).close()
        self._process.wait()
        _pipe(self._process.stdout).close()

    def grow(self, without: int) -> int:
        """Commit the log up to so many batches before its end; return its end offset."""
        print(without, file=_pipe(self._process.stdin), flush=True)
        return int(self._told())

    def _told(self) -> str:
        return _pipe(self._process.stdout).readline().strip()


def _pipe(stream: IO[str] | None) -> IO[str]:
    assert stream is not None
    return stream


def serve(path: Path) -> None:
    """Serve until stdin ends; each line has the number of uncommitted batches at the end of the file."""
    with path.open("rb") as file:
        view = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))  # unmapped at the end of the process
    batches = [view[position : position + header.size] for position, header in iter_headers(view)]
    with ServedMetadataLog(batches, visible=0) as served:
        print(served.address, flush=True)
        for line in sys.stdin:
            served.grow(len(batches) - int(line))
            print(served.end, flush=True)


if __name__ == "__main__":
    serve(Path(sys.argv[1]))
