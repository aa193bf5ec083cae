"""A node that still runs on its directory because its supervisor was killed: it stops by itself, and we wait for it."""

import time
from collections.abc import Callable

from storage.directories.log_dir import LogDirLocked, lock_directory
from storage.files import FileSystem

PATIENCE_S = 40.0
"""Longer than a node that lost its supervisor takes to stop, or to be ended by its lifeline, which gives it 30 s."""
POLL_S = 0.05


def wait_until_free(fs: FileSystem, directory: str, sleep: Callable[[float], None] = time.sleep) -> bool:
    """Wait until nobody holds the log directory; False if that takes too long. Raises OSError."""
    for _ in range(int(PATIENCE_S / POLL_S)):
        try:
            lock_directory(fs, directory).release()
        except LogDirLocked:
            sleep(POLL_S)
        else:
            return True
    return False
