"""How the directory of a partition is named, and what its name says when the log is leaving or arriving."""

from storage.directories.checkpoints import TopicPartition

_SUFFIXES = ("-delete", "-future", "-stray")


def parse_directory_name(name: str) -> TopicPartition:
    """`topic-3`, or that with an id and `-delete`, `-future` or `-stray` behind a dot. Raises ValueError."""
    stem, dot, suffix = name.rpartition(".")
    if dot and suffix.endswith(_SUFFIXES):
        name = stem
    topic, dash, partition = name.rpartition("-")
    if not topic or not dash or not partition.isdigit():
        raise ValueError(f"{name!r} is not the name of a topic partition")
    return TopicPartition(topic, int(partition))
