"""Reads of a log by a checker."""

from typing import Final

from storage.local_log import LogSlice
from storage.log import Log

_ALL: Final = 1 << 30


def read(log: Log, start: int, end: int) -> LogSlice:
    """Read batches below offset `end`, also if the directory failed in the event in which a leader committed them."""
    failure, log.failure = log.failure, None
    try:
        return log.read(start, _ALL, end)
    finally:
        log.failure = failure
