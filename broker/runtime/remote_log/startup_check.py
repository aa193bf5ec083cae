"""The check that a broker without remote storage has no topics that need it.

Such a broker would take its local segments for the whole log, and would delete the rest for good once remote storage is
back. Kafka refuses to start, too, where remote storage is off for the cluster (KAFKA-15267). Here topics may also be
tiered by a default; the cluster metadata do not show that the default was removed, but the disk does.
"""

from collections.abc import Callable, Iterable, Sequence

from broker.config.errors import ConfigError
from broker.metadata.image.config_image import ResourceType
from broker.metadata.image.metadata_image import MetadataImage
from protocol.primitives import Uuid
from storage.config import LogConfig
from storage.directories.checkpoints import LOG_START_OFFSET_FILE, TopicPartition, read_offsets
from storage.errors import CorruptCheckpoint
from storage.files import FileSystem, join
from storage.local_log import NEVER_TIERED
from storage.segment import LOG_SUFFIX

_SWITCH = "remote.log.storage.system.enable"
_TOPIC_SWITCH = "remote.storage.enable"
_DEFAULT_SWITCH = "ottla.log.remote.storage.enable"


def check_nothing_is_remote(image: MetadataImage) -> None:
    """Check that no topic of a broker without remote storage is tiered. Raises ConfigError."""
    configs = image.configs
    tiered = [
        name
        for name in configs.names(ResourceType.TOPIC)
        if configs.topic(name).get(_TOPIC_SWITCH, "").strip().lower() == "true" and name not in NEVER_TIERED
    ]
    if tiered:
        raise ConfigError(
            _SWITCH,
            f"{_SWITCH} must stay on while topics keep segments in remote storage, such as {_named(tiered)}: first"
            f" delete them or set {_TOPIC_SWITCH}=false for them.",
        )


def check_nothing_is_cut_off(
    fs: FileSystem, directories: Sequence[str], image: MetadataImage, config_of: Callable[[str], LogConfig]
) -> None:
    """Check, before logs are opened, that no log depends on a tiering default that was removed.

    Such a log begins below its first local segment, by its checkpoint, and the stored remote metadata list segments
    of it. A crash alone may leave such a checkpoint for a log that was never tiered. Blocks. Raises ConfigError,
    OSError.
    """
    starts = {directory: _log_starts(fs, directory) for directory in directories}
    topics = {partition.topic for offsets in starts.values() for partition in offsets}
    local = {topic for topic in topics if not _may_begin_remotely(config_of(topic))}
    incomplete = {
        partition
        for directory, offsets in starts.items()
        for partition, start_offset in offsets.items()
        if partition.topic in local
        and start_offset < _first_segment(fs, join(directory, f"{partition.topic}-{partition.partition}"))
    }
    cut_off = sorted(_with_remote_segments(fs, directories[0], incomplete, image)) if incomplete else []
    if cut_off:
        raise ConfigError(
            _DEFAULT_SWITCH,
            f"{_DEFAULT_SWITCH} must stay on while it makes topics keep segments in remote storage, such as"
            f" {_named(cut_off)}: first set {_TOPIC_SWITCH}=true for them, or remote.log.delete.on.disable=true to"
            " delete their remote segments.",
        )


def _may_begin_remotely(config: LogConfig) -> bool:
    return config.remote_storage_enable or config.remote_log_delete_on_disable


def _log_starts(fs: FileSystem, directory: str) -> dict[TopicPartition, int]:
    try:
        return read_offsets(fs, join(directory, LOG_START_OFFSET_FILE))
    except (CorruptCheckpoint, OSError):
        return {}  # the log loader reports the error


def _first_segment(fs: FileSystem, directory: str) -> int:
    """Return the base offset of the first segment; -1 if there is none, or no such log."""
    try:
        names = fs.list(directory)
    except OSError:
        return -1
    stems = (name.removesuffix(LOG_SUFFIX) for name in names if name.endswith(LOG_SUFFIX))
    return min((int(stem) for stem in stems if stem.isdecimal()), default=-1)


def _with_remote_segments(
    fs: FileSystem, directory: str, partitions: set[TopicPartition], image: MetadataImage
) -> set[str]:
    """Return the topics of `partitions` that have remote segments, by the metadata snapshots on this disk."""
    # Imported here: a broker without remote storage does not load it otherwise.
    from storage.tiered.catalog.metadata_snapshot import DIRECTORY, CorruptSnapshot, read_snapshot

    found: set[str] = set()
    kept = join(directory, DIRECTORY)
    topic_ids = {(partition, _topic_id(image, partition.topic)) for partition in partitions}
    for name in fs.list(kept) if fs.is_directory(kept) else ():
        try:
            _, metadata = read_snapshot(fs, join(kept, name))
        except (CorruptSnapshot, OSError):
            continue
        found |= {
            cache.partition.topic
            for cache in metadata
            if len(cache)
            and (TopicPartition(cache.partition.topic, cache.partition.partition), cache.partition.topic_id)
            in topic_ids
        }
    return found


def _topic_id(image: MetadataImage, topic: str) -> Uuid | None:
    found = image.topics.by_name(topic)
    return None if found is None else found.id


def _named(topics: Iterable[str]) -> str:
    first, *rest = topics
    return f"{first} and {len(rest)} more" if rest else first
