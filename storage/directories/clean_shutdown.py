"""`.kafka_cleanshutdown`: the marker that everything in a log directory was flushed and closed before the last stop.

The marker is written last and removed before anything is loaded, so that a crash in between counts as one. It holds the
broker epoch of the run that wrote it, for the next registration (Kafka's ``CleanShutdownFileHandler``).
"""

import json

from storage.files import FileSystem, join, read_file, replace_file

CLEAN_SHUTDOWN_FILE = ".kafka_cleanshutdown"
UNKNOWN_BROKER_EPOCH = -1
_VERSION = 0


def write_marker(fs: FileSystem, directory: str, broker_epoch: int = UNKNOWN_BROKER_EPOCH) -> None:
    content = json.dumps({"version": _VERSION, "brokerEpoch": broker_epoch}, separators=(",", ":"))
    replace_file(fs, join(directory, CLEAN_SHUTDOWN_FILE), content.encode())


def take_marker(fs: FileSystem, directory: str) -> int | None:
    """Remove the marker durably and return its broker epoch; None without a marker.

    Kafka before 3.7 wrote an empty file, which means a clean shutdown with an unknown epoch.
    """
    path = join(directory, CLEAN_SHUTDOWN_FILE)
    if not fs.exists(path):
        return None
    epoch = _broker_epoch(read_file(fs, path))
    fs.remove(path)
    fs.sync_directory(directory)
    return epoch


def _broker_epoch(content: bytes) -> int:
    try:
        epoch = json.loads(content)["brokerEpoch"]
    except (ValueError, LookupError, TypeError):
        return UNKNOWN_BROKER_EPOCH
    return epoch if isinstance(epoch, int) else UNKNOWN_BROKER_EPOCH
