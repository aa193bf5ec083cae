"""The registry: everything except topics and partitions, folded by the node's own replay.

It holds features, brokers, controllers, configs, quotas, producer ids, ACLs, credentials and tokens, and the names of
topics, by which configs are stored. Such records are few beside those of partitions. The state of an entity before and
after a change is given as the record that would set it (`broker.metadata.image.records`), in the latest version, so
that nothing is lost.
"""

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple, TypeAlias, assert_never

import numpy as np
import pyarrow as pa
from immutables import Map

from broker.metadata.image.changed_records import changed_records
from broker.metadata.image.config_image import ConfigResource, ResourceType, config_record
from broker.metadata.image.delta import MetadataDelta
from broker.metadata.image.features import feature_record
from broker.metadata.image.metadata_image import EMPTY_IMAGE, MetadataImage, Provenance
from broker.metadata.image.metadata_version import LATEST_METADATA_VERSION, MetadataVersion
from broker.metadata.image.quota_image import quota_entity, quota_record
from broker.metadata.image.records import (
    IgnoredRecord,
    InvalidMetadata,
    MetadataRecord,
    TransactionMarkerRecord,
    VersionedRecord,
    decode_record,
    encode_record,
)
from broker.metadata.image.security_image import ScramImage
from broker.metadata.snapshot.codec import read_snapshot, snapshot_batches
from protocol.errors import DecodeError
from protocol.ids import EPOCH_ZERO, LeaderEpoch
from protocol.messages import metadata_records as messages
from protocol.primitives import Uuid, uuid_from_text, uuid_to_text
from spark_jobs.metadata.byte_columns import Ints, Strings, numbers
from spark_jobs.metadata.collector import no_collections
from spark_jobs.metadata.fold_context import FoldContext, rows_to_fold
from spark_jobs.metadata.frame_heads import MalformedLog, require_known
from spark_jobs.metadata.log_rows import FROM_SNAPSHOT, REGISTRY, frames_of, section_rows
from spark_jobs.metadata.topic_records import topic_record
from spark_jobs.metadata.transactions import MARKERS

_NOT_IN_SNAPSHOTS: Final = (*MARKERS, messages.RemoveTopicRecord.API_KEY, messages.ClearElrRecord.API_KEY)

CREATED: Final = "created"
CHANGED: Final = "changed"
REMOVED: Final = "removed"

EntityKey: TypeAlias = tuple[str | int | None, ...]


class Entity(NamedTuple):
    """The subject of a record. `key` by type: feature (name), broker (id), controller (id), config (resource type,
    resource name, key), quota (type, name, type, name, …, key), producer-ids (), acl (id as text), scram (mechanism,
    user), token (id).
    """

    type: str
    key: EntityKey


class RegistryChange(NamedTuple):
    """One change of one entity. `before` and `after` are frames of records, None without such an entity.

    `is_summarized`: found by comparing states, because the records in between were no longer available.
    """

    offset: int
    epoch: LeaderEpoch
    timestamp_ms: int
    entity: Entity
    operation: str
    before: bytes | None
    after: bytes | None
    is_summarized: bool = False


class Registry(NamedTuple):
    """The state of the registry: an immutable image whose topics have no partitions. Conversion to bytes and back is
    lossless.
    """

    image: MetadataImage = EMPTY_IMAGE

    @property
    def version(self) -> MetadataVersion:
        """The metadata.version, which decides the format of a snapshot of this state."""
        return self.image.features.version

    def to_bytes(self) -> bytes:
        """Encode the state as a small snapshot in the latest record versions, whatever metadata.version says."""
        return b"".join(
            snapshot_batches(_written(self.image), epoch=EPOCH_ZERO, last_timestamp_ms=0, batch_timestamp_ms=0)
        )

    @classmethod
    def from_bytes(cls, data: bytes) -> "Registry":
        """Decode the state. Raises InvalidSnapshot."""
        delta = MetadataDelta(EMPTY_IMAGE)
        delta.replay_all(read_snapshot(data).records)
        return cls(delta.apply(Provenance()))


class RegistryResult(NamedTuple):
    """The registry after a step. `changed_records` of the folded `records` changed or removed something."""

    registry: Registry
    changes: tuple[RegistryChange, ...]
    records: int
    changed_records: int

    @property
    def state(self) -> bytes:
        """The registry as bytes, the input of the next step."""
        return self.registry.to_bytes()


@no_collections()
def fold_registry(state: bytes | Registry | None, rows: pa.Table, context: FoldContext) -> RegistryResult:
    """Fold the rows that concern the registry, ignoring other rows and rows that wait.

    Raises UnknownRecord, MalformedLog for a record that does not parse, InvalidMetadata for a record that contradicts
    the state, InvalidSnapshot for an invalid `state`.
    """
    before = Registry.from_bytes(state) if isinstance(state, bytes) else state or Registry()
    mine = section_rows(rows_to_fold(rows, context), REGISTRY).combine_chunks()
    parsed = _Rows.of(mine)
    image, changes, changed = before.image, list[RegistryChange](), 0
    if context.replaces:
        image = _loaded(parsed.of_origin(FROM_SNAPSHOT))
        differences = list(_differences(before.image, image, context.snapshot_place))
        changed += sum(change.before is not None for change in differences)
        changes += differences if context.with_changes else ()
        parsed = parsed.of_origin(FROM_SNAPSHOT, is_not=True)
    if context.with_changes:
        image, made = _replayed_one_by_one(image, parsed)
        changes += made
        changed += sum(change.before is not None for change in made)
    else:
        image, made_obsolete = _replayed(image, parsed)
        changed += made_obsolete
    return RegistryResult(Registry(image), tuple(changes), len(mine), changed)


class _Rows(NamedTuple):
    offsets: Ints
    epochs: Ints
    times: Ints
    origins: Ints
    keys: Ints
    frames: Strings

    @classmethod
    def of(cls, rows: pa.Table) -> "_Rows":
        names = ("offset", "epoch", "timestamp_ms", "origin", "key")
        offsets, epochs, times, origins, keys = (numbers(rows.column(name)) for name in names)
        require_known(keys, numbers(rows.column("version")), offsets)
        order = offsets.argsort(kind="stable")
        return cls(
            offsets[order], epochs[order], times[order], origins[order], keys[order], frames_of(rows).take(order)
        )

    def of_origin(self, origin: int, *, is_not: bool = False) -> "_Rows":
        mine = (self.origins == origin) != is_not
        numbers = (self.offsets, self.epochs, self.times, self.origins, self.keys)
        offsets, epochs, times, origins, keys = (each[mine] for each in numbers)
        return _Rows(offsets, epochs, times, origins, keys, self.frames.take(mine))

    def records(self) -> Iterator[tuple[int, MetadataRecord]]:
        """Yield (row, record), without transaction markers."""
        for row, (key, frame) in enumerate(zip(self.keys.tolist(), self.frames.to_list(), strict=True)):
            if key not in MARKERS:
                yield row, self._record(row, key, frame)

    def _record(self, row: int, key: int, frame: bytes) -> MetadataRecord:
        try:
            return topic_record(frame) if key == messages.TopicRecord.API_KEY else decode_record(frame)
        except DecodeError as error:
            raise MalformedLog(f"the record at offset {self.offsets[row]} does not parse: {error}") from error


def _loaded(rows: _Rows) -> MetadataImage:
    delta = MetadataDelta(EMPTY_IMAGE)
    foreign = rows.keys[np.isin(rows.keys, _NOT_IN_SNAPSHOTS)]
    if len(foreign):
        raise InvalidMetadata(f"a record of key {foreign[0]} is not allowed in a snapshot")
    for _, record in rows.records():
        delta.replay(record)
    return delta.apply(Provenance())


def _replayed(image: MetadataImage, rows: _Rows) -> tuple[MetadataImage, int]:
    delta = MetadataDelta(image)
    for _, record in rows.records():
        delta.replay(record)
    after = delta.apply(Provenance())
    delta.topics = None  # topics are counted in their sections
    return after, changed_records(delta)


def _replayed_one_by_one(image: MetadataImage, rows: _Rows) -> tuple[MetadataImage, list[RegistryChange]]:
    """Collect names of topics; replay every other record alone, to see its state before and after."""
    changes: list[RegistryChange] = []
    delta = MetadataDelta(image)
    for row, record in rows.records():
        if isinstance(record, messages.TopicRecord):
            delta.replay(record)
            continue
        if not delta.is_empty:
            image = delta.apply(Provenance())
            delta = MetadataDelta(image)
        delta.replay(record)
        after = delta.apply(Provenance())
        where = int(rows.offsets[row]), LeaderEpoch(int(rows.epochs[row])), int(rows.times[row])
        for entity in _touched(record, image):
            change = _change(where, entity, _frame(_current(image, entity)), _frame(_current(after, entity)))
            changes += [] if change is None else [change]
        image, delta = after, MetadataDelta(after)
    return delta.apply(Provenance()), changes


def _differences(
    before: MetadataImage, after: MetadataImage, place: tuple[int, LeaderEpoch, int]
) -> Iterator[RegistryChange]:
    old, new = _frames_by_entity(before), _frames_by_entity(after)
    for entity in {**old, **new}:
        if old.get(entity) != new.get(entity):
            change = _change(place, entity, old.get(entity), new.get(entity))
            if change is not None:
                yield change._replace(is_summarized=True)


def _change(
    where: tuple[int, LeaderEpoch, int], entity: Entity, before: bytes | None, after: bytes | None
) -> RegistryChange | None:
    if before is None and after is None:
        return None
    operation = CREATED if before is None else REMOVED if after is None else CHANGED
    return RegistryChange(*where, entity, operation, before, after)


def _current(image: MetadataImage, entity: Entity) -> VersionedRecord | None:
    """Return the record that sets the state of an entity, None if the entity does not exist."""
    kind, key = entity
    match kind, key:
        case "feature", (str(name),):
            level = image.features.finalized().get(name)
            return None if level is None else feature_record(name, level)
        case "broker", (int(id),):
            broker = image.brokers.get(id)
            return None if broker is None else broker.to_record(LATEST_METADATA_VERSION)
        case "controller", (int(id),):
            controller = image.brokers.controllers.get(id)
            return None if controller is None else controller.to_record()
        case "config", (int(type), str(name), str(config)):
            value = image.configs.of(type, name).get(config)
            return None if value is None else config_record(ConfigResource(type, name), config, value)
    return _current_of_clients(image, kind, key)


def _current_of_clients(image: MetadataImage, kind: str, key: EntityKey) -> VersionedRecord | None:
    match kind, key:
        case "quota", (*parts, str(name)):
            entity = tuple(
                (str(type), None if part is None else str(part))
                for type, part in zip(parts[::2], parts[1::2], strict=True)
            )
            quota = image.client_quotas.of(entity).get(name)
            return None if quota is None else quota_record(entity, name, quota)
        case "producer-ids", ():
            return next(image.producer_ids.write(), None)
        case "acl", (str(id),):
            entry = image.acls.entries.get(uuid_from_text(id))
            record = None if entry is None else messages.AccessControlEntryRecord(uuid_from_text(id), *entry)
            return None if record is None else VersionedRecord(record, 0)
        case "scram", (int(mechanism), str(user)):
            credential = image.scram.credentials.get((mechanism, user))
            if credential is None:
                return None
            return next(ScramImage(Map({(mechanism, user): credential})).write(LATEST_METADATA_VERSION))
        case "token", (str(id),):
            token = image.delegation_tokens.tokens.get(id)
            return None if token is None else token.to_record(id)
    raise AssertionError(f"no entity type {kind} with key {key}")


def _frame(record: VersionedRecord | None) -> bytes | None:
    return None if record is None else encode_record(*record)


def _written(image: MetadataImage) -> Iterator[VersionedRecord]:
    """Yield all records of an image in latest versions."""
    yield from _all_but_topics(image)
    yield from image.topics.write(LATEST_METADATA_VERSION)


def _frames_by_entity(image: MetadataImage) -> dict[Entity, bytes]:
    frames = {}
    for record in _all_but_topics(image):
        (entity,) = _touched(record.message, image)
        frames[entity] = encode_record(*record)
    return frames


def _all_but_topics(image: MetadataImage) -> Iterator[VersionedRecord]:
    yield from image.features.write()
    yield from image.brokers.write(LATEST_METADATA_VERSION)
    yield from image.configs.write()
    yield from image.client_quotas.write()
    yield from image.producer_ids.write()
    yield from image.acls.write()
    yield from image.scram.write(LATEST_METADATA_VERSION)
    yield from image.delegation_tokens.write(LATEST_METADATA_VERSION)


def _touched(record: MetadataRecord, image: MetadataImage) -> Sequence[Entity]:
    """Return the entities of the registry that a record creates, changes or removes."""
    match record:
        case messages.FeatureLevelRecord():
            return [Entity("feature", (record.name,))]
        case (
            messages.RegisterBrokerRecord()
            | messages.UnregisterBrokerRecord()
            | messages.BrokerRegistrationChangeRecord()
        ):
            return [Entity("broker", (record.broker_id,))]
        case messages.FenceBrokerRecord() | messages.UnfenceBrokerRecord():
            return [Entity("broker", (record.id,))]
        case messages.RegisterControllerRecord():
            return [Entity("controller", (record.controller_id,))]
        case messages.RemoveTopicRecord():
            return _configs_of_topic(record.topic_id, image)
        case _:
            return _touched_by_client(record)


_ClientRecord: TypeAlias = (
    messages.ConfigRecord
    | messages.ClientQuotaRecord
    | messages.ProducerIdsRecord
    | messages.AccessControlEntryRecord
    | messages.RemoveAccessControlEntryRecord
    | messages.UserScramCredentialRecord
    | messages.RemoveUserScramCredentialRecord
    | messages.DelegationTokenRecord
    | messages.RemoveDelegationTokenRecord
)
_UnaffectingRecord: TypeAlias = (
    messages.TopicRecord  # this and the next three change the topic sections only
    | messages.PartitionRecord
    | messages.PartitionChangeRecord
    | messages.ClearElrRecord
    | IgnoredRecord
    | TransactionMarkerRecord  # consumed by `transactions.py`
)


def _touched_by_client(record: _ClientRecord | _UnaffectingRecord) -> Sequence[Entity]:
    match record:
        case messages.ConfigRecord():
            return [Entity("config", (record.resource_type, record.resource_name, record.name))]
        case messages.ClientQuotaRecord():
            entity = quota_entity({part.entity_type: part.entity_name for part in record.entity})
            return [Entity("quota", (*(text for part in entity for text in part), record.key))]
        case messages.ProducerIdsRecord():
            return [Entity("producer-ids", ())]
        case messages.AccessControlEntryRecord() | messages.RemoveAccessControlEntryRecord():
            return [Entity("acl", (uuid_to_text(record.id),))]
        case messages.UserScramCredentialRecord() | messages.RemoveUserScramCredentialRecord():
            return [Entity("scram", (record.mechanism, record.name))]
        case messages.DelegationTokenRecord() | messages.RemoveDelegationTokenRecord():
            return [Entity("token", (record.token_id,))]
        case (
            messages.TopicRecord()
            | messages.PartitionRecord()
            | messages.PartitionChangeRecord()
            | messages.ClearElrRecord()
            | messages.NoOpRecord()
            | messages.ZkMigrationStateRecord()
            | messages.BeginTransactionRecord()
            | messages.EndTransactionRecord()
            | messages.AbortTransactionRecord()
        ):
            return ()
        case _:
            assert_never(record)


def _configs_of_topic(topic_id: Uuid, image: MetadataImage) -> Sequence[Entity]:
    topic = image.topics.by_id(topic_id)
    name = "" if topic is None else topic.name
    return [Entity("config", (int(ResourceType.TOPIC), name, key)) for key in sorted(image.configs.topic(name))]
