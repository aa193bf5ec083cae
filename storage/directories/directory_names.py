"""Names of partition directories, with the suffixes of logs that are deleted, moved or stray."""

import uuid

from storage.directories.checkpoints import TopicPartition
from storage.files import FileSystem, join, parent

DELETE_SUFFIX = "-delete"
FUTURE_SUFFIX = "-future"
STRAY_SUFFIX = "-stray"
_SUFFIXES = (DELETE_SUFFIX, FUTURE_SUFFIX, STRAY_SUFFIX)
_MAX_NAME = 255


def parse_directory_name(name: str) -> TopicPartition:
    """Parse `topic-3`, or `topic-3.<id>` with the suffix `-delete`, `-future` or `-stray`. Raises ValueError."""
    stem, dot, suffix = name.rpartition(".")
    if dot and suffix.endswith(_SUFFIXES):
        name = stem
    topic, dash, partition = name.rpartition("-")
    if not topic or not dash or not partition.isdigit():
        raise ValueError(f"{name!r} is not the name of a topic partition")
    return TopicPartition(topic, int(partition))


def rename_aside(fs: FileSystem, path: str, partition: TopicPartition, suffix: str) -> str:
    """Rename `topic-3` to `topic-3.<32 hex digits>-delete`; return the new path. The caller syncs the directory.

    The topic is cut short where the name would be too long. The digits are unique; nothing depends on their value.
    """
    tail = f"-{partition.partition}.{uuid.uuid4().hex}{suffix}"
    aside = join(parent(path), partition.topic[: _MAX_NAME - len(tail)] + tail)
    fs.rename(path, aside)
    return aside
