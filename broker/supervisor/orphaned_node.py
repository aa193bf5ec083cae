"""A node that still holds its directory after its supervisor was killed. Such a node stops by itself."""

import time
from collections.abc import Callable

from storage.directories.log_dir import LogDirLocked, lock_directory
from storage.files import FileSystem

PATIENCE_S = 40.0
"""Longest wait: more than the 30 s after which an orphaned node is ended by its parent watchdog."""
POLL_S = 0.05


def wait_until_free(fs: FileSystem, directory: str, sleep: Callable[[float], None] = time.sleep) -> bool:
    """Wait until no process holds the log directory. Return False after a timeout. Raise OSError."""
    for _ in range(int(PATIENCE_S / POLL_S)):
        try:
            lock_directory(fs, directory).release()
        except LogDirLocked:
            sleep(POLL_S)
        else:
            return True
    return False
