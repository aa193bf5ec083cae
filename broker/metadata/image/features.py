"""Feature levels: supported by this program, finalized by the cluster, and initial for a new cluster.

A feature is a name with an integer level (KIP-584); level 0 is off and not listed. `metadata.version` is a feature.
`kraft.version` is stored in control records and only reported together with the others.
"""

from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from immutables import Map

from broker.metadata.image.metadata_version import (
    LATEST_METADATA_VERSION,
    METADATA_VERSION,
    MINIMUM_METADATA_VERSION,
    MetadataVersion,
)
from broker.metadata.image.records import VersionedRecord
from protocol.messages.metadata_records import FeatureLevelRecord

KRAFT_VERSION: Final = "kraft.version"
GROUP_VERSION: Final = "group.version"
SHARE_VERSION: Final = "share.version"
STREAMS_VERSION: Final = "streams.version"
TRANSACTION_VERSION: Final = "transaction.version"
ELIGIBLE_LEADER_REPLICAS_VERSION: Final = "eligible.leader.replicas.version"


class VersionRange(NamedTuple):
    """Levels from `minimum` to `maximum`, both inclusive."""

    minimum: int
    maximum: int

    def __contains__(self, level: object) -> bool:
        return isinstance(level, int) and self.minimum <= level <= self.maximum


# The levels that this program can run with. A feature is added here together with the code that serves it.
SUPPORTED_FEATURES: Final[Mapping[str, VersionRange]] = {
    ELIGIBLE_LEADER_REPLICAS_VERSION: VersionRange(0, 1),
    GROUP_VERSION: VersionRange(0, 1),
    KRAFT_VERSION: VersionRange(0, 1),
    METADATA_VERSION: VersionRange(MINIMUM_METADATA_VERSION, LATEST_METADATA_VERSION),
    SHARE_VERSION: VersionRange(0, 1),
    STREAMS_VERSION: VersionRange(0, 1),
    TRANSACTION_VERSION: VersionRange(0, 2),
}

# The features that a new cluster finalizes besides metadata.version, by the level that enables each by default.
_DEFAULT_LEVELS: Final[Mapping[str, tuple[MetadataVersion, int]]] = {
    ELIGIBLE_LEADER_REPLICAS_VERSION: (MetadataVersion.IV_4_1_0, 1),
    GROUP_VERSION: (MetadataVersion.IV_4_0_0, 1),
    SHARE_VERSION: (MetadataVersion.IV_4_2_0, 1),
    STREAMS_VERSION: (MetadataVersion.IV_4_2_1, 1),
    TRANSACTION_VERSION: (MetadataVersion.IV_4_0_0, 2),
}


class UnsupportedFeatureLevel(Exception):
    """The log finalizes a level that this program does not support; later records would be misread."""


class FeaturesImage(NamedTuple):
    """The finalized levels; `metadata_level` is that of metadata.version, None until the log has one.

    `levels` holds the other features. Unsupported levels are kept as they are: a node refuses to run with them, a tool
    may still read them.
    """

    metadata_level: int | None = None
    levels: Map[str, int] = Map()

    @property
    def version(self) -> MetadataVersion:
        """The metadata.version to follow: the finalized one, or the nearest known one."""
        level = self.metadata_level or MINIMUM_METADATA_VERSION
        return MetadataVersion(max(MINIMUM_METADATA_VERSION, min(level, LATEST_METADATA_VERSION)))

    @property
    def elr_enabled(self) -> bool:
        """Whether partitions keep eligible leader replicas (KIP-966)."""
        return self.levels.get(ELIGIBLE_LEADER_REPLICAS_VERSION, 0) >= 1

    def finalized(self) -> dict[str, int]:
        """Return every finalized feature with its level, including metadata.version, by name."""
        levels = dict(self.levels)
        if self.metadata_level is not None:
            levels[METADATA_VERSION] = self.metadata_level
        return dict(sorted(levels.items()))

    def write(self) -> Iterator[VersionedRecord]:
        """Yield metadata.version first, since it decides how other records are read, then the others by name."""
        if self.metadata_level is not None:
            yield feature_record(METADATA_VERSION, self.metadata_level)
        for name, level in sorted(self.levels.items()):
            yield feature_record(name, level)


class FeaturesDelta:
    """Changes of finalized levels on top of an image; level 0 disables a feature."""

    def __init__(self, image: FeaturesImage) -> None:
        self._image = image
        self.changes: dict[str, int] = {}

    def replay(self, record: FeatureLevelRecord) -> None:
        if record.name != KRAFT_VERSION:  # stored in control records; old writers left it here too
            self.changes[record.name] = record.feature_level

    def check(self, supported: Mapping[str, VersionRange]) -> None:
        """Raise UnsupportedFeatureLevel if a change is outside the supported ranges."""
        for name, level in self.changes.items():
            if level and (name not in supported or level not in supported[name]):
                raise UnsupportedFeatureLevel(
                    f"feature {name} is finalized at level {level}, which this program does not know; upgrade Ottla"
                )

    def apply(self) -> FeaturesImage:
        levels = self._image.levels.mutate()
        for name, level in self.changes.items():
            if level:
                levels[name] = level
            else:
                levels.pop(name, None)
        metadata_level = levels.pop(METADATA_VERSION, None) or self._image.metadata_level
        return FeaturesImage(metadata_level, levels.finish())


def feature_record(name: str, level: int) -> VersionedRecord:
    return VersionedRecord(FeatureLevelRecord(name=name, feature_level=level), 0)


def bootstrap_records(version: MetadataVersion = LATEST_METADATA_VERSION) -> list[VersionedRecord]:
    """Return the first records of a new cluster, as formatting stores them in `bootstrap.checkpoint`."""
    records = [feature_record(METADATA_VERSION, version)]
    for name, (since, level) in sorted(_DEFAULT_LEVELS.items()):
        if version >= since:
            records.append(feature_record(name, level))
    return records
