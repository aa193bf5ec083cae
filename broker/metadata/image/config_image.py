"""Stored configuration overrides by resource. The meaning and defaults of keys are outside this module."""

from collections.abc import Iterator, Mapping
from enum import IntEnum
from typing import Final, NamedTuple

from immutables import Map

from broker.metadata.image.records import VersionedRecord
from protocol.messages.metadata_records import ConfigRecord


class ResourceType(IntEnum):
    """Config resource types with their numbers in requests and records."""

    UNKNOWN = 0
    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


# The name of the broker resource that applies to all brokers.
CLUSTER_DEFAULT: Final = ""
_NOTHING: Final[Map[str, str]] = Map()


class ConfigResource(NamedTuple):
    """The owner of a set of configs."""

    type: int
    name: str


class ConfigsImage(NamedTuple):
    """Overrides by resource; a resource without overrides has no entry."""

    resources: Map[ConfigResource, Map[str, str]] = Map()

    def of(self, resource_type: int, name: str) -> Mapping[str, str]:
        """Return the overrides of one resource, empty without any."""
        return self.resources.get(ConfigResource(resource_type, name), _NOTHING)

    def topic(self, name: str) -> Mapping[str, str]:
        return self.of(ResourceType.TOPIC, name)

    def broker(self, broker_id: int) -> Mapping[str, str]:
        return self.of(ResourceType.BROKER, str(broker_id))

    def cluster_default(self) -> Mapping[str, str]:
        return self.of(ResourceType.BROKER, CLUSTER_DEFAULT)

    def names(self, resource_type: int) -> list[str]:
        """Return the sorted names of a type's resources with overrides."""
        return sorted(resource.name for resource in self.resources if resource.type == resource_type)

    def write(self) -> Iterator[VersionedRecord]:
        for resource in sorted(self.resources):
            for key, value in sorted(self.resources[resource].items()):
                yield config_record(resource, key, value)


class ConfigsDelta:
    """Changes of overrides: `changes` maps a resource to keys with their new value, None after removal.

    A resource in `removed` lost all overrides before the changes listed for it.
    """

    def __init__(self, image: ConfigsImage) -> None:
        self._image = image
        self.changes: dict[ConfigResource, dict[str, str | None]] = {}
        self.removed: set[ConfigResource] = set()

    @property
    def changed_resources(self) -> set[ConfigResource]:
        return self.removed | self.changes.keys()

    def replay(self, record: ConfigRecord) -> None:
        resource = ConfigResource(record.resource_type, record.resource_name)
        self.changes.setdefault(resource, {})[record.name] = record.value

    def remove_topic(self, name: str) -> None:
        """Drop the overrides of a deleted topic, in the base image and in this delta."""
        resource = ConfigResource(ResourceType.TOPIC, name)
        self.changes.pop(resource, None)
        if resource in self._image.resources:
            self.removed.add(resource)

    def apply(self) -> ConfigsImage:
        resources = self._image.resources.mutate()
        for resource in self.removed:
            resources.pop(resource, None)
        for resource, changes in self.changes.items():
            values = _changed(resources.get(resource, _NOTHING), changes)
            if values:
                resources[resource] = values
            else:
                resources.pop(resource, None)
        return ConfigsImage(resources.finish())


def config_record(resource: ConfigResource, key: str, value: str | None) -> VersionedRecord:
    """Return the record that sets a key, or removes it if `value` is None."""
    return VersionedRecord(
        ConfigRecord(resource_type=resource.type, resource_name=resource.name, name=key, value=value), 0
    )


def _changed(values: Map[str, str], changes: Mapping[str, str | None]) -> Map[str, str]:
    mutation = values.mutate()
    for key, value in changes.items():
        if value is None:
            mutation.pop(key, None)
        else:
            mutation[key] = value
    return mutation.finish()
