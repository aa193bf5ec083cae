"""Client quotas by entity, as records state them (KIP-546)."""

from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple, TypeAlias

from immutables import Map

from broker.metadata.image.records import VersionedRecord
from protocol.messages.metadata_records import ClientQuotaRecord, EntityData

# ((type, name), …) sorted by type; the name None is the default entity of its type.
QuotaEntity: TypeAlias = tuple[tuple[str, str | None], ...]


# The entity types.
USER: Final = "user"
CLIENT_ID: Final = "client-id"
IP: Final = "ip"


class ClientQuotasImage(NamedTuple):
    """Quota values by entity and key; an entity without quotas has no entry."""

    entities: Map[QuotaEntity, Map[str, float]] = Map()

    def of(self, entity: QuotaEntity) -> Mapping[str, float]:
        return self.entities.get(entity, Map())

    def write(self) -> Iterator[VersionedRecord]:
        for entity in sorted(self.entities, key=_sort_key):
            for key, value in sorted(self.entities[entity].items()):
                yield quota_record(entity, key, value)


class ClientQuotasDelta:
    """Changes of quotas: per entity, keys with their new value or None after removal."""

    def __init__(self, image: ClientQuotasImage) -> None:
        self._image = image
        self.changes: dict[QuotaEntity, dict[str, float | None]] = {}

    def replay(self, record: ClientQuotaRecord) -> None:
        entity = quota_entity({part.entity_type: part.entity_name for part in record.entity})
        self.changes.setdefault(entity, {})[record.key] = None if record.remove else record.value

    def apply(self) -> ClientQuotasImage:
        entities = self._image.entities.mutate()
        for entity, changes in self.changes.items():
            values = entities.get(entity, Map()).mutate()
            for key, value in changes.items():
                if value is None:
                    values.pop(key, None)
                else:
                    values[key] = value
            if len(values):
                entities[entity] = values.finish()
            else:
                entities.pop(entity, None)
        return ClientQuotasImage(entities.finish())


def quota_entity(parts: Mapping[str, str | None]) -> QuotaEntity:
    return tuple(sorted(parts.items(), key=lambda part: part[0]))


def quota_record(entity: QuotaEntity, key: str, value: float | None) -> VersionedRecord:
    """Return the record that sets a quota, or removes it if `value` is None."""
    return VersionedRecord(
        ClientQuotaRecord(
            entity=[EntityData(entity_type=kind, entity_name=name) for kind, name in entity],
            key=key,
            value=value or 0.0,
            remove=value is None,
        ),
        0,
    )


def _sort_key(entity: QuotaEntity) -> list[tuple[str, bool, str]]:
    return [(kind, name is not None, name or "") for kind, name in entity]
