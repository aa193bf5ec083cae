"""Registered brokers and controllers, with endpoints, features, directories and fencing.

A registration holds what the log states; the last contact of a broker is soft state (`broker_sessions.py`).
"""

from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from immutables import Map

from broker.metadata.image.features import VersionRange
from broker.metadata.image.metadata_version import MetadataVersion
from broker.metadata.image.records import InvalidMetadata, VersionedRecord
from protocol.ids import BrokerEpoch, BrokerId
from protocol.messages.metadata_records import (
    BrokerEndpoint,
    BrokerFeature,
    BrokerRegistrationChangeRecord,
    ControllerEndpoint,
    ControllerFeature,
    FenceBrokerRecord,
    RegisterBrokerRecord,
    RegisterControllerRecord,
    UnfenceBrokerRecord,
    UnregisterBrokerRecord,
)
from protocol.primitives import Uuid

# Values of BrokerRegistrationChangeRecord.fenced; 0 means no change.
FENCE: Final = 1
UNFENCE: Final = -1
IN_CONTROLLED_SHUTDOWN: Final = 1


class RegisteredEndpoint(NamedTuple):
    """The address of a listener.

    `security_protocol` is Kafka's number: 0 PLAINTEXT, 1 SSL, 2 SASL_PLAINTEXT, 3 SASL_SSL.
    """

    host: str
    port: int
    security_protocol: int = 0


class BrokerRegistration(NamedTuple):
    """A registered broker. `endpoints` are by listener name in registered order; `directories` are sorted ids."""

    id: BrokerId
    epoch: BrokerEpoch
    incarnation_id: Uuid
    endpoints: Mapping[str, RegisteredEndpoint]
    features: Mapping[str, VersionRange]
    rack: str | None
    fenced: bool
    in_controlled_shutdown: bool
    directories: tuple[Uuid, ...]

    @property
    def is_active(self) -> bool:
        """Whether the broker is unfenced and not shutting down, so that it may lead and join in-sync sets."""
        return not self.fenced and not self.in_controlled_shutdown

    def has_online_directory(self, directory: Uuid) -> bool:
        """Whether a replica in this directory can serve; unassigned counts as online, lost does not."""
        if directory in self.directories:  # no reserved id is
            return True
        number = int.from_bytes(directory, "big")
        if number <= 1:  # migrating, unassigned
            return True
        return not self.directories and number != 2  # lost

    @classmethod
    def from_record(cls, record: RegisterBrokerRecord) -> "BrokerRegistration":
        return cls(
            id=BrokerId(record.broker_id),
            epoch=BrokerEpoch(record.broker_epoch),
            incarnation_id=record.incarnation_id,
            endpoints={e.name: RegisteredEndpoint(e.host, e.port, e.security_protocol) for e in record.end_points},
            features={f.name: VersionRange(f.min_supported_version, f.max_supported_version) for f in record.features},
            rack=record.rack,
            fenced=record.fenced,
            in_controlled_shutdown=record.in_controlled_shutdown,
            directories=tuple(sorted(record.log_dirs)),
        )

    def to_record(self, version: MetadataVersion) -> VersionedRecord:
        record = RegisterBrokerRecord(
            broker_id=self.id,
            incarnation_id=self.incarnation_id,
            broker_epoch=self.epoch,
            end_points=[
                BrokerEndpoint(name=n, host=e[0], port=e[1], security_protocol=e[2]) for n, e in self.endpoints.items()
            ],
            features=[
                BrokerFeature(name=name, min_supported_version=levels[0], max_supported_version=levels[1])
                for name, levels in sorted(self.features.items())
            ],
            rack=self.rack,
            fenced=self.fenced,
            in_controlled_shutdown=self.in_controlled_shutdown,
        )
        if version.supports_directories:
            record.log_dirs = list(self.directories)
        return VersionedRecord(record, version.register_broker_record_version)


class ControllerRegistration(NamedTuple):
    """A registered controller (KIP-919)."""

    id: int
    incarnation_id: Uuid
    endpoints: Mapping[str, RegisteredEndpoint]
    features: Mapping[str, VersionRange]

    @classmethod
    def from_record(cls, record: RegisterControllerRecord) -> "ControllerRegistration":
        return cls(
            id=record.controller_id,
            incarnation_id=record.incarnation_id,
            endpoints={e.name: RegisteredEndpoint(e.host, e.port, e.security_protocol) for e in record.end_points},
            features={f.name: VersionRange(f.min_supported_version, f.max_supported_version) for f in record.features},
        )

    def to_record(self) -> VersionedRecord:
        return VersionedRecord(
            RegisterControllerRecord(
                controller_id=self.id,
                incarnation_id=self.incarnation_id,
                end_points=[
                    ControllerEndpoint(name=n, host=e[0], port=e[1], security_protocol=e[2])
                    for n, e in self.endpoints.items()
                ],
                features=[
                    ControllerFeature(name=name, min_supported_version=levels[0], max_supported_version=levels[1])
                    for name, levels in sorted(self.features.items())
                ],
            ),
            0,
        )


class ClusterImage(NamedTuple):
    """The registered brokers and controllers by id."""

    brokers: Map[int, BrokerRegistration] = Map()
    controllers: Map[int, ControllerRegistration] = Map()

    def get(self, broker_id: int) -> BrokerRegistration | None:
        """Return the registration of a broker, fenced or not."""
        return self.brokers.get(broker_id)

    def __contains__(self, broker_id: object) -> bool:
        return broker_id in self.brokers

    def all(self) -> list[BrokerRegistration]:
        """Return every registered broker by ascending id."""
        return [self.brokers[broker_id] for broker_id in sorted(self.brokers)]

    def alive(self, listener: str | None = None) -> list[BrokerRegistration]:
        """Return the unfenced brokers by ascending id; with a listener name, only brokers with that listener."""
        return [b for b in self.all() if not b.fenced and (listener is None or listener in b.endpoints)]

    def is_active(self, broker_id: int) -> bool:
        """Whether a broker is registered, unfenced and not shutting down."""
        broker = self.brokers.get(broker_id)
        return broker is not None and broker.is_active

    def write(self, version: MetadataVersion) -> Iterator[VersionedRecord]:
        for broker in self.all():
            yield broker.to_record(version)
        if version.supports_controller_registration:
            for controller_id in sorted(self.controllers):
                yield self.controllers[controller_id].to_record()


class ClusterDelta:
    """Changes of registrations. `changed_brokers` maps an id to its new registration, None after unregistration."""

    def __init__(self, image: ClusterImage) -> None:
        self._image = image
        self.changed_brokers: dict[int, BrokerRegistration | None] = {}
        self.changed_controllers: dict[int, ControllerRegistration] = {}

    def register_broker(self, record: RegisterBrokerRecord) -> None:
        self.changed_brokers[record.broker_id] = BrokerRegistration.from_record(record)

    def unregister_broker(self, record: UnregisterBrokerRecord) -> None:
        self._current(BrokerId(record.broker_id), BrokerEpoch(record.broker_epoch))
        self.changed_brokers[record.broker_id] = None

    def fence(self, record: FenceBrokerRecord) -> None:
        self.changed_brokers[record.id] = self._current(BrokerId(record.id), BrokerEpoch(record.epoch))._replace(
            fenced=True
        )

    def unfence(self, record: UnfenceBrokerRecord) -> None:
        self.changed_brokers[record.id] = self._current(BrokerId(record.id), BrokerEpoch(record.epoch))._replace(
            fenced=False
        )

    def change_broker(self, record: BrokerRegistrationChangeRecord) -> None:
        broker = self._current(BrokerId(record.broker_id), BrokerEpoch(record.broker_epoch))
        if record.fenced:
            broker = broker._replace(fenced=record.fenced == FENCE)
        if record.in_controlled_shutdown == IN_CONTROLLED_SHUTDOWN:
            broker = broker._replace(in_controlled_shutdown=True)
        if record.log_dirs:  # an empty list means no change; the record cannot express the loss of all directories
            broker = broker._replace(directories=tuple(sorted(record.log_dirs)))
        self.changed_brokers[broker.id] = broker

    def register_controller(self, record: RegisterControllerRecord) -> None:
        self.changed_controllers[record.controller_id] = ControllerRegistration.from_record(record)

    def apply(self) -> ClusterImage:
        brokers = self._image.brokers.mutate()
        for broker_id, broker in self.changed_brokers.items():
            if broker is None:
                brokers.pop(broker_id, None)
            else:
                brokers[broker_id] = broker
        return ClusterImage(brokers.finish(), self._image.controllers.update(self.changed_controllers))

    def _current(self, broker_id: BrokerId, epoch: BrokerEpoch) -> BrokerRegistration:
        broker = self.changed_brokers.get(broker_id, self._image.brokers.get(broker_id))
        if broker is None:
            raise InvalidMetadata(f"a record changes broker {broker_id}, which is not registered")
        if broker.epoch != epoch:
            raise InvalidMetadata(f"a record names epoch {epoch} of broker {broker_id}, whose epoch is {broker.epoch}")
        return broker
