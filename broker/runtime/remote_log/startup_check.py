"""Whether a broker may do without remote storage for topics that keep segments there: it may not.

It would find the beginning of their logs nowhere, take what is on its disk for all there is, and let go of the rest for
good once remote storage is back. Kafka does not start either where it is off for all (KAFKA-15267); here topics may
have it by a default, too, which nothing in the metadata tells of when it is gone, but the disk does.
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
    """For a broker whose remote storage is off. Raises ConfigError."""
    configs = image.configs
    tiered = [
        name
        for name in configs.names(ResourceType.TOPIC)
        if configs.topic(name).get(_TOPIC_SWITCH, "").strip().lower() == "true" and name not in NEVER_TIERED
    ]
    if tiered:
        raise ConfigError(
            _SWITCH,
            f"{_SWITCH} must stay on while topics keep segments in remote storage, as {_named(tiered)}: delete them,"
            f" or turn {_TOPIC_SWITCH} off for them, first.",
        )


def check_nothing_is_cut_off(
    fs: FileSystem, directories: Sequence[str], image: MetadataImage, config_of: Callable[[str], LogConfig]
) -> None:
    """Before logs are opened: no topic has lost a default that its logs depend on. Blocks. Raises ConfigError, OSError.

    Such a log begins below its first segment, by its checkpoint, and remote storage is known to have something of it. A
    crash alone may leave the first behind, of a log that never had remote storage.
    """
    starts = {directory: _log_starts(fs, directory) for directory in directories}
    topics = {partition.topic for told in starts.values() for partition in told}
    local = {topic for topic in topics if not _may_begin_elsewhere(config_of(topic))}
    parted = {
        partition
        for directory, told in starts.items()
        for partition, start_offset in told.items()
        if partition.topic in local
        and start_offset < _first_segment(fs, join(directory, f"{partition.topic}-{partition.partition}"))
    }
    cut_off = sorted(_remote(fs, directories[0], parted, image)) if parted else []
    if cut_off:
        raise ConfigError(
            _DEFAULT_SWITCH,
            f"{_DEFAULT_SWITCH} must stay on while topics keep segments in remote storage by it, as {_named(cut_off)}:"
            f" set {_TOPIC_SWITCH}=true for them, or remote.log.delete.on.disable=true to give these up, first.",
        )


def _may_begin_elsewhere(config: LogConfig) -> bool:
    return config.remote_storage_enable or config.remote_log_delete_on_disable


def _log_starts(fs: FileSystem, directory: str) -> dict[TopicPartition, int]:
    try:
        return read_offsets(fs, join(directory, LOG_START_OFFSET_FILE))
    except (CorruptCheckpoint, OSError):
        return {}  # whoever opens the logs tells of it


def _first_segment(fs: FileSystem, directory: str) -> int:
    """-1 if there is none, or no such log."""
    try:
        names = fs.list(directory)
    except OSError:
        return -1
    stems = (name.removesuffix(LOG_SUFFIX) for name in names if name.endswith(LOG_SUFFIX))
    return min((int(stem) for stem in stems if stem.isdecimal()), default=-1)


def _remote(fs: FileSystem, directory: str, parted: set[TopicPartition], image: MetadataImage) -> set[str]:
    """Those topics that remote storage has something of, by what this broker kept of its metadata."""
    # Here, because whoever has no remote storage need not load it.
    from storage.tiered.catalog.metadata_snapshot import DIRECTORY, CorruptSnapshot, read_snapshot

    found: set[str] = set()
    kept = join(directory, DIRECTORY)
    topic_ids = {(partition, _topic_id(image, partition.topic)) for partition in parted}
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
